"""Checks of the fields of public values, with errors that name the field, the value and what would be right.

Called where a value is made, so that a wrong one never reaches a journal, a row or a timer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from detent.kernel.errors import InvalidValue

LONGEST_NAME = 200
EARLIEST, LATEST = -62_000_000_000, 253_000_000_000
"""Seconds since the epoch of the years 5 and 9987: what calendars and databases can show."""


def refuse(field: str, value: Any, right: str) -> InvalidValue:
    """The error for a value that cannot stand in a field."""
    return InvalidValue(f"{field} is {shown(value)}; it takes {right}.")


def shown(value: Any) -> str:
    """A wrong value in a message: short ones as they are, others by their kind."""
    if value is None or type(value) in (bool, float) or (type(value) is int and abs(value) < 10**40):
        return repr(value)
    if isinstance(value, str) and len(value) <= 60:
        return repr(str(value))
    kind = type(value).__name__
    return f"{'an' if kind[:1].lower() in 'aeiou' else 'a'} {kind}"


def text(field: str, value: Any) -> str:
    """A text."""
    if not isinstance(value, str):
        raise refuse(field, value, "text")
    return value


def name(field: str, value: Any) -> str:
    """A short text of one line, writable anywhere."""
    if (
        not isinstance(value, str) or not value or len(value) > LONGEST_NAME
        or not value.isprintable()  # also true of half a surrogate pair, which no database holds
    ):  # fmt: skip
        raise refuse(field, value, f"text of 1 to {LONGEST_NAME} printable characters")
    return value


def names(field: str, value: Any) -> list[str]:
    """Several names; a single text is no list of them."""
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise refuse(field, value, "a list of texts")
    return [name(f"An item of {field}", item) for item in value]


def texts(field: str, value: Any) -> Sequence[str]:
    """Several texts; a single text is no list of them."""
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Sequence):
        raise refuse(field, value, "a list of texts")
    for item in value:
        text(f"An item of {field}", item)
    return value


def moment(field: str, value: Any) -> float:
    """Seconds since the epoch."""
    if is_number(value) and EARLIEST < value < LATEST:
        return float(value)
    right = "seconds since the epoch, such as ctx.now() + 3600, or the timestamp() of a datetime"
    raise refuse(field, value, right)


def is_number(value: Any) -> bool:
    """Whether a value is a finite number, which true and false are not."""
    if isinstance(value, bool):
        return False
    return isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))
