"""Rolling back: what a failed or cancelled workflow did is undone, last thing first, each once.

Nothing is registered beside the journal: which steps succeeded, when, and what they gave is what the journals
of the run and of everything below it say. Every rollback is a child run of its own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from detent.engine.context import StepContext
from detent.engine.deciding import UNDOING
from detent.engine.dispatch import FORCE, PATH
from detent.engine.outcome import Outcome
from detent.flows.workflow.expressions import EvaluationError, Prepared
from detent.flows.workflow.order import completed
from detent.flows.workflow.scope import (
    FAILURE,
    GIVEN,
    OK,
    PASSED_OVER,
    ROLLBACK_ERRORS,
    ROLLED_BACK,
    SECRETS,
    UNDONE,
    key_of,
    scope_of,
)
from detent.flows.workflow.spec import CANCELLED, FAILED, ROLLING_BACK
from detent.kernel.entries import Entry, Moved
from detent.kernel.plain import to_plain

if TYPE_CHECKING:
    from detent.engine.lineage import Past

KWARGS = "kwargs"


class Rollback(NamedTuple):
    """What undoes a step."""

    flow: str
    parameters: tuple[str, ...]
    arguments: Prepared | None
    """What the step itself was called with."""


class Undo(NamedTuple):
    """One thing to undo."""

    step: str
    """Its path, as events show it."""
    action: str
    flow: str
    kwargs: dict[str, Any]
    secrets: dict[str, str]


async def rolling_back(ctx: StepContext) -> Outcome:
    """Undo what this run did, unless that is for the run it is part of to do."""
    cancelled = UNDOING in ctx.values
    end = CANCELLED if cancelled else FAILED
    failure = ctx.values.get(FAILURE) or {}
    reason = "cancelled" if cancelled else str(failure.get("reason") or "failed")
    detail = {"error": failure["error"]} if failure.get("error") else {}
    if ctx.parent is not None:
        return Outcome(end, reason=reason, detail=detail)
    wanted = await ctx.once("rollbacks", lambda: _wanted(ctx))
    done: list[dict[str, Any]] = []
    errors: list[dict[str, str]] = []
    for number, undo in enumerate(wanted):
        data = {KWARGS: undo["kwargs"], **({SECRETS: undo["secrets"]} if undo["secrets"] else {})}
        child = await ctx.child(
            undo["flow"], data, key=f"{ROLLING_BACK}[{number}]", config={FORCE: True, PATH: undo["step"]}
        )
        done.append({"step_name": undo["step"], "action": undo["action"], "success": child.ok})
        if not child.ok:
            said = child.data.get(FAILURE)
            error = str(said["error"]) if said else child.error or child.reason or child.status.value
            errors.append({"step_name": undo["step"], "error": error})
    told = {ROLLED_BACK: done, ROLLBACK_ERRORS: errors} if done else {}
    return Outcome(end, set=told, reason=reason, detail=detail)


async def _wanted(ctx: StepContext) -> list[dict[str, Any]]:
    """What is to be undone, last thing first."""
    family = await ctx.lineage()
    if left := [past.run.id for past in family[1:] if not past.run.status.is_end]:
        # Of a step that was not waited for to its end: nothing may be done any more while things are undone.
        for run_id in left:
            await ctx.give_up(run_id, "what the workflow did is being undone")
        family = await ctx.lineage()
    moves = completed(family)
    gone = ctx.values.get(UNDONE) or ()
    found = [
        undo
        for _, past, entry in reversed(moves)
        if (undo := _of(past, entry)) is not None and undo.step not in gone
    ]
    return [
        {
            "step": undo.step, "action": undo.action, "flow": undo.flow, "kwargs": undo.kwargs,
            "secrets": undo.secrets,
        }
        for undo in found
    ]  # fmt: skip


def _of(past: Past, entry: Entry) -> Undo | None:
    """What undoes the step that a move has left, if it succeeded and something does."""
    body = entry.body
    assert isinstance(body, Moved)
    result = body.set.get(key_of(body.frm))
    if result is None or result["status"] != OK or result.get(PASSED_OVER):
        return None
    if body.frm not in past.flow.steps:  # the file had it before the run was carried over to another
        return None
    step = past.flow.step_named(body.frm, result.get("ran") or body.frm)
    undoing = past.flow.rollbacks.get(step.name)  # type: ignore[attr-defined]
    if undoing is None:
        return None
    above, path = past.run.config.get(PATH), step.metadata["path"]
    return Undo(
        f"{above}/{path}" if above else path, step.metadata["rollback"], undoing.flow,
        _bound(undoing, result, past), dict(past.run.data.get(SECRETS) or {}),
    )  # fmt: skip


def _bound(rollback: Rollback, result: Mapping[str, Any], past: Past) -> dict[str, Any]:
    """A rollback's arguments by name: from the step's output, then from its resolved inputs."""
    output, given = result["output"], result.get(GIVEN) or {}
    if rollback.arguments is not None:
        with contextlib.suppress(EvaluationError):
            given = to_plain(rollback.arguments.resolve(scope_of(past.run.data)))
    sources = [output if isinstance(output, dict) else {}, given]
    return {
        name: source[name]
        for name in rollback.parameters
        for source in [next((one for one in sources if name in one), None)]
        if source is not None
    }
