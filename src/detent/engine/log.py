"""The journal of one run, written by the process that drives it.

Commits are made one at a time, each under the run's fence. Rows derived from entries are written with them,
and from time to time a fold of the whole run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

from detent.engine import moves
from detent.engine.derived import derived
from detent.engine.finishing import finishing
from detent.engine.flow import Flow
from detent.engine.journal_reader import load
from detent.engine.ports import Blob, Cancellation, Clock, Commit, Lease, MarkChange, Store
from detent.engine.spending import Spending
from detent.kernel.entries import Body, CalledOff, Entry, Migrated
from detent.kernel.errors import MarkMoved, StoreError
from detent.kernel.run import Run
from detent.kernel.status import Status

FOLD_EVERY = 256
"""Entries between saved folds, while folds are small."""
FOLD_BYTES_PER_ENTRY = 1024
"""Bytes of saved folds per entry, at most: a large fold is saved less often."""
BREATHE_EVERY = 32
"""Entries after which a driver yields to other tasks, in case the store never does."""


class Committed(Protocol):
    """The process a journal is written in."""

    @property
    def alone(self) -> bool:
        """True while no other run is under way in it."""

    def committed(self, owner: Any, entries: Sequence[Entry]) -> None:
        """Called after every commit, with the driver that made it."""


class Log:
    """Writes one run's journal."""

    __slots__ = (
        "_blobs", "_marks", "_next_fold", "_owner", "_process", "_turns", "_withheld", "_writing", "clock",
        "flow", "lease", "run", "spending", "store",
    )  # fmt: skip

    def __init__(
        self,
        store: Store,
        clock: Clock,
        flow: Flow,
        run: Run,
        lease: Lease,
        spending: Spending,
        process: Committed,
        owner: object,
    ) -> None:
        self.store = store
        self.clock = clock
        self.flow = flow
        self.run = run
        self.lease = lease
        self.spending = spending
        self._process = process
        self._owner = owner
        self._blobs: tuple[Blob, ...] = ()
        self._marks: tuple[MarkChange, ...] = ()
        self._withheld: tuple[Body, ...] = ()
        self._writing = False
        self._turns: list[asyncio.Future[None]] | None = None
        # At multiples, so that a run is folded even if it is taken over again and again.
        self._next_fold = run.seq - run.seq % FOLD_EVERY + FOLD_EVERY

    def keep(self, blob: Blob) -> None:
        """Write a blob with the next commit."""
        self._blobs = (*self._blobs, blob)

    def mark_with_next(self, change: MarkChange) -> None:
        """Set a mark with the next commit, which raises `MarkMoved` if the mark has another version."""
        self._marks = (*self._marks, change)

    def withhold(self, *bodies: Body) -> None:
        """Write entries with the next commit, whatever it is; `flush` before anything that may take long."""
        self._withheld = (*self._withheld, *bodies)

    async def flush(self) -> None:
        """Commit the entries that wait for the next commit."""
        if self._withheld:
            await self.commit_whole()

    @property
    def withheld(self) -> tuple[Body, ...]:
        """Entries that wait for the next commit."""
        return self._withheld

    async def blob(self, hash: str) -> bytes | None:
        """A blob of this run, whether already written or waiting for the next commit."""
        waiting = next((blob.body for blob in self._blobs if blob.hash == hash), None)
        return waiting if waiting is not None else await self.store.blob(hash)

    async def call_off(self, cancellation: Cancellation) -> None:
        """Record once that the run is to roll back, unless it has ended or already does."""
        await self.commit_whole(CalledOff(cancellation.reason, cancellation.by))

    async def commit(self, *bodies: Body, marks: tuple[MarkChange, ...] = ()) -> None:
        """Append entries, apply them to the run, and notify the process; `marks` are set with them.

        Raises:
            Fenced: another worker has taken the run over.
            MarkMoved: the mark to be set with the entries has another version.
        """
        while self._writing:  # commits of one run are made one at a time
            turn = asyncio.get_running_loop().create_future()
            self._turns = [*(self._turns or ()), turn]
            try:
                await turn
            except asyncio.CancelledError:
                if not turn.cancelled() and not self._writing:  # cancelled just as its turn came
                    self._pass_turn()
                raise
        self._writing = True
        try:
            if bodies and type(bodies[0]) is CalledOff and not self._can_be_called_off():
                return  # commits made while this one waited have made it needless
            if self.run.called_off is not None:
                bodies = tuple(moves.diverted(self.flow, self.run, bodies))
            if withheld := self._withheld:
                self._withheld, bodies = (), (*withheld, *bodies)
            if self.flow.at_end is not None:
                bodies = tuple(finishing(self.flow, self.run, bodies, self.keep))
            if bodies:
                await self._commit(bodies, marks)
        except MarkMoved:
            await self.reload()
            raise
        except StoreError:
            raise  # another worker drives the run, or the store is unavailable: write nothing more
        except Exception:
            await self.reload()
            raise
        finally:
            self._writing = False
            if self._turns:
                self._pass_turn()

    async def reload(self) -> None:
        """Reload the run from its journal, after entries that could not be written."""
        run = await load(self.store, self.run.id)
        run.beside = self.run.beside
        for name in Run.__slots__:
            setattr(self.run, name, getattr(run, name))

    def _can_be_called_off(self) -> bool:
        run = self.run
        return not run.status.is_end and run.called_off is None and not moves.undoing_now(self.flow, run)

    def _pass_turn(self) -> None:
        """Let the next in the queue commit."""
        while self._turns:
            turn = self._turns.pop(0)
            if not turn.done():
                turn.set_result(None)
                return

    async def commit_whole(self, *bodies: Body, marks: tuple[MarkChange, ...] = ()) -> None:
        """Commit, and complete the commit even if the caller is cancelled meanwhile."""
        commit = asyncio.ensure_future(self.commit(*bodies, marks=marks))
        try:
            await asyncio.shield(commit)
        except asyncio.CancelledError:
            # The run must match its journal before anything else happens. Nobody is left to receive an error.
            await asyncio.gather(commit, return_exceptions=True)
            raise

    async def _commit(self, bodies: tuple[Body, ...], marks: tuple[MarkChange, ...]) -> None:
        run, lease = self.run, self.lease
        now = self.clock.now()
        after = run.seq
        before = self.spending.own() if self.spending.parent is not None else None
        definition = None
        committed: list[Entry] = []
        for body in bodies:
            entry = Entry(run.seq + 1, now, lease.epoch, body)
            committed.append(entry)
            run.apply(entry)
            if type(body) is Migrated:
                definition = self.flow.definition
        row, ledger, edges, tags = derived(run, committed)
        fold = None
        if run.seq >= self._next_fold:
            fold = run.to_plain()
            self._next_fold = run.seq + FOLD_EVERY
        blobs = self._blobs
        marks, self._marks = (*self._marks, *marks), ()
        size = await self.store.append(
            Commit(
                lease, after, committed, row, run.status is not Status.RUNNING, ledger, edges, tags,
                fold, blobs, definition, self._process.alone, marks,
            )
        )  # fmt: skip
        if not run.seq % BREATHE_EVERY:  # a store may answer without ever yielding
            await asyncio.sleep(0)
        if blobs:
            self._blobs = self._blobs[len(blobs) :]
        if size:
            self._next_fold = run.seq + max(FOLD_EVERY, size // FOLD_BYTES_PER_ENTRY)
        if before is not None:
            self.spending.roll_up(before)
        self._process.committed(self._owner, committed)
