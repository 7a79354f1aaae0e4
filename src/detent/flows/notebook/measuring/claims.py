"""Claims: what a reflection says, held against what was measured.

The measurement always decides. What is compared here only counts for or against whoever wrote the payload.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Literal, NamedTuple

from detent.flows.notebook.measuring.criteria import CriterionRefused, parse_criterion
from detent.flows.notebook.payloads.values import (
    ArtifactJudged,
    BehaviorReflection,
    CriterionJudged,
    Named,
    StageReflection,
)
from detent.flows.notebook.state.facts import CriterionFact

Kind = Literal[
    "artifact", "criterion", "decision", "execution", "goal", "progress", "variable", "deprecation"
]


class Mismatch(NamedTuple):
    """A claim that differs from the measurement."""

    kind: Kind
    item: str
    claimed: str
    measured: str


class ClaimReport(NamedTuple):
    """A payload's claims against the truth."""

    claims: int
    """Claims that could be compared."""
    mismatches: tuple[Mismatch, ...]
    unmatched: tuple[str, ...]
    """Claims about nothing that was measured; they count neither way."""

    @property
    def correct(self) -> int:
        """Claims that equal the measurement."""
        return self.claims - len(self.mismatches)


def compare_behavior(
    payload: BehaviorReflection,
    truth: BehaviorReflection,
    criteria: Iterable[CriterionFact],
    variables: Mapping[str, Any],
) -> ClaimReport:
    """A T5 against the one that the measurement writes; `variables` are the kernel's values as shown."""
    comparison = _Comparison()
    comparison.artifacts(payload.artifacts, {fact.name: fact.status for fact in truth.artifacts})
    comparison.criteria(payload.criteria, tuple(criteria))
    comparison.equal("decision", "current_step_is_complete", payload.step_is_complete, truth.step_is_complete)
    comparison.equal("execution", "code_execution", payload.code_execution, truth.code_execution)
    comparison.equal("goal", "goal_achievement", payload.goal_status, truth.goal_status)
    comparison.produced(payload.variables_produced, variables)
    return comparison.report()


def compare_stage(
    payload: StageReflection,
    truth: StageReflection,
    variables: Collection[str],
    required: Collection[str],
) -> ClaimReport:
    """A T6 against the one that the measurement writes; `required` are names that cannot be deprecated."""
    comparison = _Comparison()
    comparison.artifacts(payload.artifacts, {fact.name: fact.status for fact in truth.artifacts})
    comparison.equal("decision", "stage_is_complete", payload.stage_is_complete, truth.stage_is_complete)
    comparison.equal("progress", "step_status", payload.step_status, truth.step_status)
    comparison.equal("progress", "completed_steps", payload.completed_steps, truth.completed_steps)
    comparison.equal("progress", "remaining_steps", payload.remaining_steps, truth.remaining_steps)
    comparison.close("progress", "percentage", payload.percentage, truth.percentage, within=1.0)
    comparison.equal("goal", "goal_status", payload.goal_status, truth.goal_status)
    for retained in payload.variables.retain:
        comparison.equal(
            "variable", retained.name, "there", "there" if retained.name in variables else "missing"
        )
    for deprecated in payload.variables.deprecate:
        measured = "required" if deprecated.name in required else "not needed"
        comparison.equal("deprecation", deprecated.name, "not needed", measured)
    return comparison.report()


class _Comparison:
    """Counts claims and collects those that differ."""

    def __init__(self) -> None:
        self._claims = 0
        self._mismatches: list[Mismatch] = []
        self._unmatched: list[str] = []

    def equal(self, kind: Kind, item: str, claimed: Any, measured: Any) -> None:
        self._claims += 1
        if claimed != measured:
            self._mismatches.append(Mismatch(kind, item, _text(claimed), _text(measured)))

    def close(self, kind: Kind, item: str, claimed: float, measured: float, within: float) -> None:
        near = abs(claimed - measured) <= within
        self.equal(kind, item, measured if near else claimed, measured)

    def artifacts(self, claimed: Iterable[ArtifactJudged], measured: Mapping[str, str]) -> None:
        for artifact in claimed:
            if artifact.name in measured:
                self.equal("artifact", artifact.name, artifact.status, measured[artifact.name])
            else:
                self._unmatched.append(artifact.name)

    def criteria(self, claimed: tuple[CriterionJudged, ...], measured: tuple[CriterionFact, ...]) -> None:
        """By equal syntax tree; those left over by position if their counts are equal."""
        by_tree = {_tree(fact.text): fact for fact in measured}
        left = []
        matched = set()
        for claim in claimed:
            fact = by_tree.get(_tree(claim.text))
            if fact is None or fact.text in matched:
                left.append(claim)
                continue
            matched.add(fact.text)
            self.equal("criterion", fact.text, claim.status, _status(fact))
        open_facts = [fact for fact in measured if fact.text not in matched]
        if len(left) == len(open_facts):
            for claim, fact in zip(left, open_facts, strict=True):
                self.equal("criterion", fact.text, claim.status, _status(fact))
        else:
            self._unmatched.extend(claim.text for claim in left)

    def produced(self, claimed: Iterable[Named], variables: Mapping[str, Any]) -> None:
        """Names that exist, and values where they are numbers; a text may be a description."""
        for named in claimed:
            if named.name not in variables:
                self.equal("variable", named.name, named.text or "there", "missing")
            elif named.text and isinstance(variables[named.name], int | float):
                value = variables[named.name]
                same = _same_number(named.text, value)
                self.equal("variable", named.name, value if same else named.text, value)
            else:
                self.equal("variable", named.name, "there", "there")

    def report(self) -> ClaimReport:
        return ClaimReport(self._claims, tuple(self._mismatches), tuple(self._unmatched))


def _tree(text: str) -> str:
    """The syntax of a criterion; prose is only equal to itself."""
    try:
        return parse_criterion(text).tree
    except CriterionRefused:
        return " ".join(text.split())


def _status(fact: CriterionFact) -> str:
    return "passed" if fact.passed else "failed"


def _same_number(claimed: str, value: float) -> bool:
    text = claimed.strip()
    if isinstance(value, bool):
        return text.lower() == str(value).lower()
    try:
        return float(text.replace(",", "")) == float(value)
    except ValueError:
        return False


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)
