"""Plain values: what may stand in a journal, and how it is written.

A plain value is JSON: text, finite numbers, booleans, null, lists, and mappings with text keys. `to_plain`
turns what people hand us into a fresh plain value, so nothing in a journal is shared with a handler.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, date, datetime, time
from enum import Enum
from typing import Any

from detent.kernel.errors import InvalidValue, NestedTooDeeply

LONGEST_KEPT = 2000
"""Characters of a value that the journal keeps as they are; of a longer one it keeps the hash."""


def _encoder(*, sort_keys: bool = False) -> Callable[[Any], str]:
    """Compact JSON at the speed of the C encoder, built once instead of at every call."""
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return json.JSONEncoder(
            ensure_ascii=False, separators=(",", ":"), allow_nan=False, sort_keys=sort_keys
        ).encode

    def refuse(value: Any) -> Any:
        raise TypeError(f"A {type(value).__name__} is not a plain value.")

    chunks = make(None, refuse, json.encoder.encode_basestring, None, ":", ",", sort_keys, False, False)

    def encoded(value: Any) -> str:
        return "".join(chunks(value, 0))

    return encoded


_encode = _encoder()
_encode_ascii = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
_encode_sorted = _encoder(sort_keys=True)

_TEXTS = frozenset({str, bool, type(None)})
"""Types whose values are plain as they are."""
DEEPEST = 100
"""Levels a value may be nested: far below what would exhaust the stack of anything that reads it back."""
LARGEST = 10**4000
"""Integers are below this: Python reads and writes no decimal number of much more than 4,000 digits."""
_LEAST = -LARGEST


def to_plain(value: Any, path: str = "", depth: int = 0) -> Any:
    """A fresh plain copy of `value`. Raises `InvalidValue` that names the key path of what cannot be one."""
    kind = type(value)
    if kind in _TEXTS:
        return value
    if kind is int:
        if not _LEAST < value < LARGEST:
            raise InvalidValue(f"{_at(path)} is an integer of more than 4,000 digits. Keep it as text.")
        return value
    if kind is float:
        if not math.isfinite(value):
            raise InvalidValue(f"{_at(path)} is {value}, which JSON cannot hold.")
        return value
    if depth >= DEEPEST:
        place = _at(_cut(path))
        raise NestedTooDeeply(f"{place} is nested more than {DEEPEST} levels deep, or contains itself.")
    deeper = depth + 1
    if kind is dict:
        return {
            (key if type(key) is str else _key(key, path)): (
                item
                if (inner := type(item)) in _TEXTS or (inner is int and _LEAST < item < LARGEST)
                else to_plain(item, f"{path}.{key}" if path else str(key), deeper)
            )
            for key, item in value.items()
        }
    if kind is list or kind is tuple:
        return [
            item
            if (inner := type(item)) in _TEXTS or (inner is int and _LEAST < item < LARGEST)
            else to_plain(item, f"{path}[{index}]", deeper)
            for index, item in enumerate(value)
        ]
    return _convert(value, path, deeper)


def _convert(value: Any, path: str, depth: int) -> Any:
    """The kinds met less often: enums, paths, dates, dataclasses, models, views, numpy values, subclasses."""
    if isinstance(value, Enum):
        return to_plain(value.value, path, depth)
    if isinstance(value, datetime):  # which is a date, too
        at = value.astimezone(UTC) if value.tzinfo is not None else value
        return at.isoformat().replace("+00:00", "Z")
    if isinstance(value, date | time):
        return value.isoformat()
    if type(value).__module__ in ("decimal", "uuid"):  # looked up by name: most programs load neither
        return str(value)
    for method in ("__plain__", "tolist", "as_posix"):  # our views and references; numpy values; paths
        convert = getattr(value, method, None)
        if callable(convert) and not isinstance(value, type):
            return to_plain(convert(), path, depth)
    if is_dataclass(value) and not isinstance(value, type):
        return to_plain({field.name: getattr(value, field.name) for field in fields(value)}, path, depth)
    dump = getattr(value, "model_dump", None)
    if callable(dump) and not isinstance(value, type):
        return to_plain(dump(mode="json"), path, depth)
    if isinstance(value, Mapping):
        return to_plain(dict(value), path, depth)
    if isinstance(value, (list, tuple)):
        return to_plain(list(value), path, depth)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return to_plain(int(value), path, depth)
    if isinstance(value, float):
        return to_plain(float(value), path, depth)
    kind = type(value).__name__
    article = "an" if kind[0] in "aeiouAEIOU" else "a"
    raise InvalidValue(
        f"{_at(path)} is {article} {kind}, which cannot be kept in a journal. "
        f"Use text, numbers, booleans, lists, mappings, dataclasses, enums, dates or paths."
    )


def _key(key: Any, path: str) -> str:
    if isinstance(key, Enum) and isinstance(key.value, str):
        return key.value
    if isinstance(key, str):
        return str(key)
    raise InvalidValue(f"{_at(path)} has the key {_cut(repr(key))}, which is not text.")


def _at(path: str) -> str:
    return f"'{path}'" if path else "The value"


def _cut(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:79]}…"


def copied(value: Any) -> Any:
    """A copy of a value already known to be plain."""
    kind = type(value)
    if kind is dict:
        return {key: copied(item) for key, item in value.items()}
    if kind is list:
        return [copied(item) for item in value]
    return value


def encode(value: Any) -> str:
    """Compact JSON text of a plain value, writable as UTF-8 whatever the texts in it."""
    text = _encode(value)
    return text if text.isascii() or _writable(text) else _encode_ascii(value)


def writable(text: str) -> str:
    """`text`, with what UTF-8 cannot hold (half a surrogate pair, from badly decoded mail) spelled out."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def _writable(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def canonical(value: Any) -> str:
    """Compact JSON text with sorted keys: equal values give equal text."""
    return _encode_sorted(value)


def decode(text: str | bytes) -> Any:
    """The plain value a JSON text stands for."""
    return json.loads(text)


def digest(value: Any, length: int = 64) -> str:
    """SHA-256 of the canonical text of a plain value, in hex."""
    return text_digest(canonical(value), length)


def text_digest(text: str, length: int = 64) -> str:
    """SHA-256 of a text, in hex."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:length]


def pointer_to(parts: Iterable[str | int]) -> str:
    """The RFC 6901 pointer of a path of keys and indexes."""
    return "".join(f"/{pointer_part(part)}" for part in parts)


def pointer_part(part: str | int) -> str:
    """One part of a pointer, escaped."""
    return part.replace("~", "~0").replace("/", "~1") if isinstance(part, str) else str(part)


def brief(value: Any, private: bool = False, longest: int = LONGEST_KEPT) -> Any:
    """A plain value as the journal keeps it: itself when short and not private, else its hash and size."""
    text = encode(value)
    if not private and len(text) <= longest:
        return value
    return {"$hash": hashlib.sha256(text.encode()).hexdigest()[:16], "size": len(text)}
