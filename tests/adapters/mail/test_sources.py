"""Every source of mail behaves alike: folder of .eml files, Maildir, IMAP (W-46)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from datetime import timedelta
from pathlib import Path

import pytest

from detent.adapters.mail.eml_folder import EmlFolder
from detent.adapters.mail.imap import ImapMailbox
from detent.adapters.mail.maildir import Maildir
from detent.adapters.mail.server import MailServer
from detent.adapters.mail.source import MailGone
from tests.adapters.mail.servers import HOST, PASSWORD, RECEIVED, USER, imap_server, mail

LIMIT = 20_000


class EmlPlace:
    """A folder of .eml files and how mails get into it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.count = 0

    def source(self) -> EmlFolder:
        return EmlFolder(self.folder, max_size=LIMIT, look_every=0.02)

    async def deliver(self, raw: bytes) -> None:
        self.count += 1
        path = self.folder / f"{9999 - self.count:04}.eml"
        path.write_bytes(raw)
        when = (RECEIVED + timedelta(seconds=self.count)).timestamp()
        os.utime(path, (when, when))

    async def take_away(self) -> None:
        for path in self.folder.glob("*.eml"):
            path.unlink()

    async def processed(self) -> int:
        return len(list((self.folder / "processed").iterdir()))


class MaildirPlace:
    """A Maildir and how mails get into it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.count = 0
        for name in ("cur", "new", "tmp"):
            (folder / name).mkdir()

    def source(self) -> Maildir:
        return Maildir(self.folder, max_size=LIMIT, look_every=0.02)

    async def deliver(self, raw: bytes) -> None:
        self.count += 1
        name = f"{9999 - self.count:04}.M1P{os.getpid()}.{socket.gethostname()}"
        path = self.folder / "tmp" / name
        path.write_bytes(raw)
        when = (RECEIVED + timedelta(seconds=self.count)).timestamp()
        os.utime(path, (when, when))
        path.rename(self.folder / "new" / name)

    async def take_away(self) -> None:
        for path in [*(self.folder / "new").iterdir(), *(self.folder / "cur").iterdir()]:
            path.unlink()

    async def processed(self) -> int:
        return len([path for path in (self.folder / "cur").iterdir() if path.name.endswith(":2,S")])


class ImapPlace:
    """An account on a real server and how mails get into it."""

    def __init__(self, server) -> None:
        self.server = server
        self.uids: list[int] = []

    def source(self) -> ImapMailbox:
        server = MailServer(
            protocol="IMAP", host=HOST, port=self.server.port, tls="none", user=USER, password=PASSWORD
        )
        return ImapMailbox(server, max_size=LIMIT)

    async def deliver(self, raw: bytes) -> None:
        self.uids.append(await self.server.deliver(raw))

    async def take_away(self) -> None:
        await (await self.server.folder()).delete(self.uids)

    async def processed(self) -> int:
        return len([uid for uid in self.uids if b"\\Seen" in await self.server.flags(uid)])


@pytest.fixture(params=["eml", "maildir", "imap"])
async def place(request, tmp_path):
    async with contextlib.AsyncExitStack() as stack:
        if request.param == "imap":
            yield ImapPlace(await stack.enter_async_context(imap_server()))
        else:
            yield (EmlPlace if request.param == "eml" else MaildirPlace)(tmp_path)


@pytest.fixture
async def source(place):
    source = place.source()
    await source.open()
    yield source
    await source.close()


MAILS = [
    mail(1),
    mail(2, "zażółć gęślą jaźń", Content_Type="text/plain; charset=utf-8"),
    mail(3, ".\r\n..\r\n.leading dots"),
    mail(4, "x" * 5000),
    mail(5, "\x00\x01 control characters \x7f"),
]


async def test_mails_come_as_they_were_sent_oldest_first(place, source):
    for raw in MAILS:
        await place.deliver(raw)
    refs = await source.list()
    assert len(refs) == len(set(refs)) == len(MAILS)
    assert [(await source.fetch(ref)).raw for ref in refs] == MAILS


async def test_listing_and_fetching_mark_nothing(place, source):
    """W-46: only what is processed is marked."""
    await place.deliver(mail(1))
    (ref,) = await source.list()
    await source.fetch(ref)
    assert await place.processed() == 0
    assert await source.list() == (ref,)


async def test_a_processed_mail_is_marked_and_never_listed_again(place, source):
    await place.deliver(mail(1))
    await place.deliver(mail(2))
    first, second = await source.list()
    await source.mark_processed(first)
    assert await source.list() == (second,)
    assert await place.processed() == 1


async def test_marking_twice_is_no_error_and_only_the_first_time_counts(place, source):
    await place.deliver(mail(1))
    (ref,) = await source.list()
    assert await source.mark_processed(ref) is True
    assert await source.mark_processed(ref) is False
    assert await place.processed() == 1


async def test_what_is_marked_stays_so_for_whoever_opens_it_next(place, source):
    await place.deliver(mail(1))
    await place.deliver(mail(2))
    first, second = await source.list()
    await source.mark_processed(first)
    await source.close()
    other = place.source()
    await other.open()
    try:
        assert await other.list() == (second,)
        assert (await other.fetch(second)).raw == mail(2)
    finally:
        await other.close()


async def test_a_mail_that_was_taken_away_is_said_to_be_gone(place, source):
    await place.deliver(mail(1))
    (ref,) = await source.list()
    await place.take_away()
    with pytest.raises(MailGone) as caught:
        await source.fetch(ref)
    assert caught.value.ref == ref
    assert await source.mark_processed(ref) is False
    assert await source.list() == ()


async def test_people_are_told_where_a_mail_lies(place, source):
    await place.deliver(mail(1))
    (ref,) = await source.list()
    if isinstance(source, ImapMailbox):
        assert source.where(ref) == f"UID {ref.rpartition('/')[2]} in INBOX on {HOST}"
    else:
        (file,) = [path for path in place.folder.rglob("*") if path.is_file()]
        assert file.name.partition(":")[0] in source.where(ref)
        assert str(place.folder) in source.where(ref)


async def test_a_mail_that_is_too_large_is_told_but_not_loaded(place, source):
    """W-47: over the limit is unreadable; the source says so by its size alone."""
    large, fits = mail(1, "x" * LIMIT), mail(2, "x" * (LIMIT - len(mail(2, ""))))
    assert len(fits) == LIMIT
    await place.deliver(large)
    await place.deliver(fits)
    first, second = [await source.fetch(ref) for ref in await source.list()]
    assert (first.too_large, first.raw, first.size) == (True, None, len(large))
    assert (second.too_large, second.raw, second.size) == (False, fits, LIMIT)


async def test_waiting_ends_when_a_mail_comes(place, source):
    assert await source.list() == ()
    waiting = asyncio.create_task(source.wait(3600))
    await asyncio.sleep(0)
    await place.deliver(mail(1))
    await waiting
    assert len(await source.list()) == 1


async def test_a_mail_that_came_after_the_listing_ends_the_wait(place, source):
    await place.deliver(mail(1))
    assert len(await source.list()) == 1
    await place.deliver(mail(2))
    await source.wait(3600)
    assert len(await source.list()) == 2


async def test_waiting_comes_to_its_end_by_itself(place, source):
    await place.deliver(mail(1))
    await source.list()
    await source.wait(0.05)


async def test_waiting_can_be_broken_off(place, source):
    await source.list()
    waiting = asyncio.create_task(source.wait(3600))
    await asyncio.sleep(0.01)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await place.deliver(mail(1))
    assert len(await source.list()) == 1


async def test_two_may_look_at_once(place, source):
    other = place.source()
    await other.open()
    try:
        for number in range(20):
            await place.deliver(mail(number))
        mine, theirs = await asyncio.gather(source.list(), other.list())
        assert mine == theirs
        await asyncio.gather(*(one.mark_processed(ref) for ref in mine for one in (source, other)))
        assert await asyncio.gather(source.list(), other.list()) == [(), ()]
        assert await place.processed() == 20
    finally:
        await other.close()


async def test_many_mails(place, source):
    count = 500
    for number in range(count):
        await place.deliver(mail(number))
    refs = await source.list()
    assert len(refs) == count
    assert (await source.fetch(refs[0])).raw == mail(0)
    assert (await source.fetch(refs[-1])).raw == mail(count - 1)
    for ref in refs:
        await source.mark_processed(ref)
    assert await source.list() == ()
    assert await place.processed() == count


async def test_it_can_be_closed_and_opened_again(place, source):
    await place.deliver(mail(1))
    await source.close()
    await source.close()
    await source.open()
    assert len(await source.list()) == 1


async def test_refs_are_plain_text_and_the_source_names_no_secret(place, source):
    await place.deliver(mail(1))
    (ref,) = await source.list()
    assert ref.isascii()
    assert ref.isprintable()
    assert PASSWORD not in source.describe() + repr(source)
