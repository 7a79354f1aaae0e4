"""Stand-ins for what goes wrong around a worker: a store it is cut off from, a wall clock that is off."""

from __future__ import annotations

import asyncio
import time
from typing import Any, cast

from detent.engine.clock import SystemClock
from detent.engine.ports import Store


class WrongClock(SystemClock):
    """A wall clock that is so many seconds off; it jumps when that changes."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds

    def now(self) -> float:
        """Seconds since the epoch, as this clock has it."""
        return time.time() + self.seconds


class Cut:
    """The connection between one worker and a store, which can be cut: calls then hang until it is mended."""

    def __init__(self) -> None:
        self._until = 0.0

    def cut(self, seconds: float) -> None:
        """Let nothing through for this time."""
        self._until = time.monotonic() + seconds

    def mend(self) -> None:
        """Let everything through again."""
        self._until = 0.0

    def store(self, inner: Store) -> Store:
        """The same store behind this connection."""
        return cast(Store, _Line(inner, self))

    async def pass_through(self) -> None:
        """Wait while the connection is cut."""
        while time.monotonic() < self._until:  # noqa: ASYNC110  awaited in several event loops
            await asyncio.sleep(0.01)


class _Line:
    def __init__(self, inner: Store, line: Cut) -> None:
        self._inner = inner
        self._line = line

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if not callable(method) or name in ("open", "close"):
            return method

        async def call(*args: Any, **kwargs: Any) -> Any:
            await self._line.pass_through()
            result = await method(*args, **kwargs)
            await self._line.pass_through()  # the answer is delayed, too
            return result

        return call
