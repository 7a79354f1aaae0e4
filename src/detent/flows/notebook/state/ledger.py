"""What the guards must remember and the state JSON does not show: counters, looks back, superseded goals."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

from detent.flows.notebook.state.document import StateDocument, Step
from detent.flows.notebook.state.facts import CriterionFact, Facts, Verdict

_TEXTS = ("behavior_numbers", "locked", "locked_scores", "given_up", "missed", "missed_in")


@dataclass(frozen=True, slots=True)
class Failure:
    """How an iteration failed, to tell whether the next one fails alike."""

    all_there: bool
    """All outputs were produced."""
    criteria: Mapping[str, str]
    """Values of the criteria that failed, by their texts."""

    @classmethod
    def of(cls, verdict: Verdict) -> Self:
        """How a behavior's verdict failed."""
        return cls(verdict.all_there, {failed.text: failed.value for failed in verdict.failed})

    def is_consistent_with(self, earlier: Failure | None) -> bool:
        """Whether both iterations produced everything and failed on the same values."""
        return (
            earlier is not None
            and self.all_there
            and earlier.all_there
            and bool(self.criteria)
            and self.criteria == earlier.criteria
        )


@dataclass(frozen=True, slots=True)
class Ledger:
    """What a run remembers beside its document."""

    row: str | None = None
    """Row of the table by which the run came to where it is."""
    escalated: bool = False
    """The step that was just closed is escalated."""
    behavior_numbers: Mapping[str, int] = field(default_factory=dict)
    """Number of the last behavior of each step."""
    behaviors_since_entry: int = 0
    """Behaviors begun since the current step was entered."""
    last_failure: Failure | None = None
    """Of the current behavior's iteration before this one."""
    kernel_deaths: int = 0
    """In earlier iterations of the current behavior."""
    revised_stages: tuple[str, ...] = ()
    """Stages whose one revision is used up."""
    backtracked: tuple[str, ...] = ()
    """Variables that were gone back for."""
    locked: Mapping[str, bool] = field(default_factory=dict)
    """Last verdict on each locked threshold that was judged."""
    locked_scores: Mapping[str, str] = field(default_factory=dict)
    """The score on which that verdict rests, or why there is none."""
    given_up: Mapping[str, str] = field(default_factory=dict)
    """Criteria of the behavior that was just given up, with what was measured; all else of it is there."""
    missed: Mapping[str, str] = field(default_factory=dict)
    """Criteria beside the locked ones without which the run has gone on, with what was measured."""
    missed_in: Mapping[str, str] = field(default_factory=dict)
    """The step in which each of them was missed."""
    earlier_goals: tuple[str, ...] = ()
    """Earlier goal texts of the current stage whose criteria still count."""
    closed_steps: Mapping[str, tuple[Step, ...]] = field(default_factory=dict)
    """Steps that stand of each stage that was closed or is taken up again."""

    @classmethod
    def of_document(cls, document: StateDocument) -> Self:
        """What a document of another origin tells of its past."""
        behaviors = [*document.behaviors.completed]
        if document.behaviors.current is not None:
            behaviors.append(document.behaviors.current)
        numbers: dict[str, int] = {}
        for behavior in behaviors:
            step_id, number = split_behavior_id(behavior.behavior_id)
            numbers[step_id] = max(number, numbers.get(step_id, 0))
        step = document.steps.current
        return cls(
            escalated=step is not None and step.completion_status == "failed",
            behavior_numbers=numbers,
            behaviors_since_entry=numbers.get(step.step_id, 0) if step is not None else 0,
        )

    @property
    def all_met(self) -> bool:
        """No locked threshold was missed, and the run has gone on without no other criterion."""
        return all(self.locked.values()) and not self.missed

    def judged(self, facts: Facts) -> Self:
        """With the verdicts that the facts bring on locked thresholds, and on what was missed before."""
        criteria = [
            criterion
            for verdict in (facts.behavior, facts.step, facts.stage)
            for criterion in verdict.criteria
        ]
        judged = [criterion for criterion in criteria if criterion.locked]
        met = {criterion.text for criterion in criteria if criterion.passed}
        now = {criterion.text: criterion.measured for criterion in criteria if criterion.bearable}
        missed = {text: now.get(text, value) for text, value in self.missed.items() if text not in met}
        if not judged and missed == self.missed:
            return self
        return replace(
            self,
            missed=missed,
            missed_in={text: self.missed_in[text] for text in missed},
            locked={**self.locked, **_verdicts(judged)},
            locked_scores={**self.locked_scores, **{criterion.text: criterion.value for criterion in judged}},
        )

    def without(self, facts: Facts, step_id: str) -> Self:
        """With what the run goes on without, or ends without, when it leaves a step."""
        verdicts = (facts.step, facts.stage)
        left_out = {**self.given_up} | {
            failed.text: failed.measured
            for verdict in verdicts
            for failed in verdict.failed
            if failed.bearable and not failed.locked
        }
        return replace(
            self,
            missed={**self.missed, **left_out},
            missed_in={**dict.fromkeys(left_out, step_id), **self.missed_in},
        )

    def superseded(self, kept: Collection[str]) -> Self:
        """With what was missed in steps that stand; the others are done again."""
        missed = {text: value for text, value in self.missed.items() if self.missed_in[text] in kept}
        return replace(self, missed=missed, missed_in={text: self.missed_in[text] for text in missed})

    def to_plain(self) -> dict[str, Any]:
        """As plain JSON values."""
        plain: dict[str, Any] = {item.name: getattr(self, item.name) for item in fields(self)}
        failure = self.last_failure
        plain["last_failure"] = failure and {
            "all_there": failure.all_there,
            "criteria": dict(failure.criteria),
        }
        plain["closed_steps"] = {
            stage_id: [step.model_dump(mode="json") for step in steps]
            for stage_id, steps in self.closed_steps.items()
        }
        for name in _TEXTS:
            plain[name] = dict(plain[name])
        for name in ("revised_stages", "backtracked", "earlier_goals"):
            plain[name] = list(plain[name])
        return plain

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Self:
        """Read back what `to_plain` wrote."""
        values = dict(plain)
        failure = values.get("last_failure")
        values["last_failure"] = None if failure is None else Failure(**failure)
        values["closed_steps"] = {
            stage_id: tuple(Step.model_validate(step) for step in steps)
            for stage_id, steps in values.get("closed_steps", {}).items()
        }
        for name in ("revised_stages", "backtracked", "earlier_goals"):
            values[name] = tuple(values.get(name, ()))
        return cls(**values)


def split_behavior_id(behavior_id: str) -> tuple[str, int]:
    """The step and the number of a behavior's id."""
    match = re.fullmatch(r"(.+)_b([1-9][0-9]*)", behavior_id)
    if match is None:
        raise ValueError(f"'{behavior_id}' is no behavior id: it must be <step_id>_b<n>.")
    return match[1], int(match[2])


@dataclass(frozen=True, slots=True)
class RunState:
    """The state of a run between two transitions: the document, and what the guards remember."""

    document: StateDocument
    ledger: Ledger = Ledger()

    @classmethod
    def of_document(cls, document: StateDocument) -> Self:
        """The state of a run that begins with a document of another origin."""
        return cls(document, Ledger.of_document(document))

    @property
    def next_behavior_id(self) -> str:
        """Id of the next behavior of the current step."""
        step = self.document.steps.current
        if step is None:
            raise ValueError("No step is current, so no behavior can follow.")
        return f"{step.step_id}_b{self.ledger.behavior_numbers.get(step.step_id, 0) + 1}"


def _verdicts(judged: Iterable[CriterionFact]) -> dict[str, bool]:
    """The verdict on each text; one that was judged twice is met if it was met each time."""
    verdicts: dict[str, bool] = {}
    for criterion in judged:
        verdicts[criterion.text] = verdicts.get(criterion.text, True) and criterion.passed
    return verdicts
