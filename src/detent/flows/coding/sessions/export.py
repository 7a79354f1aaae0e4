"""A session in the form with booleans, for programs that know no states."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from detent.flows.coding.sessions.legacy import FLAGS, RENAMED
from detent.flows.coding.sessions.legacy_messages import has_parts
from detent.flows.coding.sessions.record import SessionRecord

_OF_STATES = frozenset({
    "schema", "schema_version", "state", "is_complete", "completion", "outcome", "outcome_reason", "checked",
    "hold", "legacy", "migration",
})  # fmt: skip
"""Fields that older programs do not know, and that would be taken for a state on the way back."""
_OF_TURNS = frozenset({"role", "content", "tool_calls", "tool_call_id", "tool", "ok", "truncated"})
"""What a message of parts has got by its migration."""
_OLD_NAMES = {new: old for old, new in RENAMED.items()}


def legacy_form(record: SessionRecord) -> dict[str, Any]:
    """The session as older programs have it: booleans at the top, messages with role and content."""
    plain = record.to_plain()
    flags: Mapping[str, Any] = record.legacy_flags()
    if plain.get("migration") is not None and plain.get("legacy"):
        flags = {name: value for name, value in plain["legacy"].items() if name in FLAGS}
    result: dict[str, Any] = {}
    for name, value in plain.items():
        if name == "session_id":
            result |= {name: value, **flags}
        elif name == "messages":
            result[name] = [_message(message) for message in value]
        elif name not in _OF_STATES:
            result[_OLD_NAMES.get(name, name)] = value
    return result


def _message(message: Any) -> Any:
    """A message as older programs have it: as it is, or as the parts it was made of."""
    if not isinstance(message, Mapping) or not has_parts(message):
        return message
    return {name: value for name, value in message.items() if name not in _OF_TURNS}
