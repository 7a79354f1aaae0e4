"""Journals in PostgreSQL, for several machines: the same rules as in SQLite, checked by the same suite.

New runs and appends go through one writer that shares transactions among runs (`postgres_writer`); everything
else is a short statement over a pool. A lost connection is tried again for `patience` seconds; what cannot be
repeated safely is looked up first. Needs the `postgres` extra.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Awaitable, Callable, Collection
from typing import Any, TypeVar

from detent.adapters.stores import rows as shared

# First of all, as it says what to install when the driver is missing.
from detent.adapters.stores.postgres_connection import (
    Connection,
    Link,
    configure,
    let_go,
    lock_key,
    lost,
    repeatable,
)
from detent.adapters.stores.postgres_writer import FIRST_MARK, NEXT_MARK, Appending, Creating, Writer
from detent.adapters.stores.sql_reads import SqlReads
from detent.engine.ports import (
    FORGOTTEN_AFTER,
    PAGE,
    Cancellation,
    Commit,
    EdgeCount,
    Lease,
    NewRun,
    Page,
    RunQuery,
    RunRow,
    Taken,
    Worker,
)
from detent.kernel.entries import Entry
from detent.kernel.errors import IntegrationMissing, RunBusy, RunNotFound, StoreClosed, StoreUnavailable

try:
    import psycopg
    import psycopg_pool
except ImportError as error:
    raise IntegrationMissing(
        "The PostgreSQL store needs psycopg_pool. Install it with: pip install 'detent[postgres]'"
    ) from error

T = TypeVar("T")

LISTEN_AGAIN = 1.0
"""Seconds before listening for free runs is tried again."""

# `$.` stands for the store's schema (`_s` puts it in).
_NUMBER = "SELECT number FROM $.runs WHERE id = %s"
_LOCK_RUN = "SELECT number, owner, epoch, seq FROM $.runs WHERE id = %s FOR UPDATE"
_HEARD = "SELECT until FROM $.workers WHERE id = %s"
_TAKE = "UPDATE $.runs SET epoch = %s, owner = %s WHERE number = %s"
_FREE = """
r.flow = ANY(%(flows)s) AND r.id <> ALL(%(skip)s) AND (%(only)s::text[] IS NULL OR r.id = ANY(%(only)s))
    AND (r.owner IS NULL OR r.owner IN (SELECT id FROM gone)
        OR NOT EXISTS (SELECT 1 FROM $.workers w WHERE w.id = r.owner))
    AND (r.parent IS NULL OR EXISTS (SELECT 1 FROM $.runs above WHERE above.id = r.parent))
"""
# Rows locked by another worker are skipped: workers neither wait for each other nor get the same runs.
_TAKE_SOME = f"""
WITH gone AS (
    SELECT w.id FROM $.workers w
    JOIN unnest(%(dead)s::text[], %(until)s::float8[]) AS d (id, until) ON d.id = w.id AND d.until = w.until
), due AS (
    SELECT r.number, r.owner FROM $.runs r WHERE r.wake_at <= %(now)s AND r.status = 'waiting' AND {_FREE}
    ORDER BY r.wake_at, r.number LIMIT %(limit)s FOR UPDATE OF r SKIP LOCKED
), loose AS (
    SELECT r.number, r.owner FROM $.runs r WHERE r.status = 'running' AND {_FREE}
    ORDER BY r.number LIMIT %(limit)s FOR UPDATE OF r SKIP LOCKED
), chosen AS (
    SELECT * FROM due UNION ALL SELECT * FROM loose LIMIT %(limit)s
), taken AS (
    UPDATE $.runs r SET epoch = r.epoch + 1, owner = %(worker)s FROM chosen WHERE r.number = chosen.number
    RETURNING r.number, r.id, r.flow, r.epoch, r.seq, chosen.owner, r.status, r.wake_at
)
SELECT number, id, flow, epoch, seq, owner, folds.body
FROM taken LEFT JOIN $.folds ON folds.run = number ORDER BY status DESC, wake_at, number
"""
_JOURNALS = f"""
SELECT e.run, e.seq, e.at, e.epoch, e.kind, e.body
FROM unnest(%s::bigint[], %s::bigint[]) AS w (run, after)
JOIN $.entries e ON e.run = w.run AND e.seq > w.after AND e.seq <= w.after + {PAGE}
ORDER BY e.run, e.seq
"""
_PARK = "UPDATE $.runs SET owner = NULL, asked = NULL WHERE number = %s AND epoch = %s"
# Leases are in the server's time, as the clocks of workers differ and jump.
_BEAT = """
WITH clock AS (SELECT extract(epoch FROM clock_timestamp())::float8 AS now),
    forgotten AS (
        DELETE FROM $.workers w USING clock WHERE w.until < clock.now - %(forgotten)s AND w.id <> %(id)s
            AND NOT EXISTS (SELECT 1 FROM $.runs r WHERE r.owner = w.id)
    )
INSERT INTO $.workers (id, host, pid, born, until)
    SELECT %(id)s, %(host)s, %(pid)s, %(born)s, clock.now + %(seconds)s FROM clock
ON CONFLICT (id)
DO UPDATE SET host = excluded.host, pid = excluded.pid, born = excluded.born, until = excluded.until
"""
# In order of runs, as the writers lock them.
_RELEASE = """
WITH theirs AS (SELECT number FROM $.runs WHERE owner = %s ORDER BY number FOR UPDATE)
UPDATE $.runs AS r SET owner = NULL FROM theirs WHERE r.number = theirs.number AND r.owner = %s
"""
_RETIRE = "DELETE FROM $.workers WHERE id = %s"
_WORKERS = """
SELECT id, host, pid, born, until, until - extract(epoch FROM clock_timestamp())::float8
FROM $.workers ORDER BY id
"""
_ASK = "UPDATE $.runs SET asked = CASE WHEN owner IS NULL THEN asked ELSE %s END WHERE id = %s"
_LOOSE = """
SELECT id FROM $.runs WHERE status = 'running' AND (owner IS NULL OR owner = ANY(%s)
    OR owner NOT IN (SELECT id FROM $.workers)) ORDER BY number LIMIT %s
"""
_RUN = f"""
SELECT {", ".join(shared.RUN_COLUMNS)}, ARRAY(SELECT tag FROM $.tags WHERE run = number ORDER BY tag)
FROM $.runs
"""
_ENTRIES = (
    "SELECT seq, at, epoch, kind, body FROM $.entries WHERE run = %s AND seq > %s ORDER BY seq LIMIT %s"
)
_EDGES = """
SELECT flow, day, frm, "to", sum(count)::bigint, sum(seconds), min(fastest), max(slowest),
    sum(tokens)::bigint, sum(cost_usd)
FROM $.edges WHERE flow = %s AND (%s::bigint IS NULL OR day >= %s::bigint)
GROUP BY flow, day, frm, "to" ORDER BY day, frm, "to"
"""
_FACTS = """
SELECT (SELECT count(*) FROM $.runs), (SELECT count(*) FROM $.workers), current_setting('server_version'),
    current_setting('synchronous_commit'),
    (SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint
     FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relkind = 'r')
"""
_INTEGRITY = """
SELECT (SELECT count(*) FROM $.entries e WHERE NOT EXISTS (SELECT 1 FROM $.runs r WHERE r.number = e.run)),
    (SELECT count(*) FROM $.blob_refs f WHERE NOT EXISTS (SELECT 1 FROM $.blobs b WHERE b.hash = f.hash)),
    (SELECT count(*) FROM $.blobs WHERE encode(sha256(body), 'hex') <> hash)
"""
_LOCK_BLOBS = "SELECT pg_advisory_xact_lock(%s, 1)"
_UNREFER_RUN = "DELETE FROM $.blob_refs WHERE run = %s"
# Runs that have not ended, and all below them, keep what they refer to.
_UNREFER_OLD = """
WITH RECURSIVE needed (id) AS (
    SELECT id FROM $.runs WHERE status IN ('running', 'waiting')
    UNION SELECT below.id FROM $.runs below JOIN needed ON below.parent = needed.id
)
DELETE FROM $.blob_refs WHERE run IN (SELECT r.number FROM $.runs r WHERE r.updated_at < %s
    AND r.id NOT IN (SELECT id FROM needed))
"""
_SWEEP = "DELETE FROM $.blobs b WHERE NOT EXISTS (SELECT 1 FROM $.blob_refs r WHERE r.hash = b.hash)"
_MARK_SETTER = "SELECT version, setter FROM $.marks WHERE key = %s FOR UPDATE"


class PostgresStore(SqlReads):
    """Journals in one schema of a PostgreSQL database."""

    def __init__(
        self, dsn: str, *, schema: str = "detent", pool_size: int = 4, patience: float = 30.0
    ) -> None:
        self._link = Link(dsn, schema)
        self._pool_size = pool_size
        self._patience = patience
        self._pool: psycopg_pool.AsyncConnectionPool[Connection] | None = None
        self._writer: Writer | None = None
        self._line: Connection | None = None
        """The connection that keeps the worker's lease."""
        self._line_lock = asyncio.Lock()
        self._version = 0
        self._defined: set[str] = set()
        self._listener: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._sql: dict[str, bytes] = {}

    # -- opening --------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Create or migrate the schema as needed and start the writer."""
        if self._pool is not None:
            return
        connection: Connection | None = None
        try:
            connection = await self._link.connect()
            self._version = await self._link.migrate(connection)
        except Exception as error:
            raise self._link.explain(error) from None
        finally:
            await let_go(connection)
        self._pool = psycopg_pool.AsyncConnectionPool(
            self._link.conninfo, kwargs={"autocommit": True}, configure=configure, min_size=1,
            max_size=self._pool_size, timeout=self._patience, open=False, name="detent",
        )  # fmt: skip
        await self._pool.open()
        self._writer = Writer(self._link, self._patience)

    async def close(self) -> None:
        """Finish accepted writes and close."""
        writer, pool = self._writer, self._pool
        self._writer = self._pool = None
        if self._listener is not None:
            self._listener.cancel()
            await asyncio.gather(self._listener, return_exceptions=True)
            self._listener = None
        try:
            if writer is not None:
                await writer.close()
        finally:
            if pool is not None:
                await pool.close()

    # -- plumbing -------------------------------------------------------------------------------------------

    def _s(self, text: str) -> bytes:
        """A statement with our schema and psycopg's placeholders in it."""
        statement = self._sql.get(text)
        if statement is None:
            text_here = text.replace("?", "%s").replace("$.", f'"{self._link.schema}".')
            statement = self._sql[text] = text_here.encode()
        return statement

    async def _do(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Do something repeatable over the pool, again after a lost connection."""
        until = time.monotonic() + self._patience
        attempts = 0
        while True:
            pool = self._pool
            if pool is None:
                raise StoreClosed("The store is not open.")
            connection: Connection | None = None
            try:
                async with pool.connection() as connection:
                    return await work(connection)
            except psycopg_pool.PoolTimeout:
                raise StoreUnavailable(
                    f"The PostgreSQL server at {self._link.server} cannot be reached, or all "
                    f"{self._pool_size} connections were busy for {self._patience:g} seconds."
                ) from None
            except psycopg_pool.PoolClosed:
                raise StoreClosed("The store is closed.") from None
            except Exception as error:
                again = lost(connection, error) or repeatable(error)
                if not again or time.monotonic() >= until:
                    raise self._link.explain(error) from error
                if lost(connection, error):
                    # The other connections in the pool are probably lost as well.
                    with contextlib.suppress(Exception):
                        await pool.check()
                if attempts:
                    await asyncio.sleep(min(0.05 * 2 ** min(attempts, 5), max(0.0, until - time.monotonic())))
                attempts += 1

    async def _all(self, statement: str, *values: Any) -> list[Any]:
        async def work(db: Connection) -> list[Any]:
            return await (await db.execute(self._s(statement), values)).fetchall()

        return await self._do(work)

    async def _of_run(self, run_id: str, statement: str, *values: Any) -> list[Any]:
        """Rows of a table by run number; `RunNotFound` if there is no such run."""

        async def work(db: Connection) -> list[Any]:
            number = await self._number(db, run_id)
            return await (await db.execute(self._s(statement), (number, *values))).fetchall()

        return await self._do(work)

    async def _number(self, db: Connection, run_id: str) -> int:
        row = await (await db.execute(self._s(_NUMBER), (run_id,))).fetchone()
        if row is None:
            raise RunNotFound(run_id)
        return int(row[0])

    # -- driving --------------------------------------------------------------------------------------------

    async def create(self, new: NewRun) -> Lease:
        """Write a run's row and first entries."""
        fingerprint = new.now.fingerprint
        definition = None if fingerprint in self._defined else shared.written(new.definition)
        lease: Lease = await self._writing().write(Creating(new, definition))
        self._defined.add(fingerprint)
        return lease

    async def append(self, commit: Commit) -> int:
        """Advance the run behind the fence and write everything that belongs to the commit."""
        size: int = await self._writing().write(Appending(commit))
        return size

    def _writing(self) -> Writer:
        if self._writer is None:
            raise StoreClosed("The store is not open.")
        return self._writer

    async def claim(self, run_id: str, worker: str, dead: Collection[Worker] = ()) -> Lease:
        """Raise the epoch if no live worker has the run."""
        dead_until = {gone.id: gone.until for gone in dead}
        before: list[str] = []
        """The worker from which an earlier attempt took the run, in case its answer was lost."""

        async def work(db: Connection) -> Lease:
            async with db.transaction():
                row = await (await db.execute(self._s(_LOCK_RUN), (run_id,))).fetchone()
                if row is None:
                    raise RunNotFound(run_id)
                number, owner, epoch, seq = row
                if owner is not None and owner != worker:
                    lease_row = await (await db.execute(self._s(_HEARD), (owner,))).fetchone()
                    if lease_row is not None and dead_until.get(owner) != lease_row[0]:
                        raise RunBusy(run_id, owner)
                    before[:] = [owner]
                await db.execute(self._s(_TAKE), (epoch + 1, worker, number))
            return Lease(run_id, epoch + 1, seq, number, before[0] if before and owner is not None else None)

        return await self._do(work)

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
        values = {
            "worker": worker, "limit": limit, "now": now, "flows": [*flows], "skip": [*skip],
            "only": None if only is None else [*only],
            "dead": [gone.id for gone in dead], "until": [float(gone.until) for gone in dead],
        }  # fmt: skip

        async def work(db: Connection) -> list[Taken]:
            runs = await (await db.execute(self._s(_TAKE_SOME), values)).fetchall()
            if not runs:
                return []
            lines: dict[int, list[Any]] = {number: [] for number, *_ in runs}
            after = [shared.seq_of(fold) for *_, fold in runs]
            journals = await db.execute(self._s(_JOURNALS), (list(lines), after))
            for number, *line in await journals.fetchall():
                lines[number].append(line)
            return [
                shared.taken(Lease(run_id, epoch, seq, number, owner), flow, fold, lines[number])
                for number, run_id, flow, epoch, seq, owner, fold in runs
            ]

        return await self._do(work)

    async def changed(self) -> None:
        """Wait until the server announces a free run."""
        if self._pool is None:
            raise StoreClosed("The store is not open.")
        if self._listener is None:
            self._listener = asyncio.create_task(self._listen(), name="detent-listener postgres")
        await self._news.wait()
        self._news.clear()

    async def _listen(self) -> None:
        """Listen for free runs; while the server is away, workers poll by themselves."""
        while True:
            connection: Connection | None = None
            with contextlib.suppress(psycopg.Error):
                connection = await self._link.connect()
                await connection.execute("LISTEN detent")
                self._news.set()  # runs may have come free before we listened
                async for notice in connection.notifies():
                    if notice.payload == self._link.schema:
                        self._news.set()
            await let_go(connection)
            await asyncio.sleep(LISTEN_AGAIN)

    async def park(self, lease: Lease) -> None:
        """Release the run if it is still ours."""
        await self._change(_PARK, lease.key, lease.epoch)

    async def _change(self, statement: str, *values: Any) -> int:
        async def work(db: Connection) -> int:
            return (await db.execute(self._s(statement), values)).rowcount

        return await self._do(work)

    async def beat(self, worker: Worker, seconds: float) -> None:
        """Write the worker's lease."""
        values = {
            "id": worker.id, "host": worker.host, "pid": worker.pid, "born": worker.born, "seconds": seconds,
            "forgotten": FORGOTTEN_AFTER,
        }  # fmt: skip
        await self._over_own_line(lambda db: db.execute(self._s(_BEAT), values))

    async def retire(self, worker_id: str) -> None:
        """Forget a worker and release its runs."""

        async def work(db: Connection) -> None:
            async with db.transaction():
                await db.execute(self._s(_RELEASE), (worker_id, worker_id))
                await db.execute(self._s(_RETIRE), (worker_id,))

        try:
            await self._over_own_line(work)
        finally:
            line, self._line = self._line, None
            await let_go(line)

    async def _over_own_line(self, work: Callable[[Connection], Awaitable[Any]]) -> None:
        """Do something over the connection of the thread that keeps the lease.

        It neither queues for the pool nor waits for the event loop of the runs. The caller bounds the time;
        a connection that did not answer in it is not used again.
        """
        async with self._line_lock:
            line, self._line = self._line, None
            if line is not None and not line.closed:
                with contextlib.suppress(psycopg.OperationalError):  # it was lost since it was last used
                    await self._try_line(line, work)
                    return
            try:
                await self._try_line(await self._link.connect(), work)
            except Exception as error:
                raise self._link.explain(error) from error

    async def _try_line(self, line: Connection, work: Callable[[Connection], Awaitable[Any]]) -> None:
        try:
            await work(line)
        except BaseException:
            await let_go(line)
            raise
        self._line = line

    async def workers(self) -> list[Worker]:
        """All workers that did not retire."""
        return [Worker(*row) for row in await self._all(_WORKERS)]

    async def ask(self, run_id: str, cancellation: Cancellation) -> None:
        """Leave a request for the driver, if there is one."""
        if await self._change(_ASK, shared.written(list(cancellation)), run_id) == 0:
            raise RunNotFound(run_id)

    async def loose(self, dead: Collection[Worker] = (), limit: int = 100) -> list[str]:
        """Running runs without a live worker."""
        return await self._ids(_LOOSE, [worker.id for worker in dead], limit)

    # -- reading --------------------------------------------------------------------------------------------

    async def row(self, run_id: str) -> RunRow:
        """One run's listing line."""
        row = await self._one(f"{_RUN} WHERE id = %s", run_id)
        if row is None:
            raise RunNotFound(run_id)
        return shared.run_row(row, row[-1])

    async def rows(self, query: RunQuery) -> Page:
        """A page of runs, newest first."""
        where, values = shared.conditions(query)
        rows = await self._all(f"{_RUN} {where} ORDER BY number DESC LIMIT %s", *values, query.limit + 1)
        return shared.page_of(query, rows, lambda values: shared.run_row(values, values[-1]))

    async def entries(self, run_id: str, after: int = 0, limit: int = 1000) -> list[Entry]:
        """A part of a journal."""
        return shared.entries(run_id, await self._of_run(run_id, _ENTRIES, after, limit))

    async def edges(self, flow: str, since_day: int | None = None) -> list[EdgeCount]:
        """Moves of a flow by day, the shards added up."""
        return [EdgeCount(*row) for row in await self._all(_EDGES, flow, since_day, since_day)]

    async def facts(self) -> dict[str, Any]:
        """Facts about the store for people."""
        runs, workers, server, synchronous, size = await self._one(_FACTS, self._link.schema)
        return {
            "kind": "postgres",
            "place": self._link.place,
            "schema": self._version,
            "server": server,
            "synchronous": synchronous,
            "runs": runs,
            "bytes": size,
            "workers": workers,
        }

    async def integrity(self) -> list[str]:
        """Rows that belong to nothing; the pages themselves are for the server to check."""
        entries, refs, blobs = await self._one(_INTEGRITY)
        counts = {
            "journal entries belong to no run": entries,
            "values kept beside journals are missing": refs,
            "values kept beside journals are not the ones that were kept": blobs,
        }
        return [f"{number:,} {problem}." for problem, number in counts.items() if number]

    # -- offloaded values and marks -------------------------------------------------------------------------

    async def purge(self, run_id: str | None = None, before: float | None = None) -> int:
        """Drop references, then the blobs without any."""
        if run_id is None and before is None:
            raise StoreUnavailable("Say which run's values to purge, or up to what time.")

        async def work(db: Connection) -> int:
            async with db.transaction():
                await db.execute(_LOCK_BLOBS, (lock_key(self._link.schema),))
                if run_id is not None:
                    await db.execute(self._s(_UNREFER_RUN), (await self._number(db, run_id),))
                if before is not None:
                    await db.execute(self._s(_UNREFER_OLD), (before,))
                return (await db.execute(self._s(_SWEEP))).rowcount

        return await self._do(work)

    async def set_mark(self, key: str, value: Any, expected: int) -> bool:
        """Set a mark if its version is the expected one; after a lost answer, check whether this call did."""
        text, setter = shared.written(value), secrets.token_hex(8)
        tries = 0

        async def work(db: Connection) -> bool:
            nonlocal tries
            tries += 1
            if expected == 0:
                changed = await db.execute(self._s(FIRST_MARK), (key, text, setter))
            else:
                changed = await db.execute(self._s(NEXT_MARK), (text, setter, key, expected))
            if changed.rowcount == 1:
                return True
            if tries > 1:
                row = await (await db.execute(self._s(_MARK_SETTER), (key,))).fetchone()
                if row is not None and row[0] > expected + 1:
                    raise StoreUnavailable(
                        f"The connection was lost while the mark '{key}' was being set, and it was set again "
                        "since; whether it was set is not known."
                    )
                return row is not None and bool(row[1] == setter)
            return False

        return await self._do(work)
