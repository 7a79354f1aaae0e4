"""Who drives: the identity of this worker, how long its lease is good, and who of the others is dead.

A lease keeps a second driver from trying; the fence in the store keeps it from succeeding. Runs are leased
to a worker, not one by one: thousands of runs cost one heartbeat. A process that is running on this machine
is alive, however long it has not been heard of; of another machine the lease decides, by the store's clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from concurrent.futures import Future
from typing import Any

from detent.engine.heartbeat import Heartbeat
from detent.engine.host import born, this_host
from detent.engine.ports import USUAL_LEASE, Clock, Lease, Store, Worker
from detent.kernel import log
from detent.kernel.errors import ConfigurationError, Fenced, StoreClosed, StoreUnavailable

MARGIN = 0.2
"""Share of a lease before whose end its holder gives up what it can."""
JUMP = 2.0
"""Seconds by which wall time may drift from the time since boot between two beats without being a jump."""

_here: dict[str, Leases] = {}
"""Workers of this process that may be doing something: its being alive says nothing about the others."""


class LeaseLost(StoreUnavailable):
    """This worker's lease was about to run out and could not be renewed: it gave up what it was doing."""


class Leases:
    """Keeps this worker's lease and knows the dead."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        seconds: float = USUAL_LEASE,
        worker_id: str | None = None,
        host: str | None = None,
    ) -> None:
        self.store = store
        self.clock = clock
        self.seconds = seconds
        self._given_id = worker_id is not None
        self.me = Worker(worker_id or secrets.token_hex(6), this_host(host), 0, 0.0)
        self.lapses = 0
        """How often the lease had run out before it was renewed."""
        self._good_until = float("-inf")
        self._offset = 0.0
        """Wall time less time since boot, at the last beat."""
        self._heartbeat: Heartbeat | None = None
        self._registering: asyncio.Future[None] | None = None
        self._cancellable: dict[asyncio.Timeout, list[Future[Any]]] = {}
        """Calls that are given up with the lease, and what they have running in threads."""
        self._watch: asyncio.TimerHandle | None = None
        self._lingering: list[Future[Any]] = []
        """Calls in threads that nobody here waits for any more."""

    # -- being alive ----------------------------------------------------------------------------------------

    async def register(self) -> None:
        """Take out the lease, before anything is claimed."""
        if self._registering is None or (self._registering.done() and not self.registered):
            self._registering = asyncio.ensure_future(self._register())
        await asyncio.shield(self._registering)

    async def _register(self) -> None:
        if not self._at_home:
            await self._settle_in()
        await self.beat()

    async def _settle_in(self) -> None:
        """Become a worker of this process and this event loop."""
        pid = os.getpid()
        if self.me.pid not in (0, pid) and not self._given_id:
            self.me = self.me._replace(id=secrets.token_hex(6))  # a fork: what the parent has is not ours
        self.me = self.me._replace(pid=pid, born=born(pid) or 0.0)
        for worker in await self.store.workers():
            if worker.id == self.me.id and worker[1:4] != self.me[1:4] and self._is_alive(worker):
                raise ConfigurationError(
                    f"The worker id '{worker.id}' is taken by process {worker.pid}, which is alive. "
                    f"Every worker needs an id of its own; leave it out to get one."
                )
        if self._heartbeat is not None and self._heartbeat.of_this_process:
            await self._heartbeat.stop()
        self._heartbeat = Heartbeat(self._beat, self._free, self.seconds / 3, asyncio.get_running_loop())
        self._heartbeat.start()
        self._good_until = float("-inf")
        _here[self.me.id] = self

    @property
    def _at_home(self) -> bool:
        """Whether the heartbeat is that of this process and this event loop."""
        heartbeat = self._heartbeat
        return heartbeat is not None and heartbeat.alive and heartbeat.home is asyncio.get_running_loop()

    @property
    def registered(self) -> bool:
        """True once this worker is known to the store."""
        done = self._registering
        if done is None or not done.done() or done.cancelled() or done.exception() is not None:
            return False
        return self._at_home

    async def beat(self) -> None:
        """Renew the lease now."""
        if self._heartbeat is None:
            raise StoreUnavailable("This worker has no lease.")
        await self._heartbeat.here(self._beat)

    async def _beat(self) -> None:
        """In the heartbeat's thread: tell the store that this worker is alive."""
        ticks, wall = self.clock.ticks(), self.clock.now()
        if self._good_until != float("-inf") and ticks >= self._good_until:
            self.lapses += 1  # while it was out, others may have taken what was ours
        await self.store.beat(self.me, self.seconds)
        self._offset = wall - ticks
        self._good_until = ticks + self.seconds

    async def retire(self) -> None:
        """Leave orderly. While a call in a thread goes on, so does the heartbeat, which retires after it.

        Nobody must take the call's run up meanwhile.
        """
        heartbeat, self._heartbeat = self._heartbeat, None
        self._registering = None
        if heartbeat is None or not heartbeat.of_this_process:
            return
        if self.lingering:
            log.warning("worker.not_retired", worker=self.me.id, calls=len(self._lingering))
            heartbeat.leave()
            return
        try:
            await heartbeat.here(lambda: self.store.retire(self.me.id))
        finally:
            await heartbeat.stop()
            _here.pop(self.me.id, None)

    async def _free(self) -> bool:
        """In the heartbeat's thread: nobody drives here any more; free what is left once nothing goes on."""
        if self.lingering:
            return False
        with contextlib.suppress(StoreClosed):
            await self.store.retire(self.me.id)
        log.warning("worker.freed", worker=self.me.id)
        _here.pop(self.me.id, None)
        return True

    # -- the others -----------------------------------------------------------------------------------------

    async def dead(self) -> list[Worker]:
        """Workers that are gone: their process on this host is no more, or elsewhere their lease ran out."""
        workers = await self.store.workers()
        return [worker for worker in workers if worker.id != self.me.id and not self._is_alive(worker)]

    def _is_alive(self, worker: Worker) -> bool:
        """Whether a worker may be doing something."""
        runs = self._runs(worker)
        return worker.left > 0 if runs is None else runs

    def _runs(self, worker: Worker) -> bool | None:
        """Whether the process of a worker is running; None where that cannot be told."""
        if worker.host != self.me.host:
            return None
        if worker.pid == os.getpid():
            leases = _here.get(worker.id)
            return leases is not None and leases.present
        started = born(worker.pid)
        if started is None:
            return False
        return started == worker.born if started and worker.born else None

    @property
    def present(self) -> bool:
        """True while this worker, in this process, may be doing something."""
        return (self._heartbeat is not None and self._heartbeat.alive) or self.lingering

    async def gone(self, worker_id: str) -> bool:
        """True when nothing a worker began in its process can be going on any more."""
        leases = self if worker_id == self.me.id else _here.get(worker_id)
        if leases is not None and leases.me.host == self.me.host:
            return not leases.lingering
        for worker in await self.store.workers():
            if worker.id == worker_id:
                return self._runs(worker) is False
        return True  # it retired

    # -- holding --------------------------------------------------------------------------------------------

    @property
    def lingering(self) -> bool:
        """True while a call in a thread goes on that nobody waits for."""
        self._lingering = [future for future in self._lingering if not future.done()]
        return bool(self._lingering)

    def linger(self, calls: list[Future[Any]]) -> None:
        """Remember calls that could not be stopped."""
        self._lingering += [future for future in calls if not future.done()]

    def _safe(self) -> bool:
        """True while this worker may take its lease for good: it has not run out, and no clock has jumped."""
        now = self.clock.ticks()
        return now < self._good_until and abs(self.clock.now() - now - self._offset) < JUMP

    async def confirm(self, lease: Lease, lapses: int) -> int:
        """Before what cannot be undone: make sure a run is still ours, should this process have slept.

        `lapses` is how often the lease had run out when the run was last known to be ours.
        Gives the count as it is now.
        """
        while not self._safe() or lapses != self.lapses:  # it may sleep again meanwhile
            if not self._safe():
                await self.beat()
            lapses = self.lapses
            row = await self.store.row(lease.run_id)
            if row.epoch != lease.epoch:
                raise Fenced(lease.run_id, lease.epoch, row.seq)
        return lapses

    @contextlib.asynccontextmanager
    async def acting(self, calls: list[Future[Any]]) -> Any:
        """Give up what is awaited in the block before the lease runs out unrenewed.

        Another may act from then on. What runs in a thread (`calls`) cannot be given up and is waited for.
        """
        if not self.registered:
            yield
            return
        try:
            async with asyncio.timeout(None) as giving_up:
                self._cancellable[giving_up] = calls
                if self._watch is None:
                    self._watch_over()
                yield
        except TimeoutError as error:
            if not giving_up.expired():
                raise
            raise LeaseLost(
                "The lease of this worker ran out: the store could not be reached in time."
            ) from error
        finally:
            self._cancellable.pop(giving_up, None)

    def _watch_over(self) -> None:
        """Look whether the lease is about to run out, now and when it would be."""
        loop = asyncio.get_running_loop()
        self._watch = None
        if not self._cancellable:
            return
        seconds = self._good_until - self.clock.ticks() - self.seconds * MARGIN
        if seconds <= 0:
            for giving_up, calls in self._cancellable.items():
                if all(future.done() for future in calls) and not giving_up.expired():
                    giving_up.reschedule(loop.time())
        self._watch = loop.call_later(max(seconds, self.seconds * MARGIN / 4), self._watch_over)
