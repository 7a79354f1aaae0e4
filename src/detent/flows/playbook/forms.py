"""Forms: the facts an agent states about a step, with the conditions in `next` choosing the move.

A field is a value, a choice, or labels for candidates that code found. An agent labels every candidate and
can add none, so what it states about a text always stands in the text. Nothing here asks or decides anything.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from detent.engine import schemas
from detent.engine.patterns import PatternBudget
from detent.flows.playbook.instruction import FormField
from detent.kernel.guards import dig
from detent.kernel.plain import to_plain

MOST_CANDIDATES = 20
"""Most candidates of one field that are shown; a pasted inventory has thousands."""
NEAR = 40
"""Characters shown on either side of a pattern's match."""


class Candidate(NamedTuple):
    """A text that code found and that an agent is to label."""

    text: str
    near: str = ""
    """The text around it, for context."""


Finder: TypeAlias = Callable[[Any], Iterable[Any] | Awaitable[Iterable[Any]]]
"""`(ctx) -> candidates`: texts, pairs of a text and the text around it, or `Candidate`s."""


def candidates_of(candidates: Iterable[Any]) -> list[dict[str, str]]:
    """The first candidates as plain values, each text once."""
    near_by_text: dict[str, str] = {}
    for candidate in candidates:
        text, near = (candidate, "") if isinstance(candidate, str) else (str(candidate[0]), str(candidate[1]))
        if text and len(near_by_text) < MOST_CANDIDATES:
            near_by_text.setdefault(text, near)
    return [{"text": text, "near": near} for text, near in near_by_text.items()]


def by_pattern(pattern: str, value: Any) -> list[Candidate]:
    """The matches of a regular expression in a value of the data, with the text around them.

    Raises:
        PatternTimeout: the pattern takes too long over this text.
    """
    text = value if isinstance(value, str) else json.dumps(to_plain(value), ensure_ascii=False)
    candidates: list[Candidate] = []
    for match in PatternBudget().find(pattern, text):
        around = text[max(0, match.start() - NEAR) : match.end() + NEAR]
        candidates.append(Candidate(match.group(), " ".join(around.split())))
    return candidates


def within(data: Mapping[str, Any], key: str) -> Any:
    """The value of the data that a pattern searches."""
    value = dig(data, key, "")
    return "" if value is None else value


def schema_of(
    form: Sequence[FormField], candidates: Mapping[str, Sequence[Mapping[str, str]]]
) -> dict[str, Any]:
    """JSON Schema of the form, with a place for every candidate and no other."""
    fields: dict[str, Any] = {}
    for field in form:
        if field.candidates is None:
            fields[field.name] = dict(field.schema)
        elif texts := [candidate["text"] for candidate in candidates.get(field.name, ())]:
            fields[field.name] = _object({text: dict(field.schema) for text in texts})
    return _object(fields)


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


def facts_of(
    form: Sequence[FormField], answer: Any, candidates: Mapping[str, Sequence[Mapping[str, str]]]
) -> tuple[dict[str, Any], list[str]]:
    """The facts of a form, and its problems, in words that repeat nothing of it.

    Labelled candidates are grouped by label: `{"order": ["A-1"], "phone": ["555 0110"]}`.
    """
    names = ", ".join(field.name for field in form)
    if not isinstance(answer, Mapping):
        return {}, [f"The answer is no form. Answer with one JSON object of: {names}"]
    problems: list[str] = []
    if set(answer) - {field.name for field in form}:
        problems.append(f"The form has no other fields than: {names}")
    facts: dict[str, Any] = {}
    for field in form:
        if field.candidates is not None:
            texts = [candidate["text"] for candidate in candidates.get(field.name, ())]
            facts[field.name] = _labelled(field, answer.get(field.name), texts, problems)
        elif field.name not in answer:
            problems.append(f"{field.name}: is missing")
        else:
            facts[field.name] = answer[field.name]
            problems += [f"{field.name}{line}" for line in _wrong(answer[field.name], field.schema)]
    return facts, problems


def _labelled(
    field: FormField, labels: Any, texts: Sequence[str], problems: list[str]
) -> dict[str, list[str]]:
    if labels is None and not texts:
        return {}
    if not isinstance(labels, Mapping):
        problems.append(f"{field.name}: must be an object with a label for each one found")
        return {}
    if set(labels) - set(texts):
        problems.append(f"{field.name}: label what was found, and nothing else")
    if lacking := sum(text not in labels for text in texts):
        problems.append(f"{field.name}: {lacking} of {len(texts)} have no label")
    by_label: dict[str, list[str]] = {}
    for text in texts:
        if text not in labels:
            continue
        if wrong := _wrong(labels[text], field.schema):
            problems.append(f"{field.name}: each label{wrong[0].removeprefix(':')}")
            break
        by_label.setdefault(str(labels[text]), []).append(text)
    return by_label


def _wrong(value: Any, schema: Mapping[str, Any]) -> list[str]:
    return [line.removeprefix("/") for line in schemas.misfits(value, schema)]


def told(form: Sequence[FormField]) -> str:
    """The form in words."""
    lines: list[str] = []
    for field in form:
        each = " Label every one that is listed, and no other" if field.candidates is not None else ""
        kind = "" if field.meanings else f" ({_kind(field.schema)})"
        lines.append(f"- {field.name}{kind}: {field.description.rstrip('.')}.{each}{'.' if each else ''}")
        lines += [
            f"    {choice}: {meaning}" if meaning else f"    {choice}"
            for choice, meaning in field.meanings.items()
        ]
    return "\n".join(lines)


def _kind(schema: Mapping[str, Any]) -> str:
    kinds = schema.get("type")
    name = " or ".join(kinds) if isinstance(kinds, list) else str(kinds)
    bounds = [
        f"{word} {schema[key]} characters"
        for key, word in (("minLength", "at least"), ("maxLength", "at most"))
        if key in schema
    ]
    bounds += [
        f"{word} {schema[key]}"
        for key, word in (("minimum", "at least"), ("maximum", "at most"))
        if key in schema
    ]
    return ", ".join(
        [name.replace("string", "text").replace("boolean", "true or false").replace("array", "list"), *bounds]
    )


def shown(value: Iterable[Mapping[str, str]]) -> str:
    """Candidates as an agent sees them."""
    lines = [
        f'- {candidate["text"]}: "{candidate["near"]}"' if candidate["near"] else f"- {candidate['text']}"
        for candidate in value
    ]
    return "\n".join(lines) or "(none)"


def free_text(form: Sequence[FormField]) -> FormField | None:
    """The only field whose free text fills an argument; None if there is none, or several."""
    fields = [field for field in form if field.fills is not None and is_prose(field)]
    return fields[0] if len(fields) == 1 else None


def is_prose(field: FormField) -> bool:
    """Whether a field is free text."""
    return not field.meanings and "string" in (field.schema.get("type"), *_kinds(field.schema))


def _kinds(schema: Mapping[str, Any]) -> Sequence[str]:
    kinds = schema.get("type")
    return kinds if isinstance(kinds, list) else ()
