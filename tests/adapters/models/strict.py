"""Imitations of what strict providers check in a request, for `Server(refuses=…)`.

Each gives the refusal of a request, in the provider's own words as far as they are public, or None.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from typing import Any

from tests.adapters.models.server import Reply, answer

Check = Callable[[Any], Reply | None]


def all_of(*checks: Check) -> Check:
    """The first refusal of several checks."""
    return lambda body: next((reply for check in checks if (reply := check(body)) is not None), None)


def refusal(message: str, status: int = 400, **more: Any) -> Reply:
    return answer({"error": {"message": message, "type": "invalid_request_error", **more}}, status)


# -- OpenAI's protocol --------------------------------------------------------------------------------------


def calls_answered(body: Any) -> Reply | None:
    """Every call has one result, behind it and in order, and every id is of one call."""
    seen: set[str] = set()
    unanswered: list[str] = []
    for message in body["messages"]:
        if message["role"] == "tool":
            if message["tool_call_id"] not in unanswered[:1]:
                return refusal("messages with role 'tool' must be a response to a preceding 'tool_calls'")
            del unanswered[0]
            continue
        if unanswered:
            return refusal("An assistant message with 'tool_calls' must be followed by tool messages")
        unanswered = [call["id"] for call in message.get("tool_calls") or ()]
        if not all(unanswered) or seen & {*unanswered} or len({*unanswered}) < len(unanswered):
            return refusal("a call without an id of its own")
        seen |= {*unanswered}
    return refusal("An assistant message with 'tool_calls' must be followed") if unanswered else None


def known_fields(body: Any) -> Reply | None:
    """No field that the protocol does not know."""
    for message in body["messages"]:
        fields = set(message) - {"role", "content", "tool_calls", "tool_call_id"}
        for call in message.get("tool_calls") or ():
            fields |= set(call) - {"id", "type", "function"}
        if fields:
            return refusal(f"Extra inputs are not permitted: {', '.join(sorted(fields))}", 422)
    return None


def openai(body: Any) -> Reply | None:
    """What servers of the protocol refuse: empty messages, late system messages, unreadable arguments.

    OpenAI itself takes some of these; chat templates and the translations of gateways do not.
    """
    before = None
    for number, message in enumerate(body["messages"]):
        role, content, calls = message["role"], message["content"], message.get("tool_calls") or []
        where = f"messages.{number}"
        if role not in ("system", "user", "assistant", "tool"):
            return refusal(f"{where}.role: unknown")
        if role == "system" and before not in (None, "system"):
            return refusal(f"{where}: System message must be at the beginning.")
        if not isinstance(content, str) or (role != "tool" and not calls and not content.strip()):
            return refusal(f"{where}.content: must not be empty")
        for call in calls:
            name, arguments = call["function"]["name"], call["function"]["arguments"]
            if not re.fullmatch("[a-zA-Z0-9_-]{1,64}", name) or len(call["id"]) > 40:
                return refusal(f"{where}.tool_calls: a bad name or id")
            if not isinstance(arguments, str) or not _is_object(arguments):
                return refusal(f"{where}.tool_calls: arguments must be the JSON text of an object")
        if calls and not body.get("tools"):
            return refusal(f"{where}: tool_calls, but no tools are given")
        before = role
    return all_of(calls_answered, known_fields)(body)


def alternating(body: Any) -> Reply | None:
    """Chat templates of small models: user and assistant by turns, no tools, nothing empty."""
    roles = [message["role"] for message in body["messages"]]
    spoken = roles[1:] if roles[:1] == ["system"] else roles
    if spoken != ["user", "assistant"] * (len(spoken) // 2) + ["user"]:
        return refusal("Conversation roles must alternate user/assistant/user/assistant/...")
    if "tools" in body or not all(message["content"].strip() for message in body["messages"]):
        return refusal("no tools and no empty messages")
    return known_fields(body)


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


_AFTER = {
    None: {"system", "user"},
    "system": {"system", "user", "assistant"},
    "user": {"assistant", "system", "user"},
    "assistant": {"assistant", "user", "tool"},
    "tool": {"assistant", "tool"},
}


def mistral(body: Any) -> Reply | None:
    """Mistral: the order of roles, ids of nine letters and digits, no unknown fields."""

    def no(message: str, kind: str, code: str) -> Reply:
        return answer({"object": "error", "message": message, "type": kind, "param": None, "code": code}, 400)

    before = None
    for message in body["messages"]:
        role = message["role"]
        if role not in _AFTER[before]:
            return no(
                f"Unexpected role '{role}' after role '{before}'", "invalid_request_message_order", "3230"
            )
        ids = [call["id"] for call in message.get("tool_calls") or ()]
        for id_ in [*ids, *([message["tool_call_id"]] if role == "tool" else [])]:
            if not re.fullmatch("[a-zA-Z0-9]{9}", id_):
                wanted = "must be a-z, A-Z, 0-9, with a length of 9."
                return no(f"Tool call id was {id_} but {wanted}", "invalid_function_call", "3280")
        before = role
    if before not in ("user", "tool"):
        return no("Expected last role User or Tool", "invalid_request_message_order", "3230")
    return all_of(calls_answered, known_fields)(body)


class Gemini:
    """Gemini behind OpenAI's protocol: the first call of each reply has the signature it was given with."""

    def __init__(self) -> None:
        self.signed: dict[str, str] = {}
        """Arguments of a call, by the signature that was given with it."""

    def sign(self, reply: dict[str, Any]) -> dict[str, Any]:
        """Sign the first call of a chat completion."""
        call = reply["choices"][0]["message"]["tool_calls"][0]
        call["extra_content"] = self.extra(call["function"]["arguments"])
        return reply

    def extra(self, arguments: str) -> dict[str, Any]:
        """The field with the signature of a call."""
        signature = hashlib.sha256(f"{len(self.signed)} {arguments}".encode()).hexdigest() + "+/=="
        self.signed[signature] = arguments
        return {"google": {"thought_signature": signature}}

    def __call__(self, body: Any) -> Reply | None:
        for position, message in enumerate(body["messages"]):
            for call in (message.get("tool_calls") or ())[:1]:
                google = call.get("extra_content", {}).get("google", {})
                signature = google.get("thought_signature")
                if signature is None:
                    return self._no(
                        "Function call is missing a thought_signature in functionCall parts. "
                        f"Additional data, position {position}."
                    )
                arguments = self.signed.get(signature, "null")
                if signature != "skip_thought_signature_validator" and json.loads(arguments) != json.loads(
                    call["function"]["arguments"]
                ):
                    return self._no("Corrupted thought signature.")
        return calls_answered(body)

    @staticmethod
    def _no(message: str) -> Reply:
        return answer([{"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}}], 400)


def deepseek(body: Any) -> Reply | None:
    """DeepSeek: a reply with calls comes back with its reasoning."""
    for index, message in enumerate(body["messages"]):
        if message.get("tool_calls") and not message.get("reasoning_content"):
            return refusal(
                f"Missing `reasoning_content` field in the assistant message at message index {index}"
            )
    return calls_answered(body)


def too_long(limit: int, message: str, status: int = 400, **more: Any) -> Check:
    """Refuse requests whose messages have more than `limit` characters."""

    def check(body: Any) -> Reply | None:
        return refusal(message, status, **more) if len(json.dumps(body["messages"])) > limit else None

    return check


# -- Anthropic's protocol -----------------------------------------------------------------------------------


def anthropic(body: Any) -> Reply | None:
    """Anthropic: roles by turns from and to a user, no blank text, each call answered at once and first."""

    def no(message: str) -> Reply:
        return answer({"type": "error", "error": {"type": "invalid_request_error", "message": message}}, 400)

    system = body.get("system") or []
    if any(not block["text"].strip() for block in system if not isinstance(system, str)):
        return no("system: text content blocks must be non-empty")
    unanswered: list[str] = []
    seen: set[str] = set()
    for number, message in enumerate(body["messages"]):
        where, content = f"messages.{number}", message["content"]
        if message["role"] != ("user", "assistant")[number % 2]:
            return no(f'{where}: roles must alternate between "user" and "assistant"')
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if not blocks:
            return no(f"{where}: all messages must have non-empty content")
        if any(not block["text"].strip() for block in blocks if block["type"] == "text"):
            return no(f"{where}: text content blocks must contain non-whitespace text")
        results = [block["type"] == "tool_result" for block in blocks]
        answered = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        if answered != unanswered or results != sorted(results, reverse=True):
            return no(f"{where}: `tool_use` ids were found without `tool_result` blocks immediately after")
        uses = [block for block in blocks if block["type"] == "tool_use"]
        unanswered = [use["id"] for use in uses]
        for use in uses:
            if not re.fullmatch("[a-zA-Z0-9_-]+", use["id"]) or use["id"] in seen:
                return no(
                    f"{where}: tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$', and be unique"
                )
            if not re.fullmatch("[a-zA-Z0-9_-]{1,128}", use["name"]) or not isinstance(use["input"], dict):
                return no(f"{where}: tool_use.input: Input should be a valid dictionary")
            seen.add(use["id"])
        if uses and not body.get("tools"):
            return no("Requests which include `tool_use` or `tool_result` blocks must define tools")
    if body["messages"][-1]["role"] != "user":
        return no("This model does not support assistant message prefill.")
    return None


def claude_signature(thinking: str) -> str:
    return "EqQB" + hashlib.sha256(thinking.encode()).hexdigest() + "=="


def claude_thinking(thinking: str) -> dict[str, Any]:
    """A block of thoughts, signed."""
    return {"type": "thinking", "thinking": thinking, "signature": claude_signature(thinking)}


def claude(body: Any) -> Reply | None:
    """Claude with thinking: each reply with calls begins with its thoughts, unchanged and signed."""

    def no(message: str) -> Reply:
        return answer({"type": "error", "error": {"type": "invalid_request_error", "message": message}}, 400)

    unanswered: list[str] = []
    for number, message in enumerate(body["messages"]):
        blocks = message["content"] if isinstance(message["content"], list) else []
        answered = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        if answered != unanswered:
            return no(f"messages.{number}: `tool_use` ids were found without `tool_result` blocks")
        unanswered = [block["id"] for block in blocks if block["type"] == "tool_use"]
        if unanswered and blocks[0]["type"] not in ("thinking", "redacted_thinking"):
            return no(f"messages.{number}.content.0.type: Expected `thinking`, found `{blocks[0]['type']}`")
        for place, block in enumerate(blocks):
            if block["type"] == "thinking" and block["signature"] != claude_signature(block["thinking"]):
                return no(f"messages.{number}.content.{place}: Invalid `signature` in `thinking` block")
    return None
