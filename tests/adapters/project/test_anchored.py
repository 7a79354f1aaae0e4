"""A link that another process puts in place of a folder leads no write out of the project."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from detent.adapters.project import project_tools
from detent.adapters.project.sandbox import Sandbox
from detent.adapters.project.text_files import TextFiles
from detent.engine.tools import EffectCall, ToolError
from tests.examples import ALL

SWAPS, ATTEMPTS = 2_000_000, 4000 if ALL else 300
SWAPPER = """
import os, sys
folder, outside, stop, swaps = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
print("ready", flush=True)
for _ in range(swaps):
    os.rename(folder, folder + ".real")
    os.symlink(outside, folder)
    os.unlink(folder)
    os.rename(folder + ".real", folder)
    if os.path.exists(stop):
        break
"""


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    project, outside = tmp_path / "project", tmp_path / "outside"
    for one in (project / "letters", outside):
        one.mkdir(parents=True)
    return project, outside


def swapping(project: Path, outside: Path, stop: Path, folder: str = "letters") -> subprocess.Popen[str]:
    args = [str(project / folder), str(outside), str(stop), str(SWAPS)]
    process = subprocess.Popen([sys.executable, "-c", SWAPPER, *args], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_no_write_follows_a_link_that_another_process_swaps_in(places, tmp_path):
    project, outside = places
    tools = {tool.name: tool for tool in project_tools(project, project / ".detent")}
    write, delete, restore = (tools[f"files.{name}"].perform for name in ("write", "delete", "restore"))
    (outside / "keep.txt").write_text("not ours")
    process = swapping(project, outside, tmp_path / "stop")
    written = refused = 0
    for _ in range(ATTEMPTS):
        call = EffectCall("r", f"k{written + refused}", 1)
        try:
            write(call, path=f"letters/{(written + refused) % 50}.txt", text="x", if_exists="replace")
            written += 1
            delete(call._replace(key=f"d{call.key}"), path="letters/keep.txt", missing_ok=True)
            restore(call._replace(key=f"r{call.key}"), paths=[f"letters/{(written + refused) % 50}.txt"])
        except (ToolError, OSError):
            refused += 1
    (tmp_path / "stop").touch()
    process.communicate()
    assert os.listdir(outside) == ["keep.txt"]
    assert written > 0


def test_no_function_of_a_playbook_follows_a_link_that_is_swapped_in(places, tmp_path):
    project, outside = places
    files = TextFiles(project)
    process = swapping(project, outside, tmp_path / "stop")
    written = 0
    for number in range(ATTEMPTS):
        try:
            files.write(f"letters/{number % 50}.txt", str(number), replace=True)
            written += 1
        except (ToolError, OSError):
            pass
    (tmp_path / "stop").touch()
    process.communicate()
    assert os.listdir(outside) == []
    assert written > 0


def test_a_folder_that_becomes_a_link_while_a_file_is_written_leads_nowhere(places):
    project, outside = places

    def write(file):
        (project / "letters").rename(project / "letters.real")
        (project / "letters").symlink_to(outside)
        file.write(b"x")

    Sandbox(project, project / ".detent").write(project / "letters/a.txt", write)
    assert os.listdir(outside) == []
    assert (project / "letters.real/a.txt").read_bytes() == b"x"


@pytest.mark.parametrize("inner", ["letters", "letters/deep"])
def test_a_path_with_a_link_in_it_is_refused_when_it_is_used(places, inner):
    project, outside = places
    (outside / "deep").mkdir()
    (outside / "a.txt").write_text("secret")
    (outside / "deep/a.txt").write_text("secret")
    (project / "letters").rmdir()
    (project / "letters").symlink_to(outside)
    ground = Sandbox(project, project / ".detent")
    place = project / inner / "a.txt"
    with pytest.raises(ToolError, match="cannot be written"):
        ground.write(place, lambda file: None)
    with pytest.raises(ToolError, match="cannot be read"):
        ground.fingerprint(place)
    with pytest.raises(ToolError, match="cannot be read"):
        ground.content(place, 100, "a.txt")
    with pytest.raises(OSError, match=r"."):
        ground.remove(place)
    assert (outside / "a.txt").read_text() == "secret"


def test_a_link_to_a_folder_of_the_project_is_followed_as_before(places):
    project, _ = places
    (project / "post").symlink_to("letters")
    write = {tool.name: tool for tool in project_tools(project, project / ".detent")}["files.write"].perform
    write(EffectCall("r", "k", 1), path="post/a.txt", text="x")
    assert (project / "letters/a.txt").read_text() == "x"


def test_backups_and_notes_are_not_written_through_a_link(places):
    project, outside = places
    write = {tool.name: tool for tool in project_tools(project, project / ".detent")}["files.write"].perform
    (project / ".detent").mkdir()
    (project / ".detent/footprints").symlink_to(outside)
    with pytest.raises(ToolError, match="cannot be written"):
        write(EffectCall("r", "k", 1), path="letters/a.txt", text="x")
    assert os.listdir(outside) == []


def test_what_runs_keep_is_for_its_owner_alone(places):
    project, _ = places
    write = {tool.name: tool for tool in project_tools(project, project / ".detent")}["files.write"].perform
    (project / "letters/a.txt").write_text("before")
    before = os.umask(0o022)
    try:
        write(EffectCall("r", "k", 1), path="letters/a.txt", text="x")
    finally:
        os.umask(before)
    for here, _, names in os.walk(project / ".detent"):
        assert stat.S_IMODE(os.stat(here).st_mode) == 0o700
        for name in names:
            assert stat.S_IMODE(os.stat(Path(here) / name).st_mode) == 0o600, name
    assert stat.S_IMODE((project / "letters/a.txt").stat().st_mode) == 0o644
