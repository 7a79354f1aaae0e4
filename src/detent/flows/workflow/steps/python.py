"""Python steps: a registered action, called with resolved arguments; or an agent in its place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from detent.engine.context import StepContext, call
from detent.engine.schemas import returns_of
from detent.engine.step import Step
from detent.flows.workflow.expressions import prepared
from detent.flows.workflow.home import Home, Seat
from detent.flows.workflow.registry import Action
from detent.flows.workflow.spec import PythonStep
from detent.flows.workflow.steps.common import conclusion, gate, metadata, resolved
from detent.flows.workflow.steps.contracts import declared
from detent.kernel.plain import to_plain
from detent.kernel.step_config import UNSAID


def bound(action: Action, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments by name; `args` go to the first parameters."""
    return {**dict(zip(action.parameters, args, strict=False)), **kwargs}


async def perform(action: Action, ctx: StepContext, kwargs: Mapping[str, Any]) -> Any:
    """Call an action's handler."""
    first = (ctx,) if action.wants_context else ()
    return await call(action.handler, action.blocking, *first, **kwargs)


def python_step(seat: Seat, home: Home) -> Step:
    """The flow's step for a python step."""
    spec = seat.spec
    assert isinstance(spec, PythonStep)
    action = home.registry.actions.get(spec.action)
    arguments = prepared(bound(action, spec.args, spec.kwargs))
    said = spec.output_schema if spec.output_schema is not None else action.output_schema

    def inputs(ctx: StepContext) -> Mapping[str, Any]:
        given: dict[str, Any] = to_plain(resolved(arguments, ctx))
        return given

    return action_step(
        action, inputs, name=spec.name, before=gate(seat), conclude=conclusion(seat),
        config=spec.config if spec.config is not UNSAID else None,
        output_schema=declared(said, f"step '{spec.name}'"),
        metadata=metadata(seat, home, action=action.name, rollback=spec.rollback or action.rollback),
    )  # fmt: skip


def action_step(action: Action, inputs: Callable[[StepContext], Mapping[str, Any]], **options: Any) -> Step:
    """A step that performs an action on what `inputs` gives."""

    async def handler(ctx: StepContext) -> Any:
        return await perform(action, ctx, await ctx.inputs())

    handler.__wrapped__ = action.handler  # type: ignore[attr-defined]  # whose code the evidence is about
    return Step(
        handler=handler,
        # What waits for a person or the clock cannot be an agent's to answer.
        intent="" if action.holds else action.intent,
        timeout=action.timeout, effects=action.effects, queries=action.queries or None, inputs=inputs,
        returns=returns_of(action.handler), validator=action.validator, compare=action.compare,
        max_autonomy=action.max_autonomy, opaque=action.opaque, repeatable=action.repeatable, **options,
    )  # fmt: skip
