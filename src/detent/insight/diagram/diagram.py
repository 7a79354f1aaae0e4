"""Diagrams of a table: Mermaid text and self-contained SVG, optionally with a run's path marked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from detent.insight.diagram.layout import layout
from detent.insight.diagram.mermaid import state_diagram
from detent.insight.diagram.path_marks import Marks
from detent.insight.diagram.svg import draw
from detent.insight.table import Source, Table
from detent.kernel.entries import Entry, Migrated, Moved, Reopened, Started
from detent.kernel.errors import name_of


class Path(NamedTuple):
    """The path of a run through its table."""

    moves: tuple[tuple[str, str], ...]
    """From and to, in order."""
    current: str | None = None
    """The run's current state."""


PathLike = Path | tuple[Sequence[tuple[Any, Any]], Any]


def path_of(entries: Iterable[Entry]) -> Path:
    """The path recorded in a journal."""
    moves: list[tuple[str, str]] = []
    current: str | None = None
    for entry in entries:
        body = entry.body
        if isinstance(body, Moved):
            moves.append((body.frm, body.to))
            current = body.to
        elif isinstance(body, Started | Reopened | Migrated):
            current = body.state
    return Path(tuple(moves), current)


def svg(description: Source, path: PathLike | None = None) -> str:
    """The table as an SVG of its own: no scripts, no fonts, nothing fetched. Equal input, equal bytes."""
    table = Table.of(description)
    return draw(table, layout(table), _marks(table, path))


def mermaid(description: Source, path: PathLike | None = None) -> str:
    """The table as a Mermaid state diagram."""
    table = Table.of(description)
    return state_diagram(table, _marks(table, path))


def _marks(table: Table, path: PathLike | None) -> Marks:
    if path is None:
        return Marks()
    moves, current = path
    pairs = [(name_of(frm), name_of(to)) for frm, to in moves]
    return Marks.of(table, pairs, None if current is None else name_of(current))
