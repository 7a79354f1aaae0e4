"""A writer thread that lets many small writes share one commit.

Each write is a function of the batch. All writes that wait when the thread is free go into one transaction;
a caller gets its result only after that transaction is durable. A write that refuses (by a `StoreError`,
before changing anything) does not affect the others; if the transaction itself fails, the writes are tried
one by one. If not even a transaction can be begun, all are refused at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from detent.kernel.errors import StoreClosed, StoreError

T = TypeVar("T")

LARGEST_BATCH = 4096


class Transactions(Protocol):
    """What the writer needs of a database; called only in the writer's thread."""

    def begin(self) -> Any:
        """Start a transaction; returns the batch that writes are given."""

    def commit(self, batch: Any) -> None:
        """Make it durable."""

    def rollback(self) -> None:
        """Undo it."""

    def translate(self, error: Exception) -> Exception:
        """A database error as one of ours."""

    def close(self) -> None:
        """Close the connection."""


class _Job:
    __slots__ = ("args", "error", "future", "loop", "result", "work")

    def __init__(
        self, work: Callable[..., Any], args: tuple[Any, ...], loop: asyncio.AbstractEventLoop
    ) -> None:
        self.work = work
        self.args = args
        self.loop = loop
        self.future: asyncio.Future[Any] = loop.create_future()
        self.result: Any = None
        self.error: Exception | None = None


class GroupCommit:
    """Owns the writer thread."""

    def __init__(self, transactions: Transactions, name: str) -> None:
        self._transactions = transactions
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def write(self, work: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        """Do `work(batch, *args)` in the next transaction; the future is set once that is durable."""
        if self._closed:
            raise StoreClosed("The store is closed.")
        job = _Job(work, args, asyncio.get_running_loop())
        self._queue.put(job)
        return job.future

    async def close(self) -> None:
        """Finish the accepted writes, then stop."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)
            await asyncio.to_thread(self._thread.join)

    def _work(self) -> None:
        more = True
        while more:
            first = self._queue.get()
            if first is None:
                break
            jobs = [first]
            while len(jobs) < LARGEST_BATCH:
                try:
                    job = self._queue.get_nowait()
                except queue.Empty:
                    break
                if job is None:
                    more = False
                    break
                jobs.append(job)
            if not self._try(jobs) and len(jobs) > 1:
                for job in jobs:
                    self._try([job])
            _deliver(jobs)
        self._transactions.close()

    def _try(self, jobs: list[_Job]) -> bool:
        """One transaction for all jobs; False when it failed as a whole and each should be tried alone."""
        transactions = self._transactions
        try:
            batch = transactions.begin()
        except Exception as error:
            # One by one would be no better: each would wait for the lock as long as all did together.
            self._refuse(jobs, error)
            return True
        try:
            for job in jobs:
                job.error = None
                try:
                    job.result = job.work(batch, *job.args)
                except StoreError as error:
                    job.error = error
            transactions.commit(batch)
        except Exception as error:
            self._refuse(jobs, error)
            return False
        return True

    def _refuse(self, jobs: list[_Job], error: Exception) -> None:
        # A connection too broken even to roll back must not end the thread: callers wait for it.
        with contextlib.suppress(Exception):
            self._transactions.rollback()
        for job in jobs:
            job.error = self._transactions.translate(error)


def _deliver(jobs: list[_Job]) -> None:
    """Give the callers their results, with one wake-up for each event loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_Job]] = {}
    for job in jobs:
        by_loop.setdefault(job.loop, []).append(job)
    for loop, theirs in by_loop.items():
        with contextlib.suppress(RuntimeError):  # the loop is closed, so nothing waits any more
            loop.call_soon_threadsafe(_resolve, theirs)


def _resolve(jobs: list[_Job]) -> None:
    for job in jobs:
        if job.future.done():  # its caller was cancelled
            continue
        if job.error is not None:
            job.future.set_exception(job.error)
        else:
            job.future.set_result(job.result)
