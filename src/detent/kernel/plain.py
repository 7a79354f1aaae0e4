"""Plain values: what may stand in a journal, and how it is written.

A plain value is JSON: text, finite numbers, booleans, null, lists, and mappings with text keys. `to_plain`
turns what people hand us into a fresh plain value, so nothing in a journal is shared with a handler.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, date, datetime, time
from enum import Enum
from pathlib import PurePath
from typing import Any


def _encoder() -> Callable[[Any], str]:
    """Compact JSON at the speed of the C encoder, built once instead of at every call."""
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode

    def refuse(value: Any) -> Any:
        raise TypeError(f"A {type(value).__name__} is no plain value.")

    chunks = make(None, refuse, json.encoder.encode_basestring, None, ":", ",", False, False, False)

    def encoded(value: Any) -> str:
        return "".join(chunks(value, 0))

    return encoded


_encode = _encoder()
_encode_ascii = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
_encode_sorted = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":"), allow_nan=False, sort_keys=True
).encode

_SCALARS = frozenset({str, int, bool, type(None)})


def to_plain(value: Any, path: str = "") -> Any:
    """A fresh plain copy of `value`; TypeError or ValueError names the key path of what cannot be one."""
    kind = type(value)
    if kind in _SCALARS:
        return value
    if kind is float:
        if not math.isfinite(value):
            raise ValueError(f"{_at(path)} is {value}, which JSON cannot hold.")
        return value
    if kind is dict:
        return {
            (key if type(key) is str else _key(key, path)): (
                item if type(item) in _SCALARS else to_plain(item, f"{path}.{key}" if path else str(key))
            )
            for key, item in value.items()
        }
    if kind is list or kind is tuple:
        return [
            item if type(item) in _SCALARS else to_plain(item, f"{path}[{index}]")
            for index, item in enumerate(value)
        ]
    return _convert(value, path)


def _convert(value: Any, path: str) -> Any:
    """The kinds met less often: enums, paths, dates, dataclasses, models, views, numpy values, subclasses."""
    if isinstance(value, Enum):
        return to_plain(value.value, path)
    if isinstance(value, PurePath):
        return value.as_posix()
    if isinstance(value, datetime):  # which is a date, too
        at = value.astimezone(UTC) if value.tzinfo is not None else value
        return at.isoformat().replace("+00:00", "Z")
    if isinstance(value, date | time):
        return value.isoformat()
    if type(value).__module__ in ("decimal", "uuid"):  # looked up by name: most programs load neither
        return str(value)
    for method in ("__plain__", "tolist"):  # our own views and references; numpy scalars and arrays
        convert = getattr(value, method, None)
        if callable(convert) and not isinstance(value, type):
            return to_plain(convert(), path)
    if is_dataclass(value) and not isinstance(value, type):
        return to_plain({field.name: getattr(value, field.name) for field in fields(value)}, path)
    dump = getattr(value, "model_dump", None)
    if callable(dump) and not isinstance(value, type):
        return to_plain(dump(mode="json"), path)
    if isinstance(value, Mapping):
        return to_plain(dict(value), path)
    if isinstance(value, (list, tuple)):
        return to_plain(list(value), path)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return to_plain(float(value), path)
    kind = type(value).__name__
    article = "an" if kind[0] in "aeiouAEIOU" else "a"
    raise TypeError(
        f"{_at(path)} is {article} {kind}, which cannot be kept in a journal. "
        f"Use text, numbers, booleans, lists, mappings, dataclasses, enums, dates or paths."
    )


def _key(key: Any, path: str) -> str:
    if isinstance(key, Enum) and isinstance(key.value, str):
        return key.value
    if isinstance(key, str):
        return str(key)
    raise TypeError(f"{_at(path)} has the key {key!r}, which is not text.")


def _at(path: str) -> str:
    return f"'{path}'" if path else "The value"


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
    return hashlib.sha256(canonical(value).encode("utf-8", "surrogatepass")).hexdigest()[:length]
