"""The tools of a project: what they are called, and the ground they stand on."""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path

import pytest

from detent.adapters.project import project_tools
from detent.adapters.project.effect_notes import folder_of, safe
from detent.adapters.project.http import _retry_after
from detent.adapters.project.programs import TimedOut, run_program
from detent.adapters.project.sandbox import Sandbox
from detent.engine.tools import Toolbox, ToolError

QUERIES = {
    "files.read", "files.list", "files.stat", "text.find", "text.test", "text.substitute", "shell.read",
    "git.status", "git.diff", "git.log", "git.head", "http.fetch", "table.read",
}  # fmt: skip
EFFECTS = {
    "files.write", "files.delete", "files.restore", "shell.run", "git.stage", "git.unstage", "git.commit",
    "git.reset", "git.push", "git.branch", "db.upsert", "db.restore", "notify.send",
}  # fmt: skip


@pytest.fixture
def project(tmp_path: Path) -> Sandbox:
    (tmp_path / "root").mkdir()
    return Sandbox(tmp_path / "root", tmp_path / "state")


def test_every_tool_has_a_name_words_and_a_schema(tmp_path):
    tools = project_tools(tmp_path, tmp_path / "state")
    Toolbox(tools)
    assert {tool.name for tool in tools if tool.kind == "query"} == QUERIES
    assert {tool.name for tool in tools if tool.kind == "effect"} == EFFECTS
    for tool in tools:
        assert tool.description, tool.name
        assert tool.schema["type"] == "object", tool.name
        assert "call" not in tool.schema["properties"], tool.name


def test_every_effect_but_a_program_can_be_settled_after_a_crash(tmp_path):
    blind = {
        tool.name
        for tool in project_tools(tmp_path, tmp_path / "state")
        if tool.kind == "effect" and not tool.idempotent and tool.probe is None
    }
    assert blind == {"shell.run"}


def test_making_the_tools_touches_nothing(tmp_path):
    project_tools(tmp_path / "root", tmp_path / "state")
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_written_whole_or_not_at_all(project):
    place = project.root / "a.txt"
    place.write_text("old")

    def fails(file):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(ToolError) as caught:
        project.write(place, fails)
    assert caught.value.transient
    assert place.read_text() == "old"
    assert [one.name for one in project.root.iterdir()] == ["a.txt"]
    assert list((project.state / "tmp").iterdir()) == []


def test_what_runs_keep_is_for_its_owner_alone(project):
    project.keep(project.state / "x", b"x")
    assert stat.S_IMODE((project.state / "x").stat().st_mode) == 0o600


def test_the_files_beside_a_protected_database_are_protected(tmp_path):
    project = Sandbox(tmp_path, tmp_path / "state", [tmp_path / "runs.db"])
    for name in ("runs.db", "runs.db-wal", "runs.db-shm", "runs.db-journal", "state/x"):
        with pytest.raises(ToolError, match="protected"):
            project.writable(name)
    assert project.writable("runs.db2")


def test_runs_have_folders_of_their_own_whatever_they_are_called():
    assert safe("r1") == "r1"
    odd = ["../x", "a/b", "", ".", "..", "ü", "x" * 200, "a b", "Release", "release-1.2", "release-1.3"]
    odd.append(safe("a b"))  # itself the look of a name that was made up
    names = {safe(one).casefold() for one in odd}
    assert len(names) == len(odd)
    assert all(name.startswith("_") and "/" not in name and "." not in name for name in names)


def test_the_folder_that_an_earlier_version_made_for_a_run_is_still_its_own(tmp_path):
    assert folder_of(tmp_path, "Order17").name.startswith("_")
    (tmp_path / "Order17").mkdir()
    assert folder_of(tmp_path, "Order17").name == "Order17"
    assert folder_of(tmp_path, "ORDER17").name.startswith("_")


async def test_a_program_that_is_no_longer_wanted_is_ended(tmp_path):
    """Cancelling, as when the engine stops, leaves nothing running."""
    env = {"PATH": os.environ["PATH"]}
    argv = ["sh", "-c", "echo $$ > pid; exec sleep 600"]
    running = asyncio.ensure_future(run_program(argv, cwd=tmp_path, env=env, timeout=60))
    async with asyncio.timeout(20):
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().strip():
            await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    pid = int((tmp_path / "pid").read_text())
    async with asyncio.timeout(20):
        while _runs(pid):
            await asyncio.sleep(0.01)


def _runs(pid: int) -> bool:
    try:
        return not Path(f"/proc/{pid}/stat").read_text().split(") ")[1].startswith("Z")
    except FileNotFoundError:
        return False


async def test_one_that_left_its_group_is_not_waited_for(tmp_path):
    """It inherited the output and holds it open."""
    env = {"PATH": os.environ["PATH"]}
    ran = await run_program(["sh", "-c", "setsid sleep 5 & echo hi"], cwd=tmp_path, env=env, timeout=30)
    assert (ran.code, ran.out) == (0, b"hi\n")


async def test_input_and_a_full_output(tmp_path):
    env = {"PATH": os.environ["PATH"]}
    ran = await run_program(
        ["cat"], cwd=tmp_path, env=env, timeout=30, stdin=b"x" * 1_000_000, head=2_000_000
    )
    assert (len(ran.out), ran.out_cut) == (1_000_000, 0)
    ran = await run_program(["yes"], cwd=tmp_path, env=env, timeout=30, head=1000, stop_when_full=True)
    assert len(ran.out) == 1000
    with pytest.raises(TimedOut):
        await run_program(["yes"], cwd=tmp_path, env=env, timeout=0.2, head=1000)


@pytest.mark.parametrize(
    ("said", "seconds"),
    [("7", 7), ("99999999", 3600), (None, None), ("soon", None), ("Wed, 21 Oct 2015 07:28:00 GMT", 0)],
)
def test_how_long_a_server_asks_us_to_wait(said, seconds):
    assert _retry_after(said) == seconds
