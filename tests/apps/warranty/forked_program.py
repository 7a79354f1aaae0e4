"""The program `detent` in processes of its own that can be had by the dozen: forked where all is loaded.

`Forks` is the side that asks; running this module is the side that forks, one process at a time. A process
may be told to kill itself before its n-th SQL statement, in whichever of its files that is; SQLite itself
tells of them; nothing of the program is changed. Everything else that kills comes from outside.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import itertools
import json
import os
import pkgutil
import signal
import sqlite3
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PACKAGES = ("detent.apps.warranty", "detent.adapters.mail", "detent.flows.playbook")
"""Loaded with all they hold before anything is forked."""
MORE = (
    "detent.cli.main", "detent.apps.warranty.commands.run", "detent.apps.warranty.commands.lines",
    "detent.cli.signals", "detent.cli.workspace", "detent.cli.resume", "detent.apps.warranty.mailbox",
    "detent.runtime.wiring", "detent.runtime.dispatch_settings", "detent.runtime.logging",
    "detent.engine.schemas",
    "detent.engine.engine",
    "detent.adapters.stores.sqlite", "pydantic.type_adapter", "rich.console", "structlog", "imapclient",
)  # fmt: skip


def _load() -> None:
    for name in PACKAGES:
        package = importlib.import_module(name)
        for found in pkgutil.walk_packages(package.__path__, f"{name}."):
            importlib.import_module(found.name)
    for name in MORE:
        importlib.import_module(name)
    gc.freeze()  # what is loaded stays; no process has to look through it


def _listen(dies_before: int | None, counted: str) -> None:
    """Count the SQL statements of this process, and die before one of them."""
    numbers = itertools.count(1)
    tally = os.open(counted, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)

    def statement(_: str) -> None:
        number = next(numbers)
        os.pwrite(tally, f"{number:08}".encode(), 0)
        if number == dies_before:
            os.kill(os.getpid(), signal.SIGKILL)

    connect = sqlite3.connect

    def listened_to(*args: Any, **options: Any) -> sqlite3.Connection:
        connection = connect(*args, **options)
        connection.set_trace_callback(statement)
        return connection

    sqlite3.connect = listened_to  # type: ignore[assignment]


def _child(job: dict[str, Any]) -> None:
    """The forked side: never returns."""
    code = 99
    try:
        os.chdir(job["folder"])
        os.environ.update(job["environ"])
        said = os.open(job["said"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(said, 1)
        os.dup2(said, 2)
        _listen(job["dies_before"], job["counted"])
        sys.argv = ["detent", *job["args"]]
        from detent.cli.main import main

        main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1 if end.code else 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def main() -> None:
    """Fork a process for every line on standard input; say its id, and later how it ended."""
    _load()
    print("ready", flush=True)
    for line in sys.stdin:
        job = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _child(job)
        print(pid, flush=True)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


class Forks:
    """Starts the program, one process after the other."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.pid: int | None = None
        """The process at work; None when there is none."""

    @classmethod
    async def ready(cls) -> Forks:
        path = os.pathsep.join(one for one in sys.path if one)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.apps.warranty.forked_program",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path}, cwd=Path(__file__).parents[3],
        )  # fmt: skip
        forks = cls(process)
        assert await forks._line() == "ready"
        return forks

    async def begin(
        self, folder: Path, *args: str, environ: Mapping[str, str], dies_before: int | None = None
    ) -> int:
        """A process that runs the program with these arguments in a folder; its id."""
        job = {
            "folder": str(folder), "args": args, "environ": dict(environ), "dies_before": dies_before,
            "said": str(folder / "said.txt"), "counted": str(folder / "counted.txt"),
        }  # fmt: skip
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(job).encode() + b"\n")
        await self._process.stdin.drain()
        self.pid = int(await self._line())
        return self.pid

    def kill(self) -> None:
        """SIGKILL to the process at work, if there is one."""
        if self.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    async def end(self) -> int:
        """Wait for the process at work; its exit code, -9 for one that was killed."""
        code = int(await self._line())
        self.pid = None
        return code

    async def close(self) -> None:
        """End the process at work, then the side that forks."""
        self.kill()
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()

    async def _line(self) -> str:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            raise RuntimeError("The process that forks is gone.")
        return line.decode().strip()


if __name__ == "__main__":
    main()
