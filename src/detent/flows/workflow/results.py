"""What a run of a workflow came to, as its journals tell it: each step, and the whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from detent.flows.workflow.errors import RollbackError
from detent.flows.workflow.scope import FAILURE, OK, RESULT, ROLLBACK_ERRORS, SKIPPED, key_of
from detent.kernel.entries import Moved
from detent.kernel.status import Status

if TYPE_CHECKING:
    from detent.engine.engine import Engine
    from detent.engine.lineage import Past

FAILED = "failed"


@dataclass(frozen=True, slots=True)
class StepResult:
    """How one step went."""

    name: str
    step_type: str
    path: str
    """Where it stands, such as `load/[0]/upsert`."""
    status: Literal["ok", "skipped", "failed"]
    output: Any = None
    duration_ms: float = 0.0
    error: str | None = None
    dispatch: Mapping[str, Any] = field(default_factory=dict)
    """Who performed it, and why."""

    def __post_init__(self) -> None:
        if (self.status == FAILED) != bool(self.error):
            raise ValueError(f"Step '{self.name}': a failure has an error, and nothing else has one.")

    @property
    def success(self) -> bool:
        """It did not fail."""
        return self.status != FAILED

    def to_plain(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "name": self.name, "step_type": self.step_type, "path": self.path, "status": self.status,
            "success": self.success, "output": self.output, "duration_ms": self.duration_ms,
            "error": self.error, "dispatch": dict(self.dispatch),
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class WorkflowResult:
    """How a whole run went."""

    workflow_name: str
    run_id: str
    status: Status
    step_results: tuple[StepResult, ...]
    """In the order in which the steps were completed, those inside loops and subworkflows included."""
    total_duration_ms: float
    final_output: Any = None
    rollback_errors: tuple[RollbackError, ...] = ()
    error: str | None = None

    @property
    def success(self) -> bool:
        """It came to its good end."""
        return self.status is Status.SUCCEEDED

    def to_plain(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "workflow_name": self.workflow_name, "run_id": self.run_id, "status": self.status.value,
            "success": self.success, "error": self.error, "final_output": self.final_output,
            "total_duration_ms": self.total_duration_ms,
            "rollback_errors": [
                {"step_name": one.step_name, "error": one.error} for one in self.rollback_errors
            ],
            "step_results": [one.to_plain() for one in self.step_results],
        }  # fmt: skip


def milliseconds(seconds: float) -> float:
    """As results and events give times."""
    return round(seconds * 1000, 3)


def steps_of(past: Past) -> list[tuple[float, StepResult]]:
    """The steps of one run with the times at which they were completed."""
    specs = getattr(past.flow, "specs", None)
    if specs is None:  # a rollback
        return []
    prefix = past.run.config.get("path")
    found: list[tuple[float, StepResult]] = []
    for entry in past.moves:
        body = entry.body
        assert isinstance(body, Moved)
        spec = specs.get(body.frm)
        if spec is None:
            continue
        path = past.flow.step_for(body.frm).metadata["path"]
        path = f"{prefix}/{path}" if prefix else path
        found.append((entry.at, result_of(body, spec.type.value, path, past.run.data)))
    return found


def result_of(body: Moved, step_type: str, path: str, data: Mapping[str, Any]) -> StepResult:
    """How a step went that a move has left."""
    said = body.set.get(key_of(body.frm))
    duration = milliseconds(body.duration)
    if said is None:
        failure = body.set.get(FAILURE) or data.get(FAILURE) or {}
        cancelled = body.status is Status.CANCELLED
        error = str(failure.get("error") or body.reason or ("cancelled" if cancelled else "failed"))
        return StepResult(body.frm, step_type, path, "failed", None, duration, error, dict(body.detail or {}))
    status: Literal["ok", "skipped"] = "skipped" if said["status"] == SKIPPED else OK  # type: ignore[assignment]
    return StepResult(
        body.frm, step_type, path, status, said["output"], duration, None, dict(body.detail or {})
    )


async def workflow_result(engine: Engine, run_id: str) -> WorkflowResult:
    """The result of a run, from its journal and those of the runs below it."""
    from detent.engine.lineage import lineage

    root: Past | None = None
    steps: list[tuple[float, StepResult]] = []
    async for past in lineage(engine, run_id):
        root = root or past
        steps += steps_of(past)
    assert root is not None
    run = root.run
    steps.sort(key=lambda one: one[0])
    failure = run.data.get(FAILURE) or {}
    ended = run.updated_at if run.status.is_end else engine.clock.now()
    return WorkflowResult(
        run.flow, run.id, run.status, tuple(result for _, result in steps),
        milliseconds(max(0.0, ended - run.created_at)), run.data.get(RESULT),
        tuple(RollbackError(one["step_name"], one["error"]) for one in run.data.get(ROLLBACK_ERRORS) or ()),
        failure.get("error") or run.error,
    )  # fmt: skip
