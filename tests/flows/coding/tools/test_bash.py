"""The tool `bash`: what it passes to a command, what comes back, and that nothing of a command is left."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from detent.adapters.project.confinement import confinement
from detent.adapters.project.processes import still_runs
from detent.adapters.stores.sqlite import SQLiteStore
from detent.engine.engine import Engine
from detent.engine.flow import Flow
from detent.engine.outcome import Outcome
from detent.engine.tools import EffectCall, ToolError
from detent.flows.coding.tools.bash import bash_tool
from detent.flows.coding.tools.spec import SPECS, ToolSettings, problems
from detent.kernel.status import Status
from tests.adapters.project.test_confinement import sleepers
from tests.engine.conftest import one_step, until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="process groups are POSIX")
PLAIN = ToolSettings(sandbox=False)
IDLE = "sleep 31415926"


async def bash(root: Path, command: str, settings: ToolSettings = PLAIN, **args: Any) -> dict[str, Any]:
    """The receipt of a command."""
    tool = bash_tool(settings)
    receipt: dict[str, Any] = await tool.perform(
        EffectCall("r", "k", 1), workspace=str(root), command=command, **args
    )
    return receipt


async def code(root: Path, command: str = "touch made", **args: Any) -> str:
    """The code of a command that was not run."""
    with pytest.raises(ToolError) as caught:
        await bash(root, command, **args)
    assert not (root / "made").exists()
    return caught.value.code


class TestReceipt:
    async def test_it_has_output_and_exit_code(self, tmp_path):
        receipt = await bash(tmp_path, "echo out; echo err >&2; echo out")
        assert receipt.pop("seconds") > 0
        assert receipt == {
            "content": "out\nerr\nout\n[exit code 0]", "ok": True, "truncated": False, "paths": [],
            "exit_code": 0,
        }  # fmt: skip

    @pytest.mark.parametrize(
        ("command", "number"), [("exit 3", 3), ("kill -9 $$", 137), ("no-such-program", 127), ("false", 1)]
    )
    async def test_a_command_that_failed_was_performed(self, tmp_path, command, number):
        for settings in (PLAIN, ToolSettings()):
            receipt = await bash(tmp_path, command, settings)
            assert (receipt["ok"], receipt["error"], receipt["exit_code"]) == (False, "nonzero_exit", number)
            assert receipt["content"].endswith(f"[exit code {number}]")

    async def test_it_is_over_when_its_shell_is(self, tmp_path):
        """Not when its output is closed, which this one holds open."""
        for settings in (PLAIN, ToolSettings()):
            receipt = await bash(tmp_path, f"{IDLE} & echo hi", settings)
            assert receipt["ok"]
            assert receipt["content"] == "hi\n[exit code 0; processes it had left running were ended]"
            assert receipt["seconds"] < 60
            await until(lambda: not sleepers(IDLE))

    async def test_at_its_time_limit_it_is_ended_and_what_it_said_is_kept(self, tmp_path):
        for settings in (PLAIN, ToolSettings()):
            receipt = await bash(tmp_path, f"echo begun; {IDLE}", settings, timeout=0.3)
            assert (receipt["ok"], receipt["error"]) == (False, "timeout")
            assert "exit_code" not in receipt
            assert receipt["content"].startswith("begun\n[It was not over within 0.3 s and was ended")
            await until(lambda: not sleepers(IDLE))

    async def test_there_is_no_input(self, tmp_path):
        assert (await bash(tmp_path, "read line || echo none"))["content"].startswith("none\n")

    @pytest.mark.parametrize(
        ("length", "cut"), [(3499, False), (3500, False), (3501, True), (14_000, True), (2_000_000, True)]
    )
    @pytest.mark.parametrize("letter", ["x", "\N{EURO SIGN}"])
    async def test_a_long_output_is_cut_in_the_middle(self, tmp_path, length, cut, letter):
        (tmp_path / "text").write_text("<" + letter * (length - 2) + ">")
        receipt = await bash(tmp_path, "cat text")
        assert receipt["truncated"] is cut
        text = receipt["content"].removesuffix("\n[exit code 0]")
        if not cut:
            assert text == (tmp_path / "text").read_text()
            return
        head, note, tail = text.split("\n")
        assert (head, tail) == ("<" + letter * 2499, letter * 999 + ">")
        assert note.startswith("[… ")
        if length == 3501:
            assert note == "[… 1 characters are left out …]"

    async def test_bytes_that_are_no_text_are_replaced(self, tmp_path):
        receipt = await bash(tmp_path, r"printf 'a\0\377b\n'")
        assert receipt["content"] == "a\ufffd\ufffdb\n[exit code 0]"

    async def test_output_without_end_is_bounded(self, tmp_path):
        receipt = await bash(tmp_path, "yes", timeout=0.3)
        assert receipt["error"] == "timeout"
        assert receipt["truncated"]
        assert len(receipt["content"]) < 3800

    async def test_it_is_written_for_bash(self, tmp_path):
        """Assistants write `[[ ]]`, arrays and pipefail."""
        receipt = await bash(tmp_path, "set -o pipefail; a=(1 2); [[ ${a[1]} == 2 ]] && false | true")
        assert receipt["exit_code"] == 1


ENVIRON = {
    "PATH": os.environ["PATH"], "HOME": "/home/ann", "LANG": "C.UTF-8", "LC_TIME": "C", "TERM": "dumb",
    "TMPDIR": "/tmp", "VIRTUAL_ENV": "/v", "ANTHROPIC_API_KEY": "s3cret", "DETENT_INPUT_X": "s3cret",
    "GITHUB_TOKEN": "s3cret", "PASSED": "seen", "BASH_ENV": "/nowhere", "LD_PRELOAD": "/nowhere",
}  # fmt: skip
BY_SHELL = {"PWD", "SHLVL", "_", "OLDPWD"}


class TestVariables:
    async def seen(self, root: Path, pass_env: tuple[str, ...] = (), **args: Any) -> dict[str, str]:
        for sandbox in (False, None):
            settings = ToolSettings(sandbox=sandbox, environ=ENVIRON, pass_env=pass_env)
            text = (await bash(root, "env", settings, **args))["content"]
            pairs = dict(line.partition("=")[::2] for line in text.splitlines()[:-1])
        return {name: value for name, value in pairs.items() if name not in BY_SHELL}

    async def test_a_command_is_given_the_named_ones_only(self, tmp_path):
        usual = {"PATH", "HOME", "LANG", "LC_TIME", "TERM", "TMPDIR", "VIRTUAL_ENV"}
        assert set(await self.seen(tmp_path)) == usual
        assert set(await self.seen(tmp_path, ("PASSED", "ABSENT"))) == usual | {"PASSED"}

    async def test_a_call_may_add_some(self, tmp_path):
        seen = await self.seen(tmp_path, env={"HOME": "/elsewhere", "LINES": "a\nb=c"})
        assert (seen["HOME"], seen["LINES"]) == ("/elsewhere", "a")

    async def test_the_shell_is_not_found_where_a_call_says(self, tmp_path):
        (tmp_path / "bash").write_text("#!/bin/sh\ntouch made\n")
        (tmp_path / "bash").chmod(0o755)
        await bash(tmp_path, "true", env={"PATH": str(tmp_path)})
        assert not (tmp_path / "made").exists()


class TestRefusals:
    async def test_what_was_refused_has_not_run(self, tmp_path):
        root = tmp_path / "ws"
        root.mkdir()
        (root / "link").symlink_to(tmp_path)
        (root / "file").write_text("")
        (root / ".git").mkdir()
        for cwd in ("..", "/", str(tmp_path), "link", "link/ws/..", "~", "a/../../x"):
            assert await code(root, cwd=cwd) == "outside_workspace", cwd
        assert await code(root, cwd="nowhere") == "not_found"
        assert await code(root, cwd="file") == "invalid_arguments"
        assert await code(root, cwd=".git") == "protected"
        for command in ("", " \n", "touch made\0", "touch made \ud800", "touch made #" + "x" * 100_000):
            assert await code(root, command) == "invalid_arguments", command[:20]
        assert await code(root, "touch made #" + "\N{EURO SIGN}" * 99_000) == "invalid_arguments"
        for env in ({"": "x"}, {"a=b": "x"}, {"a": "\0"}, {"a": "\ud800"}, {"a": "x" * 100_001}):
            assert await code(root, env=env) == "invalid_arguments", str(env)[:20]
        assert await code(root, env={f"n{number}": "x" * 90 for number in range(2000)}) == "invalid_arguments"
        for timeout in (0, -1, 601):
            assert await code(root, timeout=timeout) == "invalid_arguments"

    async def test_a_folder_inside_is_where_it_starts(self, tmp_path):
        (tmp_path / "sub").mkdir()
        (tmp_path / "link").symlink_to("sub")
        for cwd in ("sub", "./sub/", "link", str(tmp_path / "sub"), "sub/../sub"):
            assert (await bash(tmp_path, "pwd -P", cwd=cwd))["content"].startswith(f"{tmp_path}/sub\n")

    async def test_the_longest_command_that_is_accepted_runs(self, tmp_path):
        command = "echo over #".ljust(100_000, "x")
        assert problems(SPECS["bash"], {"command": command}) == []
        for settings in (PLAIN, ToolSettings()):
            assert (await bash(tmp_path, command, settings))["content"].startswith("over")

    async def test_where_a_sandbox_is_demanded_and_there_is_none_nothing_runs(self, tmp_path):
        found = await confinement()
        settings = ToolSettings(sandbox=True)
        if found.kind == "none":
            assert await code(tmp_path, settings=settings) == "failed"
        else:
            assert (await bash(tmp_path, "true", settings))["ok"]


class TestSandbox:
    async def test_the_store_is_hidden_from_a_command(self, tmp_path):
        if (await confinement()).kind == "none":
            pytest.skip("there is no sandbox here")
        (tmp_path / ".detent").mkdir()
        (tmp_path / ".detent" / "detent.db").write_text("s3cret")
        (tmp_path / "runs.db").write_text("s3cret")
        settings = ToolSettings(protected=(tmp_path / "runs.db",))
        receipt = await bash(tmp_path, "cat .detent/detent.db runs.db; touch .detent/x", settings)
        assert "s3cret" not in receipt["content"]
        assert not (tmp_path / ".detent" / "x").exists()


def test_a_person_is_shown_the_exact_command():
    tool = bash_tool(PLAIN)
    assert tool.preview is not None
    shown = tool.preview(workspace="/w", command="make  test\n", cwd="sub", env={"A": "1 2"})
    assert shown == "make  test\n\nin sub\nfor at most 120 seconds\nwith A=1 2"


# -- in a run -----------------------------------------------------------------------------------------------


def flow_of(root: Path, command: str, settings: ToolSettings = PLAIN, **options: Any) -> Flow:
    """One step that runs a command, then another effect."""

    async def work(ctx: Any) -> Outcome:
        receipt = await ctx.perform("bash", workspace=str(root), command=command)
        return Outcome("done", set={"receipt": receipt})

    return one_step(work, tools=[bash_tool(settings, **options)])


class TestRuns:
    @pytest.mark.parametrize("sandbox", [False, None])
    async def test_an_interrupted_command_has_a_result(self, tmp_path, sandbox):
        """It was told and has ended, so nobody need be asked whether it happened; it is not run again."""
        command = f"trap 'echo told; exit 130' INT; {IDLE} & echo run >> runs; while :; do sleep 0.01; done"
        flow = flow_of(tmp_path, command, ToolSettings(sandbox=sandbox))
        async with Engine(SQLiteStore(tmp_path / "db"), [flow]) as engine:
            run_id = await engine.start("flow")
            await until((tmp_path / "runs").exists)
            await engine.interrupt(run_id, grace=0)
            assert not sleepers(IDLE)
            assert (await engine.get(run_id)).status is Status.RUNNING
            run = await engine.finish(run_id)
        assert run.status is Status.SUCCEEDED
        receipt = run.data["receipt"]
        assert (receipt["ok"], receipt["error"]) == (False, "interrupted")
        assert receipt["content"].startswith("told\n[It was interrupted and was ended")
        assert (tmp_path / "runs").read_text() == "run\n"

    async def test_a_check_that_was_interrupted_is_run_again(self, tmp_path):
        """An interrupt is no verdict on the work."""
        # Without the trap the signal may come between the opening of `runs` and its line.
        command = "trap 'exit 130' INT; echo run >> runs; while ! test -e go; do sleep 0.01; done"
        flow = flow_of(tmp_path, command, repeatable=True)
        async with Engine(SQLiteStore(tmp_path / "db"), [flow]) as engine:
            run_id = await engine.start("flow")
            await until((tmp_path / "runs").exists)
            await engine.interrupt(run_id, grace=0)
            (tmp_path / "go").touch()
            run = await engine.finish(run_id)
        assert run.data["receipt"]["ok"]
        assert (tmp_path / "runs").read_text() == "run\nrun\n"

    @pytest.mark.parametrize("sandbox", [False, None])
    async def test_a_cancelled_run_leaves_nothing(self, tmp_path, sandbox):
        flow = flow_of(tmp_path, f"{IDLE}; {IDLE}", ToolSettings(sandbox=sandbox))
        async with Engine(SQLiteStore(tmp_path / "db"), [flow]) as engine:
            run_id = await engine.start("flow")
            await until(lambda: sleepers(IDLE))
            await engine.cancel(run_id)
            assert (await engine.get(run_id)).status is Status.CANCELLED
            await until(lambda: not sleepers(IDLE))


WORKER = """
import asyncio, sys
from pathlib import Path
from detent.adapters.stores.sqlite import SQLiteStore
from detent.engine.engine import Engine
from detent.flows.coding.tools.spec import ToolSettings
from detent.testing.crash import CrashPoint, CrashPoints
from tests.flows.coding.tools.test_bash import flow_of

async def main():
    root, command, sandbox = Path(sys.argv[1]), sys.argv[2], False if sys.argv[3] == "False" else None
    crash = CrashPoints([CrashPoint.parse(point) for point in sys.argv[4:]])
    flow = flow_of(root, command, ToolSettings(sandbox=sandbox))
    flow.tools._tools["bash"] = crash.tool(flow.tools["bash"])
    async with Engine(crash.store(SQLiteStore(root / "db")), [flow]) as engine:
        await engine.start("flow", run_id="r")
        await engine.finish("r")

asyncio.run(main())
"""


def worker(root: Path, command: str, sandbox: bool | None, *points: str) -> subprocess.Popen[bytes]:
    """A process that runs a flow with a command."""
    return subprocess.Popen(
        [sys.executable, "-c", WORKER, str(root), command, str(sandbox), *points],
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )


def runs_of(root: Path) -> int:
    """How often the command was run."""
    file = root / "runs"
    return file.read_text().count("run") if file.exists() else 0


class TestCrashes:
    """kill -9 of the worker: before, while and after the command runs."""

    async def resumed(self, root: Path, command: str) -> tuple[Status, Mapping[str, Any]]:
        async with Engine(SQLiteStore(root / "db"), [flow_of(root, command)]) as engine:
            run = await engine.finish("r")
            return run.status, run.holds

    @pytest.mark.parametrize("sandbox", [False, None])
    async def test_what_was_running_is_ended_and_a_person_asked(self, tmp_path, sandbox):
        command = f"echo run >> runs; {IDLE}; {IDLE}"
        process = worker(tmp_path, command, sandbox)
        await until((tmp_path / "runs").exists)
        process.kill()
        process.wait()
        status, holds = await self.resumed(tmp_path, command)
        assert not sleepers(IDLE)
        assert status is Status.WAITING
        assert [hold.why for hold in holds.values()] == ["attention"]
        assert (tmp_path / "runs").read_text() == "run\n"

    @pytest.mark.parametrize(
        ("point", "runs"),
        [
            ("kill-before-effect-1", 0), ("kill-before-commit-3", 0), ("kill-after-commit-3", 0),
            ("kill-after-effect-1", 1), ("kill-before-commit-4", 1),
        ],
    )  # fmt: skip
    async def test_a_command_is_never_run_again_unasked(self, tmp_path, point, runs):
        """The third commit names the process; before it is durable, the command does nothing."""
        command = "echo run >> runs"
        process = worker(tmp_path, command, False, point)
        assert await asyncio.to_thread(process.wait) == -9
        assert runs_of(tmp_path) == runs
        status, holds = await self.resumed(tmp_path, command)
        assert (status, len(holds)) == (Status.WAITING, 1)
        assert runs_of(tmp_path) == runs

    async def test_one_that_outlived_its_watcher_is_ended_by_who_takes_the_run_over(self, tmp_path):
        """Without a sandbox a command can end the process that would end it."""
        command = f"echo $$ > runs; kill -9 $(pgrep -g $$ -x sh); {IDLE}; {IDLE}"
        process = worker(tmp_path, command, False)
        await until(lambda: sleepers(IDLE))
        process.kill()
        process.wait()
        assert sleepers(IDLE)
        status, _ = await self.resumed(tmp_path, command)
        assert status is Status.WAITING
        assert not sleepers(IDLE)

    async def test_a_process_of_another_machine_is_left_alone(self):
        tool = bash_tool(PLAIN)
        intent = {"pid": os.getpid(), "started": 1.0, "host": "elsewhere"}
        assert tool.stop is not None
        await tool.stop(EffectCall("r", "k", 1, intent=intent))
        await tool.stop(EffectCall("r", "k", 1))
        assert still_runs({"pid": 1, "born": 1.0, "host": "elsewhere"}) is None
