"""What a person types while a request runs: kept for the next prompt, never taken for an answer.

Nothing typed meanwhile is echoed into the display, and a paste of many lines does not become many prompts.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
from types import TracebackType
from typing import Any, Self

from detent.flows.coding.terminal.prompt_line import is_interactive

LONGEST = 1_000_000
"""Bytes that are kept."""
_KEYS = re.compile("\x1b\\[20[01]~|\x1b(?:\\[[0-?]*[ -/]*[@-~]|O.|.)?|[\x00-\x08\x0b\x0c\x0e-\x1f]")
"""Keys that are no text, and the marks around a paste."""


class TypedAhead:
    """Takes keys from the terminal while the block runs. Ctrl-C is not taken: it interrupts."""

    def __init__(self) -> None:
        self._raw = bytearray()
        self._before: list[Any] | None = None
        self._number = -1

    def __enter__(self) -> Self:
        if not is_interactive():
            return self
        with contextlib.suppress(Exception):
            import termios

            self._number = sys.stdin.fileno()
            before = termios.tcgetattr(self._number)
            quiet = termios.tcgetattr(self._number)
            quiet[3] &= ~(termios.ECHO | termios.ICANON)
            quiet[3] |= termios.NOFLSH  # Ctrl-C leaves what was typed before it
            quiet[6] = [*quiet[6]]
            quiet[6][termios.VMIN], quiet[6][termios.VTIME] = 1, 0
            termios.tcsetattr(self._number, termios.TCSADRAIN, quiet)
            self._before = before
            asyncio.get_running_loop().add_reader(self._number, self._take)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.restore()

    def restore(self) -> None:
        """Give the terminal back as it was; may be called at any time, more than once."""
        before, self._before = self._before, None
        if before is None:
            return
        with contextlib.suppress(Exception):
            asyncio.get_running_loop().remove_reader(self._number)
        with contextlib.suppress(Exception):
            import termios

            termios.tcsetattr(self._number, termios.TCSADRAIN, before)

    def _take(self) -> None:
        try:
            raw = os.read(self._number, 65536)
        except OSError:
            raw = b""
        if not raw:  # the terminal is gone
            with contextlib.suppress(Exception):
                asyncio.get_running_loop().remove_reader(self._number)
        if len(self._raw) < LONGEST:
            self._raw += raw

    def take(self) -> str:
        """What was typed, as text for the next prompt; it is taken once."""
        raw, self._raw = bytes(self._raw), bytearray()
        return as_typed(raw.decode("utf-8", "replace"))

    def discard(self) -> None:
        """Forget what was typed: nobody answers a question before it is asked."""
        self._raw.clear()


def as_typed(keys: str) -> str:
    """The text that keys have written: what was deleted is gone, and so are keys that write nothing."""
    text: list[str] = []
    for key in re.split("([\x7f\x08\x15])", keys.replace("\r\n", "\n").replace("\r", "\n")):
        if key in ("\x7f", "\x08"):
            if text:
                text[-1] = text[-1][:-1]
                while text and not text[-1]:
                    text.pop()
        elif key == "\x15":  # the line so far
            whole = "".join(text)
            text = [whole[: whole.rfind("\n") + 1]]
        else:
            written = _KEYS.sub("", key)
            if written:
                text.append(written)
    return "".join(text)
