"""What every kind of step has in common: its `when`, its place in the data, what is told about it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from detent.authoring.names import Named
from detent.dispatch.agent_side import AgentSide
from detent.dispatch.autonomy import AgentRole
from detent.dispatch.config import UNSAID
from detent.engine.context import StepContext
from detent.engine.outcome import Hold, Outcome
from detent.engine.step import UNKNOWN_TOOLS, Step
from detent.flows.workflow.compile_context import CompileContext, Position
from detent.flows.workflow.expressions import Prepared, condition
from detent.flows.workflow.scope import finished, key_of, scope_of, skipped
from detent.kernel.plain import copied

WHEN = "when"
"""The reason of a step that was passed over."""


def resolved(part: Prepared, ctx: StepContext) -> Any:
    """A value of the file in this run, the caller's own to change."""
    return copied(part.resolve(scope_of(ctx.values)))


def gate(position: Position) -> Callable[[StepContext], Outcome | None] | None:
    """Asked before anything of a step is done: the outcome of one that is passed over."""
    if position.spec.when is None:
        return None
    when = condition(position.spec.when)

    def before(ctx: StepContext) -> Outcome | None:
        if when.resolve(scope_of(ctx.values)):
            return None
        return Outcome(set={key_of(position.owner): skipped(position.ran)}, reason=WHEN)

    return before


def conclusion(position: Position) -> Callable[[StepContext, Any], Any]:
    """Puts a step's output, whoever gave it, where expressions find it."""
    key, ran = key_of(position.owner), position.ran

    def conclude(ctx: StepContext, output: Any) -> Any:
        return output if isinstance(output, Hold) else Outcome(set={key: finished(output, ran)})

    return conclude


def metadata(
    position: Position, home: CompileContext, performer: Named | None = None, **more: Any
) -> dict[str, Any]:
    """What is told about a step wherever it is told about."""
    if performer is not None and performer.left_out:
        more[UNKNOWN_TOOLS] = True
    return {
        "flow": "workflow", "definition": home.definition, "path": position.path, "cwd": str(home.ports.root),
        "type": position.spec.type.value, **more,
    }  # fmt: skip


Body = Callable[[StepContext], Awaitable[Any]]


def control(
    position: Position,
    home: CompileContext,
    handler: Body,
    *,
    action: str = "",
    **options: Any,
) -> Step:
    """A step of control flow: code alone, whatever its mode."""
    return Step(
        position.spec.name, handler, agent=AgentSide(AgentRole.NONE), before=gate(position),
        conclude=conclusion(position),
        effects=(), config=position.spec.config if position.spec.config is not UNSAID else None,
        metadata=metadata(position, home, action=action or position.spec.type.value), **options,
    )  # fmt: skip


def own_steps(ctx: StepContext, names: frozenset[str]) -> Mapping[str, Any]:
    """What a run says about how steps are performed, as far as it concerns the steps of these names."""
    said = ctx.config.get("steps") or {}
    return {key: copied(dict(value)) for key, value in said.items() if key in names}
