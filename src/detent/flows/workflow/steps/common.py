"""Parts common to all kinds of steps: their `when`, the place of their result, their metadata."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from detent.authoring.names import Named
from detent.dispatch.agent_side import AgentSide
from detent.dispatch.autonomy import AgentRole
from detent.engine.context import StepContext
from detent.engine.outcome import Hold, Outcome
from detent.engine.step import UNKNOWN_TOOLS, Step
from detent.flows.workflow.compile_context import CompileContext, Position
from detent.flows.workflow.expressions import Prepared, condition
from detent.flows.workflow.run_data import finished, key_of, scope_of, skipped
from detent.kernel.plain import copied
from detent.kernel.run_config import PATH, STEPS

WHEN = "when"
"""Reason of the move out of a skipped step."""


def resolved(part: Prepared, ctx: StepContext) -> Any:
    """Return a value of the file in this run, as a copy."""
    return copied(part.resolve(scope_of(ctx.values)))


def gate(position: Position) -> Callable[[StepContext], Outcome | None] | None:
    """Return the function that evaluates a step's `when`; its outcome skips the step."""
    if position.spec.when is None:
        return None
    when = condition(position.spec.when)

    def before(ctx: StepContext) -> Outcome | None:
        if when.resolve(scope_of(ctx.values)):
            return None
        return Outcome(set={key_of(position.owner): skipped(position.ran)}, reason=WHEN)

    return before


def conclusion(position: Position) -> Callable[[StepContext, Any], Awaitable[Any]]:
    """Return the function that stores a step's output where expressions read it."""
    key, ran = key_of(position.owner), position.ran

    async def conclude(ctx: StepContext, output: Any) -> Any:  # a plain function would get a thread
        return output if isinstance(output, Hold) else Outcome(set={key: finished(output, ran)})

    return conclude


def metadata(
    position: Position, home: CompileContext, performer: Named | None = None, **more: Any
) -> dict[str, Any]:
    """Return the metadata of a step, for events, logs and reports."""
    if performer is not None and performer.left_out:
        more[UNKNOWN_TOOLS] = True
    return {
        "flow": "workflow", "definition": home.definition, "path": position.path, "cwd": str(home.ports.root),
        "type": position.spec.type.value, **more,
    }  # fmt: skip


def control(
    position: Position, home: CompileContext, handler: Callable[[StepContext], Awaitable[Any]], **options: Any
) -> Step:
    """Return a step of control flow, performed by code in every mode."""
    spec = position.spec
    return Step(
        spec.name, handler, agent=AgentSide(AgentRole.NONE), effects=(), config=spec.own_config,
        metadata=metadata(position, home, action=spec.type.value),
        **{"before": gate(position), "conclude": conclusion(position), **options},
    )  # fmt: skip


def child_config(ctx: StepContext, path: str, names: frozenset[str]) -> dict[str, Any]:
    """Return the configuration of a child run: its path, and the run's own settings for the steps `names`."""
    settings = ctx.config.get(STEPS) or {}
    own = {key: copied(dict(value)) for key, value in settings.items() if key in names}
    return {PATH: path, STEPS: own} if own else {PATH: path}
