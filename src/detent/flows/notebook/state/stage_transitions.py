"""What the moves out of STEP_COMPLETED write: the next step or stage, a backtrack, a revision."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from detent.flows.notebook.payloads.values import StageReflection, StepPlan
from detent.flows.notebook.state import levels
from detent.flows.notebook.state.decisions import Decision
from detent.flows.notebook.state.document import (
    BehaviorLevel,
    Location,
    Stage,
    StateDocument,
    Step,
    StepLevel,
)
from detent.flows.notebook.state.facts import Facts
from detent.flows.notebook.state.ledger import Ledger, RunState
from detent.flows.notebook.state.payload_errors import PayloadMismatch


def next_step(run: RunState, facts: Facts, reflection: StageReflection | None) -> RunState:
    """The next planned step is current; nothing is planned."""
    document = run.document
    status = "failed" if run.ledger.escalated else "success"
    if not document.steps.remaining:
        raise PayloadMismatch("No step remains to go on with.")
    current, *following = document.steps.remaining
    steps = document.steps.model_copy(
        update={
            "completed": (*document.steps.completed, *_closed(document, status)),
            "current": current,
            "remaining": tuple(following),
            "focus": (reflection.next_focus if reflection else "") or document.steps.focus,
        }
    )
    run = with_goal(_stage_outputs(run, facts), _new_goal(reflection))
    return enter_step(run, steps)


def complete_stage(
    run: RunState, decision: Decision, facts: Facts, reflection: StageReflection | None
) -> RunState:
    """The stage is closed with its experience, and the next one is current, if any remains."""
    document, ledger = run.document, run.ledger
    stage = document.stages.current
    if stage is None:
        raise PayloadMismatch("No stage is current, so none can be completed.")
    closed = (*document.steps.completed, *_closed(document, "failed" if ledger.escalated else "success"))
    done = stage.model_copy(
        update={
            "completion_status": decision.closes_as,
            "experience": reflection.experience if reflection else stage.experience,
        }
    )
    stages = levels.next_stage(document.stages, done)
    ledger = replace(
        _step_left(ledger), earlier_goals=(), closed_steps={**ledger.closed_steps, stage.stage_id: closed}
    )
    return _at_stage(document.changed(stages=stages), stages.current, ledger)


def back_in_stage(
    run: RunState, decision: Decision, plan: StepPlan, reflection: StageReflection | None
) -> RunState:
    """The producing step is current again; the plan holds it and the ones after it."""
    gap, document = decision.gap, run.document
    producer = gap.producer_step if gap is not None else None
    if producer is None or plan.steps[0].id != producer:
        raise PayloadMismatch(f"The plan begins with '{plan.steps[0].id}', not with the step '{producer}'.")
    run = with_goal(run, plan.goals or _new_goal(reflection))
    kept = levels.before(document.steps.completed, producer)
    steps = levels.steps_of(plan, kept)
    stages = run.document.stages
    outputs = levels.rewound(stages.current_outputs, kept)
    here = None if stages.current is None else stages.current.stage_id
    ledger = run.ledger.superseded(_ids({**run.ledger.closed_steps, here: kept}))
    run = RunState(
        run.document.changed(stages=stages.model_copy(update={"current_outputs": outputs})),
        _backtracked(ledger, decision, stages.current),
    )
    return enter_step(run, steps)


def back_to_stage(run: RunState, decision: Decision) -> RunState:
    """An earlier stage is current again; its steps before the producing one stand."""
    gap, document = decision.gap, run.document
    if gap is None or gap.producer_stage is None or gap.producer_step is None:
        raise PayloadMismatch("A backtrack needs the step that produces what is missing.")
    if gap.producer_stage not in [stage.stage_id for stage in document.stages.completed]:
        raise PayloadMismatch(
            f"The stage '{gap.producer_stage}' is not completed, so none can go back to it."
        )
    ledger = _backtracked(run.ledger, decision, document.stages.current)
    stages = levels.reactivated(document.stages, gap.producer_stage)
    later = {stage.stage_id for stage in stages.remaining}
    kept = levels.before(ledger.closed_steps.get(gap.producer_stage, ()), gap.producer_step)
    closed = {stage_id: steps for stage_id, steps in ledger.closed_steps.items() if stage_id not in later}
    standing = {**closed, gap.producer_stage: kept}
    ledger = replace(ledger, closed_steps=standing, earlier_goals=())
    ledger = ledger.superseded(_ids(standing))
    outputs = levels.rewound(stages.current_outputs, kept)
    stages = stages.model_copy(update={"current_outputs": outputs})
    return _at_stage(document.changed(stages=stages), stages.current, ledger)


def revise(run: RunState, facts: Facts, plan: StepPlan, reflection: StageReflection | None) -> RunState:
    """The stage's goal or plan is revised: the escalated step once more, or an added one."""
    document, ledger = run.document, run.ledger
    stage = document.stages.current
    if stage is None:
        raise PayloadMismatch("No stage is current, so none can be revised.")
    closed = _closed(document, "failed" if ledger.escalated else "success")
    kept = (*document.steps.completed, *closed)
    run = with_goal(_stage_outputs(run, facts), plan.goals or _new_goal(reflection), replaces=True)
    run = RunState(run.document, replace(run.ledger, revised_stages=(*ledger.revised_stages, stage.stage_id)))
    return enter_step(run, levels.steps_of(plan, kept, document.steps.focus))


# -- shared -------------------------------------------------------------------------------------------------


def _closed(document: StateDocument, status: str) -> tuple[Step, ...]:
    """The current step as a completed one."""
    step = document.steps.current
    return () if step is None else (step.model_copy(update={"completion_status": status}),)


def _step_left(ledger: Ledger) -> Ledger:
    return replace(
        ledger, escalated=False, given_up={}, behaviors_since_entry=0, last_failure=None, kernel_deaths=0
    )


def enter_step(run: RunState, steps: StepLevel) -> RunState:
    """The state on entering the current step of `steps`."""
    step = steps.current
    if step is None:
        raise PayloadMismatch("There is no step to enter.")
    steps = steps.model_copy(update={"current_outputs": levels.expected(step.verified_artifacts)})
    document = run.document.changed(
        location=Location(stage_id=run.document.location.stage_id, step_id=step.step_id),
        steps=steps,
        behaviors=BehaviorLevel(),
    )
    return RunState(document, _step_left(run.ledger))


def _at_stage(document: StateDocument, stage: Stage | None, ledger: Ledger) -> RunState:
    """The state on entering a stage, or after the last one."""
    document = document.changed(
        location=Location(stage_id=None if stage is None else stage.stage_id),
        steps=StepLevel(),
        behaviors=BehaviorLevel(),
    )
    return RunState(document, _step_left(ledger))


def _stage_outputs(run: RunState, facts: Facts) -> RunState:
    """What the step produced joins the list of its stage."""
    document = run.document
    outputs = levels.joined(
        document.stages.current_outputs, document.steps.current_outputs.produced, facts.stage
    )
    stages = document.stages.model_copy(update={"current_outputs": outputs})
    return RunState(document.changed(stages=stages), run.ledger)


def _new_goal(reflection: StageReflection | None) -> str:
    review = reflection.goal_review if reflection else None
    return review.new_goal if review is not None and review.needs_update else ""


def with_goal(run: RunState, goal: str, replaces: bool = False) -> RunState:
    """The state with a revised goal of the current stage; the criteria of the earlier one still count,
    unless the revision replaces them.
    """
    stage = run.document.stages.current
    if stage is None or not goal or goal == stage.goal:
        return run
    stages = run.document.stages.model_copy(update={"current": stage.model_copy(update={"goal": goal})})
    earlier = () if replaces else (*run.ledger.earlier_goals, stage.goal)
    return RunState(run.document.changed(stages=stages), replace(run.ledger, earlier_goals=earlier))


def _ids(closed: Mapping[Any, Iterable[Step]]) -> list[str]:
    """Ids of the steps that stand."""
    return [step.step_id for steps in closed.values() for step in steps]


def _backtracked(ledger: Ledger, decision: Decision, stage: Stage | None) -> Ledger:
    """The ledger after a backtrack; after an escalation it uses up the stage's revision."""
    names = () if decision.gap is None else (decision.gap.name,)
    revised = ledger.revised_stages
    if ledger.escalated and stage is not None:
        revised = (*revised, stage.stage_id)
    return replace(ledger, backtracked=(*ledger.backtracked, *names), revised_stages=revised)
