"""The messages of older sessions as turns: `{role, content}` and `{kind, parts}`, the two shapes there were.

Nothing is dropped. A value whose field has another meaning here stays beside, `<field>_as_found`; `parts`
stay if there is more to them than a text, and what is no message of either shape stays as it was found.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from detent.flows.coding.sessions import file_schema
from detent.flows.coding.sessions.json_text import (
    DEEPEST_ARGUMENTS,
    NotReadable,
    depth_exceeds,
    parse,
    value_text,
)

INTERRUPTED = "The session was put down before this call had a result."
UNKNOWN_TOOL = "unknown"
"""Name of a tool that an older session does not name."""
ROLES = {
    "user": "user", "human": "user", "assistant": "assistant", "ai": "assistant", "tool": "tool",
    "function": "tool", "system": "system", "nudge": "nudge",
}  # fmt: skip
"""Roles as older sessions spell them, in any case."""
KINDS = ("request", "response")
"""What messages of the second shape are."""
_TEXT_TYPES = ("text", "input_text", "output_text")
_PART_ROLES = {"system-prompt": "system"}
"""Roles of the parts of a request that are not the person's."""


class OpenCalls:
    """The calls of one reply that have no result yet."""

    def __init__(self, calls: Iterable[Mapping[str, Any]] = ()) -> None:
        self._open = dict(enumerate(calls))
        self._by_id: dict[str, deque[int]] = {}
        self._by_tool: dict[str, deque[int]] = {}
        for number, call in self._open.items():
            for name in ("provider_id", "id"):
                if isinstance(call.get(name), str):
                    self._by_id.setdefault(call[name], deque()).append(number)
            self._by_tool.setdefault(call["tool"], deque()).append(number)

    def take(self, given_id: Any, tool: Any = None) -> Mapping[str, Any] | None:
        """The call that a result answers: the first one of its id; where it has none, of its name."""
        if isinstance(given_id, str):
            numbers = self._by_id.get(given_id)
        elif given_id is not None:
            return None
        elif isinstance(tool, str):
            numbers = self._by_tool.get(tool)
        else:
            numbers = deque([next(iter(self._open))]) if self._open else None
        while numbers:
            if (call := self._open.pop(numbers.popleft(), None)) is not None:
                return call
        return None

    def take_all(self) -> list[Mapping[str, Any]]:
        """All of them, which are not open any more."""
        calls = list(self._open.values())
        self._open.clear()
        return calls


@dataclass
class Turns:
    """Messages turned into turns, one after another."""

    messages: list[Any] = field(default_factory=list)
    as_found: int = 0
    """Messages of neither shape."""
    interrupted: int = 0
    """Calls without a result."""
    _turn: int = 0
    _open: OpenCalls = field(default_factory=OpenCalls)

    def add(self, message: Any) -> None:
        """One message of an older session."""
        if isinstance(message, Mapping):
            if has_parts(message):
                self._add_parts(message, message["parts"])
                return
            if isinstance(message.get("role"), str) and "content" in message and self._add_role(message):
                return
        self.as_found += 1
        self.messages.append(message)

    def close(self) -> None:
        """Answer the calls of the last reply that have no result: a provider refuses a session otherwise."""
        for call in self._open.take_all():
            self.interrupted += 1
            self.messages.append({
                "role": "tool", "tool_call_id": call["id"], "tool": call["tool"], "ok": False,
                "content": INTERRUPTED, "error": "interrupted", "truncated": False,
            })  # fmt: skip

    # -- {role, content} ------------------------------------------------------------------------------------

    def _add_role(self, message: Mapping[str, Any]) -> bool:
        """A message of the first shape; False if it is none."""
        role, content = ROLES.get(message["role"].lower()), message["content"]
        if role is None:
            return False
        if role == message["role"] and self._is_ours(role, message):
            return True
        calls = _calls(message.get("tool_calls")) if role == "assistant" else []
        if calls is None:
            message, calls = _renamed(message, "tool_calls"), []
        if role != message["role"]:
            message = {**_renamed(message, "role_as_found"), "role_as_found": message["role"]}
        if content is None and role == "assistant":
            content = ""
        if isinstance(content, str):
            self._add(role, content, calls, message)
        elif isinstance(content, list) and all(isinstance(part, str | Mapping) for part in content):
            self._add_typed(role, content, calls, message)
        else:
            return False
        return True

    def _is_ours(self, role: str, message: Mapping[str, Any]) -> bool:
        """Take a message over as it is, if it has the form of this format already."""
        if role == "system" or not file_schema.is_message(role, message):
            return False
        if role == "tool":
            if self._open.take(message["tool_call_id"]) is None:
                return False
        else:
            self.close()
        if role == "assistant":
            self._turn += 1
            self._open = OpenCalls(message.get("tool_calls") or ())
        self.messages.append(message)
        return True

    def _add_typed(
        self, role: str, content: list[Any], calls: list[dict[str, Any]], message: Mapping[str, Any]
    ) -> None:
        """A message whose content is a list of typed parts; the results among them become messages of their
        own, before it."""
        results = [part for part in content if _is_typed(part, "tool_result")]
        others = [part for part in content if not _is_typed(part, "tool_result")]
        if role == "assistant":
            uses = [part for part in others if _is_typed(part, "tool_use")]
            calls = [*calls, *(_call(use.get("name"), use.get("input"), use.get("id")) for use in uses)]
        for number, part in enumerate(results):
            text, exact = _text_of(part.get("content"))
            rest: dict[str, Any] = {"ok": part.get("is_error") is not True}
            if not exact or not part.keys() <= {"type", "tool_use_id", "content"}:
                rest["content_as_found"] = [part]
            if not others and number == len(results) - 1:  # what stood beside the parts
                beside: Mapping[str, Any] = message
                if role != "user":
                    beside = {**_renamed(message, "role_as_found"), "role_as_found": message["role"]}
                for name in ("ok", "content_as_found", "tool_call_id"):
                    beside = _renamed(beside, name)
                rest = {**beside, **rest}
            self._answer(part.get("tool_use_id"), None, text, rest)
        if others or not results:
            text, exact = _text_of(others)
            if not exact:
                message = {**_renamed(message, "content_as_found"), "content_as_found": others}
            self._add(role, text, calls, message)

    # -- {kind, parts} --------------------------------------------------------------------------------------

    def _add_parts(self, message: Mapping[str, Any], parts: list[Any]) -> None:
        """A message of the second shape."""
        rest: Mapping[str, Any] = {name: value for name, value in message.items() if name != "parts"}
        for name in ("role", "content", "tool_calls"):
            rest = _renamed(rest, name)
        if message["kind"] == "response":
            text, exact = _text_of([part.get("content") for part in parts if part["part_kind"] == "text"])
            calls = [
                _call(part.get("tool_name"), part.get("args"), part.get("tool_call_id"))
                for part in parts
                if part["part_kind"] == "tool-call"
            ]
            kept = rest if exact and len(parts) == 1 and _is_bare(parts[0]) else {**rest, "parts": parts}
            self._add("assistant", text, calls, kept)
            return
        for part in parts:
            self._add_request_part(part, rest)
            rest = {"kind": message["kind"]}

    def _add_request_part(self, part: Mapping[str, Any], rest: Mapping[str, Any]) -> None:
        kind = part["part_kind"]
        text, exact = _text_of(part.get("content"))
        kept = rest if exact and _is_bare(part) else {**rest, "parts": [part]}
        if kind == "tool-return" or (kind == "retry-prompt" and part.get("tool_name") is not None):
            ok = kind == "tool-return" and part.get("outcome", "success") == "success"
            for name in ("ok", "tool", "tool_call_id"):
                kept = _renamed(kept, name)
            self._answer(part.get("tool_call_id"), part.get("tool_name"), text, {**kept, "ok": ok})
        else:
            self._add(_PART_ROLES.get(kind, "user"), text, [], kept)

    # -- turns ----------------------------------------------------------------------------------------------

    def _add(self, role: str, text: str, calls: list[dict[str, Any]], rest: Mapping[str, Any]) -> None:
        """A message with a text; what else is in `rest` stays with it, in its order."""
        if role == "tool":
            self._answer(rest.get("tool_call_id"), rest.get("tool") or rest.get("name"), text, rest)
            return
        if role != "system":
            self.close()
        message = {**rest} if "role" in rest else {"role": role, "content": text, **rest}
        message |= {"role": role, "content": text}
        if role == "assistant":
            self._turn += 1
            for number, call in enumerate(calls, 1):
                call["id"] = f"t{self._turn}c{number}"
            if calls:
                message["tool_calls"] = calls
            self._open = OpenCalls(calls)
        elif role == "nudge" and not isinstance(message.get("kind", ""), str):
            message = dict(_renamed(message, "kind"))
        self.messages.append(message)

    def _answer(self, given_id: Any, tool: Any, text: str, rest: Mapping[str, Any]) -> None:
        """A result, beside the call it answers: the first open one of its id; without ids, of its name."""
        call = self._open.take(given_id, tool)
        own: dict[str, Any] = {
            "role": "tool", "content": text, "tool_call_id": given_id if isinstance(given_id, str) else "",
            "tool": tool if isinstance(tool, str) else UNKNOWN_TOOL,
            "ok": rest.get("ok") is not False and rest.get("is_error") is not True,
            "truncated": rest.get("truncated") is True,
        }  # fmt: skip
        if call is not None:
            own |= {"tool_call_id": call["id"], "tool": call["tool"]}
        kept: Mapping[str, Any] = {
            name: value for name, value in rest.items() if name != "tool_call_id" or value != given_id
        }
        if given_id is not None and not isinstance(given_id, str):
            kept = {**kept, "tool_call_id": given_id}
        for name in ("tool_call_id", "tool", "ok", "truncated"):
            if name in kept and (type(kept[name]) is not type(own[name]) or kept[name] != own[name]):
                kept = _renamed(kept, name)
        for name in ("error", "duration_ms"):
            if name in kept and not file_schema.is_message("tool", {**own, name: kept[name]}):
                kept = _renamed(kept, name)
        self.messages.append({**kept, **own} if "role" in kept else {**own, **kept, **own})


def turns_of(messages: Iterable[Any], *, last_open: bool = False) -> Turns:
    """The messages of an older session as turns.

    With `last_open`, the calls of the last reply are still to be carried out; other calls without a result
    get one that says so.
    """
    turns = Turns()
    for message in messages:
        turns.add(message)
    if not last_open:
        turns.close()
    return turns


# -- parts --------------------------------------------------------------------------------------------------


def has_parts(message: Mapping[str, Any]) -> bool:
    """Whether a message is of the second shape: with parts, each of a kind."""
    parts = message.get("parts")
    if message.get("kind") not in KINDS or not isinstance(parts, list) or not parts:
        return False
    return all(isinstance(part, Mapping) and isinstance(part.get("part_kind"), str) for part in parts)


def _text_of(content: Any) -> tuple[str, bool]:
    """The text of some content, and whether it is all there is to it."""
    if isinstance(content, str):
        return content, True
    if content is None:
        return "", False
    if not isinstance(content, list) or not all(_is_part(part) for part in content):
        return value_text(content), False
    texts = [_part_text(part) for part in content]
    bare = len(content) == 1 and (isinstance(content[0], str) or content[0].keys() == {"type", "text"})
    return "\n".join(text for text in texts if text is not None), bare and texts[0] is not None


def _is_part(part: Any) -> bool:
    return isinstance(part, str) or (isinstance(part, Mapping) and isinstance(part.get("type"), str))


def _is_typed(part: Any, kind: str) -> bool:
    return isinstance(part, Mapping) and part.get("type") == kind


def _part_text(part: Any) -> str | None:
    """The text of a part of some content; None for pictures, reasoning and the like."""
    if isinstance(part, str):
        return part
    text = part.get("text") if part["type"] in _TEXT_TYPES else None
    return text if isinstance(text, str) else None


def _is_bare(part: Mapping[str, Any]) -> bool:
    """Whether a part is a text and nothing else."""
    return (
        part.keys() == {"part_kind", "content"}
        and part["part_kind"] in ("text", "user-prompt")
        and isinstance(part["content"], str)
    )


# -- calls --------------------------------------------------------------------------------------------------


def _calls(found: Any) -> list[dict[str, Any]] | None:
    """The calls of a message, as OpenAI's clients write them; None if they are something else."""
    if found is None:
        return []
    if not isinstance(found, list):
        return None
    calls = []
    for item in found:
        function = item.get("function") if isinstance(item, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            return None
        rest = _renamed(_renamed(_renamed(item, "tool"), "args"), "provider_id")
        extra = {name: value for name, value in function.items() if name not in ("name", "arguments")}
        call = _call(function["name"], function.get("arguments"), item.get("id"))
        others = {name: value for name, value in rest.items() if name not in ("id", "function")}
        calls.append({**call, **others, **({"function": extra} if extra else {})})
    return calls


def _call(tool: Any, args: Any, given_id: Any) -> dict[str, Any]:
    """A call; it gets its id when the number of its turn is known."""
    if isinstance(args, str):
        args = _arguments(args)
    call: dict[str, Any] = {"id": "", "tool": tool if isinstance(tool, str) else UNKNOWN_TOOL, "args": args}
    return call if given_id is None else {**call, "provider_id": given_id}


def _arguments(text: str) -> Any:
    """The object that a text of arguments stands for; the text itself if it is none."""
    try:
        plain, repeated = parse(text.encode("utf-8", "surrogatepass"))
    except NotReadable:
        return text
    return text if repeated or depth_exceeds(plain, DEEPEST_ARGUMENTS) else plain


def _renamed(message: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A message in which a field, if it is there, says that it stands as it was found."""
    if name not in message:
        return message
    new_name = f"{name}_as_found"
    while new_name in message:
        new_name += "_"
    return {new_name if key == name else key: value for key, value in message.items()}
