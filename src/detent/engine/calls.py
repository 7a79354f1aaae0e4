"""Calls of code that is not ours: handlers, tools, probes, sync or async, on the event loop or off it.

A plain function may wait for something, so it runs in a thread: the event loop, and with it every other run,
goes on. Handing it over costs several times what a step costs, so a function that can only compute, and has
shown to be quick, is called on the loop, and sent back to a thread the first time it is slow.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import inspect
import os
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

from detent.engine.pure_functions import only_computes
from detent.engine.user_errors import failure

T = TypeVar("T")

THREADS = 2000
"""Plain functions that may wait side by side in one process: twice as many as runs work at once by default.
More of them queue, and their timeouts run meanwhile."""
QUICK = 50e-6
"""Seconds below which a call counts as quick: less than handing it over costs."""
TRIALS = 8
"""Quick calls in a row after which a function is called on the loop."""
SLOW = 1e-3
"""Seconds a call on the loop may take before its function is sent back to threads."""
MOST_TRIALS = TRIALS * 1024
LARGE, EACH_VALUE = 50_000, 4
"""Characters above which a value is large; each value inside it counts for at least so many."""

ASYNCIO_THREADS = "asyncio"
"""How threads are named that nobody chose."""

_pool: WatchedThreads | None = None
_watched: contextvars.ContextVar[list[Future[Any]] | None] = contextvars.ContextVar("watched", default=None)
_running = _returned = 0
_lock = threading.Lock()


class TimeLimit:
    """`asyncio.timeout` whose error says how long was waited; None waits for ever."""

    __slots__ = ("_limit", "_seconds")

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._limit = asyncio.timeout(seconds)

    async def __aenter__(self) -> TimeLimit:
        await self._limit.__aenter__()
        return self

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Do not count the time spent in this block."""
        when, now = self._limit.when(), asyncio.get_running_loop().time
        if when is None or self._limit.expired():
            yield
            return
        left = when - now()
        self._limit.reschedule(None)
        try:
            yield
        finally:
            self._limit.reschedule(now() + left)

    @property
    def expired(self) -> bool:
        """Whether the time ran out."""
        return self._limit.expired()

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


_paces: weakref.WeakKeyDictionary[Callable[..., Any], Pace | None] = weakref.WeakKeyDictionary()


def pace_of(function: Callable[..., Any]) -> Pace | None:
    """What is known about a function that only computes; None for one that may wait, which gets a thread."""
    try:
        return _paces[function]
    except KeyError:
        pace = _paces[function] = Pace() if only_computes(function) else None
        return pace
    except TypeError:  # not even hashable: nobody's function
        return None


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


class WatchedThreads(ThreadPoolExecutor):
    """Threads whose calls are known to who watches, also those that a tool starts by `asyncio.to_thread`."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Start a call."""
        future = counted(super().submit(fn, *args, **kwargs))
        if (calls := _watched.get()) is not None:
            calls.append(future)
        return future


def _threads() -> WatchedThreads:
    global _pool
    if _pool is None:
        _pool = WatchedThreads(THREADS, thread_name_prefix="detent-call")
    return _pool


def watch_threads_of(loop: asyncio.AbstractEventLoop) -> None:
    """Have `asyncio.to_thread` in this loop use threads that are watched, unless somebody chose others."""
    executor = getattr(loop, "_default_executor", None)
    if executor is None or getattr(executor, "_thread_name_prefix", "") == ASYNCIO_THREADS:
        with contextlib.suppress(AttributeError, TypeError):  # a loop of another make
            loop.set_default_executor(WatchedThreads(thread_name_prefix="detent-to-thread"))


def still_running() -> bool:
    """Whether something that was started in a thread, by whoever is watched here, has not returned."""
    return any(not future.done() for future in _watched.get() or ())


def _forked() -> None:
    """A child has none of its parent's threads."""
    global _pool, _running, _lock
    _pool, _running, _lock = None, 0, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


async def in_thread(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call a plain function in a thread."""
    work = functools.partial(contextvars.copy_context().run, function, *args, **kwargs)
    return await asyncio.wrap_future(_threads().submit(_to_the_end, work))


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


async def paced(pace: Pace | None, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call a plain function where its pace says."""
    if pace is None:
        return await in_thread(function, *args, **kwargs)
    clock = time.perf_counter
    if pace.on_loop:
        began = clock()
        try:
            return function(*args, **kwargs)
        finally:
            if clock() - began > SLOW:
                pace.held_up()

    def timed() -> Any:
        began = clock()
        try:
            return function(*args, **kwargs)
        finally:
            pace.took(clock() - began)

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
