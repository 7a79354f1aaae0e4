"""The real clock."""

from __future__ import annotations

import asyncio
import time

from detent.engine import host


class SystemClock:
    """Wall time and monotonic time of this machine."""

    now = staticmethod(time.time)
    elapsed = staticmethod(time.perf_counter)
    ticks = staticmethod(host.ticks)

    async def sleep(self, seconds: float) -> None:
        """Wait, holding no thread."""
        await asyncio.sleep(seconds)
