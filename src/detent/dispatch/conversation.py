"""A conversation with an agent: messages of either side, each added once.

Messages are the same for every provider, and the ids of tool calls are ours: a provider may give every call
the same id, or none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from detent.dispatch.message_sizes import MessageSizes
from detent.dispatch.usage import UsageMetadata
from detent.kernel.plain import digest, to_plain


class ToolCall(NamedTuple):
    """A tool the agent wants called."""

    id: str
    name: str
    arguments: Any
    """An object; or, as it was written, what cannot be read as one: that call is refused."""


class Opaque(NamedTuple):
    """Parts of a reply that only its provider understands and wants back: signatures, encrypted reasoning.

    They are kept as they came, sent only to the same provider and model, and shown to nobody.
    """

    provider: str
    model: str
    data: str
    """JSON text, in a form that only the adapter knows."""


class Message(NamedTuple):
    """One message of a conversation."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    calls: tuple[ToolCall, ...] = ()
    """On an assistant's message: the tools it called."""
    answers: str | None = None
    """On a tool's message: the id of the call it answers."""
    opaque: Opaque | None = None
    """On an assistant's message: what its provider wants back with it."""

    def to_plain(self) -> dict[str, Any]:
        """What the message says, without its opaque parts."""
        return {
            "role": self.role,
            "content": self.content,
            "calls": [[call.id, call.name, to_plain(call.arguments)] for call in self.calls],
            "answers": self.answers,
        }


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """What a model said."""

    text: str
    usage: UsageMetadata = field(default_factory=UsageMetadata)
    model_id: str | None = None
    finish: Literal["stop", "length", "tool", "filter", "other"] = "stop"
    calls: tuple[ToolCall, ...] = ()
    opaque: Opaque | None = None
    """What the provider wants back with the next request."""


class Conversation:
    """The messages so far, and a digest of them that takes the same work for every message."""

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        self._messages: list[Message] = []
        self._head = ""
        self._hashed = 0
        """Messages that `_head` stands for."""
        self._sizes = MessageSizes()
        self.earlier = 0
        """Messages at the beginning that earlier visits have had."""
        self.always: frozenset[int] = frozenset()
        """Indexes of messages that are sent however long the conversation is."""
        self.add(*messages)

    @property
    def messages(self) -> Sequence[Message]:
        """The messages, oldest first; not to be changed."""
        return self._messages

    def add(self, *messages: Message) -> None:
        """Add messages to the end."""
        self._messages.extend(messages)

    def branch(self) -> Conversation:
        """The same conversation, to which a visit adds messages of its own."""
        branch = Conversation()
        branch._head, branch._hashed = self.head, self._hashed
        branch._sizes = self.sizes.copy()
        branch._messages = self._messages.copy()
        branch.earlier, branch.always = len(self._messages), self.always
        return branch

    @property
    def head(self) -> str:
        """Identifies the conversation up to its last message."""
        for message in self._messages[self._hashed :]:
            self._head = digest([self._head, message.to_plain()], 24)
            self._hashed += 1
        return self._head

    @property
    def sizes(self) -> MessageSizes:
        """How much room the messages take."""
        self._sizes.add(self._messages[len(self._sizes.whole) - 1 :])
        return self._sizes

    def with_ids(self, calls: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
        """Calls of the next message, with ids that no other call of the conversation has."""
        turn = len(self._messages)
        return tuple(
            ToolCall(f"t{turn}c{number}", call.name, call.arguments) for number, call in enumerate(calls, 1)
        )
