"""Confined commands see no process outside, reach no network, and end with all they have started."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from detent.adapters.project.confinement import (
    NONE,
    Confined,
    Confinement,
    Stopped,
    confinement,
    find_confinement,
)
from detent.adapters.project.processes import end_process, name_process
from detent.engine.tools import ToolError
from tests.engine.conftest import until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="process groups are POSIX")
KINDS = ("unshare", "bubblewrap", "none")
SANDBOXES = ("unshare", "bubblewrap")
_own: dict[str, Confinement] = {}


async def sandbox_of(kind: str) -> Confinement:
    """A sandbox of this kind; the test is skipped where there is none."""
    if kind == "none":
        return NONE
    if kind == "unshare":
        found = _own.get("here") or await find_confinement("/nowhere")
        _own["here"] = found
        if found.kind != "unshare":
            pytest.skip(found.description)
        return found
    program = shutil.which("bwrap")
    if program is None:
        pytest.skip("bubblewrap is not installed")
    return Confinement("bubblewrap", "", program)


@pytest_asyncio.fixture(autouse=True)
async def available(request: pytest.FixtureRequest) -> None:
    """Skips what needs a sandbox that this machine has not."""
    callspec = getattr(request.node, "callspec", None)
    if callspec is not None and "kind" in callspec.params:
        await sandbox_of(callspec.params["kind"])


async def run(kind: str, folder: Path, command: str, **options: Any) -> Confined:
    sandbox = await sandbox_of(kind)
    options = {"env": {"PATH": os.environ["PATH"]}, "timeout": 20, **options}
    return await sandbox.run(["sh", "-c", command], cwd=folder, **options)


async def output(kind: str, folder: Path, command: str, **options: Any) -> str:
    return (await run(kind, folder, command, **options)).ran.out.decode()


def sleepers(mark: str) -> list[str]:
    """Processes with this in their command line that have not ended."""
    listing = subprocess.run(["ps", "-e", "-o", "stat=,args="], capture_output=True, text=True, check=True)
    return [line for line in listing.stdout.splitlines() if mark in line and not line.startswith("Z")]


@pytest.fixture
def mark() -> str:
    """A number of seconds to sleep that nobody else sleeps."""
    return f"3{secrets.randbelow(10**9):09d}"


WORKER = """
import asyncio, os, sys
from pathlib import Path
from tests.adapters.project.test_confinement import sandbox_of

async def main():
    sandbox = await sandbox_of(sys.argv[1])
    env = {"PATH": os.environ["PATH"]}
    result = await sandbox.run(["sh", "-c", sys.argv[2]], cwd=Path("."), env=env, timeout=60)
    sys.stdout.buffer.write(result.ran.out)

asyncio.run(main())
"""


def worker(kind: str, command: str, folder: Path, **environ: str) -> subprocess.Popen[bytes]:
    """A process that runs a confined command."""
    return subprocess.Popen(
        [sys.executable, "-c", WORKER, kind, command], cwd=folder, stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.getcwd(), **environ},
    )  # fmt: skip


class TestSecrets:
    @pytest.mark.parametrize("kind", KINDS)
    async def test_the_environment_of_the_program_that_runs_it_cannot_be_read(self, tmp_path, kind):
        """A clean environment is not enough: /proc has that of every process."""
        if not os.path.exists("/proc/self/environ"):
            pytest.skip("no /proc")
        process = worker(kind, "cat /proc/[0-9]*/environ 2>/dev/null; env", tmp_path, SECRET="s3cret-value")
        raw, _ = await asyncio.to_thread(process.communicate)
        assert process.returncode == 0
        assert (b"s3cret-value" in raw) == (kind == "none")

    @pytest.mark.parametrize("kind", SANDBOXES)
    async def test_its_environment_changes_nothing_outside(self, tmp_path, kind):
        """Of all processes, only those of the command load what `LD_PRELOAD` names."""
        env = {"PATH": os.environ["PATH"], "LD_PRELOAD": "/nowhere.so", "BASH_ENV": "/nowhere"}
        text = await output(kind, tmp_path, ":; :", env=env)
        assert text.count("cannot be preloaded") == 1

    @pytest.mark.parametrize("kind", SANDBOXES)
    async def test_no_descriptor_reaches_it(self, tmp_path, kind):
        (tmp_path / "list.py").write_text("import os; print(os.listdir('/proc/self/fd'))")
        text = await output(kind, tmp_path, f"{sys.executable} list.py")
        assert sorted(text.split("'")[1::2]) == ["0", "1", "2", "3"]


class TestHidden:
    @pytest.mark.parametrize("kind", SANDBOXES)
    async def test_a_hidden_folder_is_empty_but_for_what_belongs_to_the_project(self, tmp_path, kind):
        """And read-only, workflows too, so that git finds nothing removed and nothing is lost unseen."""
        own = tmp_path / ".detent"
        (own / "workflows").mkdir(parents=True)
        (own / "workflows" / "w.yaml").write_text("shown")
        (own / ".gitignore").write_text("*\n")
        (own / "runs.db").write_text("kept from it")
        (tmp_path / "other.db").write_text("kept from it")
        hidden = [
            own,
            own / "runs.db",
            tmp_path / "other.db",
            tmp_path / "missing",
            tmp_path.parent,
            Path("/"),
        ]
        command = (
            "ls -A .detent; cat .detent/workflows/w.yaml other.db; cat .detent/runs.db; echo x > .detent/x; "
            "echo x > .detent/workflows/w.yaml; umount .detent; rm -rf .detent; echo x > made; "
            "unshare -rm umount $PWD/.detent; cat .detent/runs.db"
        )
        text = await output(kind, tmp_path, command, hidden=hidden)
        assert text.startswith(".gitignore\nworkflows\nshown")
        assert "kept from it" not in text
        assert text.count("Read-only file system") >= 2
        assert (tmp_path / "made").read_text() == "x\n"
        assert (own / "runs.db").read_text() == (tmp_path / "other.db").read_text() == "kept from it"
        assert (own / "workflows" / "w.yaml").read_text() == "shown"

    async def test_without_a_sandbox_nothing_is_hidden(self, tmp_path):
        (tmp_path / "runs.db").write_text("seen")
        assert await output("none", tmp_path, "cat runs.db", hidden=[tmp_path / "runs.db"]) == "seen"


@contextlib.contextmanager
def listening(*address: Any, family: int = socket.AF_INET) -> Iterator[socket.socket]:
    with socket.socket(family) as server:
        server.bind(address[0] if family == socket.AF_UNIX else address)
        server.listen()
        yield server


CONNECTS = (
    "import socket, sys\n"
    "kind, place = (socket.AF_INET, ('127.0.0.1', int(sys.argv[1]))) if sys.argv[1].isdigit() "
    "else (socket.AF_UNIX, sys.argv[1])\n"
    "with socket.socket(kind) as client:\n"
    "    print('refused' if client.connect_ex(place) else 'connected')\n"
)


class TestNetwork:
    @pytest.mark.parametrize("kind", SANDBOXES)
    async def test_there_is_none_unless_it_is_allowed(self, tmp_path, kind):
        """Services that listen in the file system count too: Docker's would start anything outside."""
        (tmp_path / "connect.py").write_text(CONNECTS)
        unix = tmp_path / "s"
        with listening("127.0.0.1", 0) as server, listening(str(unix), family=socket.AF_UNIX):
            port = server.getsockname()[1]
            command = f"for at in {port} {unix}; do {sys.executable} connect.py $at; done"
            assert await output(kind, tmp_path, command) == "refused\n" * 2
            assert await output(kind, tmp_path, command, network=True) == "connected\n" * 2
            assert await output("none", tmp_path, command) == "connected\n" * 2

    @pytest.mark.parametrize("kind", SANDBOXES)
    async def test_programs_reach_themselves(self, tmp_path, kind):
        """Tests of a web server bind 127.0.0.1."""
        (tmp_path / "connect.py").write_text(
            "import socket\nserver = socket.create_server(('127.0.0.1', 0))\n"
            "socket.create_connection(server.getsockname())\nprint('connected')\n"
        )
        assert await output(kind, tmp_path, f"{sys.executable} connect.py") == "connected\n"


LEAVES = {
    "in the background": "sleep {} & echo hi",
    "with its output elsewhere": "sleep {} >/dev/null 2>&1 & echo hi",
    "disowned": "bash -c 'sleep {} & disown'; echo hi",
    "deaf": "(trap '' TERM INT HUP; sleep {}; sleep {}) & echo hi",
    "in a group of its own": "timeout 9999999 sleep {} & echo hi",
    "by job control": "bash -c 'set -m; sleep {} & disown'; echo hi",
    "with nohup": "nohup sleep {} >/dev/null 2>&1 & echo hi",
}
ESCAPES = {
    "in a session of its own": "setsid sleep {} & echo hi",
    "twice removed": "setsid sh -c '(setsid sleep {} &) & exit' & echo hi; sleep 0.1",
}


class TestEnding:
    @pytest.mark.parametrize("kind", KINDS)
    async def test_what_a_command_leaves_running_is_ended_and_said(self, tmp_path, mark, kind):
        """It is over when its shell is: nothing sleeps here for long."""
        for name, command in {**LEAVES, **(ESCAPES if kind != "none" else {})}.items():
            result = await run(kind, tmp_path, command.replace("{}", mark))
            assert (result.ran.out, result.ran.code, result.left) == (b"hi\n", 0, True), name
            await until(lambda: not sleepers(mark))

    @pytest.mark.parametrize("kind", KINDS)
    async def test_a_command_that_leaves_nothing_is_not_said_to(self, tmp_path, kind):
        for command in (
            "echo hi",
            "yes | head -n 1 >/dev/null",
            "sleep 0.01 & wait; echo hi",
            "(echo hi)",
        ):
            assert not (await run(kind, tmp_path, command)).left, command

    @pytest.mark.parametrize("kind", KINDS)
    async def test_at_the_time_limit_all_of_it_is_ended_and_its_output_kept(self, tmp_path, mark, kind):
        command = f"echo begun; trap '' TERM INT; sleep {mark} & sleep {mark}; sleep {mark}"
        with pytest.raises(Stopped) as caught:
            await run(kind, tmp_path, command, timeout=0.3)
        assert (caught.value.why, caught.value.ran.out) == ("timeout", b"begun\n")
        await until(lambda: not sleepers(mark))

    @pytest.mark.parametrize("kind", KINDS)
    async def test_an_interrupted_command_is_told_so_first(self, tmp_path, mark, kind):
        """Once: a program that cleans up is not disturbed by a second signal."""
        command = (
            f"trap 'echo told; sleep 0.2; exit 7' INT; sleep {mark} & echo up > up; "
            "while :; do sleep 0.01; done"
        )
        task = asyncio.ensure_future(run(kind, tmp_path, command))
        await until((tmp_path / "up").exists)
        task.cancel()
        with pytest.raises(Stopped) as caught:
            await task
        assert (caught.value.why, caught.value.ran.code) == ("interrupted", 7)
        assert caught.value.ran.out == b"told\n"
        await until(lambda: not sleepers(mark))

    @pytest.mark.parametrize("kind", KINDS)
    async def test_one_that_does_not_listen_is_ended_in_the_end(self, tmp_path, mark, kind):
        command = f"trap '' INT TERM; echo up > up; sleep {mark}; sleep {mark}"
        task = asyncio.ensure_future(run(kind, tmp_path, command, interrupt=0.1))
        await until((tmp_path / "up").exists)
        task.cancel()
        with pytest.raises(Stopped):
            await task
        await until(lambda: not sleepers(mark))

    @pytest.mark.parametrize("kind", KINDS)
    async def test_it_is_ended_at_once_by_a_second_cancellation(self, tmp_path, mark, kind):
        command = f"trap 'echo told > told' INT; sleep {mark} & echo up > up; while :; do sleep 0.01; done"
        task = asyncio.ensure_future(run(kind, tmp_path, command, interrupt=600))
        for sign in ("up", "told"):
            await until((tmp_path / sign).exists)
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: not sleepers(mark))

    @pytest.mark.parametrize("kind", KINDS)
    async def test_it_ends_with_the_process_that_ran_it(self, tmp_path, mark, kind):
        """However that ends, and wherever the command was."""
        commands = {**LEAVES, **(ESCAPES if kind != "none" else {})}
        command = "; ".join(commands.values()).replace("{}", mark)
        process = worker(kind, f"{command}; touch up; sleep {mark}", tmp_path)
        await until((tmp_path / "up").exists)
        assert sleepers(mark)
        process.kill()
        process.wait()
        await until(lambda: not sleepers(mark))
        process.communicate()

    @pytest.mark.parametrize("kind", KINDS)
    async def test_another_process_can_end_it_by_the_process_it_is_known_by(self, tmp_path, mark, kind):
        """Which is known before it does anything."""
        known: list[dict[str, Any]] = []

        async def started(pid: int) -> None:
            known.append(name_process(pid))
            assert not (tmp_path / "up").exists()

        command = f"{'setsid ' if kind != 'none' else ''}sleep {mark} & touch up; sleep {mark}"
        task = asyncio.ensure_future(run(kind, tmp_path, command, started=started))
        await until((tmp_path / "up").exists)
        assert await end_process(known[0])
        await until(lambda: not sleepers(mark))
        assert (await task).ran.code in (-9, 137)

    @pytest.mark.parametrize("kind", SANDBOXES)
    async def test_its_processes_are_limited(self, tmp_path, kind):
        text = await output(kind, tmp_path, "grep 'Max processes' /proc/self/limits")
        assert int(text.split()[2]) <= 4096


class TestResult:
    @pytest.mark.parametrize("kind", KINDS)
    async def test_it_has_the_exit_code_and_both_outputs_in_order(self, tmp_path, kind):
        result = await run(kind, tmp_path, "echo a; echo b >&2; echo c; exit 3")
        assert (result.ran.out, result.ran.code) == (b"a\nb\nc\n", 3)
        killed = (await run(kind, tmp_path, "kill -9 $$")).ran.code
        assert killed == (-9 if kind == "none" else 137)
        assert await output(kind, tmp_path, "cat; echo over") == "over\n"

    @pytest.mark.parametrize("kind", KINDS)
    async def test_a_closed_output_ends_nothing(self, tmp_path, kind):
        result = await run(kind, tmp_path, "exec >&- 2>&-; sleep 0.1; echo x > made; exit 4")
        assert (result.ran.code, (tmp_path / "made").exists()) == (4, True)

    @pytest.mark.parametrize("kind", KINDS)
    async def test_output_without_end_takes_no_memory_and_ends_in_time(self, tmp_path, kind):
        for command in ("yes", "cat /dev/zero"):
            with pytest.raises(Stopped) as caught:
                await run(kind, tmp_path, command, timeout=0.2, head=100, tail=100)
            assert len(caught.value.ran.out) < 300
            assert caught.value.ran.out_cut > 1000

    async def test_a_sandbox_that_fails_has_not_run_the_command(self, tmp_path):
        """So it can be said for certain that nothing happened."""
        broken = Confinement("bubblewrap", "", "/bin/false")
        with pytest.raises(ToolError) as caught:
            await broken.run(["touch", "made"], cwd=tmp_path, env={"PATH": os.environ["PATH"]}, timeout=20)
        assert caught.value.code == "not_started"
        assert not (tmp_path / "made").exists()


INSIDE = """
import asyncio, os
from pathlib import Path
from detent.adapters.project.confinement import find_confinement

async def main():
    found = await find_confinement("/nowhere")
    print(found.description)
    command = ["sh", "-c", "cat /proc/[0-9]*/environ 2>/dev/null; echo; echo over; setsid sleep 60 & exit 3"]
    result = await found.run(command, cwd=Path("/"), env={"PATH": os.environ["PATH"]}, timeout=20)
    print(result.left, result.ran.code, b"s3cret-value" in result.ran.out, b"over" in result.ran.out)

asyncio.run(main())
"""


class TestMachines:
    """Machines that refuse something, made of namespaces."""

    def on(self, preparation: str) -> list[str]:
        """The lines that a program prints which looks for a sandbox on such a machine."""
        unshare = ["unshare", "-Urmpf", "--kill-child", "--mount-proc"]
        if shutil.which("unshare") is None or subprocess.run([*unshare, "true"], check=False).returncode:
            pytest.skip("no namespaces here")
        script = f'{preparation} || exit 9; exec env SECRET=s3cret-value "$@"'
        ran = subprocess.run(
            [*unshare, "sh", "-c", script, "sh", sys.executable, "-c", INSIDE],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        return ran.stdout.splitlines()

    def test_inside_a_sandbox_there_is_another(self):
        assert self.on("true") == ["unshare: own processes, no network unless allowed", "True 3 False True"]

    def test_where_no_namespaces_are_allowed_there_is_none(self):
        """Commands run without, and whoever asks is told why."""
        described, ran = self.on("echo 0 > /proc/sys/user/max_user_namespaces")
        assert described.startswith("none: unshare: the system allows no more namespaces")
        assert described.endswith("bubblewrap is not installed")
        assert ran.split()[1:] == ["3", "True", "True"]

    def test_where_proc_cannot_be_mounted_environments_are_hidden_all_the_same(self):
        """As in most containers. The processes outside belong to another namespace of users."""
        described, ran = self.on("mount -t tmpfs none /proc/sys/fs")
        assert described.startswith("unshare: own processes, those outside are listed")
        assert ran == "True 3 False True"


async def test_the_sandbox_is_looked_for_once():
    first = await confinement()
    assert await confinement() is first
    assert first.description.startswith(first.kind)
