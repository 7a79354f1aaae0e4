"""What is sent of a conversation that is too long for its model.

The conversation itself stays whole: its digest, the journal, the gate and the conclusion never depend on
what was sent of it. What is sent follows from the messages and the limit alone. After a crash the same
conversation gives the same request, so that only the amount left out is journaled, for the record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

from detent.dispatch.conversation import Message
from detent.dispatch.executor_errors import RequestTooLongError
from detent.kernel.plain import encode, to_plain

T = TypeVar("T")

SHARE = 0.8
"""Share of the context that a request may fill; the rest is for the answer and for errors of the estimate."""
LAST_TURNS = 3
"""Turns at the end that are always sent whole. A turn is a reply and the results and notes that follow it."""
BYTES_PER_TOKEN = 3
"""Prose has about four bytes of UTF-8 per token, code and JSON about three: this estimates high."""
PER_MESSAGE = 8
"""Tokens that a message or a call takes besides its text."""
SHORTEST = 200
"""Characters of a result that is not worth leaving out."""
NOTE_TOKENS = 200
"""Tokens reserved for the note that stands for turns."""
MOST_NAMED = 10
LONGEST_NAME = 40


class Sent(NamedTuple):
    """The messages to send, and what was left out of them."""

    messages: Sequence[Message]
    results: int = 0
    """Results of tools that are sent as one line."""
    turns: int = 0
    """Turns that are not sent."""

    @property
    def left_out(self) -> dict[str, int]:
        """What was left out, counted; empty when everything is sent."""
        return {name: count for name in ("results", "turns") if (count := getattr(self, name))}


def room(limit: int, *, answer: int = 0, fixed: Iterable[Any] = ()) -> int:
    """Tokens that the messages may take: of a context of `limit` tokens, beside the answer and fixed parts.

    At least half of the context is for the request, however long the answer may be.
    """
    share = max(limit // 2, min(int(limit * SHARE), limit - answer))
    return share - sum(_tokens(encode(to_plain(part))) for part in fixed)


def size(messages: Iterable[Message]) -> int:
    """Tokens of messages, estimated from their characters."""
    return sum(map(_size, messages))


def _size(message: Message) -> int:
    tokens = PER_MESSAGE * (1 + len(message.calls)) + _tokens(message.content)
    tokens += sum(_tokens(call.name) + _tokens(encode(to_plain(call.arguments))) for call in message.calls)
    return tokens if message.opaque is None else tokens + _tokens(message.opaque.data)


def _tokens(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass")) // BYTES_PER_TOKEN + 1


def compacted(messages: Sequence[Message], most: int) -> Sent:
    """The messages, with as much left out as is needed to come below `most` tokens.

    First the oldest results become one line each, then the oldest turns one note. The system message, the
    first prompt and the last turns are always sent, and so is the result of every call that is. Much is left
    out at a time, so that the requests that follow begin alike and a provider's cache can be used.
    """
    sizes = [_size(message) for message in messages]
    excess = sum(sizes) - most
    turns = [index for index, message in enumerate(messages) if message.role == "assistant"]
    if excess <= 0 or len(turns) <= LAST_TURNS:
        return Sent(messages)
    step = max(1, most // 4)
    target = -(-excess // step) * step
    freed, results = 0, 0
    shown = list(messages)
    first, last = turns[0], turns[-LAST_TURNS]
    for index in range(first, last):
        message = messages[index]
        if freed >= target:
            break
        if message.role == "tool" and len(message.content) > SHORTEST:
            shown[index] = message._replace(content=f"result left out, {len(message.content)} characters")
            freed += sizes[index] - _size(shown[index])
            sizes[index] = _size(shown[index])
            results += 1
    if freed >= excess:
        return Sent(shown, results)
    freed -= NOTE_TOKENS
    left_out, end = 0, first
    for start, following in pairwise(turns[: 1 - LAST_TURNS]):
        if freed >= target:
            break
        freed += sum(sizes[start:following])
        results -= sum(shown[index] is not messages[index] for index in range(start, following))
        left_out, end = left_out + 1, following
    note = Message("user", _note(left_out, messages[first:end]))
    return Sent([*shown[:first], note, *shown[end:]], results, left_out)


def _note(turns: int, messages: Sequence[Message]) -> str:
    """The note that stands for turns: how many, and which tools they called."""
    counts = Counter(call.name[:LONGEST_NAME] for message in messages for call in message.calls)
    named = [f"{' '.join(name.split())} ({count})" for name, count in counts.most_common(MOST_NAMED)]
    if len(counts) > MOST_NAMED:
        named.append("…")
    called = f" Tools that were called in them: {', '.join(named)}." if named else ""
    return f"NOTE\nThe first {turns} turns of this conversation are left out.{called}"


async def fitting(
    messages: Sequence[Message], most: int | None, ask: Callable[[Sequence[Message]], Awaitable[T]]
) -> tuple[T, Sent]:
    """Ask with as much of the messages as fits; if the provider finds that too long, once more with half.

    Raises:
        RequestTooLongError: half is too long as well, or nothing may be left out.
    """
    sent = Sent(messages) if most is None else compacted(messages, most)
    try:
        return await ask(sent.messages), sent
    except RequestTooLongError:
        half = compacted(messages, size(sent.messages) // 2)
        if half.left_out == sent.left_out:
            raise
    return await ask(half.messages), half
