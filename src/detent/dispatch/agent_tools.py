"""The tools of one step for an agent: queries are performed, effects are only recorded as proposals."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from detent.dispatch.agent_side import agent_side, offered
from detent.dispatch.executor_errors import OutputSchemaValidationError
from detent.dispatch.prompt import masked, one_line
from detent.engine.calls import over
from detent.engine.context import CannotCheck
from detent.engine.outcome import Effect
from detent.engine.ports import TapeError
from detent.engine.tools import ToolError
from detent.kernel.budget import NOTHING, Spend
from detent.kernel.errors import BudgetExceededError, Fenced, StoreUnavailable
from detent.kernel.plain import decode, digest, encode, to_plain

if TYPE_CHECKING:
    from detent.dispatch.usage import UsageMetadata
    from detent.engine.context import StepContext
    from detent.engine.step import Step
    from detent.engine.tools import Kind, Tool, Toolbox


FATAL = (Fenced, StoreUnavailable, TapeError, BudgetExceededError, CannotCheck)
"""Errors that no executor may swallow."""


class AgentTool(NamedTuple):
    """A tool as an agent sees it."""

    name: str
    kind: Kind
    description: str
    arguments: Mapping[str, Any]
    """JSON Schema of its arguments, an object."""


class AgentTools:
    """The allowed tools of the step under way. No other tool can be called, whatever a prompt contains."""

    def __init__(
        self,
        ctx: StepContext,
        tools: Mapping[str, Tool],
        *,
        durable: bool = True,
        secrets: frozenset[str] = frozenset(),
    ) -> None:
        self._durable = durable
        self._secrets = secrets
        self._ctx = ctx
        self._tools = {name: tool for name, tool in tools.items() if tool.for_agents}
        self.proposed: list[Effect] = []
        """Effects proposed so far, in call order."""
        self.used: UsageMetadata | None = None
        """Usage of the turns kept so far, which are not paid for again."""
        self.stopped: Exception | None = None
        """Error that must end the execution: run taken over, store unavailable, or budget used up."""

    def __iter__(self) -> Any:
        return iter(self.list())

    def __len__(self) -> int:
        return len(self._tools)

    def list(self) -> tuple[AgentTool, ...]:
        """The allowed tools."""
        return tuple(
            AgentTool(tool.name, tool.kind, one_line(tool.description), tool.schema)
            for tool in self._tools.values()
        )

    async def call(self, name: str, args: Mapping[str, Any]) -> Any:
        """The answer of a query; for an effect, a placeholder for its receipt.

        Raises:
            OutputSchemaValidationError: the tool or its arguments are not allowed, which breaks the contract.
        """
        tool = self._tools.get(name)
        if tool is None:
            allowed = ", ".join(self._tools) or "none"
            # The agent made the name up, so it is kept out of a message that reaches logs.
            raise self._refused([f"a tool was called that is not allowed here. Allowed: {allowed}"])
        plain = dict(to_plain(dict(args)))
        if problems := await over(plain, tool.misfits, plain):
            raise self._refused([f"tool '{name}': {problem}" for problem in problems])
        if tool.kind == "query":
            with self._stopping():
                return await self._look(name, plain)
        effect = Effect(name, plain)
        self.proposed.append(effect)
        return {"status": "proposed", "ref": effect.identity(self._ctx.step.name)}

    async def _look(self, name: str, args: dict[str, Any]) -> Any:
        """A query's answer for the agent, with secrets masked: like a prompt, it goes to a provider."""
        try:
            answer = await self._ctx.look(name, args, durable=self._durable)
        except Exception as error:
            if isinstance(error, FATAL) or not any(
                secret in str(error) for secret in self._secrets if secret
            ):
                raise
            raise ToolError("failed", "the reason is withheld, because it contains a secret") from None
        return masked(answer, self._secrets) if self._secrets else answer

    async def remember(
        self, request: Any, work: Callable[[], Any], usage: Callable[[Any], UsageMetadata | None]
    ) -> Any:
        """An answer in the middle of an execution (a model's turn), kept so that it is not paid for twice.

        `request` is everything the answer depends on. `work` returns a plain value, from which `usage` reads
        the usage.
        """
        fresh = not self._durable

        async def ask() -> Any:
            nonlocal fresh
            fresh = True
            return await work()

        async def apart() -> Any:
            """Keep the answer outside the journal, and its cost in the journal."""
            value = to_plain(await ask())
            used = usage(value)
            return {
                "usage": used.to_plain() if used is not None else None,
                "kept": self._ctx.keep(encode(value)),
            }

        key = f"turn/{digest(to_plain(request), 24)}"
        with self._stopping():
            if not self._durable:
                value = to_plain(await work())
            elif not agent_side(self._ctx.step).private:
                value = await self._ctx.once(key, ask, spend=lambda answer: _spend(usage(answer)))
            else:
                record = await self._ctx.once(key, apart, spend=_spend_said)
                raw = await self._ctx.kept(record["kept"])
                value = decode(raw) if raw is not None else to_plain(await ask())  # purged: asked anew
        if fresh and (used := usage(value)) is not None:
            self.used = used if self.used is None else self.used + used
        return value

    @contextlib.contextmanager
    def _stopping(self) -> Iterator[None]:
        """Remember an error that must end the execution, even if the executor swallows it."""
        try:
            yield
        except FATAL as error:
            self.stopped = error
            raise

    def _refused(self, problems: Sequence[str]) -> OutputSchemaValidationError:
        return OutputSchemaValidationError(self._ctx.step.name, "the allowed tools", problems)


def _spend_said(record: Mapping[str, Any]) -> Spend:
    from detent.dispatch.usage import UsageMetadata

    return _spend(UsageMetadata.from_plain(record["usage"]))


def _spend(usage: UsageMetadata | None) -> Spend:
    return NOTHING if usage is None else usage.spend


def declared_tools(step: Step, tools: Toolbox, allowed: tuple[str, ...] | None) -> dict[str, Tool]:
    """The tools a step declares, narrowed to those that agents may use and its configuration allows."""
    queries, effects = offered(step)
    offers = agent_side(step).offers
    names = dict.fromkeys([*(queries or ()), *(effects or ())])
    return {
        name: offers.get(name, tools[name])
        for name in names
        if tools[name].for_agents and (allowed is None or name in allowed)
    }
