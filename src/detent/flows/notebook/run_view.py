"""A run's data, read: the problem, the state, the cells, and what was measured last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from detent.flows.notebook.cells import Cell, all_cells, attempt_name, base_of, live_cells
from detent.flows.notebook.domain.problem import ProblemReading
from detent.flows.notebook.state.deltas import from_data
from detent.flows.notebook.state.document import Behavior, Stage, StateDocument, Step
from detent.flows.notebook.state.ledger import RunState

T = TypeVar("T")

PROBLEM = "problem"
READING = "reading"
WORK = "work"
OPTIONS = "options"
MEASURED = "measured"
"""Key: what was looked at after the last round."""
PENDING = "pending"
"""Key: a reflection whose move waits for a plan."""
FINGERPRINT = "fingerprint"
"""Key: the digest of the table when it was first read."""
VERIFIED = "verified"
"""Key: whether the finished notebook gave equal results again, and where those outputs are kept."""
CHECKS = "checks"
"""Key: what must hold again after the cells of each accepted attempt, appended."""
WHY_FAILED = "why_failed"
"""Key: the reason of a run that failed by its table."""
ATTEMPTS = "attempts"
"""Key: how each attempt ended, appended."""
METRICS = "metrics"
"""Key: what each transition adds to the figures, appended."""
LOG = "log"
"""Key: payloads, claims and repairs, appended, one line for each decision."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What one run adds to the settings."""

    report: bool = True
    """Whether the last stage, which communicates the results, is done."""
    verify: bool = True
    profile: str = "compact"
    title: str = ""
    out: str | None = None
    """Where the notebook is written; None: nowhere unless somebody asks."""
    trace: str | None = None
    """The folder that every transition is written to as the run goes."""


class NotebookRun:
    """The data of a run at one moment."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values

    @cached_property
    def reading(self) -> ProblemReading:
        """The problem as it was read when the run began."""
        from pydantic import TypeAdapter

        return TypeAdapter(ProblemReading).validate_python(self.values[READING])

    @cached_property
    def options(self) -> RunOptions:
        """The options of the run."""
        return RunOptions(**self.values.get(OPTIONS, {}))

    @cached_property
    def state(self) -> RunState:
        """The state document, and what the guards remember."""
        return from_data(self.values)

    @property
    def document(self) -> StateDocument:
        """The state document."""
        return self.state.document

    @property
    def work(self) -> Path:
        """The work folder."""
        return Path(str(self.values[WORK]))

    @property
    def measured(self) -> Mapping[str, Any]:
        """What was looked at after the last round."""
        measured: Mapping[str, Any] = self.values.get(MEASURED) or {}
        return measured

    # -- where it stands ------------------------------------------------------------------------------------

    @property
    def stage(self) -> Stage:
        """The current stage."""
        return _there(self.document.stages.current, "stage")

    @property
    def step(self) -> Step:
        """The current step."""
        return _there(self.document.steps.current, "step")

    @property
    def behavior(self) -> Behavior:
        """The current behavior."""
        return _there(self.document.behaviors.current, "behavior")

    @property
    def iteration(self) -> int:
        """The iteration of the current behavior."""
        return self.document.location.behavior_iteration or 1

    @property
    def attempt(self) -> str:
        """The name of the current iteration."""
        return attempt_name(self.behavior.behavior_id, self.iteration)

    # -- cells ----------------------------------------------------------------------------------------------

    @cached_property
    def cells(self) -> list[Cell]:
        """All cells, failed attempts included."""
        return all_cells(self.values)

    @property
    def live(self) -> list[Cell]:
        """The cells of the notebook so far."""
        return live_cells(self.values)

    @property
    def live_with_attempt(self) -> list[Cell]:
        """The cells of the notebook, with those of the attempt under way."""
        return live_cells(self.values, attempt=self.attempt)

    @property
    def base(self) -> list[str]:
        """The attempts that the kernel has to hold."""
        return base_of(self.values)

    def attempts(self) -> Sequence[Mapping[str, Any]]:
        """How each attempt ended."""
        attempts: Sequence[Mapping[str, Any]] = self.values.get(ATTEMPTS, ())
        return attempts


def _there(value: T | None, what: str) -> T:
    if value is None:
        raise LookupError(f"No {what} is current.")
    return value
