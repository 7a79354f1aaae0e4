"""What kinds of flow ask of dispatch: a level for one visit, rehearsals for validators, later evidence."""

from __future__ import annotations

import pytest

from detent.dispatch.agent_side import AgentSide
from detent.dispatch.agreement import agreement
from detent.dispatch.autonomy import AutonomyLevel, FallbackReason
from detent.dispatch.evidence import DEMOTIONS, Demotion, EvidenceRules
from detent.dispatch.proposal import Proposal
from detent.engine.outcome import Effect, Outcome
from detent.engine.step import Step
from detent.engine.tools import Tool
from detent.engine.trial_context import CannotCheck
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


class Show:
    """A flow that plans, implements and judges; the world counts what was really asked and done."""

    def __init__(self, *, implement=None, validator=None) -> None:
        self.asked: list[str] = []
        self.written: list[str] = []

        def tempo(song: str) -> int:
            self.asked.append(song)
            return 120

        def write(text: str) -> None:
            self.written.append(text)

        async def plan(ctx):
            return {"plan": ["calm", "loud"]}

        async def usual(ctx):
            beats = await ctx.query("tempo", song="song")
            text = ctx.keep(" ".join(ctx.data["plan"]))
            await ctx.note("implemented", beats=beats)
            return Outcome(
                set={"parts": len(ctx.data["plan"]), "text": text},
                append={"log": ["implemented"]},
                effects=[Effect("write", {"text": "show"})],
            )

        async def judge(ctx):
            text = (await ctx.kept(ctx.data["text"])).decode()
            passes = "loud" in text and ctx.data["log"] == ["implemented"]
            return Outcome("done" if passes else "failed", set={"score": ctx.data["parts"] * 10})

        async def passes_by_code(inputs, proposal):
            """The plan counts if the rest, done by code and judged by code, passes no worse than code's."""
            scores = []
            for chosen in (proposal.output, (await proposal.rehearse("plan")).data):
                implemented = await proposal.rehearse("implement", {"plan": chosen["plan"]})
                judged = await proposal.rehearse("judge", implemented.data)
                assert implemented.effects == (Effect("write", {"text": "show"}),)
                scores.append(judged.data["score"] if judged.to == "done" else -1)
            return scores[0] >= scores[1], [f"/plan: {scores[0]} of {scores[1]}"]

        schema = {"type": "object", "properties": {"plan": {"type": "array"}}, "required": ["plan"]}
        step = Step(
            "plan", plan, INTENT, inputs=(), output_schema=schema, validator=validator or passes_by_code,
            effects=(), queries=(),
        )  # fmt: skip
        self.flow = flow_of(
            {"plan": ["implement"], "implement": ["judge"], "judge": ["done", "failed"]},
            {"plan": step, "implement": implement or usual, "judge": judge},
            tools=[Tool("tempo", tempo, "query"), Tool("write", write)],
        )


class TestAValidatorThatRehearsesOtherSteps:
    @pytest.mark.parametrize(
        ("plan", "by"),
        [(["loud", "calm", "loud"], "agent"), (["loud"], "handler"), (["calm"] * 9, "handler")],
    )
    async def test_a_plan_is_judged_by_what_code_makes_of_it(self, bench, plan, by):
        """The remaining steps are rehearsed by their handlers: queries are made, effects are not."""
        show = Show()
        dispatch = settings(
            scripted({"output": {"plan": plan}}, step="plan"), agent("collaborator"), step="plan"
        )
        engine = await bench.engine(show.flow, dispatch=dispatch)
        run = await engine.run("flow")
        (planned,) = await moves(engine, run.id, "plan")
        assert planned.by == by
        assert (run.state, run.data["log"]) == ("done", ["implemented"])
        assert show.written == ["show"]
        assert show.asked == ["song", "song"]  # once for all rehearsals, and once by the step itself
        notes = [entry for entry in await journal(engine, run.id) if entry.kind == "noted"]
        assert len(notes) == 1

    @pytest.mark.parametrize("does", ["pays", "starts a run", "goes on with a receipt"])
    async def test_what_cannot_be_rehearsed_is_not_done_by_halves(self, quick, does):
        """The validator is told, and nothing was paid, started or performed for it."""
        paid: list[str] = []
        verdicts: list[object] = []

        async def implement(ctx):
            if does == "pays":
                await ctx.once("answer", lambda: paid.append("answer"))
            elif does == "starts a run":
                await ctx.child("none", key="part")
            else:
                await ctx.perform("write", text="show")
            return {"parts": 2}

        async def validator(inputs, proposal):
            try:
                verdicts.append((await proposal.rehearse("implement", {"plan": []})).outcome)
            except CannotCheck:
                verdicts.append("cannot be rehearsed")
            assert (paid, show.written) == ([], [])
            return True

        show = Show(implement=implement, validator=validator)
        executor = scripted({"output": {"plan": ["an agent's"]}}, step="plan")
        engine = await quick.engine(
            show.flow, dispatch=settings(executor, agent("collaborator"), step="plan")
        )
        run = await engine.run("flow")
        assert verdicts == [None if does == "goes on with a receipt" else "cannot be rehearsed"]
        assert run.data["plan"] == ["an agent's"]

    async def test_a_validator_alone_says_that_it_needs_a_run(self):
        """Tests of a validator may hand it a function of their own."""
        with pytest.raises(CannotCheck):
            await Proposal({}).rehearse("judge")
