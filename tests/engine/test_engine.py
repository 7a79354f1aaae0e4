"""The engine as a whole: starting, finishing, following, stopping, and many at once."""

from __future__ import annotations

import asyncio

import pytest

from detent.engine.engine import Engine
from detent.engine.outcome import Hold, Outcome
from detent.engine.step import Step
from detent.engine.step_failures import Transient
from detent.kernel.errors import ConfigurationError, FlowNotFound, RunExists, RunNotFound
from detent.kernel.policy import RetryPolicy
from detent.kernel.status import Status
from tests.engine import answers
from tests.engine.conftest import flow_of, kinds, one_step, until


class TestStarting:
    async def test_a_started_run_is_durable_before_it_is_driven(self, bench):
        engine = await bench.engine(one_step(lambda ctx: None))
        run_id = await engine.start("flow", {"a": 1}, tags=["t"], drive=False)
        row = await engine.store.row(run_id)
        assert (row.now.status, row.now.state, row.tags, row.owner) == (Status.RUNNING, "work", ("t",), None)
        assert await kinds(engine, run_id) == ["started"]

    async def test_a_flow_object_may_be_given_instead_of_its_name(self, quick):
        engine = await quick.engine()
        assert (await engine.run(one_step(lambda ctx: None))).status is Status.SUCCEEDED

    async def test_an_id_that_is_taken_is_refused(self, bench):
        engine = await bench.engine(one_step(lambda ctx: None))
        await engine.run("flow", run_id="mine")
        with pytest.raises(RunExists):
            await engine.start("flow", run_id="mine")

    async def test_ids_are_made_where_none_is_given(self, quick):
        engine = await quick.engine(one_step(lambda ctx: None))
        assert len({await engine.start("flow") for _ in range(20)}) == 20

    async def test_unknown_flows_and_runs_are_refused(self, bench):
        engine = await bench.engine(one_step(lambda ctx: None))
        with pytest.raises(FlowNotFound):
            await engine.start("nothing")
        for asking in (engine.finish("nobody"), engine.get("nobody"), engine.cancel("nobody")):
            with pytest.raises(RunNotFound):
                await asking
        with pytest.raises(RunNotFound):
            async for _ in engine.follow("nobody"):
                pass

    def test_an_engine_must_be_able_to_work(self, quick):
        with pytest.raises(ConfigurationError, match="concurrency is 0"):
            Engine(quick.store(), concurrency=0)

    async def test_a_caller_who_gives_up_on_the_first_start_leaves_a_beating_engine(self, bench):
        engine = await bench.engine(one_step(lambda ctx: None))
        task = asyncio.ensure_future(engine.start("flow"))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})
        await engine.run("flow")
        assert {helper.get_name() for helper in engine.active._helpers} >= {"heed"}
        assert [worker.id for worker in await engine.store.workers()] == [engine.active.leases.me.id]


class TestFinishing:
    async def test_many_may_wait_for_one_run(self, bench):
        go = asyncio.Event()

        async def work(ctx):
            await go.wait()

        engine = await bench.engine(one_step(work))
        run_id = await engine.start("flow")
        waiting = [asyncio.ensure_future(engine.finish(run_id)) for _ in range(5)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        go.set()
        runs = await asyncio.gather(*waiting[1:])
        assert [run.status for run in runs] == [Status.SUCCEEDED] * 4

    async def test_a_run_nobody_drives_is_taken_up(self, bench):
        engine = await bench.engine(one_step(lambda ctx: None))
        run_id = await engine.start("flow", drive=False)
        assert (await engine.finish(run_id)).status is Status.SUCCEEDED

    async def test_a_run_driven_elsewhere_is_waited_for(self, bench):
        go = asyncio.Event()

        async def work(ctx):
            await go.wait()

        first = await bench.engine(one_step(work))
        second = await bench.engine(one_step(work))
        run_id = await first.start("flow")
        finishing = asyncio.ensure_future(second.finish(run_id))
        await asyncio.sleep(0.02)
        go.set()
        assert (await finishing).status is Status.SUCCEEDED

    async def test_finishing_twice_gives_the_same(self, bench):
        engine = await bench.engine(one_step(lambda ctx: {"a": 1}))
        run = await engine.run("flow")
        assert (await engine.finish(run.id)).to_plain() == run.to_plain()


class TestFollowing:
    async def test_entries_come_as_they_are_committed(self, bench):
        gates = [asyncio.Event() for _ in range(3)]

        async def work(ctx):
            await gates[ctx.visit - 1].wait()
            return "done" if ctx.visit == 3 else "work"

        engine = await bench.engine(flow_of({"work": ["work", "done"]}, {"work": work}))
        run_id = await engine.start("flow")
        seen = []
        async for entry in engine.follow(run_id):
            seen.append((entry.seq, entry.kind))
            if len(seen) <= 3:
                gates[len(seen) - 1].set()
        assert seen == [(1, "started"), (2, "moved"), (3, "moved"), (4, "moved")]

    async def test_from_an_entry_on_and_from_another_engine(self, bench):
        first = await bench.engine(
            flow_of({"work": ["work", "done"]}, {"work": lambda ctx: "done" if ctx.visit == 5 else "work"})
        )
        run_id = await first.start("flow")
        second = await bench.engine()
        seen = [entry.seq async for entry in second.follow(run_id, 3, poll=0.01)]
        assert seen == [4, 5, 6]

    async def test_following_goes_on_over_a_wait(self, bench):
        engine = await bench.engine(one_step(lambda ctx: None if ctx.answered() else Hold()))
        run_id = await engine.start("flow")
        seen = []

        async def follow():
            async for entry in engine.follow(run_id):
                seen.append(entry.kind)

        following = asyncio.ensure_future(follow())
        await until(lambda: "held" in seen)
        await answers.release(engine, run_id, 1)
        await following
        assert seen == ["started", "held", "released", "moved"]


class TestStopping:
    async def test_a_graceful_stop_finishes_the_step_and_leaves_the_run_resumable(self, bench):
        entered = asyncio.Event()

        async def slow(ctx):
            entered.set()
            await asyncio.sleep(0.05)
            return {"slow": True}

        def make():
            return flow_of({"a": ["b"], "b": ["done"]}, {"a": slow, "b": lambda ctx: None})

        first = await bench.engine(make())
        run_id = await first.start("flow")
        await entered.wait()
        await first.stop(grace=10)
        second = await bench.engine(make())
        run = await second.get(run_id)
        assert (run.status, run.state, run.data) == (Status.RUNNING, "b", {"slow": True})
        assert (await second.store.row(run_id)).owner is None
        assert await second.resume_all() == [run_id]
        assert (await second.finish(run_id)).status is Status.SUCCEEDED
        assert "claimed" not in await kinds(second, run_id)  # nobody died

    async def test_a_run_that_waits_for_a_retry_is_put_down_at_once(self, bench, clock):
        def broken(ctx):
            raise Transient("later")

        step = Step("work", broken, retry=RetryPolicy(9, wait_min=20, wait_max=20))
        engine = await bench.engine(one_step(step), clock=clock)
        run_id = await engine.start("flow")
        await until(lambda: clock.sleeping(20))
        async with asyncio.timeout(10):
            await engine.stop(grace=3600)
        other = await bench.engine(one_step(lambda ctx: {"attempt": ctx.attempt}), clock=clock)
        await clock.turn(20)
        assert await other.resume_all() == [run_id]
        assert (await other.finish(run_id)).data == {"attempt": 2}

    async def test_parents_stopped_with_their_children_are_put_down_not_held(self, bench):
        entered = asyncio.Event()

        async def child(ctx):
            entered.set()
            await asyncio.sleep(0.02)
            return "work"

        async def work(ctx):
            await ctx.child("child", key="c")

        flows = (
            one_step(work, name="parent"),
            flow_of({"work": ["work", "done"]}, {"work": child}, name="child"),
        )
        engine = await bench.engine(*flows)
        await engine.start("parent", run_id="p")
        await entered.wait()
        await engine.stop(grace=10)
        other = await bench.engine(*flows)
        assert (await other.get("p")).status is Status.RUNNING
        assert (await other.get("p.c")).status is Status.RUNNING

    async def test_timers_and_waits_do_not_keep_an_engine_from_stopping(self, bench, clock):
        engine = await bench.engine(one_step(lambda ctx: Hold(wake_at=clock.now() + 50)), clock=clock)
        run_id = await engine.start("flow")
        await engine.finish(run_id, patience=1)
        await engine.stop()
        left = [task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        assert not [name for name in left if name.startswith(("run ", "timers", "beat", "heed"))]

    async def test_a_run_started_but_not_yet_begun_is_left_resumable(self, bench):
        engine = await bench.engine(one_step(lambda ctx: None))
        run_id = await engine.start("flow")
        await engine.stop(grace=0)
        other = await bench.engine(one_step(lambda ctx: None))
        assert (await other.finish(run_id)).status is Status.SUCCEEDED

    async def test_stopping_twice_is_stopping_once(self, bench):
        engine = await bench.engine(one_step(lambda ctx: None))
        await engine.run("flow")
        await engine.stop()
        await engine.stop()

    async def test_an_orderly_end_leaves_no_worker_behind(self, bench):
        engine = await bench.engine(one_step(lambda ctx: None))
        await engine.run("flow")
        await engine.stop()
        other = await bench.engine()
        assert await other.store.workers() == []


class TestMany:
    async def test_no_more_run_at_once_than_allowed(self, bench):
        now, most = [0], [0]
        full = asyncio.Event()

        async def work(ctx):
            now[0] += 1
            most[0] = max(most[0], now[0])
            if now[0] == 4:
                full.set()
            await full.wait()
            await asyncio.sleep(0.001)
            now[0] -= 1

        engine = await bench.engine(one_step(work), concurrency=4)
        runs = [await engine.start("flow") for _ in range(40)]
        for run_id in runs:
            await engine.finish(run_id)
        assert most[0] == 4

    async def test_slots_are_whole_again_after_cancellations_timeouts_and_retries(self, bench, clock):
        def broken(ctx):
            raise Transient("later")

        step = Step("work", broken, retry=RetryPolicy(3, wait_min=7, wait_max=7))
        engine = await bench.engine(
            one_step(step), one_step(lambda ctx: None, name="other"), clock=clock, concurrency=2
        )
        runs = [await engine.start("flow") for _ in range(6)]
        await until(lambda: clock.sleeping(7, many=6))
        for run_id in runs[:3]:
            await engine.cancel(run_id)
        await clock.turn(7)
        await until(lambda: clock.sleeping(7, many=3))
        await clock.turn(7)
        for run_id in runs[3:]:
            assert (await engine.finish(run_id)).status is Status.FAILED
        assert (await engine.run("other")).status is Status.SUCCEEDED
        assert engine.active.slots.free == 2

    async def test_two_thousand_runs_on_sqlite_all_end(self, durable):
        async def work(ctx):
            await asyncio.sleep(0)
            return Outcome(set={"n": ctx.data.n + 1})

        flow = flow_of({"a": ["b"], "b": ["done"]}, {"a": work, "b": work})
        engine = await durable.engine(flow)
        runs = await asyncio.gather(*(engine.run("flow", {"n": n}) for n in range(2000)))
        assert all(run.status is Status.SUCCEEDED for run in runs)
        assert sorted(run.data["n"] for run in runs) == list(range(2, 2002))
        assert await engine.store.flows() == [("flow", Status.SUCCEEDED, 2000)]
