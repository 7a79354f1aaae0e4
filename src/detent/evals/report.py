"""The report of a suite, as values that survive a round trip through JSON.

Terminal, JSON and JUnit are rendered from this one value, so they agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from detent.evals.failure import StepFailure
from detent.kernel.budget import NOTHING, Spend
from detent.kernel.errors import ConfigurationError
from detent.kernel.plain import decode

THRESHOLD = 99.0
"""Percent of the counted cases that must pass."""
_LISTS = ("path", "calls", "not_applicable")
"""Fields of a result that are lists in JSON."""


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One step of a play, as stored in a report."""

    step_name: str
    output_text: str = ""
    next_step: str | None = None
    reason: str | None = None
    mode: str = "deterministic"
    fallback: str | None = None


@dataclass(frozen=True, slots=True)
class CaseResult:
    """One play of one case."""

    scenario_id: str
    category: str
    file: str
    passed: bool
    ms: float = 0.0
    path: tuple[str, ...] = ()
    status: str | None = None
    end: str | None = None
    calls: tuple[str, ...] = ()
    spend: Spend = NOTHING
    failures: tuple[StepFailure, ...] = ()
    repeat: int = 1
    """Which repetition it was, from 1."""
    orchestrator: str = "step"
    arm: str | None = None
    required: bool = False
    deprecated: str | None = None
    not_applicable: tuple[str, ...] = ()
    """Expectations that are not checked in this mode."""
    steps: tuple[StepRecord, ...] = ()
    run_id: str | None = None

    @property
    def counted(self) -> bool:
        """False for a deprecated case, which is run and shown but does not count."""
        return self.deprecated is None

    @property
    def label(self) -> str:
        """The id, with what distinguishes this play from others of the same case."""
        more = [
            *([self.orchestrator] if self.orchestrator != "step" else []),
            *([self.arm] if self.arm is not None else []),
            *([f"#{self.repeat}"] if self.repeat > 1 else []),
        ]
        return f"{self.scenario_id} [{', '.join(more)}]" if more else self.scenario_id

    def to_plain(self) -> dict[str, Any]:
        """As plain values."""
        values: dict[str, Any] = {item.name: getattr(self, item.name) for item in fields(self)}
        values |= {name: list(values[name]) for name in _LISTS}
        values["spend"] = self.spend.to_plain()
        values["failures"] = [failure.to_plain() for failure in self.failures]
        values["steps"] = [asdict(step) for step in self.steps]
        return values

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> CaseResult:
        """Read back what `to_plain` wrote."""
        values = dict(plain)
        values |= {name: tuple(values[name]) for name in _LISTS}
        values["spend"] = Spend.from_plain(values["spend"])
        values["failures"] = tuple(StepFailure.from_plain(failure) for failure in values["failures"])
        values["steps"] = tuple(StepRecord(**step) for step in values["steps"])
        return cls(**values)


@dataclass(frozen=True, slots=True)
class EvalReport:
    """The results of a suite."""

    suite: str
    started_at: str
    """ISO-8601, UTC."""
    orchestrator: str = "step"
    """A mode, or both."""
    model: str | None = None
    threshold: float = THRESHOLD
    cases: tuple[CaseResult, ...] = ()
    """In the order of the cases, for any number of jobs."""
    unstable: tuple[str, ...] = ()
    """Cases whose repetitions left different traces."""
    deterministic: bool = False
    """Whether unstable cases are failures."""
    arms: tuple[str, ...] = ()

    @property
    def counted(self) -> int:
        """Plays that count."""
        return sum(case.counted for case in self.cases)

    @property
    def passed(self) -> int:
        """Counted plays that passed."""
        return sum(case.counted and case.passed for case in self.cases)

    @property
    def pass_rate(self) -> float:
        """Percent of the counted plays that passed; 0 when none counts."""
        return 100 * self.passed / self.counted if self.counted else 0.0

    @property
    def required_failed(self) -> tuple[str, ...]:
        """Required cases that failed."""
        return tuple(
            dict.fromkeys(case.scenario_id for case in self.cases if case.required and not case.passed)
        )

    @property
    def ok(self) -> bool:
        """True when enough plays passed, and every required case did."""
        enough = self.counted > 0 and self.passed * 100 >= self.threshold * self.counted
        counted = {case.scenario_id for case in self.cases if case.counted}
        shaky = self.deterministic and not counted.isdisjoint(self.unstable)
        return enough and not self.required_failed and not shaky

    @property
    def by_step(self) -> dict[str, dict[str, int]]:
        """How often each step ran, and how many failures name it."""
        steps: dict[str, dict[str, int]] = {}
        for case in self.cases:
            for step in case.path:
                steps.setdefault(step, {"runs": 0, "failures": 0})["runs"] += 1
            for failure in case.failures:
                if failure.step_name is not None:
                    steps.setdefault(failure.step_name, {"runs": 0, "failures": 0})["failures"] += 1
        return dict(sorted(steps.items()))

    def to_plain(self) -> dict[str, Any]:
        """As plain values, including the derived figures, for readers of the JSON."""
        return {
            "suite": self.suite,
            "started_at": self.started_at,
            "orchestrator": self.orchestrator,
            "model": self.model,
            "threshold": self.threshold,
            "counted": self.counted,
            "passed": self.passed,
            "pass_rate": self.pass_rate,
            "ok": self.ok,
            "required_failed": list(self.required_failed),
            "deterministic": self.deterministic,
            "arms": list(self.arms),
            "unstable": list(self.unstable),
            "cases": [case.to_plain() for case in self.cases],
            "by_step": self.by_step,
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> EvalReport:
        """Read back what `to_plain` wrote."""
        try:
            values = {item.name: plain[item.name] for item in fields(cls)}
            values |= {name: tuple(plain[name]) for name in ("unstable", "arms")}
            return cls(**values | {"cases": tuple(CaseResult.from_plain(case) for case in plain["cases"])})
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ConfigurationError(
                f"This is not an eval report: {type(error).__name__} {error}."
            ) from error


def read_report(text: str, shown: str = "The file") -> EvalReport:
    """A report from its JSON text.

    Raises:
        ConfigurationError: the text is not a report.
    """
    try:
        plain = decode(text)
    except ValueError as error:
        raise ConfigurationError(f"{shown} is not JSON: {error}.") from error
    if not isinstance(plain, Mapping):
        raise ConfigurationError(f"{shown} is not an eval report.")
    try:
        return EvalReport.from_plain(plain)
    except ConfigurationError as error:
        raise ConfigurationError(f"{shown}: {error}") from error


def failed_ids(report: EvalReport) -> frozenset[str]:
    """Ids of the cases that failed in any play."""
    return frozenset(case.scenario_id for case in report.cases if not case.passed)
