"""The tools of one step for an agent: queries are answered, effects are acted on by the step's visit."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from detent.dispatch.agent_side import Lookup, agent_side, offered
from detent.dispatch.executor_errors import OutputSchemaValidationError
from detent.dispatch.prompt import masked, one_line
from detent.engine.calls import over
from detent.engine.outcome import Effect
from detent.engine.ports import TapeError
from detent.engine.step_failures import Transient
from detent.engine.tools import ToolError
from detent.engine.trial_context import CannotCheck
from detent.kernel.errors import BudgetExceededError, Fenced, StoreUnavailable
from detent.kernel.plain import to_plain

if TYPE_CHECKING:
    from detent.engine.context import StepContext
    from detent.engine.step import Step
    from detent.engine.tools import Kind, Tool, Toolbox


FAILED = "ERROR: "
"""Beginning of the result of a query that failed."""
FATAL = (Fenced, StoreUnavailable, TapeError, BudgetExceededError, CannotCheck)
"""Errors that no executor may swallow."""

LONGEST_RESULT = 32 * 1024
"""Characters of a tool's result that are shown to an agent."""


class AgentTool(NamedTuple):
    """A tool as an agent sees it."""

    name: str
    kind: Kind
    description: str
    arguments: Mapping[str, Any]
    """JSON Schema of its arguments, an object."""


class Refusal(NamedTuple):
    """Why a call is not carried out; the agent is told."""

    code: str
    why: tuple[str, ...]


class AgentTools:
    """The allowed tools of the step under way. No other tool can be called, whatever a prompt contains."""

    def __init__(
        self,
        ctx: StepContext,
        tools: Mapping[str, Tool],
        act: Callable[[Effect], Awaitable[Any]],
        *,
        secrets: frozenset[str] = frozenset(),
    ) -> None:
        self._ctx = ctx
        self._tools = {name: tool for name, tool in tools.items() if tool.for_agents}
        self._act = act
        """Carries out one effect that an executor asks for in the middle of its own work."""
        self._secrets = secrets
        self._listed: tuple[AgentTool, ...] | None = None
        self.lookups: list[Lookup] = []
        """Queries answered so far."""
        self.stopped: BaseException | None = None
        """Error that must end the execution: run taken over, store unavailable, or budget used up."""

    def __iter__(self) -> Any:
        return iter(self.list())

    def __len__(self) -> int:
        return len(self._tools)

    def list(self) -> tuple[AgentTool, ...]:
        """The allowed tools."""
        if self._listed is None:
            self._listed = tuple(
                AgentTool(tool.name, tool.kind, one_line(tool.description), tool.schema)
                for tool in self._tools.values()
            )
        return self._listed

    def kind(self, name: str) -> Kind:
        """Whether an allowed tool is a query or an effect."""
        return self._tools[name].kind

    async def call(self, name: str, args: Mapping[str, Any]) -> Any:
        """The answer of a query, or the receipt of an effect, which is performed now.

        Raises:
            OutputSchemaValidationError: the tool or its arguments are not allowed, which breaks the contract.
            ToolError: it failed.
        """
        refusal = await self.refusal(name, args)
        if refusal is not None:
            raise OutputSchemaValidationError(self._ctx.step.name, "the allowed tools", refusal.why)
        with self._stopping():
            if self.kind(name) == "query":
                return await self.look(name, args)
            return await self._act(self.effect(name, args))

    async def refusal(self, name: str, args: Any) -> Refusal | None:
        """Why a call is not allowed; None if it is."""
        tool = self._tools.get(name)
        if tool is None:
            allowed = ", ".join(self._tools) or "none"
            # The agent made the name up, so it is kept out of a message that reaches logs.
            why = f"a tool was called that is not allowed here. Allowed: {allowed}"
            return Refusal("not_allowed", (why,))
        if not isinstance(args, Mapping):
            return Refusal("invalid_arguments", (f"tool '{name}': /: must be an object",))
        try:
            plain = dict(to_plain(dict(args)))
        except (TypeError, ValueError):
            return Refusal("invalid_arguments", (f"tool '{name}': /: holds what is not a JSON value",))
        if problems := await over(plain, tool.misfits, plain):
            return Refusal("invalid_arguments", tuple(f"tool '{name}': {problem}" for problem in problems))
        return None

    def effect(self, name: str, args: Mapping[str, Any]) -> Effect:
        """The effect that a call asks for, in the form in which equal ones are recognised."""
        return Effect(name, self._ctx.tools.get(name, "effect").normal(args))

    async def look(self, name: str, args: Mapping[str, Any]) -> Any:
        """A query's answer for the agent, with secrets masked: like a prompt, it goes to a provider."""
        try:
            answer = await self._ctx.look(name, dict(to_plain(dict(args))), agent=True)
        except Exception as error:
            if isinstance(error, FATAL) or not any(
                secret in str(error) for secret in self._secrets if secret
            ):
                raise
            raise ToolError("failed", "the reason is withheld, because it contains a secret") from None
        self.lookups.append((name, dict(args), answer))
        return self.shown(answer)

    def shown(self, value: Any) -> Any:
        """A value as an agent may see it."""
        return masked(value, self._secrets) if self._secrets else value

    async def result(self, name: str, args: Mapping[str, Any]) -> str:
        """The text that answers an agent's query; its failure is an answer too."""
        try:
            return result_text(await self.look(name, args))
        except FATAL:
            raise
        except (ToolError, Transient) as error:
            return f"{FAILED}{error}"[:LONGEST_RESULT]
        except Exception as error:  # its text may hold private data
            return f"{FAILED}the tool failed ({type(error).__name__})."

    @contextlib.contextmanager
    def _stopping(self) -> Iterator[None]:
        """Remember an error that must end the execution, even if the executor swallows it."""
        try:
            yield
        except FATAL as error:
            self.stopped = error
            raise
        except Exception:
            raise
        except BaseException as error:
            self.stopped = error
            raise


def result_text(value: Any) -> str:
    """A tool's result as text for an agent, cut where it is long."""
    text = value if isinstance(value, str) else json.dumps(to_plain(value), indent=2, ensure_ascii=False)
    cut = len(text) - LONGEST_RESULT
    return text if cut <= 0 else f"{text[:LONGEST_RESULT]}…[cut {cut} characters]"


def declared_tools(step: Step, tools: Toolbox, allowed: Sequence[str] | None) -> dict[str, Tool]:
    """The tools a step declares, narrowed to those that agents may use and its configuration allows."""
    queries, effects = offered(step)
    offers = agent_side(step).offers
    names = dict.fromkeys([*(queries or ()), *(effects or ())])
    return {
        name: offers.get(name, tools[name])
        for name in names
        if tools[name].for_agents and (allowed is None or name in allowed)
    }
