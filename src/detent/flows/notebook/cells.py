"""The cells of a run, and which of them the notebook holds.

Cells are appended as they are written and never changed. Which of them count follows from what was accepted
and what a backtrack has superseded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Literal, Self

CELLS = "cells"
"""Key of the run's data: all cells, in the order in which they were written."""
ACCEPTED = "accepted"
"""Key: the attempts whose cells count, by name."""
SUPERSEDED = "superseded"
"""Key: ranges of cells that a backtrack has superseded, as pairs of positions."""

FOREIGN = "foreign"
"""Behavior and role of cells that a run has begun with: another program wrote and executed them."""

CellKind = Literal["title", "stage", "step", "section", "text", "code"]
HEADINGS: Mapping[str, str] = {"title": "# ", "stage": "## ", "step": "### ", "section": "#### "}


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell as it was written."""

    id: str
    kind: CellKind
    source: str
    stage: str | None = None
    step: str | None = None
    behavior: str | None = None
    iteration: int | None = None
    round: int | None = None
    role: str | None = None
    mode: str = "deterministic"
    status: str | None = None
    """Of a code cell: ok, error, timeout, interrupted or died."""
    error: str | None = None
    count: int | None = None
    outputs: Mapping[str, Any] | None = None
    """Where the outputs are kept outside the journal."""

    @property
    def attempt(self) -> str | None:
        """The iteration of a behavior that it belongs to; None for a heading between behaviors."""
        return None if self.behavior is None else attempt_name(self.behavior, self.iteration or 1)

    @property
    def is_code(self) -> bool:
        """Whether it is executed."""
        return self.kind == "code"

    @property
    def text(self) -> str:
        """What stands in the notebook."""
        return HEADINGS.get(self.kind, "") + self.source

    def to_plain(self) -> dict[str, Any]:
        """As plain values, without what it does not have."""
        values = {name: getattr(self, name) for name in self.__slots__}
        return {name: value for name, value in values.items() if value is not None}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Self:
        """Read back what `to_plain` wrote."""
        return cls(**plain)


def attempt_name(behavior: str, iteration: int) -> str:
    """The name of an iteration of a behavior."""
    return f"{behavior}#{iteration}"


def cell_id(*parts: Any) -> str:
    """An id for a cell: the same for the same cell at the same place."""
    return sha256("\0".join(map(str, parts)).encode("utf-8", "surrogatepass")).hexdigest()[:8]


def all_cells(values: Mapping[str, Any]) -> list[Cell]:
    """Every cell that was written, failed attempts included."""
    return [Cell.from_plain(plain) for plain in values.get(CELLS, ())]


def live_cells(values: Mapping[str, Any], *, attempt: str | None = None) -> list[Cell]:
    """The cells of the notebook so far, with those of one attempt that is not accepted yet."""
    kept = {*values.get(ACCEPTED, ()), *([attempt] if attempt is not None else ())}
    gone = values.get(SUPERSEDED, ())
    cells: list[Cell] = []
    for position, cell in enumerate(all_cells(values)):
        if any(begin <= position < end for begin, end in gone):
            continue
        if cell.attempt is None or cell.attempt in kept:
            cells.append(cell)
    return list(_retitled(cells))


def _retitled(cells: Sequence[Cell]) -> Iterator[Cell]:
    """A later heading of the same place changes the first one: it is never written twice."""
    newest = {_place(cell): cell for cell in cells if cell.kind in ("title", "stage", "step")}
    written: set[Any] = set()
    for cell in cells:
        if cell.kind not in ("title", "stage", "step"):
            yield cell
            continue
        if (place := _place(cell)) not in written:
            written.add(place)
            yield replace(cell, source=newest[place].source)


def _place(cell: Cell) -> tuple[str, str | None, str | None]:
    match cell.kind:
        case "title":
            return ("title", None, None)
        case "stage":
            return ("stage", cell.stage, None)
        case _:
            return (cell.kind, cell.stage, cell.step)


def superseded_from(values: Mapping[str, Any], step: str) -> list[int] | None:
    """The range of cells that going back to a step supersedes: its heading, and all after it."""
    cells, gone = all_cells(values), values.get(SUPERSEDED, ())
    for position, cell in enumerate(cells):
        if any(begin <= position < end for begin, end in gone):
            continue
        if cell.kind == "step" and cell.step == step and cell.behavior is None:
            return [position, len(cells)]
    return None


def base_of(values: Mapping[str, Any]) -> list[str]:
    """The accepted attempts whose cells count, in order: what the kernel has to hold."""
    return list(dict.fromkeys(cell.attempt for cell in live_cells(values) if cell.attempt is not None))
