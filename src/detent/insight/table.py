"""The table of a flow, read from a `Machine` or from the description that a store keeps of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

from detent.kernel.guards import Guard
from detent.kernel.machine import Machine, Move
from detent.kernel.status import Status


@dataclass(frozen=True, slots=True)
class Edge:
    """One allowed move."""

    frm: str
    to: str
    event: str | None = None
    when: str | None = None
    """Name of the move's condition."""
    reason: str | None = None

    @property
    def condition(self) -> str | None:
        """The condition as people read it: `status = valid` for `{"status":"valid"}`."""
        return None if self.when is None else condition_text(self.when)


@dataclass(frozen=True, slots=True)
class Table:
    """States and moves by name."""

    name: str
    version: int
    start: str
    states: tuple[str, ...]
    edges: tuple[Edge, ...]
    ends: Mapping[str, str]
    """Each end with the status of a run that reaches it."""
    may_end: frozenset[str] = frozenset()

    @classmethod
    def of(cls, source: Source) -> Table:
        """The table of a machine, or of the description of one."""
        if isinstance(source, Table):
            return source
        plain = source.describe() if isinstance(source, Machine) else source
        try:
            start = str(plain["start"])
            moves: Mapping[str, Any] = plain.get("moves", {})
            edges = tuple(
                Edge(str(frm), str(move["to"]), move.get("event"), move.get("when"), move.get("reason"))
                for frm, row in moves.items()
                for move in row
            )
            ends = {str(end): str(status) for end, status in plain.get("ends", {}).items()}
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f"This is not a description of a machine: {type(error).__name__} {error}."
            ) from error
        named = [start, *moves, *(edge.to for edge in edges), *ends]
        return cls(
            str(plain.get("name", "machine")),
            int(plain.get("version", 1)),
            start,
            tuple(dict.fromkeys([*map(str, plain.get("states", ())), *named])),
            edges,
            ends,
            frozenset(map(str, plain.get("may_end", ()))),
        )

    def out_of(self, state: str) -> tuple[Edge, ...]:
        """The moves out of a state, in table order."""
        return tuple(edge for edge in self.edges if edge.frm == state)


Source: TypeAlias = Machine[Any] | Mapping[str, Any] | Table
"""Sources a table can be read from."""


def machine_of(source: Machine[Any] | Mapping[str, Any]) -> Machine[Any]:
    """A machine from a stored description: same states in the same order, same fingerprint.

    Its conditions are names only and always hold: good for adding up what happened, not for deciding.
    """
    if isinstance(source, Machine):
        return source
    table = Table.of(source)
    # A machine keeps the order of its states only when they are an enum's.
    make: Any = Enum
    members = make("States", {f"S{number}": name for number, name in enumerate(table.states)})
    moves: dict[Any, list[Move[Any]]] = {members(state): [] for state in source.get("moves", {})}
    for edge in table.edges:
        guard = Guard(edge.when, _always) if edge.when is not None else None
        moves[members(edge.frm)].append(Move(members(edge.to), edge.event, guard, edge.reason))
    return Machine(
        table.name,
        start=members(table.start),
        moves=moves,
        ends={members(end): Status(status) for end, status in table.ends.items()},
        version=table.version,
        may_end=[members(state) for state in sorted(table.may_end)],
        self_moves=source.get("self_moves", "error"),
    )


def _always(data: Mapping[str, Any]) -> bool:
    return True


def condition_text(name: str) -> str:
    """A condition's name for people: a condition written as data is spelled out, any other is unchanged."""
    try:
        tests = json.loads(name)
    except ValueError:
        return name
    if not isinstance(tests, dict) or not tests:
        return name
    return ", ".join(_test_text(key, expected) for key, expected in tests.items())


def _test_text(key: str, expected: Any) -> str:
    if expected in ("present", "absent"):
        return f"{key} {expected}"
    if isinstance(expected, list):
        return f"{key} = {' or '.join(_literal(option) for option in expected)}"
    return f"{key} = {_literal(expected)}"


def _literal(plain: Any) -> str:
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)
