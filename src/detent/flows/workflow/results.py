"""What a run of a workflow came to, as its journals tell it: each step, and the whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from detent.flows.workflow.completion_order import completed
from detent.flows.workflow.errors import RollbackError
from detent.flows.workflow.scope import FAILURE, PASSED_OVER, RESULT, ROLLBACK_ERRORS, SKIPPED, key_of
from detent.flows.workflow.spec import BranchStep, StepSpec
from detent.kernel.entries import Entry, Moved
from detent.kernel.run import Run
from detent.kernel.status import Status

if TYPE_CHECKING:
    from detent.engine.engine import Engine
    from detent.engine.flow import Past

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


def steps_of(past: Past, entry: Entry) -> list[StepResult]:
    """How the step went that a move of a run has left; what a branch chose comes before the branch."""
    body = entry.body
    assert isinstance(body, Moved)
    spec = getattr(past.flow, "specs", {}).get(body.frm)
    return [] if spec is None else [one for _, one in results_of(body, spec, past.run)]


def results_of(body: Moved, spec: StepSpec, run: Run) -> list[tuple[StepSpec, StepResult]]:
    """How a step went that a move has left, and before it how those went that stood in its place."""
    said = body.set.get(key_of(body.frm))
    failure: Mapping[str, Any] = {} if said is not None else body.set.get(FAILURE) or {}
    chain = _chain(spec, (said if said is not None else failure).get("ran"))
    above, names = run.config.get("path"), [one.name for one in chain]
    duration, dispatch = milliseconds(body.duration), dict(body.detail or {})
    found: list[tuple[StepSpec, StepResult]] = []
    for depth, one in enumerate(chain):
        path = "/".join([*([above] if above else ()), *names[: depth + 1]])
        last = one is chain[-1]
        status: Literal["ok", "skipped", "failed"] = "ok"
        output = error = None
        if said is None:
            cancelled = body.status is Status.CANCELLED
            status = "failed"
            error = str(failure.get("error") or body.reason or ("cancelled" if cancelled else "failed"))
        elif said["status"] == SKIPPED or (last and said.get(PASSED_OVER)):
            status = "skipped"
        else:
            output = said["output"]
        told = dispatch if last else {}
        found.append((one, StepResult(one.name, one.type.value, path, status, output, duration, error, told)))
    return found[::-1]


def _chain(spec: StepSpec, ran: str | None) -> list[StepSpec]:
    """A step, and the way through its branches to the one that was performed in its place."""
    if ran is None or spec.name == ran or not isinstance(spec, BranchStep):
        return [spec]
    for option in spec.options:
        if any(one.name == ran for one in (option.step, *_options(option.step))):
            return [spec, *_chain(option.step, ran)]
    return [spec]


def _options(spec: StepSpec) -> Iterator[StepSpec]:
    """Every step that may be performed in the place of a branch."""
    if isinstance(spec, BranchStep):
        for option in spec.options:
            yield option.step
            yield from _options(option.step)


async def workflow_result(engine: Engine, run_id: str) -> WorkflowResult:
    """The result of a run, from its journal and those of the runs below it."""
    from detent.engine.family import family_of

    family = [past async for past in family_of(engine.store, engine.flow, run_id)]
    run = family[0].run
    steps = [result for _, past, entry in completed(family) for result in steps_of(past, entry)]
    failure = run.data.get(FAILURE) or {}
    ended = run.updated_at if run.status.is_end else engine.clock.now()
    return WorkflowResult(
        run.flow, run.id, run.status, tuple(steps),
        milliseconds(max(0.0, ended - run.created_at)),
        # One that was called off in its last step has a result, and has undone it.
        run.data.get(RESULT) if run.status is Status.SUCCEEDED else None,
        tuple(RollbackError(one["step_name"], one["error"]) for one in run.data.get(ROLLBACK_ERRORS) or ()),
        failure.get("error") or run.error,
    )  # fmt: skip
