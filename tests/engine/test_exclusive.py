"""Of the runs of one key, one is open at a time: in every interleaving, and whichever process is killed."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from detent.adapters.stores.memory import MemoryStore
from detent.adapters.stores.sqlite import SQLiteStore
from detent.engine.engine import Engine
from detent.engine.outcome import Effect, Hold
from detent.engine.ports import RunQuery
from detent.engine.tools import Tool
from detent.kernel.errors import KeyTaken, RunNotFound
from tests.engine.conftest import one_step

GATED = ("mark", "row", "create", "append")
"""Calls of a store that decide who has a key."""


class Gated:
    """A store that calls `before(name)` ahead of each call that decides who has a key."""

    def __init__(self, inner: Any, before: Any) -> None:
        self.inner, self.before = inner, before

    def __getattr__(self, name: str) -> Any:
        call = getattr(self.inner, name)
        if name not in GATED:
            return call

        async def gated(*args: Any, **options: Any) -> Any:
            await self.before(name)
            return await call(*args, **options)

        return gated


class Turns:
    """Lets one process make one call at a time, in the order of a schedule."""

    def __init__(self) -> None:
        self.waiting: asyncio.Future[None] | None = None
        self.task: asyncio.Future[Any] | None = None

    async def before(self, _: str) -> None:
        if asyncio.current_task() is self.task:
            self.waiting = asyncio.get_running_loop().create_future()
            await self.waiting

    async def settle(self) -> None:
        """Until the process waits before a call, or is through."""
        while self.waiting is None and self.task is not None and not self.task.done():
            await asyncio.sleep(0)

    async def step(self) -> None:
        if self.waiting is not None:
            waiting, self.waiting = self.waiting, None
            waiting.set_result(None)
            await self.settle()


def flow(**options):
    async def work(ctx):
        if not ctx.answered("go"):
            return Hold("go", question="Go on?")
        return "done" if ctx.answer("go") == "yes" else "failed"

    return one_step(work, also=("failed",), **options)


async def open_runs(store: Any) -> list[str]:
    rows = (await store.rows(RunQuery())).rows
    return [row.id for row in rows if not row.now.status.is_end]


async def ended(engine: Engine, run_id: str) -> None:
    await engine.start("flow", run_id=run_id, exclusive="k")
    run = await engine.finish(run_id)
    await engine.release(run_id, "no", hold=run.token("go"))
    await engine.finish(run_id)


ACTIONS = {
    "start": lambda engine, name: engine.start("flow", run_id=name, exclusive="k", drive=False),
    "reopen": lambda engine, name: engine.reopen(name, drive=False),
}


@pytest.mark.parametrize("pair", [("start", "start"), ("start", "reopen"), ("reopen", "reopen")], ids=str)
async def test_in_every_interleaving_of_two_processes_at_most_one_run_is_open(pair):
    """Also where one is stopped after any of its calls, as by a kill: checked after each call."""
    schedules = 0
    for schedule in product((0, 1), repeat=7):
        store = MemoryStore()
        async with Engine(store, [flow()]) as before:
            for name, action in zip("ab", pair, strict=True):
                if action == "reopen":
                    await ended(before, name)
            turns = [Turns(), Turns()]
            engines = [Engine(Gated(store, turn.before), [flow()]) for turn in turns]
            for turn, engine, action, name in zip(turns, engines, pair, "ab", strict=True):
                turn.task = asyncio.ensure_future(ACTIONS[action](engine, name))
                await turn.settle()
            last = (*schedule, *[0] * 9, *[1] * 9)
            for process in last:
                await turns[process].step()
                assert len(await open_runs(store)) <= 1
            results = await asyncio.gather(*(turn.task for turn in turns), return_exceptions=True)
            assert sum(isinstance(result, KeyTaken) for result in results) == 1, results
            assert len(await open_runs(store)) == 1
            for engine in engines:
                await engine.active.leases.retire()
        schedules += 1
    assert schedules == 128


async def test_the_one_refused_leaves_no_run_and_performs_nothing(durable):
    """Another process takes the key just before its run is created: `KeyTaken`, and nothing else."""
    ran = []

    def write(text: str):
        ran.append(text)

    def at_end(ending):
        return [Effect("write", {"text": f"{ending.run_id} {ending.status.value}"})]

    def reported():
        return flow(tools=[Tool("write", write, idempotent=True)], at_end=at_end)

    first = await durable.engine(reported())

    async def before(call):
        if call == "create":
            await first.start("flow", run_id="b", exclusive="k")

    async with Engine(Gated(durable.store(), before), [reported()]) as second:
        with pytest.raises(KeyTaken):
            await second.start("flow", run_id="a", exclusive="k")
        with pytest.raises(RunNotFound):
            await second.get("a")
        assert await second.resume_all() == []
    assert ran == []


async def test_a_run_is_not_reopened_beside_one_that_was_started_meanwhile(durable):
    """The start takes the key between the look at it and the commit."""
    here = await durable.engine(flow())
    await ended(here, "a")
    started = []

    async def before(call):
        if call == "append" and not started:
            started.append(await here.start("flow", run_id="b", exclusive="k"))

    async with Engine(Gated(durable.store(), before), [flow()]) as there:
        with pytest.raises(KeyTaken) as error:
            await there.reopen("a")
        assert error.value.run_id == "b"
        assert await open_runs(there.store) == ["b"]


async def test_a_fork_is_apart_also_once_it_is_reopened(quick):
    """It does not take the key of the run it came from."""
    engine = await quick.engine(flow())
    first = await engine.start("flow", exclusive="k")
    await engine.finish(first)
    fork = await engine.fork(first)
    await engine.finish(fork)
    await engine.cancel(fork)
    await engine.reopen(fork)
    assert len(await open_runs(engine.store)) == 2


def _start_many(path: str, name: str, many: int) -> None:
    """Start and end runs of one key from several tasks; whoever has the key notes it in the folder."""

    async def work(ctx):
        return "done"

    async def starts() -> None:
        async with Engine(SQLiteStore(path, sync="normal"), [one_step(work)]) as engine:

            async def one(task: int) -> None:
                for turn in range(many):
                    run_id = f"{name}-{task}-{turn}"
                    with contextlib.suppress(KeyTaken):
                        await engine.start("flow", run_id=run_id, exclusive="k", drive=False)
                        alone = await open_runs(engine.store)
                        if alone != [run_id]:
                            Path(f"{path}.{run_id}").write_text(str(alone), encoding="utf-8")
                        await engine.finish(run_id)

            await asyncio.gather(*(one(task) for task in range(4)))

    asyncio.run(starts())


def test_two_processes_that_start_at_the_same_time_never_have_two_open(tmp_path):
    """No kill, no gate: four tasks in each of two processes, on one file."""
    path = str(tmp_path / "detent.db")
    spawn = multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=_start_many, args=(path, name, 25)) for name in ("p", "q")]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    assert not [file.read_text(encoding="utf-8") for file in tmp_path.glob("detent.db.[pq]-*")]
