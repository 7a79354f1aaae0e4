"""One attempt, and which of several is the best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from detent.flows.refine.evaluation import CATEGORY_PASS, PASS_THRESHOLD, Evaluation, ValidationReport


@dataclass(frozen=True, slots=True)
class Attempt:
    """One plan, or one refined implementation of it, and what became of it."""

    iteration: int
    """Its number, from 1."""
    plan: Any
    validation: ValidationReport | None = None
    implementation: Any = None
    evaluation: Evaluation | None = None
    tokens: int = 0
    duration_s: float = 0.0
    executors: Mapping[str, str] = field(default_factory=dict)
    """Who performed each of its steps: `agent` or `code`, by `plan`, `validate`, `implement`, `judge`. A
    refined implementation has no plan of its own."""
    refined: bool = False
    """It refines the implementation of the attempt before it, on the same plan."""

    def to_plain(
        self, pass_threshold: float = PASS_THRESHOLD, category_pass: float = CATEGORY_PASS
    ) -> dict[str, Any]:
        """As JSON values."""
        evaluation = self.evaluation
        return {
            "iteration": self.iteration,
            "plan": self.plan,
            "validation": None if self.validation is None else self.validation.to_plain(),
            "implementation": self.implementation,
            "evaluation": None if evaluation is None else evaluation.to_plain(pass_threshold, category_pass),
            "tokens": self.tokens,
            "duration_s": self.duration_s,
            "executors": dict(self.executors),
            "refined": self.refined,
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Attempt:
        """Read back what `to_plain` wrote."""
        validation, evaluation = plain.get("validation"), plain.get("evaluation")
        return cls(
            plain["iteration"],
            plain.get("plan"),
            None if validation is None else ValidationReport.from_plain(validation),
            plain.get("implementation"),
            None if evaluation is None else Evaluation.from_plain(evaluation),
            plain.get("tokens", 0),
            plain.get("duration_s", 0.0),
            dict(plain.get("executors", {})),
            plain.get("refined", False),
        )


def best_attempt(attempts: Sequence[Attempt]) -> Attempt | None:
    """The best of several attempts; None if there is none.

    Scored ones first: without an automatic failure, higher overall score, higher lowest category, earlier.
    Unscored ones follow, valid plans first, then the latest.
    """
    return max(attempts, key=_rank, default=None)


def _rank(attempt: Attempt) -> tuple[float, ...]:
    evaluation = attempt.evaluation
    if evaluation is None:
        valid = attempt.validation is not None and attempt.validation.passed
        return 0, valid, attempt.iteration
    lowest = evaluation.lowest
    weakest = evaluation.overall_score if lowest is None else lowest.score
    return 1, not evaluation.automatic_failures, evaluation.overall_score, weakest, -attempt.iteration
