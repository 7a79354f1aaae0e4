"""The default store: one SQLite file, safe against power loss, shared by as many processes as need it.

Writes go through one thread and share commits; reads have connections of their own and never wait for
writers. While a hand-over would cost more than the work, both are done at once in the caller's thread.
`sync="full"` (the default) waits for the disk at every commit; `sync="normal"` is two to three times faster
and may lose the last moments before a power cut, never before a mere crash of the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal, TypeVar

from detent.adapters.stores import rows as shared
from detent.adapters.stores.group_commit import GroupCommit
from detent.adapters.stores.sql_reads import SqlReads
from detent.adapters.stores.sqlite_backup import copy_to
from detent.adapters.stores.sqlite_file import SQLiteFile
from detent.adapters.stores.sqlite_integrity import damage_in
from detent.adapters.stores.sqlite_queries import (
    ADVANCE,
    ADVANCE_AND_PARK,
    EDGES,
    FORGET,
    FREE_AND_DUE,
    FREE_AND_LOOSE,
    HEARD,
    INSERT_ENTRY,
    INSERT_RUN,
    LONGEST_RUN,
    RUN,
    SEQ_BITS,
    SHORT_BLOB,
    TAKE,
    UNREFER_OLD,
    UPSERT_EDGE,
    UPSERT_EFFECT,
)
from detent.engine.host import boot_of, this_host, ticks
from detent.engine.ports import (
    FORGOTTEN_AFTER,
    PAGE,
    Blob,
    Cancellation,
    Commit,
    EdgeCount,
    Lease,
    MarkChange,
    NewRun,
    Page,
    RunQuery,
    RunRow,
    Taken,
    Worker,
)
from detent.kernel.entries import Entry
from detent.kernel.errors import (
    Fenced,
    MarkMoved,
    RunBusy,
    RunExists,
    RunNotFound,
    StoreClosed,
    StoreError,
    StoreReadOnly,
    StoreUnavailable,
)

T = TypeVar("T")

SLOW, LEFT_TO_THREADS = 0.03, 2.0
"""After a direct commit longer than the first, the writer takes over commits for the second, in seconds; the
same holds for reads and their threads."""


class Batch:
    """A transaction under way."""

    __slots__ = ("connection", "edges")

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.edges: dict[tuple[str, int, str, str], EdgeCount] = {}


class _Writing:
    """The writer's side of the file; used in the writer's thread only."""

    def __init__(self, file: SQLiteFile, busy_timeout: float | None = None) -> None:
        self._file = file
        self._busy_timeout = busy_timeout
        self._connection: sqlite3.Connection | None = None
        self.translate = file.translate

    def begin(self) -> Batch:
        if self._file.read_only:
            raise StoreReadOnly(
                f"The store {self._file.path} is read-only: it can be looked at, not changed. "
                f"To change it, copy it to where it can be written, and name the copy with --store."
            )
        if self._file.guard is not None:
            self._file.guard.refuse()
        connection = self._connected()
        connection.execute("BEGIN IMMEDIATE")
        return Batch(connection)

    def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Read outside any transaction."""
        connection = self._connected()
        if self._file.guard is not None:
            self._file.guard.check(connection)
        return work(connection)

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = self._file.connect(self._busy_timeout)
        return self._connection

    def commit(self, batch: Batch) -> None:
        if batch.edges:
            batch.connection.executemany(UPSERT_EDGE, batch.edges.values())
        batch.connection.execute("COMMIT")
        if self._file.guard is not None:
            self._file.guard.check(batch.connection, committed=True)

    def rollback(self) -> None:
        if self._connection is not None and self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()


class SQLiteStore(SqlReads):
    """Journals in one SQLite file."""

    def __init__(
        self,
        path: str | Path,
        *,
        sync: Literal["full", "normal"] = "full",
        create: bool = True,
        busy_timeout: float = 30.0,
        ticks: Callable[[], float] = ticks,
    ) -> None:
        self.path = Path(path)
        self.sync = sync
        self._ticks = ticks
        """The clock of leases, the same in every process of this machine."""
        self._file = SQLiteFile(self.path, sync, create, busy_timeout)
        self._writer: GroupCommit | None = None
        self._readers: ThreadPoolExecutor | None = None
        self._local = threading.local()
        self._connections: list[sqlite3.Connection] = []
        self._defined: set[str] = set()
        self._direct: _Writing | None = None
        """Writes and reads at once, in the thread that opened the store."""
        self._writes_from = self._reads_from = 0.0
        self._thread = 0

    # -- opening --------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Create or migrate the file as needed and start the writer."""
        if self._writer is not None:
            return
        await asyncio.to_thread(self._file.prepare)
        self._writer = GroupCommit(_Writing(self._file), f"detent-writer {self.path.name}")
        self._direct = _Writing(self._file, busy_timeout=0.0)
        self._thread = threading.get_ident()
        self._readers = ThreadPoolExecutor(2, thread_name_prefix=f"detent-reader {self.path.name}")

    async def close(self) -> None:
        """Finish accepted writes and close."""
        writer, readers = self._writer, self._readers
        self._writer = self._readers = None
        if self._direct is not None:
            self._direct.close()
            self._direct = None
        if writer is not None:
            await writer.close()
        if readers is not None:
            await asyncio.to_thread(readers.shutdown)
        for connection in self._connections:
            connection.close()
        self._connections.clear()
        self._local = threading.local()
        self._file.close()

    # -- plumbing -------------------------------------------------------------------------------------------

    def _write(self, work: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        if self._writer is None:
            raise StoreClosed("The store is not open.")
        return self._writer.write(work, *args)

    async def _write_alone(self, work: Callable[..., T], *args: Any) -> T:
        """Write at once in this thread: while nothing else is under way, a hand-over costs more than waiting.

        Falls back to the writer thread while the file is locked, and for a while after the disk was slow.
        """
        direct, elapsed = self._direct, time.perf_counter
        began = elapsed()
        if self._writer is None or direct is None or began < self._writes_from:
            return await self._write(work, *args)
        try:
            batch = direct.begin()
            result: T = work(batch, *args)
            direct.commit(batch)
        except sqlite3.Error:
            direct.rollback()
            return await self._write(work, *args)
        except BaseException:
            direct.rollback()
            raise
        if elapsed() - began > SLOW:
            self._writes_from = elapsed() + LEFT_TO_THREADS
        return result

    async def _read_row(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Read a row by its key at once in this thread: handing it over costs several times as much.

        Falls back to a reader's thread while the file is locked, and for a while after a slow read. Commits
        that wait for the disk say nothing about reads, which do not.
        """
        direct, elapsed = self._direct, time.perf_counter
        began = elapsed()
        if direct is None or began < self._reads_from or threading.get_ident() != self._thread:
            return await self._read(work)
        try:
            result = direct.read(work)
        except sqlite3.Error:
            return await self._read(work)
        if elapsed() - began > SLOW:
            self._reads_from = elapsed() + LEFT_TO_THREADS
        return result

    async def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        if self._readers is None:
            raise StoreClosed("The store is not open.")
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._read_in_thread, work)

    def _read_in_thread(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
            if connection is None:
                connection = self._file.connect()
                connection.execute("PRAGMA query_only = 1")
                self._local.connection = connection
                self._connections.append(connection)
            if self._file.guard is not None:
                self._file.guard.check(connection)
            return work(connection)
        except sqlite3.Error as error:
            raise self._file.translate(error) from error

    async def _all(self, statement: str, *values: Any) -> list[Any]:
        return await self._read(lambda db: db.execute(_sql(statement), values).fetchall())

    async def _of_run(self, run_id: str, statement: str, *values: Any) -> list[Any]:
        return await self._read(
            lambda db: db.execute(_sql(statement), (_number(db, run_id), *values)).fetchall()
        )

    async def _one(self, statement: str, *values: Any) -> Any:
        return await self._read_row(lambda db: db.execute(_sql(statement), values).fetchone())

    async def _one_of_run(self, run_id: str, statement: str, *values: Any) -> Any:
        return await self._read_row(
            lambda db: db.execute(_sql(statement), (_number(db, run_id), *values)).fetchone()
        )

    # -- driving --------------------------------------------------------------------------------------------

    async def create(self, new: NewRun) -> Lease:
        """Write a run's row and first entries."""
        bodies = [shared.body_of(entry) for entry in new.entries]
        definition = None if new.now.fingerprint in self._defined else shared.written(new.definition)

        def work(batch: Batch) -> Lease:
            db = batch.connection
            if new.mark is not None:
                _check_marks(db, [new.mark])
            try:
                cursor = db.execute(
                    INSERT_RUN,
                    (
                        new.run_id, new.flow, new.machine, new.parent, new.entries[0].at, len(new.entries),
                        new.worker, *shared.state_values(new.now),
                    ),
                )  # fmt: skip
            except sqlite3.IntegrityError:
                raise RunExists(new.run_id) from None
            number = cursor.lastrowid
            assert number is not None
            self._insert_entries(db, number, new.entries, bodies)
            if new.tags:
                db.executemany(
                    "INSERT OR IGNORE INTO tags VALUES (?, ?)", [(tag, number) for tag in new.tags]
                )
            for line in new.ledger:
                db.execute(UPSERT_EFFECT, (number, *line))
            if definition is not None:
                db.execute(
                    "INSERT OR IGNORE INTO definitions VALUES (?, ?)", (new.now.fingerprint, definition)
                )
            for blob in new.blobs:
                self._keep(db, number, blob)
            if new.blobs_of is not None:
                db.execute(
                    "INSERT OR IGNORE INTO blob_refs SELECT ?, hash FROM blob_refs "
                    "WHERE run = (SELECT number FROM runs WHERE id = ?)",
                    (number, new.blobs_of),
                )
            if new.mark is not None:
                _change_mark(db, new.mark)
            return Lease(new.run_id, 1, len(new.entries), number)

        lease = await (self._write_alone(work) if new.alone else self._write(work))
        if definition is not None:
            self._defined.add(new.now.fingerprint)
        return lease

    @staticmethod
    def _keep(db: sqlite3.Connection, number: int, blob: Blob) -> None:
        """Write a blob and a run's reference to it."""
        db.execute("INSERT OR IGNORE INTO blobs VALUES (?, ?)", blob)
        db.execute("INSERT OR IGNORE INTO blob_refs VALUES (?, ?)", (number, blob.hash))

    @staticmethod
    def _insert_entries(
        db: sqlite3.Connection, number: int, entries: Sequence[Entry], bodies: Sequence[str]
    ) -> None:
        base = number << SEQ_BITS
        if len(entries) == 1:
            entry = entries[0]
            db.execute(INSERT_ENTRY, (base | entry.seq, entry.at, entry.epoch, entry.body.kind, bodies[0]))
        else:
            db.executemany(
                INSERT_ENTRY,
                [
                    (base | entry.seq, entry.at, entry.epoch, entry.body.kind, body)
                    for entry, body in zip(entries, bodies, strict=True)
                ],
            )

    async def append(self, commit: Commit) -> int:
        """Advance the run behind the fence and write everything that belongs to the commit."""
        lease, entries = commit.lease, commit.entries
        bodies = [shared.body_of(entry) for entry in entries]
        fold = shared.written(commit.fold) if commit.fold is not None else None
        seq = commit.after + len(entries)
        if seq >= LONGEST_RUN:
            raise StoreError(f"Run {lease.run_id} has {seq} entries, more than a run can have.")
        values = (seq, *shared.state_values(commit.now), lease.key, lease.epoch, commit.after)
        write = self._write_alone if commit.alone else self._write
        return await write(self._append, commit, values, bodies, fold)

    def _append(
        self, batch: Batch, commit: Commit, values: tuple[Any, ...], bodies: list[str], fold: str | None
    ) -> int:
        db, lease = batch.connection, commit.lease
        number = lease.key
        if commit.marks:
            _check_marks(db, commit.marks)
        if db.execute(ADVANCE_AND_PARK if commit.park else ADVANCE, values).rowcount != 1:
            raise Fenced(lease.run_id, lease.epoch, commit.after)
        self._insert_entries(db, number, commit.entries, bodies)
        for edge in commit.edges:
            shared.add_edge(batch.edges, edge)
        for line in commit.ledger:
            db.execute(UPSERT_EFFECT, (number, *line))
        for tag, on in commit.tags:
            if on:
                db.execute("INSERT OR IGNORE INTO tags VALUES (?, ?)", (tag, number))
            else:
                db.execute("DELETE FROM tags WHERE tag = ? AND run = ?", (tag, number))
        for blob in commit.blobs:
            self._keep(db, number, blob)
        if commit.definition is not None:
            db.execute(
                "INSERT OR IGNORE INTO definitions VALUES (?, ?)",
                (commit.now.fingerprint, shared.written(commit.definition)),
            )
        for change in commit.marks:
            _change_mark(db, change)
        if fold is None:
            return 0
        db.execute("INSERT OR REPLACE INTO folds VALUES (?, ?)", (number, fold))
        return len(fold)

    async def claim(self, run_id: str, worker: str, dead: Collection[Worker] = ()) -> Lease:
        """Raise the epoch if no live worker has the run."""
        dead_until = {gone.id: gone.until for gone in dead}

        def work(batch: Batch) -> Lease:
            db = batch.connection
            row = db.execute("SELECT number, owner, epoch, seq FROM runs WHERE id = ?", (run_id,)).fetchone()
            if row is None:
                raise RunNotFound(run_id)
            number, owner, epoch, seq = row
            if owner is not None and owner != worker:
                lease_row = db.execute(HEARD, (owner,)).fetchone()
                if lease_row is not None and dead_until.get(owner) != lease_row[0]:
                    raise RunBusy(run_id, owner)
            db.execute(TAKE, (epoch + 1, worker, number))
            return Lease(run_id, epoch + 1, seq, number, owner if owner not in (None, worker) else None)

        return await self._write(work)

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
        """Raise the epochs of runs that no live worker has, and read their journals."""
        dead_until = {gone.id: gone.until for gone in dead}
        values: dict[str, Any] = {
            "now": now, "limit": limit, "flows": json.dumps([*flows]), "skip": json.dumps([*skip]),
            "only": None if only is None else json.dumps([*only]),
        }  # fmt: skip

        def free(db: sqlite3.Connection) -> list[Any]:
            lease_rows = db.execute("SELECT id, until FROM workers").fetchall()
            alive = json.dumps([name for name, until in lease_rows if dead_until.get(name) != until])
            runs = db.execute(FREE_AND_DUE, {**values, "alive": alive}).fetchall()
            return (runs + db.execute(FREE_AND_LOOSE, {**values, "alive": alive}).fetchall())[:limit]

        def work(batch: Batch) -> list[tuple[Lease, str]]:
            runs = free(batch.connection)
            batch.connection.executemany(
                TAKE, [(epoch + 1, worker, number) for number, _, _, _, epoch, _ in runs]
            )
            return [
                (Lease(run_id, epoch + 1, seq, number, owner if owner != worker else None), flow)
                for number, run_id, flow, owner, epoch, seq in runs
            ]

        def journal(db: sqlite3.Connection, lease: Lease, flow: str) -> Taken:
            (fold,) = db.execute("SELECT body FROM folds WHERE run = ?", (lease.key,)).fetchone() or (None,)
            return shared.taken(lease, flow, fold, _entries(db, lease.key, shared.seq_of(fold), PAGE))

        if not await self._read(free):  # the usual case, found without a write
            return []
        leases = await self._write(work)
        return await self._read(lambda db: [journal(db, lease, flow) for lease, flow in leases])

    async def changed(self) -> None:
        """Never returns: what other processes write to the file is found by polling."""
        await asyncio.Event().wait()

    async def park(self, lease: Lease) -> None:
        """Release the run if it is still ours."""

        def work(batch: Batch) -> None:
            batch.connection.execute(
                "UPDATE runs SET owner = NULL, asked = NULL WHERE number = ? AND epoch = ?",
                (lease.key, lease.epoch),
            )

        await self._write(work)

    async def beat(self, worker: Worker, seconds: float) -> None:
        """Write the worker's lease."""

        def work(batch: Batch) -> None:
            db, now = batch.connection, self._ticks()
            db.execute("INSERT OR REPLACE INTO workers VALUES (?, ?, ?, ?, ?)", (*worker[:4], now + seconds))
            db.execute(FORGET, (worker.id, now - FORGOTTEN_AFTER, now + FORGOTTEN_AFTER))

        await self._write(work)

    async def retire(self, worker_id: str) -> None:
        """Forget a worker and release its runs."""

        def work(batch: Batch) -> None:
            batch.connection.execute("UPDATE runs SET owner = NULL WHERE owner = ?", (worker_id,))
            batch.connection.execute("DELETE FROM workers WHERE id = ?", (worker_id,))

        if self._writer is not None:
            await self._write(work)
            return
        # Closed: the last thread of the worker has ended only now.
        try:
            with contextlib.closing(self._file.connect()) as connection:
                connection.execute("BEGIN IMMEDIATE")
                work(Batch(connection))
                connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise self._file.translate(error) from error

    async def workers(self) -> list[Worker]:
        """All workers that did not retire."""
        rows = await self._all("SELECT id, host, pid, born, until FROM workers ORDER BY id")
        now = self._ticks()
        for row in rows:
            if not isinstance(row[4], int | float):
                raise StoreError(f"The lease of worker {row[0]} is damaged in the store: it has no end.")
        return [Worker(*row)._replace(left=self._left(row[1], row[4] - now)) for row in rows]

    @staticmethod
    def _left(host: str, left: float) -> float:
        """The rest of a lease; none of a lease from before the machine was started."""
        return left if boot_of(host) == boot_of(this_host()) and left <= FORGOTTEN_AFTER else -FORGOTTEN_AFTER

    async def ask(self, run_id: str, cancellation: Cancellation) -> None:
        """Leave a request for the driver, if there is one."""

        def work(batch: Batch) -> None:
            db = batch.connection
            if db.execute("SELECT 1 FROM runs WHERE id = ?", (run_id,)).fetchone() is None:
                raise RunNotFound(run_id)
            text = shared.written(list(cancellation))
            db.execute("UPDATE runs SET asked = ? WHERE id = ? AND owner IS NOT NULL", (text, run_id))

        await self._write(work)

    async def loose(self, dead: Collection[Worker] = (), limit: int = 100) -> list[str]:
        """Running runs without a live worker."""
        placeholders = ", ".join("?" * len(dead))
        return await self._ids(
            f"SELECT id FROM runs WHERE status = 'running' AND (owner IS NULL OR owner IN ({placeholders}) "
            "OR owner NOT IN (SELECT id FROM workers)) ORDER BY number LIMIT ?",
            *(worker.id for worker in dead),
            limit,
        )

    # -- reading --------------------------------------------------------------------------------------------

    async def row(self, run_id: str) -> RunRow:
        """One run's listing line."""

        def work(db: sqlite3.Connection) -> RunRow:
            row = db.execute(f"{RUN} WHERE id = ?", (run_id,)).fetchone()
            if row is None:
                raise RunNotFound(run_id)
            return self._run_row(db, row)

        return await self._read(work)

    @staticmethod
    def _run_row(db: sqlite3.Connection, values: Sequence[Any]) -> RunRow:
        tags = [row[0] for row in db.execute("SELECT tag FROM tags WHERE run = ? ORDER BY tag", (values[1],))]
        return shared.run_row(values, tags)

    async def rows(self, query: RunQuery) -> Page:
        """A page of runs, newest first."""
        where, values = shared.conditions(query)
        sql = _sql(f"{RUN} {where} ORDER BY number DESC LIMIT ?")

        def work(db: sqlite3.Connection) -> Page:
            rows = db.execute(sql, (*values, query.limit + 1)).fetchall()
            return shared.page_of(query, rows, lambda values: self._run_row(db, values))

        return await self._read(work)

    async def entries(self, run_id: str, after: int = 0, limit: int = 1000) -> list[Entry]:
        """A part of a journal."""

        def work(db: sqlite3.Connection) -> list[Any]:
            return _entries(db, _number(db, run_id), after, limit)

        return shared.entries(run_id, await self._read(work))

    async def blob(self, hash: str) -> bytes | None:
        """An offloaded value: a short one is read at once, a long one in a thread."""
        row = await self._one(SHORT_BLOB, hash)
        return bytes(row[0]) if row is not None else await super().blob(hash)

    async def edges(self, flow: str, since_day: int | None = None) -> list[EdgeCount]:
        """Moves of a flow by day."""
        rows = await self._all(EDGES, flow, since_day if since_day is not None else -(1 << 40))
        return [EdgeCount(*row) for row in rows]

    async def facts(self) -> dict[str, Any]:
        """Facts about the store for people."""

        def work(db: sqlite3.Connection) -> dict[str, Any]:
            def value(sql: str) -> Any:
                return db.execute(sql).fetchone()[0]

            return {
                "kind": "sqlite",
                "place": str(self.path),
                "schema": value("PRAGMA user_version"),
                "synchronous": {0: "off", 1: "normal", 2: "full", 3: "extra"}[value("PRAGMA synchronous")],
                "runs": value("SELECT count(*) FROM runs"),
                "bytes": value("PRAGMA page_count") * value("PRAGMA page_size"),
                "workers": value("SELECT count(*) FROM workers"),
            }

        return await self._read(work)

    async def integrity(self) -> list[str]:
        """Damaged pages, and offloaded values that are missing or changed."""
        return await self._read(damage_in)

    async def backup(self, target: Path) -> None:
        """Write the present content to a new file, while others go on writing."""
        await self._read(lambda db: copy_to(db, target))

    # -- offloaded values and marks -------------------------------------------------------------------------

    async def purge(self, run_id: str | None = None, before: float | None = None) -> int:
        """Drop references, then the blobs without any."""
        if run_id is None and before is None:
            raise StoreUnavailable("Say which run's values to purge, or up to what time.")

        def work(batch: Batch) -> int:
            db = batch.connection
            if run_id is not None:
                db.execute("DELETE FROM blob_refs WHERE run = ?", (_number(db, run_id),))
            if before is not None:
                db.execute(UNREFER_OLD, (before,))
            return db.execute("DELETE FROM blobs WHERE hash NOT IN (SELECT hash FROM blob_refs)").rowcount

        return await self._write(work)

    async def set_mark(self, key: str, value: Any, expected: int) -> bool:
        """Set a mark if its version is the expected one."""
        text = shared.written(value)
        return await self._write(lambda batch: _set_mark(batch.connection, key, text, expected))


def _check_marks(db: sqlite3.Connection, changes: Iterable[MarkChange]) -> None:
    """Refuse a transaction one of whose marks has moved, before anything is written: other jobs share it."""
    for change in changes:
        row = db.execute("SELECT version FROM marks WHERE key = ?", (change.key,)).fetchone()
        if (0 if row is None else row[0]) != change.expected:
            raise MarkMoved(change.key)


def _change_mark(db: sqlite3.Connection, change: MarkChange) -> None:
    if change.remove:
        db.execute("DELETE FROM marks WHERE key = ? AND version = ?", (change.key, change.expected))
    else:
        _set_mark(db, change.key, shared.written(change.value), change.expected)


def _set_mark(db: sqlite3.Connection, key: str, text: str, expected: int) -> bool:
    if expected == 0:
        changed = db.execute("INSERT OR IGNORE INTO marks VALUES (?, ?, 1)", (key, text))
    else:
        changed = db.execute(
            "UPDATE marks SET value = ?, version = version + 1 WHERE key = ? AND version = ?",
            (text, key, expected),
        )
    return changed.rowcount == 1


def _sql(statement: str) -> str:
    """A statement without the schema mark: here the file is the schema."""
    return statement.replace("$.", "")


def _number(db: sqlite3.Connection, run_id: str) -> int:
    row = db.execute("SELECT number FROM runs WHERE id = ?", (run_id,)).fetchone()
    if row is None:
        raise RunNotFound(run_id)
    return int(row[0])


def _entries(db: sqlite3.Connection, number: int, after: int, limit: int) -> list[Any]:
    base = number << SEQ_BITS
    return db.execute(
        "SELECT key - ?, at, epoch, kind, body FROM entries WHERE key > ? AND key < ? ORDER BY key LIMIT ?",
        (base, base + after, base + LONGEST_RUN, limit),
    ).fetchall()
