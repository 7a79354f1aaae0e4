"""`detent sessions …`: what it prints, and what it leaves alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.main import get_command

from detent.flows.coding.commands.sessions import group
from detent.flows.coding.sessions.folder import SessionFolder
from detent.flows.coding.sessions.legacy import map_legacy
from detent.flows.coding.sessions.record import SessionRecord
from detent.kernel.errors import DetentError
from tests.flows.coding.desk import DONE, Desk, ScriptedModel, says
from tests.flows.coding.sessions.corpus import legacy_sessions, tree
from tests.flows.coding.sessions.test_record import ID, session

SECRET = "hunter2-hunter2"
HOSTILE = "x\x1b[31mred\x1b]0;title\x07\u202e\r\n\tsecond \ud800"


class Ran(NamedTuple):
    """What a command has printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MY_API_KEY", SECRET)
    return tmp_path


@pytest.fixture
def sessions(project, capsys):
    """Run `detent sessions …` in this process."""

    def run(*args: str) -> Ran:
        capsys.readouterr()
        try:
            code = get_command(group)(args=list(args), prog_name="detent sessions", standalone_mode=False)
        except DetentError as error:
            return Ran(error.exit_code, capsys.readouterr().out, str(error))
        printed = capsys.readouterr()
        return Ran(code if type(code) is int else 0, printed.out, printed.err)

    return run


@pytest.fixture
def folder(project: Path) -> SessionFolder:
    return SessionFolder(project / ".detent" / "sessions")


def other(session_id: str, prompt: str, workspace: Path, **changes: Any) -> SessionRecord:
    return SessionRecord.new(session_id, 0.0, workspace=str(workspace)).changed(
        messages=[{"role": "user", "content": prompt}], **changes
    )


class TestList:
    def test_the_newest_is_first_and_damaged_files_are_told(self, sessions, folder, project):
        """C-51"""
        assert "no sessions" in sessions("list").out
        folder.save(SessionRecord.from_plain(session()), now=2.0)
        folder.save(other("abcdef01", f"look\nat {HOSTILE} {SECRET}", project), now=3.0)
        (folder.path / "abcdef02.json").write_text("{")
        (folder.path / "abcdef03.json").write_text(json.dumps({"session_id": "abcdef03", "completed": 1}))
        ran = sessions("list")
        lines = ran.out.splitlines()
        assert ran.code == 0
        assert lines[0].split() == ["SESSION", "STATE", "OUTCOME", "PROMPT", "TURNS", "CHANGED"]
        assert [line.split()[0] for line in lines[1:4]] == ["abcdef01", ID, "abcdef03"]
        assert lines[2].split()[1:5] == ["response,", "complete", "completed", "fix"]
        assert "abcdef02.json cannot be used: it is not JSON" in ran.out
        assert "detent sessions migrate" in ran.out
        assert "\x1b" not in ran.out
        assert SECRET not in ran.out
        listed = sessions("list", "--json").json
        assert [item["id"] for item in listed] == ["abcdef01", ID, "abcdef03", "abcdef02"]
        assert listed[1]["state"] == "response"
        assert listed[1]["files_changed"] == ["p.py"]
        assert listed[3]["problem"].startswith("is not JSON")
        assert [item["id"] for item in sessions("list", "--limit", "1", "--json").json] == [
            "abcdef01", "abcdef02",
        ]  # fmt: skip
        assert "2 more: detent sessions list --limit 3" in sessions("list", "--limit", "1").out

    def test_the_store_says_where_they_lie(self, sessions, project):
        SessionFolder(project / "data" / "sessions").save(SessionRecord.from_plain(session()))
        assert sessions("list", "--store", "data/runs.db", "--json").json[0]["id"] == ID
        assert sessions("list", "--json").json == []


class TestShow:
    def test_a_conversation_is_shown_line_by_line_without_control_sequences(self, sessions, folder):
        """C-56 for files"""
        messages = session()["messages"]
        messages[1]["content"] = f"I look.\n{HOSTILE}"
        messages[1]["tool_calls"][0]["args"] = {"filepath": HOSTILE}
        messages[2] |= {"content": "first\nsecond", "ok": False, "error": "not_found"}
        odd = [{"strange": HOSTILE}, {"role": "system", "content": "s", "tool_calls": 5}, None]
        folder.save(SessionRecord.from_plain(session(messages=[*messages, *odd], outcome_reason=HOSTILE)))
        ran = sessions("show", ID)
        assert ran.code == 0
        assert not {"\x1b", "\x07", "\u202e", "\r", "\ud800"} & set(ran.out)
        lines = ran.out.splitlines()
        assert lines[0] == ID
        assert "state      response, complete" in lines
        assert "[ ] x" in lines
        at = lines.index("user")
        assert lines[at + 1] == "  fix it"
        assert "  I look." in lines
        assert lines[lines.index("tool read_file not_found") + 1 :][:2] == ["  first", "  second"]
        assert any(line.startswith("  → read_file {") for line in lines)
        assert "nudge no_marker" in lines
        assert lines.count("as found") == 2

    def test_an_unfinished_one_shows_what_was_done(self, sessions, folder, project):
        end = {"state": "response", "outcome": "incomplete", "summary": "did\nlittle"}
        folder.save(other("abcdef01", "x", project, **end))
        lines = sessions("show", "abcdef01").out.splitlines()
        assert lines[-3:] == ["not finished", "  did", "  little"]

    def test_it_is_found_by_its_beginning_or_as_the_last(self, sessions, folder, project):
        folder.save(other("abcdef01", "x", project))
        assert sessions("show", "last").out.startswith("abcdef01")
        assert sessions("show", "abc").out.startswith("abcdef01")
        assert sessions("show", "abcdef01", "--json").json["messages"][0]["content"] == "x"
        missing = sessions("show", "abcdef99")
        assert (missing.code, "detent sessions list" in missing.err) == (2, True)
        assert sessions("show", "../../x").code == 2

    def test_an_older_one_is_shown_as_it_would_be_read(self, sessions, folder):
        folder.path.mkdir(parents=True)
        plain = {"session_id": "abcdef01", "task_completed": True, "has_final_synthesis": True,
                 "messages": [{"role": "user", "content": SECRET}], "big": 0}  # fmt: skip
        text = json.dumps(plain).replace('"big": 0', '"big": 1e999')
        (folder.path / "abcdef01.json").write_text(text)
        ran = sessions("show", "abcdef01")
        assert "migrated   ambiguous\n" in ran.out
        assert SECRET not in ran.out
        assert sessions("show", "abcdef01", "--json").json["big"] == "1e999"
        assert (folder.path / "abcdef01.json").read_text() == text

    def test_a_damaged_one_is_refused_with_its_file(self, sessions, folder):
        folder.path.mkdir(parents=True)
        (folder.path / "abcdef01.json").write_text("{")
        ran = sessions("show", "abcdef01")
        assert (ran.code, "abcdef01.json is not JSON" in ran.err) == (2, True)


class TestExport:
    def test_a_session_is_printed_as_its_file_has_it(self, sessions, folder, project):
        file = folder.save(SessionRecord.from_plain(session(note=f"x {SECRET}", password="p")))
        assert sessions("export", ID).json == {
            **json.loads(file.read_text()), "note": "x [removed]", "password": "[removed]",
        }  # fmt: skip
        ran = sessions("export", ID, "--to", "out.json")
        assert (ran.code, ran.out) == (0, "")
        assert json.loads((project / "out.json").read_text())["session_id"] == ID
        assert (project / "out.json").stat().st_mode & 0o777 == 0o600
        again = sessions("export", ID, "--to", "out.json")
        assert (again.code, "exists already" in again.err) == (2, True)
        assert sessions("export", ID, "--to", "nowhere/out.json").code == 2

    def test_the_form_with_booleans_goes_back_and_comes_again(self, sessions, folder):
        """5.3: going back"""
        folder.save(SessionRecord.from_plain(session(workspace="/w", model="m", custom=[1])))
        plain = sessions("export", ID, "--legacy").json
        assert plain["completed"] is plain["task_completed"] is True
        assert (plain["working_directory"], plain["current_model"], plain["custom"]) == ("/w", "m", [1])
        assert not {"schema", "state", "is_complete", "completion", "legacy", "migration"} & plain.keys()
        again = map_legacy(plain, 0.0).record_fields
        assert (again["state"], again["is_complete"], again["workspace"]) == ("response", True, "/w")
        assert again["messages"] == session()["messages"]

    def test_every_place_keeps_its_meaning_on_the_way_there_and_back(self, sessions, folder):
        cases = {
            ("user_input", None): "user_input", ("assistant", None): "assistant",
            ("tool_execution", "cancelled"): "assistant", ("response", "incomplete"): "response",
        }  # fmt: skip
        for (state, outcome), expected in cases.items():
            plain = session(state=state, is_complete=False, completion=None, outcome=outcome)
            if state == "user_input":
                plain["messages"] = plain["messages"][:1]
            folder.save(SessionRecord.from_plain(plain))
            back = map_legacy(sessions("export", ID, "--legacy").json, 0.0).record_fields
            assert (back["state"], back["is_complete"], back["outcome"] == "incomplete") == (
                expected, False, outcome == "incomplete",
            )  # fmt: skip

    def test_one_that_was_never_moved_goes_back_with_the_booleans_it_came_with(self, sessions, folder):
        folder.path.mkdir(parents=True)
        for made in legacy_sessions(84):
            (folder.path / made.name).write_text(json.dumps(made.original))
            session_id = made.name.removesuffix(".json")
            plain = sessions("export", session_id, "--legacy").json
            flags = {name: value for name, value in made.original.items() if name in plain}
            assert {name: plain[name] for name in flags} == {**flags, "messages": plain["messages"]}
            again = map_legacy(plain, 0.0)
            assert again.migration["reason"] == made.expected.reason
            assert again.record_fields["messages"] == map_legacy(made.original, 0.0).record_fields["messages"]


class TestDelete:
    async def test_the_file_goes_and_the_journals_stay(self, project, folder):
        from detent.adapters.stores.sqlite import SQLiteStore

        desk = Desk(project, ScriptedModel([DONE, says("", ("ask", {"question": "?"}))]))
        desk = Desk(project, desk.model, store=SQLiteStore(project / ".detent" / "detent.db"))
        async with desk:
            first = await desk.ask("one")
            second = await desk.ask("two", session=first.session_id)
            folder.save(SessionRecord.new(first.session_id, 0.0, workspace=str(project)))
        ran = await _in_thread(project, "delete", first.session_id)
        assert f"Session {first.session_id} is removed." in ran
        assert "Its last run is open" in ran
        assert f"{second.run_id}, {first.run_id}" in ran
        assert "the journal itself stays" in ran
        assert not list(folder.list())
        async with Desk(project, store=SQLiteStore(project / ".detent" / "detent.db")) as desk:
            assert (await desk.engine.get(first.run_id)).data["outcome"] == "completed"

    def test_without_a_store_there_are_no_runs(self, sessions, folder):
        folder.path.mkdir(parents=True)
        (folder.path / f"{ID}.json").write_text(json.dumps({"session_id": ID, "completed": True}))
        folder.save(folder.load(ID))
        ran = sessions("delete", ID, "--json")
        assert ran.json == {
            "deleted": ID, "runs": [], "open": False, "originals": [str(folder.path / f"{ID}.json.bak")],
        }  # fmt: skip
        assert sessions("delete", ID).code == 2
        (folder.path / f"{ID}.json").write_text("{")
        assert "The original of an older format is still there" in sessions("delete", ID).out


async def _in_thread(project: Path, *args: str) -> str:
    """The output of a command in a process of its own: it has an event loop itself."""
    import asyncio
    import subprocess
    import sys

    program = (
        "import sys; from typer.main import get_command\n"
        "from detent.flows.coding.commands.sessions import group\n"
        "get_command(group)(args=sys.argv[1:], standalone_mode=False)"
    )
    done = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", program, *args], cwd=project, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


class TestOlderSessions:
    def test_an_audit_changes_nothing_and_says_what_would_become(self, sessions, project):
        """C-28"""
        old = project / "old"
        (old / "below").mkdir(parents=True)
        for made in legacy_sessions(84):
            (old / "below" / made.name).write_text(json.dumps(made.original))
        (old / "damaged.json").write_text("{")
        (old / "odd.json").write_text(json.dumps({"session_id": "abcdef01", "completed": SECRET}))
        before = tree(project)
        ran = sessions("audit", "old")
        assert ran.code == 0
        assert "86 files: 85 legacy, 1 damaged." in ran.out
        assert "ambiguous" in ran.out
        assert "detent sessions migrate old" in ran.out
        assert SECRET not in ran.out
        report = sessions("audit", "old", "--json")
        assert (report.code, len(report.json["files"])) == (0, 86)
        assert SECRET not in report.out
        assert report.json["counts"]["by_kind"] == {"legacy": 85, "damaged": 1}
        row = next(row for row in report.json["files"] if row["reason"] == "ambiguous")
        assert row["ambiguous"] is True
        assert row["flags"]
        assert tree(project) == before
        nowhere = sessions("audit", "nowhere")
        assert (nowhere.code, "no folder" in nowhere.err) == (2, True)

    def test_a_migration_reports_what_it_did(self, sessions, project):
        old = project / "old"
        old.mkdir()
        for made in legacy_sessions(5):
            (old / made.name).write_text(json.dumps(made.original))
        (old / "damaged.json").write_text("{")
        ran = sessions("migrate", "old", "--out", "new")
        assert (ran.code, "Migration: 1 damaged, 5 migrated." in ran.out) == (1, True)
        assert "Not migrated: 1 damaged file, left as found." in ran.out
        assert "see --into-project" in ran.out
        assert "damaged.json" in ran.out
        assert ".bak" not in ran.out
        ran = sessions("migrate", "old", "--json")
        assert ran.json["counts"]["done"] == {"damaged": 1, "migrated": 5}
        assert ran.json["files"][0]["backup"].endswith(".json.bak")
        assert "Migration: 1 damaged, 10 unchanged." in sessions("migrate", "old").out
        assert sum(1 for _ in (project / "new").iterdir()) == 5

    def test_a_failed_file_makes_the_exit_code(self, sessions, project):
        name = "x" * 250 + ".json"
        (project / name).write_text(json.dumps({"session_id": ID, "completed": True}))
        ran = sessions("migrate", ".")
        assert (ran.code, "Not migrated: xxx" in ran.out) == (1, True)
        assert sessions("migrate", ".", "--json").code == 1

    def test_the_setting_for_booleans_is_heeded(self, sessions, project):
        (project / "detent.yaml").write_text("coding:\n  write_legacy_flags: false\n")
        (project / "old").mkdir()
        (project / "old" / f"{ID}.json").write_text(json.dumps({"session_id": ID, "completed": True}))
        ran = sessions("migrate", "old")
        if "unknown heading" in ran.err:
            pytest.skip("the kind is not installed as a plug")
        assert ran.code == 0, ran.err
        assert "legacy" not in json.loads((project / "old" / f"{ID}.json").read_text())
        assert "secrets are still in those" in ran.out


def test_help_lists_the_commands(sessions, capsys):
    help_text = sessions("--help").out
    for command in ("list", "show", "export", "delete", "audit", "migrate"):
        assert f"  {command} " in help_text
