"""Variables of the notebook: their versions, what is kept, what may go, and what is missing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from detent.adapters.jupyter.cell_result import VariableInfo
from detent.flows.notebook.measuring.artifacts import is_file
from detent.flows.notebook.measuring.criteria import Criterion
from detent.flows.notebook.payloads.values import (
    Deprecated,
    Extracted,
    Gap,
    Quality,
    Retained,
    VariableManagement,
)
from detent.flows.notebook.state.document import Stage, StateDocument, Step
from detent.flows.notebook.state.facts import ArtifactFact, GapFact
from detent.flows.notebook.state.variables import USER_INPUTS
from detent.kernel.plain import encode

LONGEST_VALUE = 2000
"""Characters of a value's JSON that the state shows; of a longer one it shows a description."""


@dataclass(frozen=True, slots=True)
class VariableRecord:
    """One production of a variable or file, as the journal keeps it."""

    name: str
    version: int
    """1, and one more at each production."""
    type: str = ""
    shape: tuple[int, ...] | None = None
    sha256: str | None = None
    behavior_id: str = ""
    iteration: int = 1
    cell_id: str = ""

    @property
    def artifact_id(self) -> str:
        """Such as `final_model@2`."""
        return f"{self.name}@{self.version}"


class Production(NamedTuple):
    """Where a name was assigned."""

    behavior_id: str
    iteration: int
    cell_id: str


def record(
    records: Mapping[str, VariableRecord],
    found: Mapping[str, VariableInfo],
    produced: Mapping[str, Production],
) -> dict[str, VariableRecord]:
    """New records of the names that were produced and exist: each the next version of its name."""
    made = {}
    for name, production in produced.items():
        info = found.get(name)
        if info is None or not info.exists:
            continue
        version = records[name].version + 1 if name in records else 1
        made[name] = VariableRecord(name, version, info.type, info.shape, info.sha256, *production)
    return made


def shown_value(name: str, info: VariableInfo | None = None) -> Any:
    """A variable's value as the state shows it: plain JSON if it is short, else one line about it.

    A file artifact is shown as its path.
    """
    if is_file(name) or info is None:
        return name
    if info.is_none:
        return None
    if info.json is not None and len(encode(info.json)) <= LONGEST_VALUE:
        return info.json
    if info.shape:
        return f"{info.type} {' x '.join(map(str, info.shape))}"
    if info.size is not None:
        return f"{info.type} of {info.size}"
    return info.type or "value"


# -- variable management of T6 ------------------------------------------------------------------------------


class Producer(NamedTuple):
    """The step that produces a variable."""

    stage_id: str
    step_id: str


NO_PRODUCER = "no step is known to produce it"


@dataclass(frozen=True, slots=True)
class VariableFacts:
    """What variable management looks at, after a step is closed."""

    document: StateDocument
    found: Mapping[str, VariableInfo]
    """What the kernel has."""
    sources: Mapping[str, str]
    """Names assigned in accepted cells, with the cell that assigned them last."""
    artifacts: Sequence[ArtifactFact] = ()
    criteria: Sequence[Criterion] = ()
    """All criteria so far."""
    producers: Mapping[str, Producer] = field(default_factory=dict)
    """Of the catalogue and of the steps planned so far."""
    replacements: Mapping[str, str] = field(default_factory=dict)
    """Names that another one has taken the place of."""
    weak: Collection[str] = ()
    """Names that are there, and measured too weak for a locked threshold."""


def manage_variables(facts: VariableFacts, gaps: Sequence[GapFact]) -> VariableManagement:
    """The four lists of a T6: what was extracted, what is kept, what may go, what is missing."""
    uses = future_uses(facts.document)
    return VariableManagement(
        extracted=tuple(_extracted(facts)),
        retain=tuple(Retained(name, use) for name, use in uses.items() if name in facts.document.variables),
        deprecate=tuple(_deprecated(facts, uses)),
        gaps=tuple(
            Gap(
                gap.name,
                gap.needed_for,
                "critical" if gap.critical else "important",
                how_to_obtain(facts, gap),
            )
            for gap in gaps
        ),
    )


def future_uses(document: StateDocument) -> dict[str, str]:
    """Names that remaining steps and stages require, each with its next use."""
    uses: dict[str, str] = {}
    for item in _upcoming(document):
        where = item.step_id if isinstance(item, Step) else item.stage_id
        for name in item.required_variables or ():
            uses.setdefault(name, where)
    return uses


def _upcoming(document: StateDocument) -> list[Step | Stage]:
    """The remaining steps of the stage, then the remaining stages."""
    return [*document.steps.remaining, *document.stages.remaining]


def _extracted(facts: VariableFacts) -> Iterable[Extracted]:
    statuses = {artifact.name: artifact.status for artifact in facts.artifacts}
    for name, cell in facts.sources.items():
        info = facts.found.get(name)
        if info is None or not info.exists:
            continue
        quality: Quality = "complete"
        if statuses.get(name) == "incomplete":
            quality = "partial"
        elif not any(criterion.mentions(name) for criterion in facts.criteria):
            quality = "needs_validation"
        yield Extracted(name, info.type, cell, str(shown_value(name, replace(info, json=None))), quality)


def _deprecated(facts: VariableFacts, uses: Mapping[str, str]) -> Iterable[Deprecated]:
    """Names that are not needed and that another one has taken the place of."""
    for name, replacement in facts.replacements.items():
        there = name in facts.document.variables and replacement in facts.document.variables
        if there and name not in USER_INPUTS and name not in uses:
            yield Deprecated(name, replacement, safe=True)


def judged_deprecations(claimed: Iterable[Deprecated], document: StateDocument) -> tuple[Deprecated, ...]:
    """Deprecations that a payload asks for, with whether they are safe; the user's inputs never are."""
    required = {*USER_INPUTS, *future_uses(document)}
    return tuple(replace(asked, safe=asked.name not in required) for asked in claimed)


# -- gaps ---------------------------------------------------------------------------------------------------


def find_gaps(facts: VariableFacts) -> tuple[GapFact, ...]:
    """What is required and not there, what comes next first; then what is too weak for a locked threshold.

    A name that a step or stage planned before its use will produce is no gap.
    """
    document = facts.document
    promised: set[str] = set()
    gaps: dict[str, GapFact] = {}
    for index, item in enumerate(_upcoming(document)):
        where = item.step_id if isinstance(item, Step) else item.stage_id
        for name in item.required_variables or ():
            if name not in document.variables and name not in promised and name not in gaps:
                gaps[name] = _gap(facts, name, where, critical=index == 0)
        promised.update(item.verified_artifacts or ())
    for name in facts.weak:
        gaps[name] = replace(_gap(facts, name, "a locked threshold", critical=True), weak=True)
    return tuple(gaps.values())


def _gap(facts: VariableFacts, name: str, needed_for: str, critical: bool) -> GapFact:
    producer = facts.producers.get(name)
    if producer is None:
        return GapFact(name, needed_for, critical)
    return GapFact(name, needed_for, critical, producer.stage_id, producer.step_id)


def how_to_obtain(facts: VariableFacts, gap: GapFact) -> str:
    """`backtrack:<step_id>`, or that no step is known to produce it: then a critical gap ends the run."""
    if gap.producer_step is not None:
        return f"backtrack:{gap.producer_step}"
    return NO_PRODUCER
