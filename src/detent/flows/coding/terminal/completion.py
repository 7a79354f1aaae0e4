"""Completions in the prompt: commands and what they take, and paths of the workspace."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

MOST = 200
HIDDEN = (".git", ".detent")
"""Names that no tool is shown."""


class Completion:
    """Completes the word at the cursor."""

    def __init__(
        self, commands: Iterable[str], arguments: Mapping[str, Callable[[], Iterable[str]]], folder: Path
    ) -> None:
        """`arguments` gives what may follow a command; other words are paths in `folder`."""
        self._commands = sorted(f"/{name}" for name in commands)
        self._arguments = arguments
        self._folder = folder

    def __call__(self, word: str, before: str) -> list[str]:
        """What a word may become, given what stands before it."""
        if not before.strip() and word.startswith("/") and "/" not in word[1:]:
            return [f"{name} " for name in self._commands if name.startswith(word)]
        command = before.split()[0][1:] if before.startswith("/") and before.split() else ""
        if command in self._arguments and len(before.split()) == 1:
            return [f"{value} " for value in self._arguments[command]() if value.startswith(word)][:MOST]
        return self._paths(word)

    def _paths(self, word: str) -> list[str]:
        quote = word[:1] if word[:1] in ("'", '"', "`") else ""
        path = word[len(quote) :]
        folder, start = path[: path.rfind("/") + 1], path[path.rfind("/") + 1 :]
        try:
            with os.scandir(self._folder / folder) as entries:
                found = sorted(
                    (entry.name, entry.is_dir()) for entry in entries if self._fits(entry.name, start)
                )
        except (OSError, ValueError):
            return []
        return [self._written(folder + name, is_dir, quote) for name, is_dir in found[:MOST]]

    @staticmethod
    def _fits(name: str, start: str) -> bool:
        hidden = name.startswith(".") and not start.startswith(".")
        return name.startswith(start) and not hidden and name not in HIDDEN and name.isprintable()

    @staticmethod
    def _written(path: str, is_dir: bool, quote: str) -> str:
        if is_dir:
            return f"{quote}{path}/"
        if not quote and " " in path:
            quote = '"'
        return f"{quote}{path}{quote} "
