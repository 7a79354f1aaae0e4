"""A store whose files are taken away while it is in use: that is said, and what they held is kept."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from detent.adapters.stores.sqlite import SQLiteStore
from detent.kernel.errors import StoreLost
from detent.testing.store_trials.builders import commit, new


def gone(path: Path) -> None:
    for one in path.parent.glob(f"{path.name}*"):
        one.unlink()


def replaced(path: Path) -> None:
    shutil.copy(path, path.with_name("other"))
    path.with_name("other").replace(path)


def without_log(path: Path) -> None:
    path.with_name(f"{path.name}-wal").unlink()


def without_folder(path: Path) -> None:
    shutil.rmtree(path.parent)


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize(
    ("harm", "what"),
    [
        (gone, "was deleted"),
        (replaced, "was replaced by another file"),
        (without_log, "lost its log file"),
        (without_folder, "was deleted"),
    ],
)
async def test_a_commit_to_a_file_that_is_gone_is_no_success_and_is_kept(tmp_path, harm, what, alone):
    path = tmp_path / "here" / "detent.db"
    path.parent.mkdir()
    store = SQLiteStore(path)
    await store.open()
    lease = await store.create(new("r1"))
    harm(path)
    with pytest.raises(StoreLost, match=what) as caught:
        await store.append(commit(lease, 1, alone=alone))
    assert caught.value.exit_code == 2
    with pytest.raises(StoreLost):
        await store.append(commit(lease, 2, alone=alone))
    await store.close()
    (rescued,) = path.parent.glob("detent.db.rescued-*")
    assert str(rescued) in str(caught.value)
    assert rescued.stat().st_mode & 0o777 == 0o600
    saved = SQLiteStore(rescued, create=False)
    await saved.open()
    assert [entry.seq for entry in await saved.entries("r1")] == [1, 2]
    await saved.close()


async def test_looking_after_the_last_commit_notices_it_too(tmp_path):
    store = SQLiteStore(tmp_path / "detent.db")
    await store.open()
    await store.create(new("r1"))
    await store.row("r1")
    gone(tmp_path / "detent.db")
    with pytest.raises(StoreLost, match="was deleted"):
        await store.row("r1")
    await store.close()


async def test_a_log_that_was_folded_into_the_file_by_another_process_is_no_loss(tmp_path):
    path = tmp_path / "detent.db"
    store, other = SQLiteStore(path), SQLiteStore(path)
    await store.open()
    lease = await store.create(new("r1"))
    await other.open()
    await other.create(new("r2"))
    await other._write(lambda batch: None)
    await other.close()
    assert await store.append(commit(lease, 1)) == 0
    await store.close()
