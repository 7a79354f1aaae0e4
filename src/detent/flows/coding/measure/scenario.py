"""A scenario: a request, a small workspace, the replies it gets, and what is true once it is done.

Nothing here knows a rule of completion. How a scenario is written in a file is in `case_input`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class ScriptedCall:
    """A tool call of a reply."""

    tool: str
    args: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ScriptedReply:
    """One reply, in no style."""

    text: str = ""
    calls: tuple[ScriptedCall, ...] = ()
    finish: Literal["stop", "length"] = "stop"


@dataclass(frozen=True, slots=True)
class FileGoal:
    """What is true of a file."""

    contains: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    absent: bool = False
    """The file is not there."""

    def holds(self, file: Path) -> bool:
        """Whether it is true now."""
        if self.absent or not file.is_file():
            return self.absent and not file.exists()
        text = file.read_text(encoding="utf-8", errors="replace")
        return all(part in text for part in self.contains) and not any(part in text for part in self.excludes)


@dataclass(frozen=True, slots=True)
class Goal:
    """What is true of the workspace and of what the person has been told, once the request is done."""

    files: Mapping[str, FileGoal] = field(default_factory=dict)
    answer: tuple[str, ...] = ()
    """Texts, in any case, in what the person has been told."""

    def holds(self, workspace: Path, texts: Sequence[str]) -> bool:
        """Whether it is true now. `texts` are the assistant's texts of this request."""
        told = "\n".join(texts).casefold()
        return all(part.casefold() in told for part in self.answer) and all(
            goal.holds(workspace / name) for name, goal in self.files.items()
        )


@dataclass(frozen=True, slots=True)
class Scenario:
    """One request and everything that its course depends on."""

    id: str
    description: str
    prompt: str
    replies: tuple[ScriptedReply, ...]
    """In order; asked for more, the last one is repeated."""
    goal: Goal
    category: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    """The workspace."""
    tasks: Mapping[str, tuple[ScriptedReply, ...]] = field(default_factory=dict)
    """The replies that sub-tasks get, by their prompts."""
    deny: tuple[str, ...] = ()
    """Patterns of calls that are refused."""
    check: str | None = None
    """A command that ends with 0 if the request is done, for `done_when`."""

    def furnish(self, workspace: Path) -> None:
        """Write the workspace's files."""
        for name, text in self.files.items():
            file = workspace / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(text.encode())
