"""The SQLite store keeps every promise, and says in one sentence why it cannot."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from detent.adapters.stores.sqlite import SQLiteStore
from detent.engine.ports import LedgerLine, Store
from detent.kernel.errors import Fenced, RunNotFound, StoreClosed, StoreTooNew, StoreUnavailable
from detent.testing.store_suite import DurableStoreSuite
from detent.testing.store_trials.builders import commit, edge, new, sums


class TestSQLiteStore(DurableStoreSuite):
    @pytest.fixture(autouse=True)
    def _place(self, tmp_path: Path) -> None:
        self.path = tmp_path / "detent.db"

    async def open_store(self) -> Store:
        store = SQLiteStore(self.path)
        await store.open()
        return store

    async def open_again(self, store: Store) -> Store:
        return await self.open_store()


class TestSQLiteStoreInAHurry(TestSQLiteStore):
    """With `sync="normal"` only a power cut may make a difference."""

    async def open_store(self) -> Store:
        store = SQLiteStore(self.path, sync="normal")
        await store.open()
        return store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "detent.db"


async def made(path: Path) -> None:
    """A store with one run, closed."""
    store = SQLiteStore(path)
    await store.open()
    await store.create(new("r1"))
    await store.close()


async def refusal(store: SQLiteStore) -> str:
    with pytest.raises(StoreUnavailable) as caught:
        await store.open()
    text = str(caught.value)
    assert "\n" not in text
    assert text.endswith(".")
    return text


# -- opening -----------------------------------------------------------------------------------------------


async def test_a_store_of_a_newer_version_is_refused_and_left_alone(path: Path) -> None:
    await made(path)
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 999")
    connection.close()
    with pytest.raises(StoreTooNew, match="newer Detent \\(schema 999"):
        await SQLiteStore(path).open()
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA user_version").fetchone() == (999,)
    connection.close()


async def test_a_sqlite_file_of_another_program_is_refused_and_left_alone(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    before = path.read_bytes()
    assert "not one of Detent's" in await refusal(SQLiteStore(path))
    assert path.read_bytes() == before
    assert sorted(item.name for item in path.parent.iterdir()) == ["detent.db"]


async def test_a_versioned_file_of_another_program_is_refused(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE theirs (x)")
        connection.execute("PRAGMA user_version = 1")
    connection.close()
    assert "not one of Detent's" in await refusal(SQLiteStore(path))


async def test_a_file_that_is_no_database_is_refused(path: Path) -> None:
    path.write_bytes(b"this is not a database, but it is longer than a header " * 50)
    assert "is not a SQLite file, or is damaged" in await refusal(SQLiteStore(path))


async def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    text = await refusal(SQLiteStore(tmp_path / "no" / "such" / "detent.db"))
    assert str(tmp_path / "no" / "such") in text
    assert "does not exist" in text


async def test_a_folder_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    assert "is a folder" in await refusal(SQLiteStore(tmp_path))


async def test_the_default_folder_is_made(tmp_path: Path) -> None:
    await made(tmp_path / ".detent" / "detent.db")
    assert (tmp_path / ".detent" / "detent.db").is_file()


async def test_git_keeps_workflows_and_no_runs_of_its_own_folder(tmp_path: Path) -> None:
    """Whether or not the folder was there; what somebody has written about it is left alone."""
    git = ["git", "-C", str(tmp_path)]
    subprocess.run([*git, "init", "--quiet"], check=True)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    (tmp_path / "b" / ".detent" / "workflows" / "more").mkdir(parents=True)
    (tmp_path / "b" / ".detent" / "workflows" / "more" / "w.yaml").touch()
    for name in ("a", "b"):
        await made(tmp_path / name / ".detent" / "detent.db")
    subprocess.run([*git, "add", "--all"], check=True)
    listed = subprocess.run([*git, "ls-files"], check=True, capture_output=True, text=True).stdout.split()
    assert listed == ["b/.detent/workflows/more/w.yaml"]
    (tmp_path / "c" / ".detent").mkdir(parents=True)
    (tmp_path / "c" / ".detent" / ".gitignore").write_text("mine\n")
    await made(tmp_path / "c" / ".detent" / "detent.db")
    assert (tmp_path / "c" / ".detent" / ".gitignore").read_text() == "mine\n"


async def test_a_store_that_must_exist_is_not_made(path: Path) -> None:
    assert "There is no store" in await refusal(SQLiteStore(path, create=False))
    assert not path.exists()


async def test_a_place_that_cannot_be_written_to_is_refused() -> None:
    """Not even root can make a file in /proc."""
    assert "cannot be opened" in await refusal(SQLiteStore("/proc/self/detent.db"))


async def test_a_locked_store_cannot_be_migrated_and_says_so(path: Path) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    text = await refusal(SQLiteStore(path, busy_timeout=0.1))
    assert "is locked by another process for more than 0.1 seconds" in text
    connection.execute("ROLLBACK")
    connection.close()


@pytest.mark.timeout(60)  # the writes must not wait for the lock one after another
async def test_writes_to_a_locked_store_are_refused_together_and_reads_go_on(path: Path) -> None:
    store = SQLiteStore(path, busy_timeout=1.5)
    await store.open()
    leases = [await store.create(new(f"r{index}")) for index in range(50)]
    blocker = sqlite3.connect(path, isolation_level=None)
    blocker.execute("BEGIN EXCLUSIVE")
    first = asyncio.ensure_future(store.append(commit(leases[0], 1)))
    await asyncio.sleep(0.05)
    results = await asyncio.gather(
        first, *(store.append(commit(lease, 1)) for lease in leases[1:]), return_exceptions=True
    )
    assert {type(result) for result in results} == {StoreUnavailable}
    assert "is locked by another process" in str(results[0])
    assert (await store.row("r1")).seq == 1
    blocker.execute("ROLLBACK")
    blocker.close()
    assert await asyncio.gather(*(store.append(commit(lease, 1)) for lease in leases)) == [0] * 50
    await store.close()


OPEN_ONE = """
import asyncio, sys
from detent.adapters.stores.sqlite import SQLiteStore
from detent.testing.store_trials.builders import new

async def main():
    store = SQLiteStore(sys.argv[1])
    sys.stdin.readline()
    await store.open()
    await store.create(new(sys.argv[2]))
    await store.close()

asyncio.run(main())
"""


async def test_processes_that_open_a_new_store_at_once_migrate_it_once(path: Path) -> None:
    children = [
        subprocess.Popen(
            [sys.executable, "-c", OPEN_ONE, str(path), f"r{index}"],
            stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for index in range(6)
    ]  # fmt: skip
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    for child in children:
        _, said = child.communicate(timeout=60)
        assert (child.returncode, said) == (0, "")
    store = SQLiteStore(path)
    await store.open()
    assert len(await store.find("r")) == 6
    await store.close()


# -- safety and sharing ------------------------------------------------------------------------------------


async def test_every_commit_waits_for_the_disk_by_default(path: Path) -> None:
    store = SQLiteStore(path)
    await store.open()
    assert (await store.facts())["synchronous"] == "full"
    seen = await store._write(
        lambda batch: [
            batch.connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("synchronous", "journal_mode")
        ]
    )
    assert seen == [2, "wal"]
    await store.close()
    fast = SQLiteStore(path, sync="normal")
    await fast.open()
    assert (await fast.facts())["synchronous"] == "normal"
    await fast.close()


async def test_concurrent_appends_share_commits(path: Path) -> None:
    store = SQLiteStore(path)
    await store.open()
    leases = [await store.create(new(f"r{index}")) for index in range(300)]
    commits = 0

    def seen(statement: str) -> None:
        nonlocal commits
        commits += statement == "COMMIT"

    await store._write(lambda batch: batch.connection.set_trace_callback(seen))
    commits = 0
    await asyncio.gather(*(store.append(commit(lease, 1, edges=(edge(),))) for lease in leases))
    assert 1 <= commits <= 20
    assert sums(await store.edges("flow")) == sums([edge()] * 300)
    await store.close()


async def test_an_append_that_was_reported_survives_the_process(path: Path) -> None:
    """After a SIGKILL right behind the report, the entry is there."""
    script = """
import asyncio, os, signal, sys
from detent.adapters.stores.sqlite import SQLiteStore
from detent.testing.store_trials.builders import commit, new

async def main():
    store = SQLiteStore(sys.argv[1])
    await store.open()
    lease = await store.create(new("r1"))
    for seq in range(1, 20):
        await store.append(commit(lease, seq, alone=seq % 2 == 0))
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", script, str(path)], timeout=60)
    assert done.returncode == -9
    store = SQLiteStore(path)
    await store.open()
    assert (await store.row("r1")).seq == 20
    assert len(await store.entries("r1")) == 20
    await store.close()


async def test_writing_alone_keeps_the_fence_and_survives_a_lock(path: Path) -> None:
    store = SQLiteStore(path, busy_timeout=5)
    await store.open()
    lease = await store.create(new("r1", alone=True))
    await store.append(commit(lease, 1, edges=(edge(),), alone=True))
    with pytest.raises(Fenced):
        await store.append(commit(lease, 1, edges=(edge(),), alone=True))
    blocker = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    blocker.execute("BEGIN IMMEDIATE")
    asyncio.get_running_loop().call_later(0.3, blocker.execute, "ROLLBACK")
    await store.append(commit(lease, 2, edges=(edge(),), alone=True))
    blocker.close()
    assert (await store.row("r1")).seq == 3
    assert sums(await store.edges("flow")) == sums([edge(), edge()])
    await store.close()


async def test_a_row_is_read_at_once_what_other_connections_have_written_included(path: Path) -> None:
    """Marks and ledger lines are read in the caller's thread, and are never older than the last commit."""
    store, other = SQLiteStore(path), SQLiteStore(path)
    for each in (store, other):
        await each.open()
    lease = await other.create(new("r1"))
    assert await store.effect("r1", "k1") is None
    await other.append(commit(lease, 1, ledger=(LedgerLine("k1", "shop.order", "begun", 2),)))
    assert await store.effect("r1", "k1") == LedgerLine("k1", "shop.order", "begun", 2)
    for version in range(3):
        assert await store.mark("m") == ({"n": version} if version else None, version)
        assert await other.set_mark("m", {"n": version + 1}, version)
    with pytest.raises(RunNotFound):
        await store.effect("r2", "k1")
    for each in (store, other):
        await each.close()
    with pytest.raises(StoreClosed):
        await store.mark("m")


async def test_a_row_is_read_by_a_reader_where_reading_at_once_fails(path: Path) -> None:
    """A lock, or whatever else keeps the caller's connection from reading, is waited for in a thread."""
    store = SQLiteStore(path)
    await store.open()
    assert await store.set_mark("m", 1, 0)
    assert await store.mark("m") == (1, 1)
    assert store._direct is not None
    store._direct.close()
    assert await store.mark("m") == (1, 1)
    await store.close()


async def test_another_thread_never_reads_what_is_not_committed(path: Path) -> None:
    """Only the thread that opened the store reads through the connection that it writes with."""
    store = SQLiteStore(path)
    await store.open()
    assert await store.set_mark("m", 1, 0)
    assert store._direct is not None
    batch = store._direct.begin()
    batch.connection.execute("UPDATE marks SET value = '2'")
    assert await asyncio.to_thread(lambda: asyncio.run(store.mark("m"))) == (1, 1)
    store._direct.rollback()
    await store.close()


async def test_a_full_disk_is_one_sentence_and_nothing_is_half_written(path: Path) -> None:
    store = SQLiteStore(path)
    await store.open()
    leases = [await store.create(new(f"r{index}")) for index in range(3)]
    await store._write(lambda batch: batch.connection.execute("PRAGMA max_page_count = 60").fetchone())
    large = {"x": os.urandom(300_000).hex()}
    results = await asyncio.gather(
        store.append(commit(leases[0], 1)), store.append(commit(leases[1], 1, fold=large)),
        store.append(commit(leases[2], 1)), return_exceptions=True,
    )  # fmt: skip
    assert isinstance(results[1], StoreUnavailable)
    assert "the disk is full" in str(results[1])
    assert [results[0], results[2]] == [0, 0]
    assert [(await store.row(lease.run_id)).seq for lease in leases] == [2, 1, 2]
    await store.close()
