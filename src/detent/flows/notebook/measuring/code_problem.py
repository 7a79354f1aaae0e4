"""Something wrong with a cell that is found by reading it."""

from __future__ import annotations

from typing import Literal, NamedTuple

ProblemCode = Literal[
    "syntax", "shell", "forbidden_call", "forbidden_import", "outside_path", "undefined_name", "unseeded",
    "holdout",
]  # fmt: skip


class CodeProblem(NamedTuple):
    """A problem and its place."""

    code: ProblemCode
    cell: int
    """Number of the cell in what was checked, from 0."""
    line: int
    """Line in the cell, from 1."""
    name: str
    """The name, call or text it is about."""
    message: str

    def __str__(self) -> str:
        return f"cell {self.cell + 1}, line {self.line}: {self.message}"
