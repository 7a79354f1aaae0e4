"""What kinds of flow ask of dispatch: a level for one visit, rehearsals for validators, later evidence."""

from __future__ import annotations

import pytest

from detent.dispatch.agent_side import AgentSide
from detent.dispatch.agreement import agreement
from detent.dispatch.autonomy import AutonomyLevel, FallbackReason
from detent.dispatch.evidence import DEMOTIONS, Demotion, EvidenceRules
from detent.engine.step import Step
from detent.insight.why import render, why
from tests.dispatch.samples import (
    FAULT,
    INTENT,
    KIND_ONLY,
    LEVELS,
    MAIL,
    QUESTION,
    again,
    agent,
    forms,
    moves,
    result_of,
    scripted,
    settings,
)
from tests.engine.conftest import flow_of, journal

OPERATOR, COLLABORATOR = AutonomyLevel.OPERATOR, AutonomyLevel.COLLABORATOR


def two_attempts(level_for):
    """A flow that works twice, as one that refines does."""

    async def work(ctx):
        return {"kind": "by code"}

    async def look(ctx):
        return "work" if ctx.iterations < 2 else "done"

    step = Step(
        "work", work, INTENT, output_schema=KIND_ONLY, inputs=(), next=("look",),
        agent=AgentSide(level_for=level_for),
    )  # fmt: skip
    return flow_of(
        {"work": ["look"], "look": ["work", "done"]},
        {"work": step, "look": look},
        counts=lambda frm, to: frm == "work",
    )


class TestALevelForOneVisit:
    async def test_the_last_attempt_is_codes(self, bench):
        """The level in force is lowered for this visit alone, and the journal says from where and why."""

        def last_is_codes(ctx):
            return (OPERATOR, "the last attempt is code's") if ctx.iterations else None

        executor = scripted(again({"kind": "by agent"}))
        engine = await bench.engine(
            two_attempts(last_is_codes), dispatch=settings(executor, agent("consultant"))
        )
        run = await engine.run("flow")
        first, last = await moves(engine, run.id)
        assert (first.by, first.set) == ("agent", {"kind": "by agent"})
        assert (last.by, last.set) == ("handler", {"kind": "by code"})
        assert "lowered" not in first.detail
        assert last.detail["lowered"] == {"was": "consultant", "why": "the last attempt is code's"}
        assert last.detail["fallback_reason"] == FallbackReason.OPERATOR.value
        assert len(executor.calls) == 1
        text = render(why(await journal(engine, run.id)))
        assert "no agent     lowered for this visit: the last attempt is code's" in text

    @pytest.mark.parametrize("level", LEVELS)
    @pytest.mark.parametrize("asked", list(AutonomyLevel))
    async def test_it_is_never_raised(self, quick, level, asked):
        """What a flow asks for is a ceiling: under the settings it changes nothing above them."""
        side = AgentSide(level_for=lambda ctx: asked)
        flow = forms(output_schema=KIND_ONLY, agent=side)
        engine = await quick.engine(flow, dispatch=settings(scripted(again(FAULT)), agent(level)))
        run = await engine.run("flow", MAIL)
        result = await result_of(engine, run.id)
        assert result.autonomy_level is min(asked, AutonomyLevel(level))
        text = render(why(await journal(engine, run.id)))
        lowered = OPERATOR < asked < AutonomyLevel(level)
        assert (f"lowered from {level} for this visit" in text) is lowered

    @pytest.mark.parametrize("broken", [lambda ctx: 1 / 0, lambda ctx: "highest", lambda ctx: 3])
    async def test_one_that_cannot_be_told_is_the_lowest(self, quick, broken, heard):
        """A mistake in the function never gives an agent more than code would have."""
        flow = forms(agent=AgentSide(level_for=broken))
        engine = await quick.engine(flow, dispatch=settings(scripted(again(QUESTION)), agent("approver")))
        run = await engine.run("flow", MAIL)
        assert run.data == {**MAIL, **FAULT}
        assert (await result_of(engine, run.id)).autonomy_level is OPERATOR
        assert heard.one("dispatch.level_failed")

    async def test_evidence_of_a_lowered_visit_is_about_the_level_the_step_has(self, quick):
        """A demotion goes down from there, and the report shows it as the present one."""
        side = AgentSide(level_for=lambda ctx: COLLABORATOR)
        rules = EvidenceRules(demote_hard=2, demote_window=4)
        executor = scripted({"error": "crash", "repeat": True})
        engine = await quick.engine(
            forms(agent=side), dispatch=settings(executor, agent("approver"), evidence=rules)
        )
        journals = []
        for _ in range(2):
            run = await engine.run("flow", MAIL)
            journals.append((run.id, await journal(engine, run.id)))
        demotion = Demotion.from_plain((await engine.store.mark(f"{DEMOTIONS}flow/work"))[0])
        assert demotion is not None
        assert (demotion.was, demotion.level) == (AutonomyLevel.APPROVER, AutonomyLevel.CONSULTANT)
        (figures,) = agreement(journals, rules)
        assert figures.now is AutonomyLevel.APPROVER
