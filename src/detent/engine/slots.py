"""How many runs work at once, and how a run that waits makes room for another."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from detent.engine.ports import Clock

if TYPE_CHECKING:
    from detent.engine.driver import Driver


class Slots:
    """A bounded number of places to work in."""

    def __init__(self, number: int, clock: Clock) -> None:
        self.number = number
        self._free = asyncio.Semaphore(number)
        self._left = asyncio.Event()
        self._clock = clock
        self._resting: set[asyncio.Future[None]] = set()

    @property
    def free(self) -> int:
        """Places nobody works in."""
        return self._free._value

    async def enter(self, driver: Driver, patience: float | None = None) -> bool:
        """Queue for a place, at most so many seconds; False when none came free in that time."""
        if self._free.locked():
            try:
                async with asyncio.timeout(patience):
                    await self._free.acquire()
            except TimeoutError:
                return False
        else:
            await self._free.acquire()
        driver.in_slot = True
        return True

    def leave(self, driver: Driver) -> None:
        """Give the place up, if the driver has one."""
        if driver.in_slot:
            driver.in_slot = False
            self._free.release()
            self._left.set()

    async def left(self) -> None:
        """Wait until a place is given up."""
        self._left.clear()
        await self._left.wait()

    @contextlib.asynccontextmanager
    async def aside(self, driver: Driver) -> AsyncIterator[None]:
        """Give the driver's slot up while it waits for something, and queue for one again afterwards.

        A step may wait for several things at once. A wait that is cancelled does not queue: if the run goes
        on, its driver comes back to a slot by itself.
        """
        driver.asides += 1
        self.leave(driver)
        try:
            yield
        except Exception:
            driver.asides -= 1
            await self.back(driver)
            raise
        except BaseException:
            driver.asides -= 1
            raise
        else:
            driver.asides -= 1
            await self.back(driver)

    async def back(self, driver: Driver) -> None:
        """Have a driver in a slot again, unless it waits aside."""
        if driver.door is None:
            driver.door = asyncio.Lock()
        async with driver.door:  # one of its calls queues, for all of them
            if driver.in_slot or driver.asides:
                return
            await self._free.acquire()
            if driver.asides:
                self._free.release()
            else:
                driver.in_slot = True

    async def rest(self, seconds: float) -> None:
        """Sleep on the engine's clock, until `stop` at most."""
        sleeping = asyncio.ensure_future(self._clock.sleep(seconds))
        self._resting.add(sleeping)
        try:
            await asyncio.wait({sleeping})
        finally:
            self._resting.discard(sleeping)
            sleeping.cancel()

    def rouse(self) -> None:
        """Cut every rest short."""
        for sleeping in self._resting:
            sleeping.cancel()
