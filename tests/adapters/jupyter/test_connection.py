"""A kernel outlives its engine; the next one takes it over, or it ends itself. N-88, N-108."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from detent.adapters.jupyter import connection, launch
from detent.adapters.jupyter.errors import KernelDied, KernelNotStarted, KernelSuperseded
from detent.adapters.jupyter.kernel import JupyterKernel, KernelLimits
from detent.adapters.jupyter.port import NotebookKernel
from detent.engine.host import born
from detent.kernel.errors import IntegrationMissing

ENGINE = """
import asyncio, os, sys
from pathlib import Path
from detent.adapters.jupyter.kernel import JupyterKernel, KernelLimits

async def main(folder, lifetime):
    kernel = JupyterKernel(folder, epoch=1, limits=KernelLimits(memory=3 << 30, lifetime=lifetime))
    info = await kernel.start(cwd=folder, env=os.environ)
    await kernel.execute("rows = [1, 2, 3]", cell_id="abcd1234", timeout=30)
    cell = asyncio.create_task(kernel.execute(sys.argv[3], cell_id="abcd1235", timeout=600))
    while not (folder / "running").exists():
        await asyncio.sleep(0.01)
    print(info.pid, flush=True)
    await asyncio.sleep(600)

asyncio.run(main(Path(sys.argv[1]), float(sys.argv[2])))
"""


def killed_engine(folder: Path, *, lifetime: float = 600.0, code: str = "pass") -> int:
    """Start a kernel in another process and kill that while a cell runs; the kernel's process id."""
    code = f"open('running', 'w').close()\n{code}"
    command = [sys.executable, "-c", ENGINE, str(folder), str(lifetime), code]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as engine:
        assert engine.stdout is not None
        pid = int(engine.stdout.readline())
        engine.kill()
    return pid


async def until_gone(pid: int) -> None:
    """Wait until a process has ended."""
    while born(pid) is not None:
        await asyncio.sleep(0.02)


def kernel_of(folder: Path, epoch: int) -> JupyterKernel:
    """The kernel of a driver."""
    return JupyterKernel(folder, epoch=epoch, limits=KernelLimits(memory=3 << 30, grace=2.0))


class TestAttach:
    async def test_the_next_engine_takes_the_kernel_over_with_its_variables(self, tmp_path: Path) -> None:
        pid = killed_engine(tmp_path)
        kernel: NotebookKernel = kernel_of(tmp_path, 2)
        info = await kernel.attach(tmp_path / "kernel-1.json")
        assert info is not None
        assert info.pid == pid
        assert kernel.is_alive()
        assert (await kernel.inspect(["rows"]))["rows"].json == [1, 2, 3]
        assert kernel.connection == tmp_path / "kernel-2.json"
        assert not (tmp_path / "kernel-1.json").exists()
        result = await kernel.execute("print(rows)", cell_id="abcd1236", timeout=30)
        assert result.outputs[0].text == "[1, 2, 3]\n"
        await kernel.restart()  # in the same folder, with nothing left of before
        result = await kernel.execute("import os; print(os.getcwd())", cell_id="abcd1237", timeout=30)
        assert result.outputs[0].text == f"{tmp_path}\n"
        assert not (await kernel.inspect(["rows"]))["rows"].exists
        assert born(pid) is None
        await kernel.shutdown()
        assert list(tmp_path.glob("kernel-*")) == []

    async def test_a_kernel_that_is_dead_is_not_attached(self, tmp_path: Path) -> None:
        pid = killed_engine(tmp_path)
        files = connection.read(tmp_path / "kernel-1.json")
        assert files is not None
        os.kill(pid, signal.SIGKILL)
        await until_gone(files.pid)
        kernel = kernel_of(tmp_path, 2)
        assert await kernel.attach(tmp_path / "kernel-1.json") is None
        assert not kernel.is_alive()
        assert not files.folder.exists()  # its launcher has cleaned up

    async def test_a_kernel_that_is_busy_is_not_attached(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        killed_engine(tmp_path, code="while True: pass")
        kernel = kernel_of(tmp_path, 2)
        assert await kernel.attach(tmp_path / "kernel-1.json") is None
        await kernel.start(cwd=tmp_path, env=os.environ)  # which ends the other one
        assert not (tmp_path / "kernel-1.json").exists()
        await kernel.shutdown()

    async def test_a_kernel_that_an_engine_holds_is_not_attached(self, tmp_path: Path) -> None:
        holder = kernel_of(tmp_path, 1)
        await holder.start(cwd=tmp_path, env=os.environ)
        assert holder.connection is not None
        assert await kernel_of(tmp_path, 2).attach(holder.connection) is None
        assert holder.is_alive()
        await holder.shutdown()

    @pytest.mark.parametrize(
        "text", ["", "{", "[]", "{}", '{"detent": {"pid": 1}}', '{"detent": {"pid": "x", "folder": 1}}']
    )
    async def test_a_file_that_is_none_of_ours_is_not_attached(self, tmp_path: Path, text: str) -> None:
        path = tmp_path / "kernel-1.json"
        path.write_text(text)
        assert await kernel_of(tmp_path, 2).attach(path) is None

    async def test_a_missing_file_is_not_attached(self, tmp_path: Path) -> None:
        assert await kernel_of(tmp_path, 2).attach(tmp_path / "kernel-1.json") is None

    async def test_a_process_that_has_the_id_of_a_dead_kernel_is_left_alone(self, tmp_path: Path) -> None:
        with subprocess.Popen(["sleep", "600"], start_new_session=True) as stranger:
            process = {"pid": stranger.pid, "born": 1.0, "host": "here", "folder": str(tmp_path), "cwd": "."}
            text = json.dumps({"key": "k", "ip": "i", "detent": process})
            (tmp_path / "kernel-1.json").write_text(text)
            kernel = kernel_of(tmp_path / "run", 2)
            assert await kernel.attach(tmp_path / "kernel-1.json") is None
            assert stranger.poll() is None
            stranger.kill()


class TestEpochs:
    async def test_a_later_driver_ends_the_kernel_of_an_earlier_one(self, tmp_path: Path) -> None:
        earlier, later = kernel_of(tmp_path, 1), kernel_of(tmp_path, 2)
        await earlier.start(cwd=tmp_path, env=os.environ)
        await later.start(cwd=tmp_path, env=os.environ)
        assert not earlier.is_alive()
        result = await earlier.execute("open('late', 'w')", cell_id="abcd1234", timeout=10)
        assert result.status == "died"
        with pytest.raises(KernelSuperseded):
            await earlier.restart()
        assert later.is_alive()
        await later.shutdown()

    async def test_an_earlier_driver_does_not_take_over_the_kernel_of_a_later_one(
        self, tmp_path: Path
    ) -> None:
        killed_engine(tmp_path)
        later = (tmp_path / "kernel-1.json").rename(tmp_path / "kernel-3.json")
        assert await kernel_of(tmp_path, 2).attach(later) is None
        kernel = kernel_of(tmp_path, 3)
        assert await kernel.attach(later) is not None
        await kernel.shutdown()

    async def test_a_connection_file_is_for_its_owner_alone(self, tmp_path: Path) -> None:
        kernel = kernel_of(tmp_path / "run", 7)
        await kernel.start(cwd=tmp_path, env=os.environ)
        path = kernel.connection
        assert path == tmp_path / "run" / "kernel-7.json"
        assert path.stat().st_mode & 0o077 == 0
        files = connection.read(path)
        assert files is not None
        assert files.folder.stat().st_mode & 0o077 == 0
        await kernel.shutdown()
        assert not path.exists()
        assert not files.folder.exists()


class TestLifetime:
    async def test_a_kernel_without_an_engine_ends_itself(self, tmp_path: Path) -> None:
        pid = killed_engine(tmp_path, lifetime=0.4)
        await until_gone(pid)
        files = connection.read(tmp_path / "kernel-1.json")
        assert files is not None
        await until_gone(files.pid)
        assert not files.folder.exists()

    async def test_also_one_that_holds_on_to_the_interpreter(self, tmp_path: Path) -> None:
        pid = killed_engine(tmp_path, lifetime=0.4, code="import ctypes; ctypes.PyDLL(None).sleep(600)")
        await until_gone(pid)

    async def test_a_kernel_with_an_engine_stays(self, tmp_path: Path) -> None:
        kernel = JupyterKernel(tmp_path, limits=KernelLimits(memory=3 << 30, lifetime=0.2))
        await kernel.start(cwd=tmp_path, env=os.environ)
        result = await kernel.execute("import time; time.sleep(1)", cell_id="abcd1234", timeout=10)
        assert result.status == "ok"
        await kernel.shutdown()

    async def test_a_kernel_ends_with_its_launcher(self, tmp_path: Path) -> None:
        kernel = kernel_of(tmp_path, 1)
        info = await kernel.start(cwd=tmp_path, env=os.environ)
        files = connection.read(tmp_path / "kernel-1.json")
        assert files is not None
        os.kill(files.pid, signal.SIGKILL)
        await until_gone(info.pid or 0)
        assert not kernel.is_alive()
        await kernel.shutdown()

    async def test_processes_of_the_kernel_end_with_it(self, tmp_path: Path) -> None:
        kernel = kernel_of(tmp_path, 1)
        await kernel.start(cwd=tmp_path, env=os.environ)
        code = "import subprocess; print(subprocess.Popen(['sleep', '600']).pid)"
        result = await kernel.execute(code, cell_id="abcd1234", timeout=10)
        await kernel.shutdown()
        await until_gone(int(result.outputs[0].text))

    async def test_they_may_clean_up_first(self, tmp_path: Path) -> None:
        """As joblib's tracker does, which clears shared memory."""
        child = (
            "import signal, time\n"
            "signal.signal(signal.SIGTERM, lambda *_: (open('cleaned', 'w').close(), exit()))\n"
            "open('ready', 'w').close()\ntime.sleep(600)"
        )
        kernel = kernel_of(tmp_path, 1)
        await kernel.start(cwd=tmp_path, env=os.environ)
        code = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {child!r}])"
        await kernel.execute(code, cell_id="abcd1234", timeout=10)
        while not (tmp_path / "ready").exists():
            await asyncio.sleep(0.02)
        await kernel.shutdown()
        while not (tmp_path / "cleaned").exists():
            await asyncio.sleep(0.02)


class TestStart:
    async def test_what_runs_is_told(self, tmp_path: Path) -> None:
        kernel = kernel_of(tmp_path, 1)
        info = await kernel.start(cwd=tmp_path, env=os.environ)
        assert info.name == "python3"
        assert info.python == ".".join(map(str, sys.version_info[:3]))
        assert {"numpy", "pandas", "scikit-learn", "matplotlib", "ipykernel"} <= set(info.versions)
        await kernel.shutdown()

    async def test_files_of_the_user_do_not_run_in_the_kernel(self, tmp_path: Path) -> None:
        startup = tmp_path / ".ipython" / "profile_default" / "startup"
        startup.mkdir(parents=True)
        (startup / "00.py").write_text("surprise = 1")
        (tmp_path / "json.py").write_text("raise SystemExit('shadowed')")
        kernel = kernel_of(tmp_path / "run", 1)
        await kernel.start(cwd=tmp_path, env={**os.environ, "HOME": str(tmp_path)})
        assert not (await kernel.inspect(["surprise"]))["surprise"].exists
        assert list((tmp_path / ".ipython").rglob("history*")) == []
        await kernel.shutdown()

    async def test_missing_libraries_are_named_with_what_installs_them(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(launch, "NEEDED", ("ipykernel", "no_such_library"))
        kernel = kernel_of(tmp_path, 1)
        with pytest.raises(KernelNotStarted, match=r"no_such_library.*detent\[notebook\]") as caught:
            await kernel.start(cwd=tmp_path, env=os.environ)
        assert isinstance(caught.value, IntegrationMissing)
        assert caught.value.exit_code == 3

    async def test_a_work_folder_that_is_not_there(self, tmp_path: Path) -> None:
        kernel = kernel_of(tmp_path, 1)
        with pytest.raises(KernelNotStarted, match="nowhere"):
            await kernel.start(cwd=tmp_path / "nowhere", env=os.environ)
        assert not kernel.is_alive()
        assert kernel.connection is None

    async def test_a_kernel_that_ends_while_it_starts_says_why(self, tmp_path: Path) -> None:
        kernel = JupyterKernel(tmp_path, limits=KernelLimits(memory=20 << 20))
        with pytest.raises(KernelNotStarted, match=r"did not start\. It said:\n"):
            await kernel.start(cwd=tmp_path, env=os.environ)

    async def test_a_kernel_that_was_never_started(self, tmp_path: Path) -> None:
        kernel = kernel_of(tmp_path, 1)
        assert not kernel.is_alive()
        assert (await kernel.execute("1", cell_id="abcd1234", timeout=1)).status == "died"
        with pytest.raises(KernelDied):
            await kernel.names()
        with pytest.raises(KernelNotStarted):
            await kernel.restart()
        await kernel.interrupt()
        await kernel.shutdown()

    async def test_a_long_folder_for_temporary_files_is_no_obstacle(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        long = tmp_path / ("long" * 20)
        long.mkdir()
        monkeypatch.setattr("tempfile.tempdir", str(long))
        kernel = kernel_of(tmp_path, 1)
        await kernel.start(cwd=tmp_path, env=os.environ)
        await kernel.shutdown()
