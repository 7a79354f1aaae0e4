"""Agent and generate steps: somebody else's words, with a handler to fall back on where there is one."""

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
from detent.flows.workflow.run_data import GIVEN, OUTPUT, key_of
from detent.flows.workflow.spec import AgentStep, GenerateStep
from detent.flows.workflow.steps.common import conclusion, gate, metadata, resolved
from detent.flows.workflow.steps.contracts import declared
from detent.kernel.errors import ConfigurationError
from detent.kernel.plain import to_plain

Context = Prepared | ContextBuilder | None


def _context(said: Any, home: CompileContext) -> Context:
    if said is None:
        return None
    if isinstance(said, str) and said in home.registry.context_builders:
        return home.registry.context_builders.get(said)
    return prepared(said)


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


async def _nobody(ctx: StepContext) -> Any:
    raise AssertionError(f"step '{ctx.step.name}' has no handler")


def _concluding(
    position: Position, context: Context, rollback: str | None
) -> Callable[[StepContext, Any], Any]:
    """As every step, and what a context builder gave is kept where a rollback may ask for it."""
    conclude = conclusion(position)
    if rollback is None or not isinstance(context, ContextBuilder):
        return conclude

    async def keeping(ctx: StepContext, output: Any) -> Any:
        outcome = conclude(ctx, output)
        key = key_of(position.owner)
        given = await ctx.inputs()
        return outcome._replace(set={key: {**outcome.set[key], GIVEN: given}})

    return keeping


def agent_step(position: Position, home: CompileContext) -> Step:
    """The flow's step for an agent step: no handler, so no fallback."""
    spec = position.spec
    assert isinstance(spec, AgentStep)
    agent = home.registry.agents.get(spec.agent)
    context = _context(spec.context, home)

    async def inputs(ctx: StepContext) -> dict[str, Any]:
        given = await _built(context, ctx, spec.name)
        if agent.prompt is None:
            return given
        told = await call(agent.prompt, None, given)
        return given if told is None else {"task": str(told), **given}

    queries, effects = home.kinds(agent.tools)
    said = spec.output_schema if spec.output_schema is not None else agent.output_schema
    return Step(
        spec.name, _nobody, agent.instructions, before=gate(position), inputs=inputs,
        conclude=_concluding(position, context, spec.rollback), effects=effects,
        agent=AgentSide(AgentRole.REQUIRED, lands=(key_of(position.owner), OUTPUT), queries=queries),
        config=spec.own_config,
        output_schema=declared(said, f"step '{spec.name}'"),
        metadata=metadata(position, home, agent, agent=agent.name, action=agent.name, rollback=spec.rollback),
    )  # fmt: skip


def generate_step(position: Position, home: CompileContext) -> Step:
    """The flow's step for a generate step: by agent, and by the generator's handler where that fails."""
    spec = position.spec
    assert isinstance(spec, GenerateStep)
    generator = home.registry.generators.get(spec.generator)
    context = _context(spec.context, home)
    maker = generator.handler

    async def inputs(ctx: StepContext) -> dict[str, Any]:
        return await _built(context, ctx, spec.name)

    async def handler(ctx: StepContext) -> str:
        assert maker is not None
        first = next(iter(inspect.signature(maker).parameters), None)
        given = await ctx.inputs()
        text = await call(maker, None, *((ctx,) if first == "ctx" else ()), **given)
        return str(text)

    if maker is not None:
        handler.__wrapped__ = maker  # type: ignore[attr-defined]  # whose code the evidence is about
    queries, effects = home.kinds(generator.tools)
    return Step(
        spec.name, handler if maker is not None else _nobody, _told(generator),
        before=gate(position), inputs=inputs, conclude=_concluding(position, context, spec.rollback),
        agent=AgentSide(AgentRole.PREFERRED if maker is not None else AgentRole.REQUIRED, queries=queries),
        effects=effects, output_schema=str,
        config=spec.own_config,
        metadata=metadata(position, home, generator, action=generator.name, rollback=spec.rollback),
    )  # fmt: skip


def _told(generator: Generator) -> str:
    """What a generator's agent is told: its intent, and its prompt file."""
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
