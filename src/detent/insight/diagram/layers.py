"""Layered graph drawing: breaks cycles, assigns layers, reduces crossings, places nodes.

Nodes are whole numbers; `layers` lists the nodes of each layer.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

Arc = tuple[int, int]
SWEEPS = 12


def back_arcs(count: int, out: Mapping[int, Sequence[int]], start: int) -> set[Arc]:
    """The arcs that close a cycle in a depth-first walk from `start`, in the order `out` gives."""
    back: set[Arc] = set()
    seen: set[int] = set()
    for root in (start, *range(count)):
        if root in seen:
            continue
        seen.add(root)
        open_nodes = {root}
        stack = [(root, iter(out.get(root, ())))]
        while stack:
            node, rest = stack[-1]
            for to in rest:
                if to in open_nodes:
                    back.add((node, to))
                elif to not in seen:
                    seen.add(to)
                    open_nodes.add(to)
                    stack.append((to, iter(out.get(to, ()))))
                    break
            else:
                open_nodes.discard(node)
                stack.pop()
    return back


def ranks(count: int, arcs: Iterable[Arc]) -> list[int]:
    """The layer of each node, one below its lowest predecessor. The arcs must have no cycle."""
    after: dict[int, list[int]] = {}
    waiting = [0] * count
    for frm, to in arcs:
        after.setdefault(frm, []).append(to)
        waiting[to] += 1
    rank = [0] * count
    ready = [node for node in range(count) if not waiting[node]]
    for node in ready:
        for to in after.get(node, ()):
            rank[to] = max(rank[to], rank[node] + 1)
            waiting[to] -= 1
            if not waiting[to]:
                ready.append(to)
    return rank


class Neighbours:
    """The neighbours of each node in the layers directly above and below."""

    def __init__(self, arcs: Iterable[Arc]) -> None:
        self.above: dict[int, list[int]] = {}
        self.below: dict[int, list[int]] = {}
        for frm, to in arcs:
            self.below.setdefault(frm, []).append(to)
            self.above.setdefault(to, []).append(frm)


def ordered(layers: Sequence[Sequence[int]], near: Neighbours) -> list[list[int]]:
    """The layers with their nodes in an order that has few crossings: barycenter sweeps, then exchanges."""
    now = [list(layer) for layer in layers]
    best, fewest = [list(layer) for layer in now], _crossings(now, near)
    for sweep in range(SWEEPS):
        if not fewest:
            break
        downwards = sweep % 2 == 0
        side = near.above if downwards else near.below
        numbers = range(1, len(now)) if downwards else range(len(now) - 2, -1, -1)
        for number in numbers:
            other = now[number - 1 if downwards else number + 1]
            place = {node: at for at, node in enumerate(other)}
            now[number] = _by_barycenter(now[number], side, place)
        _exchange(now, near)
        crossings = _crossings(now, near)
        if crossings < fewest:
            best, fewest = [list(layer) for layer in now], crossings
    return best


def _by_barycenter(layer: list[int], side: Mapping[int, list[int]], place: Mapping[int, int]) -> list[int]:
    weight: dict[int, float] = {}
    for at, node in enumerate(layer):
        others = [place[other] for other in side.get(node, ())]
        weight[node] = sum(others) / len(others) if others else float(at)
    return sorted(layer, key=lambda node: weight[node])


def _exchange(layers: list[list[int]], near: Neighbours) -> None:
    """Swap adjacent nodes as long as that removes crossings."""
    for _ in range(4):
        better = False
        for number, layer in enumerate(layers):
            above = {node: at for at, node in enumerate(layers[number - 1])} if number else {}
            below = (
                {node: at for at, node in enumerate(layers[number + 1])} if number + 1 < len(layers) else {}
            )
            for at in range(len(layer) - 1):
                left, right = layer[at], layer[at + 1]
                gain = 0
                for side, place in ((near.above, above), (near.below, below)):
                    ours = sorted(place[other] for other in side.get(left, ()))
                    theirs = sorted(place[other] for other in side.get(right, ()))
                    gain += _inverted(ours, theirs) - _inverted(theirs, ours)
                if gain > 0:
                    layer[at], layer[at + 1] = right, left
                    better = True
        if not better:
            return


def _inverted(left: list[int], right: list[int]) -> int:
    """Crossings between the arcs of two nodes, the first standing left of the second."""
    return sum(len(left) - bisect_right(left, to) for to in right)


def _crossings(layers: Sequence[Sequence[int]], near: Neighbours) -> int:
    count = 0
    for upper, lower in pairwise(layers):
        place = {node: at for at, node in enumerate(lower)}
        seen: list[int] = []
        for node in upper:
            ends = sorted(place[to] for to in near.below.get(node, ()))
            count += sum(len(seen) - bisect_right(seen, end) for end in ends)
            for end in ends:
                insort(seen, end)
    return count


# -- places -------------------------------------------------------------------------------------------------


def placed(
    layers: Sequence[Sequence[int]],
    near: Neighbours,
    left: Mapping[int, float],
    right: Mapping[int, float],
    runs: Sequence[Sequence[int]],
    main: frozenset[Arc],
    gap: float,
) -> dict[int, float]:
    """A place across for every node: near its neighbours, in order, never closer than its sides allow.

    `left` and `right` say how far a node reaches to each side. `runs` are the nodes that only lead one long
    arc through the layers, one run per arc: kept in line before anything else. Arcs in `main` pull harder.
    """
    bends = frozenset(node for run in runs for node in run)
    x: dict[int, float] = {}
    offsets: list[list[float]] = []
    for layer in layers:
        steps, at = [], 0.0
        for number, node in enumerate(layer):
            if number:
                before = layer[number - 1]
                narrow = 0.6 if before in bends and node in bends else 1.0
                at += right[before] + gap * narrow + left[node]
            steps.append(at)
        offsets.append(steps)
        for node, step in zip(layer, steps, strict=True):
            x[node] = step - at / 2
    for sweep in range(6 * SWEEPS):
        last = sweep >= 3 * SWEEPS
        line: dict[int, float] = {}
        for run in runs if last else ():
            if len(run) > 1:
                line.update(dict.fromkeys(run, _middle([x[member] for member in run])))
        downwards = sweep % 2 == 0
        numbers = range(len(layers)) if downwards else range(len(layers) - 1, -1, -1)
        for number in numbers:
            layer = layers[number]
            targets, weights = [], []
            for node in layer:
                pull, weight = 0.0, 0.0
                for above, side, now in (
                    (True, near.above, last or downwards),
                    (False, near.below, last or not downwards),
                ):
                    for other in side.get(node, ()) if now else ():
                        arc = (other, node) if above else (node, other)
                        share = 12.0 if arc in main else 1.0
                        if node in line:
                            share = 0.0 if other in line else 4.0
                        pull += share * x[other]
                        weight += share
                if node in line:
                    pull, weight = pull + 24.0 * line[node], weight + 24.0
                targets.append(pull / weight if weight else x[node])
                weights.append(weight if weight else 0.05)
            for node, place in zip(layer, _spread(targets, weights, offsets[number]), strict=True):
                x[node] = place
    return x


def _middle(places: list[float]) -> float:
    return sorted(places)[len(places) // 2]


def _spread(targets: Sequence[float], weights: Sequence[float], offsets: Sequence[float]) -> list[float]:
    """The places nearest to the targets (least squares) that keep order and distance."""
    blocks: list[tuple[float, float, int]] = []  # mean, weight, how many
    for want, weight, offset in zip(targets, weights, offsets, strict=True):
        mean, heavy, many = want - offset, weight, 1
        while blocks and blocks[-1][0] >= mean:
            before, load, number = blocks.pop()
            mean = (mean * heavy + before * load) / (heavy + load)
            heavy, many = heavy + load, many + number
        blocks.append((mean, heavy, many))
    places: list[float] = []
    for mean, _, many in blocks:
        places += [mean + offsets[len(places) + index] for index in range(many)]
    return places
