"""What follows from an evaluation that does not pass: plan anew, or refine the implementation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from detent.flows.refine.evaluation import CATEGORY_PASS, Evaluation, Owner, Rubric

FIX_BY_REPLANNING = 60
"""Overall score below which a failure without a failing category is planned anew."""
LEAST_GAIN = 1.0
"""Points that a refined implementation must gain to be refined again."""

FixStrategy = Literal["replan", "refine_implementation"]


@dataclass(frozen=True, slots=True)
class FailureAnalysis:
    """Whose failure it is, and what to do about it."""

    primary_issue: Literal["plan", "implementation", "both"]
    failure_categories: tuple[str, ...]
    """Failing categories and automatic failures, all names of the rubric."""
    root_cause: str
    fix_strategy: FixStrategy
    escalated: bool = False
    """A refinement was due, but would lead nowhere or is not the handlers'."""

    def to_plain(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "primary_issue": self.primary_issue,
            "failure_categories": list(self.failure_categories),
            "root_cause": self.root_cause,
            "fix_strategy": self.fix_strategy,
            "escalated": self.escalated,
        }


def analyse(
    evaluation: Evaluation,
    rubric: Rubric | None = None,
    *,
    category_pass: float = CATEGORY_PASS,
    refined: bool = False,
    gain: float | None = None,
    replan: bool = False,
) -> FailureAnalysis:
    """The analysis of an evaluation that does not pass.

    `refined` says that the attempt was a refinement, and `gain` its lead in points over the one before.
    With `replan` the next attempt must begin with a plan.
    """
    rubric = rubric or Rubric()
    failing = evaluation.failing(category_pass)
    codes = evaluation.automatic_failures
    issue, strategy = _decided(evaluation, rubric, tuple(score.category for score in failing))
    stuck = refined and gain is not None and gain < LEAST_GAIN
    escalated = strategy == "refine_implementation" and (stuck or replan)
    return FailureAnalysis(
        issue,
        (*codes, *(score.category for score in failing)),
        _root_cause(evaluation),
        "replan" if escalated else strategy,
        escalated,
    )


def _decided(
    evaluation: Evaluation, rubric: Rubric, failing: tuple[str, ...]
) -> tuple[Literal["plan", "implementation", "both"], FixStrategy]:
    automatic = [rubric.owner_of(code) for code in evaluation.automatic_failures]
    if any(owner is not None for owner in automatic):
        if "plan" not in automatic:
            return "implementation", "refine_implementation"
        return ("both" if "implementation" in automatic else "plan"), "replan"
    owners: list[Owner | None] = [rubric.owner_of(name) for name in failing]
    plans, implementations = owners.count("plan"), owners.count("implementation")
    if plans or implementations:
        if plans == implementations:
            return "both", "replan"
        return ("plan", "replan") if plans > implementations else ("implementation", "refine_implementation")
    if evaluation.overall_score < FIX_BY_REPLANNING:
        return "plan", "replan"
    return "implementation", "refine_implementation"


def _root_cause(evaluation: Evaluation) -> str:
    """The automatic failure, or the lowest category with its score and first weakness."""
    if evaluation.automatic_failures:
        return evaluation.automatic_failures[0]
    lowest = evaluation.lowest
    if lowest is None:
        return f"overall score {evaluation.overall_score:g}"
    weakness = f": {lowest.weaknesses[0].text}" if lowest.weaknesses else ""
    return f"{lowest.category} {lowest.score:g}{weakness}"
