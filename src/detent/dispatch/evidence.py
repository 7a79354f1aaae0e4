"""The evidence about an agent, and its consequences: the rules for raising and lowering levels.

An execution gives a verdict when the agent's answer was compared with the step's own code, or when the agent
failed hard. Verdicts are summed in a tally per series; a tally shows whether agreement drifts and whether the
step should go down a level. Nothing here raises a level: a person decides that, from a report.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from detent.dispatch.autonomy import AutonomyLevel, Check, FallbackReason, StepMode
from detent.kernel.errors import ConfigurationError

Z95 = 1.959963984540054
"""Standard normal quantile of 0.975: a two-sided interval of 95 %."""
LAST = 50
"""The latest verdicts that must contain no hard failure when a level is to be raised."""

HARD_REASONS = frozenset(
    {FallbackReason.EXCEPTION.value, FallbackReason.TIMEOUT.value, FallbackReason.SCHEMA_VIOLATION.value}
)
"""Reasons of a fallback for which the agent failed, as opposed to not being asked."""


class Verdict(str, Enum):
    """The verdict of one execution on the agent."""

    AGREED = "agreed"
    """Its answer equalled the handler's, or passed the step's validator."""
    DIFFERED = "differed"
    HARD = "hard"
    """It raised, timed out, or broke the hard contract."""
    UNCHECKED = "unchecked"
    """It answered without a comparison: no evidence of agreement, but not a hard failure either."""


_LETTERS = {Verdict.AGREED: "a", Verdict.DIFFERED: "d", Verdict.HARD: "h", Verdict.UNCHECKED: "u"}


@dataclass(frozen=True, slots=True)
class EvidenceRules:
    """How much evidence it takes to raise a step, and how little to lower it."""

    min_n: int = 50
    min_lower95: float = 0.95
    """The lower end of the 95 % interval of agreement must reach this."""
    window: int = 20
    """Number of the latest verdicts considered for drift."""
    drift_below: float = 0.8
    """Agreement within the window below this, ..."""
    drift_above: float = 0.95
    """... while the whole series is above this, is drift."""
    demote: bool = True
    """Whether steps are lowered automatically."""
    demote_hard: int = 3
    """Number of hard failures among the last `demote_window` answers that lowers the step."""
    demote_agreement: float = 0.8
    """Agreement of the last `demote_window` verdicts below this lowers the step."""
    demote_window: int = 20
    floor: AutonomyLevel = AutonomyLevel.OPERATOR
    """The lowest level that a step is automatically lowered to."""

    def __post_init__(self) -> None:
        problems = [
            f"{name} is {value!r}; a whole number of at least 1 is needed"
            for name in ("min_n", "window", "demote_hard", "demote_window")
            if not _counts(value := getattr(self, name))
        ]
        problems += [
            f"{name} is {value!r}; a share between 0 and 1 is needed"
            for name in ("min_lower95", "drift_below", "drift_above", "demote_agreement")
            if not _is_share(value := getattr(self, name))
        ]
        if not problems:
            if self.drift_below > self.drift_above:
                problems.append(f"drift_below ({self.drift_below}) is above drift_above ({self.drift_above})")
            if self.demote_hard > self.demote_window:
                problems.append(
                    f"demote_hard ({self.demote_hard}) is above demote_window ({self.demote_window})"
                )
        if not isinstance(self.floor, AutonomyLevel):
            names = ", ".join(level.value for level in AutonomyLevel)
            problems.append(f"floor is {self.floor!r}; one of {names} is needed")
        if problems:
            raise ConfigurationError(f"Rules of evidence: {'; '.join(problems)}.")

    @property
    def keep(self) -> int:
        """Number of the latest verdicts a tally must keep to be judged by these rules."""
        return max(self.window, self.demote_window, LAST)


def _counts(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_share(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1


def wilson(agreed: int, n: int, z: float = Z95) -> tuple[float, float]:
    """Lower and upper end of the Wilson score interval of `agreed` out of `n`; (0, 1) without any."""
    if not 0 <= agreed <= n:
        raise ValueError(f"{agreed} of {n} is no share.")
    if n == 0:
        return 0.0, 1.0
    share, square = agreed / n, z * z
    stretch = 1 + square / n
    middle = (share + square / (2 * n)) / stretch
    half = z / stretch * math.sqrt(share * (1 - share) / n + square / (4 * n * n))
    # At the ends the interval touches 0 or 1 exactly; rounding must not make it miss.
    return (0.0 if agreed == 0 else max(0.0, middle - half)), (
        1.0 if agreed == n else min(1.0, middle + half)
    )


def verdict_of(record: Mapping[str, Any]) -> Verdict | None:
    """The verdict of a dispatched step's record; None when the agent was not tested.

    Nor is there one where a person has denied an effect: what followed is the person's decision.
    """
    if record.get("denied"):
        return None
    if record.get("fallback_used"):
        reason = record.get("fallback_reason")
        if reason in HARD_REASONS:
            return Verdict.HARD
        return Verdict.DIFFERED if reason == FallbackReason.VALIDATION_FAILURE.value else None
    if record.get("mode_used") != StepMode.AGENT.value:
        return None
    checked = record.get("check") in (Check.VALIDATOR.value, Check.COMPARE.value)
    return Verdict.AGREED if checked else Verdict.UNCHECKED


def verdict_of_shadow(note: Mapping[str, Any]) -> Verdict | None:
    """The verdict of a shadow comparison; None when something other than the agent failed."""
    outcome = note.get("outcome")
    if outcome == Verdict.AGREED.value:
        return Verdict.AGREED
    if outcome == Verdict.DIFFERED.value:
        return Verdict.DIFFERED
    if outcome == "failed" and note.get("side") == "agent" and note.get("reason") in HARD_REASONS:
        return Verdict.HARD
    return None


def verdict_of_later(note: Mapping[str, Any]) -> Verdict | None:
    """The verdict of a later measurement or a person on an agent's visit; None if it is no evidence.

    Evidence against an agent always counts. Evidence for it counts where its answer was not checked at the
    time: a visit that agreed does not agree twice.
    """
    record = note.get("record")
    if note.get("performed_by") != "agent" or not isinstance(record, Mapping) or not record.get("step"):
        return None
    if not note.get("right"):
        return Verdict.DIFFERED
    checked = record.get("check") in (Check.VALIDATOR.value, Check.COMPARE.value)
    return None if checked else Verdict.AGREED


@dataclass(frozen=True, slots=True)
class Tally:
    """Rolling evidence of one series, small enough for a durable mark."""

    n: int = 0
    agreed: int = 0
    hard: int = 0
    recent: str = ""
    """The latest verdicts that count, newest last: `a`greed, `d`iffered, `h`ard."""
    asked: str = ""
    """The latest answers, checked or not, newest last: the same letters and `u`nchecked."""

    def __post_init__(self) -> None:
        if self.agreed < 0 or self.hard < 0 or self.agreed + self.hard > self.n or len(self.recent) > self.n:
            raise ValueError(
                f"A tally of {self.agreed} agreed and {self.hard} hard out of {self.n} cannot be."
            )
        if self.recent.strip("adh") or self.asked.strip("adhu"):
            raise ValueError("A tally remembers verdicts as the letters a, d, h and u only.")

    @property
    def differed(self) -> int:
        """Number compared and not equal."""
        return self.n - self.agreed - self.hard

    @property
    def agreement(self) -> float | None:
        """Share that agreed; None before the first verdict."""
        return self.agreed / self.n if self.n else None

    def after(self, verdict: Verdict, keep: int = LAST) -> Tally:
        """The tally with one more verdict, keeping the latest `keep` (see `EvidenceRules.keep`)."""
        letter = _LETTERS[verdict]
        latest = (self.asked + letter)[-keep:]
        if verdict is Verdict.UNCHECKED:
            return Tally(self.n, self.agreed, self.hard, self.recent, latest)
        return Tally(
            self.n + 1,
            self.agreed + (verdict is Verdict.AGREED),
            self.hard + (verdict is Verdict.HARD),
            (self.recent + letter)[-keep:],
            latest,
        )

    def drifts(self, rules: EvidenceRules) -> bool:
        """Whether the latest verdicts agree far less often than the series as a whole."""
        last = self.recent[-rules.window :]
        if len(last) < rules.window:
            return False
        return last.count("a") / len(last) < rules.drift_below and self.agreed / self.n > rules.drift_above

    def demotion(self, rules: EvidenceRules) -> str | None:
        """The reason to demote the step now, in a few words; None when there is none.

        Start a new tally after a demotion, or one burst of failures would lower the step again and again.
        """
        if not rules.demote:
            return None
        latest = self.asked[-rules.demote_window :]
        hard = latest.count("h")
        if hard >= rules.demote_hard:
            return f"{hard} of the last {len(latest)} failed hard"
        last = self.recent[-rules.demote_window :]
        agreed = last.count("a")
        if len(last) == rules.demote_window and agreed / len(last) < rules.demote_agreement:
            return f"{agreed} of the last {len(last)} agreed, below {rules.demote_agreement:.0%}"
        return None

    def to_plain(self) -> dict[str, Any]:
        """As plain values, without empty ones."""
        plain = {
            "n": self.n, "agreed": self.agreed, "hard": self.hard, "recent": self.recent, "asked": self.asked
        }  # fmt: skip
        return {name: value for name, value in plain.items() if value}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any] | None) -> Tally:
        """Read back what `to_plain` wrote; None becomes an empty tally."""
        if not plain:
            return cls()
        return cls(
            int(plain.get("n", 0)),
            int(plain.get("agreed", 0)),
            int(plain.get("hard", 0)),
            str(plain.get("recent", "")),
            str(plain.get("asked", "")),
        )


def below(level: AutonomyLevel, rules: EvidenceRules) -> AutonomyLevel | None:
    """The level a demotion leads to, or None at the floor."""
    lower = level.below
    return None if lower is None or lower < rules.floor else lower


DEMOTIONS = "autonomy/"
"""Prefix of the marks that hold a step below its configured level; the step's qualified name follows."""


@dataclass(frozen=True, slots=True)
class Demotion:
    """A step held at a level below the configured one, until a person restores it."""

    level: AutonomyLevel
    was: AutonomyLevel | None = None
    """The level it had, if that is known."""
    why: str = ""
    at: float = 0.0
    """Seconds since the epoch."""
    by: str = "engine"
    series: Mapping[str, Any] | None = None
    """Fingerprints of the series whose evidence lowered it."""

    def to_plain(self) -> dict[str, Any]:
        """As the mark keeps it."""
        return {
            "level": self.level.value,
            "was": self.was.value if self.was is not None else None,
            "why": self.why,
            "at": self.at,
            "by": self.by,
            "series": dict(self.series) if self.series is not None else None,
        }

    @classmethod
    def from_plain(cls, plain: Any) -> Demotion | None:
        """Read a mark; None when the step was restored or never lowered."""
        if not plain:
            return None
        if not isinstance(plain, Mapping) or "level" not in plain:
            raise ValueError("This mark does not hold a demotion; a newer version wrote it.")
        was, series = plain.get("was"), plain.get("series")
        return cls(
            AutonomyLevel(plain["level"]),
            AutonomyLevel(was) if was is not None else None,
            str(plain.get("why") or ""),
            float(plain.get("at") or 0.0),
            str(plain.get("by") or "engine"),
            series if isinstance(series, Mapping) else None,
        )
