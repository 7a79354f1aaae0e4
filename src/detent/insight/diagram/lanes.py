"""Lanes beside the layers: moves that lead back on the right, moves into shared ends on the left.

A lane starts at the side of a box if nothing is in between, otherwise below it, and ends likewise at the side
or from above. Lanes keep clear of the layers they pass and of each other; shorter lanes are further inside.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

from detent.insight.diagram.shapes import Label, Point, Wire
from detent.insight.diagram.text_width import width

if TYPE_CHECKING:
    from detent.insight.diagram.layers import Neighbours
    from detent.insight.diagram.shapes import Box

LABEL_SIZE = 10.5
LABEL_LINE = 13.5
TRACK = 11.0
LANE = 15.0
"""Between lanes."""
CLEAR = 22.0
"""Between boxes and the first lane."""

Key = tuple[int, int]


class RailLink(Protocol):
    """A move that takes a lane."""

    frm: int
    to: int
    lines: tuple[str, ...]


class Places(Protocol):
    """What lanes need to know of a drawing whose boxes have their places."""

    names: tuple[str, ...]
    boxes: list[Box]
    level: dict[int, int]
    layers: list[list[int]]
    top: list[float]
    bottom: list[float]
    near: Neighbours
    x: dict[int, float]
    left: dict[int, float]
    right: dict[int, float]


class Rails:
    """The lanes of one drawing."""

    def __init__(
        self,
        layers: Sequence[Sequence[int]],
        level: dict[int, int],
        hubs: Sequence[RailLink],
        backs: Sequence[RailLink],
        loops: frozenset[int],
    ) -> None:
        self._hubs = list(hubs)
        self._loops = loops
        self._first = {layer[0] for layer in layers if layer}
        self._last = {layer[-1] for layer in layers if layer}
        place = {node: at for layer in layers for at, node in enumerate(layer)}
        # The leftmost end takes the outermost lane: then no lane crosses another on its way in.
        self._ends = sorted({link.to for link in hubs}, key=lambda node: (place[node], level[node], node))
        self._backs = sorted(
            backs, key=lambda link: (level[link.frm] - level[link.to], -level[link.to], link.frm)
        )
        self.exits: dict[int, list[Key]] = {}
        """Tracks below a layer, from the box down."""
        self.entries: dict[int, list[Key]] = {}
        """Tracks above a layer, from the box up."""
        for end in self._ends:
            for link in self._hubs:
                if link.to == end and link.frm not in self._first:
                    _once(self.exits.setdefault(level[link.frm], []), (-1, end))
            _once(self.entries.setdefault(level[end], []), (-1, end))
        for link in self._backs:
            if link.frm not in self._last:
                _once(self.exits.setdefault(level[link.frm], []), (link.frm, link.to))
            if link.to not in self._last:
                _once(self.entries.setdefault(level[link.to], []), (link.frm, link.to))
        self._met: dict[tuple[int, Key, bool], float] = {}

    # -- ports ----------------------------------------------------------------------------------------------

    def side_ports(self, node: int) -> int:
        """The most wires that meet one side of a box."""
        left = sum(link.frm == node for link in self._hubs) if node in self._first else 0
        right = sum(node in (link.frm, link.to) for link in self._backs) if node in self._last else 0
        return max(left, right + 2 * (node in self._loops))

    def flat_ports(self, node: int, below: bool) -> tuple[list[Key], list[Key]]:
        """Lanes that meet a box from below or above: those from the left, those from the right."""
        if below:
            left = [(-1, link.to) for link in self._hubs if link.frm == node and node not in self._first]
            right = [
                (link.frm, link.to) for link in self._backs if link.frm == node and node not in self._last
            ]
            return sorted(left, key=lambda key: self._ends.index(key[1])), right
        left = [(-1, node)] if node in self._ends else []
        right = [(link.frm, link.to) for link in self._backs if link.to == node and node not in self._last]
        return left, right[::-1]

    def meet(self, node: int, key: Key, below: bool, x: float) -> None:
        """Learn where a lane meets a box from below or above."""
        self._met[node, key, below] = x

    # -- wires ----------------------------------------------------------------------------------------------

    def wires(self, places: Places) -> list[Wire]:
        """All lanes as wires."""
        return [*self._hub_wires(places), *self._back_wires(places)]

    def _hub_wires(self, places: Places) -> list[Wire]:
        sky = _Skyline(places, -1)
        lanes: list[tuple[int, list[RailLink], dict[int, list[Point]], float]] = []
        for end in reversed(self._ends):  # innermost first
            links = [link for link in self._hubs if link.to == end]
            tails = {link.frm: self._tail(places, link.frm, (-1, end), left=True) for link in links}
            head = self._head(places, end, (-1, end), left=True)
            ys = [points[-1][1] for points in tails.values()] + [head[0][1]]
            lane = sky.take(min(ys), max(ys), 0.0)
            lanes.append((end, links, tails, lane))
        self._sort_entries(places, {end: lane for end, _, _, lane in lanes})
        wires: list[Wire] = []
        for end, links, tails, lane in lanes:
            head = self._head(places, end, (-1, end), left=True)
            for link in links:
                tail = tails[link.frm]
                points = [*tail, (lane, tail[-1][1]), (lane, head[0][1]), *head]
                wires.append(Wire(places.names[link.frm], places.names[end], "hub", _straight(points)))
        return wires

    def _sort_entries(self, places: Places, lane: dict[int, float]) -> None:
        """Order the tracks above shared ends so that lanes turn in without crossing one another."""
        for keys in self.entries.values():
            shared = [end for first, end in keys if first == -1]
            inwards = [end for end in shared if self._met[end, (-1, end), False] >= lane[end]]
            outwards = [end for end in shared if end not in inwards]
            row = [*inwards, *reversed(outwards)]
            keys[: len(row)] = [(-1, end) for end in row]

    def _back_wires(self, places: Places) -> list[Wire]:
        sky = _Skyline(places, 1)
        drafts: list[tuple[RailLink, list[Point], float]] = []
        for link in self._backs:
            key = (link.frm, link.to)
            tail = self._tail(places, link.frm, key, left=False)
            head = self._head(places, link.to, key, left=False)
            wide = max((width(line, LABEL_SIZE) for line in link.lines), default=0.0)
            low, high = sorted((tail[-1][1], head[0][1]))
            lane = sky.take(low, high, wide + 8.0 if wide else 0.0)
            drafts.append((link, [*tail, (lane, tail[-1][1]), (lane, head[0][1]), *head], lane))
        runs = [pair for _, points, _ in drafts for pair in _level_runs(points)]
        labels: list[Label] = []
        wires: list[Wire] = []
        for link, points, lane in drafts:
            label = None
            if link.lines:
                label = _beside(link.lines, lane, points, runs, labels)
                labels.append(label)
            names = places.names[link.frm], places.names[link.to]
            wires.append(Wire(*names, "back", _straight(points), label))
        return wires

    def _tail(self, places: Places, node: int, key: Key, *, left: bool) -> list[Point]:
        """From the box to where the lane is turned into."""
        box = places.boxes[node]
        if node in (self._first if left else self._last):
            y = self._side_y(places, node, key, left)
            return [(box.x if left else box.right, y)]
        level = places.level[node]
        x = self._met[node, key, True]
        y = places.bottom[level] + 13.0 + TRACK * self.exits[level].index(key)
        return [(x, box.bottom), (x, y)]

    def _head(self, places: Places, node: int, key: Key, *, left: bool) -> list[Point]:
        """From the lane to the box."""
        box = places.boxes[node]
        if not left and node in self._last:
            y = self._side_y(places, node, key, left)
            return [(box.right, y)]
        level = places.level[node]
        x = self._met[node, key, False]
        y = places.top[level] - 19.0 - TRACK * self.entries[level].index(key)
        return [(x, y), (x, box.y)]

    def _side_y(self, places: Places, node: int, key: Key, left: bool) -> float:
        box = places.boxes[node]
        if left:
            row = [(-1, end) for end in self._ends if any(k.frm == node and k.to == end for k in self._hubs)]
            top = box.y
        else:
            away = [(link.frm, link.to) for link in self._backs if link.frm == node]
            here = [(link.frm, link.to) for link in self._backs if link.to == node]
            row = [*away, *reversed(here)]
            top = box.y + (16.0 if node in self._loops else 0.0)
        room = box.bottom - top
        step = min(11.0, (room - 12.0) / (len(row) - 1)) if len(row) > 1 else 0.0
        return top + room / 2 + (row.index(key) - (len(row) - 1) / 2) * step


class _Skyline:
    """The outermost extent at each height on one side of the drawing."""

    def __init__(self, places: Places, side: int) -> None:
        self._side = side
        self._taken: list[tuple[float, float, float]] = []
        for number, layer in enumerate(places.layers):
            self._keep(places, layer, places.top[number] - 10.0, places.bottom[number] + 10.0)
        for number, (upper, lower) in enumerate(pairwise(places.layers)):
            # Between layers only curves: they reach as far as the nodes they join.
            joined = [node for node in upper if places.near.below.get(node)]
            joined += [node for node in lower if places.near.above.get(node)]
            self._keep(places, joined, places.bottom[number], places.top[number + 1])

    def _keep(self, places: Places, nodes: Sequence[int], high: float, low: float) -> None:
        if nodes and self._side < 0:
            reach = max(places.left[node] - places.x[node] for node in nodes)
            self._taken.append((high, low, reach + CLEAR - LANE))
        elif nodes:
            reach = max(places.x[node] + places.right[node] for node in nodes)
            self._taken.append((high, low, reach + CLEAR - LANE))

    def take(self, high: float, low: float, label: float) -> float:
        """A lane from one height to another, as far inside as possible."""
        reach = max(
            (out for above, below, out in self._taken if above <= low + 6.0 and below >= high - 6.0),
            default=0.0,
        )
        lane = reach + LANE
        self._taken.append((high, low, lane + label))
        return lane * self._side


def _once(keys: list[Key], key: Key) -> None:
    if key not in keys:
        keys.append(key)


def _straight(points: Sequence[Point]) -> tuple[Point, ...]:
    """Points without repetition and without those in the middle of a straight run."""
    kept: list[Point] = []
    for point in points:
        if kept and kept[-1] == point:
            continue
        if len(kept) > 1 and (
            kept[-2][0] == kept[-1][0] == point[0] or kept[-2][1] == kept[-1][1] == point[1]
        ):
            kept[-1] = point
        else:
            kept.append(point)
    return tuple(kept)


def _level_runs(points: Sequence[Point]) -> list[tuple[float, float, float]]:
    """The level parts of a wire: from, to, height."""
    return [
        (min(a[0], b[0]), max(a[0], b[0]), a[1]) for a, b in pairwise(points) if a[1] == b[1] and a[0] != b[0]
    ]


def _beside(
    lines: tuple[str, ...],
    lane: float,
    points: Sequence[Point],
    runs: Sequence[tuple[float, float, float]],
    others: Sequence[Label],
) -> Label:
    """A label right of its lane, as near to its middle as other wires and labels allow."""
    wide = max(width(line, LABEL_SIZE) for line in lines) + 4.0
    high = LABEL_LINE * len(lines) + 4.0
    ys = sorted(y for x, y in points if x == lane)
    middle = (ys[0] + ys[-1]) / 2
    room = max(0.0, (ys[-1] - ys[0] - high) / 2)
    x = lane + 4.0

    def clear(y: float) -> bool:
        crossed = any(frm < x + wide and to > x and y - 2 < at < y + high + 2 for frm, to, at in runs)
        met = any(
            label.x < x + wide and label.x + label.w > x and label.y < y + high and label.y + label.h > y
            for label in others
        )
        return not (crossed or met)

    shifts = [0.0]
    step = 6.0
    while step <= room:
        shifts += [step, -step]
        step += 6.0
    y = next(
        (middle - high / 2 + shift for shift in shifts if clear(middle - high / 2 + shift)), middle - high / 2
    )
    return Label(x, y, wide, high, lines, "start")
