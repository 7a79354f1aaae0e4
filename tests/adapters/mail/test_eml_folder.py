"""A folder of .eml files: what counts as a mail, and moving it without losing any."""

from __future__ import annotations

import os
from datetime import UTC, datetime

import pytest

from detent.adapters.mail.eml_folder import PROCESSED, EmlFolder
from detent.adapters.mail.source import MailGone
from detent.kernel.errors import ConfigurationError
from tests.adapters.mail.servers import mail


@pytest.fixture
async def folder(tmp_path):
    source = EmlFolder(tmp_path)
    await source.open()
    return source


def put(source, name, raw=None, age=3600.0):
    path = source.folder / name
    path.write_bytes(mail(1) if raw is None else raw)
    when = path.stat().st_mtime - age
    os.utime(path, (when, when))
    return path


class TestWhatIsListed:
    async def test_only_finished_mail_files_are(self, folder):
        for name in (
            "a.eml",
            "B.EML",
            ".hidden.eml",
            "c.eml.tmp",
            "d.eml.part",
            "e.part",
            "f.tmp",
            "note.txt",
        ):
            put(folder, name)
        (folder.folder / "folder.eml").mkdir()
        (folder.folder / "link.eml").symlink_to(folder.folder / "note.txt")
        assert sorted(ref.partition("/")[0] for ref in await folder.list()) == ["B.EML", "a.eml"]

    async def test_a_file_that_grows_while_we_look_is_left_for_later(self, tmp_path):
        path = tmp_path / "a.eml"

        async def pause(seconds):
            with path.open("ab") as file:
                file.write(b"more")

        source = EmlFolder(tmp_path, pause=pause)
        await source.open()
        path.write_bytes(b"the beginning")
        (tmp_path / "b.eml").write_bytes(mail(2))
        assert [ref.partition("/")[0] for ref in await source.list()] == ["b.eml"]

    async def test_a_file_that_vanishes_while_we_look_is_forgotten(self, tmp_path):
        async def pause(seconds):
            (tmp_path / "a.eml").unlink()

        source = EmlFolder(tmp_path, pause=pause)
        await source.open()
        (tmp_path / "a.eml").write_bytes(mail(1))
        assert await source.list() == ()

    async def test_an_empty_file_is_a_mail_only_when_nobody_has_been_writing_it_for_long(self, folder):
        put(folder, "old.eml", b"")
        put(folder, "young.eml", b"", age=0)
        assert [ref.partition("/")[0] for ref in await folder.list()] == ["old.eml"]

    async def test_names_of_any_bytes_are_written_down_and_found_again(self, folder):
        names = ["zażółć gęślą.eml", "100%.eml", "a b.eml", os.fsdecode(b"\xff\xfe.eml"), "per%2Fcent.eml"]
        for number, name in enumerate(names):
            put(folder, name, mail(number), age=3600 - number)
        refs = await folder.list()
        assert all(ref.isascii() and ref.isprintable() for ref in refs)
        assert [(await folder.fetch(ref)).raw for ref in refs] == [mail(number) for number in range(5)]
        for ref in refs:
            await folder.mark_processed(ref)
        assert sorted(os.listdir(folder.folder / PROCESSED)) == sorted(names)

    async def test_the_time_of_the_file_is_told_as_such(self, folder):
        when = datetime(2026, 3, 10, 8, 15, tzinfo=UTC)
        path = put(folder, "a.eml")
        os.utime(path, (when.timestamp(), when.timestamp()))
        arrival = await folder.fetch((await folder.list())[0])
        assert (arrival.received, arrival.file_time) == (None, when)


class TestMarking:
    async def test_a_name_that_was_used_before_gets_a_number(self, folder):
        for number in range(3):
            put(folder, "a.eml", mail(number))
            (ref,) = await folder.list()
            await folder.mark_processed(ref)
        kept = folder.folder / PROCESSED
        assert {name: (kept / name).read_bytes() for name in os.listdir(kept)} == {
            "a.eml": mail(0), "a-2.eml": mail(1), "a-3.eml": mail(2),
        }  # fmt: skip

    async def test_a_newer_file_of_the_same_name_is_not_marked_in_its_place(self, folder):
        """Two processes, one slow: it must not move a mail it has never seen."""
        put(folder, "a.eml", mail(1))
        (old,) = await folder.list()
        put(folder, "a.eml", mail(2, "another one"))
        await folder.mark_processed(old)
        with pytest.raises(MailGone):
            await folder.fetch(old)
        (new,) = await folder.list()
        assert (await folder.fetch(new)).raw == mail(2, "another one")

    async def test_a_move_that_was_cut_off_half_way_is_finished(self, folder):
        """W-44, transport: after a crash in between the mail has both names and is still one mail."""
        path = put(folder, "a.eml")
        os.link(path, folder.folder / PROCESSED / "a.eml")
        (ref,) = await folder.list()
        await folder.mark_processed(ref)
        assert await folder.list() == ()
        assert os.listdir(folder.folder / PROCESSED) == ["a.eml"]

    async def test_what_is_no_ref_of_ours_leads_nowhere(self, folder, tmp_path):
        outside = tmp_path.parent / "outside.eml"
        outside.write_bytes(mail(1))
        facts = outside.stat()
        for name in ("..%2Foutside.eml", "../outside.eml", ""):
            ref = f"{name}/{facts.st_size}-{facts.st_mtime_ns}"
            with pytest.raises(MailGone):
                await folder.fetch(ref)
            await folder.mark_processed(ref)
        assert outside.exists()


class TestOpening:
    async def test_a_missing_folder_is_told(self, tmp_path):
        with pytest.raises(ConfigurationError) as caught:
            await EmlFolder(tmp_path / "nowhere").open()
        assert str(tmp_path / "nowhere") in str(caught.value)

    async def test_a_folder_that_cannot_hold_processed_mail_is_told(self, tmp_path):
        (tmp_path / PROCESSED).write_text("in the way")
        with pytest.raises(ConfigurationError) as caught:
            await EmlFolder(tmp_path).open()
        assert PROCESSED in str(caught.value)
