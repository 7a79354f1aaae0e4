"""Compares values with expected ones, recursively: texts ignoring case and runs of white space, mappings by
the listed keys."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from detent.kernel.guards import dig
from detent.kernel.plain import to_plain

MISSING = "(missing)"
"""How a missing value is shown."""
_NOT_THERE = object()


class Difference(NamedTuple):
    """One place where a value differs from the expected one."""

    where: str
    """Dotted key."""
    expected: Any
    actual: Any
    hint: str = ""


def folded(text: str) -> str:
    """A text in the form in which it is compared."""
    return " ".join(text.split()).casefold()


def same_text(text: str, other: str) -> bool:
    """True when two texts count as the same."""
    return folded(text) == folded(other)


def stands_in(part: str, text: str) -> bool:
    """True when a text contains a part."""
    return folded(part) in folded(text)


def plainly(value: Any) -> Any:
    """A value as plain values; one that cannot be converted becomes its `repr`."""
    try:
        return to_plain(value)
    except (TypeError, ValueError):
        if isinstance(value, Mapping):
            return {str(key): plainly(item) for key, item in value.items()}
        if isinstance(value, (list, tuple, set, frozenset)):
            return [plainly(item) for item in value]
        return repr(value)


def told(value: Any) -> str:
    """A value as text for people: a string unchanged, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(plainly(value), ensure_ascii=False)


def differences(expected: Any, actual: Any, where: str = "") -> Iterator[Difference]:
    """Every place where `actual` differs from `expected`; of mappings only the listed keys are compared.

    A key may be dotted. Null matches a key that is null or missing.
    """
    if actual is _NOT_THERE:
        if expected is not None:
            yield Difference(where, plainly(expected), MISSING)
    elif isinstance(expected, Mapping):
        if not isinstance(actual, Mapping):
            yield Difference(where, plainly(expected), plainly(actual))
            return
        for key, expected_value in expected.items():
            name = str(key)
            actual_value = actual[name] if name in actual else dig(actual, name, _NOT_THERE)
            yield from differences(expected_value, actual_value, f"{where}.{name}" if where else name)
    elif isinstance(expected, (list, tuple)):
        if not isinstance(actual, Sequence) or isinstance(actual, str):
            yield Difference(where, plainly(expected), plainly(actual))
        elif len(expected) != len(actual):
            hint = f"{len(expected)} items expected, {len(actual)} there"
            yield Difference(where, plainly(expected), plainly(actual), hint)
        else:
            for index, (expected_item, actual_item) in enumerate(zip(expected, actual, strict=True)):
                yield from differences(
                    expected_item, actual_item, f"{where}.{index}" if where else str(index)
                )
    else:
        plain_expected, plain_actual = plainly(expected), plainly(actual)
        if not _equal(plain_expected, plain_actual):
            yield Difference(where, plain_expected, plain_actual, _type_hint(plain_expected, plain_actual))


def _equal(expected: Any, actual: Any) -> bool:
    if isinstance(expected, str) and isinstance(actual, str):
        return same_text(expected, actual)
    if isinstance(expected, bool) != isinstance(actual, bool):
        return False
    return bool(expected == actual)


def _type_hint(expected: Any, actual: Any) -> str:
    number = isinstance(expected, (int, float)) and not isinstance(expected, bool)
    if number and isinstance(actual, str) and re.fullmatch(r"[\d._-]+", actual):
        return "YAML read a number; quote it to expect text"
    if isinstance(expected, str) and isinstance(actual, (int, float)):
        return "the value is no text; the case expects text"
    return ""
