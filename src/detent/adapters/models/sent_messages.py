"""A conversation in the form in which every provider accepts it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from detent.dispatch.conversation import Message, ToolCall

NOTHING = "(nothing)"
"""Stands for a message without text: several providers refuse an empty one."""
GO_ON = "Go on."
"""Stands before an assistant's message that answers nothing: providers refuse two in a row, or take the last
one for the beginning of their answer."""


def sendable(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The messages, none empty, one of the system at the beginning, and none of an assistant at the end.

    Each message is sent as it was before, whatever follows, so that a provider's cache can be used. Arguments
    that cannot be read are sent as none: servers read them, and fail.
    """
    if _is_sendable(messages):
        return tuple(messages)
    sent: list[Message] = []
    for message in messages:
        blank = not message.content or message.content.isspace()
        if message.role == "system":
            if blank:
                continue
            if len(sent) == 1 and sent[0].role == "system":
                sent[0] = Message("system", f"{sent[0].content}\n\n{message.content}")
                continue
            if sent:  # chat templates know no other place for it
                message = message._replace(role="user")
        elif message.calls:
            if any(not isinstance(call.arguments, Mapping) for call in message.calls):
                message = message._replace(calls=tuple(map(_readable, message.calls)))
            if blank and message.content:
                message = message._replace(content="")
        elif blank and message.role != "tool":
            message = message._replace(content=NOTHING)
        if message.role == "assistant" and _needs_question(sent):
            sent.append(Message("user", GO_ON))
        sent.append(message)
    if _needs_question(sent):
        sent.append(Message("user", GO_ON))
    return tuple(sent)


def _is_sendable(messages: Sequence[Message]) -> bool:
    """Whether the messages are sent as they are, which nearly all are."""
    before, asks = "", False
    for role, content, calls, _, _ in messages:
        if role == "system":
            if before or not content or content.isspace():
                return False
        elif role == "assistant":
            if not asks or content.isspace() or not (content or calls):
                return False
            if calls and not all(isinstance(call.arguments, dict) for call in calls):
                return False
        elif role == "user" and (not content or content.isspace()):
            return False
        before, asks = role, role in ("user", "tool") or bool(calls)
    return asks


def _needs_question(sent: Sequence[Message]) -> bool:
    """Whether nothing is asked at the end."""
    return not sent or sent[-1].role == "system" or (sent[-1].role == "assistant" and not sent[-1].calls)


def _readable(call: ToolCall) -> ToolCall:
    return call if isinstance(call.arguments, Mapping) else call._replace(arguments={})
