"""The port through which a step reaches an agent: `StepExecutor`, what it gives back, how it fails.

No provider is named or imported here. An executor decides and proposes; it never performs an effect.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

from detent.dispatch.autonomy import FallbackReason
from detent.kernel.budget import Spend
from detent.kernel.errors import DetentError

if TYPE_CHECKING:
    from detent.dispatch.agent_tools import AgentTools
    from detent.dispatch.config import StepConfig

Schema: TypeAlias = type | Mapping[str, Any]
"""A dataclass, TypedDict or model class, or a JSON Schema."""


class SchemaHint(dict[str, Any]):
    """A JSON Schema to decode under where that can be done, and not to refuse an answer by."""


DISPATCH_AGENT = "dispatch"
"""Name of the built-in agent that performs dispatchable steps."""


class Availability(NamedTuple):
    """Whether an executor could be asked, found out without any network call."""

    ok: bool
    why_not: str = ""
    """Names what is missing: "ANTHROPIC_API_KEY is not set"."""


@dataclass(frozen=True, slots=True)
class UsageMetadata:
    """What an execution used up."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    total_cost_usd: float | None = None
    """None when the price is not known."""

    def __add__(self, other: UsageMetadata) -> UsageMetadata:
        known = self.total_cost_usd is not None and other.total_cost_usd is not None
        return UsageMetadata(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cache_read_tokens + other.cache_read_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            (self.total_cost_usd or 0.0) + (other.total_cost_usd or 0.0) if known else None,
        )

    @property
    def spend(self) -> Spend:
        """As the journal counts it; an unknown price counts as nothing there."""
        return Spend(self.input_tokens, self.output_tokens, self.total_cost_usd or 0.0)

    def to_plain(self) -> dict[str, Any]:
        """As plain values, zeros left out."""
        plain: dict[str, Any] = {
            name: value
            for name in ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
            if (value := getattr(self, name))
        }
        if self.total_cost_usd is not None:
            plain["total_cost_usd"] = self.total_cost_usd
        return plain

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any] | None) -> UsageMetadata | None:
        """Read back what `to_plain` wrote."""
        return None if plain is None else cls(**plain)


@dataclass(frozen=True, slots=True)
class AgentStreamChunk:
    """A piece of an agent's text, told while it is being written. Never journaled."""

    agent_name: str
    text: str
    chunk_type: Literal["output", "thinking", "error"] = "output"
    timestamp: float = 0.0


ExecutorEvent: TypeAlias = AgentStreamChunk
EventCallback: TypeAlias = Callable[[ExecutorEvent], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class ExecutorResult:
    """What an execution gave."""

    output: Any
    """Parsed and, where a schema was given, validated; a text is parsed by whoever asked."""
    success: bool = True
    usage: UsageMetadata | None = None
    events: tuple[AgentStreamChunk, ...] = field(default=(), compare=False)
    model_id: str | None = None
    """The model that answered, as its provider names it."""


@runtime_checkable
class StepExecutor(Protocol):
    """Performs one step as an agent: decides, asks queries, proposes; never performs an effect."""

    async def execute(
        self,
        *,
        step_name: str,
        agent_name: str,
        prompt: Any,
        instructions: str | None = None,
        allowed_tools: list[str] | None = None,
        cwd: Path | None = None,
        output_schema: Schema | None = None,
        config: StepConfig | None = None,
        event_callback: EventCallback | None = None,
        toolbox: AgentTools | None = None,
    ) -> ExecutorResult:
        """One attempt. No retry and no time limit inside: whoever asks sees to both."""

    def available(self) -> Availability:
        """Whether it could be asked now; makes no network call."""


class ExecutorSource(Protocol):
    """Where executors come from. One is made per provider and run."""

    @property
    def default(self) -> str | None:
        """Provider used by steps that name none; None when nothing is configured."""

    def make(self, provider: str) -> StepExecutor:
        """A fresh executor of a provider; `IntegrationMissing` or `ConfigurationError` when it cannot be."""

    async def close(self) -> None:
        """Let go of connections and loaded models."""


class ExecutorError(DetentError):
    """An execution failed."""

    reason = FallbackReason.EXCEPTION

    def __init__(
        self,
        message: str,
        *,
        step_name: str = "",
        attempt: int = 1,
        transient: bool = False,
        retry_after: float | None = None,
        usage: UsageMetadata | None = None,
    ) -> None:
        self.step_name = step_name
        self.attempt = attempt
        self.transient = transient
        """Trying again may help: a lost connection, a rate limit."""
        self.retry_after = retry_after
        """Seconds to wait at least, when the other side said so."""
        self.usage = usage
        """What the failed execution had used up by then."""
        super().__init__(message)


class ExecutorTimeoutError(ExecutorError):
    """An attempt took too long."""

    reason = FallbackReason.TIMEOUT

    def __init__(
        self, step_name: str, timeout: float, attempt: int = 1, usage: UsageMetadata | None = None
    ) -> None:
        self.timeout = timeout
        super().__init__(
            f"'{step_name}' was not answered within {timeout:g} s (attempt {attempt}).",
            step_name=step_name, attempt=attempt, transient=True, usage=usage,
        )  # fmt: skip


class OutputSchemaValidationError(ExecutorError):
    """The answer breaks the step's hard contract. Asked once more, with the violations told."""

    reason = FallbackReason.SCHEMA_VIOLATION

    def __init__(
        self,
        step_name: str,
        schema_type: str,
        validation_errors: Sequence[str],
        *,
        attempt: int = 1,
        usage: UsageMetadata | None = None,
    ) -> None:
        self.schema_type = schema_type
        self.validation_errors = tuple(validation_errors)
        """Each names a place and what was expected there, never the value that stood there."""
        super().__init__(
            f"The answer for '{step_name}' does not fit {schema_type}: {'; '.join(self.validation_errors)}",
            step_name=step_name, attempt=attempt, usage=usage,
        )  # fmt: skip


class ReferenceResolutionError(ExecutorError):
    """An execution referred to something that is not there."""

    def __init__(
        self, reference_type: str, reference_name: str, available_names: Sequence[str], *, step_name: str = ""
    ) -> None:
        self.reference_type = reference_type
        self.reference_name = reference_name
        self.available_names = tuple(available_names)
        known = ", ".join(self.available_names) or "none"
        super().__init__(
            f"There is no {reference_type} '{reference_name}'. There is: {known}.", step_name=step_name
        )


class BudgetExhaustedError(ExecutorError):
    """No budget is left for an attempt."""

    reason = FallbackReason.BUDGET

    def __init__(self, limit: str, spent: float, of: float, *, step_name: str = "") -> None:
        self.limit = limit
        self.spent = spent
        self.of = of
        super().__init__(f"The {limit} budget is used up: {spent:g} of {of:g}.", step_name=step_name)


class DispatchError(DetentError):
    """The agent failed and so did the handler it fell back on."""

    def __init__(
        self, step_name: str, reason: FallbackReason, agent_error: str, handler_error: BaseException
    ) -> None:
        self.step_name = step_name
        self.reason = reason
        self.agent_error = agent_error
        self.handler_error = handler_error
        self.detail: dict[str, Any] = {}
        """What the journal keeps about the dispatch."""
        self.after: Callable[[], Awaitable[None]] | None = None
        """Called once the failure is committed."""
        super().__init__(
            f"Step '{step_name}' failed twice. Agent ({reason.value}): {agent_error}. "
            f"Handler: {type(handler_error).__name__}: {handler_error}"
        )
        self.__cause__ = handler_error
