"""A Maildir: names, flags, and other programs at work in it."""

from __future__ import annotations

import mailbox

import pytest

from detent.adapters.mail.maildir import Maildir
from detent.kernel.errors import ConfigurationError
from tests.adapters.mail.servers import mail


@pytest.fixture
async def box(tmp_path):
    mailbox.Maildir(tmp_path / "box", create=True)
    source = Maildir(tmp_path / "box")
    await source.open()
    return source


@pytest.fixture
def reader(box):
    """The same Maildir, as a mail program of the standard library sees it."""
    return mailbox.Maildir(box.folder)


def names(box, place):
    return sorted(path.name for path in (box.folder / place).iterdir())


async def test_what_a_mail_program_delivers_is_found_and_our_mark_is_seen_by_it(box, reader):
    key = reader.add(mail(1))
    (ref,) = await box.list()
    assert (await box.fetch(ref)).raw.replace(b"\r\n", b"\n") == mail(1).replace(b"\r\n", b"\n")
    await box.mark_processed(ref)
    assert reader.get_message(key).get_flags() == "S"
    assert reader.get_message(key).get_subdir() == "cur"


async def test_seen_and_trashed_mails_are_not_listed_and_others_in_cur_are(box):
    for name in ("seen:2,S", "both:2,RS", "trashed:2,T", "flagged:2,F", "bare", "empty:2,"):
        (box.folder / "cur" / name).write_bytes(mail(name))
    (box.folder / "new" / "fresh").write_bytes(mail("fresh"))
    (box.folder / "new" / ".hidden").write_bytes(mail("hidden"))
    (box.folder / "tmp" / "unfinished").write_bytes(mail("unfinished"))
    assert sorted(await box.list()) == ["bare", "empty", "flagged", "fresh"]


async def test_flags_of_others_are_kept_in_order(box):
    (box.folder / "cur" / "a:2,FR").write_bytes(mail(1))
    await box.mark_processed((await box.list())[0])
    assert names(box, "cur") == ["a:2,FRS"]


async def test_a_mail_moved_by_another_program_meanwhile_keeps_its_ref(box):
    (box.folder / "new" / "a").write_bytes(mail(1))
    (ref,) = await box.list()
    (box.folder / "new" / "a").rename(box.folder / "cur" / "a:2,F")
    assert (await box.fetch(ref)).raw == mail(1)
    await box.mark_processed(ref)
    assert (names(box, "new"), names(box, "cur")) == ([], ["a:2,FS"])


async def test_a_mail_another_program_has_marked_is_left_as_it_is(box):
    (box.folder / "new" / "a").write_bytes(mail(1))
    (ref,) = await box.list()
    (box.folder / "new" / "a").rename(box.folder / "cur" / "a:2,RS")
    await box.mark_processed(ref)
    assert names(box, "cur") == ["a:2,RS"]


async def test_a_folder_that_is_no_maildir_is_told(tmp_path):
    (tmp_path / "new").mkdir()
    with pytest.raises(ConfigurationError) as caught:
        await Maildir(tmp_path).open()
    assert "no cur/, no tmp/" in str(caught.value)
