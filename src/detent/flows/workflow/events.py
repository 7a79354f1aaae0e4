"""Events of a running workflow: frozen values, emitted after their journal entries are committed.

`EventObserver` turns journal entries into events. Validation and preflight happen before there is a journal;
their callers emit those events.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal

from detent.dispatch.executor import AgentStreamChunk
from detent.engine.context import OUTPUT
from detent.flows.workflow.results import StepResult, milliseconds, results_of
from detent.flows.workflow.run_data import FAILURE, INDEX, INPUTS, ITEM, TOTAL
from detent.flows.workflow.spec import (
    CANCELLED,
    FAILED,
    ROLLING_BACK,
    START,
    SUCCEEDED,
    CheckpointStep,
)
from detent.insight.agent_text import performer_words
from detent.insight.formatting import short
from detent.kernel.entries import Ended, Entry, Moved, Noted, Recorded, Started
from detent.kernel.run import Run

if TYPE_CHECKING:
    from detent.authoring.problem import Problem
    from detent.engine.flow import Flow

Level = Literal["info", "success", "warning", "error"]
LABELS = ("label", "name", "title", "phase", "id")
LONGEST_LABEL = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Base class of the events."""

    timestamp: float
    """Seconds since the epoch."""
    run_id: str = ""
    step_path: str = ""

    def to_plain(self) -> dict[str, Any]:
        """As JSON values, with the kind of event."""
        return {
            "event": type(self).__name__,
            **{field_.name: getattr(self, field_.name) for field_ in fields(self)},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationStarted(Event):
    """The file is about to be checked."""

    workflow_name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationCompleted(Event):
    """The file has no errors."""

    warnings_count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationFailed(Event):
    """The file cannot be run."""

    errors: tuple[Problem, ...] = ()

    def to_plain(self) -> dict[str, Any]:
        """As JSON values, with the kind of event."""
        return {
            "event": "ValidationFailed", "timestamp": self.timestamp, "run_id": self.run_id,
            "step_path": self.step_path, "errors": [problem.to_plain() for problem in self.errors],
        }  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightStarted(Event):
    """Prerequisites are about to be checked."""

    prerequisites: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightCheckPassed(Event):
    """One prerequisite is met."""

    name: str
    display_name: str = ""
    duration_ms: float = 0.0
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightCheckFailed(Event):
    """One prerequisite is missing."""

    name: str
    display_name: str = ""
    duration_ms: float = 0.0
    message: str = ""
    remediation: str = ""
    affected_steps: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightCompleted(Event):
    """All prerequisites have been checked."""

    success: bool
    total_duration_ms: float = 0.0
    passed_count: int = 0
    failed_count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowStarted(Event):
    """A run of a workflow began. Its inputs hold marks in place of secrets."""

    workflow_name: str
    inputs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowCompleted(Event):
    """A run of a workflow ended."""

    workflow_name: str
    success: bool
    total_duration_ms: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStarted(Event):
    """A step began."""

    step_name: str
    step_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCompleted(Event):
    """A step succeeded, was skipped, or failed."""

    step_name: str
    step_type: str
    success: bool
    skipped: bool = False
    duration_ms: float = 0.0
    error: str | None = None
    performed_by: str = ""
    """The agent, or why the handler took its place; empty where no agent was to perform the step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutput(Event):
    """A step wrote a message."""

    step_name: str
    message: str
    level: Level = "info"
    source: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentText(Event):
    """A piece of an agent's text, while it is being written; never journaled."""

    step_name: str
    chunk: AgentStreamChunk

    def to_plain(self) -> dict[str, Any]:
        """As JSON values, with the kind of event."""
        return {
            "event": "AgentStreamChunk", "timestamp": self.timestamp, "run_id": self.run_id,
            "step_path": self.step_path, "step_name": self.step_name, "agent_name": self.chunk.agent_name,
            "text": self.chunk.text, "chunk_type": self.chunk.chunk_type,
        }  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopIterationStarted(Event):
    """An iteration of a loop began."""

    iteration_index: int
    total_iterations: int | None
    """None if the number is not known in advance."""
    item_label: str
    parent_step_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopIterationCompleted(Event):
    """An iteration of a loop ended."""

    iteration_index: int
    parent_step_name: str
    success: bool
    duration_ms: float = 0.0
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopConditionChecked(Event):
    """A loop's `until` was evaluated."""

    step_name: str
    iteration_index: int
    condition_met: bool
    condition_value: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSaved(Event):
    """A checkpoint was saved; a run can be forked from it."""

    checkpoint_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackStarted(Event):
    """The rollback of a step began."""

    step_name: str
    action: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackCompleted(Event):
    """The rollback of a step succeeded or failed."""

    step_name: str
    action: str
    success: bool
    error: str | None = None


Listener = Callable[[Event], None]


def tell(listener: Listener | None, kind: type[Event], **facts: Any) -> None:
    """Send a listener an event from before the run exists."""
    if listener is not None:
        listener(kind(timestamp=time.time(), **facts))


def label_of(item: Any, index: int) -> str:
    """Return a label for an item: its label, name, title, phase or id; else its text; else its number."""
    if isinstance(item, Mapping):
        for key in LABELS:
            if isinstance(item.get(key), str | int) and str(item[key]).strip():
                return short(str(item[key]), LONGEST_LABEL)
        return f"Item {index + 1}"
    if isinstance(item, str | int | float) and str(item).strip():
        return short(str(item), LONGEST_LABEL)
    return f"Item {index + 1}"


class EventObserver:
    """An observer that turns journal entries of workflows into events for a listener."""

    def __init__(self, listener: Listener, flows: Mapping[str, Flow]) -> None:
        self._listener = listener
        self._flows = flows

    def on_run_entry(self, run: Run, entry: Entry) -> None:
        """Emit the events of an entry, if it belongs to a workflow's run."""
        flow = self._flows.get(run.flow)
        if flow is None or flow.scope.split("/")[0] != "workflow":
            return
        specs = getattr(flow, "specs", None)
        if specs is None:
            self._undone(run, entry, flow)
            return
        body = entry.body
        if type(body) is Started:
            self._started(run, entry, flow)
        elif type(body) is Moved:
            self._moved(run, entry, body, flow)
        elif type(body) is Noted and body.topic == OUTPUT:
            output = body.body
            path = output["source"]
            self._emit(
                StepOutput, run, entry, path, step_name=path.rpartition("/")[2], message=output["message"],
                level=output["level"], source=path, metadata=output.get("metadata", {}),
            )  # fmt: skip
        elif type(body) is Recorded:
            self._recorded(run, entry, body, flow)
        elif type(body) is Ended:  # for example out of budget, for which the machine has no end state
            self._ended(run, entry, flow, body.status.value, body.reason)

    def on_run_stream(self, run: Run, step: str, chunk: AgentStreamChunk) -> None:
        """Emit a piece of an agent's text."""
        flow = self._flows.get(run.flow)
        if flow is None or not hasattr(flow, "specs"):
            return
        path = self._path(run, flow.step_named(run.state, step).metadata["path"])
        self._listener(
            AgentText(
                timestamp=chunk.timestamp, run_id=run.id, step_path=path, step_name=step, chunk=chunk
            )
        )  # fmt: skip

    # -- entries --------------------------------------------------------------------------------------------

    def _started(self, run: Run, entry: Entry, flow: Flow) -> None:
        if _is_file(flow):
            self._emit(
                WorkflowStarted, run, entry, self._prefix(run), workflow_name=flow.name,
                inputs=dict(run.whole.get(INPUTS) or {}),
            )  # fmt: skip
        elif (loop := flow.loop) is not None:  # type: ignore[attr-defined]
            index = run.data[INDEX]
            label = label_of(run.data[ITEM] if loop.has_for_each else None, index)
            self._emit(
                LoopIterationStarted, run, entry, self._prefix(run), iteration_index=index,
                total_iterations=run.data.get(TOTAL), item_label=label, parent_step_name=loop.name,
            )  # fmt: skip
        self._begun(run, entry, flow, run.state)

    def _begun(self, run: Run, entry: Entry, flow: Flow, state: str) -> None:
        spec = flow.specs.get(state)  # type: ignore[attr-defined]
        if spec is not None:
            path = self._path(run, flow.step_for(state).metadata["path"])
            self._emit(StepStarted, run, entry, path, step_name=state, step_type=spec.type.value)

    def _moved(self, run: Run, entry: Entry, body: Moved, flow: Flow) -> None:
        spec = flow.specs.get(body.frm)  # type: ignore[attr-defined]
        if spec is not None:
            for step, result in results_of(body, spec, run):
                if isinstance(step, CheckpointStep) and result.status == "ok":
                    saved = result.output["checkpoint_id"]
                    self._emit(CheckpointSaved, run, entry, result.path, checkpoint_id=saved)
                self._done(run, entry, result, body.spend.tokens)
        if body.to in (SUCCEEDED, FAILED, CANCELLED):
            self._ended(run, entry, flow, body.to, body.reason)
        elif body.to != ROLLING_BACK:
            self._begun(run, entry, flow, body.to)

    def _done(self, run: Run, entry: Entry, result: StepResult, tokens: int) -> None:
        self._emit(
            StepCompleted, run, entry, result.path, step_name=result.name, step_type=result.step_type,
            success=result.success, skipped=result.status == "skipped", duration_ms=result.duration_ms,
            error=result.error, performed_by=performer_words(result.dispatch, tokens),
        )  # fmt: skip

    def _ended(self, run: Run, entry: Entry, flow: Flow, end: str, reason: str | None) -> None:
        success = end == SUCCEEDED
        duration = milliseconds(entry.at - run.created_at)
        if _is_file(flow):
            self._emit(
                WorkflowCompleted, run, entry, self._prefix(run), workflow_name=flow.name, success=success,
                total_duration_ms=duration,
            )  # fmt: skip
        elif (loop := flow.loop) is not None:  # type: ignore[attr-defined]
            failure = run.data.get(FAILURE) or {}
            self._emit(
                LoopIterationCompleted, run, entry, self._prefix(run), iteration_index=run.data[INDEX],
                parent_step_name=loop.name, success=success, duration_ms=duration,
                error=None if success else str(failure.get("error") or reason or end),
            )  # fmt: skip

    def _recorded(self, run: Run, entry: Entry, body: Recorded, flow: Flow) -> None:
        """A loop or branch recorded a value; values recorded by an action are ignored."""
        kind, _, rest = body.key.partition("/")
        name, _, index = rest.partition("/")
        step = flow.step_named(run.state, name)
        if step.name != name:
            return
        if kind == "until" and step.metadata["type"] == "loop":
            met, value = body.value
            self._emit(
                LoopConditionChecked, run, entry, self._path(run, step.metadata["path"]), step_name=name,
                iteration_index=int(index), condition_met=met, condition_value=value,
            )  # fmt: skip
        elif kind == "branch" and step.instead and body.value is not None:
            inner = step.instead[body.value]
            self._emit(
                StepStarted, run, entry, self._path(run, inner.metadata["path"]), step_name=inner.name,
                step_type=inner.metadata["type"],
            )  # fmt: skip

    def _undone(self, run: Run, entry: Entry, flow: Flow) -> None:
        """The run of a rollback began or ended."""
        body = entry.body
        action = flow.step_for("undo").metadata["action"]
        step = self._prefix(run)
        if type(body) is Started:
            self._emit(RollbackStarted, run, entry, step, step_name=step, action=action)
        elif type(body) is Moved:
            success = body.to == SUCCEEDED
            failure = run.data.get(FAILURE) or {}
            self._emit(
                RollbackCompleted, run, entry, step, step_name=step, action=action, success=success,
                error=None if success else str(failure.get("error") or body.reason),
            )  # fmt: skip

    # -- emitting -------------------------------------------------------------------------------------------

    def _prefix(self, run: Run) -> str:
        return str(run.config.get("path") or "")

    def _path(self, run: Run, relative: str) -> str:
        above = self._prefix(run)
        return f"{above}/{relative}" if above else relative

    def _emit(self, kind: type[Event], run: Run, entry: Entry, path: str, **facts: Any) -> None:
        self._listener(kind(timestamp=entry.at, run_id=run.id, step_path=path, **facts))


def _is_file(flow: Flow) -> bool:
    return bool(flow.machine.start == START)
