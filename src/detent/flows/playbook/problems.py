"""What can be wrong with a playbook: a place, a code, and words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from detent.kernel.errors import DefinitionError


class Problem(NamedTuple):
    """One thing wrong with a file."""

    path: str
    """As shown to people: relative to what the playbook's folder stands in."""
    line: int
    code: str
    message: str
    warning: bool = False
    """It keeps nothing from running, unless somebody is strict."""

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.code} {self.message}"


class PlaybookError(DefinitionError):
    """A playbook cannot be used; all problems are listed at once."""

    def __init__(self, subject: str, problems: Iterable[Problem]) -> None:
        super().__init__(subject, sorted(problems, key=lambda one: (one.path, one.line, one.code)))
