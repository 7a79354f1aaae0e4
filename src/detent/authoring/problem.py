"""Problems of files: a code, a message, the place in the file, and the nearest valid names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

from detent.kernel.errors import DefinitionError
from detent.kernel.machine import MachineProblem

Severity = Literal["error", "warning"]


class Place(NamedTuple):
    """A position in a file; lines and columns count from 1."""

    file: str
    """The file's name in messages; for a value from elsewhere, such as an environment variable, its name."""
    line: int
    """0 for a place without lines."""
    column: int = 1

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


NOWHERE = Place("", 0, 0)
"""Place of a definition made in Python, which has no file of its own."""


class Problem(NamedTuple):
    """One problem of a file or definition."""

    code: str
    """Codes beginning with W are warnings; empty for formats without codes."""
    message: str
    place: Place = NOWHERE
    path: str = ""
    """The part of the file, such as `steps[2].agent`; of a machine, the state."""
    suggestions: tuple[str, ...] = ()
    """The nearest valid names, at most five, best first."""

    @property
    def severity(self) -> Severity:
        """Warnings never prevent a run unless the check is strict."""
        return "warning" if self.code.startswith("W") else "error"

    def __str__(self) -> str:
        place = f"{Place(*self.place)}:" if self.place != NOWHERE else ""
        meant = f" Did you mean {either(self.suggestions)}?" if self.suggestions else ""
        named = f"'{self.path}'" in self.message or self.message.startswith(f"{self.path}: ")
        path = f" ({self.path})" if self.path and not named else ""
        return " ".join(filter(None, (place, self.code, f"{self.message}{meant}{path}")))

    def to_plain(self) -> dict[str, Any]:
        """The record that `--json` and `--format json` print."""
        file, line, column = self.place
        return {
            "code": self.code, "severity": self.severity, "message": self.message, "file": file or None,
            "line": line or None, "column": column or None, "path": self.path,
            "suggestion": list(self.suggestions),
        }  # fmt: skip


class DocumentError(DefinitionError):
    """A file cannot be used; all problems are listed at once, in the order of the file.

    `problems` holds them as `Problem` values.
    """

    def __init__(self, subject: str, problems: Iterable[Problem]) -> None:
        super().__init__(subject, in_order(problems))


def in_order(problems: Iterable[Problem]) -> list[Problem]:
    """Sort problems by file, line and column."""
    return sorted(problems, key=lambda problem: (problem.place, problem.code, problem.path))


def problems_of(error: Exception) -> list[Problem]:
    """Return the problems of an error; of the original error if it was wrapped as an error of a plugin."""
    listed: Sequence[Any] = getattr(getattr(error, "error", error), "problems", ())
    return [as_problem(item) for item in listed] or [Problem("", str(error))]


def as_problem(item: Problem | MachineProblem | str) -> Problem:
    """Convert a problem of a machine, or a sentence, into a problem without a place."""
    if isinstance(item, MachineProblem):
        return Problem(item.code, f"{item.where}: {item.message}")
    return item if isinstance(item, Problem) else Problem("", item)


def either(names: Sequence[str]) -> str:
    """Join names in quotes, with `or` before the last."""
    quoted = [f"'{name}'" for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} or {quoted[-1]}"
