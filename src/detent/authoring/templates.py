"""Fills `{{key}}` in texts and in nested values.

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
    """A text cannot be filled: a value is missing, or the template itself."""

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
    """Whether it is the whole text, so that the value replaces it unconverted."""


def placeholders(value: Any) -> Iterator[Placeholder]:
    """Yield every placeholder in a value, in order."""
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
    """Return a text with its placeholders replaced; `value_of` takes a key and its line."""

    def value(match: re.Match[str]) -> str:
        return value_of(match.group(1).strip(), text.count("\n", 0, match.start()) + 1)

    return _PLACEHOLDER.sub(value, text)


def insert(text: str, values: Values, where: str) -> str:
    """Return a text with its placeholders filled.

    Raises:
        TemplateError: a value is missing, or known only after an effect is performed.
    """

    def value_of(key: str, line: int) -> str:
        value = _value(values, key, where, line)
        if hasattr(value, "__plain__") and "$receipt" in value.__plain__():
            raise TemplateError(
                where,
                line,
                key,
                f"'{key}' is known only after the effect is performed; nothing may surround it.",
            )
        return _text(to_plain(value))

    return fill(text, value_of)


def filled(value: Any, values: Values, where: str) -> Any:
    """Return a value with its placeholders filled; one that is a whole text becomes the value itself.

    Raises:
        TemplateError: a value is missing, or known only after an effect is performed.
    """
    if isinstance(value, str):
        only = _PLACEHOLDER.fullmatch(value.strip())
        if only is not None:
            inserted = _value(values, only.group(1).strip(), where, 1)
            return (
                inserted if hasattr(inserted, "__plain__") and _is_receipt(inserted) else to_plain(inserted)
            )
        return insert(value, values, where)
    if isinstance(value, Mapping):
        return {key: filled(item, values, where) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [filled(item, values, where) for item in value]
    return value


def values_of(data: Mapping[str, Any]) -> Values:
    """Return the lookup of dotted keys in a run's data."""
    return lambda key: dig(data, key, ABSENT)


def _is_receipt(value: Any) -> bool:
    return "$receipt" in value.__plain__()


def _value(values: Values, key: str, where: str, line: int) -> Any:
    value = values(key) if key else ABSENT
    if value is ABSENT or value is None:
        raise TemplateError(where, line, key, f"there is no value for {{{{{key}}}}}.")
    return value


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)
