"""Drawings are well-formed, self-contained, the same every time, and mark the path a run took."""

import json
import re
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detent.flows.refine.state_machine import REFINE
from detent.flows.refine.state_machine import OrchestrationState as S
from detent.insight.diagram.diagram import Path, mermaid, path_of, svg
from detent.insight.table import Table, condition_text
from detent.kernel.entries import Moved, Reopened, Started
from tests.examples import examples
from tests.insight.samples import CLAIM, claims, entries, journal
from tests.insight.test_layout import tables

SVG = "{http://www.w3.org/2000/svg}"
WAY = Path(
    (
        ("initialized", "planning"), ("planning", "validating"), ("validating", "planning"),
        ("planning", "validating"),
    ),
    "validating",
)  # fmt: skip


def states(drawing: str) -> dict[str, set[str]]:
    """Classes of each state's group, by the state's first words."""
    root = ElementTree.fromstring(drawing)
    found = {}
    for group in root.iter(f"{SVG}g"):
        classes = set(group.get("class", "").split())
        if "dt-state" in classes:
            title = group.findtext(f"{SVG}title") or ""
            found[title] = classes
    return found


def wires(drawing: str) -> dict[str, set[str]]:
    root = ElementTree.fromstring(drawing)
    return {
        group.findtext(f"{SVG}title") or "start": set(group.get("class", "").split())
        for group in root.iter(f"{SVG}g")
        if "dt-wire" in group.get("class", "").split()
    }


def test_the_path_is_marked_with_how_often():
    drawing = svg(REFINE, WAY)
    marked = states(drawing)
    assert "dt-visited" in marked["planning, visited 2 times"]
    assert "validating, visited 2 times, the run is here" in marked
    assert "dt-visited" not in marked["judging"]
    taken = wires(drawing)
    assert "dt-taken" in taken["planning → validating, taken 2 times"]
    assert "dt-taken" in taken["validating → planning, taken once"]
    assert "dt-taken" not in taken["judging → planning"]
    assert drawing.count(">×2<") == 3
    assert drawing.count('class="dt-ring"') == 1


def test_marking_a_path_shifts_nothing():
    def boxes(drawing):
        return re.findall(r'<rect class="dt-box"[^>]*>', drawing)

    assert boxes(svg(REFINE)) == boxes(svg(REFINE, WAY))


def test_ends_are_coloured_by_their_status():
    marked = states(svg(REFINE))
    assert "dt-failed" in marked["failed, an end: failed"]
    assert "dt-budget_exhausted" in marked["budget_exhausted, an end: budget_exhausted"]


def test_equal_input_gives_equal_bytes_from_machine_or_description():
    described = json.loads(json.dumps(REFINE.describe()))
    assert svg(REFINE, WAY) == svg(described, WAY) == svg(Table.of(REFINE), WAY)
    assert mermaid(REFINE, WAY) == mermaid(described, WAY)


def test_nothing_is_fetched_and_nothing_is_run():
    drawing = svg(CLAIM, WAY)
    root = ElementTree.fromstring(drawing)
    assert {element.tag for element in root.iter()} <= {
        f"{SVG}{name}" for name in ("svg", "title", "desc", "style", "rect", "g", "path", "circle", "text")
    }
    without_namespace = drawing.replace("http://www.w3.org/2000/svg", "")
    for word in ("http", "href", "url(", "@import", "@font-face", "script"):
        assert word not in without_namespace
    assert "prefers-color-scheme:dark" in drawing
    assert root.find(f"{SVG}title") is not None
    assert root.find(f"{SVG}desc") is not None


def test_states_may_be_given_as_members():
    moves = [(S.INITIALIZED, S.PLANNING)]
    assert svg(REFINE, (moves, S.PLANNING)) == svg(REFINE, ([("initialized", "planning")], "planning"))


def test_states_the_table_no_longer_has_are_not_marked():
    assert "2 taken" not in svg(REFINE, ([("gone", "planning"), ("planning", "lost")], "lost"))
    mermaid(REFINE, ([("gone", "planning")], "lost"))


@settings(max_examples=examples(80), deadline=None)
@given(tables(), st.data())
def test_any_table_is_well_formed_xml_with_finite_numbers(description, data):
    names = description["states"]
    pairs = data.draw(st.lists(st.tuples(st.sampled_from(names), st.sampled_from(names)), max_size=6))
    drawing = svg(description, (pairs, data.draw(st.none() | st.sampled_from(names))))
    ElementTree.fromstring(drawing)
    assert not re.search(r'="[^"]*\b(nan|inf)\b', drawing)


@given(st.text(min_size=1, max_size=30))
def test_any_name_of_a_state_can_be_drawn(name):
    moves = {name: [{"to": "the end", "event": name}]}
    description = {"name": name, "start": name, "moves": moves, "ends": {"the end": "succeeded"}}
    ElementTree.fromstring(svg(description))
    for line in mermaid(description).splitlines()[4:]:
        assert re.fullmatch(
            r'    (state "[^"\n]*" as s\d+|(s\d+|\[\*\]) --> (s\d+|\[\*\])( : ([^:;#\n]|#\d+;)+)?)', line
        ), line


def test_mermaid_has_ids_of_our_own_events_conditions_and_ends():
    text = mermaid(CLAIM)
    lines = [line.strip() for line in text.splitlines()]
    assert lines[:5] == ["---", 'title: "claim v1"', "---", "stateDiagram-v2", 'state "look-up" as s0']
    assert "[*] --> s0" in lines
    assert "s0 --> s1 : [device.status = valid]" in lines
    assert "s1 --> s2 : yes" in lines
    assert "s4 --> [*] : succeeded" in lines
    assert "class" not in text


def test_mermaid_marks_the_path():
    lines = [line.strip() for line in mermaid(REFINE, WAY).splitlines()]
    assert 'state "planning ×2" as s1' in lines
    assert "s1 --> s2 : ×2" in lines
    assert "s0 --> s1 : ✓" in lines
    assert "class s0,s1 visited" in lines
    assert "class s2 current" in lines


async def test_the_path_is_read_from_a_journal():
    lines, _ = await journal(claims(), {"serial": "A1"})
    path = path_of(lines)
    assert path == Path((("look-up", "approve"), ("approve", "pay"), ("pay", "paid")), "paid")
    assert "ended in paid" in svg(CLAIM, path)


def test_a_reopened_run_stands_where_it_was_sent():
    lines = entries(Started("claim", "pay", "claim", 1, "f" * 16), Moved("pay", "failed"), Reopened("pay"))
    assert path_of(lines) == Path((("pay", "failed"),), "pay")
    assert "pay, visited 2 times, the run is here" in states(svg(CLAIM, path_of(lines)))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ('{"a.b":"valid"}', "a.b = valid"),
        ('{"a":["x",1],"b":true}', "a = x or 1, b = true"),
        ('{"a":"present","b":"absent"}', "a present, b absent"),
        ("score_is_high", "score_is_high"),
        ("42", "42"),
    ],
)
def test_a_condition_is_spelt_out_for_people(name, text):
    assert condition_text(name) == text


def test_what_is_no_description_is_refused():
    with pytest.raises(ValueError, match="not a description"):
        svg({"name": "x"})
