"""Payloads as plain JSON: for the journal, and for executors with structured output."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

from detent.engine.schemas import read, schema_of
from detent.flows.notebook.payloads.checks import MOST_ACTIONS, MOST_ITEMS, NOTHING_KNOWN, Known, checked
from detent.flows.notebook.payloads.findings import Findings
from detent.flows.notebook.payloads.kinds import CLASSES, EVENT_OF, PayloadKind
from detent.flows.notebook.payloads.names import ID
from detent.flows.notebook.payloads.payload_error import MISSING, VALUE, PayloadError
from detent.flows.notebook.payloads.values import Payload
from detent.kernel import plain

_SIGN: Mapping[str, PayloadKind] = {
    "stages": "T1",
    "steps": "T2",
    "behavior_id": "T3",
    "actions": "T4",
    "step_is_complete": "T5",
    "stage_is_complete": "T6",
}
"""A key that only one kind has."""
_ITEMS = {"minItems": 1, "maxItems": MOST_ITEMS}
_FILLED = {"minLength": 1}
_ONE = {"minItems": 1}
_NARROWER: Mapping[tuple[str, str], Mapping[str, Any]] = {
    ("", "stages"): _ITEMS,
    ("", "steps"): _ITEMS,
    ("", "actions"): {"minItems": 1, "maxItems": MOST_ACTIONS},
    ("", "outputs"): _ONE,
    ("", "acceptance"): _ONE,
    ("", "agent"): _FILLED,
    ("", "task"): _FILLED,
    ("", "behavior_id"): {"pattern": r"^[a-z][a-z0-9_]{0,79}_b[1-9][0-9]*$"},
    ("", "step_id"): {"pattern": f"^{ID.pattern}$"},
    ("", "completed_steps"): {"minimum": 0},
    ("", "remaining_steps"): {"minimum": 0},
    ("", "percentage"): {"minimum": 0, "maximum": 100},
    **{
        (name, key): limits
        for name in ("PlannedStage", "PlannedStep")
        for key, limits in (
            ("id", {"pattern": f"^{ID.pattern}$"}),
            ("title", _FILLED),
            ("goal", _FILLED),
            ("verified_artifacts", _ONE),
        )
    },
    **{("PcsTexts", key): _FILLED for key in ("predictability", "computability", "stability")},
    ("Named", "name"): _FILLED,
}
"""What the schema checks demand beyond the types, by class (the payload itself has no name) and key."""


def to_plain(value: Payload) -> dict[str, Any]:
    """A payload as plain JSON."""
    mapping: dict[str, Any] = plain.to_plain(value)
    return mapping


def from_plain(kind: PayloadKind, data: Mapping[str, Any], *, known: Known = NOTHING_KNOWN) -> Payload:
    """The payload that plain JSON stands for, checked.

    Raises:
        PayloadError: it breaks its schema.
    """
    findings = Findings()
    value = value_of(kind, data, findings)
    if value is not None:
        value = checked(value, findings, known)
    if value is None or findings.problems:
        raise PayloadError(f"{kind} payload", findings.problems)
    return value


def json_schema(kind: PayloadKind) -> Mapping[str, Any]:
    """The JSON Schema of a payload, for executors with structured output."""
    schema: dict[str, Any] = deepcopy(dict(schema_of(CLASSES[kind])))
    schema["title"] = EVENT_OF[kind]
    for (name, key), limits in _NARROWER.items():
        holder = schema["$defs"].get(name, {}) if name else schema
        if key in holder.get("properties", {}):
            holder["properties"][key].update(limits)
    return schema


def kind_of_plain(data: Any) -> PayloadKind | None:
    """The kind of payload that plain JSON looks like."""
    if not isinstance(data, Mapping):
        return None
    return next((kind for key, kind in _SIGN.items() if key in data), None)


def value_of(kind: PayloadKind, data: Any, findings: Findings) -> Payload | None:
    """The payload that plain JSON stands for, as far as its types go; unused keys are flagged."""
    value, problems = read(data, CLASSES[kind])
    for line in problems:
        path, _, why = line.partition(": ")
        findings.refuse(MISSING if why.startswith("missing") else VALUE, why, path)
    if value is None:
        return None
    payload: Payload = value
    for path in _unused(data, to_plain(payload)):
        findings.flag(f"unused: {path}")
    return payload


def _unused(data: Any, used: Any, path: str = "") -> Iterator[str]:
    if isinstance(data, Mapping) and isinstance(used, Mapping):
        for key, item in data.items():
            inner = f"{path}/{plain.pointer_part(str(key))}"
            if key in used:
                yield from _unused(item, used[key], inner)
            else:
                yield inner
    elif isinstance(data, list) and isinstance(used, list):
        for index, (item, kept) in enumerate(zip(data, used, strict=False)):
            yield from _unused(item, kept, f"{path}/{index}")
