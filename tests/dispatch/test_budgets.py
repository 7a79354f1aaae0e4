"""Attempts, waits and money: how often an agent is asked, and what happens when nothing is left."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from detent.adapters.models.scripted import ScriptedSource, ScriptedStepExecutor
from detent.dispatch.autonomy import FallbackReason, StepMode
from detent.dispatch.config import StepConfig
from detent.dispatch.executor import ExecutorResult
from detent.engine.flow import Flow
from detent.engine.step import Step
from detent.kernel.budget import Budget, Spend
from detent.kernel.entries import Moved, Recorded
from detent.kernel.errors import ConfigurationError
from detent.kernel.policy import RetryPolicy
from detent.kernel.status import Status
from tests.dispatch.samples import (
    FAULT,
    INTENT,
    KIND_ONLY,
    MAIL,
    again,
    agent,
    deterministic,
    forms,
    result_of,
    scripted,
    settings,
)
from tests.engine.conftest import flow_of, journal, until


def used(tokens: int = 10, cost: float | None = None) -> dict[str, Any]:
    return {"usage": {"input_tokens": tokens, **({} if cost is None else {"cost_usd": cost})}}


class TestAttempts:
    @pytest.mark.parametrize("retries", [0, 1, 2, 4])
    async def test_there_are_as_many_as_retries_and_one_with_growing_waits(self, quick, clock, retries):
        """D-55: waits of about 1, 2, 4 and 8 seconds on the engine's clock."""
        executor = scripted({"error": "transient", "repeat": True})
        dispatch = settings(executor, agent("approver", max_retries=retries))
        engine = await quick.engine(forms(), dispatch=dispatch, clock=clock)
        run_id = await engine.start("flow", MAIL)
        for number in range(retries):
            wait = RetryPolicy().wait_before(number + 2, run_id)
            await until(lambda wait=wait: clock.sleeping(wait))
            assert len(executor.calls) == number + 1
            await clock.turn(wait)
        run = await engine.finish(run_id)
        assert run.data == {**MAIL, **FAULT}
        assert len(executor.calls) == retries + 1
        result = await result_of(engine, run_id)
        assert (result.attempts, result.fallback_reason) == (retries + 1, FallbackReason.EXCEPTION)

    async def test_nothing_said_is_three_attempts(self, quick, clock):
        """1.2: `max_retries` is 2 in agent mode."""
        executor = scripted({"error": "transient", "repeat": True})
        engine = await quick.engine(
            forms(), dispatch=settings(executor, agent(max_retries=None)), clock=clock
        )
        run_id = await engine.start("flow", MAIL)
        for attempt in (2, 3):
            wait = RetryPolicy().wait_before(attempt, run_id)
            await until(lambda wait=wait: clock.sleeping(wait))
            await clock.turn(wait)
        await engine.finish(run_id)
        assert len(executor.calls) == 3

    @pytest.mark.parametrize("after", [7.5, 0.25])
    async def test_a_wait_the_other_side_asks_for_is_kept_at_least(self, quick, clock, after):
        """D-55: `retry_after`, and never less than the policy's own wait."""
        executor = scripted({"error": {"type": "rate_limit", "retry_after": after}}, {"output": FAULT})
        engine = await quick.engine(
            forms(), dispatch=settings(executor, agent("approver", max_retries=1)), clock=clock
        )
        run_id = await engine.start("flow", MAIL)
        wait = max(after, RetryPolicy().wait_before(2, run_id))
        await until(lambda: clock.sleeping(wait))
        await clock.turn(wait - 0.01)
        assert len(executor.calls) == 1
        await clock.turn(0.02)  # a little more: the sum of two floats may fall short
        assert (await engine.finish(run_id)).data == {**MAIL, **FAULT}
        assert len(executor.calls) == 2

    async def test_each_attempt_has_a_time_limit_of_its_own(self, quick):
        """D-55: two that hang and one that answers."""
        executor = scripted({"error": "hang"}, {"error": "hang"}, {"output": FAULT})
        config = agent("approver", timeout=0.03, retry_policy=RetryPolicy(3, 0, 0))
        engine = await quick.engine(forms(), dispatch=settings(executor, config))
        run = await engine.run("flow", MAIL)
        result = await result_of(engine, run.id)
        assert (result.mode_used, result.attempts) == (StepMode.AGENT, 3)

    async def test_a_violation_is_told_once_however_many_retries_there_are(self, quick):
        """1.4: once, and that counts as a retry."""
        executor = scripted(again({"kind": 1}))
        config = agent("approver", retry_policy=RetryPolicy(5, 0, 0))
        engine = await quick.engine(forms(output_schema=KIND_ONLY), dispatch=settings(executor, config))
        await engine.run("flow", MAIL)
        assert len(executor.calls) == 2

    @pytest.mark.parametrize(
        ("replies", "calls"),
        [
            ([{"output": {"kind": 1}}, {"error": "transient"}, {"output": FAULT}], 3),
            ([{"error": "transient"}, {"output": {"kind": 1}}, {"output": FAULT}], 3),
            ([{"output": {"kind": 1}}, {"error": "transient"}, {"output": {"kind": 1}}], 3),
            ([{"output": {"kind": 1}}, {"error": "permanent"}], 2),
        ],
    )
    async def test_violations_and_lost_connections_share_the_attempts(self, quick, replies, calls):
        """D-55."""
        executor = scripted(*replies, {"error": "permanent"})
        config = agent("approver", retry_policy=RetryPolicy(4, 0, 0))
        engine = await quick.engine(forms(output_schema=KIND_ONLY), dispatch=settings(executor, config))
        run = await engine.run("flow", MAIL)
        assert run.data == {**MAIL, **FAULT}
        assert len(executor.calls) == calls

    async def test_no_retries_means_no_second_question_either(self, quick):
        """D-55."""
        executor = scripted({"output": {"kind": 1}}, {"output": FAULT})
        config = agent("approver", max_retries=0)
        engine = await quick.engine(forms(output_schema=KIND_ONLY), dispatch=settings(executor, config))
        run = await engine.run("flow", MAIL)
        assert (await result_of(engine, run.id)).fallback_reason is FallbackReason.SCHEMA_VIOLATION
        assert len(executor.calls) == 1

    async def test_a_stop_during_a_wait_goes_on_with_the_next_attempt(self, bench):
        """D-55, D-56: what was tried and paid for is not tried again."""
        first_asked = scripted({"error": {"type": "transient"}, **used()}, {"output": FAULT})
        config = agent("approver", retry_policy=RetryPolicy(2, 9, 9))
        first = await bench.engine(forms(), dispatch=settings(first_asked, config))
        run_id = await first.start("flow", MAIL)
        await until(lambda: _recorded(first, run_id))
        await first.stop(grace=0)
        executor = scripted({"output": FAULT, **used(5)})
        second = await bench.engine(forms(), dispatch=settings(executor, config))
        run = await second.finish(run_id)
        assert (len(first_asked.calls), len(executor.calls)) == (1, 1)
        result = await result_of(second, run_id)
        assert (result.attempts, run.total_spend.tokens) == (2, 15)

    async def test_in_deterministic_mode_retries_are_the_handlers(self, quick):
        """1.2: `max_retries` there counts tries at what the handler marks as transient."""
        calls = []

        def work(ctx):
            calls.append(1)
            raise ConnectionError("busy")

        config = StepConfig(mode=StepMode.DETERMINISTIC, retry_policy=RetryPolicy(3, 0, 0))
        engine = await quick.engine(forms(work), dispatch=settings(None, config))
        assert (await engine.run("flow", MAIL)).status is Status.FAILED
        assert len(calls) == 3


async def _recorded(engine, run_id):
    return any(isinstance(entry.body, Recorded) for entry in await journal(engine, run_id))


class TestSpend:
    async def test_usage_becomes_spend_in_the_journal_and_survives(self, bench):
        """D-56: failed attempts included."""
        executor = scripted({"error": "transient", **used(100, 0.5)}, {"output": FAULT, **used(10, 0.25)})
        first = await bench.engine(forms(), dispatch=settings(executor, agent()))
        run = await first.run("flow", MAIL)
        assert run.total_spend == Spend(110, 0, 0.75)
        entries = [entry.body for entry in await journal(first, run.id)]
        assert [body.spend.tokens for body in entries if isinstance(body, Recorded)] == [100, 10]
        assert [body.spend.tokens for body in entries if isinstance(body, Moved)] == [110]
        assert (await result_of(first, run.id)).spend == Spend(110, 0, 0.75)
        await first.stop()
        second = await bench.engine(forms())
        assert (await second.get(run.id)).total_spend == Spend(110, 0, 0.75)
        assert (await second.store.row(run.id)).now.tokens == 110

    async def test_what_fell_back_is_paid_for_all_the_same(self, quick):
        """D-56."""
        executor = scripted({"error": "permanent", **used(30)})
        engine = await quick.engine(forms(), dispatch=settings(executor, agent()))
        run = await engine.run("flow", MAIL)
        assert run.total_spend.tokens == 30
        assert (await result_of(engine, run.id)).spend.tokens == 30

    async def test_an_unknown_price_is_not_made_up(self, quick, heard):
        """1.4."""
        engine = await quick.engine(
            forms(), dispatch=settings(scripted({"output": FAULT, **used()}), agent())
        )
        await engine.run("flow", MAIL)
        assert heard.one("dispatch.agent_completed")["cost_usd"] is None


ALL = {name: agent("approver") for name in "abc"}


class TestBudgets:
    @pytest.mark.parametrize("budget", [Budget(tokens=15), Budget(cost_usd=0.15)])
    async def test_a_run_out_of_budget_goes_on_by_code_to_the_same_end(self, bench, budget):
        """D-56: the overshoot is one call; reason budget; the run ends as the deterministic one."""
        flow = flow_of(
            {"a": ["b"], "b": ["c"], "c": ["done"]},
            {name: Step(name, _giving(name), INTENT) for name in "abc"},
        )
        plain = await deterministic(bench, flow)
        executor = ScriptedStepExecutor({"*": [again({}, **used(10, 0.1))]})
        engine = await bench.engine(flow, dispatch=settings(executor, steps=ALL))
        run = await engine.run("flow", budget=budget)
        assert (run.status, run.state) == (plain.status, plain.state)
        assert len(executor.calls) == 2
        reasons = [(await result_of(engine, run.id, name)).fallback_reason for name in "abc"]
        assert reasons == [None, None, FallbackReason.BUDGET]
        assert run.total_spend.tokens == 20

    async def test_a_budget_that_survives_a_resume_is_still_spent(self, bench):
        """D-56: a second engine asks nobody."""
        entered = asyncio.Event()

        def make(stuck: bool) -> Flow:
            async def b(ctx):
                if stuck:
                    entered.set()
                    await asyncio.Event().wait()
                return {"b": 1}

            return flow_of(
                {"a": ["b"], "b": ["c"], "c": ["done"]},
                {"a": Step("a", _giving("a"), INTENT), "b": b, "c": Step("c", _giving("c"), INTENT)},
            )

        dispatch = {name: agent("approver") for name in "ac"}
        executor = ScriptedStepExecutor({"a": {"output": {}, **used(20)}})
        first = await bench.engine(make(True), dispatch=settings(executor, steps=dispatch))
        run_id = await first.start("flow", budget=Budget(tokens=15))
        await entered.wait()
        await first.stop(grace=0)
        executor = ScriptedStepExecutor({"c": {"output": {}}})
        second = await bench.engine(make(False), dispatch=settings(executor, steps=dispatch))
        run = await second.finish(run_id)
        assert run.status is Status.SUCCEEDED
        assert executor.calls == []
        assert (await result_of(second, run_id, "c")).fallback_reason is FallbackReason.BUDGET

    @pytest.mark.parametrize("cap", [Budget(tokens=10), Budget(cost_usd=0.1)])
    async def test_a_step_has_a_cap_of_its_own(self, bench, cap):
        """D-56: what a visit used counts; the next visit begins anew."""
        executor = scripted({"error": "transient", "repeat": True, **used(12, 0.12)})
        config = agent("approver", budget=cap, retry_policy=RetryPolicy(3, 0, 0))
        engine = await bench.engine(forms(), dispatch=settings(executor, config))
        run = await engine.run("flow", MAIL)
        assert run.data == {**MAIL, **FAULT}
        assert len(executor.calls) == 1
        result = await result_of(engine, run.id)
        assert (result.fallback_reason, result.agent_called, result.attempts) == (
            FallbackReason.BUDGET,
            True,
            1,
        )
        run = await engine.run("flow", MAIL)
        assert len(executor.calls) == 2

    async def test_seconds_of_a_step_are_a_budget_too(self, quick, clock):
        """D-56: time at work, on the engine's clock."""

        class Slow(ScriptedStepExecutor):
            async def execute(self, **asked: Any) -> ExecutorResult:
                await clock.turn(5)
                return await super().execute(**asked)

        executor = Slow([{"error": "transient", "repeat": True}])
        config = agent("approver", budget=Budget(seconds=8), retry_policy=RetryPolicy(5, 0, 0))
        engine = await quick.engine(forms(), dispatch=settings(executor, config), clock=clock)
        run = await engine.run("flow", MAIL)
        assert (await result_of(engine, run.id)).fallback_reason is FallbackReason.BUDGET
        assert len(executor.calls) == 2

    async def test_a_flow_with_a_budget_state_decides_for_itself(self, bench):
        """1.15: its own end for an exhausted limit is where the run goes."""
        flow = flow_of(
            {"a": ["b", "spent"], "b": ["done", "spent"]},
            {"a": Step("a", lambda ctx: "b", INTENT), "b": Step("b", lambda ctx: "done", INTENT)},
            exhausted={"tokens": "spent"},
        )
        executor = ScriptedStepExecutor({"a": {"output": {"next_state": "b"}, **used(20)}})
        engine = await bench.engine(flow, dispatch=settings(executor, steps={"a": agent(), "b": agent()}))
        run = await engine.run("flow", budget=Budget(tokens=15))
        assert (run.state, run.status) == ("spent", Status.BUDGET_EXHAUSTED)

    async def test_a_budget_of_steps_still_ends_the_run(self, bench):
        """I7: only what asking uses up can be done without."""
        flow = flow_of(
            {"a": ["b"], "b": ["done"]}, {name: Step(name, _giving(name), INTENT) for name in "ab"}
        )
        executor = ScriptedStepExecutor({"*": [again({})]})
        engine = await bench.engine(flow, dispatch=settings(executor, steps={"a": agent(), "b": agent()}))
        assert (await engine.run("flow", budget=Budget(steps=1))).status is Status.BUDGET_EXHAUSTED

    async def test_an_advisory_budget_stops_no_agent(self, quick):
        """Budget.enforce."""
        executor = scripted({"error": "transient", **used(50)}, {"output": FAULT})
        engine = await quick.engine(forms(), dispatch=settings(executor, agent("approver")))
        run = await engine.run("flow", MAIL, budget=Budget(tokens=10, enforce=False))
        assert (await result_of(engine, run.id)).mode_used is StepMode.AGENT

    async def test_a_child_spends_its_parents_budget(self, bench):
        """D-56: the child's step finds nothing left."""
        child = flow_of({"work": ["done"]}, {"work": Step("work", _giving("c"), INTENT)}, name="child")

        async def parent(ctx):
            result = await ctx.child("child", {}, key="c")
            return {"child": result.status.value}

        flow = flow_of(
            {"a": ["b"], "b": ["done"]},
            {"a": Step("a", _giving("a"), INTENT), "b": Step("b", parent, INTENT)},
        )
        executor = ScriptedStepExecutor({"a": {"output": {}, **used(20)}, "work": again({})})
        steps = {"flow/a": agent("approver"), "child/work": agent("approver")}
        engine = await bench.engine(flow, child, dispatch=settings(executor, steps=steps))
        run = await engine.run("flow", budget=Budget(tokens=15))
        assert run.data["child"] == "succeeded"
        assert [call.step_name for call in executor.calls] == ["a"]
        result = await result_of(engine, f"{run.id}.c")
        assert result.fallback_reason is FallbackReason.BUDGET


def _giving(name: str) -> Any:
    def give(ctx: Any) -> dict[str, Any]:
        return {}

    give.__name__ = name
    return give


class TestPrices:
    @pytest.mark.parametrize("where", ["run", "step", "flow"])
    async def test_a_money_budget_with_an_unknown_price_is_refused_at_the_start(self, bench, where):
        """D-56, 1.4: before the first call, and before anything is written."""
        executor = scripted({"output": FAULT}, priced=False)
        money = Budget(cost_usd=1.0)
        config = agent("approver", budget=money if where == "step" else None)
        flow = forms()
        flow.budget = money if where == "flow" else None
        engine = await bench.engine(flow, dispatch=settings(executor, config))
        with pytest.raises(ConfigurationError, match="the price of the default model is not known"):
            await engine.start("flow", MAIL, run_id="r1", budget=money if where == "run" else None)
        assert executor.calls == []
        assert not await engine.store.marks("evidence/")
        with pytest.raises(Exception, match="no run 'r1'"):
            await engine.get("r1")

    @pytest.mark.parametrize("level", ["none", "operator"])
    async def test_a_price_nobody_needs_need_not_be_known(self, quick, level):
        """D-01: a run without agents does not ask."""
        source = ScriptedSource(scripted({"output": FAULT}, priced=False))
        config = None if level == "none" else agent(level)
        engine = await quick.engine(forms(), dispatch=settings(source, config))
        run = await engine.run("flow", MAIL, budget=Budget(cost_usd=1.0))
        assert run.data == {**MAIL, **FAULT}

    async def test_a_limit_of_tokens_needs_no_price(self, quick):
        """1.4."""
        executor = scripted({"output": FAULT}, priced=False)
        engine = await quick.engine(forms(), dispatch=settings(executor, agent()))
        run = await engine.run("flow", MAIL, budget=Budget(tokens=100))
        assert (await result_of(engine, run.id)).mode_used is StepMode.AGENT
