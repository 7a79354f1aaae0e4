"""Agent and generate steps: performed by agents, a generate step with a handler as fallback."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from detent.dispatch.agent_side import AgentSide
from detent.dispatch.autonomy import AgentRole
from detent.engine.calls import call
from detent.engine.context import StepContext
from detent.engine.step import Step
from detent.flows.workflow.compile_context import CompileContext, Position
from detent.flows.workflow.expressions import Prepared, prepared
from detent.flows.workflow.registry import ContextBuilder, Generator
from detent.flows.workflow.run_data import GIVEN, key_of
from detent.flows.workflow.spec import AgentStep, GenerateStep
from detent.flows.workflow.steps.common import conclusion, gate, metadata, resolved
from detent.flows.workflow.steps.contracts import declared
from detent.kernel.errors import ConfigurationError
from detent.kernel.plain import to_plain

Context = Prepared | ContextBuilder | None


def _context(value: Any, home: CompileContext) -> Context:
    if value is None:
        return None
    if isinstance(value, str) and value in home.registry.context_builders:
        return home.registry.context_builders.get(value)
    return prepared(value)


async def _built(context: Context, ctx: StepContext, name: str) -> dict[str, Any]:
    if context is None:
        return {}
    value = resolved(context, ctx) if isinstance(context, Prepared) else await call(context.build, None, ctx)
    if not isinstance(value, Mapping):
        raise ConfigurationError(
            f"The context of step '{name}' is {type(value).__name__}; it must give names to values."
        )
    plain: dict[str, Any] = to_plain(dict(value))
    return plain


async def _no_handler(ctx: StepContext) -> Any:
    raise AssertionError(f"step '{ctx.step.name}' has no handler")


def _concluding(
    position: Position, context: Context, rollback: str | None
) -> Callable[[StepContext, Any], Any]:
    """The conclusion of a step; it keeps the result of a context builder for the rollback."""
    conclude = conclusion(position)
    if rollback is None or not isinstance(context, ContextBuilder):
        return conclude

    async def conclude_and_keep(ctx: StepContext, output: Any) -> Any:
        outcome = await conclude(ctx, output)
        key = key_of(position.owner)
        inputs = await ctx.inputs()
        return outcome._replace(set={key: {**outcome.set[key], GIVEN: inputs}})

    return conclude_and_keep


def agent_step(position: Position, home: CompileContext) -> Step:
    """Return the flow's step for an agent step, which has no handler and no fallback."""
    spec = position.spec
    assert isinstance(spec, AgentStep)
    agent = home.registry.agents.get(spec.agent)
    context = _context(spec.context, home)

    async def inputs(ctx: StepContext) -> dict[str, Any]:
        values = await _built(context, ctx, spec.name)
        if agent.prompt is None:
            return values
        task = await call(agent.prompt, None, values)
        return values if task is None else {"task": str(task), **values}

    queries, effects = home.kinds(agent.tools)
    contract = spec.output_schema if spec.output_schema is not None else agent.output_schema
    return Step(
        spec.name, _no_handler, agent.instructions, before=gate(position), inputs=inputs,
        conclude=_concluding(position, context, spec.rollback), effects=effects,
        agent=AgentSide(AgentRole.REQUIRED, queries=queries),
        config=spec.own_config,
        output_schema=declared(contract, f"step '{spec.name}'"),
        metadata=metadata(position, home, agent, agent=agent.name, action=agent.name, rollback=spec.rollback),
    )  # fmt: skip


def generate_step(position: Position, home: CompileContext) -> Step:
    """Return the flow's step for a generate step; its handler is the fallback of the agent."""
    spec = position.spec
    assert isinstance(spec, GenerateStep)
    generator = home.registry.generators.get(spec.generator)
    context = _context(spec.context, home)
    write = generator.handler

    async def inputs(ctx: StepContext) -> dict[str, Any]:
        return await _built(context, ctx, spec.name)

    async def handler(ctx: StepContext) -> str:
        assert write is not None
        first = next(iter(inspect.signature(write).parameters), None)
        values = await ctx.inputs()
        text = await call(write, None, *((ctx,) if first == "ctx" else ()), **values)
        return str(text)

    if write is not None:
        handler.__wrapped__ = write  # type: ignore[attr-defined]  # the code that evidence is about
    queries, effects = home.kinds(generator.tools)
    return Step(
        spec.name, handler if write is not None else _no_handler, _instructions(generator),
        before=gate(position), inputs=inputs, conclude=_concluding(position, context, spec.rollback),
        agent=AgentSide(AgentRole.PREFERRED if write is not None else AgentRole.REQUIRED, queries=queries),
        effects=effects, output_schema=str,
        config=spec.own_config,
        metadata=metadata(position, home, generator, action=generator.name, rollback=spec.rollback),
    )  # fmt: skip


def _instructions(generator: Generator) -> str:
    """Instructions for a generator's agent: its intent and its prompt file."""
    if generator.prompt_file is None:
        return generator.intent
    base = Path(".")
    if generator.handler is not None:
        code = getattr(generator.handler, "__code__", None)
        base = Path(code.co_filename).parent if code is not None else base
    path = base / generator.prompt_file
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"Generator '{generator.name}': its prompt file {generator.prompt_file} cannot be read "
            f"({type(error).__name__})."
        ) from error
    return f"{generator.intent}\n\n{text}" if generator.intent else text
