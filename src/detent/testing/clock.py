"""A clock turned by hand, so that hours pass in a test at once and in order."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time

from detent.engine import calls

THREADS_GET = 0.2
"""Real seconds that functions in threads get at every stop of the clock."""


class HandClock:
    """Time that stands still until it is turned. Plugs in as `Engine(store, clock=HandClock())`."""

    def __init__(self, start: float = 1_000_000_000.0, *, breath: float = 0.0) -> None:
        self._start = start
        self._now = start
        self._breath = breath
        """Real seconds left to threads (of a store, say) at every stop; 0 is right for a store in memory."""
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    def now(self) -> float:
        """Seconds since the epoch, as far as this clock was turned."""
        return self._now

    def elapsed(self) -> float:
        """Seconds turned so far."""
        return self._now - self._start

    ticks = elapsed

    async def sleep(self, seconds: float) -> None:
        """Wait until the clock is turned past this time."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + seconds, next(self._order), waiting))
        await waiting

    @property
    def next_due(self) -> float | None:
        """When the next sleeper wakes; None without sleepers."""
        self._drop_cancelled()
        return self._sleepers[0][0] if self._sleepers else None

    async def turn(self, seconds: float) -> None:
        """Turn forward, waking every sleeper at its own time and letting it run before the next."""
        if seconds < 0:
            raise ValueError(f"The clock cannot be turned back (by {seconds}).")
        target = self._now + seconds
        await self.settle()
        while (due := self.next_due) is not None and due <= target:
            _, _, waiting = heapq.heappop(self._sleepers)
            self._now = max(self._now, due)
            waiting.set_result(None)
            await self.settle()
        self._now = target
        await self.settle()

    async def settle(self) -> None:
        """Let everything run that can without time passing, including plain functions in their threads."""
        last, since = calls.in_threads(), time.monotonic()
        while True:
            for _ in range(30):
                await asyncio.sleep(0)
            now = calls.in_threads()
            if now != last:
                last, since = now, time.monotonic()
            elif not now.running or time.monotonic() - since > THREADS_GET:
                break
            else:
                await asyncio.sleep(0.001)
        if self._breath:
            await asyncio.sleep(self._breath)

    def _drop_cancelled(self) -> None:
        """Forget sleepers that were cancelled."""
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)
