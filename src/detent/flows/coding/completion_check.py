"""Whether a reply may end its request: suspicions about what it claims."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from detent.flows.coding.request_data import Message

_ANNOUNCES = re.compile(r"\b(?:let me|i will|i['’]ll|going to|next,? i)\b", re.IGNORECASE)
_SENTENCE = re.compile(r"[.!?\n]+")


def suspicions(
    summary: str, text: str, results: Sequence[Message], todos: Sequence[Mapping[str, Any]]
) -> list[str]:
    """What speaks against a request's being done, in words for the assistant."""
    found: list[str] = []
    succeeded = any(result["ok"] for result in results)
    if not succeeded and any(map(_announces, (summary, _last_sentence(text)))):
        found.append("it announces work, and no tool call has succeeded")
    if results and not results[-1]["ok"] and results[-1].get("error") != "denied":
        found.append(f"the last call, {results[-1]['tool']}, failed and none has succeeded since")
    if still_open := [item for item in todos if item.get("status") != "completed"]:
        found.append(f"{len(still_open)} todo item{'s are' if len(still_open) > 1 else ' is'} open")
    return found


def _announces(text: str) -> bool:
    return _ANNOUNCES.search(text) is not None


def _last_sentence(text: str) -> str:
    sentences = [part for part in _SENTENCE.split(text) if part.strip()]
    return sentences[-1] if sentences else ""
