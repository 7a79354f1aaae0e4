"""The PostgreSQL store keeps every promise, and never guesses when the connection is lost."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from detent.adapters.stores.postgres import PostgresStore
from detent.engine.ports import Lease, RunQuery, Store
from detent.kernel.entries import Noted
from detent.kernel.errors import ConfigurationError, Fenced, StoreTooNew, StoreUnavailable
from detent.testing.store_suite import DurableStoreSuite
from detent.testing.store_trials.builders import commit, edge, line, new, sums, worker

pytestmark = pytest.mark.postgres


class TestPostgresStore(DurableStoreSuite):
    @pytest.fixture(autouse=True)
    def _place(self, postgres_server: str, postgres_schema: str) -> None:
        self.dsn, self.schema = postgres_server, postgres_schema

    async def open_store(self) -> Store:
        store = PostgresStore(self.dsn, schema=self.schema)
        await store.open()
        return store

    async def open_again(self, store: Store) -> Store:
        return await self.open_store()


@pytest.fixture
async def store(postgres_server: str, postgres_schema: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(postgres_server, schema=postgres_schema, patience=10)
    await store.open()
    yield store
    await store.close()


async def refusal(store: PostgresStore) -> str:
    with pytest.raises(StoreUnavailable) as caught:
        await store.open()
    text = str(caught.value)
    assert "\n" not in text
    assert text.endswith(".")
    assert "s3cret" not in text
    return text


# -- opening -----------------------------------------------------------------------------------------------


async def test_a_server_that_is_not_there_is_named_without_the_password() -> None:
    store = PostgresStore("postgresql://ann:s3cret@127.0.0.1:1/db", schema="x")
    text = await refusal(store)
    assert text == "The PostgreSQL server at 127.0.0.1:1 cannot be reached."
    assert "s3cret" not in repr(await _chain(store))


async def _chain(store: PostgresStore) -> list[str]:
    """Everything a traceback would show."""
    try:
        await store.open()
    except StoreUnavailable as error:
        return [
            str(error),
            str(error.__cause__),
            "" if error.__suppress_context__ else str(error.__context__),
        ]
    return []


async def test_a_host_that_does_not_exist_is_not_reachable() -> None:
    text = await refusal(PostgresStore("postgresql://ann:s3cret@nosuch.invalid/db"))
    assert "nosuch.invalid cannot be reached" in text


async def test_a_missing_database_is_named(postgres_server: str) -> None:
    text = await refusal(PostgresStore(make_conninfo(postgres_server, dbname="nosuch", password="s3cret")))
    assert "has no database 'nosuch'" in text


async def test_a_refused_login_is_named(postgres_server: str) -> None:
    text = await refusal(PostgresStore(make_conninfo(postgres_server, user="nobody_here", password="s3cret")))
    assert "refused the login of user nobody_here" in text


def test_an_address_that_cannot_be_read_is_not_repeated() -> None:
    with pytest.raises(ConfigurationError) as caught:
        PostgresStore("postgresql://ann:s3cret@host:port:5/db?nosuch=1")
    assert "s3cret" not in str(caught.value)
    assert caught.value.__suppress_context__


@pytest.mark.parametrize("schema", ["", "a b", 'x"; drop', "1a", "a" * 64])
def test_a_schema_needs_a_plain_name(schema: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot be the name of a schema"):
        PostgresStore("postgresql://host/db", schema=schema)


async def test_a_schema_of_a_newer_version_is_refused(
    store: PostgresStore, postgres_server: str, postgres_schema: str
) -> None:
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"UPDATE {postgres_schema}.detent_schema SET version = 999".encode())
    with pytest.raises(StoreTooNew, match="newer Detent \\(schema 999"):
        await PostgresStore(postgres_server, schema=postgres_schema).open()


async def test_a_schema_with_tables_of_others_is_refused(postgres_server: str, postgres_schema: str) -> None:
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {postgres_schema}".encode())
        connection.execute(f"CREATE TABLE {postgres_schema}.runs (theirs int)".encode())
    assert "not Detent's" in await refusal(PostgresStore(postgres_server, schema=postgres_schema))


async def test_an_empty_schema_made_beforehand_is_used(postgres_server: str, postgres_schema: str) -> None:
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {postgres_schema}".encode())
    store = PostgresStore(postgres_server, schema=postgres_schema)
    await store.open()
    assert (await store.facts())["schema"] == 2
    await store.close()


async def test_a_store_of_the_version_before_is_migrated_and_workers_hear_of_free_runs(
    postgres_server: str, postgres_schema: str
) -> None:
    store, other = (PostgresStore(postgres_server, schema=postgres_schema) for _ in range(2))
    await store.open()
    lease = await store.create(new("r1"))
    await store.close()
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"DROP FUNCTION {postgres_schema}.tell_of_free_run CASCADE".encode())
        connection.execute(f"UPDATE {postgres_schema}.detent_schema SET version = 1".encode())
    for one in (store, other):
        await one.open()
    try:
        await store.changed()  # listens now
        for free in (other.park(lease), other.create(new("r2", worker=None))):
            hearing = asyncio.ensure_future(store.changed())
            await free
            await asyncio.wait_for(hearing, 20)
    finally:
        for one in (store, other):
            await one.close()


async def test_a_user_without_rights_is_told_so(postgres_server: str, postgres_schema: str) -> None:
    role = f"{postgres_schema}_user"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN".encode())
    try:
        text = await refusal(PostgresStore(make_conninfo(postgres_server, user=role), schema=postgres_schema))
        assert "permission denied" in text
    finally:
        with psycopg.connect(postgres_server, autocommit=True) as connection:
            connection.execute(f"DROP ROLE {role}".encode())


async def test_stores_that_open_a_new_schema_at_once_migrate_it_once(
    postgres_server: str, postgres_schema: str
) -> None:
    stores = [PostgresStore(postgres_server, schema=postgres_schema, pool_size=1) for _ in range(6)]
    await asyncio.gather(*(store.open() for store in stores))
    await asyncio.gather(*(store.create(new(f"r{index}")) for index, store in enumerate(stores)))
    assert len(await stores[0].find("r")) == 6
    await asyncio.gather(*(store.close() for store in stores))


def test_without_the_driver_the_module_says_what_to_install() -> None:
    script = """
import sys
sys.modules["psycopg"] = None
try:
    import detent.adapters.stores.postgres
except Exception as error:
    print(type(error).__name__, error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("IntegrationMissing")
    assert "pip install 'detent[postgres]'" in done.stdout


# -- sharing and safety ------------------------------------------------------------------------------------


async def test_a_server_that_answers_before_the_disk_is_told_not_to(
    postgres_server: str, postgres_schema: str
) -> None:
    lax = make_conninfo(postgres_server, options="-c synchronous_commit=off")
    store = PostgresStore(lax, schema=postgres_schema)
    await store.open()
    assert (await store.facts())["synchronous"] == "on"
    await store.create(new("r1"))
    writer = store._writing()._connection
    assert writer is not None
    found = await (await writer.execute("SHOW synchronous_commit")).fetchone()
    assert found == ("on",)
    await store.close()


async def test_concurrent_appends_share_transactions(store: PostgresStore) -> None:
    leases = await asyncio.gather(*(store.create(new(f"r{index}")) for index in range(300)))
    before = store._writing().transactions
    await asyncio.gather(*(store.append(commit(lease, 1, edges=(edge(),))) for lease in leases))
    assert store._writing().transactions - before <= 5
    assert sums(await store.edges("flow")) == sums([edge()] * 300)


async def test_a_process_under_way_does_not_hold_up_the_counts_of_another(
    store: PostgresStore, postgres_server: str, postgres_schema: str
) -> None:
    """Counts of the same move, added by another process that has not committed yet, block nobody."""
    lease = await store.create(new("r1"))
    await store.append(commit(lease, 1, edges=(edge(),)))
    other_shard = (store._writing()._shard + 1) % 64
    async with await psycopg.AsyncConnection.connect(postgres_server) as connection:
        await connection.execute(
            f"""INSERT INTO {postgres_schema}.edges
            SELECT flow, day, frm, "to", %s, count, seconds, fastest, slowest, tokens, cost_usd
            FROM {postgres_schema}.edges""".encode(),
            (other_shard,),
        )
        await asyncio.wait_for(store.append(commit(lease, 2, edges=(edge(),))), 5)
        await connection.commit()
    assert sums(await store.edges("flow")) == sums([edge()] * 3)


async def test_a_write_the_database_cannot_hold_spoils_none_of_the_others(store: PostgresStore) -> None:
    leases = await asyncio.gather(*(store.create(new(f"r{index}")) for index in range(10)))
    results = await asyncio.gather(
        *(
            store.append(commit(lease, 1, tags=(("zero \x00" if index == 4 else "t", True),)))
            for index, lease in enumerate(leases)
        ),
        return_exceptions=True,
    )
    assert [index for index, result in enumerate(results) if result != 0] == [4]
    assert "cannot hold this value" in str(results[4])
    assert [(await store.row(lease.run_id)).seq for lease in leases] == [2, 2, 2, 2, 1, 2, 2, 2, 2, 2]


# -- lost connections --------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def killing(dsn: str, done: list[Any], every: int) -> AsyncIterator[list[int]]:
    """Terminate all backends of the store whenever `every` more things were done; gives how many went."""
    killed: list[int] = []

    async def kill() -> None:
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
            seen = 0
            while True:
                await asyncio.sleep(0)
                if len(done) < seen + every:
                    continue
                seen = len(done)
                found = await connection.execute(
                    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
                    "WHERE application_name = 'detent' AND datname = current_database()"
                )
                row = await found.fetchone()
                killed.append(row[0] if row else 0)

    task = asyncio.create_task(kill())
    try:
        yield killed
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@pytest.fixture
def own_database(postgres_server: str) -> Iterator[str]:
    """A database of its own, so that killing its backends disturbs no other test."""
    name = f"detent_{secrets.token_hex(5)}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    yield make_conninfo(postgres_server, dbname=name)
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


async def test_appends_survive_the_killing_of_backends_each_written_once(own_database: str) -> None:
    store = PostgresStore(own_database, patience=30)
    await store.open()
    steps, runs = 40, 30
    done: list[int] = []

    async def drive(name: str) -> None:
        lease = await store.create(new(name))
        for seq in range(1, steps + 1):
            ledger = (line(f"k{seq}"),) if seq % 4 == 0 else ()
            await store.append(commit(lease, seq, Noted(name, {"seq": seq}), edges=(edge(),), ledger=ledger))
            done.append(seq)

    async with killing(own_database, done, every=40) as killed:
        await asyncio.gather(*(drive(f"r{index}") for index in range(runs)))
    assert sum(killed) >= 10
    for row in (await store.rows(RunQuery(limit=100))).rows:
        entries = await store.entries(row.id)
        assert [entry.seq for entry in entries] == list(range(1, steps + 2))
        assert [entry.body for entry in entries[1:]] == [
            Noted(row.id, {"seq": s}) for s in range(1, steps + 1)
        ]
        assert len(await store.effects(row.id)) == steps // 4
    assert sums(await store.edges("flow")) == sums([edge()] * (steps * runs))
    await store.close()


async def test_everything_else_survives_the_killing_of_backends(own_database: str) -> None:
    store = PostgresStore(own_database, patience=30)
    await store.open()
    wins: list[int] = []
    done: list[int] = []

    async def work(name: str) -> None:
        await store.beat(worker(name), 60)
        await store.create(new(name, worker=None))
        for epoch in range(2, 12):
            lease = await store.claim(name, name)
            assert lease.epoch >= epoch
            await store.park(lease)
            await store.workers()
            done.append(epoch)
            _, version = await store.mark("m")
            with contextlib.suppress(StoreUnavailable):  # "not known" is an honest answer
                if await store.set_mark("m", name, version):
                    wins.append(version + 1)

    async with killing(own_database, done, every=5) as killed:
        await asyncio.gather(*(work(f"w{index}") for index in range(8)))
    assert sum(killed) > 0
    assert len(wins) == len(set(wins))
    await store.close()


class Proxy:
    """Between store and server: cuts the line when a COMMIT passes, before or after the server has it."""

    def __init__(self, server: str) -> None:
        self.server = server
        self.cut: str | None = None
        """`before` or `after` the next commit reaches the server; `for good` lets nobody through again."""
        self.cuts = 0

    async def start(self) -> str:
        self._listener = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._listener.sockets[0].getsockname()[1]
        return make_conninfo(
            self.server, host="127.0.0.1", port=port, sslmode="disable", gssencmode="disable"
        )

    async def stop(self) -> None:
        self._listener.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.cut == "away":
            writer.close()
            return
        given = psycopg.conninfo.conninfo_to_dict(self.server)
        host, port = str(given.get("host") or "localhost"), given.get("port") or 5432
        if host.startswith("/"):
            up, down = await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
        else:
            up, down = await asyncio.open_connection(host, int(port))
        back = asyncio.create_task(self._pass(up, writer))
        plain = under_way = False  # has it sent appends of one statement; is it inside a longer transaction
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1 << 20):
                plain = plain or b"passed AS" in data
                under_way = (under_way or b"BEGIN" in data) and b"COMMIT" not in data
                commits = b"COMMIT" in data or (plain and not under_way)
                if commits and self.cut in ("before", "after", "for good"):
                    how, self.cut = self.cut, "away" if self.cut == "for good" else None
                    self.cuts += 1
                    back.cancel()
                    if how == "after":
                        down.write(data)
                        await down.drain()
                        await up.read(1)  # the server's answer, which nobody hears
                    break
                down.write(data)
                await down.drain()
        back.cancel()
        writer.transport.abort()
        down.close()

    @staticmethod
    async def _pass(up: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await up.read(1 << 20):
                writer.write(data)
                await writer.drain()
        writer.close()


@pytest.fixture
async def proxied(postgres_server: str, postgres_schema: str) -> AsyncIterator[tuple[Proxy, PostgresStore]]:
    proxy = Proxy(postgres_server)
    store = PostgresStore(await proxy.start(), schema=postgres_schema, patience=3)
    await store.open()
    yield proxy, store
    proxy.cut = None
    await store.close()
    await proxy.stop()


@pytest.mark.parametrize("cut", ["before", "after"])
@pytest.mark.parametrize("fold", [None, {"seq": 0}], ids=["plain", "with a fold"])
async def test_a_commit_whose_answer_is_lost_is_made_once(
    proxied: tuple[Proxy, PostgresStore], cut: str, fold: dict[str, Any] | None
) -> None:
    proxy, store = proxied
    lease = await store.create(new("r1"))
    for seq in range(1, 6):
        proxy.cut = cut
        size = await store.append(commit(lease, seq, edges=(edge(),), fold=fold))
        assert size == (len('{"seq":0}') if fold else 0)
    assert proxy.cuts == 5
    assert [entry.seq for entry in await store.entries("r1")] == [1, 2, 3, 4, 5, 6]
    assert sums(await store.edges("flow")) == sums([edge()] * 5)


@pytest.mark.parametrize("cut", ["before", "after"])
async def test_a_new_run_whose_answer_is_lost_is_made_once(
    proxied: tuple[Proxy, PostgresStore], cut: str
) -> None:
    proxy, store = proxied
    await store.create(new("r0"))
    proxy.cut = cut
    lease = await store.create(new("r1", tags=("t",)))
    assert proxy.cuts == 1
    assert (lease.epoch, lease.seq) == (1, 1)
    await store.append(commit(lease, 1))
    assert (await store.row("r1")).tags == ("t",)


async def test_a_lost_answer_never_hides_that_the_run_was_taken_over(
    proxied: tuple[Proxy, PostgresStore], postgres_server: str, postgres_schema: str
) -> None:
    proxy, store = proxied
    lease = await store.create(new("r1"))
    taken: list[Lease] = []

    async def take_over() -> None:
        other = PostgresStore(postgres_server, schema=postgres_schema)
        await other.open()
        while not proxy.cuts:
            await asyncio.sleep(0.001)
        taken.append(await other.claim("r1", "w2"))
        await other.append(commit(taken[0], taken[0].seq, Noted("other")))
        await other.close()

    proxy.cut = "before"
    results = await asyncio.gather(
        store.append(commit(lease, 1, Noted("one"))), take_over(), return_exceptions=True
    )
    bodies = [entry.body for entry in await store.entries("r1")][1:]
    if isinstance(results[0], Fenced):
        assert bodies == [Noted("other")]
    else:
        assert bodies == [Noted("one"), Noted("other")]


async def test_two_different_appends_are_not_taken_for_one_after_a_lost_answer(
    proxied: tuple[Proxy, PostgresStore],
) -> None:
    proxy, store = proxied
    lease = await store.create(new("r1"))
    proxy.cut = "after"
    results = await asyncio.gather(
        store.append(commit(lease, 1, Noted("one"))), store.append(commit(lease, 1, Noted("two"))),
        return_exceptions=True,
    )  # fmt: skip
    assert results[0] == 0
    assert isinstance(results[1], Fenced)


async def test_a_server_that_stays_away_is_one_sentence_after_the_patience(
    proxied: tuple[Proxy, PostgresStore],
) -> None:
    proxy, store = proxied
    lease = await store.create(new("r1"))
    proxy.cut = "for good"
    with pytest.raises(StoreUnavailable) as caught:
        await asyncio.wait_for(store.append(commit(lease, 1)), 20)
    assert "cannot be reached" in str(caught.value)
    assert "whether it was made is not known" in str(caught.value)
    proxy.cut = None
    assert await store.append(commit(lease, 1)) == 0
    assert (await store.row("r1")).seq == 2
