"""Rolling back: what a failed or cancelled workflow did is undone, last thing first, each once.

Nothing is registered beside the journal: which steps succeeded, when, and what they gave is what the journals
of the run and of everything below it say. Every rollback is a child run of its own.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple

from detent.engine.context import StepContext
from detent.engine.deciding import UNDOING
from detent.engine.dispatch import FORCE
from detent.engine.outcome import Outcome
from detent.flows.workflow.expressions import EvaluationError, Prepared
from detent.flows.workflow.scope import (
    FAILURE,
    OK,
    ROLLBACK_ERRORS,
    ROLLED_BACK,
    SECRETS,
    key_of,
    scope_of,
)
from detent.flows.workflow.spec import CANCELLED, FAILED
from detent.flows.workflow.steps.common import WHEN
from detent.kernel.entries import Moved
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

    at: float
    order: int
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
            undo["flow"], data, key=f"rollback[{number}]", config={FORCE: True, "path": undo["step"]}
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
    found = [undo for past in await ctx.lineage() for undo in _of(past)]
    found.sort(key=lambda undo: (undo.at, undo.order), reverse=True)
    return [
        {
            "step": undo.step, "action": undo.action, "flow": undo.flow, "kwargs": undo.kwargs,
            "secrets": undo.secrets,
        }
        for undo in found
    ]  # fmt: skip


def _of(past: Past) -> list[Undo]:
    """What one run of the family did that can be undone."""
    undoing = getattr(past.flow, "rollbacks", None)
    if undoing is None:  # a rollback itself
        return []
    found: list[Undo] = []
    for entry in past.moves:
        body = entry.body
        assert isinstance(body, Moved)
        result = past.run.data.get(key_of(body.frm))
        if result is None or result["status"] != OK or body.reason == WHEN:
            continue
        step = past.flow.step_named(body.frm, result.get("ran") or body.frm)
        action = step.metadata.get("rollback")
        if action is None or step.name not in undoing:
            continue
        flow = undoing[step.name].flow
        kwargs = _bound(undoing[step.name], result["output"], past)
        above = past.run.config.get("path")
        path = step.metadata["path"]
        found.append(
            Undo(
                entry.at, entry.seq, f"{above}/{path}" if above else path, action, flow, kwargs,
                dict(past.run.data.get(SECRETS) or {}),
            )
        )  # fmt: skip
    return found


def _bound(rollback: Rollback, output: Any, past: Past) -> dict[str, Any]:
    """A rollback's arguments by name: from the step's output, then from its resolved inputs."""
    given: Any = {}
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
