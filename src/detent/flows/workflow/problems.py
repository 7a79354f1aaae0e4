"""What can be wrong with a workflow file: a code, a place, words, and what may have been meant."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

from detent.kernel.errors import DefinitionError

Severity = Literal["error", "warning"]


class Place(NamedTuple):
    """Where something stands in a file; lines and columns count from 1."""

    file: str
    """As shown to people."""
    line: int
    column: int = 1


class Problem(NamedTuple):
    """One thing wrong with a file."""

    code: str
    message: str
    place: Place
    path: str = ""
    """Which part of the file, such as `steps[2].agent`."""
    suggestions: tuple[str, ...] = ()
    """The nearest valid names, at most five, best first."""

    @property
    def severity(self) -> Severity:
        """Warnings keep nothing from running, unless somebody is strict."""
        return "warning" if self.code.startswith("W") else "error"

    def __str__(self) -> str:
        meant = f" Did you mean {_either(self.suggestions)}?" if self.suggestions else ""
        where = f" ({self.path})" if self.path else ""
        file, line, column = self.place
        return f"{file}:{line}:{column}: {self.code} {self.message}{meant}{where}"

    def to_plain(self) -> dict[str, Any]:
        """As the record that `--json` prints."""
        file, line, column = self.place
        return {
            "code": self.code, "severity": self.severity, "message": self.message, "file": file, "line": line,
            "column": column, "path": self.path, "suggestion": list(self.suggestions),
        }  # fmt: skip


def _either(names: tuple[str, ...]) -> str:
    quoted = [f"'{name}'" for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} or {quoted[-1]}"


class WorkflowFileError(DefinitionError):
    """A workflow file cannot be used; all its problems are listed at once."""

    def __init__(self, subject: str, problems: Iterable[Problem]) -> None:
        super().__init__(subject, sorted(problems, key=lambda one: (one.place, one.code, one.path)))
