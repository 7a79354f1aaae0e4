"""When two outcomes count as equal, and where they differ.

Both sides are reduced to canonical values first, so that a dataclass can be compared with the mapping an
agent wrote for it. A discrepancy names a place and a kind of difference, never the values.
"""

from __future__ import annotations

import json
import math
import re
from base64 import b64encode
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import cache
from itertools import islice
from pathlib import PurePath
from typing import Any, Literal, TypeAlias, get_args
from uuid import UUID

from detent.dispatch.schema_places import SchemasAt, path_of
from detent.kernel.errors import ConfigurationError, nearest
from detent.kernel.plain import pointer_part

Kind: TypeAlias = Literal["type", "value", "missing", "extra", "length"]
TextRule: TypeAlias = Literal["exact", "whitespace"]

MOST_KEPT = 50
"""Discrepancies kept per comparison; further ones are only counted."""


@dataclass(frozen=True, slots=True)
class Discrepancy:
    """One place where the right side departs from the left."""

    pointer: str
    """RFC 6901; the whole value is the empty text."""
    kind: Kind
    """`missing`: only the left has it; `extra`: only the right."""

    def to_plain(self) -> dict[str, Any]:
        """As plain values."""
        return {"pointer": self.pointer, "kind": self.kind}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Discrepancy:
        """Read back what `to_plain` wrote."""
        return cls(plain["pointer"], plain["kind"])


@dataclass(frozen=True, slots=True)
class CompareRules:
    """What may differ between two values that count as equal. Lists become tuples."""

    ignore: Sequence[str] = ()
    """Pointers to places left out on both sides, with all below them; `*` stands for any key or index."""
    unordered: Sequence[str] = ()
    """Pointers to lists whose order means nothing; the empty pointer is the whole value.

    Inside such a list positions mean nothing either: other pointers reach into it with `*` only.
    """
    float_rel_tol: float = 0.0
    """Largest relative difference between two floats that count as equal."""
    text: TextRule = "exact"
    """`whitespace`: runs of whitespace count as one space; leading and trailing whitespace is ignored."""
    harmless: Sequence[str] = ()
    """Pointers to places that rightly vary: no error is planted there when the power of the check is
    measured, and the report lists them. A place that is ignored only is still planted with errors."""

    def __post_init__(self) -> None:
        for name in ("ignore", "unordered", "harmless"):
            object.__setattr__(self, name, _pointers(name, getattr(self, name)))
        tolerance = self.float_rel_tol
        if isinstance(tolerance, bool) or not isinstance(tolerance, (int, float)):
            raise ConfigurationError(f"Compare rule float_rel_tol takes a number, not {_a(tolerance)}.")
        if not (math.isfinite(tolerance) and tolerance >= 0):
            raise ConfigurationError(f"Compare rule float_rel_tol is {tolerance}; it takes 0 or more.")
        rules = get_args(TextRule)
        if self.text not in rules:
            raise ConfigurationError(
                f"Compare rule text is {self.text!r}; it takes {' or '.join(rules)}."
                f"{nearest(str(self.text), rules)}"
            )


def _pointers(name: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, (str, Mapping)) or not isinstance(value, Iterable):
        raise ConfigurationError(f"Compare rule {name} takes a list of pointers, not {_a(value)}.")
    pointers = tuple(value)
    for pointer in pointers:
        if not isinstance(pointer, str):
            raise ConfigurationError(f"Compare rule {name} holds {_a(pointer)}; it takes pointers.")
        if not pointer.startswith("/") and (pointer or name != "unordered"):
            raise ConfigurationError(
                f"Compare rule {name} holds '{pointer}'; a pointer begins with a slash: '/{pointer}'."
            )
        if re.search("~(?![01])", pointer):
            raise ConfigurationError(
                f"Compare rule {name} holds '{pointer}'; in a pointer the '~' of a key is written '~0', "
                f"its '/' is written '~1'."
            )
    return pointers


def _a(value: Any) -> str:
    return "null" if value is None else f"a {type(value).__name__}"


EXACT = CompareRules()
"""Rules under which nothing may differ."""


# -- canonical values ---------------------------------------------------------------------------------------

_AS_IT_IS = frozenset({str, int, bool, float, type(None)})
_as_text = json.JSONEncoder(separators=(",", ":"), sort_keys=True).encode
"""Unlike `plain.canonical`, it writes NaN and infinities: they are compared although journals reject them."""


def canonical_value(value: Any, pointer: str = "") -> Any:
    """`value` as strings, numbers, booleans, nulls, lists and mappings with string keys.

    Raises:
        TypeError: a part of the value cannot be converted; the message names its place.
    """
    kind = type(value)
    if kind in _AS_IT_IS:
        return value
    if kind is dict:
        return {
            (name := _key(key, pointer)): (
                item if type(item) in _AS_IT_IS else canonical_value(item, f"{pointer}/{pointer_part(name)}")
            )
            for key, item in value.items()
        }
    if kind is list or kind is tuple:
        return [
            item if type(item) in _AS_IT_IS else canonical_value(item, f"{pointer}/{index}")
            for index, item in enumerate(value)
        ]
    return _reduced(value, pointer)


def _reduced(value: Any, pointer: str) -> Any:
    """The canonical form of rarer types: those journals accept, in the same order, and some they do not."""
    if isinstance(value, type):
        raise TypeError(f"{_at(pointer)} is a class, not a value.")
    if isinstance(value, Enum):
        return canonical_value(value.value, pointer)
    if (text := _as_written(value)) is not None:
        return text
    for method in ("__plain__", "tolist"):  # our own views and references; numpy scalars and arrays
        if callable(convert := getattr(value, method, None)):
            return canonical_value(convert(), pointer)
    if is_dataclass(value):
        return canonical_value({part.name: getattr(value, part.name) for part in fields(value)}, pointer)
    if callable(dump := getattr(value, "model_dump", None)):
        try:
            return canonical_value(dump(), pointer)
        except TypeError:  # a field of a kind only the model knows how to write
            return canonical_value(dump(mode="json"), pointer)
    if isinstance(value, Mapping):
        return canonical_value(dict(value), pointer)
    if isinstance(value, AbstractSet):
        return sorted((canonical_value(item, f"{pointer}/*") for item in value), key=_as_text)
    if isinstance(value, (list, tuple)):
        return canonical_value(list(value), pointer)
    for plain in (str, int, float):
        if isinstance(value, plain):
            return plain.__str__(value) if plain is str else plain(value)
    raise TypeError(
        f"{_at(pointer)} is a {type(value).__name__}, which cannot be compared. Use text, numbers, booleans, "
        f"lists, sets, mappings, dataclasses, models, enums, paths, dates, bytes or decimals."
    )


def _as_written(value: Any) -> str | None:
    """The text form of a path, date, byte string, decimal, UUID or duration; None for other types."""
    if isinstance(value, PurePath):
        return value.as_posix()
    if isinstance(value, datetime):
        return (value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)).isoformat()
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return b64encode(value).decode("ascii")
    return str(value) if isinstance(value, (Decimal, UUID, timedelta)) else None


def _key(key: Any, pointer: str) -> str:
    if type(key) is str:
        return key
    if isinstance(key, Enum) and isinstance(key.value, str):
        return key.value
    if isinstance(key, str):
        return str.__str__(key)
    raise TypeError(f"{_at(pointer)} has a key that is {_a(key)}; keys are text.")


def _at(pointer: str) -> str:
    return f"'{pointer}'" if pointer else "The value"


# -- comparing ----------------------------------------------------------------------------------------------


def differences(
    left: Any,
    right: Any,
    rules: CompareRules = EXACT,
    *,
    schema: Mapping[str, Any] | None = None,
    limit: int = MOST_KEPT,
) -> tuple[tuple[Discrepancy, ...], int]:
    """Places where `right` differs from `left`, at most `limit` in a stable order, and their total number.

    1 equals 1.0 where the JSON Schema `schema` has type number.
    """
    discrepancies = _differing(canonical_value(left), canonical_value(right), _Place.top(rules, schema))
    kept = tuple(islice(discrepancies, limit))
    return kept, len(kept) + sum(1 for _ in discrepancies)


def equal(
    left: Any, right: Any, rules: CompareRules = EXACT, schema: Mapping[str, Any] | None = None
) -> bool:
    """Whether nothing differs."""
    discrepancies = _differing(canonical_value(left), canonical_value(right), _Place.top(rules, schema))
    return next(discrepancies, None) is None


Patterns: TypeAlias = tuple[tuple[str, ...], ...]
"""Pointers of rules, relative to a place."""


@dataclass(frozen=True, slots=True)
class _Place:
    """The current place of a comparison: its pointer, and the rules for it and the places below it."""

    pointer: str
    rules: CompareRules
    ignored: Patterns
    unordered: Patterns
    schemas: SchemasAt

    @classmethod
    def top(cls, rules: CompareRules, schema: Mapping[str, Any] | None) -> _Place:
        schemas = SchemasAt.top(schema)
        ignored, unordered = (tuple(map(path_of, rule)) for rule in (rules.ignore, rules.unordered))
        return cls("", rules, ignored, unordered, schemas)

    def under(self, part: str | int) -> _Place:
        """The place of a key or index below."""
        return _Place(
            f"{self.pointer}/{pointer_part(part)}",
            self.rules,
            _below(self.ignored, str(part)),
            _below(self.unordered, str(part)),
            self.schemas.under(part),
        )

    @property
    def anywhere(self) -> _Place:
        """The place of any item of an unordered list."""
        return _Place(
            f"{self.pointer}/*",
            self.rules,
            _below(self.ignored, "*"),
            _below(self.unordered, "*"),
            self.schemas.items(),
        )

    def leaves_out(self, part: str | int) -> bool:
        return bool(self.ignored) and () in _below(self.ignored, str(part))


def _below(patterns: Patterns, part: str) -> Patterns:
    return tuple(path[1:] for path in patterns if path and path[0] in (part, "*")) if patterns else patterns


def _differing(left: Any, right: Any, place: _Place) -> Iterator[Discrepancy]:
    """The differences between two canonical values, computed lazily."""
    if type(left) is not type(right):
        if not (_is_number(left) and _is_number(right) and place.schemas.say_number):
            yield Discrepancy(place.pointer, "type")
        elif not _same_number(left, right, place.rules.float_rel_tol):
            yield Discrepancy(place.pointer, "value")
    elif type(left) is dict:
        yield from _mappings(left, right, place)
    elif type(left) is list:
        yield from (_multisets if () in place.unordered else _lists)(left, right, place)
    elif not _same_scalar(left, right, place.rules):
        yield Discrepancy(place.pointer, "value")


def _mappings(left: dict[str, Any], right: dict[str, Any], place: _Place) -> Iterator[Discrepancy]:
    for key in sorted(left.keys() | right.keys()):
        if place.leaves_out(key):
            continue
        if key not in right:
            yield Discrepancy(f"{place.pointer}/{pointer_part(key)}", "missing")
        elif key not in left:
            yield Discrepancy(f"{place.pointer}/{pointer_part(key)}", "extra")
        else:
            yield from _differing(left[key], right[key], place.under(key))


def _lists(left: list[Any], right: list[Any], place: _Place) -> Iterator[Discrepancy]:
    """Lists of different lengths share no positions, so only the length is reported."""
    both = range(min(len(left), len(right)))
    rest = range(len(both), max(len(left), len(right)))
    if not all(place.leaves_out(index) for index in rest):
        yield Discrepancy(place.pointer, "length")
        return
    for index in both:
        if not place.leaves_out(index):
            yield from _differing(left[index], right[index], place.under(index))


def _multisets(left: list[Any], right: list[Any], place: _Place) -> Iterator[Discrepancy]:
    """Items of either list without an equal in the other, in the order of their list."""
    if place.leaves_out("*"):
        return
    partner = _pairs(left, right, place.anywhere)
    for index in range(len(left)):
        if index not in partner:
            yield Discrepancy(f"{place.pointer}/{index}", "missing")
    paired = set(partner.values())
    for index in range(len(right)):
        if index not in paired:
            yield Discrepancy(f"{place.pointer}/{index}", "extra")


def _pairs(left: list[Any], right: list[Any], place: _Place) -> dict[int, int]:
    """A maximum set of pairs of equal items: left index to right index."""
    waiting: dict[str, deque[int]] = defaultdict(deque)
    for index, item in enumerate(right):
        waiting[_normal(item, place)].append(index)
    pairs: dict[int, int] = {}
    for index, item in enumerate(left):
        if candidates := waiting.get(_normal(item, place)):
            pairs[index] = candidates.popleft()
    if place.rules.float_rel_tol and len(pairs) < min(len(left), len(right)):
        _more_pairs(pairs, left, right, place)
    return pairs


def _more_pairs(pairs: dict[int, int], left: list[Any], right: list[Any], place: _Place) -> None:
    """Pair further items that are equal within the tolerance.

    Equality within a tolerance is not transitive, so an item may have to give up its partner to another.
    """
    alike: dict[str, list[int]] = defaultdict(list)
    for index, item in enumerate(right):
        alike[_normal(item, place, numbers=False)].append(index)
    owner = {there: here for here, there in pairs.items()}

    @cache
    def partners(here: int) -> list[int]:
        candidates = alike.get(_normal(left[here], place, numbers=False), ())
        return [near for near in candidates if next(_differing(left[here], right[near], place), None) is None]

    def settle(start: int) -> None:
        """Find a partner for `start`, along the shortest chain of items that can change partners."""
        came_from: dict[int, int] = {}
        queue = deque([start])
        while queue:
            here = queue.popleft()
            for there in partners(here):
                if there in came_from:
                    continue
                came_from[there] = here
                if there in owner:
                    queue.append(owner[there])
                    continue
                step: int | None = there
                while step is not None:
                    mover = came_from[step]
                    left_behind = pairs.get(mover)
                    pairs[mover], owner[step] = step, mover
                    step = left_behind
                return

    for index in range(len(left)):
        if index not in pairs:
            settle(index)


def _normal(value: Any, place: _Place, numbers: bool = True) -> str:
    """A text that is the same for values equal under the rules, ignoring the tolerance.

    Without `numbers` it is also the same for values that differ only in their numbers.
    """
    if type(value) is dict:
        parts = [
            f"{_as_text(key)}:{_normal(value[key], place.under(key), numbers)}"
            for key in sorted(value)
            if not place.leaves_out(key)
        ]
        return f"{{{','.join(parts)}}}"
    if type(value) is list:
        if () in place.unordered:
            items = [] if place.leaves_out("*") else value
            return f"<{','.join(sorted(_normal(item, place.anywhere, numbers) for item in items))}>"
        parts = [
            _normal(item, place.under(index), numbers)
            for index, item in enumerate(value)
            if not place.leaves_out(index)
        ]
        return f"[{','.join(parts)}]"
    if _is_number(value):
        if not numbers:
            return "#"
        if type(value) is float and (value == 0 or (place.schemas.say_number and value.is_integer())):
            return _as_text(int(value) if place.schemas.say_number else 0.0)
    elif type(value) is str and place.rules.text == "whitespace":
        return _as_text(" ".join(value.split()))
    return _as_text(value)


def _is_number(value: Any) -> bool:
    return type(value) is int or type(value) is float


def _same_number(left: float, right: float, tolerance: float) -> bool:
    if left == right or (left != left and right != right):  # NaN is NaN
        return True
    if not tolerance:
        return False
    try:
        return math.isclose(left, right, rel_tol=tolerance)
    except OverflowError:  # an integer beyond the range of floats
        return False


def _same_scalar(left: Any, right: Any, rules: CompareRules) -> bool:
    if type(left) is float:
        return _same_number(left, right, rules.float_rel_tol)
    if type(left) is str and rules.text == "whitespace":
        return bool(left.split() == right.split())
    return bool(left == right)
