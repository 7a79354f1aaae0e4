"""Budgets of runs: where they end one, that they go on where they stood, and that spend counts once."""

from __future__ import annotations

from typing import Any

import pytest

from detent.flows.refine.part import record_spend
from detent.flows.refine.result import result_of
from detent.flows.refine.run import refine
from detent.flows.refine.token_budget import TokenBudgetManager
from detent.kernel.budget import Budget
from detent.kernel.entries import Moved
from tests.dispatch.samples import again, agent, scripted, settings
from tests.engine.conftest import journal
from tests.flows.refine.samples import PLAN_SCHEMA, RUBRIC, WORDS, Writer, reasons, refined, states

PARTS = {"planner": "planning", "implementer": "implementing", "judge": "judging"}


def spending(writer: Writer, part: str, tokens: int, **more: Any) -> dict[str, Any]:
    """The parts of a writer, of which one pays for what it does."""
    parts = writer.parts()
    inner = getattr(parts[part], "call", parts[part])

    async def pays(*arguments: Any) -> Any:
        record_spend(tokens, 0)
        value = inner(*arguments)
        return await value if hasattr(value, "__await__") else value

    return {**parts, part: pays, **more}


class TestWhereABudgetEndsARun:
    @pytest.mark.parametrize("part", PARTS)
    async def test_after_each_part_that_has_an_edge_to_its_end(self, bench, part):
        """R-22: what was made is kept; a judge's pass comes first, so it judges badly here."""
        writer = Writer(times=[2, 1])
        engine = await bench.engine(writer.flow(**spending(writer, part, 100), budget=Budget(tokens=100)))
        result = await refined(engine)
        assert (await states(engine, result.run_id))[-2:] == [PARTS[part], "budget_exhausted"]
        assert (await reasons(engine, result.run_id))[-1] == "Token budget exhausted"
        assert (result.status, result.tokens_used, result.best_iteration) == ("incomplete", 100, 1)
        assert result.plan == {"words": WORDS}

    async def test_what_validation_spends_is_acted_on_in_the_next_state(self, bench):
        """R-22: there is no edge from validating."""
        writer = Writer()
        engine = await bench.engine(
            writer.flow(**spending(writer, "validator", 100), budget=Budget(tokens=100))
        )
        result = await refined(engine)
        assert (await states(engine, result.run_id))[-3:] == [
            "validating", "implementing", "budget_exhausted"
        ]  # fmt: skip
        assert (writer.count("implement"), result.reason) == (0, "Token budget exhausted")

    async def test_a_pass_counts_even_if_the_budget_is_spent_now(self, quick):
        writer = Writer()
        result = await refine(WORDS, **spending(writer, "judge", 100), budget=Budget(tokens=100))
        assert (result.status, result.tokens_used) == ("success", 100)

    async def test_an_advisory_budget_only_warns(self, quick, heard):
        """R-29"""
        writer = Writer(times=[2, 1])
        budget = TokenBudgetManager(100, enforce_token_budget=False)
        result = await refine(WORDS, **spending(writer, "planner", 500), budget=budget, rubric=RUBRIC)
        assert result.status == "success"
        assert len(heard.named("budget.passed")) == 1
        assert result.budget_report["budget_exceeded"] is True

    @pytest.mark.parametrize("level", ["collaborator", "consultant", "approver"])
    async def test_agents_spend_counts_at_every_level(self, bench, level):
        """R-22, R-26: the reply of the visit itself, rejected ones included."""
        usage = {"input_tokens": 90, "output_tokens": 10}
        bad = {"output": {"word": 1}, "usage": usage}
        executor = scripted(bad, again({"words": WORDS}, usage=usage), step="plan")
        dispatch = settings(executor, agent(level), step="plan")
        writer = Writer()
        engine = await bench.engine(writer.flow(budget=Budget(tokens=200)), dispatch=dispatch)
        result = await refined(engine)
        assert (await states(engine, result.run_id))[1:] == ["planning", "budget_exhausted"]
        (_, move) = [
            entry.body for entry in await journal(engine, result.run_id) if type(entry.body) is Moved
        ]
        assert (move.spend.tokens, result.tokens_used) == (200, 200)

    @pytest.mark.parametrize(("budget", "calls"), [(6_700, 2), (6_600, 1)])
    async def test_a_planner_that_cannot_be_paid_again_is_not_called(self, quick, budget, calls):
        """The estimate is an agent's: 5500 and a fifth. 100 are used when planning is entered again."""
        usage = {"input_tokens": 100, "output_tokens": 0}
        executor = scripted(again({"words": WORDS[:1]}, usage=usage), step="plan")
        dispatch = settings(executor, agent("approver"), step="plan")
        flow = Writer().flow(budget=Budget(tokens=budget), max_iterations=2)
        engine = await quick.engine(flow, dispatch=dispatch)
        result = await refined(engine)
        assert len(executor.calls) == calls
        assert result.reason == ("Token budget exhausted" if calls == 1 else "max_iterations")

    async def test_code_is_always_affordable(self, quick):
        """Its estimate is 0, however little is left."""
        writer = Writer(plans=[WORDS[:1], WORDS])
        result = await refine(
            WORDS, **spending(writer, "planner", 10), budget=Budget(tokens=25), rubric=RUBRIC
        )
        assert (result.status, writer.count("plan")) == ("success", 2)


class TestGoingOnWithALargerBudget:
    """R-66"""

    @pytest.mark.parametrize("part", [*PARTS, "validator"])
    async def test_nothing_that_is_finished_is_done_again(self, bench, part):
        """And the old spend counts."""
        writer = Writer(times=[2, 1])
        options = {"rubric": RUBRIC, "run_id": "r1"}
        parts = spending(writer, part, 100)
        store = bench.store()
        result = await refine(WORDS, **parts, **options, store=store, budget=100)
        assert result.final_state == "budget_exhausted"
        before = {name: writer.count(name) for name in ("plan", "validate", "implement", "judge")}
        result = await refine(WORDS, **parts, **options, store=bench.store(), budget=100)
        assert (result.final_state, writer.count("plan")) == ("budget_exhausted", before["plan"])
        result = await refine(WORDS, **parts, **options, store=bench.store(), budget=1000)
        assert (result.status, result.iterations) == ("success", 2)
        assert {name: writer.count(name) for name in before} == {
            "plan": 1, "validate": 1, "implement": 2, "judge": 2
        }  # fmt: skip
        paid = {"planner": 1, "validator": 1, "implementer": 2, "judge": 2}[part]
        assert result.tokens_used == 100 * paid
        assert sum(attempt.tokens for attempt in result.attempts) == 100 * paid

    async def test_an_agents_plan_is_not_paid_twice(self, bench):
        """R-30: through budget end, reopening and replies that were kept."""
        usage = {"input_tokens": 100, "output_tokens": 0}
        executor = scripted(again({"words": WORDS}, usage=usage), step="plan")
        dispatch = settings(executor, agent("consultant"), step="plan")
        engine = await bench.engine(Writer().flow(budget=Budget(tokens=100)), dispatch=dispatch)
        result = await refined(engine)
        assert result.final_state == "budget_exhausted"
        await engine.reopen(result.run_id, budget=Budget(tokens=300))
        await engine.finish(result.run_id)
        result = await result_of(engine, result.run_id)
        assert (result.status, result.tokens_used, len(executor.calls)) == ("success", 100, 1)
        assert PLAN_SCHEMA["required"] == ["words"]
