"""The plain JSON form of a value in the kernel, without calling what a hostile class overrides."""

from __future__ import annotations

import json
import math
import sys
from typing import Any

DEEPEST = 50
"""Levels of nesting that still count as plain."""
MOST_ITEMS = 200_000
"""Items of a value that is looked through; a longer one is no value for a state."""


class NotPlain(Exception):
    """A value has no JSON form."""


def plain(value: Any) -> Any:
    """The JSON form of a value; numbers of NumPy become Python's, tuples become lists.

    Raises:
        NotPlain: it has none: another type, a key that is no text, a number that is not finite, too deep.
    """
    return _Plain().of(value, 0)


def plain_text(value: Any, longest: int) -> str | None:
    """The JSON text of a value in ASCII; None if it has none, or one of more than `longest` characters."""
    try:
        text = json.dumps(plain(value), allow_nan=False)
    except (NotPlain, ValueError, RecursionError):  # an integer of more than 4,300 digits is a ValueError
        return None
    return text if len(text) <= longest else None


def numpy_scalar(value: Any) -> Any:
    """A number, truth value or text of NumPy as Python's own; anything else as it is."""
    numpy = sys.modules.get("numpy")
    kinds = (numpy.bool_, numpy.integer, numpy.floating, numpy.str_) if numpy is not None else ()
    return value.item() if issubclass(type(value), kinds) else value


class _Plain:
    def __init__(self) -> None:
        self._items = 0

    def of(self, value: Any, depth: int) -> Any:
        self._items += 1
        if depth > DEEPEST or self._items > MOST_ITEMS:
            raise NotPlain
        kind = type(value)
        if value is None or kind is bool or kind is str or kind is int:
            return value
        if kind is float:
            if not math.isfinite(value):
                raise NotPlain
            return value
        if issubclass(kind, dict):
            return {self._key(key): self.of(item, depth + 1) for key, item in dict.items(value)}
        if issubclass(kind, list):
            return [self.of(item, depth + 1) for item in list.__iter__(value)]
        if issubclass(kind, tuple):
            return [self.of(item, depth + 1) for item in tuple.__iter__(value)]
        if kind is not type(python := numpy_scalar(value)):
            return self.of(python, depth)
        if issubclass(kind, str):
            return str.__str__(value)
        if issubclass(kind, int):
            return int.__int__(value)
        if issubclass(kind, float):
            return self.of(float.__float__(value), depth)
        raise NotPlain

    @staticmethod
    def _key(key: Any) -> str:
        if not issubclass(type(key), str):
            raise NotPlain
        return str.__str__(key)
