"""Graceful stop: the first Ctrl-C or SIGTERM lets running steps finish, the second ends at once."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

from detent.cli.output import is_terminal, warn
from detent.kernel.control_characters import shown

if TYPE_CHECKING:
    from detent.engine.engine import Engine

T = TypeVar("T")

INTERRUPTED = 130
GRACE = 30.0
"""Seconds that running steps are given to finish."""


class Stop:
    """Whether this process was asked to stop, and by which signal."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.signal: int | None = None


@contextmanager
def graceful(last_message: Callable[[], str] | None = None) -> Iterator[Stop]:
    """Handle SIGINT and SIGTERM inside the block. `last_message` returns a sentence for an immediate end."""
    stop = Stop()
    loop = asyncio.get_running_loop()

    def heed(number: int, frame: FrameType | None) -> None:
        if stop.signal is None:
            stop.signal = number
            loop.call_soon_threadsafe(stop.asked.set)
            return
        # Committed work is safe and the rest is repeated on resume: exit as a crash would.
        with suppress(Exception):
            # Bypass buffers and the live display: clear the display, show the cursor again.
            clear = "\r\x1b[J\x1b[?25h" if is_terminal() else ""
            last = f" {shown(last_message())}" if last_message is not None else ""
            os.write(2, f"{clear}Stopped at once.{last}\n".encode())
        os._exit(INTERRUPTED)

    before = {number: signal.signal(number, heed) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


async def done_first(work: asyncio.Future[Any], stop: Stop) -> bool:
    """Whether the work completed before a stop was requested."""
    stop_requested = asyncio.ensure_future(stop.asked.wait())
    await asyncio.wait({work, stop_requested}, return_when=asyncio.FIRST_COMPLETED)
    stop_requested.cancel()
    return work.done()


async def until_stopped(
    engine: Engine, stop: Stop, work: Awaitable[T], runs: Callable[[], Iterable[str]]
) -> T | None:
    """The result of `work`, or None when a stop was requested and the running steps have finished."""
    working = asyncio.ensure_future(work)
    if await done_first(working, stop):
        return working.result()
    warn("Stopping after the steps under way; once more stops at once.")
    engine.active.stopping = True
    # Tasks end as soon as their step does: drivers look at `stopping` between steps.
    busy = []
    for driver, task in filter(None, map(engine.active.under_way, runs())):
        busy.append(task)
        if driver.run.retry_at is not None and driver.run.retry_at > engine.clock.now():
            task.cancel()  # it only waits for its next attempt
    if busy:
        await asyncio.wait(busy, timeout=GRACE)
    if working.done():
        return working.result()
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    return None
