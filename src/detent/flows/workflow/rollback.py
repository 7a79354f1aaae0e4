"""Rolls back the steps of a failed or cancelled workflow, the last step first, each once.

The journals of the run and of its descendants are the only record of which steps succeeded, when, and with
what output. Every rollback is a child run of its own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from detent.dispatch.agent_side import agent_side
from detent.dispatch.conclusion import known_fields
from detent.engine.context import StepContext
from detent.engine.family import children
from detent.engine.fork import UNDONE
from detent.engine.journal_reader import read
from detent.engine.moves import UNDOING
from detent.engine.outcome import Outcome
from detent.engine.tools import CALL
from detent.flows.workflow.completion_order import completed
from detent.flows.workflow.expressions import EvaluationError, Prepared
from detent.flows.workflow.run_data import (
    FAILURE,
    GIVEN,
    OK,
    PASSED_OVER,
    ROLLBACK_ERRORS,
    ROLLED_BACK,
    SECRETS,
    error_of,
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
    from detent.engine.acts import Act
    from detent.engine.flow import Past
    from detent.engine.ports import Store
    from detent.engine.step import Step

KWARGS = "kwargs"
ROLLBACKS = "rollbacks"
"""Key under which a run records its list of undos."""


class Rollback(NamedTuple):
    """How a step is rolled back."""

    flow: str
    parameters: tuple[str, ...]
    arguments: Prepared | None
    """Arguments of the step itself."""


class Undo(NamedTuple):
    """One step to undo."""

    step: str
    """Its path, as events show it."""
    action: str
    flow: str
    kwargs: dict[str, Any]
    secrets: dict[str, str]


async def rolling_back(ctx: StepContext) -> Outcome:
    """Roll back the steps of this run; a child run leaves that to its parent."""
    cancelled = UNDOING in ctx.values
    end = CANCELLED if cancelled else FAILED
    failure = ctx.values.get(FAILURE) or {}
    reason = str((ctx.run.reason if cancelled else failure.get("reason")) or end)
    detail = {"error": failure["error"]} if failure.get("error") else {}
    if ctx.parent is not None:
        return Outcome(end, reason=reason, detail=detail)
    undos = await ctx.once(ROLLBACKS, lambda: _find_undos(ctx))
    gone = ctx.values.get(UNDONE) or ()
    done: list[dict[str, Any]] = []
    errors: list[dict[str, str]] = []
    for number, undo in enumerate(undos):
        if undo["step"] in gone:
            continue
        data = {KWARGS: undo["kwargs"], **({SECRETS: undo["secrets"]} if undo["secrets"] else {})}
        child = await ctx.child(
            undo["flow"], data, key=f"{ROLLING_BACK}[{number}]", config={FORCE: True, PATH: undo["step"]}
        )
        done.append({"step_name": undo["step"], "action": undo["action"], "success": child.ok})
        if not child.ok:
            errors.append({"step_name": undo["step"], "error": error_of(child)})
    report = {ROLLED_BACK: done, ROLLBACK_ERRORS: errors} if done else {}
    return Outcome(end, set=report, reason=reason, detail=detail)


async def _find_undos(ctx: StepContext) -> list[dict[str, Any]]:
    """The undos of a run, the last step first."""
    family = await ctx.lineage()
    while unfinished := [past.run.id for past in family[1:] if not past.run.status.is_end]:
        # Child runs of a step that ended before them: they must not act while steps are rolled back. Effects
        # they have begun are settled first and rolled back with the rest.
        await ctx.cancel_descendants(unfinished, "what the workflow did is being undone")
        family = await ctx.lineage()
    moves = completed(family)
    undos = [undo for _, past, entry in reversed(moves) for undo in await _undos_of(ctx, past, entry)]
    return [
        {
            "step": undo.step, "action": undo.action, "flow": undo.flow, "kwargs": undo.kwargs,
            "secrets": undo.secrets,
        }
        for undo in undos
    ]  # fmt: skip


class RolledBack(NamedTuple):
    """Paths of the steps whose rollback a run has begun."""

    undone: frozenset[str] = frozenset()
    """All that they did is undone."""
    partly: frozenset[str] = frozenset()
    """Some of it is undone, the rest still stands."""


async def rolled_back(store: Store, run_id: str) -> RolledBack:
    """Return the steps that a run has rolled back, also if its rollback was interrupted."""
    undos: list[dict[str, Any]] = []
    async for entry in read(store, run_id):
        if isinstance(entry.body, Recorded) and entry.body.key == ROLLBACKS:
            undos = entry.body.value
    if not undos:
        return RolledBack()
    ended = {row.id: row.now.status async for row in children(store, run_id)}
    outcomes: dict[str, list[bool]] = {}
    for number, undo in enumerate(undos):
        ids = child_ids(run_id, f"{ROLLING_BACK}[{number}]")
        succeeded = any(ended.get(child_id) is Status.SUCCEEDED for child_id in ids)
        outcomes.setdefault(undo["step"], []).append(succeeded)
    undone = frozenset(step for step, outcome in outcomes.items() if all(outcome))
    partly = frozenset(step for step, outcome in outcomes.items() if any(outcome))
    return RolledBack(undone, partly - undone)


async def _undos_of(ctx: StepContext, past: Past, entry: Entry) -> list[Undo]:
    """The undo of the step that a move has left, if it succeeded and has a rollback.

    One that acted and never succeeded has an undo for each of its effects, the last one first. So has one of
    an agent, which may have done more than its output names.
    """
    body = entry.body
    assert isinstance(body, Moved)
    if body.frm not in past.flow.steps:  # a migration of the run has removed the step
        return []
    result: Mapping[str, Any] = body.set.get(key_of(body.frm)) or {}
    # An opaque step is called as a whole: what it did before it failed is its own affair.
    acts = [act for act in past.acts.get(entry.seq, ()) if not act.effect.tool.startswith(CALL)]
    succeeded = result.get("status") == OK
    if (succeeded and result.get(PASSED_OVER)) or not (succeeded or acts):
        return []
    ran = result.get("ran") if succeeded else acts[-1].settled["step"]
    step = past.flow.step_named(body.frm, ran or body.frm)
    rollback = past.flow.rollbacks.get(step.name)  # type: ignore[attr-defined]
    if rollback is None:
        return []
    above, path = past.run.config.get(PATH), step.metadata["path"]
    results = [result] if succeeded else _results_of(step, rollback, acts)
    if succeeded:
        by_agent = [act for act in acts if act.settled["by"] == "agent"]
        for act in reversed(by_agent):
            results += _results_of(step, rollback, [act])
    bindings: list[dict[str, Any]] = []
    for one in results:
        kwargs = await _bound(rollback, one, ctx, past)
        if not succeeded or not any(_covers(earlier, kwargs) for earlier in bindings):
            bindings.append(kwargs)
    return [
        Undo(
            f"{above}/{path}" if above else path, step.metadata["rollback"], rollback.flow, kwargs,
            dict(past.run.data.get(SECRETS) or {}),
        )
        for kwargs in bindings
    ]  # fmt: skip


def _covers(kwargs: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether a rollback with some arguments undoes all that one with others would."""
    return all(
        name in kwargs
        and (kwargs[name] == value or (isinstance(value, list) and _is_part(value, kwargs[name])))
        for name, value in other.items()
    )


def _is_part(items: Sequence[Any], whole: Any) -> bool:
    return isinstance(whole, list) and all(item in whole for item in items)


def _results_of(step: Step, rollback: Rollback, acts: Sequence[Act]) -> list[dict[str, Any]]:
    """What takes the place of a result for a step that never ended: what its effects were and gave back."""
    if agent_side(step).from_receipts is not None:
        return [{"output": known_fields(step, None, acts)}]
    outputs = [
        {**act.effect.args, **(act.receipt if isinstance(act.receipt, Mapping) else {})}
        for act in reversed(acts)
    ]
    return [{"output": output} for output in outputs if any(name in output for name in rollback.parameters)]


async def _bound(
    rollback: Rollback, result: Mapping[str, Any], ctx: StepContext, past: Past
) -> dict[str, Any]:
    """A rollback's arguments by name: from the step's output, then from its resolved inputs."""
    output, inputs = result["output"], result.get(GIVEN) or {}
    lacks = not isinstance(output, dict) or any(name not in output for name in rollback.parameters)
    if rollback.arguments is not None and lacks:
        # A purged value counts as missing; the rollback reports it if it needs the value.
        with contextlib.suppress(EvaluationError, ConfigurationError):
            inputs = to_plain(rollback.arguments.resolve(scope_of(await ctx.whole(past))))
    sources = [output if isinstance(output, dict) else {}, inputs]
    return {
        name: source[name]
        for name in rollback.parameters
        for source in [next((candidate for candidate in sources if name in candidate), None)]
        if source is not None
    }
