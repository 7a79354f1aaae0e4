"""Agents in words: why one was replaced, at which level a visit was, what a later verdict says of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from detent.insight.effect_text import calls_of
from detent.insight.formatting import count, short

VERDICT = "evidence.verdict"
"""Topic of the notes that judge an earlier visit."""

_REASONS = {"no_executor": "no model to ask", "operator": "the level is operator"}
_FURTHER = re.compile(r"then/(\d+)/(.+?)/(agent/.*)", re.DOTALL)


def fallback_words(record: Mapping[str, Any]) -> str:
    """Why a handler's outcome was used in place of an agent's: `timeout`, `refused by the validator`."""
    reason = str(record.get("fallback_reason") or record.get("reason") or "fallback")
    if reason == "validation_failure":
        return (
            "refused by the validator" if record.get("check") == "validator" else "differs from the handler"
        )
    return _REASONS.get(reason, reason.replace("_", " "))


def performer_words(detail: Mapping[str, Any], tokens: int = 0) -> str:
    """Who performed a step where an agent was to: `agent (approver, 12 tokens)`; empty for plain code."""
    if detail.get("fallback_used"):
        error = detail.get("agent_error") or {}
        message = f" ({short(error['message'], 160)})" if error.get("message") else ""
        return f"handler, not the agent: {fallback_words(detail)}{message}"
    if detail.get("mode_used") != "agent":
        return ""
    level = detail.get("autonomy_level", "")
    return f"agent ({level}, {count(tokens, 'token')})" if tokens else f"agent ({level})"


def level_words(record: Mapping[str, Any]) -> str:
    """The level of a visit, with the usual one and the reason where it was lowered; empty if unknown."""
    level, lowered = record.get("autonomy_level"), record.get("lowered")
    if not isinstance(lowered, Mapping):
        return str(level or "")
    why = f": {lowered['why']}" if lowered.get("why") else ""
    return f"{level or 'operator'}, lowered from {lowered.get('was')} for this visit{why}"


def further_key(key: str) -> tuple[int, str, str] | None:
    """Number and name of the further step under whose key a reply is kept, and the rest of the key."""
    match = _FURTHER.fullmatch(key)
    return (int(match[1]), match[2], match[3]) if match else None


def last_word(reply: Mapping[str, Any]) -> dict[str, Any]:
    """An agent's model and its last reply: the calls, or the answer."""
    words = {name: reply.get(name) for name in ("model_id", "calls", "output")}
    return {name: word for name, word in words.items() if word}


def verdict_words(note: Mapping[str, Any]) -> str:
    """A verdict on an earlier visit: `judged visit 2 of 'train' wrong: scores 0.4`."""
    right = "right" if note.get("right") else "wrong"
    why = f": {note['why']}" if note.get("why") else ""
    by = " (performed by the agent)" if note.get("performed_by") == "agent" else ""
    again = "; an earlier verdict on it counts" if note.get("again") else ""
    return f"judged visit {note.get('visit')} of '{note.get('state')}'{by} {right}{why}{again}"


def reply_words(reply: Mapping[str, Any]) -> str:
    """An agent's reply: the model, and the tools it called."""
    model = f"{reply['model_id']} " if reply.get("model_id") else ""
    tools = ", ".join(tool for tool, _ in calls_of(reply))
    if reply.get("error"):
        return f"{model}failed".strip()
    return f"{model}asked for {tools}" if tools else f"{model}answered"
