"""A conversation in the form in which every provider accepts it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from detent.dispatch.conversation import Message, ToolCall

NOTHING = "(nothing)"
"""Stands for a message without text: several providers refuse an empty one."""
GO_ON = "Go on."
"""Follows an assistant's message at the end: providers take it for the beginning of the answer, or refuse
it."""


def sendable(messages: Iterable[Message]) -> tuple[Message, ...]:
    """The messages, none of them empty, with system messages only at the beginning and a question at the end.

    Arguments that cannot be read are sent as none: servers read them, and fail.
    """
    sent: list[Message] = []
    leading = True
    for message in messages:
        blank = not message.content or message.content.isspace()
        if message.role == "system":
            if blank:
                continue
            if not leading:  # chat templates know no other place for it
                message = message._replace(role="user")
        else:
            leading = False
            if message.calls:
                if any(not isinstance(call.arguments, Mapping) for call in message.calls):
                    message = message._replace(calls=tuple(map(_readable, message.calls)))
                if blank and message.content:
                    message = message._replace(content="")
            elif blank and message.role != "tool":
                message = message._replace(content=NOTHING)
        sent.append(message)
    if not sent or sent[-1].role in ("system", "assistant"):
        sent.append(Message("user", GO_ON))
    return tuple(sent)


def _readable(call: ToolCall) -> ToolCall:
    return call if isinstance(call.arguments, Mapping) else call._replace(arguments={})
