"""A writer that lets many runs share one PostgreSQL transaction, and never guesses whether it was committed.

All new runs and appends that wait when the writer is free go into one transaction: first the fences of all of
them, then everything else of those that passed. A refused one writes nothing and does not affect the others;
if the transaction itself fails, each is tried alone. Appends of entries and counts only, which is most, take
a single statement. (psycopg's pipeline mode was tried instead: slower on a near server, and a large pipeline
could wait forever for the answer to what it had not finished sending.)

When the connection is lost during a commit, its outcome is unknown. The writer then tries again, and where
the fence now refuses, checks whether the journal already has exactly these lines: if so, the commit had
succeeded. The row lock of the transaction in doubt makes the second attempt wait until that one is decided.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

import psycopg

from detent.adapters.stores import rows as shared
from detent.adapters.stores.postgres_connection import Connection, Link, let_go, lock_key, lost, repeatable
from detent.engine.ports import Blob, Commit, EdgeCount, Lease, LedgerLine, MarkChange, NewRun
from detent.kernel.errors import Fenced, MarkMoved, RunExists, StoreClosed, StoreUnavailable

LARGEST_BATCH = 2000
LARGEST_BYTES = 16 << 20
SHARDS = 64
"""Processes that can add to the same edge at once without waiting for each other."""
MOST_ATTEMPTS = 10
"""How often a single write is repeated because the server preferred another one."""

_STATE_TYPES = {
    "updated_at": "float8", "wake_at": "float8", "steps": "bigint", "tokens": "bigint", "cost_usd": "float8",
    "version": "bigint",
}  # fmt: skip
_STATE = {column: _STATE_TYPES.get(column, "text") for column in shared.STATE_COLUMNS}
_NEW = {
    "id": "text", "flow": "text", "machine": "text", "parent": "text", "created_at": "float8",
    "seq": "bigint", "owner": "text", **_STATE,
}  # fmt: skip
_MOVE = {"number": "bigint", "held": "bigint", "after": "bigint", "seq": "bigint", "park": "bool", **_STATE}
_ENTRY = {"run": "bigint", "seq": "bigint", "at": "float8", "epoch": "bigint", "kind": "text", "body": "text"}
_EDGE = {
    "flow": "text", "day": "bigint", "frm": "text", '"to"': "text", "count": "bigint", "seconds": "float8",
    "fastest": "float8", "slowest": "float8", "tokens": "bigint", "cost_usd": "float8",
}  # fmt: skip
_EFFECT = {"run": "bigint", "key": "text", "tool": "text", "state": "text", "seq": "bigint"}


_ADD_UP = """
ON CONFLICT (flow, day, frm, "to", shard) DO UPDATE SET count = e.count + excluded.count,
    seconds = e.seconds + excluded.seconds, fastest = least(e.fastest, excluded.fastest),
    slowest = greatest(e.slowest, excluded.slowest), tokens = e.tokens + excluded.tokens,
    cost_usd = e.cost_usd + excluded.cost_usd
"""


FIRST_MARK = """
INSERT INTO $.marks (key, value, version, setter) VALUES (%s, %s, 1, %s) ON CONFLICT DO NOTHING
"""
NEXT_MARK = """
UPDATE $.marks SET value = %s, version = version + 1, setter = %s WHERE key = %s AND version = %s
"""
NO_MARK = "DELETE FROM $.marks WHERE key = %s AND version = %s"


def _rows(columns: dict[str, str]) -> str:
    """A table made of one array for each column: any number of rows in one statement."""
    arrays = ", ".join(f"%s::{type_}[]" for type_ in columns.values())
    return f"unnest({arrays}) AS w ({', '.join(columns)})"


def _arrays(columns: dict[str, str], values: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """The values for `_given`, from rows. The items of an array must have exactly the same type."""
    if not values:
        return [[] for _ in columns]
    return [
        _exact(type_, column)
        for type_, column in zip(columns.values(), zip(*values, strict=True), strict=True)
    ]


def _exact(type_: str, column: Iterable[Any]) -> list[Any]:
    if type_ == "float8":
        return [None if value is None else float(value) for value in column]
    if type_ == "text":
        return [value if value is None or type(value) is str else str.__str__(value) for value in column]
    return list(column)


class Statements:
    """The writer's SQL for one schema."""

    def __init__(self, schema: str) -> None:
        def sql(text: str) -> bytes:
            return text.replace("$.", f'"{schema}".').encode()

        state = ", ".join(shared.STATE_COLUMNS)
        # Rows are inserted in the order given, so that numbers follow the order of arrival.
        self.insert_runs = sql(f"""
            INSERT INTO $.runs (id, flow, machine, parent, created_at, seq, epoch, owner, {state})
            SELECT id, flow, machine, parent, created_at, seq, 1, owner, {state} FROM {_rows(_NEW)}
            ON CONFLICT (id) DO NOTHING RETURNING id, number""")
        # The fence: nothing is changed unless epoch and sequence are what the driver believes them to be.
        self.advance = sql(f"""
            UPDATE $.runs AS r SET seq = w.seq, owner = CASE WHEN w.park THEN NULL ELSE r.owner END,
                asked = CASE WHEN w.park THEN NULL ELSE r.asked END,
                {", ".join(f"{column} = w.{column}" for column in shared.STATE_COLUMNS)}
            FROM {_rows(_MOVE)} WHERE r.number = w.number AND r.epoch = w.held AND r.seq = w.after
            RETURNING r.number""")
        advance = self.advance.decode()
        # All of a plain append. Only appends that passed are counted; sorted, as everywhere.
        self.advance_plainly = sql(f"""
            WITH passed AS ({advance}), written AS (
                INSERT INTO $.entries ({", ".join(_ENTRY)})
                SELECT {", ".join(f"w.{column}" for column in _ENTRY)}
                FROM {_rows(_ENTRY)} JOIN passed ON passed.number = w.run
            ), counted AS (
                INSERT INTO $.edges AS e (shard, {", ".join(_EDGE)})
                SELECT %s, flow, day, frm, "to", sum(count), sum(seconds), min(fastest), max(slowest),
                    sum(tokens), sum(cost_usd)
                FROM {_rows({"run": "bigint", **_EDGE})} JOIN passed ON passed.number = w.run
                GROUP BY flow, day, frm, "to"
                ORDER BY flow COLLATE "C", day, frm COLLATE "C", "to" COLLATE "C"
                {_ADD_UP}
            )
            SELECT number FROM passed""")
        self.insert_entries = sql(
            f"INSERT INTO $.entries ({', '.join(_ENTRY)}) SELECT {', '.join(_ENTRY)} FROM {_rows(_ENTRY)}"
        )
        self.upsert_effects = sql(f"""
            INSERT INTO $.effects ({", ".join(_EFFECT)}) SELECT {", ".join(_EFFECT)} FROM {_rows(_EFFECT)}
            ON CONFLICT (run, key)
            DO UPDATE SET tool = excluded.tool, state = excluded.state, seq = excluded.seq""")
        # Rows are sorted: two processes with the same shard lock them in the same order.
        self.upsert_edges = sql(f"""
            INSERT INTO $.edges AS e (shard, {", ".join(_EDGE)})
            SELECT %s, {", ".join(_EDGE)} FROM {_rows(_EDGE)}
            {_ADD_UP}""")
        self.put_tags = sql(f"""
            INSERT INTO $.tags (tag, run) SELECT tag, run FROM {_rows({"tag": "text", "run": "bigint"})}
            ON CONFLICT DO NOTHING""")
        self.take_tags = sql(f"""
            DELETE FROM $.tags AS t USING {_rows({"tag": "text", "run": "bigint"})}
            WHERE t.tag = w.tag AND t.run = w.run""")
        self.save_folds = sql(f"""
            INSERT INTO $.folds (run, body) SELECT run, body FROM {_rows({"run": "bigint", "body": "text"})}
            ON CONFLICT (run) DO UPDATE SET body = excluded.body""")
        self.define = sql(f"""
            INSERT INTO $.definitions (fingerprint, body)
            SELECT fingerprint, body FROM {_rows({"fingerprint": "text", "body": "text"})}
            ON CONFLICT DO NOTHING""")
        # A purge takes this lock exclusively: it cannot drop a blob while a reference to it is being written.
        self.lock_blobs = b"SELECT pg_advisory_xact_lock_shared(%s, 1)"
        self.keep_blob = sql("INSERT INTO $.blobs (hash, body) VALUES (%s, %s) ON CONFLICT DO NOTHING")
        self.refer = sql(f"""
            INSERT INTO $.blob_refs (run, hash)
            SELECT run, hash FROM {_rows({"run": "bigint", "hash": "text"})}
            ON CONFLICT DO NOTHING""")
        self.refer_as = sql("""
            INSERT INTO $.blob_refs (run, hash)
            SELECT %s, b.hash FROM $.blob_refs b JOIN $.runs r ON r.number = b.run WHERE r.id = %s
            ON CONFLICT DO NOTHING""")
        self.first_mark = sql(FIRST_MARK)
        self.next_mark = sql(NEXT_MARK)
        self.no_mark = sql(NO_MARK)
        self.stands_at = sql("SELECT number, owner, epoch FROM $.runs WHERE id = %s")
        self.lines = sql("""
            SELECT seq, at, epoch, kind, body FROM $.entries
            WHERE run = %s AND seq > %s AND seq <= %s ORDER BY seq""")


class Job:
    """A write under way, and whether an earlier attempt may have succeeded."""

    __slots__ = ("entries", "error", "future", "in_doubt", "key", "marks", "result", "size")

    def __init__(
        self, key: Any, entries: list[tuple[Any, ...]], size: int, marks: Sequence[MarkChange] = ()
    ) -> None:
        self.marks = marks
        """Marks to be set with it. Such a job has a transaction of its own, which it may have to undo."""
        self.key = key
        """Jobs with the same key never share a transaction."""
        self.entries = entries
        """Values of the journal lines, without the run."""
        self.size = size + sum(len(values[4]) for values in entries)
        """Characters of its large values."""
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.in_doubt = False
        self.result: Any = None
        self.error: Exception | None = None


class Creating(Job):
    """A new run."""

    __slots__ = ("definition", "new")

    def __init__(self, new: NewRun, definition: str | None) -> None:
        super().__init__(
            new.run_id,
            [(e.seq, e.at, e.epoch, e.kind, shared.body_of(e)) for e in new.entries],
            len(definition or ""),
            () if new.mark is None else (new.mark,),
        )
        self.new = new
        self.definition = definition


class Appending(Job):
    """A commit."""

    __slots__ = ("commit", "definition", "fold")

    def __init__(self, commit: Commit) -> None:
        self.commit = commit
        self.fold = shared.written(commit.fold) if commit.fold is not None else None
        self.definition = shared.written(commit.definition) if commit.definition is not None else None
        super().__init__(
            commit.lease.key,
            [(e.seq, e.at, e.epoch, e.kind, shared.body_of(e)) for e in commit.entries],
            len(self.fold or "") + sum(len(blob.body) for blob in commit.blobs),
            commit.marks,
        )

    @property
    def is_plain(self) -> bool:
        """Whether it has nothing but entries and counted moves."""
        commit = self.commit
        return not (
            commit.ledger or commit.tags or commit.blobs or commit.marks or self.fold or self.definition
        )


class Writer:
    """Owns the connection through which this process writes all journals."""

    def __init__(self, link: Link, patience: float) -> None:
        self._link = link
        self._patience = patience
        self._sql = Statements(link.schema)
        self._shard = secrets.randbelow(SHARDS)
        self._connection: Connection | None = None
        self._waiting: deque[Job] = deque()
        self._news = asyncio.Event()
        self._closing = False
        self._committing = False
        self._down_since: float | None = None
        self.transactions = 0
        """Transactions committed so far."""
        self._task = asyncio.create_task(self._work(), name="detent-writer postgres")

    def write(self, job: Job) -> asyncio.Future[Any]:
        """Do a job in the next transaction; the future is set once that is durable."""
        if self._closing:
            raise StoreClosed("The store is closed.")
        self._waiting.append(job)
        self._news.set()
        return job.future

    async def close(self) -> None:
        """Finish the accepted jobs, then stop."""
        self._closing = True
        self._news.set()
        await self._task

    # -- gathering ------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        try:
            while True:
                while not self._waiting:
                    if self._closing:
                        return
                    self._news.clear()
                    await self._news.wait()
                jobs = self._gather()
                await self._perform(jobs)
                for job in jobs:
                    _deliver(job)
        finally:
            await let_go(self._connection)

    def _gather(self) -> list[Job]:
        jobs: list[Job] = []
        later: list[Job] = []
        keys: set[Any] = set()
        size = 0
        while self._waiting and len(jobs) < LARGEST_BATCH and size < LARGEST_BYTES:
            job = self._waiting.popleft()
            if job.marks and not jobs and not later:
                return [job]
            if job.key in keys or job.marks:
                keys.add(job.key)  # later jobs of the run stay behind it
                later.append(job)
            else:
                keys.add(job.key)
                jobs.append(job)
                size += job.size
        self._waiting.extendleft(reversed(later))
        return jobs

    async def _perform(self, jobs: list[Job]) -> None:
        """Give every job a result or an error, retrying within the time there is."""
        attempts = 0
        while True:
            self._committing = False
            for job in jobs:
                job.result = job.error = None
            try:
                await self._transact(jobs)
            except Exception as error:
                if self._committing:
                    for job in jobs:
                        job.in_doubt = True
                if lost(self._connection, error):
                    if await self._pause(attempts):
                        attempts += 1
                        continue
                    self._refuse(jobs, error)
                    return
                await self._undo()
                if len(jobs) > 1:
                    for job in jobs:
                        await self._perform([job])
                    return
                if repeatable(error) and attempts < MOST_ATTEMPTS:
                    attempts += 1
                    continue
                jobs[0].error = self._link.explain(error)
                return
            self._down_since = None
            return

    async def _pause(self, attempts: int) -> bool:
        """Pause before another attempt over a new connection; False when the time is used up."""
        await let_go(self._connection)
        self._connection = None
        now = time.monotonic()
        if self._down_since is None:
            self._down_since = now
        remaining = self._patience - (now - self._down_since)
        if remaining <= 0:
            return False
        if attempts:
            await asyncio.sleep(min(remaining, 0.05 * 2 ** min(attempts, 5)))
        return True

    def _refuse(self, jobs: list[Job], error: Exception) -> None:
        for job in jobs:
            explained = self._link.explain(error)
            if job.in_doubt and isinstance(explained, StoreUnavailable):
                explained = StoreUnavailable(
                    f"{explained} The connection was lost during a commit; whether it was made is not known."
                )
            job.error = explained

    async def _undo(self) -> None:
        try:
            if self._connection is not None:
                await self._connection.rollback()
        except psycopg.Error:
            await let_go(self._connection)
            self._connection = None

    # -- one transaction ------------------------------------------------------------------------------------

    async def _transact(self, jobs: list[Job]) -> None:
        """One transaction for all jobs, fences first."""
        db = self._connection
        if db is None:
            db = self._connection = await self._link.connect()
        sql = self._sql
        creating = [job for job in jobs if isinstance(job, Creating)]
        # In order of runs: two processes that write to the same runs lock them in the same order.
        appending = sorted((job for job in jobs if isinstance(job, Appending)), key=lambda job: job.key)
        if not creating and all(job.is_plain for job in appending):
            await self._advance_plainly(db, appending)
            return
        blobs = any(job.commit.blobs for job in appending) or any(
            job.new.blobs_of or job.new.blobs for job in creating
        )
        await db.execute(b"BEGIN")
        if blobs:
            await db.execute(sql.lock_blobs, (lock_key(self._link.schema),))
        created_rows = advanced_rows = None
        if creating:
            created_rows = await db.execute(
                sql.insert_runs, _arrays(_NEW, [_new_values(job) for job in creating])
            )
        if appending:
            advanced_rows = await db.execute(
                sql.advance, _arrays(_MOVE, [_move_values(job) for job in appending])
            )
        numbers = dict(await created_rows.fetchall()) if created_rows is not None else {}
        passed = {row[0] for row in await advanced_rows.fetchall()} if advanced_rows is not None else set()
        created = [(numbers[job.key], job) for job in creating if job.key in numbers]
        advanced = [job for job in appending if job.key in passed]
        for new in creating:
            if new.key in numbers:
                new.result = Lease(new.key, 1, len(new.entries), numbers[new.key])
            else:
                await self._settle_creating(db, new)
        for job in appending:
            job.result = len(job.fold) if job.fold is not None else 0
            if job.key not in passed:
                await self._settle_appending(db, job)
        if created or advanced:
            await self._write_rest(db, created, advanced)
            # In one order, so that transactions never wait for each other in a circle.
            for mark in sorted(jobs[0].marks, key=lambda change: change.key):
                if not await self._set_mark(db, mark):
                    await db.execute(b"ROLLBACK")
                    jobs[0].result, jobs[0].error = None, MarkMoved(mark.key)
                    return
        self._committing = True
        commit = await db.execute(b"COMMIT")
        if commit.statusmessage != "COMMIT":
            raise StoreUnavailable("The server undid a transaction instead of committing it.")
        self.transactions += 1

    async def _set_mark(self, db: Connection, mark: MarkChange) -> bool:
        """Set a mark in the transaction under way; False when it has another version."""
        text, setter = shared.written(mark.value), secrets.token_hex(8)
        if mark.remove:
            changed = await db.execute(self._sql.no_mark, (mark.key, mark.expected))
            return mark.expected == 0 or changed.rowcount == 1
        if mark.expected == 0:
            changed = await db.execute(self._sql.first_mark, (mark.key, text, setter))
        else:
            changed = await db.execute(self._sql.next_mark, (text, setter, mark.key, mark.expected))
        return changed.rowcount == 1

    async def _advance_plainly(self, db: Connection, jobs: Sequence[Appending]) -> None:
        """The same for plain appends, in one statement and so in one round trip."""
        entries = [(job.key, *values) for job in jobs for values in job.entries]
        edges = [(job.key, *edge) for job in jobs for edge in job.commit.edges]
        values = [*_arrays(_MOVE, [_move_values(job) for job in jobs]), *_arrays(_ENTRY, entries)]
        self._committing = True
        advanced_rows = await db.execute(
            self._sql.advance_plainly, [*values, self._shard, *_arrays({"run": "bigint", **_EDGE}, edges)]
        )
        passed = {row[0] for row in await advanced_rows.fetchall()}
        self.transactions += 1
        for job in jobs:
            job.result = 0
            if job.key not in passed:
                await self._settle_appending(db, job)

    async def _settle_creating(self, db: Connection, job: Creating) -> None:
        """The id is taken: by an earlier attempt at this very job, or by another."""
        if job.in_doubt:
            row = await (await db.execute(self._sql.stands_at, (job.key,))).fetchone()
            if row is not None:
                number, owner, epoch = row
                maybe_ours = epoch > 1 or owner == job.new.worker
                if maybe_ours and await self._has(db, number, 0, job.entries):
                    job.result = Lease(job.key, 1, len(job.entries), number)
                    return
        job.error = RunExists(job.key)

    async def _settle_appending(self, db: Connection, job: Appending) -> None:
        """The fence refused: an earlier attempt at this very job succeeded, or the run moved on."""
        commit = job.commit
        if job.in_doubt and job.entries and await self._has(db, job.key, commit.after, job.entries):
            return
        job.error = Fenced(commit.lease.run_id, commit.lease.epoch, commit.after)

    async def _has(self, db: Connection, number: int, after: int, entries: list[tuple[Any, ...]]) -> bool:
        rows = await db.execute(self._sql.lines, (number, after, after + len(entries)))
        return await rows.fetchall() == entries

    async def _write_rest(
        self, db: Connection, created: Sequence[tuple[int, Creating]], advanced: Sequence[Appending]
    ) -> None:
        """Write everything of the jobs that passed, table by table."""
        sql = self._sql
        entries: list[tuple[Any, ...]] = []
        effects: dict[tuple[int, str], LedgerLine] = {}
        tags: dict[tuple[str, int], bool] = {}
        folds: list[tuple[int, str]] = []
        definitions: dict[str, str] = {}
        blobs: dict[str, Blob] = {}
        refs: list[tuple[int, str]] = []
        edges: dict[shared.EdgeKey, EdgeCount] = {}
        for number, new in created:
            entries.extend((number, *values) for values in new.entries)
            effects.update(((number, line.key), line) for line in new.new.ledger)
            tags.update(((tag, number), True) for tag in new.new.tags)
            for blob in new.new.blobs:
                blobs[blob.hash] = blob
                refs.append((number, blob.hash))
            if new.definition is not None:
                definitions[new.new.now.fingerprint] = new.definition
        for job in advanced:
            commit, number = job.commit, job.key
            entries.extend((number, *values) for values in job.entries)
            effects.update(((number, line.key), line) for line in commit.ledger)
            tags.update(((tag, number), on) for tag, on in commit.tags)
            for edge in commit.edges:
                shared.add_edge(edges, edge)
            for blob in commit.blobs:
                blobs[blob.hash] = blob
                refs.append((number, blob.hash))
            if job.fold is not None:
                folds.append((number, job.fold))
            if job.definition is not None:
                definitions[commit.now.fingerprint] = job.definition
        # Rows of one run are safe behind that run's row lock. Shared rows are written in order of their
        # keys, and tables in the same order everywhere: processes may wait for each other, but not in a
        # circle.
        if entries:
            await db.execute(sql.insert_entries, _arrays(_ENTRY, entries))
        if effects:
            lines = [(number, *line) for (number, _), line in effects.items()]
            await db.execute(sql.upsert_effects, _arrays(_EFFECT, lines))
        for statement, added in ((sql.put_tags, True), (sql.take_tags, False)):
            chosen = [key for key, on in tags.items() if on is added]
            if chosen:
                await db.execute(statement, _pairs(chosen))
        if folds:
            await db.execute(sql.save_folds, _pairs(folds))
        if definitions:
            await db.execute(sql.define, _pairs(sorted(definitions.items())))
        for _, blob in sorted(blobs.items()):
            await db.execute(sql.keep_blob, blob)
        if refs:
            await db.execute(sql.refer, _pairs(refs))
        for number, new in created:
            if new.new.blobs_of is not None:
                await db.execute(sql.refer_as, (number, new.new.blobs_of))
        if edges:
            values = [edge for _, edge in sorted(edges.items())]
            await db.execute(sql.upsert_edges, [self._shard, *_arrays(_EDGE, values)])


def _new_values(job: Creating) -> tuple[Any, ...]:
    new = job.new
    return (
        new.run_id, new.flow, new.machine, new.parent, new.entries[0].at, len(new.entries), new.worker,
        *shared.state_values(new.now),
    )  # fmt: skip


def _move_values(job: Appending) -> tuple[Any, ...]:
    commit = job.commit
    seq = commit.after + len(commit.entries)
    return (job.key, commit.lease.epoch, commit.after, seq, commit.park, *shared.state_values(commit.now))


def _pairs(values: Sequence[tuple[Any, Any]]) -> list[list[Any]]:
    """Two arrays from pairs."""
    first, second = zip(*values, strict=True)
    return [list(first), list(second)]


def _deliver(job: Job) -> None:
    if job.future.done():  # its caller was cancelled
        return
    with contextlib.suppress(asyncio.InvalidStateError):
        if job.error is not None:
            job.future.set_exception(job.error)
        else:
            job.future.set_result(job.result)
