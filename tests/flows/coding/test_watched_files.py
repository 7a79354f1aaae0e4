"""Which files of a check a command has changed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from detent.flows.coding.check_parts import parts_of
from detent.flows.coding.options import RequestOptions
from detent.flows.coding.watched_files import WatchedFiles, changed
from tests.flows.coding.desk import DONE, Desk, ScriptedModel, says


def test_changes_are_told_by_content(tmp_path: Path):
    for path in (
        "tests/a.py",
        "tests/b.py",
        "tests/c.py",
        "src/d.py",
        "node_modules/x/test/e.js",
        ".x/test_f.py",
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("1")
    files, parts = WatchedFiles(), parts_of("true")
    before = files.contents(tmp_path, parts)
    assert sorted(before) == ["tests/a.py", "tests/b.py", "tests/c.py"]
    (tmp_path / "tests/a.py").write_text("1")
    (tmp_path / "tests/b.py").write_text("2")
    (tmp_path / "tests/c.py").unlink()
    (tmp_path / "src/test_new.py").write_text("")
    (tmp_path / "src/d.py").write_text("2")
    assert changed(before, files.contents(tmp_path, parts)) == ["src/test_new.py", "tests/b.py", "tests/c.py"]


def _link(folder: Path, name: str, to: str) -> None:
    (folder / name).unlink()
    (folder / name).symlink_to(to)


WAYS: list[tuple[str, str, Callable[[Path], object]]] = [
    ("python3 check.py", "check.py", lambda folder: (folder / "check.py").write_text("2")),
    ("sh .ci/verify", ".ci/verify", lambda folder: (folder / ".ci/verify").write_text("2")),
    ("make -C .ci", ".ci/Makefile", lambda folder: (folder / ".ci/Makefile").write_text("2")),
    ("make test", "GNUmakefile", lambda folder: (folder / "GNUmakefile").symlink_to("check.py")),
    ("make test", "tests", lambda folder: _link(folder, "tests", "src")),
    ("./check", "check", lambda folder: _link(folder, "check", "gone")),
    ("make test", "link/a_test.py", lambda folder: (folder / "check.py").write_text("2")),
]


@pytest.mark.parametrize(("check", "path", "change"), WAYS)
def test_whatever_a_check_runs_is_seen_to_change(
    tmp_path: Path, check: str, path: str, change: Callable[[Path], object]
):
    for folder in ("src", ".ci", "cases", "link"):
        (tmp_path / folder).mkdir()
    (tmp_path / "tests").symlink_to("cases")
    (tmp_path / "check").symlink_to("check.py")
    (tmp_path / "link/a_test.py").symlink_to("../check.py")
    for name in ("check.py", ".ci/verify", ".ci/Makefile"):
        (tmp_path / name).write_text("1")
    files, parts = WatchedFiles(), parts_of(check)
    before = files.contents(tmp_path, parts)
    change(tmp_path)
    assert path in changed(before, files.contents(tmp_path, parts))


def test_nothing_outside_the_workspace_is_looked_at(tmp_path: Path):
    (tmp_path / "inside").mkdir()
    (tmp_path / "check.sh").write_text("")
    assert not WatchedFiles().contents(tmp_path / "inside", parts_of(f"../check.sh && {tmp_path}/check.sh"))


def test_a_pipe_among_the_tests_is_not_waited_for(tmp_path: Path):
    (tmp_path / "tests").mkdir()
    files, parts = WatchedFiles(), parts_of("true")
    before = files.contents(tmp_path, parts)
    os.mkfifo(tmp_path / "tests/pipe")
    assert changed(before, files.contents(tmp_path, parts)) == ["tests/pipe"]


async def test_no_number_of_other_scripts_hides_the_one_that_a_check_runs(tmp_path: Path):
    command = "for i in $(seq 30); do echo >a$i.sh; done; echo >z.sh"
    model = ScriptedModel([says("", ("bash", {"command": command})), DONE])
    async with Desk(tmp_path, model) as desk:
        result = await desk.ask("make it pass", RequestOptions(yes=True, done_when="sh z.sh"))
    assert (result.checked, result.tests_edited) == ("passed", ("z.sh",))


async def test_a_check_that_was_made_to_pass_is_named_as_such(tmp_path: Path):
    """Whether by a file tool or by a command; a script that the check does not run is none of it."""
    (tmp_path / "Makefile").write_text("test:\n\tfalse\n")
    edit = ("update_file", {"filepath": "Makefile", "target": "false", "patch": "true"})
    other = ("write_file", {"filepath": "a.py", "content": "x = 1\n", "overwrite": True})
    by_command = ("bash", {"command": "printf 'test:\\n\\ttrue\\n' > Makefile; echo x > other.sh"})
    for call in (edit, by_command):
        (tmp_path / "Makefile").write_text("test:\n\tfalse\n")
        (tmp_path / "a.py").unlink(missing_ok=True)
        async with Desk(tmp_path, ScriptedModel([says("", call, other), DONE])) as desk:
            result = await desk.ask("make it pass", RequestOptions(yes=True, done_when="make test"))
        assert (result.checked, result.tests_edited) == ("passed", ("Makefile",))
        assert "a.py" in result.files_changed


@pytest.mark.parametrize("check", ["test -e tests/test_a.py", None])
async def test_tests_that_a_command_has_changed_are_named_where_a_check_passed(tmp_path: Path, check):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text("def test_a(): assert broken()\n")
    command = "echo 'def test_a(): pass' > tests/test_a.py; echo x > a.py"
    model = ScriptedModel(
        [says("", ("bash", {"command": command})), says("", ("bash", {"command": "ls"})), DONE]
    )
    async with Desk(tmp_path, model) as desk:
        result = await desk.ask("make the tests pass", RequestOptions(yes=True, done_when=check))
    assert result.done
    assert result.tests_edited == (("tests/test_a.py",) if check else ())
    assert result.files_changed == ()


async def test_tests_that_a_sub_task_has_changed_through_a_command_are_named(tmp_path: Path):
    task = ("task", {"description": "fix", "prompt": "fix it", "profile": "worker"})
    edit = ("bash", {"command": "mkdir test; echo x > test/a.js"})
    model = ScriptedModel([says("", task), says("", edit), DONE, DONE])
    async with Desk(tmp_path, model) as desk:
        result = await desk.ask("go", RequestOptions(yes=True, done_when="true"))
    assert result.tests_edited == ("test/a.js",)
