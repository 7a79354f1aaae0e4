"""The port for models of every kind: messages in, one answer out.

`ModelStepExecutor` turns a conversation into a request; a `Model` only completes it. A failure is an
`ExecutorError` (transient for lost connections, overload and rate limits, with `retry_after` where known).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

from detent.dispatch.agent_tools import AgentTool
from detent.dispatch.conversation import Message, ModelAnswer
from detent.dispatch.executor import Availability


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """Everything an answer depends on."""

    messages: tuple[Message, ...]
    model_id: str | None = None
    """None stands for the model's own default."""
    schema: Mapping[str, Any] | None = None
    """JSON Schema the answer must fit; a model that can be constrained by it is."""
    tools: tuple[AgentTool, ...] = ()
    """Given only to models with `native_tools`."""
    temperature: float = 0.0
    max_tokens: int = 4096


def with_system_text(messages: Sequence[Message], text: str) -> tuple[Message, ...]:
    """The messages with a text at the end of the system message, or as a new one."""
    if messages and messages[0].role == "system":
        return (messages[0]._replace(content=f"{messages[0].content}\n\n{text}"), *messages[1:])
    return (Message("system", text), *messages)


OnText: TypeAlias = Callable[[str, Literal["output", "thinking"]], Awaitable[None]]
"""Called with each piece of text as it arrives."""


class Model(Protocol):
    """Completes conversations."""

    native_tools: bool
    """True when it accepts `tools` and answers with `calls`; otherwise tools are described in the prompt."""

    async def complete(self, request: ModelRequest, on_text: OnText | None = None) -> ModelAnswer:
        """One answer. Cancelling the call stops the work as soon as possible."""

    def available(self) -> Availability:
        """Whether the model could be asked now; makes no network call."""

    def priced(self, model_id: str | None) -> bool:
        """Whether the cost of asking this model is known beforehand (that of a free one is)."""

    async def close(self) -> None:
        """Release connections and memory."""
