"""What kinds of flow ask of dispatch: a level for one visit, rehearsals for validators, later evidence."""

from __future__ import annotations

import pytest

from detent.dispatch.agent_side import AgentSide
from detent.dispatch.agreement import agreement
from detent.dispatch.autonomy import AutonomyLevel, FallbackReason
from detent.dispatch.evidence import DEMOTIONS, ByLevel, Demotion, EvidenceRules
from detent.dispatch.format import JsonDialect
from detent.dispatch.proposal import Proposal
from detent.dispatch.replay import replay
from detent.dispatch.standing import Standing
from detent.engine.outcome import Effect, Outcome
from detent.engine.step import Step
from detent.engine.step_failures import Transient
from detent.engine.tools import Tool
from detent.engine.trial_context import CannotCheck
from detent.engine.verdicts import VERDICT
from detent.insight.why import render, why
from detent.kernel.errors import ConfigurationError
from detent.kernel.guards import when
from detent.kernel.machine import Move
from detent.kernel.policy import RetryPolicy
from tests.dispatch.samples import (
    FAULT,
    INTENT,
    KIND_ONLY,
    LEVELS,
    MAIL,
    QUESTION,
    Form,
    again,
    agent,
    forms,
    moves,
    notes,
    result_of,
    scripted,
    settings,
    triage,
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
        lowered = asked < AutonomyLevel(level)
        assert (f"lowered from {level} for this visit" in text) is lowered

    @pytest.mark.parametrize("level", LEVELS)
    async def test_it_may_depend_on_the_level_in_force(self, quick, level):
        """Which only dispatch knows: a flow may leave approver alone and lower the others."""

        def below_approver(level):
            return None if level is AutonomyLevel.APPROVER else OPERATOR

        flow = forms(output_schema=KIND_ONLY, agent=AgentSide(level_for=lambda ctx: below_approver))
        engine = await quick.engine(flow, dispatch=settings(scripted(again(FAULT)), agent(level)))
        run = await engine.run("flow", MAIL)
        (move,) = await moves(engine, run.id)
        assert move.by == ("agent" if level == "approver" else "handler")

    @pytest.mark.parametrize("level", ["consultant", "approver"])
    async def test_what_a_reply_has_cost_is_seen_while_its_outcome_is_concluded(self, bench, level):
        """Also where it is written together with the move."""
        seen = []

        def conclude(ctx, facts):
            seen.append(ctx.used["tokens"])
            return facts

        usage = {"input_tokens": 90, "output_tokens": 10}
        flow = forms(output_schema=KIND_ONLY, conclude=conclude)
        dispatch = settings(scripted({"output": FAULT, "usage": usage}), agent(level))
        engine = await bench.engine(flow, dispatch=dispatch)
        run = await engine.run("flow", MAIL)
        assert (set(seen), run.total_spend.tokens) == ({100}, 100)

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
        rules = EvidenceRules(audit=ByLevel(0.0, 0.0), recheck=0, patience=20)
        executor = scripted(again(QUESTION))
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


class TestEvidenceFromALaterMeasurement:
    def flow(self, measure=None, **options):
        """A model is trained, then measured."""

        async def train(ctx):
            return {"kind": "by code"}

        async def usual(ctx):
            await ctx.verdict("train", ctx.data["score"] >= 0.8, f"scores {ctx.data['score']}")
            return "done"

        step = Step("train", train, INTENT, inputs=(), output_schema=KIND_ONLY, next=("measure",), **options)
        return flow_of(
            {"train": ["measure"], "measure": ["done", "train"]},
            {"train": step, "measure": Step("measure", measure or usual, retry=RetryPolicy(3, 0, 0))},
        )

    async def figures(self, engine, *run_ids):
        """The report on the step."""
        (figures,) = agreement([(run_id, await journal(engine, run_id)) for run_id in run_ids])
        return figures.n, figures.agreed, figures.differed

    def dispatch(self, level="consultant", **options):
        return settings(
            scripted(again({"kind": "by agent"}), step="train"), agent(level), step="train", **options
        )

    async def test_a_measurement_judges_the_agent_that_was_not_checked(self, bench):
        """In the report and in the tally that demotes; the note says who found it out and why."""
        engine = await bench.engine(self.flow(), dispatch=self.dispatch())
        runs = [await engine.run("flow", {"score": score}) for score in (0.9, 0.7, 0.95)]
        assert await self.figures(engine, *(run.id for run in runs)) == (3, 2, 1)
        (note,) = await notes(engine, runs[1].id, VERDICT)
        assert (note.body["state"], note.body["visit"], note.body["right"]) == ("train", 1, False)
        assert (note.body["by"], note.body["why"]) == ("measure", "scores 0.7")
        await engine.performer.evidence.settle()
        ((_, mark),) = (await engine.store.marks("evidence/flow/train")).items()
        tally = Standing.from_plain(mark).tally()
        assert (tally.n, tally.wrong, dict(tally.judges)) == (3, 1, {"measurement": 3})

    async def test_measurements_demote_a_step_that_nobody_compares(self, quick):
        """An approver whose models turn out bad goes down like one that disagrees."""
        rules = EvidenceRules(audit=ByLevel(0.0, 0.0), recheck=0, patience=500)
        engine = await quick.engine(self.flow(), dispatch=self.dispatch("approver", evidence=rules))
        for _ in range(4):
            await engine.run("flow", {"score": 0.1})
        demotion = Demotion.from_plain((await engine.store.mark(f"{DEMOTIONS}flow/train"))[0])
        assert demotion is not None
        assert (demotion.was, demotion.level) == (AutonomyLevel.APPROVER, AutonomyLevel.CONSULTANT)

    @pytest.mark.parametrize(("score", "expected"), [(0.9, (1, 1, 0)), (0.1, (2, 1, 1))])
    async def test_a_checked_visit_does_not_agree_twice(self, quick, score, expected):
        """What speaks against an agent always counts; what speaks for it, once a visit."""
        flow = self.flow(validator=lambda inputs, proposal: True)
        engine = await quick.engine(flow, dispatch=self.dispatch("collaborator"))
        run = await engine.run("flow", {"score": score})
        assert await self.figures(engine, run.id) == expected

    @pytest.mark.parametrize(("score", "expected"), [(0.9, (1, 1, 0)), (0.1, (2, 1, 1))])
    async def test_a_visit_that_a_comparison_found_right_does_not_agree_twice(self, quick, score, expected):
        """In the tally that demotes as in the report."""
        rules = EvidenceRules(audit=ByLevel(1.0, 1.0))
        right = scripted(again({"kind": "by code"}), step="train")
        dispatch = settings(right, agent("consultant"), step="train", evidence=rules)
        engine = await quick.engine(self.flow(), dispatch=dispatch)
        run = await engine.run("flow", {"score": score})
        assert await self.figures(engine, run.id) == expected
        await engine.performer.evidence.settle()
        ((_, mark),) = (await engine.store.marks("evidence/flow/train")).items()
        tally = Standing.from_plain(mark).tally()
        assert (tally.judged, tally.judged - tally.wrong, tally.wrong) == expected

    async def test_a_comparison_after_a_right_verdict_does_not_agree_again(self, quick):
        """As when a past visit is compared."""
        nobody = EvidenceRules(audit=ByLevel(0.0, 0.0), audit_per_day=0)
        right = scripted(again({"kind": "by code"}), step="train")
        dispatch = settings(right, agent("consultant"), step="train", evidence=nobody)
        engine = await quick.engine(self.flow(), dispatch=dispatch)
        first, second = [await engine.run("flow", {"score": 0.9}) for _ in range(2)]
        await engine.performer.evidence.settle()  # a past visit counts from when the evidence began
        compared = [note async for note in replay(engine, second.id, step="train")]
        assert [note["outcome"] for note in compared] == ["agreed"]
        assert await self.figures(engine, first.id, second.id) == (2, 2, 0)
        await engine.performer.evidence.settle()
        ((_, mark),) = (await engine.store.marks("evidence/flow/train")).items()
        assert Standing.from_plain(mark).tally().judged == 2

    async def test_code_that_was_measured_is_no_evidence_about_an_agent(self, quick):
        """The note is there all the same."""
        engine = await quick.engine(self.flow())
        run = await engine.run("flow", {"score": 0.1})
        assert agreement([(run.id, await journal(engine, run.id))]) == []
        assert len(await notes(engine, run.id, VERDICT)) == 1

    async def test_a_step_that_is_repeated_judges_once(self, bench):
        """After a failed attempt, and however often it says so; each visit has a verdict of its own."""

        async def measure(ctx):
            await ctx.verdict("train", False)
            await ctx.verdict("train", True)
            if ctx.attempt < 3:
                raise Transient("busy")
            if ctx.visit == 1:
                return "train"
            await ctx.verdict("train", False, visit=1)
            return "done"

        engine = await bench.engine(self.flow(measure), dispatch=self.dispatch())
        run = await engine.run("flow")
        assert await self.figures(engine, run.id) == (2, 0, 2)
        visits = [
            (note.body["visit"], note.body.get("again", False))
            for note in await notes(engine, run.id, VERDICT)
        ]
        assert visits == [(1, False), (1, True), (2, False), (2, True), (1, True)]
        await engine.performer.evidence.settle()
        ((_, mark),) = (await engine.store.marks("evidence/flow/train")).items()
        assert Standing.from_plain(mark).tally().n == 2

    async def test_a_person_judges_what_nobody_measured(self, bench):
        """Also after the run has ended, and once."""

        async def measure(ctx):
            return "done"

        engine = await bench.engine(self.flow(measure), dispatch=self.dispatch())
        run = await engine.run("flow")
        await engine.verdict(run.id, "train", False, why="it forgets", by="ada")
        await engine.verdict(run.id, "train", False, why="it still does", by="ada")
        assert await self.figures(engine, run.id) == (1, 0, 1)
        assert [note.body["by"] for note in await notes(engine, run.id, VERDICT)] == ["ada", "ada"]
        (figures,) = agreement([(run.id, await journal(engine, run.id))])
        assert [one.later for one in figures.differences] == ["later verdict by ada: it forgets"]
        assert (await engine.get(run.id)).status is run.status
        with pytest.raises(ConfigurationError, match="no visit 2 of 'train'"):
            await engine.verdict(run.id, "train", True, visit=2)

    async def test_a_fork_does_not_judge_what_it_has_copied(self, quick):
        """The visit belongs to the run that made it."""
        engine = await quick.engine(self.flow(), dispatch=self.dispatch())
        run = await engine.run("flow", {"score": 0.9})
        moved = next(entry.seq for entry in await journal(engine, run.id) if entry.kind == "moved")
        fork = await engine.fork(run.id, moved)
        await engine.finish(fork)
        assert await self.figures(engine, run.id, fork) == (1, 1, 0)


class TestAgentsOfAKind:
    """What a kind of flow declares for agents, level by level."""

    @pytest.mark.parametrize("level", LEVELS)
    async def test_facts_need_no_envelope_where_conditions_choose_among_several_states(self, quick, level):
        """The agent is asked for its facts alone; the conditions on the table make the move of them."""
        table = {
            "work": [
                Move("done", when=when({"kind": "fault"})),
                Move("failed", when=when({"kind": "question"})),
            ]
        }
        step = Step("work", triage, INTENT, inputs=("text",), output_schema=Form)
        executor = scripted(again(FAULT))
        engine = await quick.engine(flow_of(table, {"work": step}), dispatch=settings(executor, agent(level)))
        run = await engine.run("flow", MAIL)
        assert (run.state, run.data) == ("done", {**MAIL, **FAULT})
        (call,) = executor.calls
        assert "next_state" not in f"{call.instructions}{call.prompt}{call.output_schema}"
        assert "done" not in str(call.output_schema)

    @pytest.mark.parametrize("level", LEVELS)
    async def test_an_answer_format_of_its_own_is_asked_for_read_and_asked_for_again(self, quick, level):
        """Lines in place of JSON; the result is held to the same contract and gate."""

        class Lines(JsonDialect):
            def schema(self, plan):
                return None

            def read(self, plan, answer, effects, inputs, acts=()):
                facts = dict(line.split(": ", 1) for line in str(answer).splitlines() if ": " in line)
                urgent = facts.get("urgent") == "yes"
                return plan.contract.read({"kind": facts.get("kind"), "urgent": urgent}, effects, {})

        flow = forms(output_schema=Form, agent=AgentSide(dialect=Lines()))
        executor = scripted({"output": "I think it is a fault."}, {"output": "kind: fault\nurgent: yes"})
        engine = await quick.engine(flow, dispatch=settings(executor, agent(level, max_retries=1)))
        run = await engine.run("flow", MAIL)
        result = await result_of(engine, run.id)
        assert (result.agent_result_accepted, result.attempts) == (True, 2)
        assert run.data == {**MAIL, **FAULT}

    @pytest.mark.parametrize("level", LEVELS)
    async def test_a_validator_is_the_check_at_every_level(self, quick, level):
        """Where nothing can be compared, a check decides whomever the settings trust."""
        flow = forms(
            output_schema=Form,
            agent=AgentSide(validated=True),
            validator=lambda inputs, proposal: (proposal.output.kind == "fault", ["/kind: is a fault"]),
        )
        for output, by in ((FAULT, "agent"), (QUESTION, "handler")):
            engine = await quick.engine(flow, dispatch=settings(scripted(again(output)), agent(level)))
            run = await engine.run("flow", MAIL)
            (move,) = await moves(engine, run.id)
            assert (move.by, run.data["kind"]) == (by, "fault")
