"""Python steps: a registered action, called with resolved arguments, or an agent in its place."""

from __future__ import annotations

import inspect
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
from detent.flows.workflow.references import with_values
from detent.flows.workflow.registry import Action
from detent.flows.workflow.spec import PythonStep
from detent.flows.workflow.steps.common import conclusion, gate, metadata, resolved
from detent.flows.workflow.steps.contracts import declared
from detent.kernel.plain import to_plain


def bound(action: Action, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments by name; `args` are passed to the first parameters."""
    return {**dict(zip(action.parameters, args, strict=False)), **kwargs}


def defaults(action: Action) -> dict[str, Any]:
    """Return the default arguments of an action, which agents receive too."""
    return {
        name: parameter.default
        for name, parameter in action.parameters.items()
        if parameter.default is not parameter.empty and _plain(parameter.default)
    }


def _plain(value: Any) -> bool:
    """Whether a value could be written in a file and holds no expression."""
    if isinstance(value, str):
        return OPENING not in value
    if isinstance(value, list | tuple):
        return all(map(_plain, value))
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _plain(item) for key, item in value.items())
    return value is None or isinstance(value, bool | int | float)


async def perform(action: Action, ctx: StepContext, kwargs: Mapping[str, Any]) -> Any:
    """Call an action's handler; references among its arguments are replaced by their values."""
    first = (ctx,) if action.wants_context else ()
    arguments = await with_values(ctx, action, kwargs)
    if inspect.iscoroutinefunction(action.handler):
        return await action.handler(*first, **arguments)
    return await call(action.handler, action.blocking, *first, **arguments)


def notifying(
    action: Action, conclude: Callable[[StepContext, Any], Any]
) -> Callable[[StepContext, Any], Any]:
    """Return the conclusion of an action, which also records the message of the action in the run."""
    if action.tells is None:
        return conclude
    tells = action.tells

    async def conclude_and_notify(ctx: StepContext, output: Any) -> Any:
        outcome = await conclude(ctx, output)
        if isinstance(outcome, Outcome):
            message, level = tells(await ctx.inputs())
            ctx.emit(message, level)
        return outcome

    return conclude_and_notify


def python_step(position: Position, home: CompileContext) -> Step:
    """Return the flow's step for a python step."""
    spec = position.spec
    assert isinstance(spec, PythonStep)
    action = home.registry.actions.get(spec.action)
    arguments = prepared({**defaults(action), **bound(action, spec.args, spec.kwargs)})
    contract = spec.output_schema if spec.output_schema is not None else action.output_schema

    async def inputs(ctx: StepContext) -> Mapping[str, Any]:  # a plain function would get a thread
        values: dict[str, Any] = to_plain(resolved(arguments, ctx))
        return values

    computed = _computed([*spec.args, *spec.kwargs.values()])
    return action_step(
        action, inputs, tools=home.tools if computed else None, name=spec.name, before=gate(position),
        conclude=notifying(action, conclusion(position)),
        config=spec.own_config,
        output_schema=declared(contract, f"step '{spec.name}'"),
        metadata=metadata(
            position, home, action, action=action.name, rollback=spec.rollback or action.rollback
        ),
    )  # fmt: skip


def _computed(values: Sequence[Any]) -> bool:
    """Whether an argument holds an expression, whose value may come from an agent."""
    return not all(map(_plain, values))


def check_proposed(ctx: StepContext, tools: Mapping[str, Tool]) -> None:
    """Check effects whose arguments may come from an agent.

    Raises:
        StepFailed: the tool refuses these arguments from agents.
    """
    for effect in ctx.proposed:
        _check_effect(effect.tool, effect.args, tools)


def _check_effect(name: str, args: Mapping[str, Any], tools: Mapping[str, Tool]) -> None:
    tool = tools.get(name)
    if tool is not None and tool.refuses is not None:
        for problem in tool.refuses(args):
            path, _, reason = problem.partition(": ")
            raise StepFailed(
                f"'{path.removeprefix('/')}' was worked out while the workflow ran, and it {reason}. "
                f"Write the path and all else into the workflow file, without expressions."
            )


def check_performed(ctx: StepContext, tools: Mapping[str, Tool]) -> None:
    """Have effects that a handler performs checked before they are, like those it proposes."""
    perform = ctx.perform

    async def checked(tool: str, /, *, effect_key: str | None = None, **args: Any) -> Any:
        _check_effect(tool, args, tools)
        return await perform(tool, effect_key=effect_key, **args)

    ctx.perform = checked  # type: ignore[method-assign]


def action_step(
    action: Action,
    inputs: Callable[[StepContext], Any],
    *,
    tools: Mapping[str, Tool] | None = None,
    **options: Any,
) -> Step:
    """Return a step that calls an action with the arguments from `inputs`.

    With `tools`, the effects it proposes are checked: their arguments may come from an agent.
    """

    async def handler(ctx: StepContext) -> Any:
        if tools:
            check_performed(ctx, tools)
        answer = await perform(action, ctx, await ctx.inputs())
        if tools:
            check_proposed(ctx, tools)
        return answer

    if action.holds:
        options["metadata"] = {**options.get("metadata", {}), WAITS: action.intent}
    handler.__wrapped__ = action.handler  # type: ignore[attr-defined]  # the code that evidence is about
    return Step(
        handler=handler,
        # An agent cannot answer in place of a person or a timer.
        intent="" if action.holds else action.intent,
        timeout=action.timeout, effects=action.effects, queries=action.queries or None, inputs=inputs,
        agent=AgentSide(
            returns=returns_of(action.handler), rounds=action.rounds, from_receipts=action.from_receipts,
            may_abstain=action.may_abstain,
        ),
        validator=action.validator,
        compare=action.compare, max_autonomy=action.max_autonomy, opaque=action.opaque,
        repeatable=action.repeatable,
        **options,
    )  # fmt: skip
