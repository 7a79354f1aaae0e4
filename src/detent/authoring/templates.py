"""Fills `{{key}}` in texts and in values made of texts.

A missing value is an error that names the place, never an empty text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from detent.kernel.errors import DetentError
from detent.kernel.guards import dig
from detent.kernel.plain import to_plain

_PLACEHOLDER = re.compile(r"\{\{([^{}]*)\}\}")

Values = Callable[[str], Any]
"""The value of a dotted key, or `ABSENT`."""
ABSENT = object()


class TemplateError(DetentError):
    """A text cannot be made: a value for it is missing, or the template itself."""

    def __init__(self, where: str, line: int | None, key: str | None, why: str) -> None:
        self.where = where
        self.line = line
        self.key = key
        place = f"{where}, line {line}" if line is not None else where
        super().__init__(f"{place}: {why}")


class Placeholder(NamedTuple):
    """A `{{key}}` in a text."""

    key: str
    line: int
    alone: bool
    """It is the whole text, so the value stands there as it is and not as text."""


def placeholders(value: Any) -> Iterator[Placeholder]:
    """Every placeholder in a value, in order."""
    if isinstance(value, str):
        for match in _PLACEHOLDER.finditer(value):
            line = value.count("\n", 0, match.start()) + 1
            yield Placeholder(match.group(1).strip(), line, match.group() == value.strip())
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from placeholders(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from placeholders(item)


def fill(text: str, value_of: Callable[[str, int], str]) -> str:
    """A text with its placeholders replaced by what `value_of` gives for a key and its line."""

    def value(match: re.Match[str]) -> str:
        return value_of(match.group(1).strip(), text.count("\n", 0, match.start()) + 1)

    return _PLACEHOLDER.sub(value, text)


def insert(text: str, values: Values, where: str) -> str:
    """A text with its placeholders filled."""

    def value_of(key: str, line: int) -> str:
        found = _value(values, key, where, line)
        if hasattr(found, "__plain__") and "$receipt" in found.__plain__():
            raise TemplateError(
                where, line, key, f"'{key}' is known only after the effect is performed, so it stands alone."
            )
        return _text(to_plain(found))

    return fill(text, value_of)


def filled(value: Any, values: Values, where: str) -> Any:
    """A value with its placeholders filled; one that is a whole text is replaced by the value itself."""
    if isinstance(value, str):
        only = _PLACEHOLDER.fullmatch(value.strip())
        if only is not None:
            found = _value(values, only.group(1).strip(), where, 1)
            return found if hasattr(found, "__plain__") and _is_receipt(found) else to_plain(found)
        return insert(value, values, where)
    if isinstance(value, Mapping):
        return {key: filled(item, values, where) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [filled(item, values, where) for item in value]
    return value


def values_of(data: Mapping[str, Any]) -> Values:
    """The values of a run's data."""
    return lambda key: dig(data, key, ABSENT)


def _is_receipt(value: Any) -> bool:
    return "$receipt" in value.__plain__()


def _value(values: Values, key: str, where: str, line: int) -> Any:
    found = values(key) if key else ABSENT
    if found is ABSENT or found is None:
        raise TemplateError(where, line, key, f"there is no value for {{{{{key}}}}}.")
    return found


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)
