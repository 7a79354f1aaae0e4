"""The port through which a step reaches an agent: `StepExecutor` and its result.

No provider is named or imported here. An executor never performs an effect: it calls a tool, and the engine
performs it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias, TypeGuard, runtime_checkable

from detent.dispatch.usage import UsageMetadata

if TYPE_CHECKING:
    from detent.dispatch.agent_tools import AgentTool, AgentTools
    from detent.dispatch.config import StepConfig
    from detent.dispatch.conversation import Message, ModelAnswer

Schema: TypeAlias = type | Mapping[str, Any]
"""A dataclass, TypedDict or model class, or a JSON Schema."""


class SchemaHint(dict[str, Any]):
    """A JSON Schema for constrained decoding where possible; an answer is not refused because of it."""


DISPATCH_AGENT = "dispatch"
"""Name of the built-in agent that performs dispatchable steps."""

NO_MODEL = "no model is configured (write `model: {provider: …}` in the settings; see docs/models.md)"
NO_MODEL_ID = "its server has several models and none is named (write `model: {id: …}` in the settings)"
"""Why no agent can be asked where the settings name none."""


class Availability(NamedTuple):
    """Whether an executor could be asked, found out without any network call."""

    ok: bool
    why_not: str = ""
    """What is missing: "ANTHROPIC_API_KEY is not set"."""


@dataclass(frozen=True, slots=True)
class AgentStreamChunk:
    """A piece of an agent's text, streamed while it is being written. Never journaled."""

    agent_name: str
    text: str
    chunk_type: Literal["output", "thinking", "error"] = "output"
    timestamp: float = 0.0


ExecutorEvent: TypeAlias = AgentStreamChunk
EventCallback: TypeAlias = Callable[[ExecutorEvent], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class ExecutorResult:
    """The result of an execution."""

    output: Any
    """Parsed and, if a schema was given, validated; a text is parsed by the caller."""
    success: bool = True
    usage: UsageMetadata | None = None
    events: tuple[AgentStreamChunk, ...] = field(default=(), compare=False)
    model_id: str | None = None
    """The model that answered, by its provider's name."""


@dataclass(frozen=True, slots=True)
class ReplyRequest:
    """What an agent is asked next in a conversation."""

    step_name: str
    agent_name: str
    messages: Sequence[Message]
    tools: Sequence[AgentTool] = ()
    schema: Schema | None = None
    """The shape of an answer that calls no tool."""
    config: StepConfig | None = None
    event_callback: EventCallback | None = None
    takes_calls: bool = False
    """The caller takes each reply as it was written: text beside calls, calls that cannot be read or were cut
    off, the words of a refusal. Otherwise the last two are failures, and an agent without native calls is
    held to either one call or one answer in JSON."""


@runtime_checkable
class ConversationExecutor(Protocol):
    """An executor that gives one reply at a time; the conversation, and calling its tools, is dispatch's."""

    async def reply(self, request: ReplyRequest) -> ModelAnswer:
        """One reply: tool calls, or an answer. Retries and time limits are the caller's business."""


def converses(executor: object) -> TypeGuard[ConversationExecutor]:
    """Whether an executor gives one reply at a time.

    The same as `isinstance`, which lists what a protocol has at every call and takes longer than the rest of
    preparing a request.
    """
    return callable(getattr(executor, "reply", None))


@runtime_checkable
class StepExecutor(Protocol):
    """Performs one step as an agent that runs its own loop or knows only a prompt.

    Its calls of `toolbox` are carried out at once: a query is answered, an effect is performed by the engine.
    It may also answer `{"calls": [{"tool", "args"}]}` and is then asked again, with the results.
    """

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
        """One attempt. Retries and time limits are the caller's business."""

    def available(self) -> Availability:
        """Whether the executor could be asked now; makes no network call."""


class ExecutorSource(Protocol):
    """The source of executors. One is made per provider and run."""

    @property
    def default(self) -> str | None:
        """The provider of steps that name none; None when nothing is configured."""

    def make(self, provider: str) -> StepExecutor:
        """A new executor of a provider.

        Raises:
            IntegrationMissing: its package is not installed.
            ConfigurationError: there is no such provider, or its settings cannot be used.
        """

    async def close(self) -> None:
        """Release connections and loaded models."""


class PlayedExecutor:
    """Placeholder for an executor while a tape plays back its answers."""

    async def execute(self, **_: Any) -> ExecutorResult:
        """Never called."""
        raise AssertionError("a tape that plays calls nobody")

    def available(self) -> Availability:
        """Always available."""
        return Availability(True)

    def priced(self, model_id: str | None) -> bool:
        """Always true: recorded answers have recorded costs."""
        return True
