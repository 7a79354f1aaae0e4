"""The tools of one step as an agent gets to use them: queries are asked, effects are only written down."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from detent.engine.executor import OutputSchemaValidationError
from detent.engine.outcome import Effect
from detent.kernel.errors import ConfigurationError, nearest
from detent.kernel.plain import digest, to_plain

if TYPE_CHECKING:
    from detent.engine.context import StepContext
    from detent.engine.executor import UsageMetadata
    from detent.engine.tools import Kind, Tool


class AgentTool(NamedTuple):
    """What an agent is told about a tool."""

    name: str
    kind: Kind
    description: str
    arguments: Mapping[str, Any]
    """JSON Schema of its arguments, an object."""


class AgentTools:
    """The allowed tools of the step under way. Only what is listed can be called, whatever a text says."""

    def __init__(self, ctx: StepContext, tools: Mapping[str, Tool]) -> None:
        self._ctx = ctx
        self._tools = tools
        self.proposed: list[Effect] = []
        """Effects wanted so far, in call order."""
        self.used: UsageMetadata | None = None
        """What the turns remembered so far have used up; whoever asks again does not pay for them."""

    def __iter__(self) -> Any:
        return iter(self.list())

    def __len__(self) -> int:
        return len(self._tools)

    def list(self) -> tuple[AgentTool, ...]:
        """The allowed tools."""
        return tuple(
            AgentTool(tool.name, tool.kind, tool.description, tool.schema) for tool in self._tools.values()
        )

    async def call(self, name: str, args: Mapping[str, Any]) -> Any:
        """The answer of a query; for an effect, a stand-in for what it will give when it is performed.

        A name or arguments that are not allowed raise `OutputSchemaValidationError`: the agent broke the
        step's contract.
        """
        tool = self._tools.get(name)
        if tool is None:
            there = ", ".join(self._tools) or "none"
            raise self._refused([f"tool '{name}' is not allowed here.{nearest(name, self._tools)} Allowed: {there}."])
        plain = dict(to_plain(dict(args)))
        if problems := tool.misfits(plain):
            raise self._refused([f"tool '{name}': {problem}" for problem in problems])
        if tool.kind == "query":
            return await self._ctx.query(name, durable=True, **plain)
        effect = Effect(name, plain)
        self.proposed.append(effect)
        return {"status": "proposed", "ref": effect.identity(self._ctx.step.name)}

    async def remember(
        self, request: Any, work: Callable[[], Any], usage: Callable[[Any], UsageMetadata | None]
    ) -> Any:
        """An answer in the middle of an execution (a model's turn), kept so that it is not paid for twice.

        `request` is everything the answer depends on. `work` gives a plain value; `usage` reads what it
        used up from that value.
        """
        fresh = False

        async def ask() -> Any:
            nonlocal fresh
            fresh = True
            return await work()

        key = f"turn/{digest(to_plain(request), 24)}"
        value = await self._ctx.once(key, ask, spend=lambda said: _spend(usage(said)))
        if fresh and (used := usage(value)) is not None:
            self.used = used if self.used is None else self.used + used
        return value

    def _refused(self, problems: list[str]) -> OutputSchemaValidationError:
        return OutputSchemaValidationError(self._ctx.step.name, "the allowed tools", problems)


def _spend(usage: UsageMetadata | None) -> Any:
    from detent.kernel.budget import NOTHING

    return NOTHING if usage is None else usage.spend


def chosen_tools(ctx: StepContext, allowed: tuple[str, ...] | None) -> dict[str, Tool]:
    """The tools a step declares, narrowed to those its configuration allows."""
    step, flow = ctx.step, ctx.tools
    names = [*(step.queries or ()), *(step.effects or ())]
    if allowed is not None:
        for name in allowed:
            if name not in names:
                raise ConfigurationError(
                    f"Step '{step.name}' declares no tool '{name}'.{nearest(name, names)} "
                    f"It declares: {', '.join(names) or 'none'}."
                )
        names = [name for name in names if name in allowed]
    return {name: flow[name] for name in names}
