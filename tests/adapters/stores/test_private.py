"""The store is for its owner alone: new ones are made so, and old ones become so when they are opened."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from detent.adapters.cassette import Recorder
from detent.adapters.mail.outbox import Outbox
from detent.adapters.project.checkpoints import Checkpoints
from detent.adapters.stores.sqlite import SQLiteStore


@pytest.fixture(autouse=True)
def usual_rights() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def rights(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def opened(path: Path) -> SQLiteStore:
    store = SQLiteStore(path)
    await store.open()
    return store


async def test_a_new_store_and_its_folder_are_for_the_owner_alone(tmp_path):
    store = await opened(tmp_path / ".detent/detent.db")
    await store.set_mark("a", "b", 0)
    assert rights(tmp_path / ".detent") == 0o700
    for name in ("detent.db", "detent.db-wal", "detent.db-shm"):
        assert rights(tmp_path / ".detent" / name) == 0o600, name
    await store.close()


@pytest.mark.parametrize(
    ("before", "after"), [(0o644, 0o600), (0o666, 0o660), (0o660, 0o660), (0o640, 0o600)]
)
async def test_an_old_store_is_closed_to_others_when_it_is_opened(tmp_path, before, after):
    path = tmp_path / "runs.db"
    await (await opened(path)).close()
    path.chmod(before)
    await (await opened(path)).close()
    assert rights(path) == after
    assert rights(tmp_path) != 0o600, "a folder that is not Detent's own is left alone"


async def test_outgoing_mail_cassettes_and_checkpoints_are_for_the_owner_alone(tmp_path):
    outbox = Outbox(tmp_path / "mail/outbox")
    await outbox.open()
    await outbox.send(
        b"Message-ID: <det-0123456789ab@firm.example>\r\n\r\nhello\r\n", "a@b.example", ["c@d.example"]
    )
    (mail,) = (tmp_path / "mail/outbox").glob("*.eml")
    Recorder(tmp_path / "tape.jsonl").close()
    await Checkpoints(tmp_path / "checkpoints").save("run", "point", {"a": 1})
    (point,) = (tmp_path / "checkpoints").glob("*/*.json")
    assert [rights(one) for one in (mail, tmp_path / "tape.jsonl", point)] == [0o600] * 3
    assert [rights(one) for one in (mail.parent, point.parent)] == [0o700] * 2
