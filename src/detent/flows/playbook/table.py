"""From step files to the table of a machine: which steps there are and which may follow which."""

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
    """Everything steps and ends go by, folded, with the canonical name. The earlier step wins."""
    found: dict[str, str] = {folded(end): end for end in ENDS}
    for step in steps:
        found.setdefault(folded(step.id), step.id)
    for step in steps:
        for name in step.names:
            found.setdefault(folded(name), step.id)
    return found


def canonical_edges(step: InstructionFile, aliases: Mapping[str, str]) -> tuple[Edge, ...]:
    """A step's edges with canonical targets; one that names nothing known keeps its name."""
    return tuple(replace(edge, to=aliases.get(folded(edge.to), edge.to)) for edge in step.next)


def machine_of(name: str, version: int, start: str, edges: Mapping[str, Sequence[Edge]]) -> Machine[str]:
    """The machine of a playbook.

    Every step may also be led to `graceful-degradation` and `FAILED`. These two moves stand last and the
    first of them always holds: it is taken when no edge of the file holds, as `no_edge`, and `FAILED` is
    taken only by those who name it. An agent may name neither unless the file lists it: a step's `next` are
    the file's edges alone.
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
    there = {move.to for row_ in moves.values() for move in row_}
    ends = {end: status for end, status in STATUS.items() if end in there}
    return Machine(name, start=start, moves=moves, ends=ends, version=version)


def reached(start: Collection[str], edges: Mapping[str, Collection[str]]) -> set[str]:
    """The names that can be reached from some of them, these included."""
    seen, todo = set(start), list(start)
    while todo:
        for to in edges.get(todo.pop(), ()):
            if to not in seen:
                seen.add(to)
                todo.append(to)
    return seen
