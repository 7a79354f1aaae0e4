"""The timeline: everything named, nothing overlapping or cut off, the same in both formats."""

import io
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from functools import cache
from itertools import combinations

import pytest
from PIL import Image

from detent.apps.choreography import picture
from detent.apps.choreography.domain.implementer import implement
from detent.apps.choreography.domain.judge import judge
from detent.apps.choreography.domain.plan import AgentPlan
from detent.apps.choreography.domain.planner import plan_show
from detent.apps.choreography.domain.song import SongSection
from detent.apps.choreography.domain.stage import Stage
from detent.apps.choreography.picture.drawing import Area, Lines, Rectangle, Text, text_width
from detent.apps.choreography.picture.raster import font
from detent.apps.choreography.picture.timeline import timeline
from detent.apps.choreography.show.fixtures import Rig
from tests.apps.choreography.show.samples import planned, show_of, song, three_sections

LONG_SONG = [
    ("intro", 8, 20), ("verse", 16, 48), ("build", 1, 62), ("chorus", 16, 84), ("verse", 15, 50),
    ("chorus", 16, 88), ("breakdown", 1, 18), ("build", 1, 60), ("drop", 8, 97), ("bridge", 2, 45),
    ("chorus", 12, 90), ("outro", 6, 25),
]  # fmt: skip
"""Twelve sections, some of a single bar."""


def of_sections(rows):
    """A song of these labels, bars and energies."""
    whole = song(sum(bars for _, bars, _ in rows), drift=0.02)
    sections, energies, bar = [], [], 1
    for number, (label, bars, energy) in enumerate(rows, 1):
        sections.append(SongSection(f"S{number}", label, bar, bar + bars - 1, energy))
        energies += [float(energy)] * bars
        bar += bars
    return replace(whole, sections=tuple(sections), energy_per_bar=tuple(energies))


@cache
def shown(rows, heads):
    the_song, stage = of_sections(rows), Stage(heads=heads)
    plan = plan_show(the_song, stage)
    implementation, _ = implement(the_song, plan, stage)
    evaluation = judge(the_song, plan, implementation, stage)
    return the_song, plan, implementation, evaluation, stage, Rig.of_heads(heads)


def show(rows=LONG_SONG, heads=4):
    """What a picture takes."""
    return shown(tuple(rows), heads)


def texts(drawing) -> list[Text]:
    return [shape for shape in drawing.shapes if isinstance(shape, Text)]


@pytest.mark.parametrize("heads", [1, 4, 8, 12])
@pytest.mark.parametrize(
    "rows", [LONG_SONG, [("full", 2, 0)], [("intro", 1, 10), ("drop", 1, 95), ("outro", 1, 5)], LONG_SONG * 3]
)
def test_no_text_overlaps_another_or_leaves_the_picture(rows, heads):
    """R-54: also with sections of one bar, twelve of them, and one or many heads."""
    drawing = timeline(*show(rows, heads), status="success", iterations=3, tokens=74_999)
    boxes = [(text.text, text.box) for text in texts(drawing)]
    for name, (left, top, right, bottom) in boxes:
        assert min(left, top) >= 0, name
        assert right <= drawing.width, name
        assert bottom <= drawing.height, name
    for (one, first), (other, second) in combinations(boxes, 2):
        apart = (
            first[2] <= second[0] or second[2] <= first[0] or first[3] <= second[1] or second[3] <= first[1]
        )
        assert apart, (one, other)


def test_the_estimated_width_of_a_text_is_never_less_than_the_drawn_one():
    """R-54: what is estimated to fit does fit."""
    drawing = timeline(*show(), status="success", title="Winter Lights WWW mmm", tokens=1)
    for text in texts(drawing):
        drawn = font(text.size * 4).getlength(text.text) / 4 + (1 if text.bold else 0)
        assert drawn <= text_width(text.text, text.size, text.bold) + 0.5, text.text


@pytest.mark.parametrize("heads", [1, 8])
def test_every_section_and_fixture_and_the_status_are_named(heads):
    """R-54."""
    arguments = show(heads=heads)
    svg = picture.svg(*arguments, status="incomplete", iterations=3, tokens=1234)
    words = [node.text or "" for node in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]
    plan = arguments[1]
    for number, section in enumerate(plan.sections, 1):
        assert f"{number}  {section.name}" in words
    for head in range(1, heads + 1):
        assert f"MH{head}" in words
    assert {"incomplete", "3 iterations  ·  1,234 tokens", "60", "70"} <= set(words)
    scores = arguments[3].category_scores
    assert len(scores) == 8
    assert {score.category for score in scores} <= set(words)


def test_the_picture_can_be_read_aloud():
    root = ET.fromstring(picture.svg(*show(), status="success", title="Winter Lights"))
    title, description = root[0], root[1]
    assert title.tag.endswith("title")
    assert title.text.startswith("Winter Lights: success, ")
    assert description.tag.endswith("desc")
    assert "Drop 1 (drop), bars 75 to 82" in description.text


def test_equal_shows_give_equal_pictures():
    """R-54: deterministic bytes."""
    assert picture.svg(*show(), status="success") == picture.svg(*show(), status="success")
    assert picture.png(*show(), status="success") == picture.png(*show(), status="success")


def test_the_png_is_1600_pixels_wide_and_not_empty():
    image = Image.open(io.BytesIO(picture.png(*show(), status="success")))
    assert image.width == 1600
    assert len(image.getcolors(1 << 24) or []) > 50


def blocks_of(channels, templates=("harbor_drift",)):
    plan = AgentPlan(sections=(planned("A", 1, 8, *templates, channels=channels),))
    return timeline(
        song(8), plan, show_of(plan, 8), None, Stage(heads=2), Rig.of_heads(2), status="success"
    ).shapes  # fmt: skip


def test_strobes_gobos_layers_and_closed_shutters_are_marked_without_colour():
    """R-54: readable without colour."""
    plain = blocks_of(("open", "red", "open"))

    def more(shapes, kind) -> int:
        return sum(isinstance(shape, kind) for shape in shapes) - sum(
            isinstance(shape, kind) for shape in plain
        )

    assert more(blocks_of(("strobe_fast", "red", "open")), Lines) == 2
    assert more(blocks_of(("open", "red", "prism")), Area) > 0
    assert more(blocks_of(("open", "red", "open"), ("harbor_drift", "spark_relay")), Rectangle) == 2
    words = [shape.text for shape in blocks_of(("closed", "red", "open")) if isinstance(shape, Text)]
    assert "red · closed" in words


def test_a_run_that_ended_early_still_has_a_picture():
    """R-54, 3.11: no plan, no implementation, no evaluation."""
    stage, rig = Stage(), Rig.of_heads(4)
    for plan, implementation in ((None, None), (three_sections(), None)):
        drawing = timeline(song(24), plan, implementation, None, stage, rig, status="failed")
        assert {"failed", "not judged", "MH4"} <= {text.text for text in texts(drawing)}


def test_a_failing_category_is_told_in_words():
    arguments = list(show())
    evaluation = arguments[3]
    low = replace(evaluation.category_scores[0], score=12.0)
    arguments[3] = replace(
        evaluation,
        category_scores=(low, *evaluation.category_scores[1:]),
        automatic_failures=("no_layering",),
    )
    words = {text.text for text in texts(timeline(*arguments, status="incomplete"))}
    assert {"12.0 fails", "automatic failure: no_layering", "/ 100, does not pass"} <= words


def test_the_picture_package_is_light_to_import():
    code = "import sys, detent.apps.choreography.picture; print({'PIL', 'numpy'} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "set()"
