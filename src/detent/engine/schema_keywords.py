"""JSON Schema keywords with bounded work: limited pattern matching, and steps in proportion to the value.

Schemas come from projects and tool servers, values from models. A self-reference, nested alternatives, a
backtracking pattern or a long list of unique items could each keep a validator busy forever. Work is counted,
not timed: whether a value fits does not depend on how fast or how busy the machine is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from fractions import Fraction
from functools import lru_cache
from itertools import chain, islice
from typing import Any

from detent.engine.patterns import PatternBudget

FREE_STEPS = 20_000
"""Steps for any value, however small: a keyword applied is one, and so is each item it goes through."""
STEPS_EACH = 20
"""Further steps for each value inside it."""
MOST_IN_ALTERNATIVE = 20
"""Errors kept per alternative: enough to find the nearest one."""
LONGEST_UNEVALUATED = 5_000
"""Longest list that is checked under `unevaluatedItems`."""


class TooMuchWork(Exception):
    """Checking a value under its schema took more than allowed."""

    def __init__(self) -> None:
        super().__init__(
            "takes too long to check: it is too large for its schema, or its schema refers to itself, or has "
            "alternatives inside alternatives, too often"
        )


class Work:
    """The remaining allowance for checking one value."""

    __slots__ = ("_choices", "_left", "_size", "_value", "patterns", "steps")

    def __init__(self, value: Any) -> None:
        self.patterns = PatternBudget()
        self.steps = 0
        """Steps taken so far."""
        self._value = value
        self._size: int | None = None
        self._left = FREE_STEPS
        self._choices: dict[int, frozenset[Any]] = {}

    def step(self, steps: int = 1) -> None:
        """Count steps."""
        self.steps += steps
        if self.steps > self._left:
            self._grow()
            if self.steps > self._left:
                raise TooMuchWork

    def walked(self, steps: int) -> Iterator[Any]:
        """Count steps when the errors before this are through; no error itself."""
        self.step(steps)
        yield from ()

    def _grow(self) -> None:
        """Extend the allowance by the value's size. Few values need it, so only those are measured."""
        if self._size is None:
            self._size = _size(self._value)
            self._left += STEPS_EACH * self._size

    def choices(self, values: list[Any]) -> frozenset[Any]:
        """The values of an `enum` as a set, built once per check."""
        identities = self._choices.get(id(values))
        if identities is None:
            identities = self._choices[id(values)] = frozenset(map(_identity, values))
        return identities


_work: ContextVar[Work] = ContextVar("work")


def errors_of(validator: Any, value: Any, work: Work | None = None) -> Iterator[Any]:
    """jsonschema's errors of a plain value under a validator of a `bounded` class, one at a time.

    Nothing is checked beyond the last error taken.

    Raises:
        PatternTimeout: a pattern took too long.
        InvalidPattern: a pattern is no regular expression.
        TooMuchWork: too many steps, or too deep.
    """
    work = work if work is not None else Work(value)
    errors = validator.iter_errors(value)
    while True:
        token = _work.set(work)
        try:
            error = next(errors, None)
        except RecursionError:
            raise TooMuchWork from None
        except BaseException as stopped:
            if (
                type(stopped).__name__ == "PanicException"
            ):  # a RecursionError inside a library written in Rust
                raise TooMuchWork from None
            raise
        finally:
            _work.reset(token)
        if error is None:
            return
        yield error


@lru_cache(maxsize=16)
def bounded(kind: Any) -> Any:
    """A jsonschema validator class with these keywords in place of its own."""
    from jsonschema import validators

    ours: dict[str, Callable[..., Any]] = {
        "additionalProperties": _additional_properties,
        "anyOf": _any_of,
        "const": _const,
        "enum": _enum,
        "multipleOf": _multiple_of,
        "oneOf": _one_of,
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "unevaluatedProperties": _unevaluated_properties,
        "uniqueItems": _unique_items,
    }
    if "unevaluatedItems" in kind.VALIDATORS:
        ours["unevaluatedItems"] = _short(kind.VALIDATORS["unevaluatedItems"])
    keywords = {word: _counted(word, ours.get(word, rule)) for word, rule in kind.VALIDATORS.items()}
    return validators.extend(kind, keywords)  # type: ignore[no-untyped-call]


@lru_cache(maxsize=1)
def format_checker() -> Any:
    """The format checker for schemas, which rejects invalid patterns."""
    from jsonschema import FormatChecker

    from detent.engine.patterns import InvalidPattern, compiled

    checker = FormatChecker(formats=())

    @checker.checks("regex", raises=InvalidPattern)
    def is_pattern(pattern: Any) -> bool:
        return not isinstance(pattern, str) or compiled(pattern) is not None

    return checker


_THROUGH_THE_VALUE = frozenset({
    "additionalItems", "additionalProperties", "contains", "items", "patternProperties", "prefixItems",
    "propertyNames", "unevaluatedItems", "unevaluatedProperties", "uniqueItems",
})  # fmt: skip
"""Keywords that go through the items or keys of a value."""
_THROUGH_THEIR_NAMES = frozenset({
    "dependencies", "dependentRequired", "dependentSchemas", "properties", "required",
})  # fmt: skip
"""Keywords that go through their own names, whatever the value."""


def _counted(word: str, rule: Callable[..., Any]) -> Callable[..., Any]:
    through_value, through_names = word in _THROUGH_THE_VALUE, word in _THROUGH_THEIR_NAMES

    def counted(validator: Any, argument: Any, value: Any, schema: Any) -> Any:
        work = _work.get()
        work.step()
        errors = rule(validator, argument, value, schema)
        walked = value if through_value else argument if through_names else None
        if errors is None or not isinstance(walked, dict | list):
            return errors
        # Counted once it has gone through all of it: most stop at the first errors.
        return chain(errors, work.walked(len(walked)))

    return counted


def _short(rule: Callable[..., Any]) -> Callable[..., Any]:
    """A keyword whose work is quadratic in the length of a list, limited to short lists."""

    def short(validator: Any, argument: Any, value: Any, schema: Any) -> Any:
        if isinstance(value, list) and len(value) > LONGEST_UNEVALUATED:
            raise TooMuchWork
        return rule(validator, argument, value, schema)

    return short


def _size(value: Any) -> int:
    """Number of values inside a value, including itself."""
    values, todo = 0, [value]
    while todo:
        inner = todo.pop()
        values += 1
        if isinstance(inner, dict):
            todo.extend(inner.values())
        elif isinstance(inner, list):
            todo.extend(inner)
    return values


def _error(message: str, context: list[Any] | None = None) -> Any:
    from jsonschema import ValidationError

    return ValidationError(message, context=context or ())


def _enum(validator: Any, allowed: Any, value: Any, schema: Any) -> Iterator[Any]:
    if _identity(value) not in _work.get().choices(allowed):
        yield _error("is not one of the values")


def _const(validator: Any, expected: Any, value: Any, schema: Any) -> Iterator[Any]:
    if _identity(value) != _identity(expected):
        yield _error("is not the value")


def _any_of(validator: Any, alternatives: Any, value: Any, schema: Any) -> Iterator[Any]:
    context: list[Any] = []
    for index, inner in enumerate(alternatives):
        errors = _first_errors(validator, value, inner, index)
        if not errors:
            return
        context += errors
    yield _error("fits no alternative", context)


def _one_of(validator: Any, alternatives: Any, value: Any, schema: Any) -> Iterator[Any]:
    context: list[Any] = []
    fitting = 0
    for index, inner in enumerate(alternatives):
        errors = _first_errors(validator, value, inner, index, 1 if fitting else MOST_IN_ALTERNATIVE)
        context += errors
        fitting += not errors
    if fitting > 1:
        yield _error("fits more than one alternative")
    elif not fitting:
        yield _error("fits no alternative", context)


def _first_errors(
    validator: Any, value: Any, schema: Any, index: int, most: int = MOST_IN_ALTERNATIVE
) -> list[Any]:
    return list(islice(validator.descend(value, schema, schema_path=index), most))


def _fits(pattern: str, text: str) -> bool:
    work = _work.get()
    work.step()
    return work.patterns.fits(pattern, text)


def _pattern(validator: Any, pattern: str, value: Any, schema: Any) -> Iterator[Any]:
    if validator.is_type(value, "string") and not _fits(pattern, value):
        yield _error("does not match its pattern")


def _pattern_properties(validator: Any, schemas: Any, value: Any, schema: Any) -> Iterator[Any]:
    if not validator.is_type(value, "object"):
        return
    for pattern, inner in schemas.items():
        for key, item in value.items():
            if _fits(pattern, key):
                yield from validator.descend(item, inner, path=key, schema_path=pattern)


def _additional_properties(validator: Any, allowed: Any, value: Any, schema: Any) -> Iterator[Any]:
    if not validator.is_type(value, "object"):
        return
    named, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    extras = [
        key for key in value if key not in named and not any(_fits(pattern, key) for pattern in patterns)
    ]
    if validator.is_type(allowed, "object"):
        for key in extras:
            yield from validator.descend(value[key], allowed, path=key)
    elif not allowed and extras:
        yield _error("has additional properties")


def _unevaluated_properties(validator: Any, allowed: Any, value: Any, schema: Any) -> Iterator[Any]:
    if not validator.is_type(value, "object"):
        return
    evaluated = _evaluated(validator, value, {**schema, "unevaluatedProperties": None})
    if any(
        next(validator.descend(item, allowed, path=key, schema_path=key), None) is not None
        for key, item in value.items()
        if key not in evaluated
    ):
        yield _error("has unevaluated properties")


def _evaluated(validator: Any, value: Mapping[str, Any], schema: Any) -> set[str]:
    """The keys that a schema and its subschemas evaluate."""
    _work.get().step()
    if not isinstance(schema, Mapping):
        return set()
    keys = {key for key in schema.get("properties", ()) if key in value}
    keys |= {key for pattern in schema.get("patternProperties", ()) for key in value if _fits(pattern, key)}
    if any(schema.get(word) is not None for word in ("additionalProperties", "unevaluatedProperties")):
        return set(value)  # these keywords report their own errors
    for word in ("$ref", "$dynamicRef"):
        if isinstance(reference := schema.get(word), str):
            resolved = validator._resolver.lookup(reference)
            keys |= _evaluated(_at_reference(validator, resolved), value, resolved.contents)
    if "$recursiveRef" in schema:
        from referencing.jsonschema import lookup_recursive_ref

        resolved = lookup_recursive_ref(validator._resolver)
        keys |= _evaluated(_at_reference(validator, resolved), value, resolved.contents)

    def holds(inner: Any) -> bool:
        return next(validator.descend(value, inner), None) is None

    parts = [
        subschema
        for word in ("allOf", "anyOf", "oneOf")
        for subschema in schema.get(word, ())
        if holds(subschema)
    ]
    parts += [subschema for key, subschema in schema.get("dependentSchemas", {}).items() if key in value]
    if "if" in schema:
        if holds(schema["if"]):
            parts += [schema["if"], schema.get("then")]
        else:
            parts.append(schema.get("else"))
    for part in parts:
        keys |= _evaluated(validator, value, part)
    return keys


def _at_reference(validator: Any, resolved: Any) -> Any:
    return validator.evolve(schema=resolved.contents, _resolver=resolved.resolver)


def _multiple_of(validator: Any, step: Any, value: Any, schema: Any) -> Iterator[Any]:
    if not validator.is_type(value, "number"):
        return
    if isinstance(value, int) and isinstance(step, int):
        rest: Any = value % step
    else:
        try:
            rest = value / step % 1
        except OverflowError:  # an integer larger than any float
            rest = math.nan
        if math.isnan(rest):
            rest = Fraction(value) % Fraction(step)
    if rest:
        yield _error("is not a multiple")


def _unique_items(validator: Any, required: Any, value: Any, schema: Any) -> Iterator[Any]:
    if (
        required
        and validator.is_type(value, "array")
        and len({_identity(item) for item in value}) < len(value)
    ):
        yield _error("has items twice")


def _identity(value: Any) -> Any:
    """A key that is equal for values equal in JSON, where 1 equals 1.0 and differs from true."""
    if isinstance(value, dict):
        _work.get().step(len(value))
        return "object", frozenset((key, _identity(item)) for key, item in value.items())
    if isinstance(value, list):
        _work.get().step(len(value))
        return "array", tuple(_identity(item) for item in value)
    return type(value) is bool, value
