"""Who drives: the identity of this process, its beat, and who of the others is dead.

A lease keeps a second driver from trying; the fence in the store keeps it from succeeding. Runs are leased
to a worker, not one by one: thousands of runs cost one beat.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
from pathlib import Path

from detent.engine.ports import Clock, Lease, Store, Worker
from detent.kernel import log
from detent.kernel.errors import Fenced, StoreError


def this_host() -> str:
    """Machine, boot and process namespace: pids compare only within one of these."""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()[:8]
        return f"{socket.gethostname()}/{boot}/{os.readlink('/proc/self/ns/pid')[5:-1]}"
    return socket.gethostname()


def born(pid: int) -> float | None:
    """When a process started, in ticks of its boot; 0.0 where that cannot be told; None when it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        if Path("/proc/self/stat").exists():
            return None
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return None
        except PermissionError:
            return 0.0
        return 0.0
    except OSError:
        return 0.0
    fields = stat.rsplit(")", 1)[1].split()
    return None if fields[0] == "Z" else float(fields[19])


class Leases:
    """Keeps this worker's beat and knows the dead."""

    def __init__(
        self, store: Store, clock: Clock, seconds: float = 15.0, worker_id: str | None = None
    ) -> None:
        self.store = store
        self.clock = clock
        self.seconds = seconds
        pid = os.getpid()
        self.me = Worker(worker_id or secrets.token_hex(6), this_host(), pid, born(pid) or 0.0)
        self._good_until = float("-inf")
        self.lapses = 0
        """How often the beat had run out before it was renewed."""
        self._registered: asyncio.Future[None] | None = None

    async def register(self) -> None:
        """Beat for the first time, before anything is claimed."""
        if self._registered is None or (self._registered.done() and not self.registered):
            self._registered = asyncio.ensure_future(self.beat())
        await asyncio.shield(self._registered)

    @property
    def registered(self) -> bool:
        """True once this worker is known to the store."""
        done = self._registered
        return done is not None and done.done() and not done.cancelled() and done.exception() is None

    async def beat(self) -> None:
        """Say that this worker is alive."""
        asked = self.clock.elapsed()
        if self._good_until != float("-inf") and asked >= self._good_until:
            self.lapses += 1  # while it was out, others may have taken what was ours
        await self.store.beat(self.me._replace(until=self.clock.now() + self.seconds))
        self._good_until = asked + self.seconds

    async def keep(self) -> None:
        """Beat until cancelled; a store that is away for a moment is tried again."""
        while True:
            await self.clock.sleep(self.seconds / 3)
            try:
                await self.beat()
            except StoreError as error:
                log.warning("worker.beat_missed", worker=self.me.id, error=str(error))

    async def retire(self) -> None:
        """Leave orderly."""
        if self.registered:
            await self.store.retire(self.me.id)
            self._registered = None

    async def dead(self) -> set[str]:
        """Workers that are certainly gone: their beat ran out, or their process on this host is no more."""
        now = self.clock.now()
        gone: set[str] = set()
        for worker in await self.store.workers():
            if worker.id == self.me.id:
                continue
            if worker.until < now:
                gone.add(worker.id)
            elif worker.host == self.me.host:
                started = born(worker.pid)
                if started is None or (started and worker.born and started != worker.born):
                    gone.add(worker.id)
        return gone

    async def confirm(self, lease: Lease, lapses: int) -> int:
        """Before what cannot be undone: make sure a run is still ours, should this process have slept.

        `lapses` is how often the beat had run out when the run was last known to be ours.
        Gives the count as it is now.
        """
        while (
            self.clock.elapsed() >= self._good_until or lapses != self.lapses
        ):  # it may sleep again meanwhile
            if self.clock.elapsed() >= self._good_until:
                await self.beat()
            lapses = self.lapses
            row = await self.store.row(lease.run_id)
            if row.epoch != lease.epoch:
                raise Fenced(lease.run_id, lease.epoch, row.seq)
        return lapses
