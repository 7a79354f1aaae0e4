"""The arguments of a tool call: an object, or the text of what a model has written in its place."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from detent.kernel.errors import InvalidValue
from detent.kernel.plain import to_plain


def read_arguments(written: Any) -> dict[str, Any] | str:
    """Arguments as a model gives them: JSON text, or already an object. Nothing at all stands for none.

    What is no object, or holds what no journal can keep (NaN, too many levels), is given as text.
    """
    value = written
    if isinstance(written, str):
        if not written.strip():
            return {}
        try:
            value = json.loads(written)
        except (ValueError, RecursionError):
            return written
    elif written is None:
        return {}
    if isinstance(value, Mapping):
        try:
            plain: dict[str, Any] = to_plain(value)
            return plain
        except (InvalidValue, RecursionError):
            pass
    return written if isinstance(written, str) else as_text(written)


def as_text(value: Any) -> str:
    """A JSON value as text; one nested too deeply to be written only as its kind."""
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return f"({type(value).__name__})"
