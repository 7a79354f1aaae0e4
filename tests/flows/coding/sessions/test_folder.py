"""The folder of session files: private, whole, and nothing unreadable is ever overwritten."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detent.adapters.anchored import OpenFolder
from detent.flows.coding.sessions.file_schema import schema
from detent.flows.coding.sessions.files import keep_backup, locked, replace_file, write_new
from detent.flows.coding.sessions.folder import (
    SessionDamaged,
    SessionFolder,
    SessionNotFound,
    sessions_folder,
)
from detent.flows.coding.sessions.reading import LARGEST, Unusable, bytes_of, content_of
from detent.flows.coding.sessions.record import SessionRecord, SessionTooNew
from detent.kernel.errors import ConfigurationError
from detent.runtime.settings import read_settings
from tests.examples import examples
from tests.flows.coding.sessions.corpus import DAMAGED, NO_SESSION, WELL_FORMED
from tests.flows.coding.sessions.test_record import ID, session

VALIDATOR = jsonschema.Draft202012Validator(schema())
OTHER = "2026-03-02_10-15-00_other_9f2c12"


def begun(session_id: str = ID, workspace: str | None = "/w", now: float = 0.0) -> SessionRecord:
    return SessionRecord.new(session_id, now, workspace=workspace)


def permissions(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


class TestSaving:
    def test_a_session_is_found_again_as_it_was_saved(self, tmp_path):
        folder = SessionFolder(tmp_path / "state" / "sessions")
        record = SessionRecord.from_plain(session())
        file = folder.save(record, now=5.0)
        assert file == tmp_path / "state" / "sessions" / f"{ID}.json"
        again = folder.load(ID)
        assert {**again.to_plain(), "updated_at": None} == {**record.to_plain(), "updated_at": None}
        assert again.updated_at == "1970-01-01T00:00:05.000Z"
        assert SessionFolder(file.parent).load(OTHER) is None
        with pytest.raises(SessionNotFound, match="detent sessions list"):
            folder.existing(OTHER)

    def test_load_and_save_without_a_transition_gives_an_equal_file(self, tmp_path):
        """5.2: but for `updated_at`"""
        plain = session(custom={"z": 1, "a": [1e-7, None]}, legacy={"completed": "TRUE", "x": 1})
        plain["messages"].insert(1, {"as": "found"})
        plain = dict(reversed(plain.items()))
        file = tmp_path / f"{ID}.json"
        file.write_text(json.dumps(plain, indent=4))
        folder = SessionFolder(tmp_path)
        folder.save(folder.load(ID), now=1.0)
        once = file.read_bytes()
        written = json.loads(once)
        assert list(written) == list(plain)
        assert {**written, "updated_at": None} == {**plain, "updated_at": None}
        SessionFolder(tmp_path).save(SessionFolder(tmp_path).load(ID), now=1.0)
        assert file.read_bytes() == once

    def test_files_and_folders_are_private(self, tmp_path):
        old = os.umask(0)
        try:
            folder = SessionFolder(tmp_path / "a" / "sessions")
            file = folder.save(begun())
        finally:
            os.umask(old)
        assert (permissions(file), permissions(file.parent), permissions(file.parent.parent)) == (
            0o600, 0o700, 0o700,
        )  # fmt: skip
        file.parent.chmod(0o755)
        file.chmod(0o644)
        folder.save(begun())
        assert (permissions(file), permissions(file.parent)) == (0o600, 0o700)
        assert [path.name for path in file.parent.iterdir()] == [file.name]

    def test_booleans_can_be_switched_off(self, tmp_path):
        """C-27"""
        folder = SessionFolder(tmp_path, write_legacy_flags=False)
        file = folder.save(SessionRecord.from_plain(session()))
        assert "legacy" not in json.loads(file.read_text())
        SessionFolder(tmp_path).save(folder.load(ID).changed(outcome=None))
        assert json.loads(file.read_text())["legacy"]["completed"] is True

    def test_no_secret_reaches_a_file(self, tmp_path):
        """C-46"""
        secret = "sk-0123456789"
        messages = [{"role": "user", "content": f"use {secret}", "headers": {"Authorization": "Bearer x"}}]
        folder = SessionFolder(tmp_path, secrets=[secret])
        record = begun().changed(messages=messages)
        text = folder.save(record).read_text()
        assert secret not in text
        assert "Bearer" not in text
        assert record.prompt == f"use {secret}"  # in memory the session goes on as it was

    def test_a_file_of_an_older_format_is_kept_when_it_is_replaced(self, tmp_path):
        raw = json.dumps({"session_id": ID, "completed": True}).encode()
        file = tmp_path / f"{ID}.json"
        file.write_bytes(raw)
        folder = SessionFolder(tmp_path)
        record = folder.load(ID)
        assert record.is_complete
        folder.save(record)
        folder.save(record)
        backup = tmp_path / f"{ID}.json.bak"
        assert (backup.read_bytes(), permissions(backup)) == (raw, 0o600)
        file.write_bytes(raw.replace(b"true", b"1"))
        folder.save(folder.load(ID))
        assert backup.read_bytes() == raw
        assert (tmp_path / f"{ID}.json.bak.1").read_bytes() == raw.replace(b"true", b"1")
        assert len(list(tmp_path.iterdir())) == 3

    @pytest.mark.parametrize("name", [*DAMAGED, *NO_SESSION])
    def test_a_damaged_file_is_never_overwritten(self, tmp_path, name):
        raw = {**DAMAGED, **NO_SESSION}[name]
        file = tmp_path / f"{ID}.json"
        file.write_bytes(raw)
        for folder in (SessionFolder(tmp_path), _after_saving(tmp_path, file, raw)):
            with pytest.raises(SessionDamaged) as refused:
                folder.load(ID)
            assert refused.value.file == file
            with pytest.raises(SessionDamaged, match="stays as it is"):
                folder.save(begun())
            assert file.read_bytes() == raw
        assert [path.name for path in tmp_path.iterdir()] == [file.name]

    def test_a_session_of_a_newer_version_is_refused_and_stays(self, tmp_path):
        """5.1: refused in words"""
        raw = json.dumps(session(schema_version=7, state="elsewhere")).encode()
        (tmp_path / f"{ID}.json").write_bytes(raw)
        folder = SessionFolder(tmp_path)
        for refused in (lambda: folder.load(ID), lambda: folder.save(begun())):
            with pytest.raises(SessionTooNew, match="schema_version 7.*Update Detent"):
                refused()
        assert (tmp_path / f"{ID}.json").read_bytes() == raw
        assert "newer Detent" in folder.list()[0].problem

    def test_links_folders_and_pipes_in_place_of_a_file_are_left_alone(self, tmp_path):
        target = tmp_path / "elsewhere.txt"
        target.write_text(json.dumps(session()))
        folder_path = tmp_path / "sessions"
        folder_path.mkdir()
        file = folder_path / f"{ID}.json"
        for make in (lambda: file.symlink_to(target), file.mkdir, lambda: os.mkfifo(file)):
            make()
            folder = SessionFolder(folder_path)
            with pytest.raises(SessionDamaged):
                folder.load(ID)
            with pytest.raises(SessionDamaged):
                folder.save(begun())
            assert folder.list()[0].problem is not None
            if file.is_dir() and not file.is_symlink():
                file.rmdir()
            else:
                file.unlink()
        assert json.loads(target.read_text()) == session()

    def test_sockets_and_files_beyond_all_measure_are_not_read(self, tmp_path, monkeypatch):
        file = tmp_path / f"{ID}.json"
        monkeypatch.chdir(tmp_path)  # the address of a socket is short
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(file.name)
            with pytest.raises(SessionDamaged, match="is no file"):
                SessionFolder(tmp_path).load(ID)
        file.unlink()
        with file.open("wb") as large:
            large.truncate(LARGEST + 1)
        with pytest.raises(SessionDamaged, match="larger than 256 MB"):
            SessionFolder(tmp_path).load(ID)
        with pytest.raises(SessionDamaged):
            SessionFolder(tmp_path).save(begun())

    def test_a_file_that_another_program_is_changing_is_not_replaced(self, tmp_path):
        file = tmp_path / f"{ID}.json"
        file.write_text(json.dumps({"session_id": ID, "completed": True}))
        with locked(tmp_path, tmp_path) as folder:
            content = content_of(*bytes_of(folder, file.name), file.name, 0.0)
            file.write_text('{"session_id": "just now"}')
            with pytest.raises(Unusable, match="changed by another program"):
                replace_file(folder, file.name, b"{}", content)
        assert file.read_text() == '{"session_id": "just now"}'
        assert [path.name for path in tmp_path.iterdir()] == [file.name]

    def test_on_a_disk_without_second_names_nothing_is_overwritten_either(self, tmp_path):
        class NoLinks(OpenFolder):
            def link(self, name, to, as_name):
                raise PermissionError(errno.EPERM, "Operation not permitted")

        folder = NoLinks(tmp_path, None)
        write_new(folder, "a.json", b"first")
        with pytest.raises(FileExistsError):
            write_new(folder, "a.json", b"second")
        assert keep_backup(folder, "a", b"x") == "a.bak"
        assert keep_backup(folder, "a", b"y") == "a.bak.1"
        assert sorted(path.name for path in tmp_path.iterdir()) == ["a.bak", "a.bak.1", "a.json"]
        assert (tmp_path / "a.json").read_bytes() == b"first"

    def test_a_file_that_holds_another_session_is_neither_read_nor_overwritten(self, tmp_path):
        (tmp_path / f"{OTHER}.json").write_text(json.dumps(session()))
        folder = SessionFolder(tmp_path)
        with pytest.raises(SessionDamaged, match=f"name it {ID}.json"):
            folder.load(OTHER)
        with pytest.raises(SessionDamaged):
            folder.save(begun(OTHER))

    @pytest.mark.parametrize("text", ["../x", "", "/etc/passwd", "abcdef01/../../x", "ABC", "x" * 300])
    def test_what_is_no_id_leads_to_no_file(self, tmp_path, text):
        folder = SessionFolder(tmp_path)
        for use in (folder.load, folder.delete, folder.file, folder.existing):
            with pytest.raises(ConfigurationError, match="no session id"):
                use(text)

    def test_a_writer_that_is_killed_leaves_the_file_whole(self, tmp_path):
        """Killed with -9 again and again while it writes; the file is always one of those it wrote."""
        program = (
            "import sys\n"
            "from detent.flows.coding.sessions.folder import SessionFolder\n"
            "from detent.flows.coding.sessions.record import SessionRecord\n"
            f"record = SessionRecord.new({ID!r}, 0.0, workspace=None)\n"
            "folder, number = SessionFolder(sys.argv[1]), 0\n"
            "while True:\n"
            "    number += 1\n"
            "    text = [{'role': 'user', 'content': str(number % 10) * 200_000}]\n"
            "    folder.save(record.changed(messages=text))\n"
            "    print(number, flush=True)\n"
        )
        for kill in range(4):
            writer = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE)
            for _ in range(2 + kill):
                writer.stdout.readline()
            writer.send_signal(signal.SIGKILL)
            writer.wait()
            writer.stdout.close()
            plain = json.loads((tmp_path / f"{ID}.json").read_text())
            content = plain["messages"][0]["content"]
            assert content == content[0] * 200_000
        SessionFolder(tmp_path).save(begun())  # which removes what the killed ones left
        assert [path.name for path in tmp_path.iterdir()] == [f"{ID}.json"]

    def test_two_writers_at_once_leave_one_whole_file(self, tmp_path):
        program = (
            "import sys\n"
            "from detent.flows.coding.sessions.folder import SessionFolder\n"
            "from detent.flows.coding.sessions.record import SessionRecord\n"
            f"record = SessionRecord.new({ID!r}, 0.0, workspace=None)\n"
            "for number in range(30):\n"
            "    text = [{'role': 'user', 'content': sys.argv[2] * 50_000}]\n"
            "    SessionFolder(sys.argv[1]).save(record.changed(messages=text))\n"
        )
        writers = [
            subprocess.Popen([sys.executable, "-c", program, str(tmp_path), letter]) for letter in "ab"
        ]
        assert [writer.wait() for writer in writers] == [0, 0]
        content = SessionFolder(tmp_path).load(ID).messages[0]["content"]
        assert content in ("a" * 50_000, "b" * 50_000)
        assert [path.name for path in tmp_path.iterdir()] == [f"{ID}.json"]


def _after_saving(path: Path, file: Path, raw: bytes) -> SessionFolder:
    """A folder that wrote the session itself before something else spoiled it."""
    file.unlink()
    folder = SessionFolder(path)
    folder.save(begun())
    file.write_bytes(raw)
    return folder


class TestListing:
    def test_sessions_are_listed_newest_first_and_damaged_ones_as_such(self, tmp_path):
        """C-51"""
        folder = SessionFolder(tmp_path)
        ids = [f"2026-03-02_09-15-0{number}_x_00000{number}" for number in range(4)]
        for number, session_id in zip((2, 0, 3, 1), ids, strict=True):
            record = begun(session_id).changed(
                messages=[
                    {"role": "user", "content": f"prompt {number}"}, {"role": "assistant", "content": ""},
                ],
                files_changed=["a.py"],
            )  # fmt: skip
            folder.save(record, now=float(number))
        (tmp_path / "abcdef01.json").write_text("{")
        (tmp_path / "abcdef02.json").write_text(json.dumps({"session_id": "abcdef02", "completed": True}))
        (tmp_path / "nonsense.json").write_text("{}")
        (tmp_path / "notes.txt").write_text("x")
        (tmp_path / ".hidden.json").write_text("{")
        listed = folder.list()
        assert [item.prompt for item in listed] == ["prompt 3", "prompt 2", "prompt 1", "prompt 0", "", ""]
        assert [item.id for item in listed[-2:]] == ["abcdef02", "abcdef01"]
        assert [item.is_legacy for item in listed] == [False] * 4 + [True, False]
        assert [item.problem is None for item in listed] == [True] * 5 + [False]
        newest = listed[0]
        assert (newest.state, newest.turns, newest.files_changed) == ("user_input", 1, ("a.py",))
        assert newest.changed == "1970-01-01T00:00:03.000Z"
        assert json.dumps(newest.to_plain())

    def test_a_folder_that_is_not_there_has_no_sessions(self, tmp_path):
        folder = SessionFolder(tmp_path / "nowhere")
        assert list(folder.list()) == []
        assert folder.last("/w") is None
        assert folder.load(ID) is None
        (tmp_path / "file").write_text("x")
        assert list(SessionFolder(tmp_path / "file").list()) == []
        assert not (tmp_path / "nowhere").exists()

    def test_odd_times_and_workspaces_do_not_disturb_a_listing(self, tmp_path):
        for number, at in enumerate(("yesterday", "9999-12-31T23:59:59", "2026-01-01", None)):
            plain = {"session_id": f"abcdef0{number}", "updated_at": at, "working_directory": "\0"}
            (tmp_path / f"abcdef0{number}.json").write_text(json.dumps(plain))
        folder = SessionFolder(tmp_path)
        assert [item.id for item in folder.list()] == ["abcdef01", "abcdef02", "abcdef00", "abcdef03"]
        assert folder.last(tmp_path) is None

    def test_last_is_the_newest_of_the_workspace(self, tmp_path):
        folder = SessionFolder(tmp_path / "sessions")
        here, there = tmp_path / "here", tmp_path / "there"
        here.mkdir()
        (tmp_path / "link").symlink_to(here)
        for number, place in enumerate((here, there, here, there)):
            folder.save(begun(f"abcdef0{number}", str(place)), now=float(number))
        folder.save(begun("abcdef09", None), now=9.0)
        (tmp_path / "sessions" / "abcdef08.json").write_text("{")
        assert folder.last(here) == folder.last(tmp_path / "link") == folder.find("last", here) == "abcdef02"
        assert folder.last(there) == "abcdef03"
        assert folder.last(tmp_path) is None
        with pytest.raises(ConfigurationError, match="no session of the workspace"):
            folder.find("last", tmp_path)

    def test_a_session_is_found_by_the_beginning_of_its_id(self, tmp_path):
        folder = SessionFolder(tmp_path)
        for session_id in (ID, OTHER, "abcdef01", "abcdef0123"):
            folder.save(begun(session_id))
        assert folder.list()[0].created_at == "1970-01-01T00:00:00.000Z"
        assert folder.find("2026-03-02_09") == ID
        assert folder.find("abcdef01") == "abcdef01"  # an id itself
        assert folder.find("abcdef012") == "abcdef0123"
        with pytest.raises(ConfigurationError, match="several sessions"):
            folder.find("2026-03-02")
        with pytest.raises(ConfigurationError, match="no session id"):
            folder.find("nothing like it")
        with pytest.raises(ConfigurationError, match="no session id"):
            folder.find("")
        with pytest.raises(SessionNotFound):
            folder.find("abcdef99")

    def test_delete_removes_the_file_damaged_or_not_and_tells_of_kept_originals(self, tmp_path):
        folder = SessionFolder(tmp_path)
        (tmp_path / f"{ID}.json").write_text(json.dumps({"session_id": ID, "completed": True}))
        folder.save(folder.load(ID))
        assert folder.delete(ID) == [tmp_path / f"{ID}.json.bak"]
        assert folder.load(ID) is None
        with pytest.raises(SessionNotFound):
            folder.delete(ID)
        (tmp_path / f"{ID}.json").write_text("{")
        assert folder.delete(ID) == [tmp_path / f"{ID}.json.bak"]
        with pytest.raises(SessionNotFound):
            SessionFolder(tmp_path / "nowhere").delete(ID)
        (tmp_path / f"{ID}.json").mkdir()
        with pytest.raises(ConfigurationError, match="cannot be removed"):
            folder.delete(ID)

    @pytest.mark.parametrize("name", WELL_FORMED)
    def test_odd_but_well_formed_older_sessions_are_loaded_and_saved(self, tmp_path, name):
        """C-25"""
        session_id = f"abcdef0{3 + list(WELL_FORMED).index(name)}"
        file = tmp_path / f"{session_id}.json"
        file.write_bytes(WELL_FORMED[name])
        folder = SessionFolder(tmp_path)
        record = folder.load(session_id)
        assert record.is_complete
        folder.save(record)
        assert folder.load(session_id).to_plain() == {**record.to_plain(), "updated_at": _changed(file)}
        if name == "numbers":
            assert "1e400" in file.read_text()
            assert "7" * 5000 in file.read_text()
        if name == "repeated":
            assert record.migration["repeated"] == [{"key": "completed", "value": False}]
            assert "repeated keys" in record.migration["detail"]

    def test_a_session_of_this_format_with_repeated_keys_is_damaged(self, tmp_path):
        twice = '"state": "assistant", "state": "response"'
        text = json.dumps(session()).replace('"state": "response"', twice)
        (tmp_path / f"{ID}.json").write_text(text)
        with pytest.raises(SessionDamaged, match="several times: state"):
            SessionFolder(tmp_path).load(ID)


def _changed(file: Path) -> str:
    return next(line for line in file.read_text().splitlines() if '"updated_at"' in line).split('"')[3]


NESTED = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=10,
)  # fmt: skip


@given(st.dictionaries(st.text(max_size=6), NESTED, max_size=5), st.lists(NESTED, max_size=4), st.booleans())
@settings(max_examples=examples(60))
def test_every_file_written_is_valid_and_read_back_the_same(tmp_path_factory, extra, messages, legacy):
    """C-22, with the shipped schema"""
    path = tmp_path_factory.getbasetemp() / "written"
    own = {name: value for name, value in extra.items() if name not in schema()["properties"]}
    record = SessionRecord.from_plain({**session(), **own, "messages": [*messages, *session()["messages"]]})
    folder = SessionFolder(path, write_legacy_flags=legacy)
    file = folder.save(record, now=1.0)
    VALIDATOR.validate(json.loads(file.read_bytes()))
    expected = folder.redaction.session(record.to_plain(legacy_flags=legacy))
    assert folder.load(ID).to_plain() == {**expected, "updated_at": "1970-01-01T00:00:01.000Z"}


class TestPlace:
    @pytest.mark.parametrize(
        ("store", "expected"),
        [
            (None, ".detent/sessions"), ("runs.db", "sessions"), ("sqlite:data/runs.db", "data/sessions"),
            ("sqlite://{folder}/x/runs.db?sync=normal", "x/sessions"), ("memory:", ".detent/sessions"),
            ("postgresql://u@host/db", ".detent/sessions"), ("Memory:", ".detent/sessions"),
        ],
    )  # fmt: skip
    def test_sessions_lie_beside_the_store(self, tmp_path, monkeypatch, store, expected):
        monkeypatch.chdir(tmp_path)
        store = store and store.replace("{folder}", str(tmp_path))
        settings = read_settings(None, {"store": store}, folder=tmp_path, environ={})
        assert sessions_folder(settings) == tmp_path / expected
        assert not (tmp_path / expected).exists()

    def test_a_store_of_the_project_file_is_found_from_there(self, tmp_path):
        (tmp_path / "detent.yaml").write_text("store: state/runs.db\n")
        settings = read_settings(None, folder=tmp_path, environ={})
        assert sessions_folder(settings) == tmp_path / "state" / "sessions"
