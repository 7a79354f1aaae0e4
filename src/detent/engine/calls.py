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
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

from detent.engine.raised import failure

T = TypeVar("T")

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
LARGE, EACH_VALUE = 50_000, 4
"""Characters above which a value is large; each value inside it counts for at least so many."""

_pool: ThreadPoolExecutor | None = None
_watched: contextvars.ContextVar[list[Future[Any]] | None] = contextvars.ContextVar("watched", default=None)
_running = _returned = 0
_lock = threading.Lock()


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


class InThreads(NamedTuple):
    """Calls in threads of this process."""

    running: int
    returned: int


def in_threads() -> InThreads:
    """How many calls are in threads now, and how many have returned so far."""
    with _lock:
        return InThreads(_running, _returned)


async def in_thread(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call a plain function in a thread."""
    global _pool
    if _pool is None:
        _pool = ThreadPoolExecutor(THREADS, thread_name_prefix="detent-call")
    work = functools.partial(contextvars.copy_context().run, function, *args, **kwargs)
    future = counted(_pool.submit(_to_the_end, work))
    if (calls := _watched.get()) is not None:
        calls.append(future)
    return await asyncio.wrap_future(future)


async def over(value: Any, function: Callable[..., T], /, *args: Any) -> T:
    """Call a plain function of ours that goes through a value: a large value is gone through in a thread."""
    if is_large(value):
        result: T = await in_thread(function, *args)
        return result
    return function(*args)


def is_large(value: Any) -> bool:
    """Whether going through a value would keep the event loop from other runs for a while."""
    size, todo = 0, [value]
    while todo:
        inner = todo.pop()
        if isinstance(inner, str):
            size += len(inner)
        elif isinstance(inner, Mapping):
            size += len(inner) * EACH_VALUE
            todo.extend(inner.values())
        elif isinstance(inner, list | tuple):
            size += len(inner) * EACH_VALUE
            todo.extend(inner)
        if size > LARGE:
            return True
    return False


def _to_the_end(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except (StopIteration, GeneratorExit) as error:  # no future can hold one
        raise RuntimeError(f"it raised {type(error).__name__}") from error


def counted(future: Future[T]) -> Future[T]:
    """A call in another thread, counted until it has returned."""
    global _running
    with _lock:
        _running += 1
    future.add_done_callback(_over)
    return future


def _over(future: Future[Any]) -> None:
    global _running, _returned
    with _lock:
        _running -= 1
        _returned += 1


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
