"""The words of messages, kept in one file for each room.

A test asserts the code, the place and the exit code of a mistake itself. The words stand in `messages.txt`
beside it, where they can be read in one go and reworded without touching a test:
`DETENT_TEST_WRITE=1 make test WORKERS=0 ARGS=tests/cli` writes down what is said now.
"""

from __future__ import annotations

import os
from pathlib import Path

WRITE = bool(os.environ.get("DETENT_TEST_WRITE"))


class Messages:
    """The messages of a room, by what leads to them."""

    def __init__(self, file: Path) -> None:
        self.file = file
        text = file.read_text(encoding="utf-8") if file.exists() else ""
        blocks = (block.partition("\n") for block in text.strip().split("\n\n") if block)
        self.known = {cause: message for cause, _, message in blocks}

    def check(self, cause: str, message: str) -> None:
        """Assert that a cause leads to the message that is written down."""
        if WRITE:
            self.known[cause] = message
            blocks = sorted(f"{cause}\n{message}\n" for cause, message in self.known.items())
            self.file.write_text("\n".join(blocks), encoding="utf-8")
        assert message == self.known.get(cause)
