"""The catalogue of stages and steps, as plans: what the deterministic planners give."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from detent.flows.notebook.domain.catalogue_entries import STAGES, StageEntry, StepEntry
from detent.flows.notebook.domain.problem import ProblemReading
from detent.flows.notebook.payloads.values import (
    BehaviorPlan,
    Named,
    PcsTexts,
    PlannedStage,
    PlannedStep,
    StagePlan,
    StepPlan,
)

REPORT = "results_communication"
"""The stage that a run may leave out."""
CLOSING = "step_validation_report"
"""The artifact of the behavior that closes a step."""
LEAST_STABLE_ROWS = 200
"""Rows from which on the stability of the score is required; below, it measures the sample."""

_STAGES = {stage.id: stage for stage in STAGES}
_STEPS = {step.id: (stage, step) for stage in STAGES for step in stage.steps}
_PRODUCERS = {name: step.id for stage in STAGES for step in stage.steps for name in step.artifacts}


def stage_of_step(step_id: str) -> str | None:
    """The stage of a step of the catalogue; None if it has no such step."""
    found = _STEPS.get(step_id)
    return None if found is None else found[0].id


def producer_of(name: str) -> str | None:
    """The step of the catalogue that produces an artifact."""
    return _PRODUCERS.get(name)


def thresholds_text(reading: ProblemReading) -> str:
    """The user's thresholds in one line; what must be beaten where there are none."""
    if not reading.thresholds:
        return "better than the baseline in the folds"
    return ", ".join(str(threshold) for threshold in reading.thresholds)


def plan_stages(reading: ProblemReading, *, report: bool = True) -> StagePlan:
    """The stages of the catalogue, for a problem."""
    stages = [stage for stage in STAGES if report or stage.id != REPORT]
    planned = tuple(
        PlannedStage(
            stage.id, stage.title, _goal(stage.goal, _stage_artifacts(stage), _stage_criteria(stage, reading)),
            tuple(Named(name, _describe(stage, name)) for name in _stage_artifacts(stage)),
            tuple(Named(name, "") for name in stage.needs), optional=stage.id == REPORT,
        )
        for stage in stages
    )  # fmt: skip
    return StagePlan(planned, focus=thresholds_text(reading), goals=f"{reading.task} of {reading.target}")


def plan_steps(stage_id: str, reading: ProblemReading, profile: str = "compact") -> StepPlan:
    """The steps of a stage of the catalogue.

    Raises:
        LookupError: the catalogue has no such stage.
    """
    if stage_id not in _STAGES:
        raise LookupError(f"The catalogue has no stage '{stage_id}'. It has: {', '.join(_STAGES)}.")
    stage = _STAGES[stage_id]
    steps = tuple(
        PlannedStep(
            step.id, step.title, _goal(step.task, _step_artifacts(stage, step, profile), _criteria(step, reading)),
            tuple(Named(name, _describe(stage, name)) for name in _step_artifacts(stage, step, profile)),
            PcsTexts(*step.pcs), tuple(Named(name, "") for name in step.needs),
        )
        for step in stage.steps
    )  # fmt: skip
    return StepPlan(steps, focus=stage.goal)


def arrange(
    step_id: str,
    number: int,
    missing: Sequence[str],
    reading: ProblemReading,
    profile: str = "compact",
) -> BehaviorPlan:
    """The next behavior of a step: the work itself, or the check that closes it.

    Raises:
        LookupError: the catalogue has no such step.
    """
    if step_id not in _STEPS:
        raise LookupError(f"The catalogue has no step '{step_id}'.")
    stage, step = _STEPS[step_id]
    behavior_id = f"{step_id}_b{number}"
    work = [name for name in missing if name != CLOSING]
    if not work and CLOSING in missing:
        return BehaviorPlan(
            behavior_id, step_id, "PCS", f"validation_and_acceptance: check {stage.title.lower()} again.",
            (Named(CLOSING, "every criterion of the stage with its value"),),
            (f"len({CLOSING}) > 0", f"all(item['passed'] for item in {CLOSING}.values())"),
        )  # fmt: skip
    outputs = tuple(Named(name, step.artifacts[name]) for name in step.artifacts)
    return BehaviorPlan(
        behavior_id, step_id, step.agent, step.task, outputs, _criteria(step, reading) or _exists(step),
        tuple(Named(name, "") for name in step.needs), effects=number > 1,
    )  # fmt: skip


def _exists(step: StepEntry) -> tuple[str, ...]:
    name = next(iter(step.artifacts))
    return (f"len({name}) > 0",)


def _criteria(step: StepEntry, reading: ProblemReading) -> tuple[str, ...]:
    if step.id == "multi_variation_analysis":
        known = 'stability_metrics["variation_coefficient"]'
        within = f'{known} < stability_metrics["threshold"]'
        limit = within if _stability_is_required(reading) else f"{known} >= 0"
        return (limit,)
    return step.acceptance


def _stability_is_required(reading: ProblemReading) -> bool:
    return reading.table.rows >= LEAST_STABLE_ROWS


def _stage_criteria(stage: StageEntry, reading: ProblemReading) -> tuple[str, ...]:
    if stage.id == "stability_assessment":
        return _criteria(_STEPS["multi_variation_analysis"][1], reading)
    return stage.acceptance


def _stage_artifacts(stage: StageEntry) -> tuple[str, ...]:
    return stage.artifacts


def _step_artifacts(stage: StageEntry, step: StepEntry, profile: str) -> tuple[str, ...]:
    closes = profile == "full" or step is stage.steps[-1]
    return (*step.artifacts, *((CLOSING,) if closes else ()))


def _describe(stage: StageEntry, name: str) -> str:
    if name == CLOSING:
        return "every criterion of the stage with its value"
    return next((step.artifacts[name] for step in stage.steps if name in step.artifacts), "")


def _goal(text: str, artifacts: Iterable[str], criteria: Sequence[str]) -> str:
    acceptance = "; ".join(criteria) or "all artifacts are there"
    return f"{text.rstrip('.')}. Artifacts: {', '.join(artifacts)}. Acceptance: {acceptance}"
