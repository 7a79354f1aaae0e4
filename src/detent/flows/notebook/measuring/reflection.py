"""The reflections that the measurement writes: T5 of a behavior and T6 of a stage, from facts alone."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from detent.flows.notebook.measuring.criteria import parse_criterion
from detent.flows.notebook.measuring.execution import ExecutionQuality
from detent.flows.notebook.payloads.values import (
    ArtifactJudged,
    BehaviorReflection,
    CriterionJudged,
    Finding,
    GoalReview,
    GoalStatus,
    Named,
    PcsTexts,
    StageReflection,
    Tracking,
    VariableManagement,
    WhatHappened,
)
from detent.flows.notebook.state.decisions import Decision, stage_is_complete
from detent.flows.notebook.state.facts import ArtifactFact, Facts, Verdict
from detent.flows.notebook.state.ledger import RunState

LONGEST_SHOWN = 200
"""Characters of a criterion's value in a text."""


def goal_status(verdict: Verdict) -> GoalStatus:
    """All artifacts complete and all criteria passed is achieved, some is partial, none is not achieved."""
    good = len(verdict.produced) + len(verdict.criteria) - len(verdict.failed)
    total = len(verdict.artifacts) + len(verdict.criteria)
    if good == total:
        return "achieved" if total else "not_achieved"
    return "partial" if good else "not_achieved"


def _judged(artifacts: Sequence[ArtifactFact]) -> tuple[ArtifactJudged, ...]:
    return tuple(ArtifactJudged(artifact.name, artifact.status) for artifact in artifacts)


def _tracking(verdict: Verdict) -> Tracking:
    remaining = tuple(artifact.name for artifact in verdict.artifacts if artifact.status != "complete")
    return Tracking(verdict.produced, verdict.in_progress, remaining)


def _shown(text: str) -> str:
    return text if len(text) <= LONGEST_SHOWN else f"{text[: LONGEST_SHOWN - 1]}…"


# -- T5 -----------------------------------------------------------------------------------------------------

_SHORTCOMINGS = {
    "absent": "was not created",
    "stale": "was not assigned by this behavior",
    "none": "is None",
    "empty": "is empty",
    "criterion": "does not meet a criterion",
    "": "is not complete",
}


def feedback(facts: Facts, quality: ExecutionQuality, iteration: int, tried: Sequence[str] = ()) -> str:
    """What a retry is told: missing artifacts, failed criteria with values, the end of the traceback.

    From iteration 2 on it also says what not to do again; `tried` are the attempts so far, one line each.
    """
    lines = [
        f"- {artifact.name} {_SHORTCOMINGS[artifact.shortcoming]}."
        for artifact in facts.behavior.artifacts
        if artifact.status != "complete"
    ]
    lines += [f"- {failed.text} failed: {_shown(failed.value)}" for failed in facts.behavior.failed]
    lines += [f"- A cell ended with {error}." for error in quality.errors]
    if quality.traceback:
        lines += ["```", *quality.traceback, "```"]
    if iteration >= 2:
        attempts = "; ".join(tried) or "the earlier attempts"
        lines.append(f"Do something different from: {attempts}.")
    return "\n".join(lines)


def reflect_on_behavior(
    run: RunState,
    decision: Decision,
    facts: Facts,
    quality: ExecutionQuality,
    *,
    variables: Mapping[str, Any] | None = None,
    tried: Sequence[str] = (),
) -> BehaviorReflection:
    """The T5 that the measurement writes; `variables` are the values of what was produced, as shown."""
    verdict = facts.behavior
    iteration = run.document.location.behavior_iteration or 1
    continuing = decision.row == "5c"
    values = variables or {}
    return BehaviorReflection(
        step_is_complete=decision.completes_step,
        artifacts=_judged(verdict.artifacts),
        criteria=tuple(
            CriterionJudged(criterion.text, "passed" if criterion.passed else "failed")
            for criterion in verdict.criteria
        ),
        code_execution=quality.code_execution,
        goal_status=goal_status(verdict),
        next_state="STEP_COMPLETED" if decision.completes_step else "STEP_RUNNING",
        reasoning=_BEHAVIOR_REASONS[decision.row],
        tracking=_tracking(verdict),
        errors_found=quality.errors_found,
        warnings_found=quality.warnings_found,
        goal_reasoning=_counts(verdict),
        variables_produced=tuple(
            Named(name, _shown(str(values[name])) if name in values else "") for name in verdict.produced
        ),
        whathappened=WhatHappened(overview=_counts(verdict)),
        if_continuing=feedback(facts, quality, iteration, tried) if continuing else "",
        if_moving_forward="" if continuing else _moving_forward(verdict),
    )


_BEHAVIOR_REASONS = {
    "5a": "All artifacts and criteria of the step are met.",
    "5b": "The behavior is complete; artifacts of the step are still to be produced.",
    "5c": "The behavior is not complete and may be tried again.",
    "5d": "The step cannot be completed by another attempt; it is escalated.",
}


def _counts(verdict: Verdict) -> str:
    passed = len(verdict.criteria) - len(verdict.failed)
    return (
        f"{len(verdict.produced)} of {len(verdict.artifacts)} artifacts complete, "
        f"{passed} of {len(verdict.criteria)} criteria passed."
    )


def _moving_forward(verdict: Verdict) -> str:
    return f"Available: {', '.join(verdict.produced)}." if verdict.produced else ""


# -- T6 -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StageProgress:
    """How many steps of the stage are done after the one that was just closed."""

    completed: int
    total: int

    @property
    def share(self) -> float:
        """From 0 to 1."""
        return self.completed / self.total if self.total else 0.0

    @classmethod
    def of(cls, run: RunState) -> StageProgress:
        """An escalated step is not completed."""
        steps = run.document.steps
        closed = 0 if run.ledger.escalated or steps.current is None else 1
        total = len(steps.completed) + len(steps.remaining) + (steps.current is not None)
        return cls(len(steps.completed) + closed, total)


@dataclass(frozen=True, slots=True)
class StageFacts:
    """What a T6 says beside the facts that decide."""

    variables: VariableManagement
    pcs: PcsTexts
    findings: tuple[Finding, ...] = ()
    next_focus: str = ""
    revision: GoalReview | None = None
    """The revision that is offered, if one is."""


def reflect_on_stage(run: RunState, decision: Decision, facts: Facts, told: StageFacts) -> StageReflection:
    """The T6 that the measurement writes. Which parts it has depends on the stage's progress.

    Up to half of the steps it only tracks; up to 80 % it reviews the goal if something lags; above, it holds
    all findings and the review; of a complete stage also the experience. A failed criterion, an escalation or
    a gap brings the review in at any progress.
    """
    progress = StageProgress.of(run)
    step = run.document.steps.current
    verdict = facts.stage
    complete = decision.completes_stage
    experience = _experience(run, decision, facts) if complete else None
    stage = run.document.stages.current
    return StageReflection(
        stage_is_complete=complete,
        step_id="" if step is None else step.step_id,
        step_status="incomplete" if run.ledger.escalated else "complete",
        completed_steps=progress.completed,
        remaining_steps=progress.total - progress.completed,
        percentage=round(100 * progress.share, 1),
        artifacts=_judged(verdict.artifacts),
        goal_status=_stage_goal_status(run, facts),
        next_state="STAGE_COMPLETED" if complete else "STEP_RUNNING",
        reasoning=_MISSED if run.ledger.escalated and decision.row == "6a" else _STAGE_REASONS[decision.row],
        variables=told.variables,
        tracking=_tracking(verdict),
        pcs_check=told.pcs,
        next_focus=told.next_focus,
        step_artifacts=", ".join(run.document.steps.current_outputs.produced),
        findings=told.findings if progress.share > 0.8 else (),
        goal_review=_review(run, facts, progress, told.revision),
        experience=experience,
        experience_from=stage.stage_id if experience is not None and stage is not None else None,
    )


_STAGE_REASONS = {
    "6a": "The step is done and others remain.",
    "6b": "The stage is closed and others remain.",
    "6c": "The last stage is closed.",
    "6d": "A variable that is needed is missing or too weak; its producer is done again.",
    "6e": "The stage is revised once.",
    "6f": "Nothing is left to try.",
}


_MISSED = "A threshold is missed and no other attempt can change that; the other steps are done all the same."


def _stage_goal_status(run: RunState, facts: Facts) -> GoalStatus:
    """Achieved only if all artifacts of the stage are complete and all its criteria passed."""
    status = goal_status(facts.stage)
    return "partial" if status == "achieved" and not stage_is_complete(run, facts) else status


def lagging(run: RunState, facts: Facts) -> Verdict:
    """What the stage should have by now and has not: artifacts of closed steps, criteria that fail on them.

    What a remaining step is to produce does not lag.
    """
    document = run.document
    later = {name for step in document.steps.remaining for name in step.verified_artifacts or ()}
    closed = [*document.steps.completed, *([document.steps.current] if document.steps.current else ())]
    due = {name for step in closed for name in step.verified_artifacts or ()}
    if not document.steps.remaining:
        due.update(artifact.name for artifact in facts.stage.artifacts)
    # Of a foreign plan it may not be known which step produces an artifact: it is due at the end.
    later.update(artifact.name for artifact in facts.stage.artifacts if artifact.name not in due)
    return Verdict(
        tuple(
            artifact
            for artifact in facts.stage.artifacts
            if artifact.status != "complete" and artifact.name not in later
        ),
        tuple(failed for failed in facts.stage.failed if not _mentions_any(failed.text, later)),
    )


def _mentions_any(text: str, names: Collection[str]) -> bool:
    criterion = parse_criterion(text)
    return any(criterion.mentions(name) for name in names)


def has_issues(run: RunState, facts: Facts) -> bool:
    """Whether a criterion failed, the step is escalated, or there is a gap."""
    failed = [*facts.behavior.failed, *facts.step.failed, *lagging(run, facts).failed]
    return bool(run.ledger.escalated or facts.gaps or failed)


def _review(
    run: RunState, facts: Facts, progress: StageProgress, revision: GoalReview | None
) -> GoalReview | None:
    behind = lagging(run, facts)
    lags = bool(behind.artifacts or behind.criteria)
    if not (has_issues(run, facts) or progress.share > 0.8 or (progress.share > 0.5 and lags)):
        return None
    if revision is not None:
        return revision
    failed = dict.fromkeys([*facts.behavior.failed, *facts.step.failed, *behind.failed])
    problems = [
        *(["the step is escalated"] if run.ledger.escalated else ()),
        *(f"{artifact.name} is not complete" for artifact in behind.artifacts),
        *(f"{criterion.text} failed: {_shown(criterion.value)}" for criterion in failed),
        *(
            f"{gap.name} is {'too weak' if gap.weak else 'missing'} for {gap.needed_for}"
            for gap in facts.gaps
        ),
    ]
    return GoalReview(False, f"{'; '.join(problems)}." if problems else "The goal stands as it is.")


def _experience(run: RunState, decision: Decision, facts: Facts) -> str:
    """What the stage leaves to later ones: what it produced, and what it took."""
    produced = ", ".join(facts.stage.produced) or "nothing"
    numbers = run.ledger.behavior_numbers
    document = run.document
    ids = [step.step_id for step in document.steps.completed]
    if document.steps.current is not None:
        ids.append(document.steps.current.step_id)
    behaviors = sum(numbers.get(step_id, 0) for step_id in ids)
    lines = [f"Produced: {produced}.", f"{len(ids)} steps in {behaviors} behaviors."]
    stage = document.stages.current
    if stage is not None and stage.stage_id in run.ledger.revised_stages:
        lines.append("The stage was revised once.")
    if decision.closes_as == "partial":
        missed = "; ".join(f"{failed.text} ({_shown(failed.value)})" for failed in facts.stage.failed)
        lines.append(f"Closed as partial: {missed or 'artifacts are missing'}.")
    return " ".join(lines)
