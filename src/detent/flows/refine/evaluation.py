"""What validators and judges find: issues, scores, automatic failures, and whether that is a pass.

Belongs here: the values, their checks, the recomputed score and pass. Does not belong here: what follows from
a failure (`failure_analysis`), and any knowledge of a subject.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from detent.kernel.errors import ConfigurationError

Severity = Literal["error", "warning", "info"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")
Owner = Literal["plan", "implementation"]

PASS_THRESHOLD = 70
"""Overall score that passes."""
CATEGORY_PASS = 60
"""Score below which a single category fails, whatever the mean."""


@dataclass(frozen=True, slots=True)
class Issue:
    """One finding of a validator. Only errors block."""

    severity: Severity
    rule: str
    message: str
    section_name: str | None = None
    """The part of the plan it concerns, if it is one."""

    def __post_init__(self) -> None:
        if self.severity not in SEVERITIES:
            raise ValueError(f"severity is {self.severity!r}; it must be one of {', '.join(SEVERITIES)}.")


@dataclass(frozen=True, slots=True)
class ValidationReport:
    """The findings about one plan."""

    issues: tuple[Issue, ...] = ()

    @property
    def passed(self) -> bool:
        """True unless an issue is an error."""
        return not self.errors

    @property
    def errors(self) -> tuple[Issue, ...]:
        """The issues that block."""
        return tuple(issue for issue in self.issues if issue.severity == "error")

    def to_plain(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "passed": self.passed,
            "issues": [
                {
                    "severity": issue.severity,
                    "rule": issue.rule,
                    "section_name": issue.section_name,
                    "message": issue.message,
                }
                for issue in self.issues
            ],
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> ValidationReport:
        """Read back what `to_plain` wrote; `passed` is recomputed."""
        return cls(
            tuple(
                Issue(row["severity"], row["rule"], row["message"], row.get("section_name"))
                for row in plain["issues"]
            )
        )


@dataclass(frozen=True, slots=True)
class Weakness:
    """What cost a category points, and where."""

    text: str
    section: str | None = None
    template: str | None = None


@dataclass(frozen=True, slots=True)
class CategoryScore:
    """The score of one category, 0 to 100."""

    category: str
    score: float
    reasoning: str = ""
    strengths: tuple[str, ...] = ()
    weaknesses: tuple[Weakness, ...] = ()

    def __post_init__(self) -> None:
        _check_score(self.score, f"score of '{self.category}'")


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A judge's findings about one implementation.

    Where there are category scores, `overall_score` is their mean; `passes` decides, never a claim.
    """

    overall_score: float = 0.0
    category_scores: tuple[CategoryScore, ...] = ()
    automatic_failures: tuple[str, ...] = ()
    """Codes of the rubric."""
    summary: str = ""
    story_overview: str = ""
    actionable_feedback: tuple[str, ...] = ()
    channel_scoring: Mapping[str, Any] | None = None
    claimed_score: float | None = None
    """Overall score that the judge claimed, if it claimed one."""
    claimed_pass: bool | None = None

    def __post_init__(self) -> None:
        if self.category_scores:
            object.__setattr__(self, "overall_score", mean_score(self.category_scores))
        _check_score(self.overall_score, "overall_score")

    def passes(self, pass_threshold: float = PASS_THRESHOLD, category_pass: float = CATEGORY_PASS) -> bool:
        """True if the mean is high enough, no category fails and nothing fails automatically."""
        return (
            self.overall_score >= pass_threshold
            and not self.automatic_failures
            and all(score.score >= category_pass for score in self.category_scores)
        )


@dataclass(frozen=True, slots=True)
class Category:
    """A category of the rubric, and whose work it judges."""

    name: str
    owner: Owner


@dataclass(frozen=True, slots=True)
class AutomaticFailure:
    """A fault that fails an implementation whatever its scores."""

    code: str
    owner: Owner
    check: Callable[[Any, Any, Any], str | None]
    """From request, plan and implementation to what is wrong, or None."""


@dataclass(frozen=True, slots=True)
class Rubric:
    """What is judged: one object for judge, failure analysis and prompts."""

    categories: tuple[Category, ...] = ()
    automatic: tuple[AutomaticFailure, ...] = field(default=())

    def __post_init__(self) -> None:
        names = [category.name for category in self.categories] + [one.code for one in self.automatic]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ConfigurationError(f"The rubric defines {', '.join(map(repr, twice))} twice.")

    def owner_of(self, name: str) -> Owner | None:
        """Whose work a category or an automatic failure judges; None if the rubric lacks it."""
        for category in self.categories:
            if category.name == name:
                return category.owner
        for failure in self.automatic:
            if failure.code == name:
                return failure.owner
        return None

    def failures_of(self, request: Any, plan: Any, implementation: Any) -> tuple[str, ...]:
        """The codes of the automatic failures, computed by code in every mode."""
        return tuple(one.code for one in self.automatic if one.check(request, plan, implementation))


def mean_score(scores: Sequence[CategoryScore]) -> float:
    """The mean of the categories, to one decimal."""
    return round(math.fsum(score.score for score in scores) / len(scores), 1)


def joined(reports: Iterable[ValidationReport]) -> ValidationReport:
    """One report of several, their issues in order."""
    return ValidationReport(tuple(issue for report in reports for issue in report.issues))


def _check_score(score: Any, what: str) -> None:
    if isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 100:
        raise ValueError(f"{what} is {score!r}; it must be a number from 0 to 100.")
