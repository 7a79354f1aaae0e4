"""What came of a refinement: read from its journal, or from its data while it ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from detent.engine.journal_reader import read
from detent.flows.refine.attempt import Attempt, best_attempt
from detent.flows.refine.decisions import MAX_ITERATIONS, RefineSettings
from detent.flows.refine.evaluation import Evaluation
from detent.flows.refine.run_data import REQUEST, RunData
from detent.flows.refine.state_machine import OrchestrationState as State
from detent.flows.refine.state_machine import OrchestrationStateMachine
from detent.flows.refine.token_budget import report_of_run
from detent.kernel.budget import Spend
from detent.kernel.entries import EffectDone, Entry, Held, Moved
from detent.kernel.plain import to_plain
from detent.kernel.status import Status

if TYPE_CHECKING:
    from detent.engine.engine import Engine
    from detent.engine.finishing import Ending
    from detent.kernel.run import Run

ResultStatus = Literal["success", "incomplete", "failed"]


@dataclass(frozen=True, slots=True)
class OrchestratorResult:
    """What came of a refinement."""

    status: ResultStatus
    run_id: str
    final_state: str
    reason: str | None = None
    plan: Any = None
    """Of the best attempt, like `implementation` and `evaluation`."""
    implementation: Any = None
    evaluation: Evaluation | None = None
    best_iteration: int | None = None
    iterations: int = 0
    """Attempts made: plans and refined implementations."""
    attempts: tuple[Attempt, ...] = ()
    tokens_used: int = 0
    execution_time_s: float = 0.0
    error: str | None = None
    budget_report: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, Any] = field(default_factory=dict)
    """`totals`, `bottlenecks`, `transitions`, and the text `report`."""
    files: tuple[str, ...] = ()
    """Paths that the finisher's effects have given back."""
    warnings: tuple[str, ...] = ()
    """Warnings about the plan of the best attempt."""
    request: Any = None
    """As the run was started with it."""
    run_status: Status | None = None
    settings: RefineSettings = field(default_factory=RefineSettings)

    @property
    def best(self) -> Attempt | None:
        """The best attempt."""
        return next((item for item in self.attempts if item.iteration == self.best_iteration), None)

    def to_plain(self) -> dict[str, Any]:
        """As JSON values, without the request."""
        limits = self.settings.pass_threshold, self.settings.category_pass
        return {
            "status": self.status,
            "run_id": self.run_id,
            "final_state": self.final_state,
            "reason": self.reason,
            "plan": to_plain(self.plan),
            "implementation": to_plain(self.implementation),
            "evaluation": None if self.evaluation is None else self.evaluation.to_plain(*limits),
            "best_iteration": self.best_iteration,
            "iterations": self.iterations,
            "attempts": [attempt.to_plain(*limits) for attempt in self.attempts],
            "tokens_used": self.tokens_used,
            "execution_time_s": self.execution_time_s,
            "error": self.error,
            "budget_report": to_plain(dict(self.budget_report)),
            "metrics": to_plain(dict(self.metrics)),
            "files": list(self.files),
            "warnings": list(self.warnings),
        }


def result_at_end(ending: Ending, settings: RefineSettings) -> OrchestratorResult:
    """The result as a finisher gets it: without times and reports, so that a resumed run ends with the same
    effects as an undisturbed one.
    """
    data = RunData(ending.data, settings)
    tokens = max((row["tokens"] for row in to_plain(ending.data.get("made") or ())), default=0)
    return result_with(
        OrchestratorResult(
            status_of(ending.status, ending.reason), ending.run_id, ending.state, ending.reason,
            tokens_used=tokens, request=to_plain(ending.data.get(REQUEST)), run_status=ending.status,
            settings=data.settings,
        ),
        data.attempts(),
    )  # fmt: skip


def result_with(result: OrchestratorResult, attempts: Sequence[Attempt]) -> OrchestratorResult:
    """A result with its attempts and what the best of them carries."""
    best = best_attempt(attempts)
    if best is None:
        return result
    warnings = [] if best.validation is None else best.validation.issues
    return replace(
        result,
        plan=best.plan,
        implementation=best.implementation,
        evaluation=best.evaluation,
        best_iteration=best.iteration,
        iterations=attempts[-1].iteration,
        attempts=tuple(attempts),
        warnings=tuple(issue.message for issue in warnings if issue.severity == "warning"),
    )


def status_of(status: Status, reason: str | None) -> ResultStatus:
    """The status of a result."""
    if status is Status.SUCCEEDED:
        return "success"
    if status is Status.FAILED and reason != MAX_ITERATIONS:
        return "failed"
    return "incomplete"


async def result_of(engine: Engine, run_id: str) -> OrchestratorResult:
    """What came of a run, or of a run that is still open as far as it has come.

    Raises:
        RunNotFound: there is no such run.
    """
    run = await engine.get(run_id)
    own = getattr(engine.flow(run.flow), "refine_settings", None)
    return result_in_journal(run, [entry async for entry in read(engine.store, run_id)], own)


def result_in_journal(
    run: Run, entries: Sequence[Entry], own: RefineSettings | None = None
) -> OrchestratorResult:
    """What a run's journal says came of it; `own` are the settings of its flow."""
    data = RunData(run.data, own or RefineSettings())
    machine = OrchestrationStateMachine.from_journal(entries, max_iterations=data.settings.max_iterations)
    attempts = _with_costs(data.attempts(), entries)
    hold = next(iter(run.holds.values()), None)
    error = run.error
    if hold is not None:
        error = f"The run waits: {hold.question or hold.why} {_about(hold)}".strip()
    return result_with(
        OrchestratorResult(
            status_of(run.status, run.reason), run.id, run.state, run.reason,
            tokens_used=run.total_spend.tokens, execution_time_s=run.used()["seconds"], error=error,
            budget_report=report_of_run(_visits(entries), run.budget, len(attempts)),
            metrics=metrics_of(machine), files=_files(entries), request=to_plain(run.data.get(REQUEST)),
            run_status=run.status, settings=data.settings,
        ),
        attempts,
    )  # fmt: skip


async def state_machine_of(engine: Engine, run_id: str) -> OrchestrationStateMachine:
    """A run's journal as the state machine object, with its metrics."""
    run = await engine.get(run_id)
    own = getattr(engine.flow(run.flow), "refine_settings", None) or RefineSettings()
    settings = RunData(run.data, own).settings
    entries = [entry async for entry in read(engine.store, run_id)]
    return OrchestrationStateMachine.from_journal(entries, max_iterations=settings.max_iterations)


def metrics_of(machine: OrchestrationStateMachine) -> dict[str, Any]:
    """The figures of a result."""
    return {
        "totals": machine.get_total_metrics(),
        "bottlenecks": machine.get_bottleneck_analysis(),
        "transitions": machine.get_transition_metrics(),
        "report": machine.format_metrics_report(),
    }


_STAGES = {"planning": "plan", "validating": "validate", "implementing": "implementation", "judging": "judge"}


def _visits(entries: Sequence[Entry]) -> Iterator[tuple[str, Spend]]:
    """The visits of a journal that belong to a stage, with what they have spent."""
    refined = False
    for entry in entries:
        body = entry.body
        if not isinstance(body, Moved) or body.frm not in _STAGES:
            continue
        again = refined and body.frm == State.IMPLEMENTING.value
        yield "refinement" if again else _STAGES[body.frm], body.spend
        if body.to in _STAGES and body.frm == State.JUDGING.value:
            refined = body.to == State.IMPLEMENTING.value


def _with_costs(attempts: Sequence[Attempt], entries: Sequence[Entry]) -> list[Attempt]:
    """Attempts with the tokens and times that the journal has."""
    costs: dict[int, tuple[int, float]] = {}
    number = 1
    for entry in entries:
        body = entry.body
        if not isinstance(body, Moved) or body.frm not in _STAGES:
            continue
        tokens, seconds = costs.get(number, (0, 0.0))
        costs[number] = tokens + body.spend.tokens, seconds + body.duration
        judged = body.frm == State.JUDGING.value
        number += body.to == State.PLANNING.value or (judged and body.to == State.IMPLEMENTING.value)
    return [
        replace(attempt, tokens=costs[attempt.iteration][0], duration_s=costs[attempt.iteration][1])
        for attempt in attempts
    ]


def _about(hold: Held) -> str:
    """Which effect a run waits for, by its short arguments, a path, say; and why it failed."""
    about = hold.about if isinstance(hold.about, Mapping) else {}
    args = about.get("args") or {}
    shown = [f"{name}={value}" for name, value in args.items() if len(str(value)) <= 200]
    return " ".join(filter(None, (f"({', '.join(shown)})" if shown else "", str(about.get("error") or ""))))


def _files(entries: Sequence[Entry]) -> tuple[str, ...]:
    receipts = [entry.body.receipt for entry in entries if isinstance(entry.body, EffectDone)]
    paths = [receipt.get("path") for receipt in receipts if isinstance(receipt, Mapping)]
    return tuple(dict.fromkeys(path for path in paths if isinstance(path, str)))
