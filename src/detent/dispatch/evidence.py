"""What counts as evidence about an agent, the rules it is judged by, and the demotions that follow.

A visit is evidence when a check that can fail judged the agent's answer: the comparison with the step's own
code, its validator, a later measurement or a person. Outages, misconfiguration and answers that the hard
contract refused had the handler's outcome: they are counted apart and cost no trust. `standing` sums the
evidence of a series up.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from detent.dispatch.autonomy import AutonomyLevel, Check, FallbackReason, StepMode
from detent.dispatch.trust import POWER_SHARE, power_low
from detent.kernel.errors import ConfigurationError

Z95 = 1.959963984540054
"""Standard normal quantile of 0.975: a two-sided interval of 95 %."""

OUTAGES = frozenset({FallbackReason.EXCEPTION.value, FallbackReason.TIMEOUT.value})
HARD_REASONS = OUTAGES | {FallbackReason.SCHEMA_VIOLATION.value}
"""Reasons of a fallback for which the agent gave no usable answer, as opposed to not being asked."""
MISCONFIGURED = frozenset({"ConfigurationError", "IntegrationMissing", "MisconfiguredError"})
"""Types of agents' errors that a person must mend in the settings."""


class Verdict(str, Enum):
    """The verdict of one execution on the agent."""

    AGREED = "agreed"
    """Its answer equalled the handler's, or passed the step's validator, or a person found it right."""
    DIFFERED = "differed"
    """It was wrong: the only verdict that costs trust."""
    REFUSED = "refused"
    """It broke the hard contract, so that the handler's outcome was used."""
    OUTAGE = "outage"
    """It raised or timed out."""
    MISCONFIGURED = "misconfigured"
    """It could not be asked properly: a setting is missing or wrong."""
    UNCHECKED = "unchecked"
    """It answered, and nobody judged the answer."""

    @property
    def judges(self) -> bool:
        """Whether a check looked at the answer."""
        return self in (Verdict.AGREED, Verdict.DIFFERED)


COMPARISON, VALIDATOR, PERSON, MEASUREMENT = "comparison", "validator", "person", "measurement"
"""Who judges."""


class ByLevel(NamedTuple):
    """A share for each level at which answers are used unchecked."""

    consultant: float
    approver: float

    def at(self, level: AutonomyLevel) -> float:
        """The share for a level; below consultant, that of consultant, which is to be earned next."""
        return self.approver if level is AutonomyLevel.APPROVER else self.consultant


_TOLERATE, _AUDIT = ByLevel(0.02, 0.01), ByLevel(0.1, 0.02)


@dataclass(frozen=True, slots=True)
class EvidenceRules:
    """How far agents may be wrong, and how that is watched."""

    tolerate: ByLevel = _TOLERATE
    """The share of wrong answers accepted at a level."""
    risk: float = 0.05
    """The chance accepted that an agent worse than that is ever proposed."""
    min_power: float = 0.9
    """The share of planted errors, of every sort, that a check must refuse to count as evidence."""
    audit: ByLevel = _AUDIT
    """The share of unchecked answers that is judged afterwards."""
    audit_per_day: int = 1
    """At small traffic, so many a day are judged at least."""
    recheck: int = 60
    """Clean answers in a row after a seen error before answers go out unchecked again."""
    harm: float | None = None
    """How many wrong answers may go out before one is seen; takes the place of `audit`."""
    patience: float = 10_000
    """Judged visits, on average, between two wrongful demotions of an agent within tolerance."""
    min_days: int = 3
    """Evidence must come from so many different days."""
    max_unusable: float = 0.05
    """More outages and refusals than this share of the last 200 answers hold a raise back."""
    demote: bool = True
    """Whether steps are lowered automatically."""
    floor: AutonomyLevel = AutonomyLevel.OPERATOR
    """The lowest level that a step is automatically lowered to."""
    plant: float = 0.1
    """The share of planted drafts among those that people review."""
    plant_first: float = 0.5
    """The share until `plant_until` were planted, while the power of the reviewers is first measured."""
    plant_until: int = 40

    def __post_init__(self) -> None:
        problems = [
            f"{name} is {value!r}; a whole number of at least {least} is needed"
            for name, least in (("audit_per_day", 0), ("recheck", 0), ("min_days", 1), ("plant_until", 0))
            if not _counts(value := getattr(self, name), least)
        ]
        problems += [
            f"{name} is {value!r}; a share between 0 and 1 is needed"
            for name in ("min_power", "max_unusable")
            if not _is_share(value := getattr(self, name))
        ]
        problems += [
            f"{name} is {value!r}; a share of at most one half is needed: nobody reads planted drafts alone"
            for name in ("plant", "plant_first")
            if not (_is_share(value := getattr(self, name)) and value <= 0.5)
        ]
        for name, shares in (("tolerate", self.tolerate), ("audit", self.audit)):
            problems += [
                f"{name}.{level} is {share!r}; a share between 0 and 1 is needed"
                for level, share in shares._asdict().items()
                if not _is_share(share)
            ]
        if not problems and not all(0 < share < 1 for share in self.tolerate):
            problems.append(
                "tolerate lies between 0 and 1, both excluded: no evidence shows that none is wrong"
            )
        if not (_is_share(self.risk) and 0 < self.risk < 1):
            problems.append(f"risk is {self.risk!r}; a chance between 0 and 1 is needed")
        if not _is_number(self.patience) or self.patience <= 1:
            problems.append(f"patience is {self.patience!r}; a number above 1 is needed")
        if self.harm is not None and (not _is_number(self.harm) or self.harm < 1):
            problems.append(f"harm is {self.harm!r}; a number of at least 1 is needed")
        if not isinstance(self.floor, AutonomyLevel):
            names = ", ".join(level.value for level in AutonomyLevel)
            problems.append(f"floor is {self.floor!r}; one of {names} is needed")
        if problems:
            raise ConfigurationError(f"Rules of evidence: {'; '.join(problems)}.")

    @property
    def error_risk(self) -> float:
        """The part of the risk that is spent on the agent's errors."""
        return self.risk * (1 - POWER_SHARE)

    @property
    def power_risk(self) -> float:
        """The part of the risk that is spent on the check's power."""
        return self.risk * POWER_SHARE

    def audited_share(self, level: AutonomyLevel, power: Power | None) -> float:
        """The share of answers at a level that is judged after use."""
        if self.harm is None:
            return self.audit.at(level)
        least = self.min_power if power is None else power.low(self)
        return min(1.0, 1 / (self.harm * max(least, 0.01)))


def _counts(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_share(value: Any) -> bool:
    return _is_number(value) and 0 <= value <= 1


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


def mostly_dropped(figures: Mapping[str, Any]) -> bool:
    """Whether more than half of the mutants of a sort were no errors, so that it is not measurable."""
    dropped = int(figures.get("dropped", 0))
    return dropped * 2 > int(figures["planted"]) + dropped + int(figures.get("contract", 0))


class Power(NamedTuple):
    """The power of a check by its weakest sort of planted errors."""

    planted: int
    caught: int
    sort: str = ""
    reviewer: str = ""
    """The person who caught the smallest share, where persons judge and it is theirs that is smallest."""
    least: float | None = None
    """The smallest share, of any sort and of any reviewer; None: that of all."""

    @property
    def share(self) -> float:
        """Share of the planted errors that the check has refused."""
        return self.caught / self.planted if self.planted else 0.0

    def low(self, rules: EvidenceRules) -> float:
        """The least power that the planted errors do not exclude."""
        return power_low(self.planted, self.caught, rules.power_risk)

    @classmethod
    def from_plain(cls, plain: Any) -> Power | None:
        """The weakest sort of a mark that holds a measurement (`power.PowerReport`); None without one.

        Sorts that are not measurable say nothing and are left out.
        """
        sorts = plain.get("sorts") if isinstance(plain, Mapping) else None
        measured = [
            cls(int(figures["planted"]), int(figures["caught"]), str(figures["sort"]))
            for figures in sorts or ()
            if figures["planted"] and not mostly_dropped(figures)
        ]
        return min(measured, key=lambda power: (power.share, power.planted), default=None)


# -- verdicts -----------------------------------------------------------------------------------------------


def verdict_of(record: Mapping[str, Any]) -> Verdict | None:
    """The verdict of a dispatched step's record; None when the agent was not asked.

    Nor is there one where a person has denied an effect: what followed is the person's decision.
    """
    if record.get("denied"):
        return None
    if record.get("fallback_used"):
        return _verdict_of_fallback(record.get("fallback_reason"), record.get("agent_error"))
    if record.get("mode_used") != StepMode.AGENT.value:
        return None
    if (draft := record.get("draft")) is not None:
        return _VERDICTS_ON_DRAFTS.get(draft.get("verdict"), Verdict.UNCHECKED)
    return Verdict.AGREED if judge_of(record) is not None else Verdict.UNCHECKED


def _verdict_of_fallback(reason: Any, error: Any) -> Verdict | None:
    if reason == FallbackReason.NO_EXECUTOR.value:
        return Verdict.MISCONFIGURED
    if reason in OUTAGES:
        kind = error.get("type") if isinstance(error, Mapping) else error
        return Verdict.MISCONFIGURED if kind in MISCONFIGURED else Verdict.OUTAGE
    if reason == FallbackReason.SCHEMA_VIOLATION.value:
        return Verdict.REFUSED
    return Verdict.DIFFERED if reason == FallbackReason.VALIDATION_FAILURE.value else None


def judge_of(record: Mapping[str, Any]) -> str | None:
    """The check that looked at the answer of a dispatch record and could have refused it."""
    if (draft := record.get("draft")) is not None:  # facts that agreed say nothing about the text
        return PERSON if draft.get("verdict") in _VERDICTS_ON_DRAFTS else None
    judges = {Check.VALIDATOR.value: VALIDATOR, Check.COMPARE.value: COMPARISON}
    return judges.get(str(record.get("check")))


_VERDICTS_ON_DRAFTS = {
    "approved": Verdict.AGREED,
    "edited": Verdict.DIFFERED,
    "handler": Verdict.DIFFERED,
}
"""What a person's verdict on an agent's text says about the agent. Facts that agree are no evidence about the
text beside them: without a person, or with only the wording changed, the visit is unchecked."""


def verdict_of_shadow(note: Mapping[str, Any]) -> Verdict | None:
    """The verdict of a shadow comparison; None when something other than the agent failed."""
    outcome = note.get("outcome")
    if outcome == Verdict.AGREED.value:
        return Verdict.AGREED
    if outcome == Verdict.DIFFERED.value:
        return Verdict.DIFFERED
    if outcome == "failed" and note.get("side") == "agent":
        return _verdict_of_fallback(note.get("reason"), note.get("error"))
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
    return None if judge_of(record) is not None else Verdict.AGREED


def below(level: AutonomyLevel, rules: EvidenceRules) -> AutonomyLevel | None:
    """The level a demotion leads to, or None at the floor."""
    lower = level.below
    return None if lower is None or lower < rules.floor else lower


DEMOTIONS = "autonomy/"
"""Prefix of the marks that hold a step below its configured level; the step's qualified name follows."""
DEMOTED = "demoted/"
"""Prefix of the marks that hold when a step was demoted by its evidence, restored or not."""
POWER = "power/"
"""Prefix of the marks that hold the power of a check; the step and the check's fingerprint follow."""
DEMOTIONS_DAYS = 90


def recent(times: Any, now: float) -> list[float]:
    """The demotions among these that a proposal still has to consider."""
    return [float(at) for at in times or () if float(at) > now - DEMOTIONS_DAYS * 86400]


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
    work: str = ""
    """Fingerprint of what the step does: the demotion holds too where it has been renamed or copied."""

    def to_plain(self) -> dict[str, Any]:
        """As the mark keeps it."""
        return {
            "level": self.level.value,
            "was": self.was.value if self.was is not None else None,
            "why": self.why,
            "at": self.at,
            "by": self.by,
            "series": dict(self.series) if self.series is not None else None,
            "work": self.work,
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
            str(plain.get("work") or ""),
        )
