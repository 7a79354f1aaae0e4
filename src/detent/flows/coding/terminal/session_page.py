"""A session for people: where it is, and what was said, line by line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from detent.flows.coding.sessions.record import SessionRecord


def page_of(record: SessionRecord, plain: Mapping[str, Any]) -> Iterator[str]:
    """A session, line by line."""
    from detent.cli.output import clean, paint

    yield paint(clean(record.session_id), bold=True)
    facts = [
        ("state", state_shown(record.state_value, record.is_complete)),
        ("outcome", " ".join(filter(None, (record.outcome, _in_brackets(plain.get("outcome_reason")))))),
        ("workspace", plain.get("workspace")),
        ("model", plain.get("model")),
        ("began", moment_shown(record.created_at)),
        ("changed", moment_shown(record.updated_at)),
        ("files", ", ".join(plain.get("files_changed") or ())),
        ("waits for", (plain.get("hold") or {}).get("question")),
        ("runs", ", ".join(plain.get("run_ids") or ())),
        ("migrated", _migrated(plain.get("migration"))),
    ]
    width = max(len(name) for name, _ in facts)
    yield from (f"{paint(name.ljust(width), dim=True)}  {clean(value)}" for name, value in facts if value)
    for item in plain.get("todos") or ():
        mark = {"completed": "x", "in_progress": ">"}.get(item["status"], " ")
        yield f"[{mark}] {clean(item['content'])}"
    for message in plain["messages"]:
        yield ""
        yield from _message_lines(message)
    if plain.get("summary"):
        yield ""
        yield paint("not finished", bold=True)
        yield from _text_lines(plain["summary"])


def _in_brackets(reason: str | None) -> str | None:
    return None if reason is None else f"({reason})"


def _migrated(migration: Mapping[str, Any] | None) -> str | None:
    if migration is None:
        return None
    detail = f" ({detail_words(migration['detail'])})" if migration["detail"] else ""
    ambiguous = ", ambiguous" if migration["ambiguous"] and migration["reason"] != "ambiguous" else ""
    return f"{str(migration['reason']).replace('_', ' ')}{ambiguous}{detail}"


_DETAILS = {
    "state_wins": "its state contradicts its booleans, and counts",
    "marker_in_transcript": "its last reply says done, its booleans do not, and they count",
}


def detail_words(detail: str | None) -> str:
    """What else there is to know of an older session, for people."""
    return "; ".join(_DETAILS.get(part, part) for part in (detail or "").split("; "))


def _message_lines(message: Any) -> Iterator[str]:
    """One message, line by line."""
    import json

    from detent.cli.output import clean, paint

    role = message.get("role") if isinstance(message, dict) else None
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(role, str) or not isinstance(content, str):
        yield paint("as found", dim=True)
        yield from _text_lines(json.dumps(json_values(message), ensure_ascii=False))
        return
    head = {"tool": message.get("tool"), "nudge": message.get("kind")}.get(role)
    failed = role == "tool" and not message.get("ok")
    error = f" {message.get('error') or 'failed'}" if failed else ""
    spoken = role in ("user", "assistant")
    yield paint(clean(f"{role}{f' {head}' if head else ''}{error}"), bold=spoken, dim=not spoken)
    yield from _text_lines(content)
    for call in (message.get("tool_calls") or ()) if role == "assistant" else ():
        args = json.dumps(json_values(call["args"]), ensure_ascii=False)
        yield f"  {paint('→', dim=True)} {clean(call['tool'])} {clean(args)}"


def _text_lines(text: str) -> Iterator[str]:
    from detent.kernel.control_characters import shown

    return (f"  {shown(line)}".rstrip() for line in text.split("\n")) if text else iter(())


def json_values(value: Any) -> Any:
    """A value in which numbers that only text can hold stand as text."""
    from detent.flows.coding.sessions.json_text import Verbatim

    if isinstance(value, Verbatim):
        return value.text
    if isinstance(value, dict):
        return {key: json_values(item) for key, item in value.items()}
    return [json_values(item) for item in value] if isinstance(value, list) else value


def state_shown(state: str | None, complete: bool) -> str:
    """A state, and whether the request is complete."""
    return f"{state}, complete" if complete else str(state)


def moment_shown(at: str | None) -> str:
    """A moment in local time, for listings."""
    from datetime import UTC, datetime

    from detent.cli.output import brief

    try:
        moment = datetime.fromisoformat(at or "")
        return brief((moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp())
    except (ValueError, OverflowError, OSError):
        return at or "-"
