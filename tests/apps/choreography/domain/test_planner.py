"""The deterministic planner, alone and with the implementer and the judge."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detent.apps.choreography.domain.arrangement import conflicts, strobed_percent
from detent.apps.choreography.domain.implementer import implement
from detent.apps.choreography.domain.judge import judge
from detent.apps.choreography.domain.library import Library, load_library
from detent.apps.choreography.domain.planner import plan_show
from detent.apps.choreography.domain.stage import Stage
from detent.apps.choreography.domain.validation import validate
from detent.flows.refine.feedback import Feedback
from tests.apps.choreography.domain.songs import CURVES, WORKED, drawn_song, song_of
from tests.examples import examples

STAGES = {heads: Stage(heads) for heads in (1, 2, 4, 8)}
STAGE = STAGES[4]


@pytest.mark.parametrize("heads", STAGES)
@pytest.mark.parametrize("curve", CURVES)
@given(seed=st.integers(0, 10**9), odd=st.booleans())
@settings(max_examples=examples(100))
def test_every_drawn_song_gets_a_valid_show_that_passes_with_85(
    curve: str, heads: int, seed: int, odd: bool
) -> None:
    """R-48: no errors, no conflicts, at least 85 and no failing category, and equal the second time."""
    song, stage = drawn_song(random.Random(seed), curve, odd=odd), STAGES[heads]
    plan = plan_show(song, stage)
    assert validate(song, plan, stage).errors == ()
    made, warnings = implement(song, plan, stage)
    assert warnings == []
    assert conflicts(made, heads) == []
    evaluation = judge(song, plan, made, stage)
    assert evaluation.passes(pass_threshold=85), evaluation.summary
    assert plan_show(song, stage) == plan
    assert implement(song, plan, stage)[0] == made


def test_every_starter_template_is_chosen_by_some_song() -> None:
    """R-49: in forty drawn songs."""
    chosen: set[str] = set()
    for seed in range(40):
        plan = plan_show(drawn_song(random.Random(seed)), STAGE)
        chosen |= {name for section in plan.sections for name in section.templates}
    assert chosen == set(load_library())


def test_sections_are_named_and_posed_by_their_labels() -> None:
    """3.7: one plan section for each section of the song; `full` is a verse."""
    labels = ["intro", "verse", "chorus", "verse", "chorus", "breakdown", "build", "drop", "outro"]
    plan = plan_show(song_of(*((label, 8, 50) for label in labels)), STAGE)
    assert [section.name for section in plan.sections] == [
        "Intro", "Verse 1", "Chorus 1", "Verse 2", "Chorus 2", "Breakdown 1", "Build 1", "Drop 1", "Outro",
    ]  # fmt: skip
    assert [section.base_pose for section in plan.sections] == [
        "SOFT_HOME", "AUDIENCE_CENTER", "AUDIENCE_LEFT", "AUDIENCE_CENTER", "AUDIENCE_RIGHT", "CEILING",
        "FORWARD", "UP", "SOFT_HOME",
    ]  # fmt: skip
    (whole,) = plan_show(song_of(("full", 8, 50)), STAGE).sections
    assert (whole.name, whole.section_role) == ("Verse 1", "verse")


@pytest.mark.parametrize(("count", "layers"), [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (8, 4), (9, 5)])
def test_the_loudest_half_is_layered(count: int, layers: int) -> None:
    """3.7, rule 1: max(1, ⌊P/2 + ½⌋) of P, the loudest; none on a single head."""
    energies = [30 + (37 * k) % 41 for k in range(count)]
    song = song_of(*(("verse", 8, energy) for energy in energies))
    rich = [k for k, section in enumerate(plan_show(song, STAGE).sections) if len(section.templates) == 2]
    assert rich == sorted(sorted(range(count), key=lambda k: -energies[k])[:layers])
    assert all(len(section.templates) == 1 for section in plan_show(song, STAGES[1]).sections)


def test_intensity_speed_and_shutter_follow_the_thresholds() -> None:
    """3.7, rules 3 and 4, at their bounds."""
    energies = [34, 35, 39, 40, 55, 56, 70, 74, 75, 76]
    plan = plan_show(song_of(*(("verse", 8, energy) for energy in energies)), STAGE)
    assert [(s.params.intensity, s.params.speed, s.channels.shutter) for s in plan.sections] == [
        ("SMOOTH", "SLOW", "open"),
        ("SMOOTH", "MODERATE", "open"),
        ("SMOOTH", "MODERATE", "open"),
        ("DRAMATIC", "MODERATE", "open"),
        ("DRAMATIC", "MODERATE", "open"),
        ("DRAMATIC", "MODERATE", "pulse"),
        ("DRAMATIC", "MODERATE", "pulse"),
        ("DRAMATIC", "MODERATE", "strobe_medium"),
        ("DRAMATIC", "FAST", "strobe_medium"),
        ("INTENSE", "FAST", "strobe_medium"),
    ]
    loud = plan_show(song_of(*(("chorus", 8, 86 + k) for k in range(10))), STAGE)
    assert [s.channels.shutter for s in loud.sections] == ["pulse"] * 7 + ["strobe_fast"] * 3
    assert strobed_percent(loud, STAGE) == 30


def test_colours_come_in_groups_cut_at_the_largest_steps() -> None:
    """3.7, rule 5: warm where a section is loud, else by the mean; the lists are taken in turn."""
    song = song_of(*(("verse", 8, energy) for energy in (20, 25, 80, 50, 45, 85)))
    assert [s.channels.color for s in plan_show(song, STAGE).sections] == [
        "blue", "blue", "red", "red", "red", "orange",
    ]  # fmt: skip
    calm = song_of(*(("verse", 8, energy) for energy in (10, 30, 50)))
    assert [s.channels.color for s in plan_show(calm, STAGE).sections] == ["blue", "cyan", "magenta"]


def test_no_colour_lasts_longer_than_half_of_a_song_that_can_be_divided() -> None:
    """One loud run between a quiet beginning and end is not all red."""
    song = song_of(*(("chorus", 8, energy) for energy in (10, 90, 92, 88, 91, 89, 93, 20)))
    colours = [s.channels.color for s in plan_show(song, STAGE).sections]
    assert colours == ["blue", "red", "red", "orange", "orange", "orange", "orange", "cyan"]
    unequal = song_of(("verse", 40, 50), *(("chorus", 4, energy) for energy in (80, 82, 84, 81)))
    assert len({s.channels.color for s in plan_show(unequal, STAGE).sections[:2]}) == 2


@pytest.mark.parametrize(
    "wheel",
    [
        ("white", "red"),
        ("blue", "cyan"),
        ("red", "blue"),
        ("white", "green", "amber", "uv"),
        ("blue", "cyan", "red", "lime"),
        ("uv", "white", "blue", "cyan"),
    ],
)
def test_a_plan_names_only_what_the_wheels_have(wheel: tuple[str, ...]) -> None:
    """And passes, as far as a rig can do what the judge wants."""
    wheels = {"color": wheel, "gobo": ("open", "clouds")}
    stage = replace(STAGE, wheels=wheels)
    for seed in range(40):
        song = drawn_song(random.Random(seed), "mixed" if seed % 2 else "loud")
        plan = plan_show(song, stage)
        assert {s.channels.color for s in plan.sections} <= set(wheel)
        assert {s.channels.gobo for s in plan.sections} <= {"open", "clouds"}
        evaluation = judge(song, plan, implement(song, plan, stage)[0], stage)
        assert evaluation.passes(), evaluation.summary


def test_gobos_go_to_the_loudest_until_half_is_open() -> None:
    """3.7, rule 6."""
    song = song_of(*(("verse", 8, energy) for energy in (10, 20, 30, 40, 50, 60, 70, 82, 90, 100)))
    assert [s.channels.gobo for s in plan_show(song, STAGE).sections] == [
        *["open"] * 6, "circles", "shatter", "stars", "prism",
    ]  # fmt: skip


def test_a_template_that_feedback_names_in_a_section_is_avoided_there() -> None:
    """3.7, rule 2: + 30, and nowhere else."""
    plan = plan_show(WORKED, STAGE)
    blamed = plan.sections[1].templates[0]
    weakness = {"section": "Verse 1", "template": blamed, "text": "too loud"}
    failing = [{"category": "Energy Matching", "score": 20, "weaknesses": [weakness]}]
    feedback = Feedback("judge_hard_failure", "", 1, metadata={"failing": failing})
    again = plan_show(WORKED, STAGE, [feedback])
    assert blamed not in again.sections[1].templates
    assert again.sections[0] == plan.sections[0]
    bare = Feedback("validation_failure", "text", 1, metadata={"issues": []})
    assert plan_show(WORKED, STAGE, [bare]) == plan


def test_ties_are_decided_by_id_and_otherwise_on_a_replan() -> None:
    """3.7, rule 2: ids rotated by the iteration."""
    twin = load_library()["tide_tilt"]
    library = Library({name: twin.model_copy(update={"template_id": name}) for name in ("a", "b", "c")})
    song = song_of(("verse", 8, 30))
    stage = replace(STAGES[1], library=library)
    chosen = [plan_show(song, stage, iteration=k).sections[0].templates for k in (1, 2, 3, 4)]
    assert chosen == [("a",), ("b",), ("c",), ("a",)]


def test_a_library_of_one_template_still_gives_a_plan() -> None:
    """A section cannot have one template twice."""
    only = Library({"slow_fan": load_library()["slow_fan"]})
    plan = plan_show(WORKED, replace(STAGE, library=only))
    assert Counter(section.templates for section in plan.sections) == {("slow_fan",): 3}
