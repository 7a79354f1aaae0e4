"""Stages, steps and behaviors of a document, made from plans and moved along."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from detent.flows.notebook.payloads.values import (
    BehaviorPlan,
    BehaviorReflection,
    ContextFilter,
    Named,
    PlannedStage,
    PlannedStep,
    StagePlan,
    StepPlan,
    WhatHappened,
)
from detent.flows.notebook.state.document import (
    Behavior,
    BehaviorLevel,
    ExpectedArtifact,
    Outputs,
    Stage,
    StageLevel,
    Step,
    StepLevel,
)
from detent.flows.notebook.state.facts import Verdict

# -- from plans ---------------------------------------------------------------------------------------------


def stages_of(plan: StagePlan) -> StageLevel:
    """The stages of a plan, the first of them current."""
    first, *following = (_stage(planned) for planned in plan.stages)
    extra = {name: text for name, text in (("goals", plan.goals), ("description", plan.description)) if text}
    return StageLevel(
        current=first,
        remaining=tuple(following),
        focus=plan.focus,
        current_outputs=expected(first.verified_artifacts),
        **extra,
    )


def _stage(planned: PlannedStage) -> Stage:
    return Stage(
        stage_id=planned.id,
        title=planned.title,
        goal=planned.goal,
        verified_artifacts=_described(planned.verified_artifacts),
        required_variables=_described(planned.required_variables) or None,
        optional=planned.optional or None,
    )


def steps_of(plan: StepPlan, kept: tuple[Step, ...] = (), focus: str = "") -> StepLevel:
    """The steps of a plan, the first of them current, after those that stand and are not planned again."""
    again = {planned.id for planned in plan.steps}
    kept = tuple(step for step in kept if step.step_id not in again)
    first, *following = (_step(planned) for planned in plan.steps)
    extra = _told(plan.whathappened, plan.context_filter)
    return StepLevel(
        completed=kept, current=first, remaining=tuple(following), focus=plan.focus or focus, **extra
    )


def _step(planned: PlannedStep) -> Step:
    pcs = planned.pcs_considerations
    return Step(
        step_id=planned.id,
        title=planned.title,
        goal=planned.goal,
        verified_artifacts=_described(planned.verified_artifacts),
        required_variables=_described(planned.required_variables) or None,
        pcs_considerations={
            "predictability": pcs.predictability,
            "computability": pcs.computability,
            "stability": pcs.stability,
        },
    )


def behavior_of(plan: BehaviorPlan, inputs: Mapping[str, Any]) -> Behavior:
    """The behavior of a plan, with the values of its inputs."""
    return Behavior(
        behavior_id=plan.behavior_id,
        step_id=plan.step_id,
        agent=plan.agent,
        task=plan.task,
        inputs=dict(inputs),
        outputs=_described(plan.outputs),
        acceptance=plan.acceptance,
        **{"effects": plan.effects} if plan.effects else {},
        **_told(plan.whathappened, plan.context_filter),
    )


def _described(names: Iterable[Named]) -> dict[str, str]:
    return {named.name: named.text for named in names}


def _told(happened: WhatHappened | None, context: ContextFilter | None) -> dict[str, Any]:
    """What a plan tells the next prompt."""
    told: dict[str, Any] = {}
    if happened is not None:
        told["whathappened"] = _happened(happened)
    if context is not None:
        told["context_filter"] = {
            "variables_to_include": list(context.include),
            "variables_to_summarize": [{"name": name, "how": how} for name, how in context.summarize],
        }
    return told


def _happened(happened: WhatHappened) -> dict[str, Any]:
    texts = (
        ("overview", happened.overview),
        ("background", happened.background),
        ("key_findings", happened.key_findings),
    )
    return {name: text for name, text in texts if text}


def expected(artifacts: Mapping[str, str] | None) -> Outputs:
    """Nothing produced yet of these artifacts."""
    return Outputs(
        expected=tuple(
            ExpectedArtifact(name=name, description=text) for name, text in (artifacts or {}).items()
        )
    )


# -- behaviors ----------------------------------------------------------------------------------------------


def begun(level: BehaviorLevel, behavior: Behavior, iteration: int = 1) -> BehaviorLevel:
    """The level when an iteration of a behavior begins."""
    return level.model_copy(
        update={
            "current": behavior,
            "iteration": iteration,
            "focus": behavior.task or "",
            "current_outputs": expected(behavior.outputs),
        }
    )


def completed(
    level: BehaviorLevel,
    behavior: Behavior,
    verdict: Verdict,
    complete: bool,
    reflection: BehaviorReflection | None,
) -> BehaviorLevel:
    """The level when a behavior is over."""
    told = {} if reflection is None else _reflected(reflection)
    done = behavior.model_copy(
        update={
            "completion_status": "success" if complete else "failed",
            "artifacts_produced": verdict.produced,
            "whathappened": {**(behavior.whathappened or {}), **told} or behavior.whathappened,
        }
    )
    return level.model_copy(
        update={
            "completed": (*level.completed, done),
            "current": None,
            "current_outputs": joined(level.current_outputs, (), verdict),
        }
    )


def _reflected(reflection: BehaviorReflection) -> dict[str, Any]:
    told = {} if reflection.whathappened is None else _happened(reflection.whathappened)
    if reflection.if_moving_forward:
        told["if_moving_forward"] = reflection.if_moving_forward
    return told


def joined(outputs: Outputs, names: Sequence[str], verdict: Verdict) -> Outputs:
    """Outputs after a reflection: names from below join what was produced, and the measurement decides."""
    refuted = {artifact.name for artifact in verdict.artifacts if artifact.status != "complete"}
    together = dict.fromkeys([*outputs.produced, *names, *verdict.produced])
    produced = tuple(name for name in together if name not in refuted)
    return outputs.model_copy(
        update={
            "produced": produced,
            "in_progress": verdict.in_progress,
            "remaining": tuple(name for name in outputs.expected_names if name not in produced),
        }
    )


# -- stages and steps ---------------------------------------------------------------------------------------


def next_stage(level: StageLevel, done: Stage) -> StageLevel:
    """The level when a stage is closed; after the last one none is current."""
    following = level.remaining[0] if level.remaining else None
    return level.model_copy(
        update={
            "completed": (*level.completed, done),
            "current": following,
            "remaining": level.remaining[1:],
            "current_outputs": expected(following.verified_artifacts if following else None),
        }
    )


def reactivated(level: StageLevel, stage_id: str) -> StageLevel:
    """The level when an earlier stage is current again; the stages after it are to be done again."""
    index = next(at for at, stage in enumerate(level.completed) if stage.stage_id == stage_id)
    again, *later = (
        stage.model_copy(update={"completion_status": None, "experience": None})
        for stage in (*level.completed[index:], *((level.current,) if level.current else ()))
    )
    return level.model_copy(
        update={
            "completed": level.completed[:index],
            "current": again,
            "remaining": (*later, *level.remaining),
            "current_outputs": expected(again.verified_artifacts),
        }
    )


def before(steps: Sequence[Step], step_id: str) -> tuple[Step, ...]:
    """The steps before one of them."""
    ids = [step.step_id for step in steps]
    return tuple(steps[: ids.index(step_id)] if step_id in ids else steps)


def rewound(outputs: Outputs, kept: Sequence[Step]) -> Outputs:
    """Outputs of a stage of which only some steps stand."""
    names = {name for step in kept for name in (step.verified_artifacts or {})}
    produced = tuple(name for name in outputs.expected_names if name in names)
    return outputs.model_copy(
        update={
            "produced": produced,
            "in_progress": (),
            "remaining": tuple(name for name in outputs.expected_names if name not in produced),
        }
    )
