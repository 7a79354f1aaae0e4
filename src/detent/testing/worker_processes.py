"""Worker processes for the torture test, forked in milliseconds by a process that has everything loaded.

`Nursery` is the side that asks; running this module is the side that forks. A worker starts its runs, resumes
whatever others left, and ends by itself only if told to finish just its own runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from detent.engine import logger
from detent.engine.engine import Engine
from detent.engine.ports import Store
from detent.kernel.errors import ConfigurationError, RunExists
from detent.testing.crash import CrashPoint, CrashPoints
from detent.testing.disturbed import Cut, WrongClock
from detent.testing.workload import find_workload
from detent.testing.world import World

POLL = 0.05
STOP_SELF = signal.SIGUSR1
"""Makes a worker stop itself at the next turn of its loop: anywhere but within an effect."""
CUT_OFF = signal.SIGUSR2
"""Cuts a worker off from its store, for longer than its lease."""
JUMP = signal.SIGHUP
"""Makes a worker's wall clock jump, a day ahead or back again."""


HEEDED = {STOP_SELF, CUT_OFF, JUMP}


@dataclass(frozen=True, slots=True)
class Job:
    """The task of a worker."""

    store: str
    world: str
    workload: str
    journal: str
    """File its log lines and failures go to."""
    prefix: str = "r"
    numbers: Sequence[int] = ()
    """Runs to start, unless they exist."""
    only: bool = False
    """Finish these runs and exit, instead of serving everything."""
    points: Sequence[str] = ()
    lease: float = 15.0
    takeover_limit: int = 10
    host: str | None = None
    """The machine it believes to be on; None for this one."""
    clock: float = 0.0
    """Seconds by which its wall clock is off."""
    counted: str | None = None
    """File to write the number of commits to before exiting."""


def store_at(url: str) -> Store:
    """A store from `sqlite:PATH` or `postgresql://…`, which may end in `#SCHEMA`."""
    kind, _, rest = url.partition(":")
    if kind == "sqlite":
        from detent.adapters.stores.sqlite import SQLiteStore

        return SQLiteStore(rest)
    if kind in ("postgresql", "postgres"):
        from detent.adapters.stores.postgres import PostgresStore

        dsn, _, schema = url.partition("#")
        return PostgresStore(dsn, schema=schema) if schema else PostgresStore(dsn)
    raise ConfigurationError(f"A store for workers is sqlite:PATH or postgresql://…, not '{url}'.")


async def work(job: Job) -> None:
    """Run a worker."""
    loop = asyncio.get_running_loop()
    leave = asyncio.Event()
    loop.add_signal_handler(STOP_SELF, lambda: os.kill(os.getpid(), signal.SIGSTOP))
    clock, line = WrongClock(job.clock), Cut()
    loop.add_signal_handler(CUT_OFF, lambda: line.cut(job.lease * 1.6))
    loop.add_signal_handler(JUMP, lambda: setattr(clock, "seconds", 0.0 if clock.seconds else 86400.0))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HEEDED)  # a signal that came too early is delivered now
    loop.add_signal_handler(signal.SIGTERM, leave.set)
    world = World(job.world)
    crash = CrashPoints(CrashPoint.parse(point) for point in job.points)
    workload = find_workload(job.workload)(world, crash)
    engine = Engine(
        line.store(crash.store(store_at(job.store))), workload.flows, lease=job.lease, clock=clock,
        takeover_limit=job.takeover_limit, host=job.host, dispatch=workload.dispatch,
    )  # fmt: skip
    async with engine:
        serving = None if job.only else asyncio.create_task(engine.serve(poll=POLL))
        for number in job.numbers:
            planned = workload.plan(number)
            with contextlib.suppress(RunExists):
                await engine.start(
                    planned.flow, planned.data, run_id=f"{job.prefix}{number}", budget=planned.budget
                )
        if serving is None:
            for number in job.numbers:
                await engine.finish(f"{job.prefix}{number}")
            if job.counted is not None:
                _write_down(job.counted, f"{crash.commits} {crash.effects}")
            return
        parent = os.getppid()
        leaving = asyncio.create_task(leave.wait())
        while not leave.is_set() and os.getppid() == parent:
            done, _ = await asyncio.wait({serving, leaving}, timeout=0.5, return_when=asyncio.FIRST_COMPLETED)
            if serving in done:
                serving.result()
                raise RuntimeError("serve came back by itself")
        serving.cancel()
        leaving.cancel()


def _write_down(path: str, text: str) -> None:
    Path(path).write_text(text)


def _child(job: Job) -> None:
    """Run a worker in the forked process; never returns."""
    code = 1
    try:
        fd = os.open(job.journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(fd, 2)
        os.dup2(os.open(os.devnull, os.O_RDWR), 1)
        os.dup2(1, 0)
        logging.basicConfig(
            stream=sys.stderr, level=logging.WARNING, format="%(process)d %(message)s", force=True
        )
        logging.getLogger(logger.NAME).setLevel(logging.WARNING)
        asyncio.run(work(job))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    """Fork a worker for every line on standard input; print its process id."""
    signal.pthread_sigmask(signal.SIG_BLOCK, HEEDED)  # until a worker can handle them
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # ended workers are reaped at once
    for line in sys.stdin:
        job = Job(**json.loads(line))
        find_workload(job.workload)  # loaded once, for all
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _child(job)
        print(pid, flush=True)


class Nursery:
    """Starts workers and ends them."""

    def __init__(self) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "detent.testing.worker_processes"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip
        self._alive: set[int] = set()

    def start(self, job: Job) -> int:
        """Start a new worker; returns its process id."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asdict(job)) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("The nursery process died.")
        self._alive.add(int(line))
        return int(line)

    def alive(self, pid: int) -> bool:
        """Whether a worker of ours is running."""
        if pid in self._alive:
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                self._alive.discard(pid)
        return pid in self._alive

    def stopped(self, pid: int) -> bool:
        """Whether a worker of ours is stopped."""
        stat = Path(f"/proc/{pid}/stat")
        if Path("/proc/self/stat").exists():
            with contextlib.suppress(OSError):
                return stat.read_text().rsplit(")", 1)[1].split()[0] in ("T", "t")
            return False
        ps = subprocess.run(["ps", "-o", "state=", "-p", str(pid)], capture_output=True, text=True)
        return ps.stdout.strip()[:1] == "T"

    def send(self, pid: int, number: signal.Signals) -> bool:
        """Send a signal to a worker of ours; False when it is gone."""
        if not self.alive(pid):
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        return True

    async def gone(self, pid: int) -> None:
        """Wait until a worker has ended."""
        while self.alive(pid):  # noqa: ASYNC110  there is no event to wait for
            await asyncio.sleep(0.003)

    async def kill(self, pid: int) -> None:
        """Kill a worker and wait until it has ended."""
        self.send(pid, signal.SIGKILL)
        await self.gone(pid)

    def close(self) -> None:
        """End every worker and the forking process."""
        for pid in list(self._alive):
            self.send(pid, signal.SIGKILL)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def __enter__(self) -> Nursery:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


if __name__ == "__main__":
    main()
