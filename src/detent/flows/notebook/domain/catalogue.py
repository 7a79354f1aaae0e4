"""Plans from the catalogue of stages and steps: T1, T2 and T3 of the deterministic planners."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import Literal

from detent.flows.notebook.domain.catalogue_data import (
    CLOSING_AGENT,
    CLOSING_TASK,
    VALIDATION_REPORT,
    CatalogueStage,
    CatalogueStep,
    catalogue,
    description_of,
    find_stage,
    find_step,
)
from detent.flows.notebook.domain.metric_words import LOWER_IS_BETTER
from detent.flows.notebook.domain.probes import primary_metric
from detent.flows.notebook.domain.problem import ProblemReading
from detent.flows.notebook.domain.stability import USUAL, Stability
from detent.flows.notebook.payloads.values import (
    BehaviorPlan,
    Named,
    PlannedStage,
    PlannedStep,
    StagePlan,
    StepPlan,
)
from detent.kernel.errors import ConfigurationError

Scored = Literal["cv_metrics", "test_performance"]

JUDGING_STAGES = ("model_implementation_execution", "predictability_validation")
"""The stages that must meet the user's thresholds."""


def plan_stages(reading: ProblemReading, *, report: bool = True, stability: Stability = USUAL) -> StagePlan:
    """T1: the catalogue's stages for a problem, the last one only with `report`.

    `stability` says how much the score may vary.
    """
    stages = [stage for stage in catalogue() if report or not stage.optional]
    return StagePlan(
        stages=tuple(_planned_stage(stage, reading, stability) for stage in stages),
        focus=focus_of(reading),
        goals=f"Predict {_shown(reading.target)} by {reading.task}, so that it holds for new rows.",
        title=f"Predicting {_shown(reading.target)}",
        description=" ".join(reading.problem.split()),
    )


def plan_steps(
    stage_id: str, reading: ProblemReading, profile: str = "compact", *, stability: Stability = USUAL
) -> StepPlan:
    """T2: the catalogue's steps of a stage.

    Raises:
        ConfigurationError: the stage is not the catalogue's.
    """
    stage = find_stage(stage_id)
    if stage is None:
        raise ConfigurationError(f"The catalogue has no stage '{stage_id}'.")
    return StepPlan(
        steps=tuple(_planned_step(step, reading, profile, stability) for step in stage.steps),
        focus=focus_of(reading) if stage_id in JUDGING_STAGES else stage.goal,
    )


MOST_STEPS = 12
"""Steps of a plan."""


def plan_artifacts(
    names: Iterable[str],
    there: Collection[str],
    reading: ProblemReading,
    profile: str = "compact",
    *,
    stability: Stability = USUAL,
) -> StepPlan | None:
    """T2: the catalogue's steps that make artifacts from what is there; None if that takes more than a plan
    holds, or nothing of the catalogue makes them.
    """
    needed: set[str] = set()
    asked = list(names)
    while asked:
        name = asked.pop()
        step = _producers().get(name)
        if name in there or step is None or step in needed:
            continue
        needed.add(step)
        asked += _step(step).requires
    steps = [step for stage in catalogue() for step in stage.steps if step.id in needed]
    if not 1 <= len(steps) <= MOST_STEPS:
        return None
    planned = tuple(_planned_step(step, reading, profile, stability) for step in steps)
    return StepPlan(steps=planned, focus=focus_of(reading))


def arrange(
    step_id: str,
    behavior_number: int,
    missing: Collection[str],
    reading: ProblemReading,
    profile: str = "compact",
    *,
    stability: Stability = USUAL,
) -> BehaviorPlan:
    """T3: the next behavior of a step whose `missing` artifacts are not complete.

    It makes all of them, save the validation report: that one is the closing behavior's.

    Raises:
        ConfigurationError: the step is not the catalogue's.
    """
    step = _step(step_id)
    behavior_id = f"{step_id}_b{behavior_number}"
    outputs = tuple(artifact for artifact in step.artifacts if artifact.name in missing)
    if not outputs and closes(step_id, profile):
        return _closing(step, behavior_id, reading, profile, stability)
    return BehaviorPlan(
        behavior_id=behavior_id,
        step_id=step_id,
        agent=step.agent,
        task=step.task,
        outputs=outputs or step.artifacts,
        acceptance=criteria_of_step(step_id, reading, stability=stability),
        inputs=_described(step.requires),
        effects=behavior_number > 1,
    )


def stage_of_step(step_id: str) -> str | None:
    """The id of the stage that a step of the catalogue belongs to."""
    step = find_step(step_id)
    return step.stage_id if step is not None else None


def producer_of(name: str) -> str | None:
    """The id of the step that first produces a variable or file of the catalogue."""
    return _producers().get(name)


def closes(step_id: str, profile: str = "compact") -> bool:
    """Whether a step ends with a closing behavior.

    Raises:
        ConfigurationError: the step is not the catalogue's.
    """
    return _step(step_id).is_last or profile == "full"


def closing_criteria(
    step_id: str, reading: ProblemReading, profile: str = "compact", *, stability: Stability = USUAL
) -> tuple[str, ...]:
    """What the closing behavior of a step asserts again: the step's criteria, and at its end the stage's.

    Raises:
        ConfigurationError: the step is not the catalogue's.
    """
    step = _step(step_id)
    criteria = list(criteria_of_step(step_id, reading, stability=stability)) if profile == "full" else []
    if step.is_last:
        criteria += criteria_of_stage(step.stage_id, reading, stability=stability)
    return tuple(dict.fromkeys(criteria))


def criteria_of_step(
    step_id: str, reading: ProblemReading, *, stability: Stability = USUAL
) -> tuple[str, ...]:
    """The acceptance of a step, thresholds among it.

    Raises:
        ConfigurationError: the step is not the catalogue's.
    """
    return _criteria(_step(step_id).acceptance, reading, stability)


def criteria_of_stage(
    stage_id: str, reading: ProblemReading, *, stability: Stability = USUAL
) -> tuple[str, ...]:
    """The acceptance of a stage, thresholds among it.

    Raises:
        ConfigurationError: the stage is not the catalogue's.
    """
    stage = find_stage(stage_id)
    if stage is None:
        raise ConfigurationError(f"The catalogue has no stage '{stage_id}'.")
    return _criteria(stage.acceptance, reading, stability)


def locked_criteria(reading: ProblemReading, scored: Scored) -> tuple[str, ...]:
    """The user's thresholds as criteria on `cv_metrics` or `test_performance`.

    Without a threshold, the rule is that the folds' mean beats the baseline's, and the hold-out has no limit.
    """
    if reading.thresholds:
        return tuple(
            f'{scored}["{threshold.metric}"] {threshold.comparison} {threshold.value!r}'
            for threshold in reading.thresholds
        )
    if scored == "test_performance":
        return ()
    metric = primary_metric(reading)
    comparison = "<" if metric in LOWER_IS_BETTER else ">"
    return (f'cv_metrics["{metric}"] {comparison} training_history[0]["{metric}"]',)


def problem_thresholds(reading: ProblemReading) -> list[dict[str, object]]:
    """The thresholds as the notebook keeps them in `problem_thresholds`; without any, the rule instead."""
    if reading.thresholds:
        return [
            {"metric": threshold.metric, "comparison": threshold.comparison, "value": threshold.value}
            for threshold in reading.thresholds
        ]
    metric = primary_metric(reading)
    comparison = "<" if metric in LOWER_IS_BETTER else ">"
    return [{"metric": metric, "comparison": comparison, "value": "baseline"}]


def focus_of(reading: ProblemReading) -> str:
    """The thresholds and aims that every stage has in view."""
    metric = primary_metric(reading)
    limits = [str(threshold) for threshold in reading.thresholds] or [f"{metric} better than the baseline's"]
    split = reading.split.kind + (f" by {_shown(reading.split.column)}" if reading.split.column else "")
    return "; ".join(
        [
            *limits,
            f"primary metric {metric}",
            f"split {split}",
            "PCS: predictability, computability, stability",
        ]
    )


# -- parts --------------------------------------------------------------------------------------------------


@cache
def _producers() -> Mapping[str, str]:
    producers: dict[str, str] = {}
    for stage in catalogue():
        for step in stage.steps:
            for artifact in step.artifacts:
                producers.setdefault(artifact.name, step.id)
    return producers


def _step(step_id: str) -> CatalogueStep:
    step = find_step(step_id)
    if step is None:
        raise ConfigurationError(f"The catalogue has no step '{step_id}'.")
    return step


def _planned_stage(stage: CatalogueStage, reading: ProblemReading, stability: Stability) -> PlannedStage:
    return PlannedStage(
        id=stage.id,
        title=stage.title,
        goal=_goal(stage.goal, stage.artifacts, _criteria(stage.acceptance, reading, stability)),
        verified_artifacts=_described(stage.artifacts),
        required_variables=_described(stage.requires),
        optional=stage.optional,
    )


def _planned_step(
    step: CatalogueStep, reading: ProblemReading, profile: str, stability: Stability
) -> PlannedStep:
    artifacts = step.artifacts
    if closes(step.id, profile):
        artifacts = (*artifacts, Named(VALIDATION_REPORT, "each criterion, evaluated once more at the end"))
    criteria = _criteria(step.acceptance, reading, stability)
    return PlannedStep(
        id=step.id,
        title=step.title,
        goal=_goal(step.goal, [artifact.name for artifact in artifacts], criteria),
        verified_artifacts=artifacts,
        pcs_considerations=step.pcs,
        required_variables=_described(step.requires),
    )


def _closing(
    step: CatalogueStep, behavior_id: str, reading: ProblemReading, profile: str, stability: Stability
) -> BehaviorPlan:
    criteria = closing_criteria(step.id, reading, profile, stability=stability)
    return BehaviorPlan(
        behavior_id=behavior_id,
        step_id=step.id,
        agent=CLOSING_AGENT,
        task=CLOSING_TASK,
        outputs=(Named(VALIDATION_REPORT, "each criterion, evaluated once more at the end"),),
        acceptance=(*criteria, f"len({VALIDATION_REPORT}) >= 1"),
        inputs=tuple(artifact for artifact in step.artifacts if "/" not in artifact.name),
        effects=True,
    )


def _goal(text: str, artifacts: Iterable[str], criteria: Sequence[str]) -> str:
    return f"{text} Artifacts: {', '.join(artifacts)}. Acceptance: {'; '.join(criteria)}"


def _criteria(acceptance: Iterable[str], reading: ProblemReading, stability: Stability) -> tuple[str, ...]:
    """Criteria in which what stands for thresholds and settings is written out."""
    criteria: list[str] = []
    for criterion in acceptance:
        match criterion:
            case "$cv_metrics":
                criteria += locked_criteria(reading, "cv_metrics")
            case "$test_performance":
                criteria += locked_criteria(reading, "test_performance") or ['test_performance["n"] > 0']
            case "$stability":
                limit = f"< {stability.threshold:.12g}" if stability.is_required(reading) else ">= 0"
                criteria.append(f'stability_metrics["variation_coefficient"] {limit}')
            case _:
                criteria.append(criterion)
    return tuple(dict.fromkeys(criteria))


def _described(names: Iterable[str]) -> tuple[Named, ...]:
    return tuple(Named(name, description_of(name)) for name in names)


def _shown(name: str) -> str:
    """A column's name on one line."""
    return " ".join(name.split())
