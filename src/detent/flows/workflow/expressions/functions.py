"""The five functions. `default`, whose first argument may be missing, is evaluated in `evaluation`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from detent.flows.workflow.expressions.errors import EvaluationError
from detent.flows.workflow.expressions.values import as_json, described, kind_of

ARGUMENTS = {"len": 1, "lower": 1, "upper": 1, "default": 2, "json": 1}
"""Number of arguments, by function."""


def length(value: Any, position: int) -> int:
    """`len(x)`: characters of a text, items of a list, keys of a mapping."""
    if kind_of(value) not in ("text", "list", "mapping"):
        raise EvaluationError(f"len counts a text, a list or a mapping, not {described(value)}.", position)
    return len(value)


def lower(value: Any, position: int) -> str:
    """`lower(x)`: a text in small letters."""
    return str.lower(_text("lower", value, position))


def upper(value: Any, position: int) -> str:
    """`upper(x)`: a text in capitals."""
    return str.upper(_text("upper", value, position))


def _text(function: str, value: Any, position: int) -> str:
    if kind_of(value) != "text":
        raise EvaluationError(f"{function} takes a text, not {described(value)}.", position)
    return value  # type: ignore[no-any-return]


OF_ONE: dict[str, Callable[[Any, int], Any]] = {
    "len": length,
    "lower": lower,
    "upper": upper,
    "json": as_json,
}
"""Functions of a value and the position of the call."""
