"""Rolling back: what a failed or cancelled workflow did is undone, last thing first, each once.

Nothing is registered beside the journal: which steps succeeded, when, and what they gave is what the journals
of the run and of everything below it say. Every rollback is a child run of its own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from detent.engine.context import StepContext
from detent.engine.family import children
from detent.engine.fork import UNDONE
from detent.engine.journal_reader import read
from detent.engine.moves import UNDOING
from detent.engine.outcome import Outcome
from detent.flows.workflow.completion_order import completed
from detent.flows.workflow.expressions import EvaluationError, Prepared
from detent.flows.workflow.scope import (
    FAILURE,
    GIVEN,
    OK,
    PASSED_OVER,
    ROLLBACK_ERRORS,
    ROLLED_BACK,
    SECRETS,
    key_of,
    scope_of,
)
from detent.flows.workflow.spec import CANCELLED, FAILED, ROLLING_BACK
from detent.kernel.entries import Entry, Moved, Recorded
from detent.kernel.errors import ConfigurationError
from detent.kernel.ids import child_ids
from detent.kernel.plain import to_plain
from detent.kernel.run_config import FORCE, PATH
from detent.kernel.status import Status

if TYPE_CHECKING:
    from detent.engine.flow import Past
    from detent.engine.ports import Store

KWARGS = "kwargs"
ROLLBACKS = "rollbacks"
"""Key under which a run keeps what it undoes."""


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
    wanted = await ctx.once(ROLLBACKS, lambda: _wanted(ctx))
    gone = ctx.values.get(UNDONE) or ()
    done: list[dict[str, Any]] = []
    errors: list[dict[str, str]] = []
    for number, undo in enumerate(wanted):
        if undo["step"] in gone:
            continue
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
    while left := [past.run.id for past in family[1:] if not past.run.status.is_end]:
        # Of a step that was not waited for to its end: nothing may be done any more while things are undone.
        # What they have begun is settled first: it is undone with the rest.
        await ctx.wind_up(left, "what the workflow did is being undone")
        family = await ctx.lineage()
    moves = completed(family)
    found = [undo for _, past, entry in reversed(moves) if (undo := await _of(ctx, past, entry)) is not None]
    return [
        {
            "step": undo.step, "action": undo.action, "flow": undo.flow, "kwargs": undo.kwargs,
            "secrets": undo.secrets,
        }
        for undo in found
    ]  # fmt: skip


async def undone_by(store: Store, run_id: str) -> frozenset[str]:
    """Paths of the steps that a run has undone, also one that was stopped before it was through with it."""
    wanted: list[dict[str, Any]] = []
    async for entry in read(store, run_id):
        if isinstance(entry.body, Recorded) and entry.body.key == ROLLBACKS:
            wanted = entry.body.value
    if not wanted:
        return frozenset()
    ended = {row.id: row.now.status async for row in children(store, run_id)}
    return frozenset(
        undo["step"]
        for number, undo in enumerate(wanted)
        if any(
            ended.get(child_id) is Status.SUCCEEDED
            for child_id in child_ids(run_id, f"{ROLLING_BACK}[{number}]")
        )
    )


async def _of(ctx: StepContext, past: Past, entry: Entry) -> Undo | None:
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
        await _bound(undoing, result, ctx, past), dict(past.run.data.get(SECRETS) or {}),
    )  # fmt: skip


async def _bound(
    rollback: Rollback, result: Mapping[str, Any], ctx: StepContext, past: Past
) -> dict[str, Any]:
    """A rollback's arguments by name: from the step's output, then from its resolved inputs."""
    output, given = result["output"], result.get(GIVEN) or {}
    lacks = not isinstance(output, dict) or any(name not in output for name in rollback.parameters)
    if rollback.arguments is not None and lacks:
        # What was purged is told as a parameter that is missing, should it be needed.
        with contextlib.suppress(EvaluationError, ConfigurationError):
            given = to_plain(rollback.arguments.resolve(scope_of(await ctx.whole(past))))
    sources = [output if isinstance(output, dict) else {}, given]
    return {
        name: source[name]
        for name in rollback.parameters
        for source in [next((one for one in sources if name in one), None)]
        if source is not None
    }
