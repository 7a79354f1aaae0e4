"""Values in expressions: their kinds, their readable parts, equality, order and text.

Everything depends on the type of a value. No attribute of an object is looked up, except the stored fields of
a dataclass, which are read without calling its properties or `__getattribute__`.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Mapping
from dataclasses import fields
from types import MemberDescriptorType
from typing import Any, Literal

from detent.flows.workflow.expressions.errors import EvaluationError
from detent.kernel.plain import encode
from detent.kernel.view import ListView

Kind = Literal["null", "boolean", "number", "text", "list", "mapping", "record", "object"]
"""A `record` is a dataclass; of an `object` nothing can be read."""

ABSENT: Any = object()
"""Result of reading a missing value."""

_KINDS: dict[type, Kind] = {
    type(None): "null", bool: "boolean", int: "number", float: "number", str: "text", list: "list",
    tuple: "list", dict: "mapping",
}  # fmt: skip
_SCALARS = frozenset({str, bool, int, float, type(None)})
_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def kind_of(value: Any) -> Kind:
    """Return the kind of a value."""
    kind = type(value)
    return _KINDS.get(kind) or _kind(kind)


def _kind(kind: type) -> Kind:
    # By issubclass: isinstance would read the __class__ of the value.
    if issubclass(kind, str):
        return "text"
    if issubclass(kind, int | float):
        return "number"
    if issubclass(kind, list | tuple | ListView):
        return "list"
    if issubclass(kind, Mapping):
        return "mapping"
    known = inspect.getattr_static(kind, "__dataclass_fields__", None)
    return "record" if type(known) is dict else "object"


def described(value: Any) -> str:
    """Return the kind of a value for a message, such as `a number`, without the value."""
    kind = kind_of(value)
    return {"null": "null", "boolean": "a boolean", "object": f"a value of type {type(value).__name__}"}.get(
        kind, f"a {kind}"
    )


def field_names(kind: type) -> tuple[str, ...]:
    """Return the names of the readable fields of a dataclass."""
    return tuple(member.name for member in fields(kind) if not member.name.startswith("_"))


def field_of(record: Any, name: str) -> Any:
    """Return the stored value of a dataclass's field, or `ABSENT`, without running code of the class."""
    if name not in field_names(type(record)):
        return ABSENT
    stored = inspect.getattr_static(record, name, ABSENT)
    if type(stored) is MemberDescriptorType:  # a slot
        try:
            return stored.__get__(record)
        except AttributeError:
            return ABSENT
    return ABSENT if hasattr(type(stored), "__get__") else stored


def names_in(value: Any) -> tuple[str, ...]:
    """Return the readable names of a mapping or a record, in order."""
    if kind_of(value) == "record":
        return field_names(type(value))
    return tuple(sorted(key for key in value if isinstance(key, str) and not key.startswith("_")))


def true(value: Any) -> bool:
    """Return the truth of a value, as in Python; records and objects are true."""
    return bool(value) if kind_of(value) not in ("record", "object") else True


def same(left: Any, right: Any) -> bool:
    """Return whether values are equal; values of different kinds differ at any depth: 1 is not true."""
    kind = type(left)
    if kind is type(right) and kind in _SCALARS:
        return bool(left == right)
    known = kind_of(left)
    if known != kind_of(right):
        return False
    if known == "text":
        return str.__eq__(left, right)
    if known == "list":
        return len(left) == len(right) and all(map(same, left, right))
    if known == "mapping":
        return len(left) == len(right) and all(
            (other := right.get(key, ABSENT)) is not ABSENT and same(item, other)
            for key, item in left.items()
        )
    if known == "record":
        return kind is type(right) and all(
            same(field_of(left, name), field_of(right, name)) for name in field_names(kind)
        )
    if known == "object":
        return left is right
    return bool(left == right)


def ordered(sign: str, left: Any, right: Any, position: int) -> bool:
    """Compare two numbers, texts, booleans or lists with `<`, `<=`, `>` or `>=`."""
    kind = kind_of(left)
    if kind != kind_of(right):
        raise EvaluationError(f"'{sign}' cannot compare {described(left)} with {described(right)}.", position)
    if kind in ("number", "text", "boolean"):
        return _ORDERS[sign](left, right)
    if kind != "list":
        raise EvaluationError(
            f"'{sign}' cannot compare {described(left)} with another: they have no order.", position
        )
    for first, second in zip(left, right, strict=False):
        if not same(first, second):
            return ordered(sign, first, second, position)
    return _ORDERS[sign](len(left), len(right))


def contains(inside: Any, member: Any, position: int) -> bool:
    """Evaluate `member in inside`: an item of a list, a key of a mapping or a part of a text."""
    kind = kind_of(inside)
    if kind == "list":
        return any(same(member, item) for item in inside)
    if kind == "mapping":
        if type(member) is str:
            return member in inside
        return any(same(member, key) for key in inside)
    if kind == "text":
        if kind_of(member) != "text":
            raise EvaluationError(f"'in' looks for a text in a text, not for {described(member)}.", position)
        return str.__contains__(inside, member)
    raise EvaluationError(
        f"'in' looks into a list, a mapping or a text, not into {described(inside)}.", position
    )


def as_json(value: Any, position: int) -> str:
    """Return a value as compact JSON text, a record as its fields."""
    try:
        try:
            return encode(value)
        except TypeError:
            return encode(_plain(value, position))
    except (TypeError, ValueError):
        raise EvaluationError(
            "The value cannot be written as JSON: it holds a number or a key that JSON has no words for.",
            position,
        ) from None
    except RecursionError:
        raise EvaluationError("The value is nested too deeply to be written as JSON.", position) from None


def as_text(value: Any, position: int) -> str:
    """Return a value for insertion into a text: null is empty, a text stays, anything else is JSON."""
    kind = type(value)
    if kind is str:
        return value  # type: ignore[no-any-return]
    if value is None:
        return ""
    return str.__str__(value) if issubclass(kind, str) else as_json(value, position)


def _plain(value: Any, position: int) -> Any:
    """The value with views, records and mappings as lists and dicts; an error for other objects."""
    kind = kind_of(value)
    if kind == "list":
        return [_plain(item, position) for item in value]
    if kind == "mapping":
        return {key: _plain(item, position) for key, item in value.items()}
    if kind == "record":
        stored = {name: field_of(value, name) for name in field_names(type(value))}
        return {name: _plain(item, position) for name, item in stored.items() if item is not ABSENT}
    if kind == "object":
        raise EvaluationError(
            f"The value holds {described(value)}, which cannot be written as text.", position
        )
    return value
