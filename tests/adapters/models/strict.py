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
