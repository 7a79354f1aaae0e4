"""JSON text of session files, read and written without losing anything: numbers, order, odd characters.

Belongs here: bytes and text. Does not belong here: what a session is.
"""

from __future__ import annotations

import json
import math
import re
import secrets
from collections.abc import Iterable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

DEEPEST = 220
"""Levels that a file may have; deeper ones are refused everywhere alike, whatever stack a machine has."""
DEEPEST_LEGACY = 200
"""Levels that a file of an older format may have, which gets a few more when it becomes one of ours."""
DEEPEST_ARGUMENTS = 100
"""Levels that arguments written as JSON text may have, to be kept as values."""
LONGEST_INTEGER = 600
"""Digits of an integer that Python reads and writes as one, however it is set up."""

_HIDDEN = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]")
"""Characters that a terminal or an eye takes for something else; JSON can write them as escapes."""


class NotReadable(ValueError):
    """A text is no JSON object; the message is a clause about the file, without a full stop."""


class Verbatim:
    """A number as it was written, because no number of Python's is the same."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Verbatim) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __str__(self) -> str:
        return self.text

    def __float__(self) -> float:
        return float(self.text)


class Parsed(NamedTuple):
    """A JSON object, and what its reading has passed over."""

    plain: dict[str, Any]
    repeated: list[dict[str, Any]]
    """Keys that one object has several times, each with a value that does not count; the last one does."""


def parse(raw: bytes) -> Parsed:
    """The object that a file holds.

    Raises:
        NotReadable: the bytes are no JSON object.
    """
    if not raw.strip():
        raise NotReadable("is empty")
    repeated: list[dict[str, Any]] = []

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        plain = dict(items)
        if len(plain) != len(items):
            last = {key: index for index, (key, _) in enumerate(items)}
            repeated.extend(
                {"key": key, "value": value} for index, (key, value) in enumerate(items) if last[key] != index
            )
        return plain

    try:
        text = raw.decode(json.detect_encoding(raw), "surrogatepass")
        value = json.loads(
            text, object_pairs_hook=pairs, parse_float=_number, parse_int=_integer, parse_constant=_constant
        )
    except UnicodeDecodeError as error:
        raise NotReadable(f"is not UTF-8 text (byte {error.start:,})") from None
    except json.JSONDecodeError as error:
        place = f"line {error.lineno:,}, column {error.colno:,}"
        raise NotReadable(f"is not JSON ({error.msg[:1].lower()}{error.msg[1:]}, {place})") from None
    except RecursionError:
        raise NotReadable(too_deep(DEEPEST)) from None
    except MemoryError:
        raise NotReadable("does not fit into memory") from None
    if not isinstance(value, dict):
        raise NotReadable("holds no JSON object")
    if depth_exceeds(value, DEEPEST):
        raise NotReadable(too_deep(DEEPEST))
    return Parsed(value, repeated)


def _number(text: str) -> float | Verbatim:
    """A float, if it stands for the very number."""
    number = float(text)
    if not math.isfinite(number):
        return Verbatim(text)
    try:
        return number if Decimal(repr(number)) == Decimal(text) else Verbatim(text)
    except InvalidOperation:
        return Verbatim(text)


def _integer(text: str) -> int | Verbatim:
    return int(text) if len(text) <= LONGEST_INTEGER else Verbatim(text)


def _constant(name: str) -> Any:
    raise NotReadable(f"is not JSON ({name} is no JSON value)")


def too_deep(most: int) -> str:
    """Says that a file has too many levels."""
    return f"is nested more than {most} levels deep"


def depth_exceeds(value: Any, most: int) -> bool:
    """Whether a value has more levels than that, counted level by level."""
    level: list[Any] = [value]
    for _ in range(most):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True


# -- writing ------------------------------------------------------------------------------------------------


def to_bytes(plain: Mapping[str, Any], *, by_item: Iterable[str] = ()) -> bytes:
    """The text of an object, one key a line; the lists at some keys have one item a line."""
    return to_text(plain, by_item=by_item).encode("utf-8")


def to_text(plain: Mapping[str, Any], *, by_item: Iterable[str] = (), sort_keys: bool = False) -> str:
    """The text of an object. It holds no control character, and can be written as UTF-8."""
    for ensure_ascii in (False, True):
        writer = _Writer(ensure_ascii, sort_keys)
        text = writer.text(plain, frozenset(by_item))
        if ensure_ascii or text.isascii() or _writable(text):
            return _HIDDEN.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
    raise AssertionError("ASCII can always be written")


def value_text(value: Any) -> str:
    """The text of any value, on one line."""
    return to_text({"value": value}).removeprefix('{\n "value": ').removesuffix("\n}\n")


class _Writer:
    def __init__(self, ensure_ascii: bool, sort_keys: bool) -> None:
        self._verbatim: list[str] = []
        self._mark = secrets.token_hex(16)
        self._sort_keys = sort_keys
        self._encode = json.JSONEncoder(
            ensure_ascii=ensure_ascii, sort_keys=sort_keys, allow_nan=False, default=self._other
        ).encode

    def text(self, plain: Mapping[str, Any], by_item: frozenset[str]) -> str:
        items = sorted(plain.items()) if self._sort_keys else plain.items()
        lines = []
        for key, value in items:
            if key in by_item and isinstance(value, list) and value:
                rows = ",\n".join(f"  {self._encode(item)}" for item in value)
                lines.append(f" {self._encode(key)}: [\n{rows}\n ]")
            else:
                lines.append(f" {self._encode(key)}: {self._encode(value)}")
        text = "{\n" + ",\n".join(lines) + "\n}\n" if lines else "{}\n"
        if self._verbatim:
            text = re.sub(f'"{self._mark}-([0-9]+)"', lambda match: self._verbatim[int(match[1])], text)
        return text

    def _other(self, value: Any) -> str:
        if not isinstance(value, Verbatim):
            raise TypeError(f"A {type(value).__name__} cannot stand in a session file.")
        self._verbatim.append(value.text)
        return f"{self._mark}-{len(self._verbatim) - 1}"


def _writable(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
