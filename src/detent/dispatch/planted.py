"""Planted errors: wrong answers made from real ones, by sort.

Pure. Mutations follow the answer, its schema and its effects, never the check: a place that the step's
compare rules ignore is mutated like any other, unless the rules declare it harmless.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from enum import Enum
from typing import Any

from detent.dispatch.schema_places import SchemasAt, path_of
from detent.kernel.plain import canonical, pointer_part

LABELS = "labels"
"""Keyword of the schema of an object that gives each of several things a label."""


class Sort(str, Enum):
    """A sort of planted error."""

    ANOTHER_VALUE = "another value"
    """A value of the same place, from another real visit."""
    ANOTHER_CHOICE = "another choice"
    """Another of the values that the schema lists."""
    ANOTHER_LABEL = "another label"
    """Another label for something that code found."""
    NEAR_MISS = "near miss"
    """Two digits swapped, day and month swapped, one more or less, a yes for a no."""
    EXCHANGED = "values exchanged"
    """Two values of the same type in each other's place: another candidate labelled as the serial number."""
    ANOTHER_MOVE = "another move"
    EFFECT_MISSING = "effect missing"
    EFFECT_ADDED = "effect added"
    EFFECT_ARGUMENT = "effect argument"
    EFFECT_ORDER = "effect order"
    FACT_LEFT_OUT = "fact left out"
    CLAIM_ADDED = "claim added"


@dataclass(frozen=True, slots=True)
class PlainEffect:
    """An effect as plain values."""

    tool: str
    args: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PlainAnswer:
    """An answer as canonical values."""

    output: Any
    next_state: str | None = None
    effects: tuple[PlainEffect, ...] = ()

    @property
    def text(self) -> str:
        """The same for equal answers only."""
        effects = [[effect.tool, dict(effect.args)] for effect in self.effects]
        return canonical([self.output, self.next_state, effects])


@dataclass(frozen=True, slots=True)
class Plant:
    """A wrong answer."""

    sort: Sort
    place: str
    """Pointer to what is wrong."""
    answer: PlainAnswer


def plants(
    answer: PlainAnswer,
    *,
    schema: Mapping[str, Any] | None,
    moves: Sequence[str],
    others: Sequence[PlainAnswer],
    harmless: Sequence[str] = (),
) -> Iterator[Plant]:
    """Every wrong answer that can be made from a real one and the answers of `others`, other real visits.

    `moves` are the next states that an answer may name. Mutants that are equal to the answer are left in: the
    caller, who knows what counts as equal, drops and counts them.
    """
    allowed = [path_of(pointer) for pointer in harmless]

    def harms(place: str) -> bool:
        path = path_of(place)
        return not any(_covers(pattern, path) for pattern in allowed)

    places = SchemasAt.top(schema)
    for plant in (
        *_values(answer, others, places),
        *_exchanged(answer),
        *_shape(answer, others, schema),
        *(
            Plant(Sort.ANOTHER_MOVE, "/next_state", replace(answer, next_state=move))
            for move in moves
            if answer.next_state is not None and move != answer.next_state
        ),
        *_effects(answer, others),
    ):
        if harms(plant.place.removeprefix("/output") if plant.place.startswith("/output/") else plant.place):
            yield plant


def _covers(pattern: Sequence[str], path: Sequence[str]) -> bool:
    """Whether a harmless pointer means this place or one above it."""
    return len(pattern) <= len(path) and all(
        part in ("*", own) for part, own in zip(pattern, path, strict=False)
    )


# -- values -------------------------------------------------------------------------------------------------


def _values(answer: PlainAnswer, others: Sequence[PlainAnswer], schemas: SchemasAt) -> Iterator[Plant]:
    for path, value in leaves(answer.output):
        place = _place(path)
        for sort, wrong in _wrong_values(path, value, [other.output for other in others], schemas):
            yield Plant(sort, place, replace(answer, output=_with(answer.output, path, wrong)))


def _exchanged(answer: PlainAnswer) -> Iterator[Plant]:
    """Two scalars of one mapping in each other's place."""
    for path, mapping in mappings(answer.output):
        fields = [(key, value) for key, value in mapping.items() if not isinstance(value, Mapping | list)]
        for index, (key, value) in enumerate(fields):
            for other, there in fields[index + 1 :]:
                if _alike(value, there):
                    both = {**mapping, key: there, other: value}
                    yield Plant(
                        Sort.EXCHANGED, _place((*path, key)),
                        replace(answer, output=_with(answer.output, path, both)),
                    )  # fmt: skip


def _place(path: Sequence[str | int]) -> str:
    return "/output" + "".join(f"/{pointer_part(part)}" for part in path)


def _wrong_values(
    path: tuple[str | int, ...], value: Any, others: Sequence[Any], schemas: SchemasAt | None
) -> Iterator[tuple[Sort, Any]]:
    seen: set[str] = set()
    if schemas is not None:
        sort, choices = _choices(schemas, path)
        for choice in choices:
            if _alike(value, choice):
                seen.add(canonical(choice))
                yield sort, choice
    for other in others:
        there = _at(other, path)
        if there is not _NOTHING and _alike(value, there) and (text := canonical(there)) not in seen:
            seen.add(text)
            yield Sort.ANOTHER_VALUE, there
    for near in near_misses(value):
        yield Sort.NEAR_MISS, near


def _choices(schemas: SchemasAt, path: tuple[str | int, ...]) -> tuple[Sort, list[Any]]:
    """The values that a schema lists for a place, and the sort of error that another one is."""
    sort = Sort.ANOTHER_CHOICE
    for part in path:
        sort = Sort.ANOTHER_LABEL if any(LABELS in node for node, _ in schemas.nodes) else sort
        schemas = schemas.under(part)
    return sort, [choice for node, _ in schemas.nodes for choice in node.get("enum", ())]


def near_misses(value: Any) -> list[Any]:
    """Values that are easily mistaken for `value`."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return list(dict.fromkeys([value + 1, value - 1, *_swapped_number(value)]))
    if isinstance(value, float):
        return [value + 1, value * 10]
    if isinstance(value, str):
        return list(dict.fromkeys(near for near in _near_texts(value) if near != value))
    return []


def _swapped_number(value: int) -> list[int]:
    text = str(abs(value))
    swapped = [int(near) for near in _swapped(text)]
    return [-near if value < 0 else near for near in swapped]


def _swapped(text: str) -> list[str]:
    """A text with two neighbouring digits swapped, at the last place where they differ."""
    for index in range(len(text) - 2, -1, -1):
        one, other = text[index], text[index + 1]
        if one.isdigit() and other.isdigit() and one != other:
            return [f"{text[:index]}{other}{one}{text[index + 2 :]}"]
    return []


_DAY = re.compile(r"\b(\d{4})-(\d{2})-(\d{2})\b")


def _near_texts(text: str) -> Iterator[str]:
    if day := _DAY.search(text):
        year, month, number = day.groups()
        start, end = day.span()
        if int(number) <= 12:
            yield f"{text[:start]}{year}-{number}-{month}{text[end:]}"
        try:
            after = date(int(year), int(month), int(number)) + timedelta(days=1)
        except (ValueError, OverflowError):
            return
        yield f"{text[:start]}{after.isoformat()}{text[end:]}"
        return
    yield from _swapped(text)
    if last := re.search(r"\d(?=\D*$)", text):
        yield f"{text[: last.start()]}{(int(last.group()) + 1) % 10}{text[last.end() :]}"


# -- what is there at all -----------------------------------------------------------------------------------


def _shape(
    answer: PlainAnswer, others: Sequence[PlainAnswer], schema: Mapping[str, Any] | None
) -> Iterator[Plant]:
    """A fact left out, as null or as no key; a claim of another visit or of the schema added."""
    output = answer.output
    if not isinstance(output, Mapping):
        return
    for path, mapping in mappings(output):
        for key in mapping:
            rest = {name: item for name, item in mapping.items() if name != key}
            left_out = replace(answer, output=_with(output, path, rest))
            yield Plant(Sort.FACT_LEFT_OUT, _place((*path, key)), left_out)
    for key, value in output.items():
        place = f"/output/{pointer_part(key)}"
        if value is not None:
            yield Plant(Sort.FACT_LEFT_OUT, place, replace(answer, output={**output, key: None}))
        if isinstance(value, list):
            for index in range(len(value)):
                shorter = [*value[:index], *value[index + 1 :]]
                yield Plant(Sort.FACT_LEFT_OUT, place, replace(answer, output={**output, key: shorter}))
            if value:
                longer = [*value, value[-1]]
                yield Plant(Sort.CLAIM_ADDED, place, replace(answer, output={**output, key: longer}))
    for other in others:
        claims = other.output if isinstance(other.output, Mapping) else {}
        for key, value in claims.items():
            if value is not None and output.get(key) is None:
                place = f"/output/{pointer_part(key)}"
                yield Plant(Sort.CLAIM_ADDED, place, replace(answer, output={**output, key: value}))
    declared = (schema or {}).get("properties")
    if not isinstance(declared, Mapping) or (schema or {}).get("additionalProperties") is not False:
        claim = {**output, "further_promise": True}
        yield Plant(Sort.CLAIM_ADDED, "/output/further_promise", replace(answer, output=claim))


# -- effects ------------------------------------------------------------------------------------------------


def _effects(answer: PlainAnswer, others: Sequence[PlainAnswer]) -> Iterator[Plant]:
    effects = answer.effects
    for index, effect in enumerate(effects):
        without = (*effects[:index], *effects[index + 1 :])
        place = f"/effects/{index}"
        yield Plant(Sort.EFFECT_MISSING, place, replace(answer, effects=without))
        yield Plant(Sort.EFFECT_ADDED, place, replace(answer, effects=(*effects, effect)))
        yield from _arguments(answer, index, others)
        for later in range(index + 1, len(effects)):
            order = list(effects)
            order[index], order[later] = order[later], order[index]
            yield Plant(Sort.EFFECT_ORDER, place, replace(answer, effects=tuple(order)))
    place = f"/effects/{len(effects)}"
    for other in others:
        for effect in other.effects:
            if effect not in effects:
                yield Plant(Sort.EFFECT_ADDED, place, replace(answer, effects=(*effects, effect)))


def _arguments(answer: PlainAnswer, index: int, others: Sequence[PlainAnswer]) -> Iterator[Plant]:
    effect = answer.effects[index]
    same = [dict(theirs.args) for other in others for theirs in other.effects if theirs.tool == effect.tool]
    for path, value in leaves(dict(effect.args)):
        place = f"/effects/{index}/args" + "".join(f"/{pointer_part(part)}" for part in path)
        for _, wrong in _wrong_values(path, value, same, None):
            changed = PlainEffect(effect.tool, _with(dict(effect.args), path, wrong))
            mutated = (*answer.effects[:index], changed, *answer.effects[index + 1 :])
            yield Plant(Sort.EFFECT_ARGUMENT, place, replace(answer, effects=mutated))


# -- places in plain values ---------------------------------------------------------------------------------

_NOTHING = object()


def leaves(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Every scalar of a plain value, with the keys and indices that lead to it."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from leaves(item, (*path, key))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from leaves(item, (*path, index))
    else:
        yield path, value


def mappings(
    value: Any, path: tuple[str | int, ...] = ()
) -> Iterator[tuple[tuple[str | int, ...], Mapping[str, Any]]]:
    """Every mapping of a plain value, with the keys and indices that lead to it."""
    if isinstance(value, Mapping):
        yield path, value
    items = value.items() if isinstance(value, Mapping) else enumerate(value) if _is_list(value) else ()
    for key, item in items:
        yield from mappings(item, (*path, key))


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def without(value: Any, pointers: Sequence[str]) -> Any:
    """A plain value without the places that pointers name."""
    for pointer in pointers:
        value = _without(value, path_of(pointer))
    return value


def _without(value: Any, path: Sequence[str]) -> Any:
    if not path:
        return None
    part, rest = path[0], path[1:]
    if isinstance(value, Mapping):
        return {
            key: _without(item, rest) if rest and part in ("*", key) else item
            for key, item in value.items()
            if rest or part not in ("*", key)
        }
    if _is_list(value):
        kept = [(str(index), item) for index, item in enumerate(value)]
        return [
            _without(item, rest) if rest and part in ("*", key) else item
            for key, item in kept
            if rest or part not in ("*", key)
        ]
    return value


def _at(value: Any, path: tuple[str | int, ...]) -> Any:
    for part in path:
        there = dict(enumerate(value)) if isinstance(value, list) else value
        if not isinstance(there, Mapping) or part not in there:
            return _NOTHING
        value = there[part]
    return value


def _with(value: Any, path: tuple[str | int, ...], wrong: Any) -> Any:
    """A copy of a plain value with another value at one place."""
    if not path:
        return wrong
    part, rest = path[0], path[1:]
    if isinstance(value, Mapping):
        return {key: _with(item, rest, wrong) if key == part else item for key, item in value.items()}
    return [_with(item, rest, wrong) if index == part else item for index, item in enumerate(value)]


def _alike(value: Any, other: Any) -> bool:
    """Whether two scalars are of one type and differ."""
    return type(value) is type(other) and not isinstance(value, Mapping | list) and value != other
