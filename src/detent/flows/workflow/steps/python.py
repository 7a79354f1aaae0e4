"""Python steps: a registered action, called with resolved arguments; or an agent in its place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from detent.dispatch.agent_side import AgentSide
from detent.engine.calls import call
from detent.engine.context import StepContext
from detent.engine.outcome import Outcome
from detent.engine.schemas import returns_of
from detent.engine.step import WAITS, Step
from detent.engine.step_failures import StepFailed
from detent.engine.tools import Tool
from detent.flows.workflow.compile_context import CompileContext, Position
from detent.flows.workflow.expressions import prepared
from detent.flows.workflow.expressions.templates import OPENING
from detent.flows.workflow.registry import Action
from detent.flows.workflow.run_data import OUTPUT, key_of
from detent.flows.workflow.spec import PythonStep
from detent.flows.workflow.steps.common import conclusion, gate, metadata, resolved
from detent.flows.workflow.steps.contracts import declared
from detent.kernel.plain import to_plain


def bound(action: Action, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments by name; `args` go to the first parameters."""
    return {**dict(zip(action.parameters, args, strict=False)), **kwargs}


def usual(action: Action) -> dict[str, Any]:
    """What an action goes by where nothing is said, for an agent to be told as well."""
    return {
        name: one.default
        for name, one in action.parameters.items()
        if one.default is not one.empty and _plain(one.default)
    }


def _plain(value: Any) -> bool:
    """Whether a default is a value that a file could have said, and no text with an expression in it."""
    if isinstance(value, str):
        return OPENING not in value
    if isinstance(value, list | tuple):
        return all(_plain(one) for one in value)
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _plain(one) for key, one in value.items())
    return value is None or isinstance(value, bool | int | float)


async def perform(action: Action, ctx: StepContext, kwargs: Mapping[str, Any]) -> Any:
    """Call an action's handler."""
    first = (ctx,) if action.wants_context else ()
    return await call(action.handler, action.blocking, *first, **kwargs)


def telling(action: Action, conclude: Callable[[StepContext, Any], Any]) -> Callable[[StepContext, Any], Any]:
    """The conclusion of an action that leaves a message in the run's record, whoever performs it."""
    if action.tells is None:
        return conclude
    tells = action.tells

    async def told(ctx: StepContext, output: Any) -> Any:
        outcome = conclude(ctx, output)
        if isinstance(outcome, Outcome):
            message, level = tells(await ctx.inputs())
            ctx.emit(message, level)
        return outcome

    return told


def python_step(position: Position, home: CompileContext) -> Step:
    """The flow's step for a python step."""
    spec = position.spec
    assert isinstance(spec, PythonStep)
    action = home.registry.actions.get(spec.action)
    arguments = prepared({**usual(action), **bound(action, spec.args, spec.kwargs)})
    said = spec.output_schema if spec.output_schema is not None else action.output_schema

    def inputs(ctx: StepContext) -> Mapping[str, Any]:
        given: dict[str, Any] = to_plain(resolved(arguments, ctx))
        return given

    computed = _computed([*spec.args, *spec.kwargs.values()])
    return action_step(
        action, inputs, tools=home.tools if computed else None, name=spec.name, before=gate(position),
        conclude=telling(action, conclusion(position)), lands=(key_of(position.owner), OUTPUT),
        config=spec.own_config,
        output_schema=declared(said, f"step '{spec.name}'"),
        metadata=metadata(
            position, home, action, action=action.name, rollback=spec.rollback or action.rollback
        ),
    )  # fmt: skip


def _computed(values: Sequence[Any]) -> bool:
    """Whether some argument is worked out while the workflow runs: an agent's answer may be in it."""
    return not all(_plain(one) for one in values)


def check_proposed(ctx: StepContext, tools: Mapping[str, Tool]) -> None:
    """Raise `StepFailed` for an effect that is not for agents to want, where its arguments may be theirs."""
    for effect in ctx.proposed:
        tool = tools.get(effect.tool)
        if tool is not None and tool.refuses is not None:
            for problem in tool.refuses(effect.args):
                place, _, why = problem.partition(": ")
                raise StepFailed(
                    f"'{place.removeprefix('/')}' was worked out while the workflow ran, and it {why}. "
                    f"Write the path and all else into the workflow file, without expressions."
                )


def action_step(
    action: Action,
    inputs: Callable[[StepContext], Mapping[str, Any]],
    *,
    tools: Mapping[str, Tool] | None = None,
    lands: tuple[str, ...] = (),
    **options: Any,
) -> Step:
    """A step that performs an action on what `inputs` gives.

    `tools` are given where its arguments are worked out while the workflow runs.
    """

    async def handler(ctx: StepContext) -> Any:
        answer = await perform(action, ctx, await ctx.inputs())
        if tools:
            check_proposed(ctx, tools)
        return answer

    if action.holds:
        options["metadata"] = {**options.get("metadata", {}), WAITS: action.intent}
    handler.__wrapped__ = action.handler  # type: ignore[attr-defined]  # whose code the evidence is about
    return Step(
        handler=handler,
        # What waits for a person or the clock cannot be an agent's to answer.
        intent="" if action.holds else action.intent,
        timeout=action.timeout, effects=action.effects, queries=action.queries or None, inputs=inputs,
        agent=AgentSide(returns=returns_of(action.handler), lands=lands), validator=action.validator,
        compare=action.compare, max_autonomy=action.max_autonomy, opaque=action.opaque,
        repeatable=action.repeatable,
        **options,
    )  # fmt: skip
