"""Figures of a run, folded from what each transition recorded; a zero denominator gives None."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from detent.flows.notebook.measuring.claims import ClaimReport
from detent.flows.notebook.state.decisions import Decision
from detent.flows.notebook.state.document import Stage, StateDocument, Step
from detent.flows.notebook.state.facts import Facts
from detent.flows.notebook.state.ledger import RunState

_REFLECTIONS = ("5a", "5b", "5c", "5d")


def ratio(part: float, whole: float) -> float | None:
    """Their quotient; None if there is nothing to divide by."""
    return part / whole if whole else None


def stage_progress(document: StateDocument) -> float | None:
    """Completed steps of all steps of the current stage."""
    steps = document.steps
    total = len(steps.completed) + len(steps.remaining) + (steps.current is not None)
    return ratio(len(steps.completed), total)


def overall_progress(document: StateDocument) -> float | None:
    """Completed stages of all stages."""
    stages = document.stages
    total = len(stages.completed) + len(stages.remaining) + (stages.current is not None)
    return ratio(len(stages.completed), total)


def transition_record(
    before: RunState,
    after: RunState,
    decision: Decision,
    facts: Facts,
    claims: Mapping[str, ClaimReport] | None = None,
) -> dict[str, Any]:
    """What a transition adds to the metrics, as plain values; `claims` by role."""
    record: dict[str, Any] = {
        "row": decision.row,
        "stage_progress": stage_progress(after.document),
        "overall_progress": overall_progress(after.document),
    }
    entered = _entered(before.document, after.document, decision)
    if entered:
        record["expected"] = list(
            dict.fromkeys(name for item in entered for name in item.verified_artifacts or ())
        )
        required = dict.fromkeys(name for item in entered for name in item.required_variables or ())
        record["required"] = {name: name in after.document.variables for name in required}
        record["steps_begun"] = sum(isinstance(item, Step) for item in entered)
    if decision.row == "4":
        record["iterations"] = 1
    if decision.row in _REFLECTIONS:
        location = before.document.location
        record["behavior"] = {
            "id": location.behavior_id,
            "iteration": location.behavior_iteration,
            "passed": len(facts.behavior.criteria) - len(facts.behavior.failed),
            "criteria": len(facts.behavior.criteria),
        }
    statuses = {
        artifact.name: artifact.status == "complete"
        for verdict in (facts.stage, facts.step)
        for artifact in verdict.artifacts
    }
    if statuses:
        record["produced"] = statuses
    superseded = _superseded(before, after) if decision.row == "6d" else []
    if superseded:
        record["superseded"] = superseded
    if claims:
        record["claims"] = {role: [report.correct, report.claims] for role, report in claims.items()}
    return record


def _entered(before: StateDocument, after: StateDocument, decision: Decision) -> list[Stage | Step]:
    """The stage and the step that became current."""
    entered: list[Stage | Step] = []
    stage, step = after.stages.current, after.steps.current
    if stage is not None and decision.row in ("1", "6b", "6d") and before.stages.current != stage:
        entered.append(stage)
    if step is not None and decision.row in ("2", "6a", "6d", "6e"):
        entered.append(step)
    return entered


def _superseded(before: RunState, after: RunState) -> list[str]:
    """Artifacts of the steps that a backtrack has undone."""
    kept = {step.step_id for step in _standing(after)}
    undone = [step for step in _standing(before) if step.step_id not in kept]
    if before.document.steps.current is not None:
        undone.append(before.document.steps.current)
    return list(dict.fromkeys(name for step in undone for name in step.verified_artifacts or ()))


def _standing(run: RunState) -> list[Step]:
    """All steps that are closed and stand."""
    closed = [step for steps in run.ledger.closed_steps.values() for step in steps]
    return [*closed, *run.document.steps.completed]


@dataclass(frozen=True, slots=True)
class Metrics:
    """The figures of a run."""

    stage_progress: float | None = None
    overall_progress: float | None = None
    produced: int = 0
    expected: int = 0
    passed: int = 0
    criteria: int = 0
    first_passed: int = 0
    first_criteria: int = 0
    iterations: int = 0
    steps_begun: int = 0
    retries: int = 0
    available: int = 0
    required: int = 0
    claims: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Correct claims and all claims, by role."""

    @property
    def artifact_completion(self) -> float | None:
        """Produced of expected artifacts, over all stages and steps entered."""
        return ratio(self.produced, self.expected)

    @property
    def acceptance_pass_rate(self) -> float | None:
        """Passed of all criteria, in the last iteration of each behavior."""
        return ratio(self.passed, self.criteria)

    @property
    def first_pass_rate(self) -> float | None:
        """Passed of all criteria, in the first iteration of each behavior."""
        return ratio(self.first_passed, self.first_criteria)

    @property
    def retry_rate(self) -> float | None:
        """Iterations that were run for each step that was begun."""
        return ratio(self.iterations, self.steps_begun)

    @property
    def variable_coverage(self) -> float | None:
        """Required variables that were there of those that stages and steps required when entered."""
        return ratio(self.available, self.required)

    def claim_accuracy(self, role: str) -> float | None:
        """Correct of all claims of a role."""
        correct, total = self.claims.get(role, (0, 0))
        return ratio(correct, total)

    def to_plain(self) -> dict[str, Any]:
        """The figures as plain values, rates and counts."""
        return {
            "stage_progress": self.stage_progress,
            "overall_progress": self.overall_progress,
            "artifact_completion": self.artifact_completion,
            "artifacts": [self.produced, self.expected],
            "acceptance_pass_rate": self.acceptance_pass_rate,
            "first_pass_rate": self.first_pass_rate,
            "criteria": [self.passed, self.criteria],
            "retry_rate": self.retry_rate,
            "retries": self.retries,
            "variable_coverage": self.variable_coverage,
            "variables": [self.available, self.required],
            "claim_accuracy": {role: self.claim_accuracy(role) for role in self.claims},
        }


def fold(records: Iterable[Mapping[str, Any]]) -> Metrics:
    """The metrics that the records of a run's transitions add up to."""
    progress: tuple[float | None, float | None] = (None, None)
    produced: dict[str, bool] = {}
    required: dict[str, bool] = {}
    last: dict[str, tuple[int, int]] = {}
    first: dict[str, tuple[int, int]] = {}
    claims: dict[str, tuple[int, int]] = {}
    iterations = steps_begun = retries = 0
    for record in records:
        progress = (record["stage_progress"], record["overall_progress"])
        for name in record.get("superseded", ()):
            produced[name] = False
        for name, status in record.get("produced", {}).items():
            if name in produced:
                produced[name] = status
        for name in record.get("expected", ()):
            produced.setdefault(name, False)
        required.update(record.get("required", {}))
        steps_begun += record.get("steps_begun", 0)
        iterations += record.get("iterations", 0)
        retries += record["row"] == "5c"
        behavior = record.get("behavior")
        if behavior is not None:
            counted = (behavior["passed"], behavior["criteria"])
            last[behavior["id"]] = counted
            first.setdefault(behavior["id"], counted)
        for role, (correct, total) in record.get("claims", {}).items():
            before = claims.get(role, (0, 0))
            claims[role] = (before[0] + correct, before[1] + total)
    return Metrics(
        *progress,
        produced=sum(produced.values()),
        expected=len(produced),
        passed=_sum(last, 0),
        criteria=_sum(last, 1),
        first_passed=_sum(first, 0),
        first_criteria=_sum(first, 1),
        iterations=iterations,
        steps_begun=steps_begun,
        retries=retries,
        available=sum(required.values()),
        required=len(required),
        claims=claims,
    )


def _sum(counts: Mapping[str, Sequence[int]], index: int) -> int:
    return sum(counted[index] for counted in counts.values())
