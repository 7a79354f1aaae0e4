"""Children: runs of their own with ids derived from their parent's, asked for once however often."""

from __future__ import annotations

import asyncio

import pytest

from detent.engine.flow import Flow
from detent.engine.outcome import Hold, Outcome
from detent.engine.step import Step
from detent.engine.tools import Tool
from detent.kernel.budget import Spend
from detent.kernel.errors import HoldNotOpen
from detent.kernel.machine import Machine
from detent.kernel.policy import RetryPolicy
from detent.kernel.status import Status
from tests.engine import answers, worker
from tests.engine.conftest import flow_of, kinds, one_step, until


def parent(items, *, handler=None, name="parent", **options):
    """A flow whose step runs children and keeps how they ended."""

    async def work(ctx):
        results = await ctx.children(items, flow="child", **options)
        return {"results": [[child.key, child.status.value, dict(child.data)] for child in results]}

    return one_step(handler or work, name=name)


def asking_child():
    """A child that waits for a person."""
    return one_step(lambda ctx: {"said": ctx.answer()} if ctx.answered() else Hold(), name="child")


class TestRunning:
    async def test_children_have_ids_derived_from_their_parents_and_results_in_order(self, bench):
        async def child(ctx):
            await asyncio.sleep(0.002 * (3 - ctx.data.n))
            return {"twice": ctx.data.n * 2}

        engine = await bench.engine(
            parent([(f"k{n}", {"n": n}) for n in range(4)]), one_step(child, name="child")
        )
        run = await engine.run("parent", run_id="p")
        assert run.data["results"] == [[f"k{n}", "succeeded", {"n": n, "twice": 2 * n}] for n in range(4)]
        row = await engine.store.row("p.k2")
        assert (row.parent, row.flow, row.now.status) == ("p", "child", Status.SUCCEEDED)
        assert (await kinds(engine, "p")).count("child_ended") == 4

    async def test_a_single_child_gives_its_result(self, bench):
        async def work(ctx):
            child = await ctx.child("child", {"n": 1}, key="only", tags=["x"], config={"c": 1})
            return {"ok": child.ok, "id": child.id, "state": child.state, "n": child.data.n}

        engine = await bench.engine(
            one_step(work, name="parent"), one_step(lambda ctx: {"config": dict(ctx.config)}, name="child")
        )
        run = await engine.run("parent", run_id="p", config={"p": 1})
        assert run.data == {"ok": True, "id": "p.only", "state": "done", "n": 1}
        assert (await engine.get("p.only")).data["config"] == {"p": 1, "c": 1}
        assert (await engine.store.row("p.only")).tags == ("x",)

    async def test_at_most_so_many_run_side_by_side(self, bench):
        now, most = [0], [0]
        full = asyncio.Event()

        async def child(ctx):
            now[0] += 1
            most[0] = max(most[0], now[0])
            if now[0] == 3:
                full.set()
            await full.wait()
            await asyncio.sleep(0.001)
            now[0] -= 1

        engine = await bench.engine(
            parent([(f"k{n}", {}) for n in range(12)], limit=3), one_step(child, name="child")
        )
        await engine.run("parent")
        assert most[0] == 3

    @pytest.mark.parametrize("keys", [["a", "a"], [""], ["x" * 201]])
    async def test_keys_must_tell_children_apart(self, quick, keys):
        engine = await quick.engine(
            parent([(key, {}) for key in keys]), one_step(lambda ctx: None, name="child")
        )
        run = await engine.run("parent")
        assert run.status is Status.FAILED
        assert "key" in run.error

    async def test_an_unknown_flow_fails_the_parents_step(self, quick):
        engine = await quick.engine(parent([("a", {})]))
        assert "FlowNotFound" in (await engine.run("parent")).error

    async def test_no_children_is_no_wait(self, quick):
        engine = await quick.engine(parent([]), one_step(lambda ctx: None, name="child"))
        assert (await engine.run("parent")).data == {"results": []}


class TestFailing:
    def flows(self, stop):
        def child(ctx):
            if ctx.data.n == 1:
                raise ValueError("no")
            return None

        return parent([(f"k{n}", {"n": n}) for n in range(4)], limit=1, stop_on_failure=stop), one_step(
            child, name="child"
        )

    async def test_a_failing_child_is_a_result_like_others(self, bench):
        engine = await bench.engine(*self.flows(stop=False))
        run = await engine.run("parent")
        assert run.status is Status.SUCCEEDED
        assert [status for _, status, _ in run.data["results"]] == [
            "succeeded",
            "failed",
            "succeeded",
            "succeeded",
        ]

    async def test_a_failure_may_keep_the_rest_from_starting(self, bench):
        engine = await bench.engine(*self.flows(stop=True))
        run = await engine.run("parent")
        assert [key for key, _, _ in run.data["results"]] == ["k0", "k1"]

    async def test_a_child_cancelled_by_a_person_is_a_result_too(self, bench):
        started = asyncio.Event()

        async def child(ctx):
            started.set()
            await asyncio.sleep(60)

        engine = await bench.engine(parent([("a", {})]), one_step(child, name="child"))
        run_id = await engine.start("parent", run_id="p")
        await started.wait()
        await engine.cancel("p.a")
        run = await engine.finish(run_id)
        assert run.data["results"] == [["a", "cancelled", {}]]


class TestAskingAgain:
    async def test_a_retry_of_the_parent_gets_the_same_children(self, bench):
        calls = []

        async def work(ctx):
            results = await ctx.children([("a", {}), ("b", {})], flow="child")
            if ctx.attempt == 1:
                raise TimeoutError
            return {"n": len(results)}

        engine = await bench.engine(
            one_step(Step("work", work, retry=RetryPolicy(2, 0, 0)), name="parent"),
            one_step(lambda ctx: calls.append(ctx.run_id), name="child"),
        )
        run = await engine.run("parent", run_id="p")
        assert run.data == {"n": 2}
        assert sorted(calls) == ["p.a", "p.b"]

    async def test_a_step_that_runs_out_of_time_finds_its_children_where_they_are(self, bench):
        calls = []
        go = asyncio.Event()

        async def child(ctx):
            calls.append(ctx.run_id)
            await go.wait()

        async def work(ctx):
            if ctx.attempt == 2:
                go.set()
            await ctx.children([("a", {}), ("b", {})], flow="child")

        engine = await bench.engine(
            one_step(Step("work", work, timeout=0.05, retry=RetryPolicy(20, 0, 0)), name="parent"),
            one_step(child, name="child"),
        )
        run = await engine.run("parent", run_id="p")
        assert run.status is Status.SUCCEEDED
        assert sorted(calls) == ["p.a", "p.b"]

    async def test_a_revisit_gets_the_same_child_and_pays_for_it_once(self, bench):
        async def work(ctx):
            await ctx.child("child", key="only")
            return "done" if ctx.visit == 3 else "work"

        engine = await bench.engine(
            flow_of({"work": ["work", "done"]}, {"work": work}, name="parent"),
            one_step(lambda ctx: Outcome(spend=Spend(10)), name="child"),
        )
        run = await engine.run("parent")
        assert run.total_spend == Spend(10)


class TestWaiting:
    async def test_a_waiting_child_makes_its_parent_wait_and_its_release_sends_both_on(self, bench):
        engine = await bench.engine(parent([("a", {}), ("b", {})]), asking_child())
        run = await engine.run("parent", run_id="p")
        assert run.status is Status.WAITING
        assert run.holds["children"].about == {"runs": ["p.a", "p.b"]}
        await answers.release(engine, "p.a", 1)
        await until(lambda: _is(engine, "p.a", Status.SUCCEEDED))
        assert (await engine.finish("p")).status is Status.WAITING
        await answers.release(engine, "p.b", 2)
        await until(lambda: _is(engine, "p", Status.SUCCEEDED))
        run = await engine.finish("p")
        assert [data for _, _, data in run.data["results"]] == [{"said": 1}, {"said": 2}]

    async def test_a_childs_wait_cannot_be_answered_at_its_parent(self, quick):
        engine = await quick.engine(parent([("a", {})]), asking_child())
        run = await engine.run("parent")
        with pytest.raises(HoldNotOpen, match="waits for other runs"):
            await engine.release(run.id, 1, hold=run.token("children"))

    async def test_another_engine_releases_the_child_and_the_parent_goes_on(self, bench):
        first = await bench.engine(parent([("a", {})]), asking_child())
        await first.run("parent", run_id="p")
        await first.stop()
        second = await bench.engine(parent([("a", {})]), asking_child())
        await answers.release(second, "p.a", "yes")
        await until(lambda: _is(second, "p", Status.SUCCEEDED))

    async def test_a_child_that_waits_for_the_clock_is_waited_for(self, bench, clock):
        def child(ctx):
            return None if ctx.answered() else Hold(wake_at=clock.now() + 50)

        engine = await bench.engine(parent([("a", {})]), one_step(child, name="child"), clock=clock)
        run_id = await engine.start("parent", run_id="p")
        assert (await engine.finish(run_id, patience=10)).status is Status.WAITING
        finishing = asyncio.ensure_future(engine.finish(run_id))
        await until(lambda: clock.sleeping(50))
        await clock.turn(50)
        assert (await finishing).status is Status.SUCCEEDED

    async def test_a_parent_put_down_with_its_children_is_finished_in_another_engine(self, bench):
        """Stopped while a child works: whoever finishes the parent takes the child up as well."""
        started = asyncio.Event()

        async def stuck(ctx):
            started.set()
            await asyncio.sleep(60)

        first = await bench.engine(parent([("a", {}), ("b", {})]), one_step(stuck, name="child"))
        await first.start("parent", run_id="p")
        await started.wait()
        await first.stop(grace=0)
        second = await bench.engine(parent([("a", {}), ("b", {})]), one_step(lambda ctx: None, name="child"))
        run = await second.finish("p")
        assert [status for _, status, _ in run.data["results"]] == ["succeeded", "succeeded"]

    async def test_a_parent_that_waits_for_children_nobody_drives_is_finished_all_the_same(self, durable):
        first = await durable.engine(parent([("a", {})]), asking_child())
        await first.run("parent", run_id="p")
        await answers.release(first, "p.a", 1, drive=False)
        await first.stop()
        second = await durable.engine(parent([("a", {})]), asking_child())
        assert (await second.finish("p")).status is Status.SUCCEEDED


class TestDepth:
    def flows(self):
        async def top(ctx):
            return {"got": (await ctx.child("middle", key="m")).data["got"]}

        async def middle(ctx):
            results = await ctx.children([("x", {"n": 1}), ("y", {"n": 2})], flow="child")
            return {"got": [child.data["said"] for child in results]}

        return one_step(top, name="top"), one_step(middle, name="middle")

    @pytest.mark.parametrize("concurrency", [1, 2, 100])
    async def test_three_levels_need_no_more_than_one_slot(self, bench, concurrency):
        engine = await bench.engine(
            *self.flows(), one_step(lambda ctx: {"said": ctx.data.n}, name="child"), concurrency=concurrency
        )
        runs = await asyncio.gather(*(engine.run("top") for _ in range(5)))
        assert [run.data for run in runs] == [{"got": [1, 2]}] * 5

    async def test_a_step_may_ask_for_several_children_at_once_by_itself(self, bench):
        async def work(ctx):
            one, two = await asyncio.gather(
                ctx.child("child", {"n": 1}, key="a"), ctx.child("child", {"n": 2}, key="b")
            )
            three = await ctx.child("child", {"n": 3}, key="c")
            return {"got": [one.data.n, two.data.n, three.data.n]}

        async def child(ctx):
            await asyncio.sleep(0.001 * ctx.data.n)

        engine = await bench.engine(
            one_step(work, name="parent"), one_step(child, name="child"), concurrency=1
        )
        runs = await asyncio.gather(*(engine.run("parent") for _ in range(3)))
        assert [run.data["got"] for run in runs] == [[1, 2, 3]] * 3
        assert engine.active.slots.free == 1  # every slot that was lent came back, and none twice

    async def test_a_wait_three_levels_down_reaches_the_top_and_back(self, bench):
        engine = await bench.engine(*self.flows(), asking_child())
        run = await engine.run("top", run_id="t")
        assert run.status is Status.WAITING
        await answers.release(engine, "t.m.x", 1)
        await answers.release(engine, "t.m.y", 2)
        await until(lambda: _is(engine, "t", Status.SUCCEEDED))
        assert (await engine.finish("t")).data == {"got": [1, 2]}

    async def test_cancelling_the_top_cancels_all_below(self, bench):
        started = []

        async def stuck(ctx):
            started.append(ctx.run_id)
            await asyncio.sleep(60)

        engine = await bench.engine(*self.flows(), one_step(stuck, name="child"))
        await engine.start("top", run_id="t")
        await until(lambda: len(started) == 2)
        await engine.cancel("t")
        for run_id in ("t", "t.m", "t.m.x", "t.m.y"):
            assert (await engine.store.row(run_id)).now.status is Status.CANCELLED
        assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("run ")]

    async def test_cancelling_a_waiting_top_cancels_all_below(self, bench):
        engine = await bench.engine(*self.flows(), asking_child())
        await engine.run("top", run_id="t")
        await engine.cancel("t")
        for run_id in ("t", "t.m", "t.m.x", "t.m.y"):
            assert (await engine.store.row(run_id)).now.status is Status.CANCELLED


async def test_killed_in_the_middle_of_fifty_children_each_effect_is_performed_once(tmp_path):
    process = worker.spawn(tmp_path, "run", "many", "m")
    await until(lambda: len(worker.told(tmp_path)) >= 10, 30)
    process.kill()
    process.wait()
    assert worker.call(tmp_path, "resume", "m") == "succeeded"
    assert sorted(worker.told(tmp_path)) == sorted(f"n{n}" for n in range(50))


async def test_a_child_that_has_no_tool_left_holds_and_so_does_its_parent(quick):
    """A tool that is gone is nobody's outcome: the run asks for attention, and so does who waits for it."""
    begun = asyncio.Event()

    async def stuck():
        begun.set()
        await asyncio.sleep(60)

    def child(ctx):
        ctx.propose("a")

    first = await quick.engine(parent([("a", {})]), one_step(child, name="child", tools=[Tool("a", stuck)]))
    await first.start("parent", run_id="p")
    await begun.wait()
    await first.stop(grace=0)
    second = await quick.engine(parent([("a", {})]), one_step(child, name="child"))
    await second.resume_all()
    await until(lambda: _is(second, "p.a", Status.WAITING))


async def _is(engine, run_id, status):
    return (await engine.store.row(run_id)).now.status is status


async def test_a_step_that_catches_every_exception_cannot_swallow_its_childrens_wait(bench):
    async def ask(ctx):
        return "end" if ctx.answered() else Hold(question="Go on?")

    async def loop(ctx):
        try:
            await ctx.child("asking", key="one")
        except Exception:
            return Outcome(reason="swallowed")
        return Outcome(reason="answered")

    machine = {"moves": {"work": ["end"]}, "ends": ["end"]}
    asking = Flow(Machine("asking", start="work", **machine), {"work": ask})
    parent = Flow(Machine("parent", start="work", **machine), {"work": loop})
    engine = await bench.engine(asking, parent)
    run = await engine.run("parent", run_id="p")
    assert run.status is Status.WAITING
    await answers.release(engine, "p.one", "yes")
    assert (await engine.finish("p")).reason == "answered"


async def test_the_time_a_step_waits_for_its_children_is_counted_once(bench, clock):
    begun = []

    async def slow(ctx):
        begun.append(ctx.run_id)
        await clock.sleep(10)

    async def loop(ctx):
        await ctx.children([("a", None), ("b", None)], flow="slow")

    machine = {"moves": {"work": ["end"]}, "ends": ["end"]}
    flows = [Flow(Machine("slow", start="work", **machine), {"work": slow})]
    flows.append(Flow(Machine("parent", start="work", **machine), {"work": loop}))
    engine = await bench.engine(*flows, clock=clock)
    run_id = await engine.start("parent")
    await until(lambda: len(begun) == 2)
    await clock.turn(11)
    run = await engine.finish(run_id)
    assert 10 <= run.used()["seconds"] <= 11


async def test_a_child_given_without_a_key_is_refused_with_what_is_right(bench):
    async def work(ctx):
        await ctx.children([{"n": 0}, {"n": 1}], flow="flow")

    run = await (await bench.engine(one_step(work, also=("failed",)))).run("flow")
    assert run.status is Status.FAILED
    assert "(key, data)" in run.error
