"""Effects and a person's word on them, in words: what was asked for, denied, changed or left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from detent.insight.formatting import short, value
from detent.kernel.entries import CONFIRM, DENIED, EDITED, EffectSkipped, Held


def call_text(tool: str, args: Any, limit: int = 80) -> str:
    """A call on one line: `mail.send({"to":"ann"})`."""
    return f"{tool}({value(args, limit)})" if args else tool


def skipped_text(body: EffectSkipped, *, name: bool = True) -> str:
    """How an effect was left out: `denied by Ann: not today`, or without the name `denied: not today`."""
    how, reason = how_skipped(body)
    by = "a person" if body.by == "person" else body.by
    how = f"{how} by {by}" if name and body.by != "engine" else how
    return f"{how}: {reason}" if reason else how


def how_skipped(body: EffectSkipped) -> tuple[str, str]:
    """How an effect was left out (denied, edited or skipped), and the reason."""
    if body.instead is not None:
        return EDITED, ""
    how, _, reason = body.why.partition(": ")
    if how == DENIED:
        return DENIED, reason
    return "skipped", body.why or "the run goes on without it"


def is_confirmation(held: Held) -> bool:
    """Whether a hold asks for a person's word on one effect."""
    return held.why == CONFIRM and "tool" in held.about


REVIEW = "review"
"""Reason of the holds in which an agent's text for people waits for a person, and the beginning of their
names."""


def answer_text(answer: Any, limit: int = 100) -> str:
    """A person's answer on one line: `yes`, `no: not today`, `edit: {"to":"ann"}`, or the value itself."""
    if isinstance(answer, Mapping) and len(answer) == 1:
        ((word, more),) = answer.items()
        if word in ("no", "edit"):
            return f"{word}: {value(more, limit)}"
    return short(answer, limit) if isinstance(answer, str) else value(answer, limit)


def calls_of(reply: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The tools that an agent's reply calls, with their arguments."""
    output = reply.get("output")
    calls = reply.get("calls") or (output.get("calls") if isinstance(output, Mapping) else None)
    items = calls if isinstance(calls, list) else []
    return [(str(call.get("tool")), call.get("args")) for call in items if isinstance(call, Mapping)]
