"""The result of a run of a workflow and of each of its steps, read from its journals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from detent.flows.workflow.completion_order import completed
from detent.flows.workflow.errors import RollbackError
from detent.flows.workflow.run_data import FAILURE, PASSED_OVER, RESULT, ROLLBACK_ERRORS, SKIPPED, key_of
from detent.flows.workflow.spec import BranchStep, StepSpec, WorkflowSpec, every
from detent.kernel.entries import Entry, Moved
from detent.kernel.run import Run
from detent.kernel.status import Status

if TYPE_CHECKING:
    from detent.engine.engine import Engine
    from detent.engine.flow import Past
    from detent.engine.ports import Store

FAILED, RUNNING = "failed", "running"


@dataclass(frozen=True, slots=True)
class StepResult:
    """Result of one step."""

    name: str
    step_type: str
    path: str
    """Its path in the run, such as `load/[0]/upsert`."""
    status: Literal["ok", "skipped", "failed"]
    output: Any = None
    duration_ms: float = 0.0
    error: str | None = None
    dispatch: Mapping[str, Any] = field(default_factory=dict)
    """Facts about who performed it, and why."""

    def __post_init__(self) -> None:
        if (self.status == FAILED) != bool(self.error):
            raise ValueError(f"Step '{self.name}': a failure has an error, and nothing else has one.")

    @property
    def success(self) -> bool:
        """Whether the step did not fail."""
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
    """Result of a whole run."""

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
        """Whether the run succeeded."""
        return self.status is Status.SUCCEEDED

    def to_plain(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "workflow_name": self.workflow_name, "run_id": self.run_id, "status": self.status.value,
            "success": self.success, "error": self.error, "final_output": self.final_output,
            "total_duration_ms": self.total_duration_ms,
            "rollback_errors": [
                {"step_name": item.step_name, "error": item.error} for item in self.rollback_errors
            ],
            "step_results": [item.to_plain() for item in self.step_results],
        }  # fmt: skip


def milliseconds(seconds: float) -> float:
    """Convert seconds to the milliseconds of results and events."""
    return round(seconds * 1000, 3)


def steps_of(past: Past, entry: Entry) -> list[StepResult]:
    """Return the results of the step that a move has left; the choice of a branch precedes the branch."""
    body = entry.body
    assert isinstance(body, Moved)
    spec = getattr(past.flow, "specs", {}).get(body.frm)
    return [] if spec is None else [result for _, result in results_of(body, spec, past.run)]


def results_of(body: Moved, spec: StepSpec, run: Run) -> list[tuple[StepSpec, StepResult]]:
    """Return the result of the step that a move has left, preceded by those of the steps a branch chose."""
    result = body.set.get(key_of(body.frm))
    failure: Mapping[str, Any] = {} if result is not None else body.set.get(FAILURE) or {}
    chain = _chain(spec, (result if result is not None else failure).get("ran"))
    above, names = run.config.get("path"), [step.name for step in chain]
    duration, dispatch = milliseconds(body.duration), dict(body.detail or {})
    results: list[tuple[StepSpec, StepResult]] = []
    for depth, step in enumerate(chain):
        path = "/".join([*([above] if above else ()), *names[: depth + 1]])
        last = step is chain[-1]
        status: Literal["ok", "skipped", "failed"] = "ok"
        output = error = None
        if result is None:
            cancelled = body.status is Status.CANCELLED
            status = "failed"
            error = str(failure.get("error") or body.reason or ("cancelled" if cancelled else "failed"))
        elif result["status"] == SKIPPED or (last and result.get(PASSED_OVER)):
            status = "skipped"
        else:
            output = result["output"]
        performed_by = dispatch if last else {}
        results.append(
            (
                step,
                StepResult(step.name, step.type.value, path, status, output, duration, error, performed_by),
            )
        )
    return results[::-1]


def _chain(spec: StepSpec, ran: str | None) -> list[StepSpec]:
    """A step, and the path through its branches to the step that was performed."""
    if ran is None or spec.name == ran or not isinstance(spec, BranchStep):
        return [spec]
    for option in spec.options:
        if any(step.name == ran for step in every([option.step])):
            return [spec, *_chain(option.step, ran)]
    return [spec]


async def workflow_result(engine: Engine, run_id: str) -> WorkflowResult:
    """Return the result of a run, from its journal and those of its descendants."""
    from detent.engine.family import family_of

    family = [past async for past in family_of(engine.store, engine.flow, run_id)]
    run = family[0].run
    steps = [result for _, past, entry in completed(family) for result in steps_of(past, entry)]
    failure = run.data.get(FAILURE) or {}
    ended = run.updated_at if run.status.is_end else engine.clock.now()
    return WorkflowResult(
        run.flow, run.id, run.status, tuple(steps),
        milliseconds(max(0.0, ended - run.created_at)),
        # A run cancelled in its last step has a result, but has rolled it back.
        run.data.get(RESULT) if run.status is Status.SUCCEEDED else None,
        tuple(RollbackError(row["step_name"], row["error"]) for row in run.data.get(ROLLBACK_ERRORS) or ()),
        failure.get("error") or run.error,
    )  # fmt: skip


async def path_taken(store: Store, spec: WorkflowSpec, run_id: str) -> dict[str, str]:
    """Return the status of each step of a run, by path, iterations included: ok, skipped, failed, running.

    The steps of subworkflows, which are in other files, are left out.
    """
    from detent.engine.family import children
    from detent.engine.journal_reader import read

    specs = {step.name: step for step in spec.every_step()}
    journal = [entry async for entry in read(store, run_id)]
    run = Run.fold(run_id, journal)
    statuses: dict[str, str] = {}
    for entry in journal:
        body = entry.body
        if isinstance(body, Moved) and body.frm in specs:
            results = results_of(body, specs[body.frm], run)
            statuses |= {result.path: result.status for _, result in results}
    if run.state in specs and not run.status.is_end:
        above = run.config.get("path")
        statuses[f"{above}/{run.state}" if above else run.state] = RUNNING
    async for child in children(store, run_id):
        if child.flow.partition(".")[0] == spec.name:
            statuses |= await path_taken(store, spec, child.id)
    return statuses
