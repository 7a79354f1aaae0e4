"""The program on a terminal, as a person has it: keys go in, and what it prints comes out."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

PATIENCE = 60.0
"""Seconds after which what is waited for counts as missing."""
CTRL_C, CTRL_D = "\x03", "\x04"
_SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07]*\x07|\x1b[=>()].?")

_BACK = re.compile("(\x08{2,})")


class Terminal:
    """One process on a terminal of its own."""

    def __init__(
        self,
        folder: Path,
        *words: str,
        env: Mapping[str, str] | None = None,
        columns: int = 100,
        rows: int = 40,
    ) -> None:
        self._ours, theirs = pty.openpty()
        self.resize(columns, rows)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "detent", *words], cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs,
            env={**os.environ, "TERM": "xterm-256color", **(env or {})}, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        os.close(theirs)
        self.raw = b""
        """Everything that was printed."""
        self._mark = 0
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(PATIENCE)
        with contextlib.suppress(OSError):
            os.close(self._ours)

    def _read(self) -> None:
        while True:
            try:
                raw = os.read(self._ours, 65536)
            except OSError:
                raw = b""
            with self._news:
                self.raw += raw
                self._news.notify_all()
            if not raw:
                return

    # -- what is seen ---------------------------------------------------------------------------------------

    @property
    def text(self) -> str:
        """What was printed since keys were sent last, without sequences."""
        return as_text(self.raw[self._mark :])

    def until(self, *words: str) -> str:
        """Wait until words are printed, in this order, since keys were sent last."""
        deadline = time.monotonic() + PATIENCE
        with self._news:
            while not _in_order(words, self.text):
                left = deadline - time.monotonic()
                if left <= 0 or not self._reader.is_alive():
                    raise AssertionError(f"{words!r} was never printed; there was:\n{as_text(self.raw)}")
                self._news.wait(min(left, 0.2))
            return self.text

    def ended(self) -> int:
        """Wait for the end of the process; its exit code."""
        code = self._process.wait(PATIENCE)
        self._reader.join(5)
        return code

    # -- what is done ---------------------------------------------------------------------------------------

    def keys(self, keys: str, *then: str) -> str:
        """Press keys, and wait for words to be printed, in this order."""
        with self._news:
            self._mark = len(self.raw)
        raw = keys.encode()
        while raw:
            raw = raw[os.write(self._ours, raw[:1024]) :]
        return self.until(*then) if then else ""

    def line(self, text: str, *then: str) -> str:
        """Type a line."""
        return self.keys(f"{text}\r", *then)

    def paste(self, text: str, *then: str) -> str:
        """Paste, as a terminal does where pastes are to be told from keys."""
        return self.keys(f"\x1b[200~{text}\x1b[201~", *then)

    def resize(self, columns: int, rows: int) -> None:
        """Change the size of the window."""
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def send(self, number: signal.Signals) -> None:
        """Send the process a signal."""
        self._process.send_signal(number)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid


def _in_order(words: Sequence[str], text: str) -> bool:
    at = 0
    for word in words:
        found = text.find(word, at)
        if found < 0:
            return False
        at = found + len(word)
    return True


def as_text(raw: bytes) -> str:
    """What was printed, without sequences; a line that was written over stands in lines of its own.

    What was written again behind backspaces stands there once.
    """
    text = _SEQUENCE.sub("", raw.decode("utf-8", "replace")).replace("\r\n", "\n").replace("\r", "\n")
    parts = _BACK.split(text)
    again = [part[len(back) :] for back, part in zip(parts[1::2], parts[2::2], strict=True)]
    return "".join([parts[0], *again])
