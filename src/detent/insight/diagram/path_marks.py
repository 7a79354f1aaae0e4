"""The marks of a run's path in a drawing: visited states, moves made, and the current state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from detent.insight.table import Table


@dataclass(frozen=True, slots=True)
class Marks:
    """Counts by state and by move. Without a path, all empty."""

    visits: Mapping[str, int] = field(default_factory=dict)
    taken: Mapping[tuple[str, str], int] = field(default_factory=dict)
    current: str | None = None

    @classmethod
    def of(cls, table: Table, moves: Sequence[tuple[str, str]], current: str | None) -> Marks:
        """The marks of a path; states and moves unknown to the table, after a migration, are left out."""
        known = set(table.states)
        visits: dict[str, int] = {}
        taken: dict[tuple[str, str], int] = {}
        previous: str | None = None
        for frm, to in moves:
            entered = (
                [to] if frm == previous else [frm, to]
            )  # the first move, or a jump: `frm` was entered too
            for state in entered:
                visits[state] = visits.get(state, 0) + 1
            taken[frm, to] = taken.get((frm, to), 0) + 1
            previous = to
        if current is not None and current != previous:
            visits[current] = visits.get(current, 0) + 1
        pairs = {(edge.frm, edge.to) for edge in table.edges}
        return cls(
            {state: times for state, times in visits.items() if state in known},
            {pair: times for pair, times in taken.items() if pair in pairs},
            current if current in known else None,
        )

    def __bool__(self) -> bool:
        return bool(self.visits or self.current)
