"""The report of a suite, as values that survive a round trip through JSON.

Terminal, JSON and JUnit are rendered from this one value, so they agree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from detent.evals.answers import AgentAlone, AnswerCounts, AnswerRecord, by_step
from detent.evals.failure import StepFailure
from detent.kernel.budget import NOTHING, Spend
from detent.kernel.errors import ConfigurationError
from detent.kernel.plain import decode

THRESHOLD = 99.0
"""Percent of the counted cases that must pass."""
UNPLAYED = frozenset({"crash", "play", "file"})
"""Kinds of failure of a case that could not be played."""
_LISTS = ("path", "calls", "not_applicable", "skipped")
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
    answers: tuple[AnswerRecord, ...] = ()
    """What became of the answers that agents were asked for."""
    skipped: tuple[str, ...] = ()
    """Steps that routing skipped."""

    @property
    def counted(self) -> bool:
        """False for a deprecated case, which is run and shown but does not count."""
        return self.deprecated is None

    @property
    def unplayed(self) -> bool:
        """True when the case could not be played, so that nothing is known about its agents."""
        return any(failure.kind in UNPLAYED for failure in self.failures)

    @property
    def agent_asked(self) -> bool:
        """True when an agent was asked; one that the case scripts does not count."""
        return any(answer.asked and not answer.scripted for answer in self.answers)

    @property
    def passed_alone(self) -> bool:
        """True when the case passed, an agent was asked, and no handler did an agent's part."""
        replaced = any(answer.by_handler and not answer.scripted for answer in self.answers)
        return self.passed and self.agent_asked and not replaced

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
        values["answers"] = [answer.to_plain() for answer in self.answers]
        values["passed_alone"] = self.passed_alone
        return values

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> CaseResult:
        """Read back what `to_plain` wrote."""
        values = {"skipped": (), "answers": (), **plain}  # reports of earlier versions have neither
        values.pop("passed_alone", None)
        values |= {name: tuple(values[name]) for name in _LISTS}
        values["answers"] = tuple(AnswerRecord.from_plain(answer) for answer in values["answers"])
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
    min_kept: float | None = None
    """Share of the answers asked for that must be kept; None: any."""

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
        return enough and not self.required_failed and not shaky and self.kept_enough

    @property
    def answers(self) -> AnswerCounts:
        """What became of the answers in the plays that count."""
        return AnswerCounts.of(self._answers())

    @property
    def answers_by_step(self) -> dict[str, AnswerCounts]:
        """The same for each step whose agent was asked, or was to be asked."""
        return by_step(self._answers())

    def _answers(self) -> Iterator[AnswerRecord]:
        return (answer for case in self.cases if case.counted for answer in case.answers)

    @property
    def agent_alone(self) -> AgentAlone:
        """What the agents come to without the handlers' help."""
        plays = [case for case in self.cases if case.counted]
        if not any(case.agent_asked for case in plays):
            counted = []
        else:
            counted = [case for case in plays if case.agent_asked or case.unplayed]
        others = [case for case in plays if not (case.agent_asked or case.unplayed)]
        scripted = [case.label for case in others if any(answer.scripted for answer in case.answers)]
        return AgentAlone(
            sum(case.passed_alone for case in counted),
            len(counted),
            tuple(case.label for case in others if case.label not in scripted),
            tuple(scripted),
        )

    @property
    def kept_enough(self) -> bool:
        """True when enough of the agents' answers were kept; false when a share is asked for and no agent
        was."""
        share = self.answers.share
        return self.min_kept is None or (share is not None and share >= self.min_kept)

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
            "min_kept": self.min_kept,
            "answers": {
                **self.answers.to_plain(),
                "by_step": {step: counts.to_plain() for step, counts in self.answers_by_step.items()},
            },
            "agent_alone": self.agent_alone.to_plain(),
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> EvalReport:
        """Read back what `to_plain` wrote."""
        try:
            plain = {"min_kept": None, **plain}  # reports of earlier versions do not have it
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
