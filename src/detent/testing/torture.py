"""The torture test: disturb worker processes many times, and see that the results do not show it.

Five rounds on one store, in each of which some workers have places to spare. *Boundaries*: one process for
every commit and effect of one run, killed just before and just after it. *Kills*: workers killed at random
instants and replaced. *Pauses*: workers of one machine stopped at any instant for longer than their lease,
amid plain functions that take longer than that. *Stops*: workers of several machines stopped and continued
after others took over; never within an effect, for no engine could undo what a machine does after it was
given up. *Elsewhere*: workers of several machines whose clocks differ and jump, cut off from the store for
longer than their lease, amid the same functions. Effects left in doubt are settled by looking at the world,
as a person would. Then every run is compared with an undisturbed one.

    python -m detent.testing.torture --store sqlite:torture.db --kills 300 --workers 2 --seed 7
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from detent.engine.effects import AGAIN, HAPPENED
from detent.engine.engine import Engine
from detent.engine.journal_reader import rows_of
from detent.engine.ports import RunQuery, RunRow
from detent.kernel.errors import ConfigurationError, RunBusy, RunStateError
from detent.kernel.plain import encode
from detent.kernel.status import Status
from detent.testing.blocking_workload import SHORT_LEASE
from detent.testing.crash import CrashPoint, CrashPoints
from detent.testing.verify import Found, Violation, excerpt, expect, verify
from detent.testing.worker_processes import CUT_OFF, JUMP, STOP_SELF, Job, Nursery, store_at
from detent.testing.workload import Workload, find_workload
from detent.testing.world import World

REFERENCE = "detent.testing.workload:reference"
LABOUR = "detent.testing.blocking_workload:labour"
PATIENCE = 30.0
"""Seconds without any progress after which open runs count as stuck."""
SIDE_BY_SIDE = 3
"""Processes under way in the first round."""


STILL_RUNNING = "cannot be stopped"
"""What the question about an effect says that may happen after it was asked."""
PATIENCE = 10.0
"""Seconds given to such an effect before it is said not to have happened."""


@dataclass(slots=True)
class Report:
    """What was done, and what was wrong afterwards."""

    store: str
    seed: int
    boundaries: int = 0
    kills: int = 0
    pauses: int = 0
    stops: int = 0
    jumps: int = 0
    cuts: int = 0
    settled: Counter[str] = field(default_factory=Counter)
    """Holds the harness answered, by answer."""
    fenced: int = 0
    """Times a stale worker was refused."""
    found: Found = field(default_factory=Found)
    seconds: float = 0.0
    violations: list[Violation] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """True when no promise was broken."""
        return not self.violations

    def __str__(self) -> str:
        found = self.found
        effects = ", ".join(f"{count} {how}" for how, count in sorted(found.effects.items()))
        settled = ", ".join(f"{count} {how}" for how, count in sorted(self.settled.items())) or "none"
        lines = [
            f"Torture of {self.store.partition(':')[0]}, seed {self.seed}, {self.seconds:.0f} s",
            f"  killed       at {self.boundaries} boundaries of commits and effects, {self.kills} at random",
            f"  paused       {self.pauses} times on one machine",
            f"  stopped      {self.stops} times elsewhere; stale workers refused {self.fenced} times",
            f"  clocks       jumped {self.jumps} times; {self.cuts} times cut off",
            f"  runs         {found.runs}; {found.entries} journal entries, {found.takeovers} take-overs",
            f"  effects      {effects}; {found.repeated} begun more than once",
            f"  in doubt     settled by looking: {settled}",
            f"  paid         {found.paid} answers kept, {found.lost} paid for and lost before they were kept",
            f"  saved folds  {found.folds} equal to their journals",
        ]
        if self.ok:
            lines.append("  verdict      every run as if nothing had happened")
        else:
            lines.append(f"  verdict      {len(self.violations)} violations")
            lines += [f"  VIOLATION {violation}" for violation in self.violations]
        return "\n".join(lines)


class Torturer:
    """One torture: its store, its world, its workers."""

    def __init__(
        self, store: str, folder: Path, *, workload: str, workers: int, seed: int, say: Callable[[str], None]
    ) -> None:
        self.store = store
        self.folder = folder
        self.workload = workload
        self.workers = workers
        self.random = random.Random(seed)
        self.say = say
        self.report = Report(store, seed)
        self.world = World(folder / "world")
        self._hosts = itertools.count()
        self._engine: Engine | None = None
        self._nursery: Nursery | None = None

    @property
    def engine(self) -> Engine:
        """Looks and answers; never drives anything."""
        assert self._engine is not None
        return self._engine

    @property
    def nursery(self) -> Nursery:
        """Where workers come from."""
        assert self._nursery is not None
        return self._nursery

    @asynccontextmanager
    async def ready(self) -> AsyncIterator[None]:
        """Open the store and the nursery."""
        with Nursery() as self._nursery:
            flows = [flow for name in (self.workload, LABOUR) for flow in self._made(name).flows]
            async with Engine(store_at(self.store), flows) as self._engine:
                yield
        self.world.close()

    def _made(self, workload: str) -> Workload:
        return find_workload(workload)(self.world, CrashPoints())

    def job(
        self, prefix: str, numbers: Sequence[int] = (), workload: str | None = None, **options: object
    ) -> Job:
        """A worker's task on this store."""
        return Job(
            self.store, str(self.folder / "world"), workload or self.workload,
            str(self.folder / "workers.log"), prefix, list(numbers), **options,  # type: ignore[arg-type]
        )  # fmt: skip

    def host(self) -> str:
        """A machine nobody else is on."""
        return f"machine-{next(self._hosts)}"

    # -- rounds ---------------------------------------------------------------------------------------------

    async def boundaries(self, stride: int = 1) -> None:
        """Kill one process at every commit and effect of the first run, then have the rest done."""
        counted = self.folder / "counted"
        pid = self.nursery.start(self.job("c", [0], only=True, counted=str(counted)))
        await self.nursery.gone(pid)
        if not counted.exists():
            raise RuntimeError(f"The workload does not run at all:\n{self._log()}")
        commits, effects = (int(text) for text in counted.read_text().split())
        points: list[CrashPoint] = []
        for number in range(1, commits + 1, stride):
            points += [CrashPoint(number, "before", "commit"), CrashPoint(number, "after", "commit")]
        for number in range(1, effects + 1):
            points += [CrashPoint(number, "before", "effect"), CrashPoint(number, "after", "effect")]
        gate = asyncio.Semaphore(SIDE_BY_SIDE)

        async def one(index: int, point: CrashPoint) -> None:
            async with gate:
                # Every run is the first of the workload, under a name of its own.
                pid = self.nursery.start(self.job(f"b{index}-", [0], only=True, points=[str(point)]))
                await self.nursery.gone(pid)

        await asyncio.gather(*(one(index, point) for index, point in enumerate(points)))
        self.report.boundaries += len(points)
        self.say(f"killed at {len(points)} boundaries of {commits} commits and {effects} effects")
        last = self.nursery.start(self.job("b"))
        await self._until_ended([last])
        await self.nursery.kill(last)
        # A process killed before its first commit leaves no run behind.
        runs = [f"b{index}-0" for index in range(len(points))]
        there = [run_id for run_id in runs if await self.engine.store.find(run_id, 1)]
        await self._check(dict.fromkeys(["c0", *there], 0))

    async def kills(self, times: int, runs_per_kill: float = 1.0) -> None:
        """Kill workers at random instants; each one that replaces a killed one brings new runs along."""
        numbers = 0
        owed = 0.0

        def start() -> int:
            nonlocal numbers, owed
            owed += runs_per_kill
            fresh = range(numbers, numbers + int(owed))
            numbers += len(fresh)
            owed -= len(fresh)
            return self.nursery.start(self.job("k", fresh, takeover_limit=5))

        alive = [start() for _ in range(self.workers)]
        settling = asyncio.create_task(self._keep_settling())
        try:
            for turn in range(times):
                await asyncio.sleep(self.random.choice((0.0, 0.02, 0.1, 0.3)) * self.random.random())
                if turn % 4 == 3:  # on a slow machine most would be killed before they had begun anything
                    await self._under_way()
                victim = self.random.randrange(len(alive))
                await self.nursery.kill(alive[victim])
                self.report.kills += 1
                alive[victim] = start()
            # What a worker was about to start when it was killed is started by those that stay.
            alive.append(self.nursery.start(self.job("k", range(numbers))))
        finally:
            settling.cancel()
        self.say(f"killed {times} times")
        await self._until_ended(alive, [f"k{number}" for number in range(numbers)])
        for pid in alive:
            await self.nursery.kill(pid)
        await self._check({f"k{number}": number for number in range(numbers)})

    async def stops(self, times: int, runs_per_stop: int = 4) -> None:
        """Stop workers past their lease, let others take over, continue them."""
        numbers = 0

        def start(points: Sequence[str] = ()) -> int:
            nonlocal numbers
            fresh = range(numbers, numbers + runs_per_stop)
            numbers += runs_per_stop
            return self.nursery.start(
                self.job("s", fresh, lease=SHORT_LEASE, points=points, host=self.host())
            )

        alive = [start() for _ in range(self.workers)]
        settling = asyncio.create_task(self._keep_settling())
        try:
            for turn in range(times * 3):
                if self.report.stops == times:
                    break
                if turn % 2:
                    # By itself, at a commit or just after an effect was performed.
                    number = self.random.randrange(1, 12)
                    point = CrashPoint(number, "after", "effect" if turn % 4 == 1 else "commit", "stop")
                    alive.append(sleeper := start([str(point)]))
                else:
                    alive.append(start())
                    sleeper = self.random.choice(alive)
                    await asyncio.sleep(self.random.random() * 0.2)
                    self.nursery.send(sleeper, STOP_SELF)
                if await self._stopped(sleeper):
                    await asyncio.sleep(SHORT_LEASE * 1.6)
                    self.nursery.send(sleeper, signal.SIGCONT)
                    self.report.stops += 1
                alive = [pid for pid in alive if self.nursery.alive(pid)]
                if len(alive) > self.workers + 2:  # more would only be in each other's way
                    await self.nursery.kill(alive.pop(0))
        finally:
            settling.cancel()
        last = self.job("s", range(numbers), lease=SHORT_LEASE, host=self.host())
        alive.append(self.nursery.start(last))
        await self._until_ended(alive, [f"s{number}" for number in range(numbers)])
        self.say(f"stopped {self.report.stops} times")
        for pid in alive:
            await self.nursery.kill(pid)
        await self._check({f"s{number}": number for number in range(numbers)})

    async def pauses(self, times: int) -> None:
        """Stop workers of one machine at any instant, within effects too, past their lease."""

        async def strike(alive: Sequence[int]) -> None:
            victims = self.random.sample(alive, min(len(alive) - 1, times - self.report.pauses))
            await asyncio.sleep(self.random.random() * 0.3)
            for victim in victims:
                self.report.pauses += self.nursery.send(victim, signal.SIGSTOP)
            await asyncio.sleep(SHORT_LEASE * 1.6)
            for victim in victims:
                self.nursery.send(victim, signal.SIGCONT)

        await self._labour("p", strike, lambda: self.report.pauses >= times, dict)
        self.say(f"paused {self.report.pauses} times")

    async def elsewhere(self, jumps: int, cuts: int) -> None:
        """Have clocks of several machines differ and jump, and cut machines off past their lease."""

        async def strike(alive: Sequence[int]) -> None:
            report = self.report
            for victim in self.random.sample(alive, len(alive) // 2):
                await asyncio.sleep(self.random.random() * 0.3)
                if report.jumps < jumps:
                    report.jumps += self.nursery.send(victim, JUMP)
                if report.cuts < cuts:
                    report.cuts += self.nursery.send(self.random.choice(alive), CUT_OFF)
            await asyncio.sleep(SHORT_LEASE)

        def options() -> dict[str, Any]:
            return {"host": self.host(), "clock": self.random.choice((0.0, 60.0, -60.0, -86400.0))}

        await self._labour(
            "e", strike, lambda: self.report.jumps >= jumps and self.report.cuts >= cuts, options
        )
        self.say(f"{self.report.jumps} clocks jumped, {self.report.cuts} workers were cut off")

    async def _labour(
        self,
        prefix: str,
        strike: Callable[[Sequence[int]], Awaitable[None]],
        enough: Callable[[], bool],
        options: Callable[[], dict[str, Any]],
    ) -> None:
        """Disturb workers amid functions that wait; each turn brings new runs along, and one more worker."""
        numbers = 0

        def start(runs: int) -> int:
            nonlocal numbers
            fresh = range(numbers, numbers + runs)
            numbers += runs
            job = self.job(prefix, fresh, LABOUR, lease=SHORT_LEASE, takeover_limit=100, **options())
            return self.nursery.start(job)

        alive = [start(4) for _ in range(self.workers + 1)]
        settling = asyncio.create_task(self._keep_settling())
        try:
            while not enough():
                await strike(alive)
                alive = [pid for pid in alive if self.nursery.alive(pid)]
                alive.append(start(6))
                if len(alive) > self.workers + 3:
                    await self.nursery.kill(alive.pop(0))
                    self.report.kills += 1
        finally:
            settling.cancel()
        job = self.job(prefix, range(numbers), LABOUR, lease=SHORT_LEASE, **options())
        alive.append(self.nursery.start(job))
        await self._until_ended(alive, [f"{prefix}{number}" for number in range(numbers)])
        for pid in alive:
            await self.nursery.kill(pid)
        await self._check({f"{prefix}{number}": number for number in range(numbers)}, LABOUR)

    # -- what a person would do -----------------------------------------------------------------------------

    async def _stopped(self, pid: int, patience: float = 5.0) -> bool:
        """Wait until a worker has stopped itself; False when it does not, its work being done by others.

        One that stopped unseen might keep a lock of the store for as long as nobody continues it.
        """
        deadline = time.monotonic() + patience
        while not self.nursery.stopped(pid):
            if not self.nursery.alive(pid):
                return False
            if time.monotonic() > deadline:
                await self.nursery.kill(pid)
                return False
            await asyncio.sleep(0.01)
        return True

    async def _under_way(self, patience: float = 10.0) -> None:
        """Wait until some run is under way, or was left so."""
        deadline = self.engine.clock.elapsed() + patience
        while self.engine.clock.elapsed() < deadline:
            page = await self.engine.store.rows(RunQuery(status=(Status.RUNNING,), limit=1))
            if page.rows:
                return
            await asyncio.sleep(0.01)

    async def _keep_settling(self) -> None:
        while True:
            await self._settle()
            await asyncio.sleep(0.1)

    async def _settle(self) -> list[RunRow]:
        """Answer holds that ask for attention; gives the open runs."""
        query = RunQuery(status=(Status.RUNNING, Status.WAITING))
        open_runs = [row async for row in rows_of(self.engine.store, query)]
        for row in open_runs:
            for wait in row.now.waits or ():
                if wait["why"] == "attention":
                    with contextlib.suppress(RunBusy, RunStateError, ConfigurationError):
                        await self._answer(row.id, wait["name"], wait["token"])
        return open_runs

    async def _answer(self, run_id: str, name: str, token: str) -> None:
        if not name.startswith("effect:"):
            await self.engine.release(run_id, "continue", hold=token, drive=False)
            self.report.settled["continue"] += 1
            return
        effect = name.removeprefix("effect:")
        there = await self._looked_for(run_id, name, effect)
        how = HAPPENED if there else AGAIN
        receipt = there[0].receipt if there else None
        await self.engine.resolve(run_id, how, hold=token, receipt=receipt, drive=False)
        self.report.settled[how] += 1

    async def _looked_for(self, run_id: str, name: str, effect: str) -> list[Any]:
        """The occurrences of an effect in doubt; one that may still be running is given time to happen."""
        hold = (await self.engine.get(run_id)).holds.get(name)
        running = hold is not None and STILL_RUNNING in hold.question
        deadline = time.monotonic() + (PATIENCE if running else 0.0)
        while not (there := list(self.world.occurrences(key=f"{run_id}:{effect}"))):
            if time.monotonic() >= deadline:
                break
            await asyncio.sleep(0.1)
        return there

    async def _until_ended(self, alive: Sequence[int], wanted: Sequence[str] = ()) -> None:
        """Wait until no run is open, as long as anything still moves."""
        last, since = "", time.monotonic()
        missing = set(wanted)
        while True:
            # First who is there, then who is open: the other way round, one may come in between.
            for run_id in list(missing):
                if run_id in await self.engine.store.find(run_id, 1):
                    missing.discard(run_id)
            open_runs = await self._settle()
            if not open_runs and not missing:
                return
            now = encode([sorted(missing), [[row.id, row.seq] for row in open_runs]])
            if now != last:
                last, since = now, time.monotonic()
            elif time.monotonic() - since > PATIENCE:
                for row in open_runs:
                    lines = await self.engine.store.entries(row.id, max(0, row.seq - 14))
                    where = (
                        f"{row.now.status.value} in '{row.now.state}', owner {row.owner}, epoch {row.epoch}"
                    )
                    self._wrong(row.id, f"is left open: {where}", excerpt(lines, None))
                for run_id in missing:
                    self._wrong(run_id, "was never started")
                return
            if not any(self.nursery.alive(pid) for pid in alive):
                self._wrong("workers", f"all died by themselves:\n{self._log()}")
                return
            await asyncio.sleep(0.05)

    # -- checking -------------------------------------------------------------------------------------------

    def _wrong(self, run: str, message: str, text: str = "") -> None:
        self.report.violations.append(Violation(run, message, text))

    async def _check(self, runs: Mapping[str, int], workload: str | None = None) -> None:
        name = workload or self.workload
        expected = await expect(find_workload(name), runs)
        for run_id, wanted in expected.runs.items():
            if wanted["status"] == Status.FAILED.value:
                self._wrong(run_id, f"fails even when nobody disturbs it: {wanted['error']}")
        found = await verify(self.engine.store, self.world, expected, self._made(name).paid)
        total = self.report.found
        for name in ("runs", "entries", "takeovers", "folds", "repeated", "paid", "lost"):
            setattr(total, name, getattr(total, name) + getattr(found, name))
        total.effects += found.effects
        self.report.violations += found.violations

    def check_log(self) -> None:
        """What the workers complained about."""
        text = self._log(whole=True)
        self.report.fenced = text.count("run.fenced")
        for sign in ("Traceback", "run.driver_failed", "engine.helper_failed"):
            if sign in text:
                start = text.index(sign)
                self._wrong("workers", f"said {sign}", text[max(0, start - 300) : start + 3000])

    def _log(self, whole: bool = False) -> str:
        path = self.folder / "workers.log"
        text = path.read_text(errors="replace") if path.exists() else ""
        return text if whole else text[-3000:]


async def torture(
    store: str,
    *,
    workload: str = REFERENCE,
    kills: int = 200,
    pauses: int = 8,
    stops: int = 6,
    jumps: int = 6,
    cuts: int = 6,
    boundaries: bool = True,
    stride: int = 1,
    workers: int = 2,
    seed: int = 0,
    folder: Path | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Report:
    """Torture a store (`sqlite:PATH` or `postgresql://…#SCHEMA`, empty) and give the report.

    `workload` names a function like `detent.testing.workload:reference`; `stride` takes only every so-many-th
    commit boundary; `folder` keeps the world and the workers' log.
    """
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        torturer = Torturer(store, folder, workload=workload, workers=workers, seed=seed, say=say)
        async with torturer.ready():
            if boundaries:
                await torturer.boundaries(stride)
            if kills:
                await torturer.kills(kills)
            if pauses:
                await torturer.pauses(pauses)
            if stops:
                await torturer.stops(stops)
            if jumps or cuts:
                await torturer.elsewhere(jumps, cuts)
        torturer.check_log()
    report = torturer.report
    report.seconds = time.monotonic() - began
    return report


def main(arguments: Sequence[str] | None = None) -> int:
    """Torture from the command line; 1 when a promise was broken."""
    parser = argparse.ArgumentParser(
        prog="python -m detent.testing.torture", description=__doc__.split("\n")[0]
    )
    parser.add_argument(
        "--store", help="sqlite:PATH or postgresql://…#SCHEMA, empty; default a temporary SQLite file"
    )
    parser.add_argument("--kills", type=int, default=200, help="kills at random instants")
    parser.add_argument("--pauses", type=int, default=8, help="stops past the lease, on one machine")
    parser.add_argument("--stops", type=int, default=6, help="stops past the lease, on several machines")
    parser.add_argument("--jumps", type=int, default=6, help="jumps of a worker's clock")
    parser.add_argument("--cuts", type=int, default=6, help="workers cut off from the store past their lease")
    parser.add_argument("--workers", type=int, default=2, help="processes on the same store")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workload", default=REFERENCE, help="module:function that makes the workload")
    parser.add_argument("--stride", type=int, default=1, help="take only every so-many-th commit boundary")
    parser.add_argument("--no-boundaries", dest="boundaries", action="store_false")
    parser.add_argument("--folder", type=Path, help="keep the world and the workers' log here")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        doing = torture(
            options.store or f"sqlite:{folder}/torture.db",
            workload=options.workload,
            kills=options.kills,
            pauses=options.pauses,
            stops=options.stops,
            jumps=options.jumps,
            cuts=options.cuts,
            boundaries=options.boundaries,
            stride=options.stride,
            workers=options.workers,
            seed=options.seed,
            folder=options.folder,
            say=lambda line: print(f"… {line}", flush=True),
        )
        report = asyncio.run(doing)
    print(report)
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main())
