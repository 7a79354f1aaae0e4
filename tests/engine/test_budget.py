"""Budgets: checked before spending, counted once, over the whole tree, across restarts."""

from __future__ import annotations

import asyncio

import pytest

from detent.engine.outcome import Hold, Outcome
from detent.engine.step import Step
from detent.engine.step_failures import Transient
from detent.kernel.budget import Budget, Spend
from detent.kernel.errors import RunStateError
from detent.kernel.policy import RetryPolicy
from detent.kernel.status import Status
from tests.engine import answers
from tests.engine.conftest import flow_of, journal, one_step, until


def spending(spend, *, times=10, ends=("done",), **options):
    """A flow that spends so much a step and ends after so many."""

    def work(ctx):
        return Outcome("done" if ctx.visit == times else "work", spend=spend, set={"best": ctx.visit})

    return flow_of({"work": ["work", *ends]}, {"work": work}, **options)


class TestLimits:
    @pytest.mark.parametrize(
        ("budget", "limit"),
        [(Budget(tokens=25), "tokens"), (Budget(cost_usd=0.3), "cost_usd"), (Budget(steps=3), "steps")],
    )
    async def test_a_limit_that_is_reached_ends_the_run_and_keeps_the_best_so_far(self, bench, budget, limit):
        engine = await bench.engine(spending(Spend(6, 4, 0.1)))
        run = await engine.run("flow", budget=budget)
        assert (run.status, run.steps, run.data) == (Status.BUDGET_EXHAUSTED, 3, {"best": 3})
        assert run.reason == f"{limit} budget used up"
        assert run.error is None

    async def test_seconds_are_time_at_work(self, quick, clock):
        async def work(ctx):
            await clock.sleep(4)
            return "work"

        engine = await quick.engine(flow_of({"work": ["work", "done"]}, {"work": work}), clock=clock)
        run_id = await engine.start("flow", budget=Budget(seconds=10))
        for _ in range(3):
            await until(lambda: clock.sleeping(4))
            await clock.turn(4)
        run = await engine.finish(run_id)
        assert (run.status, run.seconds) == (Status.BUDGET_EXHAUSTED, 12)

    async def test_a_run_that_ends_with_its_last_coin_succeeds(self, quick):
        engine = await quick.engine(spending(Spend(10), times=3))
        assert (await engine.run("flow", budget=Budget(steps=3, tokens=30))).status is Status.SUCCEEDED

    async def test_an_advisory_budget_is_told_once_and_stops_nothing(self, bench, caplog):
        engine = await bench.engine(spending(Spend(10)))
        run = await engine.run("flow", budget=Budget(tokens=20, enforce=False))
        assert run.status is Status.SUCCEEDED
        assert sum("budget.passed" in record.getMessage() for record in caplog.records) == 1

    async def test_the_flows_own_budget_is_used_unless_the_run_has_one(self, quick):
        engine = await quick.engine(spending(Spend(10), budget=Budget(steps=2)))
        assert (await engine.run("flow")).steps == 2
        assert (await engine.run("flow", budget=Budget(steps=4))).steps == 4

    async def test_the_table_may_have_an_end_for_it(self, bench):
        engine = await bench.engine(spending(Spend(10), ends=("done", "spent")))
        run = await engine.run("flow", budget=Budget(steps=2))
        assert (run.state, run.status) == ("spent", Status.BUDGET_EXHAUSTED)

    async def test_a_limit_may_have_an_end_of_its_own(self, bench):
        engine = await bench.engine(
            spending(Spend(10), ends=("done", "spent", "failed"), exhausted={"steps": "failed"})
        )
        assert (await engine.run("flow", budget=Budget(steps=2))).state == "failed"
        assert (await engine.run("flow", budget=Budget(tokens=20))).state == "spent"


class TestCountedOnce:
    async def test_attempts_answers_and_notes_add_up(self, bench):
        async def work(ctx):
            await ctx.once("model", lambda: 1, spend=lambda value: Spend(100))
            await ctx.note("compared", spend=Spend(1))
            if ctx.attempt < 3:
                raise Transient("again")
            return Outcome(spend=Spend(10))

        engine = await bench.engine(one_step(Step("work", work, retry=RetryPolicy(3, 0, 0))))
        run = await engine.run("flow")
        assert run.total_spend == Spend(113)
        assert (await engine.get(run.id)).total_spend == Spend(113)
        row = await engine.store.row(run.id)
        assert row.now.tokens == 113
        moved = (await journal(engine, run.id))[-1].body
        assert moved.spend == Spend(110)

    async def test_retries_are_not_steps(self, quick):
        async def work(ctx):
            if ctx.attempt < 3:
                raise Transient("again")

        engine = await quick.engine(one_step(Step("work", work, retry=RetryPolicy(3, 0, 0))))
        run = await engine.run("flow", budget=Budget(steps=1))
        assert (run.status, run.steps) == (Status.SUCCEEDED, 1)

    async def test_what_was_spent_before_a_stop_is_still_spent(self, bench):
        entered = asyncio.Event()

        def make(stuck):
            async def work(ctx):
                await ctx.once("model", lambda: 1, spend=lambda value: Spend(100))
                if stuck:
                    entered.set()
                    await asyncio.sleep(60)
                return Outcome(spend=Spend(10))

            return flow_of(
                {"a": ["work"], "work": ["done"]}, {"a": lambda ctx: Outcome(spend=Spend(1)), "work": work}
            )

        first = await bench.engine(make(True))
        run_id = await first.start("flow", budget=Budget(tokens=1000))
        await entered.wait()
        await first.stop(grace=0)
        second = await bench.engine(make(False))
        assert (await second.get(run_id)).used()["tokens"] == 101
        run = await second.finish(run_id)
        assert run.total_spend == Spend(111)
        assert run.budget == Budget(tokens=1000)


class TestTree:
    async def test_children_spend_their_parents_budget(self, bench):
        async def work(ctx):
            results = await ctx.children([(f"c{n}", {}) for n in range(5)], flow="child")
            return {"statuses": [child.status.value for child in results]}

        engine = await bench.engine(
            flow_of(
                {"work": ["after"], "after": ["done"]},
                {"work": work, "after": lambda ctx: None},
                name="parent",
            ),
            spending(Spend(10), times=3, name="child"),
        )
        run = await engine.run("parent", budget=Budget(tokens=60))
        assert run.status is Status.BUDGET_EXHAUSTED
        assert "budget_exhausted" in run.data["statuses"]
        assert 60 <= run.total_spend.tokens <= 60 + 5 * 10

    async def test_a_tree_within_its_budget_is_not_stopped(self, bench):
        """What is rolled up is not counted as under way as well."""

        async def top(ctx):
            await ctx.children([(f"m{n}", {}) for n in range(3)], flow="middle", limit=1)
            return "again" if ctx.state == "work" else None

        async def middle(ctx):
            await ctx.children([(f"c{n}", {}) for n in range(3)], flow="child")
            return Outcome(spend=Spend(1))

        engine = await bench.engine(
            flow_of(
                {"work": ["again"], "again": ["done"]}, {"work": top, "again": lambda ctx: None}, name="top"
            ),
            one_step(middle, name="middle"),
            one_step(lambda ctx: Outcome(spend=Spend(10)), name="child"),
        )
        run = await engine.run("top", budget=Budget(tokens=94))
        assert (run.status, run.total_spend) == (Status.SUCCEEDED, Spend(93))
        assert run.used()["steps"] == 2 + 3 + 9

    async def test_children_that_ended_while_nobody_looked_are_counted_all_the_way_up(self, bench):
        """A grandchild released on its own was never counted as under way; the top still hears of it."""
        tops = []

        async def top(ctx):
            await ctx.child("middle", key="m")
            tops.append(ctx.used["tokens"])

        async def middle(ctx):
            await ctx.child("child", key="c")

        def child(ctx):
            return Outcome(spend=Spend(50)) if ctx.answered() else Outcome(hold=Hold(), spend=Spend(5))

        engine = await bench.engine(
            one_step(top, name="top"), one_step(middle, name="middle"), one_step(child, name="child")
        )
        await engine.run("top", run_id="t", budget=Budget(tokens=1000))
        await answers.release(engine, "t.m.c", 1)
        await until(lambda: _ended(engine, "t"))
        run = await engine.get("t")
        assert run.total_spend == Spend(55)
        assert tops == [55]

    async def test_a_budget_is_kept_when_parent_and_children_are_taken_up_again(self, bench):
        entered = []

        def flows(stuck):
            async def child(ctx):
                entered.append(ctx.run_id)
                if stuck and ctx.visit == 2:
                    await asyncio.sleep(60)
                return Outcome("work" if ctx.visit < 4 else "done", spend=Spend(10))

            async def work(ctx):
                await ctx.children([("a", {}), ("b", {})], flow="child")

            return (
                flow_of(
                    {"work": ["after"], "after": ["done"]},
                    {"work": work, "after": lambda ctx: None},
                    name="parent",
                ),
                flow_of({"work": ["work", "done"]}, {"work": child}, name="child"),
            )

        first = await bench.engine(*flows(True))
        await first.start("parent", run_id="p", budget=Budget(tokens=50))
        await until(lambda: len(entered) == 4)
        await first.stop(grace=0)
        second = await bench.engine(*flows(False))
        await second.resume_all()
        run = await second.finish("p")
        assert run.status is Status.BUDGET_EXHAUSTED
        assert 50 <= run.total_spend.tokens <= 60


class TestReopening:
    async def test_a_larger_budget_sends_the_run_on(self, bench):
        engine = await bench.engine(spending(Spend(10), times=5))
        run = await engine.run("flow", budget=Budget(steps=2))
        with pytest.raises(RunStateError, match="used up its steps budget"):
            await engine.reopen(run.id)
        await engine.reopen(run.id, budget=Budget(steps=9), reason="worth it")
        run = await engine.finish(run.id)
        assert (run.status, run.steps, run.data) == (Status.SUCCEEDED, 5, {"best": 5})

    async def test_from_an_end_of_the_table_too(self, bench):
        engine = await bench.engine(spending(Spend(10), times=5, ends=("done", "spent")))
        run = await engine.run("flow", budget=Budget(tokens=20))
        assert run.state == "spent"
        await engine.reopen(run.id, budget=Budget(tokens=2000))
        run = await engine.finish(run.id)
        assert (run.state, run.data) == ("done", {"best": 5})


async def _ended(engine, run_id):
    return (await engine.store.row(run_id)).now.status.is_end
