"""A decision as an outcome: what the state becomes, and the line that the log of the run gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from detent.engine import logger
from detent.engine.context import StepContext
from detent.engine.outcome import Outcome
from detent.flows.notebook.cells import ACCEPTED, CELLS, SUPERSEDED, Cell, cell_id, live_cells
from detent.flows.notebook.measuring.metrics import transition_record
from detent.flows.notebook.payloads.canonical import canonical
from detent.flows.notebook.payloads.values import Payload
from detent.flows.notebook.roles.answer import RoleAnswer
from detent.flows.notebook.run_view import LOG, METRICS, NotebookRun
from detent.flows.notebook.state.decisions import Decision
from detent.flows.notebook.state.deltas import to_data
from detent.flows.notebook.state.document import NotebookSummary, StateDocument
from detent.flows.notebook.state.facts import Facts
from detent.flows.notebook.state.machine import NotebookState
from detent.flows.notebook.state.transitions import apply


def moment(seconds: float) -> str:
    """A time as the state shows it, with its zone."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def moved(
    ctx: StepContext,
    run: NotebookRun,
    decision: Decision,
    facts: Facts,
    *payloads: Payload,
    log: Sequence[Mapping[str, Any]] = (),
    cells: Sequence[Cell] = (),
    set: Mapping[str, Any] | None = None,
    append: Mapping[str, Sequence[Any]] | None = None,
    last_output: str | None = None,
    reason: str = "",
) -> Outcome:
    """The outcome of a decision: the state after it, with what else the data get."""
    facts = replace(facts, notebook=_summary(ctx, run, cells, append or {}, last_output))
    after = apply(run.state, decision, facts, *payloads)
    delta = to_data(run.state, after)
    added: dict[str, list[Any]] = {name: list(items) for name, items in delta.append.items()}
    for name, items in (append or {}).items():
        added.setdefault(name, []).extend(items)
    if cells:
        added.setdefault(CELLS, []).extend(cell.to_plain() for cell in cells)
    place = after.document.location
    facts_of_move = {"row": decision.row, "stage": place.stage_id, "step": place.step_id}
    logger.info("notebook.transition", event_name=decision.event.value, to=decision.to.value, **facts_of_move)
    if decision.row == "5d":
        logger.info("notebook.escalated", behavior=run.document.location.behavior_id, **facts_of_move)
    record = transition_record(run.state, after, decision, facts)
    added.setdefault(METRICS, []).append(record)
    if log:
        added.setdefault(LOG, []).extend(dict(line) for line in log)
    return Outcome(
        decision.to, decision.event.value, set={**delta.set, **(set or {})}, append=added,
        reason=f"{decision.row} {reason}".strip()[:200],
    )  # fmt: skip


def _summary(
    ctx: StepContext,
    run: NotebookRun,
    cells: Sequence[Cell],
    append: Mapping[str, Sequence[Any]],
    last_output: str | None,
) -> NotebookSummary:
    """The notebook as it stands after a move; a failed attempt has left it."""
    values = {
        CELLS: [*run.values.get(CELLS, ()), *(cell.to_plain() for cell in cells)],
        **{
            name: [*run.values.get(name, ()), *append.get(name, ())]
            for name in (ACCEPTED, SUPERSEDED)
        },
    }  # fmt: skip
    before = run.document
    writing = before.fsm.state is NotebookState.BEHAVIOR_RUNNING
    live = live_cells(values, attempt=run.attempt if writing else None)
    summary = before.state.notebook
    return summary.model_copy(
        update={
            "notebook_id": ctx.run.id,
            "title": next((cell.source for cell in live if cell.kind == "title"), summary.title),
            "cell_count": len(live),
            "last_cell_type": ("code" if live[-1].is_code else "markdown") if live else None,
            "last_output": summary.last_output if last_output is None else last_output,
        }
    )


def logged(ctx: StepContext, role: str, answer: RoleAnswer, **more: Any) -> dict[str, Any]:
    """A line of the log: the payload as canonical XML, kept outside the journal, and how it was read."""
    line: dict[str, Any] = {
        "role": role, "event": more.pop("event", ""), "payload": ctx.keep(canonical(answer.payload)),
    }  # fmt: skip
    for mismatch in (more.get("claims") or {}).get("mismatches", ()):
        logger.info("notebook.claim_mismatch", role=role, **mismatch)
    if answer.repairs:
        logger.info("notebook.payload_repaired", role=role, repairs=list(answer.repairs))
        line |= {"repairs": list(answer.repairs), "raw": ctx.keep(answer.raw)}
    if answer.flags:
        line["flags"] = list(answer.flags)
    return {**line, **more}


def headings(before: StateDocument, after: StateDocument, title: str = "") -> list[Cell]:
    """The heading cells that a transition writes: of the title, a stage that was entered, a step that was."""
    stage, step = after.stages.current, after.steps.current
    cells: list[Cell] = []
    if title:
        cells.append(Cell(cell_id("title"), "title", title))
    if stage is not None and (before.stages.current is None or before.stages.current != stage):
        known = before.stages.current
        if known is None or known.stage_id != stage.stage_id:
            cells.append(Cell(cell_id("stage", stage.stage_id), "stage", stage.title, stage=stage.stage_id))
    if stage is not None and step is not None and before.location.step_id != step.step_id:
        cells.append(
            Cell(
                cell_id("step", stage.stage_id, step.step_id),
                "step",
                step.title,
                stage=stage.stage_id,
                step=step.step_id,
            )
        )
    return cells
