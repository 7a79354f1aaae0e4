"""Writes values with receipts in them: stand-ins for what is known only after an effect is performed.

Only a `Receipt` object, or a `Text` with some in it, becomes a stand-in. Data that merely looks like one,
from a customer's letter or a tool's answer, is written down as a literal and comes back as the data it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from detent.engine.outcome import Receipt, Text
from detent.kernel.placeholders import LITERAL, MARKS
from detent.kernel.plain import DEEPEST, to_plain

_LEAVES = frozenset({str, int, float, bool, type(None)})
"""Types whose values hold no stand-ins."""


def written(value: Any, path: str = "", depth: int = 0) -> Any:
    """A value as a proposal holds it: plain, stand-ins as such, their look-alikes as literals."""
    if type(value) in _LEAVES:
        return to_plain(value, path)
    if depth > DEEPEST:
        return to_plain(value, path, depth)  # which refuses it
    deeper = depth + 1
    if isinstance(value, Receipt | Text):
        return value.__plain__()
    if is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Mapping):
        inside = {
            key: written(item, f"{path}.{key}" if path else str(key), deeper) for key, item in value.items()
        }
        plain: dict[str, Any] = to_plain(inside, path)
        return {LITERAL: plain} if not MARKS.isdisjoint(plain) else plain
    if isinstance(value, list | tuple):
        return [written(item, f"{path}[{index}]", deeper) for index, item in enumerate(value)]
    return to_plain(value, path)
