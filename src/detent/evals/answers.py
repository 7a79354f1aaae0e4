"""Whose answers a suite used: the agents' own, or the handlers' in their place.

An answer belongs to one visit of a step, or to one question outside the steps; repeated requests within the
visit are one answer. Answers that a case scripts are the case's words and are in none of the figures.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from detent.insight.formatting import columns

UNEXPLAINED = "unexplained"
"""Reason of an answer whose player gives none."""
BY_CONFIGURATION = "operator"
"""Reason for not asking that the settings state: the step is the handler's."""
NO_AGENT = "no agent was asked: these figures are the handlers'"


class Fate(str, Enum):
    """What became of an answer."""

    KEPT = "kept"
    """The agent's answer is what the step did."""
    REPLACED = "replaced"
    """The agent was asked, and the handler performed the step."""
    FAILED = "failed"
    """The agent was asked, and the step failed: nothing could replace the answer."""
    NOT_ASKED = "not_asked"
    """The agent was to perform the step and was not asked."""


@dataclass(frozen=True, slots=True)
class AnswerRecord:
    """One answer in a play."""

    step_name: str
    fate: Fate
    reason: str | None = None
    """Why it was replaced or not asked for."""
    scripted: bool = False
    """The case itself gives the answer; it says nothing about an agent."""

    @property
    def asked(self) -> bool:
        """True when an agent was asked for it."""
        return self.fate is not Fate.NOT_ASKED

    @property
    def by_handler(self) -> bool:
        """True when the agent did not do its part, though the settings gave it the step."""
        return self.fate is not Fate.KEPT and self.reason != BY_CONFIGURATION

    def to_plain(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "step_name": self.step_name,
            "fate": self.fate.value,
            "reason": self.reason,
            "scripted": self.scripted,
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> AnswerRecord:
        """Read back what `to_plain` wrote."""
        return cls(plain["step_name"], Fate(plain["fate"]), plain["reason"], plain["scripted"])


@dataclass(frozen=True, slots=True)
class AnswerCounts:
    """How many answers were asked for, and what became of them."""

    kept: int = 0
    replaced: Mapping[str, int] = field(default_factory=dict)
    """By reason."""
    failed: int = 0
    not_asked: Mapping[str, int] = field(default_factory=dict)
    """By reason."""

    @classmethod
    def of(cls, answers: Iterable[AnswerRecord]) -> AnswerCounts:
        """Count answers, without the scripted ones."""
        fates: dict[Fate, Counter[str]] = {fate: Counter() for fate in Fate}
        for answer in answers:
            if not answer.scripted:
                fates[answer.fate][answer.reason or UNEXPLAINED] += 1
        return cls(
            fates[Fate.KEPT].total(),
            _most_first(fates[Fate.REPLACED]),
            fates[Fate.FAILED].total(),
            _most_first(fates[Fate.NOT_ASKED]),
        )

    @property
    def asked(self) -> int:
        """Answers that agents were asked for."""
        return self.kept + sum(self.replaced.values()) + self.failed

    @property
    def share(self) -> float | None:
        """Share of the answers asked for that were kept; None when no agent was asked."""
        return self.kept / self.asked if self.asked else None

    def __bool__(self) -> bool:
        return bool(self.asked or self.not_asked)

    def __str__(self) -> str:
        return f"{self.kept} of {self.asked} answers kept ({percent(self.kept, self.asked)})"

    @property
    def why(self) -> str:
        """The reasons, with their numbers."""
        failed = [f"failed {self.failed}"] if self.failed else []
        reasons = [f"{reason} {number}" for reason, number in self.replaced.items()]
        not_asked = [f"{reason} {number}" for reason, number in self.not_asked.items()]
        parts = [", ".join([*reasons, *failed]), f"not asked: {', '.join(not_asked)}" if not_asked else ""]
        return "; ".join(part for part in parts if part)

    def to_plain(self) -> dict[str, Any]:
        """As plain values, including the derived figures."""
        return {
            "asked": self.asked,
            "kept": self.kept,
            "kept_share": self.share,
            "replaced": dict(self.replaced),
            "failed": self.failed,
            "not_asked": dict(self.not_asked),
        }


@dataclass(frozen=True, slots=True)
class AgentAlone:
    """What the agents come to without the handlers' help."""

    passed: int
    """Plays that passed with no answer replaced."""
    counted: int
    """Plays in which an agent was asked, and plays that could not be played."""
    without: tuple[str, ...] = ()
    """Plays in which no agent was asked; scripted ones are listed apart."""
    scripted: tuple[str, ...] = ()
    """Plays whose only agents are scripted by the case."""

    @property
    def pass_rate(self) -> float | None:
        """Percent of the counted plays that passed; None when no agent was asked."""
        return 100 * self.passed / self.counted if self.counted else None

    def to_plain(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "passed": self.passed,
            "counted": self.counted,
            "pass_rate": self.pass_rate,
            "without_agent": list(self.without),
            "scripted": list(self.scripted),
        }


def by_step(answers: Iterable[AnswerRecord]) -> dict[str, AnswerCounts]:
    """The counts of each step whose agent was asked or was to be asked, by name."""
    steps: dict[str, list[AnswerRecord]] = {}
    for answer in answers:
        if not answer.scripted:
            steps.setdefault(answer.step_name, []).append(answer)
    return {step: AnswerCounts.of(steps[step]) for step in sorted(steps)}


def table(steps: Mapping[str, AnswerCounts], total: AnswerCounts) -> list[str]:
    """The counts as lines, one row for each step and one for all."""
    rows = [("answers", "asked", "kept", "replaced", "not asked", "why")]
    for name, counts in (*steps.items(), ("total", total)):
        replaced, not_asked = sum(counts.replaced.values()), sum(counts.not_asked.values())
        rows.append((name, str(counts.asked), str(counts.kept), str(replaced), str(not_asked), counts.why))
    return columns(rows, frozenset({1, 2, 3, 4}))


def percent(part: int, whole: int) -> str:
    """A share in percent, rounded down, so that it never looks as if it reached a bound it missed."""
    return f"{1000 * part // whole / 10:.1f} %" if whole else "–"


def _most_first(counts: Counter[str]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
