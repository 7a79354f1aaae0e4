"""Session files and the store beside each other: what one lacks, the other has."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time

from detent.flows.coding.sessions.folder import SessionFolder
from tests.flows.coding.terminal.model_server import ModelServer, says
from tests.flows.coding.terminal.test_run_command import Project, project, served

__all__ = ["project", "served"]
OLD = {"session_id": "abcdef0123", "messages": [{"role": "user", "content": "an old one"}], "completed": True}


def _folder(project: Project) -> SessionFolder:
    return SessionFolder(project.folder / ".detent" / "sessions")


def test_a_session_without_a_file_is_listed_shown_and_gone_on_with(project: Project) -> None:
    project.coding("show a.py")
    (file,) = _folder(project).path.glob("*.json")
    file.unlink()
    session = file.stem
    listed = project("sessions", "list")
    assert "show a.py" in listed.out
    assert f"{session} has no file yet, only its journals" in listed.out
    assert json.loads(project("sessions", "list", "--json").out)[0]["in_store_only"] is True
    assert "showed a.py" in project("sessions", "show", session[:20]).out
    assert json.loads(project("sessions", "export", session).out)["session_id"] == session
    assert project.coding("list files", "--session", session).code == 0
    assert file.exists()
    assert project("sessions", "show", "2020").code == 2


def test_a_request_that_waits_after_a_resume_has_its_file(project: Project, served: ModelServer) -> None:
    command = ("bash", {"command": "touch here; sleep 60"})
    served.rule = lambda asked: says("TUNACODE DONE: x") if asked.turn else says("I run it.\n", command)
    agent = "model: {provider: house}\ncoding: {sandbox: false, steps: {assistant: {mode: agent}}}\n"
    (project.folder / "detent.yaml").write_text(agent + served.settings)
    words = [sys.executable, "-m", "detent", "run", "coding", "go", "--yes"]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while not (project.folder / "here").exists():
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGKILL)
    assert "has no file yet" in project("sessions", "list").out
    project("resume", "--all")
    (item,) = _folder(project).list()
    assert item.outcome == "waiting"


def test_a_deleted_session_is_gone_for_every_command(project: Project) -> None:
    project.coding("show a.py")
    project.coding("list files")
    first = _folder(project).list()[1].id
    last = _folder(project).list()[0].id
    project("sessions", "delete", last)
    assert last not in project("sessions", "list").out
    assert project("sessions", "show", last).code == 2
    refused = project.coding("show a.py", "--session", last)
    assert (refused.code, "There is no session" in refused.err) == (2, True)
    project.coding("show a.py", "--session", "last")
    assert _folder(project).existing(first).assistant_turns == 4


def test_a_damaged_file_is_told_of_once_and_left_alone(project: Project) -> None:
    project.coding("show a.py")
    (file,) = _folder(project).path.glob("*.json")
    file.write_bytes(file.read_bytes()[:100])
    ran = project.coding("list files", "--session", file.stem)
    assert ran.code == 0
    assert ran.err.count("The session is not being written to its file") == 1
    assert file.stat().st_size == 100


def test_a_file_that_another_program_has_changed_is_written_anew_and_the_difference_told(
    project: Project,
) -> None:
    project.coding("show a.py")
    (file,) = _folder(project).path.glob("*.json")
    text = file.read_text()
    assert not project.coding("show a.py", "--session", file.stem).err
    assert "FORGED" not in file.read_text()
    text = file.read_text().replace('"content": "show a.py"', '"content": "FORGED"')
    file.write_text(text.replace('"checked": "none"', '"checked": "passed"'))
    ran = project.coding("list files", "--session", file.stem)
    assert "was changed by another program" in ran.err
    assert "checked: the file has 'passed', the journal 'none'." in ran.err
    assert "messages: number 1 is not the one in the journal." in ran.err
    assert "FORGED" not in file.read_text()


def test_an_older_session_is_used_under_whatever_name_its_file_has(project: Project) -> None:
    folder = _folder(project)
    folder.path.mkdir(parents=True)
    (folder.path / "my chat.json").write_text(json.dumps(OLD))
    assert "abcdef0123" in project("sessions", "list").out
    assert "an old one" in project("sessions", "show", "abcdef").out
    assert project.coding("show a.py", "--session", "abcdef").code == 0
    assert json.loads((folder.path / "my chat.json").read_text()) == OLD  # the original stays
    assert [message["content"] for message in folder.existing("abcdef0123").messages][:2] == [
        "an old one", "show a.py"
    ]  # fmt: skip
    listed = project("sessions", "list")
    assert "my chat.json cannot be used: it holds the session abcdef0123" in listed.out


def test_older_sessions_are_migrated_into_the_project(project: Project) -> None:
    old = project.folder / "old" / "sub"
    old.mkdir(parents=True)
    (old / "my chat.json").write_text(json.dumps(OLD))
    (old / "damaged.json").write_text("{")
    ran = project("sessions", "migrate", "old", "--out", "new")
    assert ran.code == 1
    assert f"they must be in {_folder(project).path}: see --into-project" in ran.out
    assert "Not migrated: 1 damaged file" in ran.out
    (old / "damaged.json").unlink()
    ran = project("sessions", "migrate", "old", "--into-project")
    assert ran.code == 0
    assert "an old one" in project("sessions", "show", "abcdef").out
    assert (_folder(project).path / "abcdef0123.json").exists()


def test_what_an_audit_found_is_said_in_words(project: Project) -> None:
    (project.folder / "old").mkdir()
    ambiguous = {**OLD, "processing": True}
    (project.folder / "old" / "abcdef0123.json").write_text(json.dumps(ambiguous))
    done = {"role": "assistant", "content": "TUNACODE DONE: yes"}
    marked = {"session_id": "abcdef0124", "messages": [done], "completed": False}
    (project.folder / "old" / "abcdef0124.json").write_text(json.dumps(marked))
    out = project("sessions", "audit", "old").out
    assert "ambiguous (ambiguous)" not in out
    assert re.search("its last reply says done, its booleans do not", out)
