"""A thousand older sessions, audited and migrated: each as it must be, and none lost."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest

from detent.flows.coding.sessions.audit import Migration, audit, counts
from detent.flows.coding.sessions.file_schema import schema
from detent.flows.coding.sessions.folder import SessionFolder
from detent.flows.coding.sessions.record import SessionRecord
from detent.kernel.errors import ConfigurationError
from tests.flows.coding.sessions.corpus import (
    DAMAGED,
    WELL_FORMED,
    legacy_sessions,
    tree,
    write_corpus,
)
from tests.flows.coding.sessions.test_record import ID, session

VALIDATOR = jsonschema.Draft202012Validator(schema())
MIGRATE = """
import sys
from detent.flows.coding.sessions.audit import Migration
from detent.flows.coding.sessions.folder import SessionFolder
out = sys.argv[2] if len(sys.argv) > 2 else None
for row in Migration(sys.argv[1], out, SessionFolder(sys.argv[1])).run():
    print(row.done, row.file, flush=True)
"""


@pytest.fixture
def quick_path(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: these tests sync thousands of files."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    path = Path(tempfile.mkdtemp(dir=memory))
    yield path
    shutil.rmtree(path)


def migrate(path: Path, out: Path | None = None, **options):
    return list(Migration(path, out, SessionFolder(path, **options)).run())


def migrated(path: Path, name: str) -> dict:
    raw = (path / name).read_bytes()
    plain = json.loads(raw, parse_int=lambda text: int(text) if len(text) < 600 else 0)
    VALIDATOR.validate(plain)
    return plain


class TestAThousandFiles:
    def test_every_file_is_audited_and_migrated_as_it_must_be_and_none_is_lost(self, quick_path):
        """C-25, C-28"""
        folder = quick_path / "old"
        corpus = {made.name: made for made in write_corpus(folder, 1000)}
        assert len(corpus) == 1000
        before = tree(folder)

        rows = {row.file: row for row in audit(folder)}
        assert tree(folder) == before  # nothing is changed
        assert rows.keys() == corpus.keys()
        for name, made in corpus.items():
            row = rows[name]
            assert row.kind == made.kind, (name, row)
            if made.expected is not None:
                place = (row.state, row.is_complete, row.outcome, row.reason)
                assert place == made.expected, (name, row)
                assert row.ambiguous is (row.reason == "ambiguous")
                assert row.flags
            elif made.kind in ("damaged", "newer"):
                assert row.detail, name
        legacy = [name for name, made in corpus.items() if made.kind == "legacy"]

        done = {row.file: row for row in migrate(folder)}
        assert done.keys() == corpus.keys()
        assert Counter(row.done for row in done.values()) == {
            "migrated": len(legacy), "unchanged": 1000 - len(legacy),
        }  # fmt: skip
        after = tree(folder)
        backups = {f"{name}.bak" for name in legacy}
        assert after.keys() == before.keys() | backups
        for name, made in corpus.items():
            if made.kind != "legacy":
                assert after[name] == before[name], name
                continue
            assert after[f"{name}.bak"][0] == before[name][0]
            assert done[name].backup == Path(f"{name}.bak").name
            if name == "abcdef0b.json":  # 20 MB
                assert json.loads(after[name][0])["messages"] == json.loads(before[name][0])["messages"]
                continue
            plain = migrated(folder, name)
            assert (plain["state"], plain["is_complete"], plain["outcome"]) == made.expected[:3]
            assert plain["migration"]["reason"] == made.expected.reason
            if made.original is None:
                continue
            assert plain["custom"] == made.original["custom"]
            assert plain["workspace"] == made.original["working_directory"]
            flags = {**plain["migration"]["original"]}
            assert flags == {key: value for key, value in made.original.items() if key in flags}
            assert plain["legacy"] == flags
            record = SessionRecord.from_plain(plain)
            assert len(record.messages) >= len(made.original["messages"])
        total = counts(done.values())
        damaged = total["by_kind"]["damaged"]
        assert total["done"] == {
            "migrated": len(legacy), "damaged": damaged, "unchanged": 1000 - len(legacy) - damaged,
        }  # fmt: skip
        assert sum(total["by_reason"].values()) == len(legacy)
        assert total["by_reason"] == Counter(corpus[name].expected.reason for name in legacy)

        again = migrate(folder)
        assert tree(folder) == after  # a second run changes nothing
        assert {row.done for row in again} == {"unchanged"}
        assert Counter(row.kind for row in again)["session"] == len(legacy)
        assert {row.file for row in again} == after.keys() - {"below", "below/further", "old"} - {
            name for name, content in after.items() if content is None and not name.endswith(".json")
        }  # fmt: skip

    def test_into_another_folder_the_old_one_stays_as_it_is(self, quick_path):
        folder, out = quick_path / "old", quick_path / "old" / "new"
        corpus = {made.name: made for made in write_corpus(folder, 150, huge=0)}
        before = tree(folder)
        rows = migrate(folder, out)
        now = tree(folder)
        assert {name: now[name] for name in before} == before
        legacy = [name for name, made in corpus.items() if made.kind == "legacy"]
        written = {row.target for row in rows if row.done == "migrated"}
        assert len(written) == len(legacy)
        assert written == {
            file.relative_to(out).as_posix() for file in out.rglob("*") if file.is_file()
        }  # fmt: skip
        for name, made in corpus.items():
            if made.original is not None:
                assert name in written
                assert migrated(out, name)["custom"] == made.original["custom"]
        # Files of other names are named after their sessions, so that they can be resumed.
        assert "below/further/abcdef03.json" in written
        assert "abcdef0a.json" in written
        once = tree(folder)
        again = migrate(folder, out)
        assert tree(folder) == once
        assert Counter(row.done for row in again) == {
            "there": len(legacy), "unchanged": len(rows) - len(legacy),
        }  # fmt: skip
        assert all(item.problem is None for item in SessionFolder(out).list())


class TestInterruptions:
    def test_a_migration_that_is_killed_goes_on_where_it_was(self, quick_path):
        folder = quick_path / "old"
        made = [item for item in write_corpus(folder, 160, huge=0) if item.kind == "legacy"]
        before = tree(folder)
        killed_after = []
        for lines in (3, 40, 80):
            process = subprocess.Popen(
                [sys.executable, "-c", MIGRATE, str(folder)], stdout=subprocess.PIPE, text=True
            )
            seen = [process.stdout.readline() for _ in range(lines)]
            process.send_signal(signal.SIGKILL)
            process.wait()
            process.stdout.close()
            killed_after.append(sum(line.startswith("migrated") for line in seen))
        assert any(killed_after)
        rows = migrate(folder)
        assert not [row for row in rows if row.done == "failed"]
        after = tree(folder)
        assert after.keys() == before.keys() | {f"{item.name}.bak" for item in made}
        for item in made:
            assert after[f"{item.name}.bak"][0] == before[item.name][0]
            assert migrated(folder, item.name)["state"] == item.expected.state
        migrate(folder)
        assert tree(folder) == after

    def test_two_migrations_at_once_do_each_file_once(self, quick_path):
        folder = quick_path / "old"
        made = [item for item in write_corpus(folder, 160, huge=0) if item.kind == "legacy"]
        before = tree(folder)
        processes = [
            subprocess.Popen([sys.executable, "-c", MIGRATE, str(folder)], stdout=subprocess.PIPE, text=True)
            for _ in range(2)
        ]
        outputs = [process.communicate()[0].splitlines() for process in processes]
        assert [process.returncode for process in processes] == [0, 0]
        lines = [line for lines in outputs for line in lines if line.startswith("migrated ")]
        done = Counter(line.partition(" ")[2] for line in lines)
        assert done == Counter(item.name for item in made)
        after = tree(folder)
        assert after.keys() == before.keys() | {f"{item.name}.bak" for item in made}
        for item in made:
            assert after[f"{item.name}.bak"][0] == before[item.name][0]

    def test_a_kept_original_is_never_overwritten(self, tmp_path):
        file = tmp_path / f"{ID}.json"
        contents = [
            json.dumps({"session_id": ID, "completed": value}).encode() for value in (1, True, "true")
        ]
        for raw in contents:
            file.write_bytes(raw)
            migrate(tmp_path)
        assert [
            (tmp_path / f"{ID}.json.bak{end}").read_bytes() for end in ("", ".1", ".2")
        ] == contents  # fmt: skip
        file.write_bytes(contents[0])
        migrate(tmp_path)
        assert len(list(tmp_path.iterdir())) == 4  # the same original is kept once

    def test_a_name_that_something_else_has_is_not_taken_for_the_original(self, tmp_path):
        file = tmp_path / f"{ID}.json"
        raw = json.dumps({"session_id": ID, "completed": True}).encode()
        file.write_bytes(raw)
        (tmp_path / "precious").write_text("precious")
        (tmp_path / f"{ID}.json.bak").symlink_to(tmp_path / "precious")
        (tmp_path / f"{ID}.json.bak.1").mkdir()
        [row] = [row for row in migrate(tmp_path) if row.done == "migrated"]
        assert row.backup == f"{ID}.json.bak.2"
        assert (tmp_path / row.backup).read_bytes() == raw
        assert (tmp_path / "precious").read_text() == "precious"


class TestRows:
    def test_a_session_whose_booleans_contradict_its_state_is_ambiguous(self, tmp_path):
        plain = session(legacy={"completed": False, "processing": True})
        (tmp_path / f"{ID}.json").write_text(json.dumps(plain))
        [row] = audit(tmp_path)
        assert (row.kind, row.state, row.is_complete) == ("session", "response", True)
        assert (row.reason, row.ambiguous, row.detail) == ("state_wins", True, "state_wins")
        (tmp_path / f"{ID}.json").write_text(json.dumps(session()))
        [row] = audit(tmp_path)
        assert (row.reason, row.ambiguous, row.detail) == (None, False, None)

    def test_a_file_of_another_name_than_its_session_says_so(self, tmp_path):
        (tmp_path / "session.json").write_text(json.dumps(session()))
        [row] = audit(tmp_path)
        assert row.detail == f"its session is {ID}"

    def test_sessions_of_one_id_do_not_overwrite_each_other(self, tmp_path):
        old = tmp_path / "old"
        old.mkdir()
        for name in ("a", "b", "c"):
            plain = {"session_id": "abcdef01", "completed": True, "name": name}
            (old / f"{name}.json").write_text(json.dumps(plain))
        (old / "abcdef01.json").write_text(json.dumps({"session_id": "abcdef01", "name": "own"}))
        out = tmp_path / "out"
        for _ in range(2):
            rows = migrate(old, out)
            assert sorted(file.name for file in out.iterdir()) == [
                "a.json", "abcdef01.json", "b.json", "c.json",
            ]  # fmt: skip
            for name in ("a", "b", "c"):
                assert migrated(out, f"{name}.json")["name"] == name
            assert migrated(out, "abcdef01.json")["name"] == "own"
        assert {row.done for row in rows} == {"there"}
        # A file that is named like another one's session waits for a name of its own.
        (old / "abcdef02.json").write_text(json.dumps({"session_id": "abcdef01", "name": "d"}))
        (old / "z.json").write_text(json.dumps({"session_id": "abcdef02", "name": "e"}))
        rows = {row.file: row for row in migrate(old, tmp_path / "again")}
        assert rows["abcdef02.json"].target == "abcdef02.json"
        assert (rows["z.json"].done, rows["z.json"].target) == ("migrated", "z.json")

    def test_sessions_of_this_format_are_copied_to_the_other_folder(self, tmp_path):
        (tmp_path / "old").mkdir()
        (tmp_path / "old" / f"{ID}.json").write_text(json.dumps(session()))
        [row] = migrate(tmp_path / "old", tmp_path / "new")
        assert (row.done, row.target) == ("copied", f"{ID}.json")
        assert migrated(tmp_path / "new", f"{ID}.json") == session()

    def test_what_cannot_be_written_is_told_and_the_rest_goes_on(self, tmp_path):
        for made in legacy_sessions(3):
            (tmp_path / made.name).write_text(json.dumps(made.original))
        long_name = "x" * 250 + ".json"  # too long for a kept original beside it
        (tmp_path / long_name).write_text(json.dumps({"session_id": ID, "completed": True}))
        rows = {row.file: row for row in migrate(tmp_path)}
        assert rows[long_name].done == "failed"
        assert "too long" in rows[long_name].detail
        assert Counter(row.done for row in rows.values()) == {"migrated": 3, "failed": 1}
        assert json.loads((tmp_path / long_name).read_text())["completed"] is True

    def test_a_target_that_cannot_be_written_fails_file_by_file(self, tmp_path):
        old = tmp_path / "old"
        old.mkdir()
        for made in legacy_sessions(2):
            (old / made.name).write_text(json.dumps(made.original))
        (tmp_path / "out").write_text("in the way")
        before = tree(tmp_path)
        rows = migrate(old, tmp_path / "out")
        assert [row.done for row in rows] == ["failed", "failed"]
        assert "cannot be written" in rows[0].detail
        assert tree(tmp_path) == before

    def test_two_files_that_would_get_one_name_are_both_told(self, tmp_path):
        old = tmp_path / "old"
        old.mkdir()
        (old / "abcdef01.json").write_text(json.dumps({"session_id": "abcdef01"}))
        (old / "abcdef02.json").write_text(json.dumps({"session_id": "abcdef01"}))
        (old / "abcdef03.json").write_text(json.dumps({"session_id": "abcdef02"}))
        (old / "a.json").write_text(json.dumps({"session_id": "abcdef02"}))
        rows = {row.file: row for row in migrate(old, tmp_path / "out")}
        assert rows["a.json"].target == "abcdef02.json"
        assert rows["abcdef02.json"].done == "failed"
        assert rows["abcdef02.json"].detail.endswith("another file becomes abcdef02.json")
        assert rows["abcdef03.json"].target == "abcdef03.json"

    def test_files_that_cannot_be_read_are_told(self, tmp_path):
        """Root reads everything, so another user looks."""
        if os.geteuid() != 0 or not os.access("/usr/bin/env", os.X_OK):
            path = tmp_path
            closed = path / "closed"
            closed.mkdir()
            (path / "secret.json").write_text("{}")
            (path / "secret.json").chmod(0)
            closed.chmod(0)
            rows = {row.file: row for row in audit(path)}
            closed.chmod(0o700)
        else:
            path = Path(tempfile.mkdtemp(dir="/tmp"))
            path.chmod(0o755)
            (path / "closed").mkdir(mode=0o700)
            (path / "secret.json").write_text("{}")
            (path / "secret.json").chmod(0o600)
            (path / "open.json").write_text(json.dumps({"session_id": ID}))
            reader = os.fork()
            if not reader:
                os.setuid(65534)
                ok = False
                try:
                    rows = {row.file: row.to_plain() for row in audit(path)}
                    ok = (
                        rows["secret.json"]["kind"] == rows["closed"]["kind"] == "damaged"
                        and "cannot be read: Permission denied" in rows["secret.json"]["detail"]
                        and rows["open.json"]["kind"] == "legacy"
                    )
                finally:
                    os._exit(0 if ok else 1)
            _, status = os.waitpid(reader, 0)
            shutil.rmtree(path)
            assert os.waitstatus_to_exitcode(status) == 0
            return
        assert rows["secret.json"].kind == rows["closed"].kind == "damaged"

    def test_secrets_are_not_carried_over(self, tmp_path):
        plain = {"session_id": ID, "completed": True, "env": {"API_KEY": "abc"}}
        plain["note"] = "use hunter2-hunter2"
        (tmp_path / f"{ID}.json").write_text(json.dumps(plain))
        [row] = migrate(tmp_path, secrets=["hunter2-hunter2"], write_legacy_flags=False)
        text = (tmp_path / f"{ID}.json").read_text()
        assert "hunter2" not in text
        assert "abc" not in text
        assert "legacy" not in json.loads(text)
        assert json.loads((tmp_path / row.backup).read_text()) == plain

    def test_there_must_be_a_folder_and_another_one(self, tmp_path):
        with pytest.raises(ConfigurationError, match="no folder"):
            list(audit(tmp_path / "nowhere"))
        (tmp_path / "file").write_text("x")
        with pytest.raises(ConfigurationError, match="no folder"):
            Migration(tmp_path / "file", None, SessionFolder(tmp_path))
        with pytest.raises(ConfigurationError, match="Leave --out away"):
            Migration(tmp_path, tmp_path / "." / "x" / "..", SessionFolder(tmp_path))
        assert next(audit(tmp_path)).kind == "other"

    def test_every_damaged_file_of_the_corpus_has_a_reason_in_words(self, tmp_path):
        for name, raw in DAMAGED.items():
            (tmp_path / f"{name}.json").write_bytes(raw)
        for row in audit(tmp_path):
            assert row.kind == "damaged"
            assert row.detail.startswith(("is ", "holds "))
            assert json.dumps(row.to_plain())
        assert len(DAMAGED) + len(WELL_FORMED) > 20
