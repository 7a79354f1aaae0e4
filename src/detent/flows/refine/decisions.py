"""The decisions of a refinement: which state follows, with which reason and which feedback.

Belongs here: the table of decisions as pure functions, for runs and for the plain loop alike. Does not belong
here: who performs a step, where its values are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from detent.flows.refine.attempt import Attempt
from detent.flows.refine.evaluation import CATEGORY_PASS, PASS_THRESHOLD, Evaluation, Rubric, ValidationReport
from detent.flows.refine.failure_analysis import FailureAnalysis, analyse
from detent.flows.refine.feedback import Feedback, FeedbackType
from detent.flows.refine.state_machine import OrchestrationState as State
from detent.flows.refine.token_budget import BUFFER, ESTIMATES
from detent.kernel.errors import ConfigurationError, nearest

REJECTED = "Input rejected"
PLAN_FAILED = "Plan generation failed"
VALIDATOR_FAILED = "Validation could not run"
IMPLEMENTATION_FAILED = "Implementation expansion failed"
JUDGE_FAILED = "Judging failed"
EXHAUSTED = "Token budget exhausted"
MAX_ITERATIONS = "max_iterations"
INVALID = "Validation failed, retrying with feedback"
SOFT = "Soft failure, refining implementation"
HARD = "Hard failure, replanning"


PARTS = {
    PLAN_FAILED: "planner", VALIDATOR_FAILED: "validator", IMPLEMENTATION_FAILED: "implementer",
    JUDGE_FAILED: "judge",
}  # fmt: skip
"""Which part has failed, by the reason."""


def error_text(reason: str, kind: str, message: str) -> str:
    """What went wrong in a part, with its name."""
    return f"{PARTS.get(reason, 'preparer')}: {kind}: {message}"


@dataclass(frozen=True, slots=True)
class RefineSettings:
    """The numbers by which a run decides; journaled when it begins, so that it keeps them."""

    max_iterations: int = 3
    pass_threshold: float = PASS_THRESHOLD
    category_pass: float = CATEGORY_PASS
    token_buffer_pct: float = BUFFER
    estimates: Mapping[str, int] | None = None

    def __post_init__(self) -> None:
        if type(self.max_iterations) is not int or self.max_iterations < 1:
            raise ConfigurationError(
                f"max_iterations is {self.max_iterations!r}; it must be a whole number of 1 or more."
            )
        for name in ("pass_threshold", "category_pass"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 100:
                raise ConfigurationError(f"{name} is {value!r}; it must be a number from 0 to 100.")

    def to_plain(self) -> dict[str, Any]:
        """As JSON values."""
        plain = {name: getattr(self, name) for name in NAMES}
        return {**plain, "estimates": dict(self.estimates or ESTIMATES)}

    def changed(self, changes: Mapping[str, Any]) -> RefineSettings:
        """The same settings with some changed.

        Raises:
            ConfigurationError: a setting is unknown, or its value is none it can have.
        """
        for name in changes:
            if name not in NAMES:
                raise ConfigurationError(
                    f"There is no setting '{name}' of a refinement.{nearest(name, NAMES)}"
                )
        return RefineSettings(**{**{name: getattr(self, name) for name in NAMES}, **changes})


NAMES = ("max_iterations", "pass_threshold", "category_pass", "token_buffer_pct", "estimates")


class Decision(NamedTuple):
    """What follows from a step."""

    to: State
    reason: str | None = None
    feedback: Feedback | None = None
    analysis: FailureAnalysis | None = None

    @property
    def closes(self) -> bool:
        """Whether another attempt follows."""
        return self.feedback is not None


def after_plan(exhausted: bool) -> Decision:
    """What follows from a plan."""
    return Decision(State.BUDGET_EXHAUSTED, EXHAUSTED) if exhausted else Decision(State.VALIDATING)


def after_validation(
    report: ValidationReport, iteration: int, settings: RefineSettings, now: float
) -> Decision:
    """What follows from the report on a plan."""
    if report.passed:
        return Decision(State.IMPLEMENTING)
    if iteration >= settings.max_iterations:
        return Decision(State.FAILED, MAX_ITERATIONS)
    return Decision(State.PLANNING, INVALID, validation_feedback(report, iteration, now))


def after_implementation(exhausted: bool) -> Decision:
    """What follows from an implementation."""
    return Decision(State.BUDGET_EXHAUSTED, EXHAUSTED) if exhausted else Decision(State.JUDGING)


def after_judgement(
    attempt: Attempt,
    before: Attempt | None,
    rubric: Rubric,
    settings: RefineSettings,
    now: float,
    *,
    exhausted: bool,
    replan: bool = False,
) -> Decision:
    """What follows from an attempt that is evaluated.

    `before` is the attempt before it. With `replan` the next attempt must begin with a plan.
    """
    evaluation = attempt.evaluation
    assert evaluation is not None
    if evaluation.passes(settings.pass_threshold, settings.category_pass):
        return Decision(State.SUCCEEDED)
    if exhausted:
        return Decision(State.BUDGET_EXHAUSTED, EXHAUSTED)
    if attempt.iteration >= settings.max_iterations:
        return Decision(State.FAILED, MAX_ITERATIONS)
    gain = None
    if before is not None and before.evaluation is not None:
        gain = evaluation.overall_score - before.evaluation.overall_score
    analysis = analyse(
        evaluation, rubric, category_pass=settings.category_pass, refined=attempt.refined, gain=gain,
        replan=replan,
    )  # fmt: skip
    feedback = judge_feedback(evaluation, analysis, attempt.iteration, settings, now)
    if analysis.fix_strategy == "refine_implementation":
        return Decision(State.IMPLEMENTING, SOFT, feedback, analysis)
    return Decision(State.PLANNING, HARD, feedback, analysis)


def validation_feedback(report: ValidationReport, iteration: int, now: float) -> Feedback:
    """What a planner is told about a plan that is not valid: errors first, then the rest."""
    issues = [*report.errors, *(issue for issue in report.issues if issue.severity != "error")]
    lines = []
    for issue in issues:
        place = f', section "{issue.section_name}"' if issue.section_name is not None else ""
        lines.append(f"- [{issue.severity}] {issue.rule}{place}: {issue.message}")
    metadata = {"issues": [issue.to_plain() for issue in report.issues]}
    return Feedback("validation_failure", "\n".join(lines), iteration, now, 2, metadata)


def judge_feedback(
    evaluation: Evaluation, analysis: FailureAnalysis, iteration: int, settings: RefineSettings, now: float
) -> Feedback:
    """What planner or implementer are told about an attempt that did not pass."""
    failing = evaluation.failing(settings.category_pass)
    shown = failing or evaluation.failing(settings.pass_threshold)
    lines = [f"Overall score {evaluation.overall_score:g}, {settings.pass_threshold:g} passes."]
    lines += [f"- automatic failure: {code}" for code in evaluation.automatic_failures]
    for score in shown:
        lines.append(f"- {score.category} {score.score:g}: {score.reasoning}".rstrip(": "))
        lines += [f"  - {weakness.text}" for weakness in score.weaknesses]
    lines += [f"- {text}" for text in evaluation.actionable_feedback]
    metadata = {
        "failing": [
            {
                "category": score.category,
                "score": score.score,
                "weaknesses": [weakness.to_plain() for weakness in score.weaknesses],
            }
            for score in shown
        ],
        "automatic_failures": list(evaluation.automatic_failures),
        "escalated": analysis.escalated,
    }
    hard = analysis.fix_strategy == "replan"
    kind: FeedbackType = "judge_hard_failure" if hard else "judge_soft_failure"
    return Feedback(kind, "\n".join(lines), iteration, now, 1, metadata)
