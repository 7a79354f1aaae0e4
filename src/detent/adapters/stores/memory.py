"""A store in memory, lost with the process: for tests, trials and runs not worth keeping."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Collection
from typing import Any

from detent.adapters.stores import rows as shared
from detent.engine.host import ticks
from detent.engine.ports import (
    FORGOTTEN_AFTER,
    Blob,
    Cancellation,
    Commit,
    EdgeCount,
    Lease,
    LedgerLine,
    MarkChange,
    NewRun,
    Page,
    RowState,
    RunQuery,
    RunRow,
    Taken,
    Worker,
)
from detent.kernel.entries import Entry
from detent.kernel.errors import Fenced, MarkMoved, RunBusy, RunExists, RunNotFound, StoreUnavailable
from detent.kernel.plain import copied, decode, encode
from detent.kernel.status import Status

UNCOUNTED = 10_000
"""Moves collected before they are added up."""


class _Run:
    """One run as this store keeps it."""

    __slots__ = (
        "asked", "blobs", "created_at", "entries", "epoch", "flow", "fold", "id", "ledger", "machine", "now",
        "number", "owner", "parent", "tags",
    )  # fmt: skip

    def __init__(self, number: int, new: NewRun) -> None:
        self.id = new.run_id
        self.number = number
        self.flow = new.flow
        self.machine = new.machine
        self.parent = new.parent
        self.created_at = new.entries[0].at
        self.entries: list[Entry] = list(new.entries)
        self.epoch = 1
        self.owner = new.worker
        self.asked: Cancellation | None = None
        self.tags: dict[str, None] = dict.fromkeys(new.tags)
        self.now: RowState = new.now
        self.ledger: dict[str, LedgerLine] = {line.key: line for line in new.ledger}
        self.fold: str | None = None
        self.blobs: set[str] = set()

    def row(self) -> RunRow:
        return RunRow(
            self.id, self.number, self.flow, self.machine, self.parent, self.created_at, len(self.entries),
            self.epoch, self.owner, self.asked, tuple(sorted(self.tags)), self.now,
        )  # fmt: skip


class MemoryStore:
    """All in dictionaries, with the same rules as the durable stores."""

    def __init__(self, *, ticks: Callable[[], float] = ticks) -> None:
        self._ticks = ticks
        """The clock of leases."""
        self._runs: dict[str, _Run] = {}
        self._numbers = itertools.count(1)
        self._workers: dict[str, Worker] = {}
        self._definitions: dict[str, dict[str, Any]] = {}
        self._blobs: dict[str, bytes] = {}
        self._marks: dict[str, tuple[str, int]] = {}
        self._edges: dict[shared.EdgeKey, EdgeCount] = {}
        self._moves: list[EdgeCount] = []
        self._waiting: list[asyncio.Future[None]] = []

    async def open(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """Nothing to close; the content stays as long as the object."""

    # -- driving --------------------------------------------------------------------------------------------

    async def create(self, new: NewRun) -> Lease:
        """Keep a new run."""
        if new.run_id in self._runs:
            raise RunExists(new.run_id)
        self._set_with(*([] if new.mark is None else [new.mark]))
        run = _Run(next(self._numbers), new)
        if new.blobs_of is not None and new.blobs_of in self._runs:
            run.blobs = set(self._runs[new.blobs_of].blobs)
        for blob in new.blobs:
            self._keep(run, blob)
        self._runs[new.run_id] = run
        if run.owner is None:
            self._freed()
        self._definitions.setdefault(new.now.fingerprint, new.definition)
        return Lease(run.id, 1, len(run.entries), run)

    async def append(self, commit: Commit) -> int:
        """Check the fence, then keep the whole commit."""
        lease = commit.lease
        run: _Run = lease.key
        if run.epoch != lease.epoch or len(run.entries) != commit.after:
            raise Fenced(lease.run_id, lease.epoch, commit.after)
        fold = encode(commit.fold) if commit.fold is not None else None  # may refuse: before anything is kept
        self._set_with(*commit.marks)
        run.entries.extend(commit.entries)
        run.now = commit.now
        if commit.park:
            run.owner = None
            run.asked = None
        if commit.edges:
            self._moves += commit.edges
            if len(self._moves) > UNCOUNTED:
                self._count()
        for line in commit.ledger:
            run.ledger[line.key] = line
        for tag, on in commit.tags:
            if on:
                run.tags[tag] = None
            else:
                run.tags.pop(tag, None)
        for blob in commit.blobs:
            self._keep(run, blob)
        if commit.definition is not None:
            self._definitions.setdefault(commit.now.fingerprint, commit.definition)
        if fold is None:
            return 0
        run.fold = fold
        return len(fold)

    def _count(self) -> None:
        """Add the moves collected since the last call to the counts."""
        for edge in self._moves:
            shared.add_edge(self._edges, edge)
        self._moves.clear()

    def _keep(self, run: _Run, blob: Blob) -> None:
        self._blobs[blob.hash] = blob.body
        run.blobs.add(blob.hash)

    async def claim(self, run_id: str, worker: str, dead: Collection[Worker] = ()) -> Lease:
        """Claim a run if no live worker has it."""
        run = self._get(run_id)
        owner = run.owner
        if owner is not None and owner != worker and (owner_row := self._workers.get(owner)) is not None:
            dead_row = next((candidate for candidate in dead if candidate.id == owner), None)
            if dead_row is None or dead_row.until != owner_row.until:
                raise RunBusy(run_id, owner)
        run.epoch += 1
        run.owner = worker
        lost = owner if owner not in (None, worker) else None
        return Lease(run_id, run.epoch, len(run.entries), run, lost)

    async def take(
        self,
        worker: str,
        limit: int,
        *,
        now: float,
        flows: Collection[str],
        dead: Collection[Worker] = (),
        only: Collection[str] | None = None,
        skip: Collection[str] = (),
    ) -> list[Taken]:
        """Claim due runs, then loose ones."""
        alive = self._alive(dead)
        free = [*(run for run in self._due(now) if run.owner not in alive), *self._loose(dead)]
        candidates = [
            run
            for run in free
            if run.flow in flows
            and (only is None or run.id in only)
            and run.id not in skip
            and (run.parent is None or run.parent in self._runs)
        ]
        taken: list[Taken] = []
        for run in candidates[:limit]:
            lease = await self.claim(run.id, worker, dead)
            fold = decode(run.fold) if run.fold is not None else None
            taken.append(Taken(lease, run.flow, fold, run.entries[fold["seq"] if fold else 0 :]))
        return taken

    async def changed(self) -> None:
        """Wait until a run is released or left without a driver."""
        self._waiting.append(waiter := asyncio.get_running_loop().create_future())
        try:
            await waiter
        finally:
            self._waiting.remove(waiter)

    def _freed(self) -> None:
        for waiter in self._waiting:  # they may wait in other event loops
            waiter.get_loop().call_soon_threadsafe(_wake, waiter)

    async def park(self, lease: Lease) -> None:
        """Release a run."""
        run = self._runs.get(lease.run_id)
        if run is not None and run.epoch == lease.epoch:
            run.owner = None
            run.asked = None
            self._freed()

    async def beat(self, worker: Worker, seconds: float) -> None:
        """Note that a worker is alive."""
        now = self._ticks()
        self._workers[worker.id] = worker._replace(until=now + seconds)
        old = [known.id for known in list(self._workers.values()) if known.until < now - FORGOTTEN_AFTER]
        owners = {run.owner for run in list(self._runs.values())} if old else set()
        for worker_id in old:
            if worker_id not in owners and worker_id != worker.id:
                self._workers.pop(worker_id, None)

    async def retire(self, worker_id: str) -> None:
        """Forget a worker."""
        self._workers.pop(worker_id, None)
        for run in self._runs.values():
            if run.owner == worker_id:
                run.owner = None

    async def workers(self) -> list[Worker]:
        """All known workers."""
        now = self._ticks()
        return [worker._replace(left=worker.until - now) for worker in list(self._workers.values())]

    async def owned(self, worker_id: str) -> list[tuple[str, int]]:
        """Runs a worker holds."""
        return [(run.id, run.epoch) for run in self._runs.values() if run.owner == worker_id]

    async def ask(self, run_id: str, cancellation: Cancellation) -> None:
        """Leave a request."""
        run = self._get(run_id)
        if run.owner is not None:
            run.asked = cancellation

    async def asked(self, worker_id: str) -> list[tuple[str, Cancellation]]:
        """Requests for a worker's runs."""
        return [(run.id, run.asked) for run in self._runs.values() if run.asked and run.owner == worker_id]

    async def due(self, now: float, limit: int = 100) -> list[str]:
        """Waiting runs whose time has come."""
        return [run.id for run in self._due(now)[:limit]]

    def _due(self, now: float) -> list[_Run]:
        due = [
            run
            for run in self._runs.values()
            if run.now.status is Status.WAITING and run.now.wake_at is not None and run.now.wake_at <= now
        ]
        return sorted(due, key=lambda run: (run.now.wake_at, run.number))

    async def loose(self, dead: Collection[Worker] = (), limit: int = 100) -> list[str]:
        """Running runs without a live worker."""
        return [run.id for run in self._loose(dead)[:limit]]

    def _loose(self, dead: Collection[Worker]) -> list[_Run]:
        alive = self._alive(dead)
        return [
            run for run in self._runs.values() if run.now.status is Status.RUNNING and run.owner not in alive
        ]

    def _alive(self, dead: Collection[Worker]) -> set[str]:
        dead_until = {worker.id: worker.until for worker in dead}
        return {
            worker.id for worker in list(self._workers.values()) if dead_until.get(worker.id) != worker.until
        }

    # -- reading --------------------------------------------------------------------------------------------

    def _get(self, run_id: str) -> _Run:
        try:
            return self._runs[run_id]
        except KeyError:
            raise RunNotFound(run_id) from None

    async def row(self, run_id: str) -> RunRow:
        """One run's listing line."""
        return self._get(run_id).row()

    async def rows(self, query: RunQuery) -> Page:
        """A page of runs, newest first."""
        rows: list[RunRow] = []
        for run in reversed(self._runs.values()):
            if (
                (query.before is not None and run.number >= query.before)
                or (query.flow is not None and run.flow != query.flow)
                or (query.status and run.now.status not in query.status)
                or (query.tag is not None and query.tag not in run.tags)
                or (query.since is not None and run.created_at < query.since)
                or (query.until is not None and run.created_at >= query.until)
                or (query.parent is not None and run.parent != query.parent)
                or (query.roots_only and run.parent is not None)
            ):
                continue
            if len(rows) == query.limit:
                return Page(rows, rows[-1].number if rows else None)
            rows.append(run.row())
        return Page(rows, None)

    async def find(self, prefix: str, limit: int = 10) -> list[str]:
        """Ids that begin with a prefix."""
        return sorted(run_id for run_id in self._runs if run_id.startswith(prefix))[:limit]

    async def entries(self, run_id: str, after: int = 0, limit: int = 1000) -> list[Entry]:
        """A part of a journal."""
        return self._get(run_id).entries[after : after + limit]

    async def saved_fold(self, run_id: str) -> dict[str, Any] | None:
        """The saved fold."""
        fold = self._get(run_id).fold
        return decode(fold) if fold is not None else None

    async def definition(self, fingerprint: str) -> dict[str, Any] | None:
        """A definition some run was started under."""
        definition = self._definitions.get(fingerprint)
        return copied(definition) if definition is not None else None

    async def effect(self, run_id: str, key: str) -> LedgerLine | None:
        """The ledger line of one effect."""
        return self._get(run_id).ledger.get(key)

    async def effects(self, run_id: str) -> list[LedgerLine]:
        """The ledger lines of a run."""
        return sorted(self._get(run_id).ledger.values(), key=lambda line: line.seq)

    async def edges(self, flow: str, since_day: int | None = None) -> list[EdgeCount]:
        """Moves of a flow."""
        self._count()
        return [
            edge
            for _, edge in sorted(self._edges.items())
            if edge.flow == flow and (since_day is None or edge.day >= since_day)
        ]

    async def flows(self) -> list[tuple[str, Status, int]]:
        """Number of runs per flow and status."""
        counts: dict[tuple[str, Status], int] = {}
        for run in self._runs.values():
            key = (run.flow, run.now.status)
            counts[key] = counts.get(key, 0) + 1
        return sorted((flow, status, count) for (flow, status), count in counts.items())

    async def facts(self) -> dict[str, Any]:
        """Facts about the store for people."""
        return {
            "kind": "memory",
            "place": "this process",
            "schema": None,
            "runs": len(self._runs),
            "entries": sum(len(run.entries) for run in self._runs.values()),
            "workers": len(self._workers),
        }

    async def integrity(self) -> list[str]:
        """Nothing can be damaged in memory."""
        return []

    # -- values beside the journal --------------------------------------------------------------------------

    async def blob(self, hash: str) -> bytes | None:
        """An offloaded value."""
        return self._blobs.get(hash)

    async def purge(self, run_id: str | None = None, before: float | None = None) -> int:
        """Drop references, then the blobs without any."""
        if run_id is None and before is None:
            raise StoreUnavailable("Say which run's values to purge, or up to what time.")
        if run_id is not None:
            self._get(run_id)
        for run in self._runs.values():
            if (run_id is not None and run.id == run_id) or (
                before is not None and run.now.updated_at < before and self._is_over(run)
            ):
                run.blobs.clear()
        referenced = {hash for run in self._runs.values() for hash in run.blobs}
        unreferenced = [hash for hash in self._blobs if hash not in referenced]
        for hash in unreferenced:
            del self._blobs[hash]
        return len(unreferenced)

    def _is_over(self, run: _Run) -> bool:
        """Whether it has ended, and every run above it has too."""
        above: _Run | None = run
        while above is not None and above.now.status.is_end:
            above = self._runs.get(above.parent) if above.parent is not None else None
        return above is None

    async def mark(self, key: str) -> tuple[Any, int]:
        """A small durable value and its version."""
        text, version = self._marks.get(key, ("null", 0))
        return decode(text), version

    async def set_mark(self, key: str, value: Any, expected: int) -> bool:
        """Set a mark if its version is the expected one."""
        if self._marks.get(key, ("", 0))[1] != expected:
            return False
        self._marks[key] = (encode(value), expected + 1)
        return True

    def _set_with(self, *changes: MarkChange) -> None:
        """Set the marks of a transaction; first in it, so that nothing is kept if one of them has moved."""
        for change in changes:
            if self._marks.get(change.key, ("", 0))[1] != change.expected:
                raise MarkMoved(change.key)
        texts = [encode(change.value) for change in changes]
        for change, text in zip(changes, texts, strict=True):
            if change.remove:
                self._marks.pop(change.key, None)
            else:
                self._marks[change.key] = (text, change.expected + 1)

    async def marks(self, prefix: str) -> dict[str, Any]:
        """Marks whose keys begin with a prefix."""
        return {key: decode(text) for key, (text, _) in sorted(self._marks.items()) if key.startswith(prefix)}


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
