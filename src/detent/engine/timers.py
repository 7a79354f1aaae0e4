"""Wakes runs at their time, with one sleeping task for all of them."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable

from detent.engine.ports import Clock


class Timers:
    """Calls `wake(run_ids)` with all whose time has come."""

    def __init__(self, clock: Clock, wake: Callable[[list[str]], None]) -> None:
        self._clock = clock
        self._wake = wake
        self._heap: list[tuple[float, str]] = []
        self._known: set[tuple[float, str]] = set()
        self._sooner = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._stopped = False

    def at(self, when: float, run_id: str) -> None:
        """Wake a run at a time; asking twice is asking once."""
        item = (when, run_id)
        if item in self._known or self._stopped:
            return
        self._known.add(item)
        heapq.heappush(self._heap, item)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._keep(), name="timers")
        elif self._heap[0] == item:
            self._sooner.set()

    def stop(self) -> None:
        """Wake nobody any more."""
        self._stopped = True
        if self._task is not None:
            self._task.cancel()

    async def _keep(self) -> None:
        while self._heap:
            due: list[str] = []
            while self._heap and (wait := self._heap[0][0] - self._clock.now()) <= 0:
                item = heapq.heappop(self._heap)
                self._known.discard(item)
                due.append(item[1])
            if due:
                self._wake(due)
                continue
            self._sooner.clear()
            sleeping = asyncio.ensure_future(self._clock.sleep(wait))
            sooner = asyncio.ensure_future(self._sooner.wait())
            try:
                await asyncio.wait({sleeping, sooner}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                sleeping.cancel()
                sooner.cancel()
