"""Rules for the values of a column: they are read, and applied to values."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

from detent.kernel.errors import nearest
from detent.kernel.plain import canonical

_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]{1,3})?")

RULES = ("required", "type", "min", "max", "pattern", "enum", "unique")


def _is_date(value: Any) -> bool:
    return isinstance(value, str) and len(value) == 10 and _parsed(date.fromisoformat, value)


def _is_datetime(value: Any) -> bool:
    return isinstance(value, str) and len(value) > 10 and _parsed(datetime.fromisoformat, value)


def _parsed(read: Callable[[str], Any], value: str) -> bool:
    try:
        read(value)
    except ValueError:
        return False
    return True


TYPES: Mapping[str, Callable[[Any], bool]] = {
    "text": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "date": _is_date,
    "datetime": _is_datetime,
}


def _number(text: str) -> Any:
    """The number that a text denotes, or the text."""
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _DECIMAL.fullmatch(text) and math.isfinite(float(text)) else text


READ: Mapping[str, Callable[[str], Any]] = {
    "integer": lambda text: int(text) if _INTEGER.fullmatch(text) else text,
    "number": _number,
    "boolean": lambda text: {"true": True, "false": False}.get(text.lower(), text),
}
"""How texts are read, by the type in their rule."""


@dataclass(slots=True)
class Rule:
    """The rules of one column."""

    column: str
    required: bool = False
    type: str | None = None
    min: Any = None
    max: Any = None
    pattern: str | None = None
    enum: list[Any] | None = None
    unique: bool = False
    _seen: set[str] = field(default_factory=set)

    def read(self, value: Any) -> Any:
        """Return a value as the rule's type; a bad cell makes a whole column of numbers texts."""
        if self.type == "text":
            return value if isinstance(value, str) or value is None else json.dumps(value)
        reader = READ.get(self.type or "")
        if reader is None or not isinstance(value, str) or not value.strip():
            return value
        return reader(value.strip())

    def problem(self, value: Any, fits: bool = True) -> str | None:
        """Return what is wrong with a value, without the value; None if nothing is."""
        if value is None or value == "":
            return "is missing" if self.required else None
        if self.type is not None and not TYPES[self.type](value):
            return f"is no {self.type}"
        if (problem := self._out_of_bounds(value)) is not None:
            return problem
        if not fits:
            return "does not fit the pattern"
        if self.enum is not None and not any(_same(value, allowed) for allowed in self.enum):
            return "is none of the values allowed"
        if self.unique:
            name = canonical(value)
            if name in self._seen:
                return "is there twice"
            self._seen.add(name)
        return None

    def _out_of_bounds(self, value: Any) -> str | None:
        for bound, name, sign in ((self.min, "min", 1), (self.max, "max", -1)):
            if bound is None:
                continue
            measured = value
            if isinstance(value, str) and not isinstance(bound, str):
                measured = len(value)
            if isinstance(measured, bool) or isinstance(measured, str) != isinstance(bound, str):
                return f"cannot be compared with {name}"
            if isinstance(measured, float) and math.isnan(measured):
                return f"cannot be compared with {name}"
            if (measured < bound) if sign > 0 else (measured > bound):
                return f"is {'below' if sign > 0 else 'above'} {name}"
        return None


def _same(left: Any, right: Any) -> bool:
    return type(left) is type(right) and left == right


def read_rules(written: Any, columns: Sequence[str]) -> list[Rule]:
    """Read rules as written in a workflow file.

    Raises:
        ValueError: some rules are wrong; the message lists all problems.
    """
    if not isinstance(written, Mapping):
        raise ValueError("`rules` maps columns to rules.")
    problems: list[str] = []
    read: list[Rule] = []
    for column, entry in written.items():
        rules = {"type": entry} if isinstance(entry, str) else entry
        if column not in columns:
            problems.append(f"there is no column '{column}'{_suggestion(str(column), columns)}")
        if not isinstance(rules, Mapping):
            problems.append(f"'{column}': rules are a mapping or the name of a type")
            continue
        unknown = [name for name in rules if name not in RULES]
        problems += [
            f"'{column}': there is no rule '{name}'{_suggestion(str(name), RULES)}" for name in unknown
        ]
        kind = rules.get("type")
        if kind is not None and kind not in TYPES:
            problems.append(f"'{column}': there is no type '{kind}'{_suggestion(str(kind), TYPES)}")
        problems += [f"'{column}': {wrong}" for wrong in _misfits(rules)]
        if not problems:
            read.append(Rule(str(column), **rules))
    if problems:
        raise ValueError(f"The rules cannot be used: {'; '.join(problems)}.")
    return read


def _misfits(rules: Mapping[str, Any]) -> list[str]:
    wrong = [
        f"{name} is true or false"
        for name in ("required", "unique")
        if not isinstance(rules.get(name, True), bool)
    ]
    for name in ("min", "max"):
        bound = rules.get(name)
        if isinstance(bound, bool) or not isinstance(bound, int | float | str | None):
            wrong.append(f"{name} is a number or a date")
    if not isinstance(rules.get("pattern"), str | None):
        wrong.append("pattern is a text")
    if not isinstance(rules.get("enum"), list | None):
        wrong.append("enum is a list")
    return wrong


def _suggestion(name: str, names: Any) -> str:
    hint = nearest(name, list(names)).strip()
    return f" ({hint[0].lower()}{hint[1:]})" if hint else ""
