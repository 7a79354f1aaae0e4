"""Leases: the identity of this worker, how long its lease is valid, and which other workers are dead.

A lease keeps a second driver from trying; the fence in the store keeps it from succeeding. The lease belongs
to a worker, not to a run: thousands of runs cost one heartbeat. A worker on this machine is alive as long as
its process runs, however old its last heartbeat; on another machine its lease decides, by the store's clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from concurrent.futures import Future
from typing import Any

from detent.engine import logger
from detent.engine.heartbeat import Heartbeat
from detent.engine.host import born, this_host
from detent.engine.ports import USUAL_LEASE, Clock, Lease, Store, Worker
from detent.kernel.errors import ConfigurationError, Fenced, StoreClosed, StoreUnavailable

MARGIN = 0.2
"""Share of a lease that remains when its holder cancels the calls it can."""
JUMP = 2.0
"""Seconds by which wall time may drift from time since boot between heartbeats; more is a jump."""

_here: dict[str, Leases] = {}
"""Workers of this process that may be active; its other workers are dead though the process runs."""


class LeaseLost(StoreUnavailable):
    """This worker's lease was about to expire and could not be renewed, so its call was cancelled."""


class Leases:
    """Renews this worker's lease and finds dead workers."""

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
        """Number of times the lease had expired before it was renewed."""
        self._good_until = float("-inf")
        self._offset = 0.0
        """Wall time minus time since boot, at the last heartbeat."""
        self._heartbeat: Heartbeat | None = None
        self._registering: asyncio.Future[None] | None = None
        self._cancellable: dict[asyncio.Timeout, list[Future[Any]]] = {}
        """Calls that are cancelled when the lease is lost, with their threads."""
        self._watch: asyncio.TimerHandle | None = None
        self._lingering: list[Future[Any]] = []
        """Calls in threads that no task waits for any more."""

    # -- being alive ----------------------------------------------------------------------------------------

    async def register(self) -> None:
        """Register this worker and its lease, before it claims any run."""
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
            self.me = self.me._replace(
                id=secrets.token_hex(6)
            )  # a forked process: the parent's runs are not ours
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
            self.lapses += 1  # others may have taken over our runs meanwhile
        await self.store.beat(self.me, self.seconds)
        self._offset = wall - ticks
        self._good_until = ticks + self.seconds

    async def retire(self) -> None:
        """Retire this worker; while a call in a thread continues, the heartbeat goes on and retires it later.

        Until then no other worker may take over the call's run.
        """
        heartbeat, self._heartbeat = self._heartbeat, None
        self._registering = None
        if heartbeat is None or not heartbeat.of_this_process:
            return
        if self.lingering:
            logger.warning("worker.not_retired", worker=self.me.id, calls=len(self._lingering))
            heartbeat.leave()
            return
        try:
            await heartbeat.here(lambda: self.store.retire(self.me.id))
        finally:
            await heartbeat.stop()
            _here.pop(self.me.id, None)

    async def _free(self) -> bool:
        """In the heartbeat's thread: retire this worker once no call of it is running."""
        if self.lingering:
            return False
        with contextlib.suppress(StoreClosed):
            await self.store.retire(self.me.id)
        logger.warning("worker.freed", worker=self.me.id)
        _here.pop(self.me.id, None)
        return True

    # -- the others -----------------------------------------------------------------------------------------

    async def dead(self) -> list[Worker]:
        """Dead workers: their process on this host has ended, or on another host their lease has expired."""
        workers = await self.store.workers()
        return [worker for worker in workers if worker.id != self.me.id and not self._is_alive(worker)]

    def _is_alive(self, worker: Worker) -> bool:
        """Whether a worker may be active."""
        runs = self._runs(worker)
        return worker.left > 0 if runs is None else runs

    def _runs(self, worker: Worker) -> bool | None:
        """Whether the process of a worker is running; None if unknown."""
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
        """True while this worker may be active in this process."""
        return (self._heartbeat is not None and self._heartbeat.alive) or self.lingering

    async def gone(self, worker_id: str) -> bool:
        """True when no call that a worker began in its process can still be running."""
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
        """True while a call in a thread continues that no task waits for."""
        self._lingering = [future for future in self._lingering if not future.done()]
        return bool(self._lingering)

    def linger(self, calls: list[Future[Any]]) -> None:
        """Remember calls that could not be stopped."""
        self._lingering += [future for future in calls if not future.done()]

    def _safe(self) -> bool:
        """True while this worker may rely on its lease: it has not expired, and no clock has jumped."""
        now = self.clock.ticks()
        return now < self._good_until and abs(self.clock.now() - now - self._offset) < JUMP

    async def confirm(self, lease: Lease, lapses: int) -> int:
        """Make sure that a run is still ours, in case this process was suspended; before irreversible calls.

        `lapses` is the number of lapses when the run was last known to be ours; returns the current number.

        Raises:
            Fenced: another worker has taken the run over.
        """
        while not self._safe() or lapses != self.lapses:  # it may be suspended again meanwhile
            if not self._safe():
                await self.beat()
            lapses = self.lapses
            row = await self.store.row(lease.run_id)
            if row.epoch != lease.epoch:
                raise Fenced(lease.run_id, lease.epoch, row.seq)
        return lapses

    @contextlib.asynccontextmanager
    async def acting(self, calls: list[Future[Any]]) -> Any:
        """Cancel the block before the lease expires without renewal, because another worker may then act.

        Threads (`calls`) cannot be cancelled and are waited for.

        Raises:
            LeaseLost: the block was cancelled.
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
        """Check now whether the lease is about to expire, and schedule the next check."""
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
