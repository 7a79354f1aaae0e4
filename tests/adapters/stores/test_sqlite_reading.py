"""A store that cannot be written can be read, with everything in its log."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from detent.adapters.stores.sqlite import SQLiteStore
from detent.testing.store_trials.builders import commit, new
from tests.adapters.stores.unprivileged import python

READ = """
import asyncio, sys
from detent.adapters.stores.sqlite import SQLiteStore
from detent.kernel.errors import StoreError
from detent.testing.store_trials.builders import new

async def main():
    store = SQLiteStore(sys.argv[1], create=False)
    await store.open()
    print([entry.seq for entry in await store.entries("r1")])
    for alone in (True, False):
        try:
            await store.create(new("r2", alone=alone))
        except StoreError as error:
            print(type(error).__name__, error)
    await store.close()

asyncio.run(main())
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder that nothing can be written into."""
    made = tmp_path / "media"
    made.mkdir()
    yield made
    made.chmod(0o755)


async def a_store(path: Path, close: bool = True) -> SQLiteStore:
    store = SQLiteStore(path)
    await store.open()
    await store.append(commit(await store.create(new("r1")), 1))
    if close:
        await store.close()
    return store


def read(path: Path) -> list[str]:
    for one in path.parent.iterdir():
        one.chmod(0o444)
    path.parent.chmod(0o555)
    ran = python("-c", READ, str(path))
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


def refused(path: Path) -> list[str]:
    text = (
        f"StoreReadOnly The store {path} is read-only: it can be looked at, not changed. To change it, "
        f"copy it to where it can be written, and name the copy with --store."
    )
    return [text, text]


async def test_one_that_was_closed_orderly_is_read_in_place(folder):
    await a_store(folder / "detent.db")
    assert read(folder / "detent.db") == ["[1, 2]", *refused(folder / "detent.db")]
    assert [one.name for one in folder.iterdir()] == ["detent.db"]


async def test_one_that_another_process_has_open_is_read_with_its_log(folder):
    store = await a_store(folder / "detent.db", close=False)
    assert read(folder / "detent.db")[0] == "[1, 2]"
    folder.chmod(0o755)
    await store.close()


async def test_one_with_a_log_and_no_index_is_read_from_a_copy(tmp_path, folder):
    """As a copy of both files from a machine that crashed."""
    store = await a_store(tmp_path / "detent.db", close=False)
    for name in ("detent.db", "detent.db-wal"):
        shutil.copy(tmp_path / name, folder / name)
    await store.close()
    assert read(folder / "detent.db")[0] == "[1, 2]"
    assert sorted(one.name for one in folder.iterdir()) == ["detent.db", "detent.db-wal"]


async def test_a_file_that_cannot_be_written_in_a_folder_that_can_is_left_as_it_is(folder):
    await a_store(folder / "detent.db")
    before = (folder / "detent.db").read_bytes()
    (folder / "detent.db").chmod(0o444)
    ran = python("-c", READ, str(folder / "detent.db"))
    assert ran.stdout.splitlines()[0] == "[1, 2]", ran.stderr
    assert (folder / "detent.db").read_bytes() == before


async def test_a_read_only_file_of_another_program_is_refused(folder):
    with sqlite3.connect(folder / "detent.db") as connection:
        connection.execute("CREATE TABLE t (x)")
    connection.close()
    folder.chmod(0o555)
    (folder / "detent.db").chmod(0o444)
    ran = python("-c", READ, str(folder / "detent.db"))
    assert "is a SQLite file, but not one of Detent's" in ran.stderr
