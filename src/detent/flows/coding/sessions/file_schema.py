"""The JSON Schema of session files, and a quick check of a value against it.

The schema is the one table of what a file's fields may hold; it ships as `session.schema.json`. Only the
keywords that it uses are understood here, because a whole validator takes seconds for a long session.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Container, Iterator, Mapping
from functools import cache
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import Any

from detent.flows.coding.sessions.json_text import Verbatim

FILE = "session.schema.json"
MOST_PROBLEMS = 5
"""Problems of one file that are told."""


@cache
def schema() -> Mapping[str, Any]:
    """The schema."""
    value: dict[str, Any] = json.loads(Path(__file__).with_name(FILE).read_text(encoding="utf-8"))
    return value


@cache
def field_names() -> frozenset[str]:
    """The names of a file's own fields, at every level."""

    def names(part: Any) -> Iterator[str]:
        if isinstance(part, Mapping):
            yield from part.get("properties", {})
            for inner in part.values():
                yield from names(inner)
        elif isinstance(part, list):
            for inner in part:
                yield from names(inner)

    return frozenset(names(schema()))


@cache
def words() -> frozenset[str]:
    """The words that fields with a closed set of values may hold."""

    def found(part: Any) -> Iterator[str]:
        if isinstance(part, Mapping):
            for keyword, inner in part.items():
                choices = inner if keyword == "enum" else [inner] if keyword == "const" else []
                yield from (choice for choice in choices if isinstance(choice, str))
                yield from found(inner)
        elif isinstance(part, list):
            for inner in part:
                yield from found(inner)

    return frozenset(found(schema()))


def top_level() -> Mapping[str, Any]:
    """The schema of each field of a file."""
    properties: Mapping[str, Any] = schema()["properties"]
    return properties


def problems_of(plain: Any, checked: Container[int] = ()) -> list[str]:
    """What is wrong with a file's content, one clause each; the first few, if there are many.

    Messages whose `id()` is in `checked` are known to be right.
    """
    return list(islice(_all_problems(plain, checked), MOST_PROBLEMS))


def _all_problems(plain: Any, checked: Container[int]) -> Iterator[str]:
    messages = plain.get("messages") if isinstance(plain, Mapping) else None
    if not isinstance(messages, list):
        yield from _problems(schema(), plain, "")
        return
    yield from _problems(schema(), {**plain, "messages": []}, "")
    rules = top_level()["messages"]["items"]
    for index, message in enumerate(messages):
        if id(message) not in checked:
            yield from _problems(rules, message, f"messages[{index}]")


def fits(field: str, value: Any) -> bool:
    """Whether a value may stand in a field of a file."""
    return next(_problems(top_level()[field], value, field), None) is None


def is_message(role: str, value: Any) -> bool:
    """Whether a value is a message of a role: `user`, `assistant`, `tool` or `nudge`."""
    return next(_problems(schema()["$defs"][role], value, ""), None) is None


def _problems(rules: Mapping[str, Any], value: Any, path: str) -> Iterator[str]:
    for keyword, rule in rules.items():
        check = _CHECKS.get(keyword)
        if check is not None:
            yield from check(rule, value, path, rules)


def _type(rule: str | list[str], value: Any, path: str, _: Mapping[str, Any]) -> Iterator[str]:
    names = [rule] if isinstance(rule, str) else rule
    if not any(_IS[name](value) for name in names):
        yield f"{path or 'the file'} must be {' or '.join(_WORDS[name] for name in names)}"


def _const(rule: Any, value: Any, path: str, _: Mapping[str, Any]) -> Iterator[str]:
    if not _same(rule, value):
        yield f"{path} must be {json.dumps(rule)}"


def _enum(rule: list[Any], value: Any, path: str, _: Mapping[str, Any]) -> Iterator[str]:
    if not any(_same(choice, value) for choice in rule):
        yield f"{path} must be one of {', '.join(json.dumps(choice) for choice in rule)}"


def _pattern(rule: str, value: Any, path: str, _: Mapping[str, Any]) -> Iterator[str]:
    if isinstance(value, str) and not re.fullmatch(rule, value):
        yield f"{path} is no session id"


def _minimum(rule: int, value: Any, path: str, _: Mapping[str, Any]) -> Iterator[str]:
    if _IS["number"](value) and float(str(value)) < rule:
        yield f"{path} must be {rule} or more"


def _required(rule: list[str], value: Any, path: str, _: Mapping[str, Any]) -> Iterator[str]:
    if isinstance(value, Mapping):
        yield from (f"{_below(path, name)} is missing" for name in rule if name not in value)


def _properties(rule: Mapping[str, Any], value: Any, path: str, _: Mapping[str, Any]) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, inner in rule.items():
            if name in value:
                yield from _problems(inner, value[name], _below(path, name))


def _items(rule: Mapping[str, Any], value: Any, path: str, _: Mapping[str, Any]) -> Iterator[str]:
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _problems(rule, item, f"{path}[{index}]")


def _any_of(rule: list[Mapping[str, Any]], value: Any, path: str, _: Mapping[str, Any]) -> Iterator[str]:
    # The forms of a message: what has a text and a role of ours has the form of that role, all else any form.
    role = value.get("role") if isinstance(value, Mapping) else None
    if isinstance(role, str) and role in schema()["$defs"] and isinstance(value.get("content"), str):
        yield from _problems(schema()["$defs"][role], value, path)


def _all_of(rule: list[Mapping[str, Any]], value: Any, path: str, _: Mapping[str, Any]) -> Iterator[str]:
    for part in rule:
        yield from _problems(part, value, path)


def _if(rule: Mapping[str, Any], value: Any, path: str, rules: Mapping[str, Any]) -> Iterator[str]:
    holds = next(_problems(rule, value, path), None) is None
    yield from _problems(rules["then" if holds else "else"], value, path)


_CHECKS: Mapping[str, Callable[[Any, Any, str, Mapping[str, Any]], Iterator[str]]] = {
    "type": _type, "const": _const, "enum": _enum, "pattern": _pattern, "minimum": _minimum,
    "required": _required, "properties": _properties, "items": _items, "anyOf": _any_of, "allOf": _all_of,
    "if": _if,
}  # fmt: skip
_IS: Mapping[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, Mapping),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "integer": lambda value: type(value) is int,
    "number": lambda value: (
        type(value) in (int, float) or (isinstance(value, Verbatim) and isfinite(float(value)))
    ),
}
_WORDS = {
    "object": "an object", "array": "a list", "string": "text", "boolean": "true or false", "null": "null",
    "integer": "a whole number", "number": "a number",
}  # fmt: skip


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
