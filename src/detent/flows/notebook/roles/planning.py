"""The three planners: stages, steps and behaviors, by the catalogue or by an agent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from detent.engine.context import StepContext
from detent.engine.outcome import Outcome
from detent.flows.notebook.domain.catalogue import arrange, plan_stages, plan_steps
from detent.flows.notebook.payloads.values import BehaviorPlan, StagePlan, StepPlan
from detent.flows.notebook.roles.answer import RoleAnswer
from detent.flows.notebook.roles.facts import facts_now, produced_now
from detent.flows.notebook.roles.move import headings, logged, moved
from detent.flows.notebook.roles.reflection import Reflection
from detent.flows.notebook.run_view import PENDING, NotebookRun
from detent.flows.notebook.settings import NotebookSettings
from detent.flows.notebook.state.decisions import Decision
from detent.flows.notebook.state.transitions import apply


class Planning:
    """Handlers and conclusions of the planners."""

    def __init__(self, settings: NotebookSettings, reflection: Reflection) -> None:
        self._stability = settings.stability
        self._reflection = reflection

    # -- stages ---------------------------------------------------------------------------------------------

    async def plan_stages(self, ctx: StepContext) -> dict[str, Any]:
        """The stages of the catalogue."""
        run = NotebookRun(ctx.values)
        plan = plan_stages(run.reading, report=run.options.report, stability=self._stability)
        return RoleAnswer(plan).to_plain()

    async def stages_planned(self, ctx: StepContext, said: Mapping[str, Any]) -> Outcome:
        """The first stage becomes current."""
        run, answer = NotebookRun(ctx.values), RoleAnswer.from_plain(said)
        plan = answer.payload
        assert isinstance(plan, StagePlan)
        decision = Decision.of("1", run.document.fsm.state)
        facts = facts_now(ctx)
        title = run.options.title or plan.title or _title(run.reading.problem)
        after = apply(run.state, decision, facts, plan)
        return moved(
            ctx, run, decision, facts, plan, cells=headings(run.document, after.document, title),
            log=[logged(ctx, "stage_planner", answer, event=decision.event.value)],
            reason=f"{len(plan.stages)} stages",
        )  # fmt: skip

    # -- steps ----------------------------------------------------------------------------------------------

    async def plan_steps(self, ctx: StepContext) -> dict[str, Any]:
        """The catalogue's steps of the current stage, without those that are done and stand."""
        run = NotebookRun(ctx.values)
        if run.values.get(PENDING) is not None:
            return RoleAnswer(self._reflection.steps_to_redo(run)).to_plain()
        stage_id = run.stage.stage_id
        plan = plan_steps(stage_id, run.reading, run.options.profile, stability=self._stability)
        done = {step.step_id for step in run.state.ledger.closed_steps.get(stage_id, ())}
        steps = tuple(step for step in plan.steps if step.id not in done) or plan.steps
        return RoleAnswer(
            StepPlan(steps, plan.focus, plan.goals, plan.whathappened, plan.context_filter)
        ).to_plain()

    async def steps_planned(self, ctx: StepContext, said: Mapping[str, Any]) -> Outcome:
        """The first step becomes current, or the step to which the run goes back."""
        run, answer = NotebookRun(ctx.values), RoleAnswer.from_plain(said)
        plan = answer.payload
        assert isinstance(plan, StepPlan)
        log = [logged(ctx, "step_planner", answer, event="START_STEP")]
        if run.values.get(PENDING) is not None:
            return await self._reflection.step_closed(ctx, run, plan, log)
        decision = Decision.of("2", run.document.fsm.state)
        facts = facts_now(ctx)
        after = apply(run.state, decision, facts, plan)
        return moved(
            ctx, run, decision, facts, plan, cells=headings(run.document, after.document), log=log,
            reason=f"{len(plan.steps)} steps of {run.stage.stage_id}",
        )  # fmt: skip

    # -- behaviors ------------------------------------------------------------------------------------------

    async def arrange(self, ctx: StepContext) -> dict[str, Any]:
        """The catalogue's next behavior of the current step."""
        run = NotebookRun(ctx.values)
        return RoleAnswer(self.arranged_by_code(run)).to_plain()

    def arranged_by_code(self, run: NotebookRun) -> BehaviorPlan:
        """The behavior that the catalogue arranges next."""
        step = run.step
        number = int(run.state.next_behavior_id.rpartition("_b")[2])
        produced = set(run.document.steps.current_outputs.produced) | set(produced_now(run))
        missing = tuple(name for name in (step.verified_artifacts or {}) if name not in produced)
        return arrange(
            step.step_id, number, missing, run.reading, run.options.profile, stability=self._stability
        )

    async def behavior_arranged(self, ctx: StepContext, said: Mapping[str, Any]) -> Outcome:
        """The behavior becomes current."""
        run, answer = NotebookRun(ctx.values), RoleAnswer.from_plain(said)
        plan = answer.payload
        assert isinstance(plan, BehaviorPlan)
        log = [logged(ctx, "behavior_arranger", answer, event="START_BEHAVIOR")]
        if run.values.get(PENDING) is not None:
            return await self._reflection.behavior_closed(ctx, run, plan, log)
        decision = Decision.of("3", run.document.fsm.state)
        return moved(
            ctx, run, decision, facts_now(ctx), plan, log=log,
            reason=f"{plan.behavior_id} by {plan.agent}",
        )  # fmt: skip


def _title(problem: str) -> str:
    """A title from the problem's first sentence."""
    first = problem.strip().splitlines()[0] if problem.strip() else "Notebook"
    return first if len(first) <= 80 else f"{first[:79]}…"
