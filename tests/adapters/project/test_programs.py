"""Programs end with the process that ran them, however that ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from detent.adapters.project.programs import run_program
from detent.engine.tools import ToolError
from tests.engine.conftest import until

WORKER = """
import asyncio, os, pathlib
from detent.adapters.project.programs import run_program

command = "echo $$ > group; (sleep 60; touch late) & sleep 60"
asyncio.run(run_program(["sh", "-c", command], cwd=pathlib.Path("."), env=dict(os.environ), timeout=90))
"""


async def run(folder: Path, *argv: str, **options):
    return await run_program(argv, cwd=folder, env=dict(os.environ), timeout=20, **options)


async def test_what_a_killed_worker_had_running_ends_with_it(tmp_path):
    """Else whoever takes the run over finds "not done" while it is being done."""
    process = subprocess.Popen([sys.executable, "-c", WORKER], cwd=tmp_path)
    group = tmp_path / "group"
    await until(lambda: group.exists() and group.read_text().strip())
    process.kill()
    process.wait()
    await until(lambda: _running(int(group.read_text())) == [])
    assert not (tmp_path / "late").exists()


async def test_a_program_that_waits_for_all_its_children_waits_for_its_own(tmp_path):
    waits = (
        "import os\ntry:\n    while True: os.wait()\nexcept ChildProcessError:\n    print('none are left')"
    )
    assert (await run(tmp_path, sys.executable, "-c", waits)).out == b"none are left\n"


async def test_what_a_program_leaves_running_may_go_on_where_that_is_allowed(tmp_path):
    await run(tmp_path, "sh", "-c", "(sleep 0.3; echo late > late) >/dev/null 2>&1 &", strays=False)
    await until(lambda: (tmp_path / "late").exists())


async def test_a_program_is_given_its_arguments_and_input_as_they_are(tmp_path):
    show = "import sys; print(sys.argv[1:])"
    ran = await run(tmp_path, sys.executable, "-c", show, "-x", "$HOME", "a b", "")
    assert ran.out.decode().strip() == "['-x', '$HOME', 'a b', '']"
    assert (await run(tmp_path, "cat", stdin=b"said")).out == b"said"


async def test_no_descriptor_of_ours_reaches_a_program(tmp_path):
    if os.path.exists("/proc/self/fd"):
        listing = "import os; print(sorted(os.listdir('/proc/self/fd')))"
        assert (await run(tmp_path, sys.executable, "-c", listing)).out == b"['0', '1', '2', '3']\n"


@pytest.mark.parametrize("name", ["no-such-program", "./no-such-file", "folder/"])
async def test_a_program_that_is_not_there_is_said_to_be_missing(tmp_path, name):
    (tmp_path / "folder").mkdir()
    with pytest.raises(ToolError) as caught:
        await run(tmp_path, name)
    assert caught.value.code == "no_program"


def _running(group: int) -> list[str]:
    """States of the processes of a group, zombies left out."""
    asked = subprocess.run(["ps", "-e", "-o", "pgid=,stat="], capture_output=True, text=True, check=True)
    rows = (line.split() for line in asked.stdout.splitlines())
    return [state for pgid, state in rows if int(pgid) == group and not state.startswith("Z")]
