"""What is sent of a conversation that is too long for its model.

The conversation itself stays whole: its digest, the journal, the gate and the conclusion never depend on
what was sent of it. What is sent follows from the messages and the limit alone. After a crash the same
conversation gives the same request, so that only the amount left out is journaled, for the record.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

from detent.dispatch.conversation import Conversation, Message
from detent.dispatch.executor_errors import RequestTooLongError
from detent.dispatch.message_sizes import in_one_line, size, tokens_of
from detent.kernel.plain import encode, to_plain

T = TypeVar("T")

SHARE = 0.8
"""Share of the context that a request may fill; the rest is for the answer and for errors of the estimate."""
LAST_TURNS = 3
"""Turns at the end that are always sent whole. A turn is a reply and the results and notes that follow it."""
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
    return share - sum(tokens_of(encode(to_plain(part))) for part in fixed)


def compacted(messages: Sequence[Message] | Conversation, most: int) -> Sent:
    """The messages, with as much left out as is needed to come below `most` tokens.

    First the oldest results become one line each, then the oldest turns one note. What comes before the first
    reply, the last turns and what the conversation says are always sent, and so is the result of every call
    that is. Much is left out at a time, so that the requests that follow begin alike and a provider's cache
    can be used.
    """
    conversation = messages if isinstance(messages, Conversation) else Conversation(messages)
    messages, sizes = conversation.messages, conversation.sizes
    excess, turns = sizes.whole[-1] - most, sizes.turns
    if excess <= 0 or len(turns) <= LAST_TURNS:
        return Sent(messages)
    step = max(1, most // 4)
    target = -(-excess // step) * step
    first, last = turns[0], turns[-LAST_TURNS]
    end = min(last, bisect_left(sizes.saved, sizes.saved[first] + target))
    freed = sizes.saved[end] - sizes.saved[first]
    if freed >= excess:
        left_out = sizes.long_between(first, end)
        return Sent(_shortened(messages, left_out), len(left_out))
    boundaries = turns[1 : 1 - LAST_TURNS]
    enough = sizes.shorter[first] + target - (freed - NOTE_TOKENS)
    number = min(bisect_left(boundaries, enough, key=sizes.shorter.__getitem__), len(boundaries) - 1)
    end = boundaries[number]
    kept = [messages[index] for index in sorted(conversation.always) if first <= index < end]
    note = Message("user", _note(number + 1, conversation, end))
    left_out = sizes.long_between(end, last)
    rest = _shortened(messages[end:], [index - end for index in left_out])
    return Sent([*messages[:first], note, *kept, *rest], len(left_out), number + 1)


def _shortened(messages: Sequence[Message], indexes: Iterable[int]) -> list[Message]:
    """The messages, with one line in place of some results."""
    shown = list(messages)
    for index in indexes:
        shown[index] = in_one_line(shown[index])
    return shown


def _note(turns: int, conversation: Conversation, end: int) -> str:
    """The note that stands for the turns before an index: how many, and which tools they called."""
    shared = conversation.earlier or end
    called = conversation.sizes.called.up_to(end, conversation.messages, shared)
    counts = Counter[str]()
    for name, count in called.items():
        counts[" ".join(name[:LONGEST_NAME].split())] += count
    named = [f"{name} ({count})" for name, count in counts.most_common(MOST_NAMED)]
    if len(counts) > MOST_NAMED:
        named.append("…")
    tools = f" Tools that were called in them: {', '.join(named)}." if named else ""
    return f"NOTE\nThe first {turns} turns of this conversation are left out.{tools}"


async def fitting(
    messages: Sequence[Message] | Conversation,
    most: int | None,
    ask: Callable[[Sequence[Message]], Awaitable[T]],
) -> tuple[T, Sent]:
    """Ask with as much of the messages as fits; if the provider finds that too long, once more with half.

    Raises:
        RequestTooLongError: half is too long as well, or nothing may be left out.
    """
    conversation = messages if isinstance(messages, Conversation) else Conversation(messages)
    sent = Sent(conversation.messages) if most is None else compacted(conversation, most)
    try:
        return await ask(sent.messages), sent
    except RequestTooLongError:
        half = compacted(conversation, size(sent.messages) // 2)
        if half.left_out == sent.left_out:
            raise
    return await ask(half.messages), half
