"""The two reflectors: what a behavior or a step has come to, by measurement, and where the run goes.

An agent's reflection is a claim. It is recorded beside the measurement, and the measurement decides.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from detent.engine.context import StepContext
from detent.engine.outcome import Outcome
from detent.flows.notebook.cells import ACCEPTED, SUPERSEDED, superseded_from
from detent.flows.notebook.domain.catalogue import plan_steps
from detent.flows.notebook.payloads.values import (
    BehaviorPlan,
    BehaviorReflection,
    PlannedStep,
    StageReflection,
    StepPlan,
)
from detent.flows.notebook.roles.answer import RoleAnswer
from detent.flows.notebook.roles.facts import MeasuredFacts
from detent.flows.notebook.roles.move import headings, logged, moved
from detent.flows.notebook.run_view import ATTEMPTS, CHECKS, PENDING, VERIFIED, WHY_FAILED, NotebookRun
from detent.flows.notebook.settings import NotebookSettings
from detent.flows.notebook.state.decisions import Decision, Limits, behavior_is_complete, decide
from detent.flows.notebook.state.facts import Facts
from detent.flows.notebook.state.machine import NotebookState
from detent.flows.notebook.state.transitions import apply
from detent.flows.notebook.verification import EXECUTING_AGAIN, VERIFY, outputs_of


class Reflection:
    """Handlers and conclusions of the reflectors."""

    def __init__(self, settings: NotebookSettings, facts: MeasuredFacts) -> None:
        self._settings = settings
        self._facts = facts
        self._stability = settings.stability
        self._limits = Limits(settings.max_retries, settings.max_behaviors, settings.max_backtracks)

    # -- a behavior -----------------------------------------------------------------------------------------

    async def reflect_on_behavior(self, ctx: StepContext) -> dict[str, Any]:
        """The measurement in words."""
        run = NotebookRun(ctx.values)
        facts, decision = self.of_behavior(ctx, run)
        return RoleAnswer(self._facts.behavior_reflection(run, facts, decision)).to_plain()

    def of_behavior(self, ctx: StepContext, run: NotebookRun) -> tuple[Facts, Decision]:
        """What was measured of the behavior, and the row that follows."""
        facts = self._facts.of_behavior(ctx, run)
        return facts, decide(run.state, facts, self._limits)

    async def behavior_reflected(self, ctx: StepContext, said: Mapping[str, Any]) -> Outcome:
        """The move that the measurement chooses; a further behavior is arranged first."""
        run, answer = NotebookRun(ctx.values), RoleAnswer.from_plain(said)
        facts, decision = self.of_behavior(ctx, run)
        await self._judge_generator(ctx, run, facts)
        pending = {PENDING: dict(said)}
        if decision.row == "5b":
            return Outcome(set=pending, then="behavior_arranger", reason="5b another behavior is needed")
        return await self.behavior_closed(ctx, run, None, (), answer)

    async def _judge_generator(self, ctx: StepContext, run: NotebookRun, facts: Facts) -> None:
        """The measurement is the evidence about who wrote the cells, never that they parsed."""
        if run.measured.get("by") == "agent":
            right = behavior_is_complete(facts) and run.iteration == 1
            why = f"{run.attempt}: {'complete' if right else 'not complete at the first iteration'}"
            await ctx.verdict(NotebookState.BEHAVIOR_RUNNING, right, why)

    async def behavior_closed(
        self,
        ctx: StepContext,
        run: NotebookRun,
        plan: BehaviorPlan | None,
        log: Sequence[Mapping[str, Any]],
        answer: RoleAnswer | None = None,
    ) -> Outcome:
        """The outcome of a reflection on a behavior, with the plan of the next one where there is one."""
        answer = answer or RoleAnswer.from_plain(run.values[PENDING])
        reflection = answer.payload
        assert isinstance(reflection, BehaviorReflection)
        facts, decision = self.of_behavior(ctx, run)
        claims = self._facts.claims_on_behavior(run, reflection, facts)
        line = logged(
            ctx, "behavior_reflector", answer, event=decision.event.value, row=decision.row, claims=claims
        )
        ended = self._facts.attempt_line(run, facts)
        append: dict[str, list[Any]] = {ATTEMPTS: [ended]}
        if decision.row == "5c":
            facts = replace(facts, dropped_variables=self._facts.dropped_with(run))
        else:
            best = self._best_attempt(run, ended)
            append[ACCEPTED] = [best]
            if best == run.attempt and (check := self._facts.check_after(run, facts)) is not None:
                append[CHECKS] = [check]
        payloads = (reflection,) if plan is None else (reflection, plan)
        return moved(
            ctx, run, decision, facts, *payloads, log=[line, *log], append=append, set={PENDING: None},
            reason=self._facts.in_short(facts),
        )  # fmt: skip

    @staticmethod
    def _best_attempt(run: NotebookRun, ended: Mapping[str, Any]) -> str:
        """The attempt of the behavior whose cells count: the last of the best."""
        behavior = run.behavior.behavior_id
        attempts = [line for line in run.attempts() if line["behavior"] == behavior] + [ended]
        best = max(attempts, key=lambda line: (line["rank"], line["iteration"]))
        return str(best["attempt"])

    # -- a step ---------------------------------------------------------------------------------------------

    async def reflect_on_stage(self, ctx: StepContext) -> dict[str, Any]:
        """The measurement in words, with the variables and what is missing."""
        run = NotebookRun(ctx.values)
        facts, decision = await self.of_step(ctx, run)
        return RoleAnswer(self._facts.stage_reflection(run, facts, decision)).to_plain()

    async def of_step(self, ctx: StepContext, run: NotebookRun) -> tuple[Facts, Decision]:
        """What was measured of the step and its stage, and the row that follows.

        Where the run would end well, the notebook is executed again first.
        """
        facts = self._facts.of_step(ctx, run)
        decision = decide(run.state, facts, self._limits)
        if decision.row == "6c" and run.options.verify:
            ctx.progress(text=EXECUTING_AGAIN)
            passed = (await ctx.query(VERIFY, cells=len(run.live)))["passed"]
            facts = self._facts.of_step(ctx, run, reexecuted=bool(passed))
            decision = decide(run.state, facts, self._limits)
        return facts, decision

    async def stage_reflected(self, ctx: StepContext, said: Mapping[str, Any]) -> Outcome:
        """The move that the measurement chooses; a plan is asked for where one is needed."""
        run, answer = NotebookRun(ctx.values), RoleAnswer.from_plain(said)
        _, decision = await self.of_step(ctx, run)
        needs_plan = decision.row == "6e" or (
            decision.row == "6d" and decision.to is NotebookState.STEP_RUNNING
        )
        if needs_plan:
            return Outcome(set={PENDING: dict(said)}, then="step_planner", reason=f"{decision.row} a plan")
        return await self.step_closed(ctx, run, None, (), answer)

    async def step_closed(
        self,
        ctx: StepContext,
        run: NotebookRun,
        plan: StepPlan | None,
        log: Sequence[Mapping[str, Any]],
        answer: RoleAnswer | None = None,
    ) -> Outcome:
        """The outcome of a reflection on a step, with the plan of the steps to do where there is one."""
        answer = answer or RoleAnswer.from_plain(run.values[PENDING])
        reflection = answer.payload
        assert isinstance(reflection, StageReflection)
        facts, decision = await self.of_step(ctx, run)
        payloads = (reflection,) if plan is None else (reflection, plan)
        claims = self._facts.claims_on_stage(run, reflection, facts)
        line = logged(
            ctx, "stage_reflector", answer, event=decision.event.value, row=decision.row, claims=claims
        )
        append: dict[str, list[Any]] = {}
        gap = decision.gap
        if decision.row == "6d" and gap is not None and gap.producer_step is not None:
            gone = superseded_from(run.values, gap.producer_step)
            append[SUPERSEDED] = [gone] if gone is not None else []
            facts = replace(facts, dropped_variables=self._facts.superseded_with(run, gone))
        changes: dict[str, Any] = {PENDING: None}
        if decision.reason is not None:
            changes[WHY_FAILED] = decision.reason
        if facts.reexecuted is not None:
            verified = await ctx.query(VERIFY, cells=len(run.live))
            body = outputs_of(run.work, verified["outputs"])
            changes[VERIFIED] = {
                "passed": verified["passed"], "why": verified["why"], "cell": verified["cell"],
                "outputs": None if body is None else ctx.keep(body),
            }  # fmt: skip
        after = apply(run.state, decision, facts, *payloads)
        return moved(
            ctx, run, decision, facts, *payloads, log=[line, *log], append=append, set=changes,
            cells=headings(run.document, after.document), reason=self._reason(decision, facts),
        )  # fmt: skip

    def _reason(self, decision: Decision, facts: Facts) -> str:
        if decision.reason is not None:
            return decision.reason
        if decision.gap is not None:
            why = "too weak" if decision.gap.weak else "missing"
            return f"{decision.gap.name} is {why}; {decision.gap.producer_step} again"
        if decision.closes_as == "partial":
            return f"closed as partial: {self._facts.in_short(facts)}"
        return self._facts.in_short(facts)

    def steps_to_redo(self, run: NotebookRun) -> StepPlan:
        """The catalogue's plan for a backtrack in the stage, or a revision: from the step to do again on."""
        foreign = self._facts.plan_for_foreign_stage(run)
        if foreign is not None:
            return foreign
        plan = plan_steps(run.stage.stage_id, run.reading, run.options.profile, stability=self._stability)
        first = self._facts.step_to_redo(run)
        ids = [step.id for step in plan.steps]
        begin = ids.index(first) if first in ids else 0
        begin = _with_what_it_needs(plan.steps, begin, set(run.document.variables))
        return StepPlan(plan.steps[begin:], plan.focus, plan.goals, plan.whathappened, plan.context_filter)


def _with_what_it_needs(steps: Sequence[PlannedStep], begin: int, there: Collection[str]) -> int:
    """The step to begin with, so that it finds what it needs: steps of another plan have not produced it."""
    needed = {required.name for required in steps[begin].required_variables} - {*there}
    for number, step in enumerate(steps[:begin]):
        if needed & {artifact.name for artifact in step.verified_artifacts}:
            return _with_what_it_needs(steps, number, there)
    return begin
