"""Take-overs that nearly went wrong: two tasks in one process, a parent not woken, a run nobody can drive."""

from __future__ import annotations

import asyncio
import time

import pytest

from detent.adapters.stores.memory import MemoryStore
from detent.engine.engine import Engine
from detent.engine.flow import Flow
from detent.engine.outcome import Effect, Hold, Outcome
from detent.engine.tools import Tool, ToolError
from detent.kernel.budget import Spend
from detent.kernel.errors import RunBusy
from detent.kernel.machine import Machine
from detent.kernel.status import Status
from tests.engine import answers
from tests.engine.conftest import until


def one_step(name, handler, **options) -> Flow:
    machine = Machine(name, start="do", moves={"do": ["done"]}, ends=["done"])
    return Flow(machine, {"do": handler}, **options)


async def test_two_tasks_of_one_process_cannot_take_the_same_run():
    done = []

    async def do(ctx):
        done.append(ctx.run_id)
        await asyncio.sleep(0)

    async with Engine(MemoryStore(), [one_step("small", do)]) as engine:
        run_id = await engine.start("small", drive=False)
        results = await asyncio.gather(*(engine.resume(run_id) for _ in range(5)), return_exceptions=True)
        assert results.count(run_id) == 1
        assert sum(isinstance(result, RunBusy) for result in results) == 4
        await engine.finish(run_id)
        assert done == [run_id]
        assert {entry.epoch for entry in await engine.store.entries(run_id, 1)} == {2}


def parent_and_child() -> tuple[Flow, Flow]:
    async def ask(ctx):
        child = await ctx.child("child", key="only")
        return Outcome(set={"said": child.data["said"]})

    def wait(ctx):
        return Outcome(set={"said": ctx.answer()}) if ctx.answered() else Hold(question="well?")

    return one_step("parent", ask), one_step("child", wait)


async def test_a_parent_that_missed_its_childs_end_is_found_by_the_next_process():
    store = MemoryStore()
    parent, child = parent_and_child()
    async with Engine(store, [parent, child]) as engine:
        run_id = await engine.start("parent")
        assert (await engine.finish(run_id, patience=0)).status is Status.WAITING
    # This process ends the child and cannot tell the parent, as if it had died in between.
    async with Engine(store, [child]) as engine:
        await answers.release(engine, f"{run_id}.only", "yes")
        await engine.finish(f"{run_id}.only")
    assert (await store.row(run_id)).now.status is Status.WAITING
    async with Engine(store, parent_and_child()) as engine:
        await engine.resume_all()
        run = await engine.finish(run_id)
        assert (run.status, run.data) == (Status.SUCCEEDED, {"said": "yes"})


async def test_an_effect_that_was_done_before_costs_its_step_all_the_same():
    performed, broken = [], [True]
    act = Tool("act", lambda: performed.append(1))

    def late() -> None:
        if broken:
            raise ToolError("broken")

    def do(ctx):
        if ctx.failure is not None:
            raise ValueError("not today")
        return Outcome(effects=[Effect("act", {}), Effect("late", {})], spend=Spend(2, 3))

    machine = Machine("again", start="do", moves={"do": ["done", "failed"]},
                      ends={"done": Status.SUCCEEDED, "failed": Status.FAILED})  # fmt: skip
    async with Engine(MemoryStore(), [Flow(machine, {"do": do}, tools=[act, Tool("late", late)])]) as engine:
        run_id = (await engine.run("again")).id
        broken.clear()
        await engine.reopen(run_id)
        run = await engine.finish(run_id)
    assert run.status is Status.SUCCEEDED
    assert performed == [1]
    assert run.total_spend.tokens == 10


async def test_a_run_that_cannot_be_driven_asks_for_attention_instead_of_hanging():
    store = MemoryStore()

    def do(ctx):
        return Outcome(effects=[Effect("act", {})])

    def refuse():
        raise RuntimeError("in doubt")

    async with Engine(store, [one_step("tooled", do, tools=[Tool("act", refuse)])]) as engine:
        run_id = await engine.start("tooled")
        assert (await engine.finish(run_id)).status is Status.WAITING
        await answers.resolve(engine, run_id, "again", drive=False)
    # The next process has the same table but has lost the tool.
    async with Engine(store, [one_step("tooled", do)]) as engine:
        await engine.resume_all()
        while (await store.row(run_id)).now.status is Status.RUNNING:
            await asyncio.sleep(0)
        (hold,) = (await engine.get(run_id)).holds.values()
        assert (hold.name, hold.why) == ("driver", "attention")
    async with Engine(store, [one_step("tooled", do, tools=[Tool("act", dict)])]) as engine:
        await answers.release(engine, run_id, "continue")
        assert (await engine.finish(run_id)).status is Status.SUCCEEDED


@pytest.mark.parametrize("beats", [False, True])
@pytest.mark.parametrize("at", ["effect_begun", "noted"])
async def test_a_worker_that_slept_past_its_lease_performs_nothing_and_pays_for_nothing(at, beats):
    """The last thing before an effect, or an answer worth money, is to make sure the run is still ours."""

    class Clock:
        slept = 0.0

        def now(self):
            return time.time() + self.slept

        def elapsed(self):
            return time.perf_counter() + self.slept

        ticks = elapsed

        async def sleep(self, seconds):
            await asyncio.sleep(seconds)

    class Overtaken(MemoryStore):
        """At a certain entry this process sleeps for long, and another worker takes the run."""

        async def append(self, commit):
            size = await super().append(commit)
            if any(entry.kind == at for entry in commit.entries):
                clock.slept = 3600.0
                await self.claim(commit.lease.run_id, "another", await self.workers())
                if beats:  # back awake, the beat comes first
                    await engine.active.leases.beat()
            return size

    clock, done = Clock(), []

    async def work(ctx):
        if at == "noted":
            await ctx.note("thinking")
            await ctx.once("answer", lambda: done.append("paid"))
        return Outcome(effects=[Effect("mail", {"to": "x"})])

    flow = Flow(
        Machine("flow", start="work", moves={"work": ["end"]}, ends=["end"]),
        {"work": work},
        tools=[Tool("mail", lambda to: done.append(to))],
    )
    async with Engine(Overtaken(), [flow], clock=clock) as engine:
        run_id = await engine.start("flow")
        await until(lambda: engine.active.under_way(run_id) is None)
        assert done == []
        assert (await engine.store.row(run_id)).owner == "another"
