"""The heartbeat of a worker: a thread that renews its lease and does nothing else.

No handler, tool or observer runs in that thread or in its event loop, so nothing they do, short of stopping
the process, keeps a lease from being renewed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from detent.engine import logger
from detent.engine.calls import counted
from detent.kernel.errors import StoreClosed

T = TypeVar("T")

LEAVING_EVERY = 0.5
"""Seconds between looks at what still lingers."""


class Heartbeat:
    """Calls `beat` every `period` seconds, in a thread of its own, for as long as somebody is at `home`."""

    def __init__(
        self,
        beat: Callable[[], Awaitable[None]],
        free: Callable[[], Awaitable[bool]],
        period: float,
        home: asyncio.AbstractEventLoop,
    ) -> None:
        self._beat = beat
        self._free = free
        """Called once nobody is at home any more, until it says that nothing is left to do."""
        self._period = period
        self.home = home
        self._home_thread = threading.current_thread()
        self._pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._leaving = False
        self._thread = threading.Thread(target=self._work, name="detent-heartbeat", daemon=True)

    def start(self) -> None:
        """Begin; the first beat is the caller's to ask for."""
        self._thread.start()

    @property
    def of_this_process(self) -> bool:
        """False in a fork, which has no threads of its parent."""
        return self._pid == os.getpid()

    @property
    def alive(self) -> bool:
        """True until it was stopped or found itself abandoned."""
        return self.of_this_process and self._thread.is_alive()

    def leave(self) -> None:
        """Go on until what lingers is over, then free what is left and end."""
        self._leaving = True

    async def here(self, work: Callable[[], Awaitable[T]]) -> T:
        """Await something in the heartbeat's loop, for as long as the store is patient."""

        async def asked() -> T:
            return await work()

        return await asyncio.wrap_future(counted(asyncio.run_coroutine_threadsafe(asked(), self._loop)))

    async def stop(self) -> None:
        """Let the thread end."""
        with contextlib.suppress(RuntimeError):  # its loop has closed: it was abandoned and found out
            self._loop.call_soon_threadsafe(self._stop.set)
        await asyncio.to_thread(self._thread.join)

    def _work(self) -> None:
        try:
            self._loop.run_until_complete(self._keep())
        finally:
            with contextlib.suppress(Exception):
                _cancel_all(self._loop)
            self._loop.close()

    async def _keep(self) -> None:
        while not await self._stopped():
            try:
                nobody = self._leaving or self.home.is_closed() or not self._home_thread.is_alive()
                if nobody and await self._free():
                    return
                async with asyncio.timeout(self._period):
                    await self._beat()
            except StoreClosed:
                continue  # the process is there, which is enough for others on this machine
            except Exception as error:  # the store is away for a moment, or answers too late
                logger.warning("worker.beat_missed", error=f"{type(error).__name__}: {error}")

    async def _stopped(self) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(self._period, LEAVING_EVERY) if self._leaving else self._period):
                await self._stop.wait()
        return self._stop.is_set()


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    tasks: set[asyncio.Task[Any]] = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
