"""Trust is lost by evidence: durably, once, one level at a time, and given back by a person only."""

from __future__ import annotations

import logging

import pytest

from detent.dispatch.agent_side import AgentSide
from detent.dispatch.autonomy import AgentRole, AutonomyLevel, FallbackReason, StepMode
from detent.dispatch.config import StepConfig
from detent.dispatch.evidence import DEMOTED, DEMOTIONS, ByLevel, Demotion, EvidenceRules
from detent.dispatch.standing import Standing
from detent.engine.step import Step
from detent.engine.tools import Tool
from detent.kernel.policy import RetryPolicy
from detent.kernel.status import Status
from tests.dispatch.samples import (
    FAULT,
    INTENT,
    KIND_ONLY,
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
    triage,
)

MARK = f"{DEMOTIONS}flow/work"
QUICK = EvidenceRules(audit=ByLevel(1.0, 1.0), patience=20)
"""Every answer is judged, and two wrong ones in a row lower the step."""


async def level_of(engine) -> AutonomyLevel:
    """The level at which the next run's step is performed."""
    run = await engine.run("flow", MAIL)
    return (await result_of(engine, run.id)).autonomy_level


async def held(engine) -> Demotion | None:
    mark, _ = await engine.store.mark(MARK)
    return Demotion.from_plain(mark)


def wrong(rules=QUICK, level="approver", **more):
    """Settings under which the agent is always wrong."""
    return settings(scripted(again(QUESTION)), agent(level, **more), evidence=rules)


class TestWrongAnswers:
    async def test_they_lower_the_step_by_one_level(self, bench, heard):
        """1.17."""
        engine = await bench.engine(forms(), dispatch=wrong())
        await engine.run("flow", MAIL)
        assert await held(engine) is None
        run = await engine.run("flow", MAIL)
        demotion = await held(engine)
        assert (demotion.level, demotion.was) == (AutonomyLevel.CONSULTANT, AutonomyLevel.APPROVER)
        assert demotion.by == "engine"
        assert demotion.why == "more than 1.0% wrong: 2 of 2 judged visits"
        assert set(demotion.series) == {"model_id", "prompt", "handler", "check", "sampling"}
        told = heard.one("autonomy.demoted")
        assert told.level == logging.WARNING
        assert (told["autonomy"], told["was"], told["step_name"]) == ("consultant", "approver", "work")
        (note,) = await notes(engine, run.id, "autonomy.demoted")
        assert note.body == {
            "step": "flow/work", "level": "consultant", "was": "approver", "why": demotion.why,
        }  # fmt: skip
        assert note.aside
        times, _ = await engine.store.mark(f"{DEMOTED}flow/work")
        assert len(times) == 1

    async def test_one_burst_does_not_lower_it_all_the_way(self, bench, heard):
        """1.17: after a demotion the count begins anew; at collaborator nothing unchecked goes out."""
        engine = await bench.engine(forms(), dispatch=wrong())
        levels = [(await level_of(engine)).value for _ in range(8)]
        assert levels == ["approver"] * 2 + ["consultant"] * 2 + ["collaborator"] * 4
        assert len(heard.named("autonomy.demoted")) == 2

    async def test_an_agent_always_wrong_at_consultant_is_lowered_by_the_shipped_rules(self, quick):
        """Nothing was judged there before: such an agent was never lowered."""
        engine = await quick.engine(forms(), dispatch=wrong(EvidenceRules(), "consultant"))
        delivered = 0
        while await held(engine) is None:
            run = await engine.run("flow", MAIL)
            delivered += run.data == {**MAIL, **QUESTION}
            assert delivered < 200
        assert (await held(engine)).level is AutonomyLevel.COLLABORATOR

    async def test_collaborator_is_given_up_when_half_of_fifty_were_replaced(self, quick):
        engine = await quick.engine(forms(), dispatch=wrong(EvidenceRules(), "collaborator"))
        for _ in range(49):
            await engine.run("flow", MAIL)
        assert await held(engine) is None
        await engine.run("flow", MAIL)
        assert (await held(engine)).level is AutonomyLevel.OPERATOR
        assert await level_of(engine) is AutonomyLevel.OPERATOR

    async def test_a_step_without_a_handler_is_never_silenced(self, quick):
        """At operator nobody would perform it."""
        flow = forms(agent=AgentSide(handled=False))
        engine = await quick.engine(flow, dispatch=wrong(EvidenceRules(), "collaborator"))
        for _ in range(60):
            await engine.run("flow", MAIL)
        assert await held(engine) is None
        # As the version before has left it.
        demotion = Demotion(
            AutonomyLevel.OPERATOR, AutonomyLevel.COLLABORATOR, "3 of the last 20 failed hard"
        )
        await engine.store.set_mark(MARK, demotion.to_plain(), 0)
        assert await level_of(engine) is AutonomyLevel.COLLABORATOR


async def _never(ctx):
    raise RuntimeError("it has no handler")


async def _hurry(ctx):
    return FAULT


async def _look(text: str) -> str:
    return text


def again_error(kind: str) -> dict[str, object]:
    return {"error": kind, "repeat": True}


class TestWithoutAHandler:
    """Nobody can perform the step: a person is asked, instead of failing every run."""

    async def demoted(self, bench, executor):
        flow = forms(agent=AgentSide(handled=False))
        engine = await bench.engine(flow, dispatch=settings(executor, agent("collaborator")))
        demotion = Demotion(AutonomyLevel.OPERATOR, AutonomyLevel.COLLABORATOR, "too dear", by="anna")
        await engine.store.set_mark(MARK, demotion.to_plain(), 0)
        run = await engine.run("flow", MAIL)
        assert run.status is Status.WAITING
        (hold,) = run.holds.values()
        assert (hold.why, hold.choices) == ("attention", ["retry", "fail"])
        assert "too dear" in hold.question
        return engine, run

    async def test_it_is_retried_once_the_level_is_restored(self, quick):
        engine, run = await self.demoted(quick, scripted(again(FAULT)))
        await engine.release(run.id, "retry", hold=run.token(*run.holds))
        run = await engine.finish(run.id)
        assert run.status is Status.WAITING, "nothing has changed, so it is asked again"
        await engine.store.set_mark(MARK, None, 1)
        await engine.release(run.id, "retry", hold=run.token(*run.holds))
        run = await engine.finish(run.id)
        assert (run.status, run.data) == (Status.SUCCEEDED, {**MAIL, **FAULT})
        assert (await result_of(engine, run.id)).shape == "accepted"

    async def test_it_ends_as_its_flow_ends_it_when_a_person_gives_up(self, quick):
        engine, run = await self.demoted(quick, scripted(again(FAULT)))
        await engine.release(run.id, "fail", hold=run.token(*run.holds))
        run = await engine.finish(run.id)
        assert run.status.is_end
        assert (await result_of(engine, run.id)).fallback_reason is FallbackReason.OPERATOR

    @pytest.mark.parametrize("side", [AgentSide(handled=False), AgentSide(AgentRole.REQUIRED)])
    async def test_without_a_model_it_waits_too(self, quick, side):
        engine = await quick.engine(forms(agent=side), dispatch=settings(None, agent("collaborator")))
        run = await engine.run("flow", MAIL)
        assert run.status is Status.WAITING

    @pytest.mark.parametrize("side", [AgentSide(handled=False), AgentSide(AgentRole.REQUIRED)])
    async def test_while_its_server_is_away_it_waits_and_a_retry_asks_anew(self, bench, side):
        """Failed replies are in the journal, and are not taken for the answer to a person's retry."""
        away = {"error": "transient"}
        executor = scripted(*[away] * 4, {"output": FAULT})
        config = agent("collaborator", retry_policy=RetryPolicy(2, 0, 0))
        engine = await bench.engine(forms(agent=side), dispatch=settings(executor, config))
        run = await engine.run("flow", MAIL)
        for asked in (2, 4):
            assert (run.status, len(executor.calls)) == (Status.WAITING, asked)
            (hold,) = run.holds.values()
            assert (hold.why, hold.choices) == ("attention", ["retry", "fail"])
            await engine.release(run.id, "retry", hold=run.token(*run.holds))
            run = await engine.finish(run.id)
        assert (run.status, run.data, len(executor.calls)) == (Status.SUCCEEDED, {**MAIL, **FAULT}, 5)

    @pytest.mark.parametrize("side", [AgentSide(handled=False), AgentSide(AgentRole.REQUIRED)])
    async def test_given_up_while_its_server_is_away_it_fails_with_the_error(self, quick, side):
        executor = scripted(again_error("transient"))
        engine = await quick.engine(
            forms(_never, agent=side), dispatch=settings(executor, agent("collaborator", max_retries=0))
        )
        run = await engine.run("flow", MAIL)
        await engine.release(run.id, "fail", hold=run.token(*run.holds))
        run = await engine.finish(run.id)
        assert run.status is Status.FAILED
        assert len(executor.calls) == 1, "what is given up is not asked for again"

    @pytest.mark.parametrize("error", ["crash", "permanent", "timeout"])
    async def test_an_agent_that_was_asked_and_failed_fails_the_step(self, quick, error):
        """W-38, D-29."""
        executor = scripted(again_error(error))
        for side in (AgentSide(handled=False), AgentSide(AgentRole.REQUIRED)):
            config = agent("collaborator", max_retries=0, timeout=0.01)
            engine = await quick.engine(forms(_never, agent=side), dispatch=settings(executor, config))
            run = await engine.run("flow", MAIL)
            assert run.status is Status.FAILED


class TestWhatCostsNoTrust:
    @pytest.mark.parametrize("level", ["collaborator", "consultant", "approver"])
    @pytest.mark.parametrize("reply", [{"error": "crash"}, {"error": "permanent"}, {"output": 3}])
    async def test_outages_and_refused_answers_lower_nothing(self, quick, reply, level):
        """Forty visits of a dead or confused model: the handler's outcome was used each time."""
        executor = scripted({**reply, "repeat": True})
        engine = await quick.engine(forms(), dispatch=settings(executor, agent(level), evidence=QUICK))
        for _ in range(40):
            run = await engine.run("flow", MAIL)
            assert run.data == {**MAIL, **FAULT}
        assert await held(engine) is None
        await engine.performer.evidence.settle()
        (mark,) = (await engine.store.marks("evidence/")).values()
        standing = Standing.from_plain(mark)
        assert (standing.tally().n, len(standing.answers)) == (0, 40)

    async def test_answers_nobody_judged_move_no_figure(self, quick):
        """Silence is not trust."""
        rules = EvidenceRules(audit=ByLevel(0.0, 0.0))
        engine = await quick.engine(forms(), dispatch=wrong(rules))
        for _ in range(8):
            await engine.run("flow", MAIL)
        await engine.performer.evidence.settle()
        (mark,) = (await engine.store.marks("evidence/")).values()
        assert Standing.from_plain(mark).tally().judged == 0
        assert await held(engine) is None

    async def test_an_agent_beside_a_deterministic_step_has_nothing_to_lose(self, quick):
        """1.17: there is no level to lower."""
        config = StepConfig(shadow=1.0)
        engine = await quick.engine(
            forms(), dispatch=settings(scripted(again(QUESTION)), config, evidence=QUICK)
        )
        for _ in range(6):
            await engine.run("flow", MAIL)
        assert await held(engine) is None


class TestAudits:
    async def test_a_share_of_unchecked_answers_is_judged_after_use(self, quick):
        """One is judged a day at least, and the rest by a draw."""
        rules = EvidenceRules(audit=ByLevel(0.3, 0.3), recheck=0, demote=False)
        engine = await quick.engine(forms(), dispatch=wrong(rules, "consultant"))
        for _ in range(100):
            run = await engine.run("flow", MAIL)
            assert run.data == {**MAIL, **QUESTION}  # the outcome was used
        await engine.performer.evidence.settle()
        (mark,) = (await engine.store.marks("evidence/")).values()
        tally = Standing.from_plain(mark).tally()
        assert 12 < tally.judged < 55
        assert tally.wrong == tally.judged

    async def test_at_small_traffic_one_a_day_is_judged(self, quick):
        rules = EvidenceRules(audit=ByLevel(1e-9, 1e-9), recheck=0)
        engine = await quick.engine(forms(), dispatch=wrong(rules, "consultant"))
        for _ in range(3):
            await engine.run("flow", MAIL)
            await engine.performer.evidence.settle()
        (mark,) = (await engine.store.marks("evidence/")).values()
        assert Standing.from_plain(mark).tally().judged == 1

    async def test_a_seen_error_puts_the_step_under_the_collaborators_gate(self, bench, heard):
        """Until so many judged visits in a row are clean; the level stays."""
        rules = EvidenceRules(audit=ByLevel(1e-9, 1e-9), recheck=2)
        replies = [{"output": reply} for reply in (QUESTION, QUESTION, FAULT, FAULT)]
        engine = await bench.engine(
            forms(),
            dispatch=settings(scripted(*replies, again(QUESTION)), agent("consultant"), evidence=rules),
        )
        delivered, levels = [], []
        for _ in range(5):
            run = await engine.run("flow", MAIL)
            await engine.performer.evidence.settle()
            delivered.append(run.data["kind"])
            levels.append((await result_of(engine, run.id)).autonomy_level.value)
        # Used and seen wrong; gated: refused, clean, clean; unchecked again.
        assert delivered == ["question", "fault", "fault", "fault", "question"]
        assert levels == ["consultant", "collaborator", "collaborator", "collaborator", "consultant"]
        assert await held(engine) is None
        assert heard.one("autonomy.recheck")["clean"] == 2

    async def test_a_kind_that_has_not_earned_the_level_is_gated(self, quick):
        side = AgentSide(kind=lambda inputs: "urgent" if "!" in inputs["text"] else "calm")
        rules = EvidenceRules(audit=ByLevel(0.0, 0.0))
        flow = forms(agent=side, inputs=lambda ctx: {"text": ctx.data["text"]})
        engine = await quick.engine(flow, dispatch=wrong(rules, "consultant"))
        run = await engine.run("flow", MAIL)
        result = await result_of(engine, run.id)
        assert result.autonomy_level is AutonomyLevel.COLLABORATOR
        assert run.data == {**MAIL, **FAULT}


class TestDurably:
    async def test_a_second_engine_on_the_same_store_obeys(self, bench):
        """1.17: the mark is the store's, not the process's."""
        first = await bench.engine(forms(), dispatch=wrong())
        for _ in range(2):
            await first.run("flow", MAIL)
        await first.stop()
        second = await bench.engine(forms(), dispatch=wrong())
        assert await level_of(second) is AutonomyLevel.CONSULTANT

    async def test_engines_side_by_side_count_together(self, bench):
        """1.17."""
        one = await bench.engine(forms(), dispatch=wrong())
        other = await bench.engine(forms(), dispatch=wrong())
        await one.run("flow", MAIL)
        await other.run("flow", MAIL)
        assert (await held(one)).level is AutonomyLevel.CONSULTANT
        assert await level_of(one) is AutonomyLevel.CONSULTANT

    async def test_a_mark_above_the_configured_level_raises_nothing(self, quick):
        """1.17: nothing is raised by itself."""
        engine = await quick.engine(
            forms(), dispatch=settings(scripted(again(FAULT)), agent("collaborator"), evidence=QUICK)
        )
        await engine.store.set_mark(MARK, Demotion(AutonomyLevel.APPROVER).to_plain(), 0)
        assert await level_of(engine) is AutonomyLevel.COLLABORATOR

    async def test_another_step_of_the_same_name_keeps_its_trust(self, quick):
        """1.17: by qualified name."""
        other = single(forms(intent="Say whether the message is a complaint.").steps["work"], name="other")
        engine = await quick.engine(forms(), other, dispatch=wrong())
        for _ in range(2):
            await engine.run("flow", MAIL)
        run = await engine.run("other", MAIL)
        assert (await result_of(engine, run.id)).autonomy_level is AutonomyLevel.APPROVER

    async def test_a_renamed_or_copied_step_is_held_as_before_until_a_person_restores_it(self, bench):
        """A demotion follows handler and intent; evidence follows nothing."""
        copy = single(forms().steps["work"], name="copy")
        engine = await bench.engine(forms(), copy, dispatch=wrong())
        for _ in range(2):
            await engine.run("flow", MAIL)
        for suffix in ("", "Be careful."):  # nor does another prompt give it its trust back
            engine = await bench.engine(forms(), copy, dispatch=wrong(prompt_suffix=suffix))
            run = await engine.run("copy", MAIL)
            assert (await result_of(engine, run.id)).autonomy_level is AutonomyLevel.CONSULTANT
        mark, version = await engine.store.mark(f"{DEMOTIONS}copy/work")
        assert Demotion.from_plain(mark).why == (
            "it does what flow/work does, which was lowered: more than 1.0% wrong: 2 of 2 judged visits"
        )
        await engine.store.set_mark(f"{DEMOTIONS}copy/work", None, version)
        engine = await bench.engine(copy, dispatch=settings(scripted(again(FAULT)), agent("approver")))
        run = await engine.run("copy", MAIL)
        assert (await result_of(engine, run.id)).autonomy_level is AutonomyLevel.APPROVER

    async def test_a_step_with_evidence_of_its_own_is_not_held_as_another(self, bench):
        copy = single(forms().steps["work"], name="copy")
        engine = await bench.engine(forms(), copy, dispatch=wrong())
        await engine.run("copy", MAIL)
        for _ in range(2):
            await engine.run("flow", MAIL)
        engine = await bench.engine(forms(), copy, dispatch=wrong())
        run = await engine.run("copy", MAIL)
        assert (await result_of(engine, run.id)).autonomy_level is AutonomyLevel.APPROVER

    @pytest.mark.parametrize("field", ["prompt_suffix", "temperature", "model_id"])
    async def test_another_agent_begins_a_new_count(self, quick, field):
        """1.17: yesterday's agent does not vouch for today's, nor cost it its trust."""
        values = {"prompt_suffix": ["one", "two"], "temperature": [0.1, 0.2], "model_id": ["m1", "m2"]}[field]
        for value in values:
            engine = await quick.engine(forms(), dispatch=wrong(**{field: value}))
            await engine.run("flow", MAIL)
        assert await held(engine) is None
        assert len(await engine.store.marks("evidence/")) == 2

    @pytest.mark.parametrize(
        "changed",
        [
            {"handler": _hurry}, {"intent": f"{INTENT} Take care."}, {"output_schema": KIND_ONLY},
            {"queries": ("look",)}, {"validator": lambda ctx, proposal: True},
            {"agent": AgentSide(kind=lambda inputs: "mail")},
        ],
        ids=lambda changed: next(iter(changed)),
    )  # fmt: skip
    async def test_another_step_or_check_begins_a_new_count(self, quick, changed):
        """1.17: each change alone; a step's tools are given to the agent like its prompt."""
        tools = [Tool(name, _look, kind="query") for name in ("look", "find")]
        for change in ({}, changed):
            work = {"handler": triage, "intent": INTENT, "queries": ("look", "find"), **change}
            flow = single(Step("work", **work), tools=tools)
            engine = await quick.engine(flow, dispatch=wrong(level="collaborator"))
            await engine.run("flow", MAIL)
            await engine.performer.evidence.settle()
        assert len(await engine.store.marks("evidence/")) == 2

    async def test_a_demotion_never_changes_the_run_that_caused_it(self, bench):
        """1.17: it was judged at the level it had."""
        engine = await bench.engine(forms(), dispatch=wrong(EvidenceRules(audit=ByLevel(1, 1), patience=3)))
        run = await engine.run("flow", MAIL)
        assert run.data == {**MAIL, **QUESTION}
        result = await result_of(engine, run.id)
        assert (result.mode_used, result.autonomy_level) == (StepMode.AGENT, AutonomyLevel.APPROVER)
        assert (await held(engine)).level is AutonomyLevel.CONSULTANT
