"""The port through which a step reaches an agent: `StepExecutor`, and what it gives back.

No provider is named or imported here. An executor decides and proposes; it never performs an effect.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

from detent.dispatch.usage import UsageMetadata

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
