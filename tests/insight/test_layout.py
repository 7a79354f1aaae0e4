"""Whatever the table, no box stands on another, no label on a box, and every move is drawn."""

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detent.flows.refine.state_machine import REFINE
from detent.insight.diagram.layers import Neighbours, back_arcs, ordered, ranks
from detent.insight.diagram.layout import layout
from detent.insight.diagram.shapes import Box, Label, Layout
from detent.insight.diagram.text_width import cut, width, wrap
from detent.insight.table import Table
from tests.examples import examples
from tests.insight.samples import CLAIM

ENDS = ["succeeded", "failed", "degraded", "budget_exhausted", "cancelled"]


@st.composite
def tables(draw) -> dict:
    """The description of some machine, orderly or not."""
    count = draw(st.integers(1, 14))
    ends = draw(st.integers(0, 3))
    names = [f"{draw(st.sampled_from(['', 'a-rather-long-', 'Ünï ']))}s{number}" for number in range(count)]
    endings = {f"e{number}": draw(st.sampled_from(ENDS)) for number in range(ends)}
    everyone = [*names, *endings]
    texts = st.none() | st.text(max_size=40)
    moves = {}
    for number, name in enumerate(names):
        row = [{"to": names[number + 1]}] if number + 1 < count and draw(st.booleans()) else []
        for to in draw(st.lists(st.sampled_from(everyone), max_size=5)):
            said = {"event": draw(texts), "when": draw(texts), "reason": draw(texts)}
            row.append(
                {"to": to, **{key: text for key, text in said.items() if text and draw(st.booleans())}}
            )
        moves[name] = row
    return {
        "name": "any",
        "version": 1,
        "start": names[0],
        "states": everyone,
        "moves": moves,
        "ends": endings,
    }


def apart(a: Box | Label, b: Box | Label) -> bool:
    return a.x + a.w <= b.x or b.x + b.w <= a.x or a.y + a.h <= b.y or b.y + b.h <= a.y


def on_border(box: Box, point: tuple[float, float]) -> bool:
    x, y = point
    inside = box.x - 0.2 <= x <= box.right + 0.2 and box.y - 0.2 <= y <= box.bottom + 0.2
    sides = (abs(x - box.x), abs(x - box.right), abs(y - box.y), abs(y - box.bottom))
    return inside and min(sides) <= 0.2


def check(table: Table, drawn: Layout) -> None:
    boxes = {box.name: box for box in drawn.boxes}
    assert list(boxes) == list(table.states)
    for a, b in combinations(drawn.boxes, 2):
        assert apart(a, b), (a, b)
    assert [(wire.frm, wire.to) for wire in drawn.wires] == list(
        dict.fromkeys((edge.frm, edge.to) for edge in table.edges)
    )
    for wire in drawn.wires:
        assert on_border(boxes[wire.frm], wire.points[0]), wire
        assert on_border(boxes[wire.to], wire.points[-1]), wire
        assert all(0 <= x <= drawn.width and 0 <= y <= drawn.height for x, y in wire.points)
    labels = [wire.label for wire in drawn.wires if wire.label is not None]
    assert all(apart(label, box) for label in labels for box in drawn.boxes)
    assert all(apart(a, b) for a, b in combinations(labels, 2))
    for box in drawn.boxes:
        assert 0 <= box.x < box.right <= drawn.width
        assert 0 <= box.y < box.bottom <= drawn.height


@settings(max_examples=examples(150), deadline=None)
@given(tables())
def test_no_box_stands_on_another_and_every_move_is_drawn(description):
    table = Table.of(description)
    check(table, layout(table))


@settings(max_examples=examples(60), deadline=None)
@given(tables())
def test_lanes_and_curves_pass_through_no_box(description):
    table = Table.of(description)
    drawn = layout(table)
    for wire in drawn.wires:
        if wire.kind == "self":
            continue
        for (ax, ay), (bx, by) in zip(wire.points, wire.points[1:], strict=False):
            if ax != bx and ay != by:
                continue  # a curve: it stays between two layers
            for box in drawn.boxes:
                # Touching its own boxes at their borders is what a wire is for.
                across = max(ax, bx) > box.x + 1 and min(ax, bx) < box.right - 1
                down = max(ay, by) > box.y + 1 and min(ay, by) < box.bottom - 1
                assert not (across and down), (wire, box)


@pytest.mark.parametrize("machine", [REFINE, CLAIM], ids=["refine", "claim"])
def test_the_shipped_tables_are_drawn_whole(machine):
    table = Table.of(machine)
    check(table, layout(table))


def test_moves_that_lead_back_run_on_the_right_and_moves_into_shared_ends_on_the_left():
    kinds = {(wire.frm, wire.to): wire for wire in layout(Table.of(REFINE)).wires}
    assert kinds["judging", "planning"].kind == "back"
    assert kinds["judging", "failed"].kind == "hub"
    assert kinds["judging", "succeeded"].kind == "forward"
    assert max(x for x, _ in kinds["judging", "planning"].points) > max(
        x for x, _ in kinds["judging", "succeeded"].points
    )


def test_the_way_things_are_meant_to_go_is_a_straight_line():
    boxes = {box.name: box for box in layout(Table.of(REFINE)).boxes}
    assert boxes["planning"].cx == pytest.approx(boxes["judging"].cx, abs=0.2)


def test_a_walk_finds_the_arcs_that_close_cycles():
    assert back_arcs(3, {0: [1], 1: [2], 2: [0, 2]}, 0) == {(2, 0), (2, 2)}


def test_a_node_stands_below_everything_that_leads_to_it():
    assert ranks(4, [(0, 1), (1, 2), (0, 2), (2, 3)]) == [0, 1, 2, 3]


def test_crossings_that_can_be_undone_are():
    near = Neighbours([(0, 3), (1, 2)])
    assert ordered([[0, 1], [2, 3]], near) in ([[0, 1], [3, 2]], [[1, 0], [2, 3]])


@given(st.text(max_size=80), st.floats(30, 200), st.integers(1, 4))
def test_wrapped_text_fits_its_box(text, limit, most):
    lines = wrap(text, 13, limit, most)
    assert 1 <= len(lines) <= most
    assert all(width(line, 13) <= limit or len(line) == 1 for line in lines)
    assert width(cut(text, 13, limit), 13) <= limit
