"""Layout of a table's diagram: boxes in layers, moves as wires between them, labels beside the wires.

Moves that lead on are curves from layer to layer. Moves that lead back run up lanes on the right. Moves into
ends that nearly every state may fall into (failed, say) share one lane per end on the left, so that they do
not hide the way things are meant to go. A layout does not depend on any run: marking a path never shifts it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Literal

from detent.insight.diagram.lanes import Rails
from detent.insight.diagram.layers import Arc, Neighbours, back_arcs, ordered, placed, ranks
from detent.insight.diagram.shapes import Box, Label, Layout, Wire
from detent.insight.diagram.text_width import cut, width, wrap
from detent.insight.table import Edge, Table

NAME_SIZE = 13.0
LABEL_SIZE = 10.5
LABEL_WIDTH = 170.0
LINE = 17.0
LABEL_LINE = 13.5
MARGIN = 24.0
HEADER = 40.0
MARKER = 40.0
"""Room above the first layer for the mark of the start."""
GAP = 34.0
"""Between boxes of a layer."""
TRACK = 11.0
KINK = 14.0
"""How far a wire's end may be moved to make the wire straight."""
HUB_FROM = 3
"""Plain moves into a bad end from which on they share a lane."""

_DOTTED = re.compile(r"(?:[\w-]+\.)+([\w-]+)")

Kind = Literal["forward", "back", "hub", "self"]


@dataclass(slots=True)
class Link:
    """All moves from one state to another, drawn as one wire."""

    frm: int
    to: int
    edges: list[Edge]
    kind: Kind = "forward"
    lines: tuple[str, ...] = ()
    chain: list[int] = field(default_factory=list)
    """Forward links: the nodes it passes, both ends included."""
    label_node: int | None = None


def layout(table: Table) -> Layout:
    """The drawing of a table."""
    return _Plan(table).drawn()


def label_lines(edges: Iterable[Edge]) -> tuple[str, ...]:
    """Label of a wire: event or reason, and the condition; empty for a plain move."""
    rows: list[str] = []
    listed = list(edges)
    for edge in listed:
        head = edge.event or edge.reason
        condition = f"[{edge.condition}]" if edge.condition else None
        if condition and width(condition, LABEL_SIZE) > LABEL_WIDTH:
            condition = _DOTTED.sub(r"\1", condition)  # the last word of a dotted key says most
        if len(listed) == 1:
            rows += [text for text in (head, condition) if text]
        elif head or condition:
            rows.append(" ".join(text for text in (head, condition) if text))
    if len(rows) > 4:
        rows = [*rows[:3], f"+ {len(rows) - 3} more"]
    return tuple(cut(text, LABEL_SIZE, LABEL_WIDTH) for text in rows)


class _Plan:
    """One layout in progress, from nodes without places to finished shapes."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.names = table.states
        self.index = {name: number for number, name in enumerate(self.names)}
        self.count = len(self.names)
        self.links = self._links()
        self._classify()
        self.lines = [wrap(name, NAME_SIZE, 190.0, 3) for name in self.names]
        self.w = [self._box_width(number) for number in range(self.count)]
        self.h = [
            24.0 + LINE * len(lines) + (6.0 if name in table.ends else 0.0)
            for name, lines in zip(self.names, self.lines, strict=True)
        ]
        self._layer()
        self._place_across()
        self._measure_ports()
        self._place_down()

    # -- states and links ------------------------------------------------------------------------------------

    def _links(self) -> list[Link]:
        links: dict[Arc, Link] = {}
        for edge in self.table.edges:
            pair = (self.index[edge.frm], self.index[edge.to])
            links.setdefault(pair, Link(*pair, [])).edges.append(edge)
        for link in links.values():
            link.lines = label_lines(link.edges)
        return list(links.values())

    def _classify(self) -> None:
        into: dict[int, list[Link]] = {}
        for link in self.links:
            status = self.table.ends.get(self.names[link.to])
            if link.frm == link.to:
                link.kind = "self"
            elif status is not None and status != "succeeded" and not link.lines:
                into.setdefault(link.to, []).append(link)
        for links in into.values():
            if len(links) >= HUB_FROM:
                for link in links:
                    link.kind = "hub"
        out: dict[int, list[int]] = {}
        for link in self.links:
            if link.kind == "forward":
                out.setdefault(link.frm, []).append(link.to)
        back = back_arcs(self.count, out, self.index[self.table.start])
        for link in self.links:
            if link.kind == "forward" and (link.frm, link.to) in back:
                link.kind = "back"
        self.forward = [link for link in self.links if link.kind == "forward"]
        self.hubs = [link for link in self.links if link.kind == "hub"]
        self.backs = [link for link in self.links if link.kind == "back"]
        self.selves = {link.frm: link for link in self.links if link.kind == "self"}

    def _box_width(self, number: int) -> float:
        text = max(width(line, NAME_SIZE) for line in self.lines[number])
        wires = max(
            sum(link.frm == number for link in self.forward), sum(link.to == number for link in self.forward)
        )
        return max(84.0, text + 30.0, 13.0 * wires + 20.0)

    # -- layers ---------------------------------------------------------------------------------------------

    def _layer(self) -> None:
        rank = ranks(self.count, [(link.frm, link.to) for link in self.forward])
        touched = {end for link in self.forward for end in (link.frm, link.to)}
        # An end that only shared lanes lead to is in the last row, at the left, below its lane.
        self.aside = [
            number
            for number in range(self.count)
            if number not in touched and any(link.to == number for link in self.hubs)
        ]
        lowest = max((rank[number] for number in range(self.count) if number not in self.aside), default=0)
        alone = all(number in self.aside for number in range(self.count) if rank[number] == lowest)
        for number in self.aside:
            rank[number] = lowest if lowest and not alone else lowest + 1
        self.scale = 2 if any(link.lines for link in self.forward) else 1
        self.level = {number: rank[number] * self.scale for number in range(self.count)}
        self.left = {number: self.w[number] / 2 for number in range(self.count)}
        self.right = {number: self.w[number] / 2 + self._loop_room(number) for number in range(self.count)}
        self.label_height: dict[int, float] = {}
        arcs = self._chains()
        layers: list[list[int]] = [[] for _ in range(max(self.level.values()) + 1)]
        for node in self._reading_order():
            if node not in self.aside:
                layers[self.level[node]].append(node)
        self.near = Neighbours(arcs)
        self.layers = ordered(layers, self.near)
        for number in reversed(self.aside):
            self.layers[self.level[number]].insert(0, number)

    def _loop_room(self, number: int) -> float:
        link = self.selves.get(number)
        if link is None:
            return 0.0
        return 34.0 + max((width(line, LABEL_SIZE) for line in link.lines), default=0.0)

    def _chains(self) -> list[Arc]:
        """Lead long links through the layers between; a label is in the first layer below its state."""
        arcs: list[Arc] = []
        fresh = self.count
        for link in self.forward:
            link.chain = [link.frm]
            for level in range(self.level[link.frm] + 1, self.level[link.to]):
                reach, height = 5.0, 0.0
                if link.lines and link.label_node is None:
                    link.label_node = fresh
                    reach = max(width(line, LABEL_SIZE) for line in link.lines) / 2 + 5.0
                    height = LABEL_LINE * len(link.lines) + 4.0
                self.level[fresh], self.left[fresh], self.right[fresh] = level, reach, reach
                self.label_height[fresh] = height
                link.chain.append(fresh)
                fresh += 1
            link.chain.append(link.to)
            arcs += pairwise(link.chain)
        return arcs

    def _reading_order(self) -> list[int]:
        """Nodes in breadth-first order, so that equal choices keep the order of the table."""
        after: dict[int, list[int]] = {}
        for link in self.forward:
            for node, successor in pairwise(link.chain):
                after.setdefault(node, []).append(successor)
        seen = dict.fromkeys([self.index[self.table.start]])
        todo = list(seen)
        for node in todo:
            for successor in after.get(node, ()):
                if successor not in seen:
                    seen[successor] = None
                    todo.append(successor)
        return [*seen, *(node for node in self.level if node not in seen)]

    # -- places ---------------------------------------------------------------------------------------------

    def _place_across(self) -> None:
        runs = [link.chain[1:-1] for link in self.forward if len(link.chain) > 2]
        first: dict[int, Link] = {}
        for link in self.forward:  # the move a state names first is the way things are meant to go
            first.setdefault(link.frm, link)
        self.main = {id(link) for link in first.values()}
        main = frozenset(arc for link in first.values() for arc in pairwise(link.chain))
        self.x = placed(self.layers, self.near, self.left, self.right, runs, main, GAP)
        for layer in self.layers:  # an end that stands aside has nothing to stand under: beside the others
            for at in range(len(layer) - 2, -1, -1):
                node, after = layer[at], layer[at + 1]
                if node in self.aside:
                    self.x[node] = self.x[after] - self.left[after] - GAP - self.right[node]

    def _measure_ports(self) -> None:
        """Boxes grow with the wires at their sides."""
        self.rails = Rails(self.layers, self.level, self.hubs, self.backs, frozenset(self.selves))
        for number in range(self.count):
            ports = self.rails.side_ports(number)
            self.h[number] = max(self.h[number], 14.0 + 9.0 * ports)

    def _place_down(self) -> None:
        self.top: list[float] = []
        self.bottom: list[float] = []
        y = MARGIN + HEADER + MARKER + self._tracks(self.rails.entries, 0)
        for number, layer in enumerate(self.layers):
            height = max((self._height(node) for node in layer), default=0.0)
            self.top.append(y)
            self.bottom.append(y + height)
            lean = max(
                (abs(self.x[node] - self.x[to]) for node in layer for to in self.near.below.get(node, ())),
                default=0.0,
            )
            base = (42.0 if self.scale == 1 else 25.0) + min(56.0, 0.09 * lean)
            y += height + base
            y += self._tracks(self.rails.exits, number) + self._tracks(self.rails.entries, number + 1)

    def _tracks(self, tracks: dict[int, list[tuple[int, int]]], layer: int) -> float:
        many = len(tracks.get(layer, ()))
        return TRACK * many + 8.0 if many else 0.0

    def _height(self, node: int) -> float:
        return self.h[node] if node < self.count else self.label_height[node]

    # -- shapes ---------------------------------------------------------------------------------------------

    def drawn(self) -> Layout:
        """The finished shapes, moved so that nothing is left of the margin."""
        self.boxes = [self._box(number) for number in range(self.count)]
        start = self.boxes[self.index[self.table.start]]
        wires = self._forward_wires()
        mark = (start.cx, start.y - 30.0)
        wires += self.rails.wires(self)
        wires += [self._loop(link) for link in self.selves.values()]
        by_pair = {(wire.frm, wire.to): wire for wire in wires}
        listed = [by_pair[self.names[link.frm], self.names[link.to]] for link in self.links]
        return _moved(self.boxes, listed, mark)

    def _box(self, number: int) -> Box:
        level = self.level[number]
        middle = (self.top[level] + self.bottom[level]) / 2
        return Box(
            self.names[number], self.x[number] - self.w[number] / 2, middle - self.h[number] / 2,
            self.w[number], self.h[number], self.lines[number],
        )  # fmt: skip

    def _forward_wires(self) -> list[Wire]:
        out: dict[int, list[Link]] = {}
        into: dict[int, list[Link]] = {}
        for link in self.forward:
            out.setdefault(link.frm, []).append(link)
            into.setdefault(link.to, []).append(link)
        leave: dict[int, float] = {}
        enter: dict[int, float] = {}
        for number in range(self.count):
            leaving = sorted(out.get(number, ()), key=lambda link: (self.x[link.chain[1]], link.chain[1]))
            places = self.ports(number, [id(link) for link in leaving], below=True)
            leave.update(places)
            entering = sorted(into.get(number, ()), key=lambda link: (self.x[link.chain[-2]], link.chain[-2]))
            enter.update(self.ports(number, [id(link) for link in entering], below=False))
        for link in self.forward:
            self._straighten(link, leave, enter, len(out[link.frm]) == 1, len(into[link.to]) == 1)
        return [self._curve(link, leave[id(link)], enter[id(link)]) for link in self.forward]

    def _straighten(
        self, link: Link, leave: dict[int, float], enter: dict[int, float], alone: bool, awaited: bool
    ) -> None:
        """Take a small kink out of a wire by moving its ends a little along their boxes."""
        key = id(link)
        chain = link.chain[1:-1]
        near_leave, near_enter = (self.x[chain[0]], self.x[chain[-1]]) if chain else (enter[key], leave[key])
        start, end = self.boxes[link.frm], self.boxes[link.to]
        if alone and abs(near_leave - leave[key]) <= KINK and start.x <= near_leave <= start.right:
            leave[key] = near_leave
            if not chain:
                return
        if awaited and abs(near_enter - enter[key]) <= KINK and end.x <= near_enter <= end.right:
            enter[key] = near_enter

    def ports(self, number: int, links: list[int], *, below: bool) -> dict[int, float]:
        """Where wires meet the lower or upper side of a box: lanes outside, curves between them."""
        first, last = self.rails.flat_ports(number, below)
        row: list[object] = [*(("rail", key) for key in first), *links, *(("rail", key) for key in last)]
        box = self.boxes[number]
        many = len(row)
        chief = [at for at, item in enumerate(row) if item in self.main]
        middle = float(chief[0]) if len(chief) == 1 else (many - 1) / 2
        widest = max(middle, many - 1 - middle)
        step = min(24.0, (box.w / 2 - 12.0) / widest) if widest else 0.0
        places: dict[int, float] = {}
        for at, item in enumerate(row):
            x = box.cx + (at - middle) * step
            if isinstance(item, int):
                places[item] = x
            elif isinstance(item, tuple):
                self.rails.meet(number, item[1], below, x)
        return places

    def _curve(self, link: Link, leave: float, enter: float) -> Wire:
        start, end = self.boxes[link.frm], self.boxes[link.to]
        points = [(leave, start.bottom), (leave, self.bottom[self.level[link.frm]])]
        label = None
        for node in link.chain[1:-1]:
            x, level = self.x[node], self.level[node]
            points += [(x, self.top[level]), (x, self.bottom[level])]
            if node == link.label_node:
                middle = (self.top[level] + self.bottom[level]) / 2
                height = LABEL_LINE * len(link.lines) + 4.0
                label = Label(
                    x - self.left[node] + 1, middle - height / 2, 2 * self.left[node] - 2, height, link.lines
                )
        # The last bit is straight down, so that the arrowhead sits on its line.
        points += [(enter, self.top[self.level[link.to]] - 11.0), (enter, end.y)]
        return Wire(start.name, end.name, "forward", tuple(dict.fromkeys(points)), label)

    def _loop(self, link: Link) -> Wire:
        box = self.boxes[link.frm]
        right = box.right
        points = (
            (right - 22.0, box.y),
            (right - 22.0, box.y - 28.0),
            (right + 28.0, box.y - 16.0),
            (right, box.y + 12.0),
        )
        label = None
        if link.lines:
            wide = max(width(line, LABEL_SIZE) for line in link.lines)
            high = LABEL_LINE * len(link.lines) + 4.0
            label = Label(right + 14.0, box.y - high / 2 - 2.0, wide + 8.0, high, link.lines)
        return Wire(box.name, box.name, "self", points, label)


def _moved(boxes: list[Box], wires: list[Wire], mark: tuple[float, float]) -> Layout:
    """Shapes shifted into view, with the size of the whole; coordinates to a tenth of a pixel."""
    xs = [box.x for box in boxes] + [box.right for box in boxes]
    ys = [box.bottom for box in boxes]
    for wire in wires:
        xs += [x for x, _ in wire.points]
        ys += [y for _, y in wire.points]
        if wire.label is not None:
            xs += [wire.label.x, wire.label.x + wire.label.w]
            ys.append(wire.label.y + wire.label.h)
    shift = MARGIN - min(xs)

    def at(x: float) -> float:
        return round(x + shift, 1)

    def label(old: Label | None) -> Label | None:
        return replace(old, x=at(old.x), y=round(old.y, 1)) if old is not None else None

    return Layout(
        round(max(xs) + shift + MARGIN, 1),
        round(max(ys) + MARGIN, 1),
        tuple(replace(box, x=at(box.x), y=round(box.y, 1)) for box in boxes),
        tuple(
            replace(wire, points=tuple((at(x), round(y, 1)) for x, y in wire.points), label=label(wire.label))
            for wire in wires
        ),
        (at(mark[0]), round(mark[1], 1)),
    )
