"""The notebook of a run, as it stands: its cells with their outputs, and what is said of it as a whole."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from detent.flows.notebook.cells import Cell
from detent.flows.notebook.exports.cell import Limit, NotebookCell, NotebookFacts
from detent.flows.notebook.exports.metrics import BASELINE, POSITIVE
from detent.flows.notebook.history import position
from detent.flows.notebook.measuring.criteria import threshold_criterion
from detent.flows.notebook.measuring.metrics import Metrics, fold
from detent.flows.notebook.measuring.thresholds import thresholds_in
from detent.flows.notebook.run_view import METRICS, VERIFIED, WHY_FAILED, NotebookRun
from detent.flows.notebook.state.machine import NotebookState
from detent.kernel.run import Run
from detent.kernel.status import Status

if TYPE_CHECKING:
    from detent.engine.ports import Store


class Finished(NamedTuple):
    """A notebook to export."""

    cells: Sequence[NotebookCell]
    facts: NotebookFacts


async def finished_notebook(store: Store, run: Run) -> Finished:
    """The notebook of a run: ended, waiting or under way. Of one that was verified, the outputs of that."""
    view = NotebookRun(run.data)
    verified = run.data.get(VERIFIED) or {}
    again = await _kept(store, verified.get("outputs")) if verified.get("passed") else None
    executed: Mapping[str, Any] = again if isinstance(again, Mapping) else {}
    current = view.document.behaviors.current
    live = view.live if current is None else view.live_with_attempt
    cells = [await _exported(store, cell, executed) for cell in live]
    title = next((cell.source for cell in live if cell.kind == "title"), view.reading.problem)
    metrics = metrics_of(view)
    facts = NotebookFacts(
        title=title, run_id=run.id, problem=view.reading.problem, verified=bool(verified.get("passed")),
        metrics=_shown(metrics, view), limits=_limits(view), banner=_banner(run, view),
    )  # fmt: skip
    return Finished(cells, facts)


def metrics_of(view: NotebookRun) -> Metrics:
    """The figures of a run, folded from its transitions."""
    return fold(view.values.get(METRICS, ()))


def scores_of(view: NotebookRun) -> dict[str, Any]:
    """The scores that the run holds, by where they come from."""
    return {
        name: value
        for name in ("cv_metrics", "test_performance", "stability_metrics")
        if isinstance(value := view.document.variables.get(name), Mapping)
    }


class ThresholdVerdict(NamedTuple):
    """A threshold of the user's, and what was measured."""

    threshold: str
    met: bool
    measured: str
    """The score, and by how much it misses it; or why there is none."""


def verdicts_of(view: NotebookRun) -> list[ThresholdVerdict]:
    """The last verdict on each threshold that was judged, and the other criteria that were missed."""
    ledger = view.state.ledger
    return [
        *(
            ThresholdVerdict(text, met, _measured(text, ledger.locked_scores.get(text, ""), met))
            for text, met in ledger.locked.items()
        ),
        *(ThresholdVerdict(text, False, value) for text, value in ledger.missed.items()),
    ]


def _measured(text: str, score: str, met: bool) -> str:
    try:
        threshold = thresholds_in([text])[0]
        off = float(score) - threshold.value
    except (ValueError, IndexError):  # it could not be computed, or the limit is the baseline's score
        return score
    missed = "over" if threshold.comparison.startswith("<") else "short"
    return f"{float(score):,.4g}" + ("" if met else f", {missed} by {abs(off):,.3g}")


def _shown(metrics: Metrics, view: NotebookRun) -> dict[str, Any]:
    plain = metrics.to_plain()
    kept = ("artifact_completion", "acceptance_pass_rate", "retry_rate", "variable_coverage")
    return {**{name: plain[name] for name in kept}, **scores_of(view), **_beside_scores(view)}


def _beside_scores(view: NotebookRun) -> dict[str, Any]:
    """The baseline's scores on the rows held out, and the positive class, where the run holds them."""
    report = view.document.variables.get("business_impact_report")
    if not isinstance(report, Mapping):
        return {}
    baseline, positive = report.get("baseline_scores"), report.get(POSITIVE)
    return {
        **({BASELINE: baseline} if isinstance(baseline, Mapping) else {}),
        **({POSITIVE: positive} if isinstance(positive, str) else {}),
    }


def _limits(view: NotebookRun) -> tuple[Limit, ...]:
    """The user's thresholds, with the last verdict on the rows held out."""
    locked = view.state.ledger.locked
    return tuple(
        Limit(
            threshold.metric,
            f"{threshold.comparison} {threshold.value:.12g}",
            locked.get(threshold_criterion(threshold, "test_performance").text),
        )
        for threshold in view.reading.thresholds
    )


async def _exported(store: Store, cell: Cell, executed: Mapping[str, Any]) -> NotebookCell:
    metadata = {
        "detent": {
            key: value
            for key, value in (
                ("stage_id", cell.stage), ("step_id", cell.step), ("behavior_id", cell.behavior),
                ("iteration", cell.iteration), ("round", cell.round), ("role", cell.role),
                ("mode", cell.mode),
            )
            if value is not None
        }
    }  # fmt: skip
    if not cell.is_code:
        return NotebookCell(cell.id, "markdown", cell.text, metadata=metadata)
    again = executed.get(cell.id)
    if again is not None:
        return NotebookCell(
            cell.id, "code", cell.source, tuple(again["outputs"]), again["execution_count"], metadata
        )
    kept = await _kept(store, cell.outputs)
    outputs = [_nbformat(output) for output in kept] if isinstance(kept, list) else []
    return NotebookCell(cell.id, "code", cell.source, tuple(outputs), cell.count, metadata)


def _nbformat(plain: Mapping[str, Any]) -> Mapping[str, Any]:
    """A journaled output in the form of a notebook file."""
    from detent.adapters.jupyter.cell_result import Output
    from detent.flows.notebook.exports.cell_outputs import notebook_output

    return notebook_output(Output(**{**plain, "traceback": tuple(plain.get("traceback") or ())}))


async def _kept(store: Store, reference: Any) -> Any:
    if not isinstance(reference, Mapping) or "$blob" not in reference:
        return None
    raw = await store.blob(str(reference["$blob"]))
    return None if raw is None else json.loads(raw)


def _banner(run: Run, view: NotebookRun) -> str | None:
    """What stands above a notebook that did not reach its end."""
    state = position(run).fsm.state
    if state is NotebookState.WORKFLOW_COMPLETE and run.status.is_end:
        verified = run.data.get(VERIFIED) or {}
        return None if verified.get("passed") else "> **Not verified.** It was not executed again."
    if run.status is Status.BUDGET_EXHAUSTED:
        return "> **Not finished.** A limit of the run was reached. It can go on with a higher one."
    if state is NotebookState.FAILED:
        why = run.data.get(WHY_FAILED) or run.reason or "it failed"
        missed = "".join(
            f"\n> - `{verdict.threshold}`: {verdict.measured}"
            for verdict in verdicts_of(view)
            if not verdict.met
        )
        return f"> **Not achieved.** {_reason(str(why))} This is the best attempt.{missed}"
    if run.status.is_end:
        return f"> **Not finished.** The run was {run.status.value}."
    return "> **Not finished.** The run is still under way."


REASONS = {
    "acceptance_not_met": "What was asked for was not reached.",
    "missing_variable": "A variable that is needed could not be produced.",
    "not_reproducible": "Executed again from top to bottom, it gave other results.",
}


def _reason(why: str) -> str:
    return REASONS.get(why, why if why.endswith(".") else f"{why}.")
