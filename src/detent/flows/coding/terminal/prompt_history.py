"""Prompts that people have typed, kept beside the sessions for the next conversation, without secrets."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path

from detent.adapters.disk import keep_private, open_private, private_folder

FILE = "history"
MOST = 1000
"""Entries that are kept."""
LONGEST = 10_000
"""Characters of an entry; a longer one is not worth finding again."""


class PromptHistory:
    """Prompts, oldest first; each is one line of the file, written as a JSON text."""

    def __init__(self, folder: Path, hide: Callable[[str], str] = str) -> None:
        """`hide` takes secrets out of a text."""
        self.path = folder / FILE
        self._hide = hide

    def read(self) -> list[str]:
        """The latest prompts; what cannot be read is left out."""
        try:
            lines = self.path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return []
        found: list[str] = []
        for line in lines[-MOST:]:
            with contextlib.suppress(ValueError):
                text = json.loads(line)
                if isinstance(text, str):
                    found.append(text)
        if len(lines) > 2 * MOST:
            self._shorten(found)
        return found

    def add(self, text: str) -> None:
        """Keep a prompt. One that cannot be written is forgotten."""
        if not text.strip() or len(text) > LONGEST:
            return
        with contextlib.suppress(OSError):
            private_folder(self.path.parent)
            with open_private(self.path, "a", encoding="utf-8") as file:
                file.write(f"{json.dumps(self._hide(text))}\n")
            keep_private(self.path)

    def _shorten(self, texts: list[str]) -> None:
        new = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        with contextlib.suppress(OSError):
            with open_private(new, "w", encoding="utf-8") as file:
                file.writelines(f"{json.dumps(text)}\n" for text in texts)
            new.replace(self.path)
