"""The machine of a playbook: makes its table from the step files."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from detent.flows.playbook.declared_handler import NO_EDGE
from detent.flows.playbook.instruction import DEGRADED, DONE, ENDS, FAILED, Edge, InstructionFile, folded
from detent.kernel.guards import Guard, when
from detent.kernel.machine import Machine, Move
from detent.kernel.status import Status

STATUS: Mapping[str, Status] = {
    DONE: Status.SUCCEEDED,
    DEGRADED: Status.DEGRADED,
    FAILED: Status.FAILED,
}


def aliases_of(steps: Sequence[InstructionFile]) -> dict[str, str]:
    """Every name of steps and ends, folded, with its canonical name. The earlier step wins."""
    aliases: dict[str, str] = {folded(end): end for end in ENDS}
    for step in steps:
        aliases.setdefault(folded(step.id), step.id)
    for step in steps:
        for name in step.names:
            aliases.setdefault(folded(name), step.id)
    return aliases


def canonical_edges(step: InstructionFile, aliases: Mapping[str, str]) -> tuple[Edge, ...]:
    """A step's edges with canonical targets; an unknown target stays as it is."""
    return tuple(replace(edge, to=aliases.get(folded(edge.to), edge.to)) for edge in step.next)


def machine_of(name: str, version: int, start: str, edges: Mapping[str, Sequence[Edge]]) -> Machine[str]:
    """The machine of a playbook.

    Every step may also move to `graceful-degradation` and `FAILED`. These two moves stand last. The first of
    them always holds: it is taken, as `no_edge`, if no edge of the file holds. `FAILED` is taken only if code
    names it. An agent may name neither unless the file lists it: a step's `next` are the file's edges alone.
    """
    reachable = reached({start}, {step: [edge.to for edge in row] for step, row in edges.items()})
    moves: dict[str, list[Move[str]]] = {}
    for step, row in edges.items():
        if step not in reachable:
            continue
        here = moves[step] = []
        seen: set[tuple[str, str | None]] = set()
        for edge in row:
            guard: Guard | None = when(edge.when) if edge.when is not None else None
            key = (edge.to, guard.name if guard is not None else None)
            if key not in seen:
                seen.add(key)
                here.append(Move(edge.to, when=guard, reason=edge.reason))
        for end, reason in ((DEGRADED, NO_EDGE), (FAILED, None)):
            if (end, None) not in seen:
                here.append(Move(end, reason=reason))
    targets = {move.to for row_ in moves.values() for move in row_}
    ends = {end: status for end, status in STATUS.items() if end in targets}
    return Machine(name, start=start, moves=moves, ends=ends, version=version)


def reached(start: Collection[str], edges: Mapping[str, Collection[str]]) -> set[str]:
    """Every name reachable from the start names, these included."""
    seen, todo = set(start), list(start)
    while todo:
        for to in edges.get(todo.pop(), ()):
            if to not in seen:
                seen.add(to)
                todo.append(to)
    return seen
