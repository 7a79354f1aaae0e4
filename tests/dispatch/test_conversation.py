"""Conversations: messages, and the digest by which a kept reply is found again."""

from __future__ import annotations

from detent.dispatch.conversation import Conversation, Message, ToolCall
from detent.kernel.plain import digest, to_plain

MESSAGES = (
    Message("system", "Do this step only."),
    Message("user", "INPUTS\n{}"),
    Message("assistant", "", (ToolCall("t2c1", "desk.part", {"device": "oven"}),)),
    Message("tool", "P-7", answers="t2c1"),
)


def test_the_head_is_the_one_that_kept_replies_were_written_under() -> None:
    """A run that was killed under an earlier version finds its replies by this digest."""
    head = ""
    for message in MESSAGES:
        parts = {part: value for part, value in message._asdict().items() if part != "opaque"}
        head = digest([head, to_plain(parts)], 24)
    assert Conversation(MESSAGES).head == head


def test_the_head_does_not_depend_on_when_it_is_asked_for() -> None:
    """Asked for after every message or only at the end, it identifies the same messages."""
    asked = Conversation()
    heads = []
    for message in MESSAGES:
        asked.add(message)
        heads.append(asked.head)
    assert len(set(heads)) == len(MESSAGES)
    assert heads == [Conversation(MESSAGES[:count]).head for count in range(1, len(MESSAGES) + 1)]
    assert asked.head == heads[-1]


def test_calls_get_ids_that_no_other_call_of_the_conversation_has() -> None:
    """A provider may give every call the same id."""
    conversation = Conversation(MESSAGES[:2])
    same = (ToolCall("x", "a", {}), ToolCall("x", "b", {"n": 1}))
    assert conversation.with_ids(same) == (ToolCall("t2c1", "a", {}), ToolCall("t2c2", "b", {"n": 1}))
