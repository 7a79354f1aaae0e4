"""How much room messages take: sums over all so far, so that what fits is found without adding up anew."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Protocol, TypeVar

from detent.kernel.plain import encode, to_plain


class Message(Protocol):
    """What is measured of a message."""

    @property
    def role(self) -> str:
        """Who says it."""

    @property
    def content(self) -> str:
        """Its text."""

    @property
    def calls(self) -> Sequence[Any]:
        """The tools it calls, each with `name` and `arguments`."""

    @property
    def opaque(self) -> Any:
        """What only its provider understands."""

    def _replace(self, *, content: str) -> Any:
        """The same message with another text."""


M = TypeVar("M", bound=Message)

BYTES_PER_TOKEN = 3
"""Prose has about four bytes of UTF-8 per token, code and JSON about three: this estimates high."""
PER_MESSAGE = 8
"""Tokens that a message or a call takes besides its text."""
SHORTEST = 200
"""Characters of a result that is not worth leaving out."""


class CallCounts:
    """How often each tool was called in the first messages of a conversation, counted once as it grows."""

    __slots__ = ("_counted", "_counts")

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._counted = 0

    def up_to(self, end: int, messages: Sequence[Message], shared: int) -> Counter[str]:
        """The counts of the first `end` messages; those behind the first `shared` are not remembered."""
        if not self._counted <= end <= shared:
            return _called(messages[:end])
        self._counts += _called(messages[self._counted : end])
        self._counted = end
        return self._counts


def _called(messages: Iterable[Message]) -> Counter[str]:
    return Counter(call.name for message in messages for call in message.calls)


class MessageSizes:
    """Sums of the sizes of messages; each message is measured once."""

    __slots__ = ("called", "long", "saved", "shorter", "turns", "whole")

    def __init__(self) -> None:
        self.whole = [0]
        """Tokens of the first messages, by their number."""
        self.saved = [0]
        """Tokens saved among the first messages if one line stands for each long result."""
        self.shorter = [0]
        """Tokens of the first messages then."""
        self.long: list[int] = []
        """Indexes of the long results."""
        self.turns: list[int] = []
        """Indexes of the replies: each begins a turn."""
        self.called = CallCounts()

    def add(self, messages: Iterable[Message]) -> None:
        """Measure further messages."""
        for message in messages:
            index, tokens, saved = len(self.whole) - 1, size_of(message), 0
            if message.role == "assistant":
                self.turns.append(index)
            if message.role == "tool" and len(message.content) > SHORTEST:
                self.long.append(index)
                saved = tokens - size_of(in_one_line(message))
            self.whole.append(self.whole[-1] + tokens)
            self.saved.append(self.saved[-1] + saved)
            self.shorter.append(self.shorter[-1] + tokens - saved)

    def copy(self) -> MessageSizes:
        """The same sums, to which other messages may be added."""
        sizes = MessageSizes()
        sizes.whole, sizes.saved, sizes.shorter = self.whole.copy(), self.saved.copy(), self.shorter.copy()
        sizes.long, sizes.turns, sizes.called = self.long.copy(), self.turns.copy(), self.called
        return sizes

    def long_between(self, start: int, end: int) -> list[int]:
        """Indexes of the long results from one index to another."""
        return self.long[bisect_left(self.long, start) : bisect_left(self.long, end)]


def in_one_line(message: M) -> M:
    """What may be sent in place of a long result."""
    shorter: M = message._replace(content=f"result left out, {len(message.content)} characters")
    return shorter


def size(messages: Iterable[Message]) -> int:
    """Tokens of messages, estimated from their characters."""
    return sum(map(size_of, messages))


def size_of(message: Message) -> int:
    """Tokens of one message."""
    tokens = PER_MESSAGE * (1 + len(message.calls)) + tokens_of(message.content)
    tokens += sum(
        tokens_of(call.name) + tokens_of(encode(to_plain(call.arguments))) for call in message.calls
    )
    return tokens if message.opaque is None else tokens + tokens_of(message.opaque.data)


def tokens_of(text: str) -> int:
    """Tokens of a text."""
    return len(text.encode("utf-8", "surrogatepass")) // BYTES_PER_TOKEN + 1
