"""How many runs work at once, and how a run that waits makes room for another."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Protocol

from detent.engine.ports import Clock


class Holder(Protocol):
    """A run under way, as far as its slot is concerned."""

    in_slot: bool
    """True while it counts against the limit."""
    waiting_calls: int
    """How many calls of its step wait for something just now."""
    slot_lock: asyncio.Lock | None
    """Held by the call that queues for the slot."""


class Slots:
    """The concurrency limit: a bounded number of runs at work at once."""

    def __init__(self, number: int, clock: Clock) -> None:
        self.number = number
        self._free = asyncio.Semaphore(number)
        self._given_up = asyncio.Event()
        self._clock = clock
        self._sleepers: set[asyncio.Future[None]] = set()

    @property
    def free(self) -> int:
        """Slots that are free."""
        return self._free._value

    async def acquire(self, holder: Holder, patience: float | None = None) -> bool:
        """Wait for a slot, at most so many seconds; False when none came free in that time."""
        if self._free.locked():
            try:
                async with asyncio.timeout(patience):
                    await self._free.acquire()
            except TimeoutError:
                return False
        else:
            await self._free.acquire()
        holder.in_slot = True
        return True

    def release(self, holder: Holder) -> None:
        """Release the slot, if the run has one."""
        if holder.in_slot:
            holder.in_slot = False
            self._free.release()
            self._given_up.set()

    async def slot_released(self) -> None:
        """Wait until a slot is released."""
        self._given_up.clear()
        await self._given_up.wait()

    @contextlib.asynccontextmanager
    async def released(self, holder: Holder) -> AsyncIterator[None]:
        """Release the slot while a call waits for something, and wait for one again afterwards.

        A step may wait for several things at once. A call that is cancelled does not wait for a slot: if the
        run goes on, its driver does.
        """
        holder.waiting_calls += 1
        self.release(holder)
        try:
            yield
        except Exception:
            holder.waiting_calls -= 1
            await self._reacquire(holder)
            raise
        except BaseException:
            holder.waiting_calls -= 1
            raise
        else:
            holder.waiting_calls -= 1
            await self._reacquire(holder)

    async def _reacquire(self, holder: Holder) -> None:
        """Wait for a slot again, unless another call of the step still waits for something."""
        if holder.slot_lock is None:
            holder.slot_lock = asyncio.Lock()
        async with holder.slot_lock:  # one of its calls queues, for all of them
            if holder.in_slot or holder.waiting_calls:
                return
            await self._free.acquire()
            if holder.waiting_calls:
                self._free.release()
            else:
                holder.in_slot = True

    async def sleep(self, seconds: float) -> None:
        """Sleep on the engine's clock, until `stop` at most."""
        sleeping = asyncio.ensure_future(self._clock.sleep(seconds))
        self._sleepers.add(sleeping)
        try:
            await asyncio.wait({sleeping})
        finally:
            self._sleepers.discard(sleeping)
            sleeping.cancel()

    def wake_sleepers(self) -> None:
        """End every sleep."""
        for sleeping in self._sleepers:
            sleeping.cancel()
