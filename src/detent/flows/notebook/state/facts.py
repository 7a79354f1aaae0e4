"""The facts on which a transition rests: what was measured, or what a payload claims where nothing can be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from detent.flows.notebook.payloads.values import ArtifactStatus
from detent.flows.notebook.state.document import NotebookSummary

Shortcoming = Literal["", "absent", "stale", "none", "empty", "criterion"]


@dataclass(frozen=True, slots=True)
class ArtifactFact:
    """An artifact as it was found."""

    name: str
    status: ArtifactStatus
    shortcoming: Shortcoming = ""
    """Why it is not complete; `criterion`: it is there, and a criterion that names it failed."""

    @property
    def is_there(self) -> bool:
        """Whether it was produced; a criterion may still have failed on it."""
        return self.status == "complete" or self.shortcoming == "criterion"


@dataclass(frozen=True, slots=True)
class CriterionFact:
    """A criterion as it was judged."""

    text: str
    passed: bool
    value: str = ""
    """The value of the expression, or its error."""
    locked: bool = False
    """It is a threshold of the user's, or the rule that stands for one."""
    final: bool = False
    """It failed on a model that this behavior does not make: another iteration would measure the same."""
    bearable: bool = False
    """It was measured where a model is there: if it is missed, the work goes on with that model."""
    figure: str = ""
    """What it compares, as measured; "" where it compares nothing."""

    @property
    def measured(self) -> str:
        """The figure, or the value where there is none; a number in four digits."""
        try:
            return f"{float(self.figure):,.4g}"
        except ValueError:
            return self.figure or self.value


@dataclass(frozen=True, slots=True)
class Verdict:
    """Artifacts and criteria of a behavior, a step or a stage."""

    artifacts: tuple[ArtifactFact, ...] = ()
    criteria: tuple[CriterionFact, ...] = ()

    @property
    def produced(self) -> tuple[str, ...]:
        """Names of complete artifacts."""
        return tuple(artifact.name for artifact in self.artifacts if artifact.status == "complete")

    @property
    def in_progress(self) -> tuple[str, ...]:
        """Names of artifacts that are there in part."""
        return tuple(artifact.name for artifact in self.artifacts if artifact.status == "incomplete")

    @property
    def failed(self) -> tuple[CriterionFact, ...]:
        """Criteria that failed."""
        return tuple(criterion for criterion in self.criteria if not criterion.passed)

    @property
    def complete(self) -> bool:
        """All artifacts are complete and all criteria passed."""
        return all(artifact.status == "complete" for artifact in self.artifacts) and not self.failed

    @property
    def all_there(self) -> bool:
        """All artifacts were produced, whatever the criteria say."""
        return all(artifact.is_there for artifact in self.artifacts)


@dataclass(frozen=True, slots=True)
class GapFact:
    """A variable that is needed and not there, or measured too weak."""

    name: str
    needed_for: str
    critical: bool
    producer_stage: str | None = None
    producer_step: str | None = None
    """None where nobody is known to produce it."""
    weak: bool = False
    """It is there, and too weak for a locked threshold."""
    spent: bool = False
    """Its producer has tried all it has: to go back would give the same."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known when a transition is made."""

    at: str
    """The moment, as ISO 8601 with its zone."""
    measured: bool = True
    """False where they are claims of a payload."""
    outputs: tuple[tuple[str, ...], ...] = ()
    """Texts of the outputs of each executed cell that the document does not hold yet, in order."""
    variables: Mapping[str, Any] = field(default_factory=dict)
    """Values to set, as the state shows them."""
    dropped_variables: tuple[str, ...] = ()
    """Names that are gone from the kernel: of an attempt that was dropped, or superseded."""
    notebook: NotebookSummary | None = None
    """The notebook after the transition; None has it derived from the payload."""
    raised: bool = False
    """A cell of the last iteration raised, timed out or died."""
    died: bool = False
    """The kernel died in it."""
    behavior: Verdict = Verdict()
    step: Verdict = Verdict()
    stage: Verdict = Verdict()
    gaps: tuple[GapFact, ...] = ()
    """Variables that are needed and missing, or too weak."""
    revision_offered: bool = False
    """A revision of the stage is offered that differs from what was tried."""
    reexecuted: bool | None = None
    """Whether the clean re-execution passed; None if it was switched off."""
    feedback: str = ""
    """For a retry: what failed."""
