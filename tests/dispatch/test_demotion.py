"""Trust is lost by evidence: durably, once, one level at a time, and given back by a person only."""

from __future__ import annotations

import logging

import pytest

from detent.adapters.models.scripted import ScriptedStepExecutor
from detent.dispatch.autonomy import AutonomyLevel, FallbackReason, StepMode
from detent.dispatch.config import StepConfig
from detent.dispatch.evidence import DEMOTIONS, Demotion, EvidenceRules
from tests.dispatch.samples import (
    FAULT,
    INTENT,
    MAIL,
    QUESTION,
    again,
    agent,
    forms,
    notes,
    result_of,
    scripted,
    settings,
    single,
)

MARK = f"{DEMOTIONS}flow/work"
TWO_HARD = EvidenceRules(demote_hard=2, demote_window=4)
HALF = EvidenceRules(demote_hard=4, demote_window=4, demote_agreement=0.8)


async def level_of(engine) -> AutonomyLevel:
    """The level at which the next run's step is performed."""
    run = await engine.run("flow", MAIL)
    return (await result_of(engine, run.id)).autonomy_level


async def held(engine) -> Demotion | None:
    said, _ = await engine.store.mark(MARK)
    return Demotion.from_plain(said)


def failing(rules=TWO_HARD, level="approver", **more):
    """Settings under which the agent always breaks."""
    return settings(scripted({"error": "crash", "repeat": True}), agent(level, **more), evidence=rules)


class TestHardFailures:
    async def test_they_lower_the_step_by_one_level(self, bench, heard):
        """1.17: two of the last four, here."""
        engine = await bench.engine(forms(), dispatch=failing())
        await engine.run("flow", MAIL)
        assert await held(engine) is None
        run = await engine.run("flow", MAIL)
        demotion = await held(engine)
        assert (demotion.level, demotion.was) == (AutonomyLevel.CONSULTANT, AutonomyLevel.APPROVER)
        assert demotion.by == "engine"
        assert "2 of the last 2 failed hard" in demotion.why
        assert set(demotion.series) == {"model_id", "prompt", "handler"}
        said = heard.one("autonomy.demoted")
        assert said.level == logging.WARNING
        assert (said["autonomy"], said["was"], said["step_name"]) == ("consultant", "approver", "work")
        (note,) = await notes(engine, run.id, "autonomy.demoted")
        assert note.body == {
            "step": "flow/work", "level": "consultant", "was": "approver", "why": demotion.why,
        }  # fmt: skip
        assert note.aside

    async def test_one_burst_does_not_lower_it_all_the_way(self, bench, heard):
        """1.17: after a demotion the count begins anew."""
        engine = await bench.engine(forms(), dispatch=failing())
        levels = [(await level_of(engine)).value for _ in range(8)]
        assert levels == [
            "approver", "approver", "consultant", "consultant", "collaborator", "collaborator", "operator",
            "operator",
        ]  # fmt: skip
        assert len(heard.named("autonomy.demoted")) == 3

    async def test_at_the_bottom_the_agent_is_not_asked_and_the_log_says_why(self, bench, heard):
        """D-15: demoted to operator."""
        engine = await bench.engine(forms(), dispatch=failing(level="collaborator"))
        for _ in range(2):
            await engine.run("flow", MAIL)
        heard.events.clear()
        run = await engine.run("flow", MAIL)
        assert heard.sequence() == "M operator_fallback F D"
        assert heard.one("dispatch.operator_fallback")["hint"].startswith("demoted: 2 of the last 2")
        assert (await result_of(engine, run.id)).fallback_reason is FallbackReason.OPERATOR
        assert run.data == {**MAIL, **FAULT}

    @pytest.mark.parametrize(
        "reply", [{"error": "crash"}, {"error": "timeout"}, {"output": 3}, {"output": {"success": False}}]
    )
    async def test_exceptions_timeouts_and_violations_are_hard(self, quick, reply):
        """1.17."""
        executor = scripted({**reply, "repeat": True})
        config = agent("approver", timeout=0.02)
        engine = await quick.engine(forms(), dispatch=settings(executor, config, evidence=TWO_HARD))
        for _ in range(2):
            await engine.run("flow", MAIL)
        assert await held(engine) is not None

    async def test_a_failure_of_both_sides_counts_for_the_agent(self, quick):
        """1.17: the run failed, and the agent failed hard in it."""

        def work(ctx):
            raise LookupError("no")

        engine = await quick.engine(forms(work), dispatch=failing())
        for _ in range(2):
            await engine.run("flow", MAIL)
        assert await held(engine) is not None

    @pytest.mark.parametrize("case", ["no executor", "no intent", "budget"])
    async def test_what_is_not_the_agents_fault_does_not_count(self, quick, case):
        """1.17: operator, no_executor, no_intent and budget say nothing about the agent."""
        executor = None if case == "no executor" else scripted({"error": "crash", "repeat": True})
        flow = forms(intent="" if case == "no intent" else INTENT)
        if case == "budget":
            from detent.kernel.budget import Budget

            executor = scripted({"error": "transient", "usage": {"input_tokens": 5}, "repeat": True})
            config = agent("approver", budget=Budget(tokens=1))
        else:
            config = agent("approver")
        engine = await quick.engine(flow, dispatch=settings(executor, config, evidence=TWO_HARD))
        for _ in range(4):
            await engine.run("flow", MAIL)
        assert await held(engine) is None


class TestAgreement:
    async def test_falling_agreement_lowers_the_step(self, bench, heard):
        """1.17: below 80 % of the last four, here."""
        executor = scripted(*[{"output": one} for one in (FAULT, QUESTION, FAULT, FAULT)], again(FAULT))
        engine = await bench.engine(forms(), dispatch=settings(executor, agent(), evidence=HALF))
        for _ in range(3):
            await engine.run("flow", MAIL)
            assert await held(engine) is None
        await engine.run("flow", MAIL)
        demotion = await held(engine)
        assert demotion.level is AutonomyLevel.OPERATOR
        assert demotion.why == "3 of the last 4 agreed, below 80%"
        assert len(heard.named("autonomy.demoted")) == 1

    async def test_a_handlers_shadow_is_evidence_too(self, bench):
        """1.17: beside an approver."""
        executor = scripted(again(QUESTION))
        engine = await bench.engine(
            forms(), dispatch=settings(executor, agent("approver", shadow=1.0), evidence=HALF)
        )
        for _ in range(4):
            await engine.run("flow", MAIL)
        assert (await held(engine)).level is AutonomyLevel.CONSULTANT

    async def test_answers_nobody_compared_are_no_evidence_of_agreement(self, quick):
        """1.17: consultant and approver without a shadow."""
        engine = await quick.engine(
            forms(), dispatch=settings(scripted(again(QUESTION)), agent("approver"), evidence=HALF)
        )
        for _ in range(8):
            await engine.run("flow", MAIL)
        assert await held(engine) is None

    async def test_an_agent_beside_a_deterministic_step_has_nothing_to_lose(self, quick):
        """1.17: there is no level to lower."""
        engine = await quick.engine(
            forms(), dispatch=settings(scripted(again(QUESTION)), StepConfig(shadow=1.0), evidence=HALF)
        )
        for _ in range(6):
            await engine.run("flow", MAIL)
        assert await held(engine) is None

    async def test_drift_is_told_once(self, quick, heard):
        """1.17: a good series, and a bad stretch at its end."""
        rules = EvidenceRules(window=4, drift_below=0.8, drift_above=0.95, demote=False)
        executor = scripted(*[{"output": FAULT}] * 24, {"output": QUESTION}, again(FAULT))
        engine = await quick.engine(forms(), dispatch=settings(executor, agent(), evidence=rules))
        for _ in range(24):
            await engine.run("flow", MAIL)
        assert not heard.named("agreement.drift")
        for _ in range(3):
            await engine.run("flow", MAIL)
        drift = heard.one("agreement.drift")
        assert drift.level == logging.WARNING
        assert (drift["n"], drift["agreed"], drift["step_name"]) == (25, 24, "work")


class TestDurably:
    async def test_a_second_engine_on_the_same_store_obeys(self, bench):
        """1.17: the mark is the store's, not the process's."""
        first = await bench.engine(forms(), dispatch=failing())
        for _ in range(2):
            await first.run("flow", MAIL)
        await first.stop()
        executor = scripted(again(QUESTION))
        second = await bench.engine(
            forms(), dispatch=settings(executor, agent("approver"), evidence=TWO_HARD)
        )
        assert await level_of(second) is AutonomyLevel.CONSULTANT

    async def test_engines_side_by_side_count_together(self, bench):
        """1.17."""
        one = await bench.engine(forms(), dispatch=failing())
        other = await bench.engine(forms(), dispatch=failing())
        await one.run("flow", MAIL)
        await other.run("flow", MAIL)
        assert (await held(one)).level is AutonomyLevel.CONSULTANT
        assert await level_of(one) is AutonomyLevel.CONSULTANT

    async def test_restoring_gives_the_configured_level_back(self, bench):
        """1.17: a person's decision."""
        engine = await bench.engine(forms(), dispatch=failing())
        for _ in range(2):
            await engine.run("flow", MAIL)
        assert await level_of(engine) is AutonomyLevel.CONSULTANT
        _, version = await engine.store.mark(MARK)
        assert await engine.store.set_mark(MARK, None, version)
        assert await level_of(engine) is AutonomyLevel.APPROVER

    async def test_a_mark_above_the_configured_level_raises_nothing(self, quick):
        """1.17: nothing is raised by itself."""
        engine = await quick.engine(
            forms(), dispatch=settings(scripted(again(FAULT)), agent("collaborator"), evidence=TWO_HARD)
        )
        await engine.store.set_mark(MARK, Demotion(AutonomyLevel.APPROVER).to_plain(), 0)
        assert await level_of(engine) is AutonomyLevel.COLLABORATOR

    async def test_another_step_of_the_same_name_keeps_its_trust(self, quick):
        """1.17: by qualified name."""
        other = single(forms().steps["work"], name="other")
        engine = await quick.engine(forms(), other, dispatch=failing())
        for _ in range(2):
            await engine.run("flow", MAIL)
        run = await engine.run("other", MAIL)
        assert (await result_of(engine, run.id)).autonomy_level is AutonomyLevel.APPROVER

    async def test_another_prompt_begins_a_new_count(self, quick):
        """1.17: one series per prompt, model and handler."""
        for suffix in ("one", "two", "three"):
            engine = await quick.engine(forms(), dispatch=failing(prompt_suffix=suffix))
            await engine.run("flow", MAIL)
        assert await held(engine) is None


class TestRules:
    async def test_nothing_is_lowered_below_the_floor(self, quick, heard):
        """1.17."""
        rules = EvidenceRules(demote_hard=1, demote_window=4, floor=AutonomyLevel.COLLABORATOR)
        engine = await quick.engine(forms(), dispatch=failing(rules))
        levels = [(await level_of(engine)).value for _ in range(5)]
        assert levels == ["approver", "consultant", "collaborator", "collaborator", "collaborator"]
        assert len(heard.named("autonomy.demoted")) == 2

    async def test_demotion_can_be_switched_off(self, quick, heard):
        """1.17."""
        rules = EvidenceRules(demote_hard=1, demote_window=4, demote=False)
        engine = await quick.engine(forms(), dispatch=failing(rules))
        assert {await level_of(engine) for _ in range(4)} == {AutonomyLevel.APPROVER}
        assert not heard.named("autonomy.demoted")

    async def test_a_demotion_never_changes_the_run_that_caused_it(self, bench):
        """1.17: it was judged at the level it had."""
        executor = ScriptedStepExecutor([again(QUESTION)])
        rules = EvidenceRules(demote_hard=1, demote_window=1, demote_agreement=1.0)
        engine = await bench.engine(
            forms(), dispatch=settings(executor, agent("approver", shadow=1.0), evidence=rules)
        )
        run = await engine.run("flow", MAIL)
        assert run.data == {**MAIL, **QUESTION}
        result = await result_of(engine, run.id)
        assert (result.mode_used, result.autonomy_level) == (StepMode.AGENT, AutonomyLevel.APPROVER)
        assert (await held(engine)).level is AutonomyLevel.CONSULTANT
