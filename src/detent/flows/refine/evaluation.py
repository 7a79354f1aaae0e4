"""What validators and judges find: issues, scores, automatic failures, and whether that is a pass.

Belongs here: the values, their checks, the recomputed score and pass. Does not belong here: what follows from
a failure (`failure_analysis`), and any knowledge of a subject.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from detent.kernel.errors import ConfigurationError, nearest
from detent.kernel.plain import to_plain

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

    def to_plain(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "severity": self.severity,
            "rule": self.rule,
            "section_name": self.section_name,
            "message": self.message,
        }


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
        return {"passed": self.passed, "issues": [issue.to_plain() for issue in self.issues]}

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

    def to_plain(self) -> dict[str, str]:
        """As JSON values, what is not known left out."""
        plain = {"section": self.section, "template": self.template, "text": self.text}
        return {name: value for name, value in plain.items() if value is not None}

    @classmethod
    def of(cls, value: Any) -> Weakness:
        """A weakness from its text alone, or from what `to_plain` wrote."""
        if isinstance(value, str):
            return cls(value)
        return cls(value["text"], value.get("section"), value.get("template"))


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
        _check_score(self.overall_score, "overall_score")
        if self.category_scores:
            mean = mean_score(self.category_scores)
            if self.claimed_score is None and self.overall_score not in (0, mean):
                object.__setattr__(self, "claimed_score", float(self.overall_score))
            object.__setattr__(self, "overall_score", mean)

    def passes(self, pass_threshold: float = PASS_THRESHOLD, category_pass: float = CATEGORY_PASS) -> bool:
        """True if the mean is high enough, no category fails and nothing fails automatically."""
        return (
            self.overall_score >= pass_threshold
            and not self.automatic_failures
            and all(score.score >= category_pass for score in self.category_scores)
        )

    def failing(self, category_pass: float = CATEGORY_PASS) -> tuple[CategoryScore, ...]:
        """The categories below `category_pass`."""
        return tuple(score for score in self.category_scores if score.score < category_pass)

    @property
    def lowest(self) -> CategoryScore | None:
        """The category with the lowest score, the first of equals; None without categories."""
        return min(self.category_scores, key=lambda score: score.score, default=None)

    def to_plain(
        self, pass_threshold: float = PASS_THRESHOLD, category_pass: float = CATEGORY_PASS
    ) -> dict[str, Any]:
        """As JSON values; `pass_threshold` is the recomputed verdict."""
        plain: dict[str, Any] = {
            "story_overview": self.story_overview,
            "overall_score": self.overall_score,
            "category_scores": [
                {
                    "category": score.category,
                    "score": score.score,
                    "reasoning": score.reasoning,
                    "strengths": list(score.strengths),
                    "weaknesses": [weakness.to_plain() for weakness in score.weaknesses],
                }
                for score in self.category_scores
            ],
            "summary": self.summary,
            "actionable_feedback": list(self.actionable_feedback),
            "automatic_failures": list(self.automatic_failures),
            "pass_threshold": self.passes(pass_threshold, category_pass),
        }
        for name in ("channel_scoring", "claimed_score", "claimed_pass"):
            if (value := getattr(self, name)) is not None:
                plain[name] = to_plain(value)
        return plain

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Evaluation:
        """Read back what `to_plain` wrote; score and verdict are recomputed."""
        return cls(
            plain.get("overall_score", 0.0),
            tuple(
                CategoryScore(
                    row["category"],
                    row["score"],
                    row.get("reasoning", ""),
                    tuple(row.get("strengths", ())),
                    tuple(Weakness.of(weakness) for weakness in row.get("weaknesses", ())),
                )
                for row in plain.get("category_scores", ())
            ),
            tuple(plain.get("automatic_failures", ())),
            plain.get("summary", ""),
            plain.get("story_overview", ""),
            tuple(plain.get("actionable_feedback", ())),
            plain.get("channel_scoring"),
            plain.get("claimed_score"),
            plain.get("claimed_pass"),
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
        names = [category.name for category in self.categories] + [failure.code for failure in self.automatic]
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

    def check_names(self, evaluation: Evaluation) -> None:
        """Raise ValueError unless an evaluation scores exactly the categories of the rubric, once each.

        A rubric without categories leaves them to the judge.
        """
        scored = [score.category for score in evaluation.category_scores]
        names = [category.name for category in self.categories]
        codes = [failure.code for failure in self.automatic]
        twice = sorted({name for name in scored if scored.count(name) > 1})
        if twice:
            raise ValueError(f"The evaluation scores {', '.join(map(repr, twice))} twice.")
        for name in scored:
            if names and name not in names:
                raise ValueError(
                    f"The evaluation scores '{name}', no category of the rubric.{nearest(name, names)}"
                )
        if missing := [name for name in names if name not in scored]:
            raise ValueError(f"The evaluation has no score for {', '.join(map(repr, missing))}.")
        for code in evaluation.automatic_failures:
            if (names or codes) and code not in codes:
                raise ValueError(f"'{code}' is no automatic failure of the rubric.{nearest(code, codes)}")

    def failures_of(self, request: Any, plan: Any, implementation: Any) -> tuple[str, ...]:
        """The codes of the automatic failures, computed by code in every mode."""
        return tuple(self.faults_of(request, plan, implementation))

    def faults_of(self, request: Any, plan: Any, implementation: Any) -> dict[str, str]:
        """The automatic failures by code, each with what its check says is wrong."""
        found = {failure.code: failure.check(request, plan, implementation) for failure in self.automatic}
        return {code: str(fault) for code, fault in found.items() if fault}


def mean_score(scores: Sequence[CategoryScore]) -> float:
    """The mean of the categories, to one decimal."""
    return round(math.fsum(score.score for score in scores) / len(scores), 1)


def joined(reports: Iterable[ValidationReport]) -> ValidationReport:
    """One report of several, their issues in order."""
    return ValidationReport(tuple(issue for report in reports for issue in report.issues))


def _check_score(score: Any, what: str) -> None:
    if isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 100:
        raise ValueError(f"{what} is {score!r}; it must be a number from 0 to 100.")
