"""Trees as text, one line per row, for terminals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(slots=True)
class Row:
    """One line of a tree, the notes under it and its child rows."""

    text: str
    notes: Sequence[str] = ()
    below: Sequence[Row] = ()


def tree_lines(rows: Sequence[Row], lead: str = "") -> list[str]:
    """The lines of a tree, each row joined to its parent; `lead` stands before every line."""
    lines: list[str] = []
    for number, row in enumerate(rows, 1):
        last = number == len(rows)
        lines.append(f"{lead}{'└─' if last else '├─'} {row.text}")
        below = f"{lead}{'  ' if last else '│ '} "
        lines += [f"{below}{'│ ' if row.below else '  '}  {note}" for note in row.notes]
        lines += tree_lines(row.below, below)
    return lines
