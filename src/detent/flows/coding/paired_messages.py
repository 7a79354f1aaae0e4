"""The messages of a session's file as a provider takes them: each call with one result, right behind it.

A journal cannot hold anything else; a file may: it was written while a request waited, by another program, or
by hand. Nothing is lost: what has no call is sent as text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from detent.flows.coding.sessions.json_text import value_text
from detent.flows.coding.sessions.legacy_messages import INTERRUPTED, UNKNOWN_TOOL
from detent.kernel.plain import writable

LONGEST_NAME = 64
"""Characters of the name of a tool that are sent."""

Turn = dict[str, Any]


def paired(messages: Iterable[Any]) -> list[Turn]:
    """The messages, put right; what is no message at all is left out."""
    pairing = _Pairing()
    for message in messages:
        if isinstance(message, Mapping):
            pairing.add(message)
    pairing.close()
    return pairing.turns


def replies(messages: Iterable[Any]) -> int:
    """How many replies of the assistant there are."""
    return sum(isinstance(message, Mapping) and message.get("role") == "assistant" for message in messages)


class _Pairing:
    """Messages put right one after another."""

    def __init__(self) -> None:
        self.turns: list[Turn] = []
        self._reply = 0
        self._behind = 0
        """Where the results of the last reply belong."""
        self._calls: list[tuple[str, Turn]] = []
        """Its calls, each with the id that it had."""
        self._results: dict[str, Turn] = {}
        """The results found for them, by the id that a call is sent with."""

    def add(self, message: Mapping[str, Any]) -> None:
        """One message of the file."""
        text = _text(message.get("content"))
        match message.get("role"):
            case "assistant":
                self.close()
                self._add_reply(text, message.get("tool_calls"))
            case "tool":
                self._add_result(text, message)
            case "user" | "nudge" | "system" as role:
                self.turns.append({"role": "user" if role == "system" else role, "content": text})

    def _add_reply(self, text: str, calls: Any) -> None:
        self._reply += 1
        found = [call for call in calls if isinstance(call, Mapping)] if isinstance(calls, list) else []
        self._calls = [
            (_text(call.get("id")), {
                "id": f"t{self._reply}c{number}",
                "tool": _text(call.get("tool"))[:LONGEST_NAME] or UNKNOWN_TOOL,
                "args": _arguments(call.get("args")),
            })
            for number, call in enumerate(found, 1)
        ]  # fmt: skip
        turn: Turn = {"role": "assistant", "content": text}
        if self._calls:
            turn["tool_calls"] = [call for _, call in self._calls]
        self.turns.append(turn)
        self._behind, self._results = len(self.turns), {}

    def _add_result(self, text: str, message: Mapping[str, Any]) -> None:
        given = _text(message.get("tool_call_id"))
        for own, call in self._calls:
            if own == given and call["id"] not in self._results:
                result = {"role": "tool", "tool_call_id": call["id"], "tool": call["tool"], "content": text}
                error = message.get("error")
                self._results[call["id"]] = result | ({"error": error} if isinstance(error, str) else {})
                return
        tool = _text(message.get("tool"))[:LONGEST_NAME] or UNKNOWN_TOOL
        self.turns.append(
            {"role": "user", "content": f"[A result of {tool}, whose call is not known:]\n{text}"}
        )

    def close(self) -> None:
        """Put the results of the last reply behind it."""
        for _, call in reversed(self._calls):
            missing = {
                "role": "tool", "tool_call_id": call["id"], "tool": call["tool"], "content": INTERRUPTED,
                "error": "interrupted",
            }  # fmt: skip
            self.turns.insert(self._behind, self._results.get(call["id"], missing))
        self._calls = []


def _text(value: Any) -> str:
    if value is None:
        return ""
    return writable(value if isinstance(value, str) else value_text(value))


def _arguments(value: Any) -> Any:
    """Arguments with text that can be sent."""
    if isinstance(value, str):
        return writable(value)
    if isinstance(value, Mapping):
        return {_text(name): _arguments(item) for name, item in value.items()}
    return [_arguments(item) for item in value] if isinstance(value, list) else value
