"""Calls of code that is not ours: handlers, tools, probes, sync or async, on the event loop or off it.

A plain function may wait for something, so it runs in a thread: the event loop, and with it every other run,
goes on. Handing it over costs several times what a step costs, so a function that has shown to be quick is
called on the loop, and sent back to a thread the first time it is slow.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import inspect
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any

from detent.engine.raised import failure

THREADS = 256
"""Plain functions that may wait side by side in one process; more of them queue."""
QUICK = 30e-6
"""Seconds below which a call counts as quick: less than it takes to hand over to another thread and back, so
that a function which waits for anything, the event loop included, is never quick."""
TRIALS = 8
"""Quick calls in a row after which a function is called on the loop."""
SLOW = 1e-3
"""Seconds a call on the loop may take before its function is sent back to threads."""
MOST_TRIALS = TRIALS * 1024

_pool: ThreadPoolExecutor | None = None
_watched: contextvars.ContextVar[list[Future[Any]] | None] = contextvars.ContextVar("watched", default=None)
_running = 0
_lock = threading.Lock()


class TimeLimit:
    """`asyncio.timeout` whose error says how long was waited; None waits for ever."""

    __slots__ = ("_limit", "_seconds")

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._limit = asyncio.timeout(seconds)

    async def __aenter__(self) -> None:
        await self._limit.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._limit.__aexit__(kind, error, trace)
        except TimeoutError as expired:
            raise TimeoutError(f"no answer within {self._seconds:g} s") from expired


class Pace:
    """How quick a function has shown to be."""

    __slots__ = ("_needed", "_streak", "on_loop")

    def __init__(self) -> None:
        self._streak = 0
        self._needed = TRIALS
        self.on_loop = False

    def took(self, seconds: float) -> None:
        """Learn from a call in a thread."""
        if seconds > QUICK:
            self._streak = 0
            return
        self._streak += 1
        if self._streak >= self._needed:
            self.on_loop = True

    def held_up(self) -> None:
        """Learn from a call that kept the loop waiting: more evidence is needed the next time."""
        self.on_loop = False
        self._streak = 0
        self._needed = min(self._needed * 2, MOST_TRIALS)


_paces: dict[Any, Pace] = {}


def pace_of(function: Callable[..., Any]) -> Pace:
    """What is known about a function's code; closures of one definition share it."""
    while isinstance(function, functools.partial):
        function = function.func
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        code = getattr(type(function).__call__, "__code__", None)
    if code is None:
        return Pace()  # a built-in: nothing is learned about it
    pace = _paces.get(code)
    if pace is None:
        pace = _paces[code] = Pace()
    return pace


@contextlib.contextmanager
def watched() -> Iterator[list[Future[Any]]]:
    """The calls in threads that are made within the block: they go on whatever becomes of who awaits them."""
    calls: list[Future[Any]] = []
    token = _watched.set(calls)
    try:
        yield calls
    finally:
        _watched.reset(token)


def running() -> int:
    """Calls in threads that have not returned, in this process."""
    return _running


async def in_thread(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call a plain function in a thread."""
    global _pool, _running
    if _pool is None:
        _pool = ThreadPoolExecutor(THREADS, thread_name_prefix="detent-call")
    work = functools.partial(contextvars.copy_context().run, function, *args, **kwargs)
    with _lock:
        _running += 1
    future = _pool.submit(_to_the_end, work)
    if (calls := _watched.get()) is not None:
        calls.append(future)
    return await asyncio.wrap_future(future)


def _to_the_end(work: Callable[[], Any]) -> Any:
    global _running
    try:
        return work()
    except (StopIteration, GeneratorExit) as error:  # no future can hold one
        raise RuntimeError(f"it raised {type(error).__name__}") from error
    finally:
        with _lock:
            _running -= 1


async def paced(pace: Pace, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call a plain function where its pace says."""
    clock = time.perf_counter
    if pace.on_loop:
        began = clock()
        result = function(*args, **kwargs)
        if clock() - began > SLOW:
            pace.held_up()
        return result

    def timed() -> Any:
        began = clock()
        result = function(*args, **kwargs)
        pace.took(clock() - began)
        return result

    return await in_thread(timed)


async def call(
    function: Callable[..., Any], blocking: bool | None = False, /, *args: Any, **kwargs: Any
) -> Any:
    """Call a sync or async function.

    A sync one is called in a thread if it is `blocking`, on the event loop if it is not, and where its pace
    says if nobody knows (None). What it raises is its failure, even if that would end the program.
    """
    try:
        if blocking is False or inspect.iscoroutinefunction(function):
            result = function(*args, **kwargs)
        elif blocking:
            result = await in_thread(function, *args, **kwargs)
        else:
            result = await paced(pace_of(function), function, *args, **kwargs)
        if isinstance(result, Awaitable):
            result = await result
    except Exception:
        raise
    except BaseException as error:
        if (failed := failure(error)) is None:
            raise
        raise failed from error
    return result
