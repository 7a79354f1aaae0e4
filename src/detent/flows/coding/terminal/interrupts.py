"""Ctrl-C while a conversation does something of its own: remembered for what it begins next."""

from __future__ import annotations

import os
import signal
from types import FrameType, TracebackType
from typing import Any, Self

from detent.cli.signals import INTERRUPTED


class Interrupts:
    """Takes Ctrl-C for as long as the block runs and nobody else does; pressed twice, the process ends."""

    def __init__(self) -> None:
        self._pressed = False
        self._before: Any = None

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._heed)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _heed(self, number: int, frame: FrameType | None) -> None:
        if self._pressed:
            os.write(2, b"\nStopped at once.\n")
            os._exit(INTERRUPTED)
        self._pressed = True

    def take(self) -> bool:
        """Whether Ctrl-C was pressed since this was asked last."""
        pressed, self._pressed = self._pressed, False
        return pressed
