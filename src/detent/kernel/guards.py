"""Conditions on edges: named, pure predicates over a run's data.

A guard decides whether a move may be taken, whoever performed the step. Its name stands in the definition's
fingerprint, so a changed condition is a changed definition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from detent.kernel.plain import canonical

_MISSING = object()


@dataclass(frozen=True, slots=True)
class Guard:
    """A condition with a name. `holds` must be pure: same data, same answer."""

    name: str
    holds: Callable[[Mapping[str, Any]], bool]

    def __call__(self, data: Mapping[str, Any]) -> bool:
        return bool(self.holds(data))

    def __str__(self) -> str:
        return self.name


def when(condition: Mapping[str, Any]) -> Guard:
    """A guard written as data: every dotted key must hold.

    A literal means equality, a list means any of, `present` means neither null nor empty, `absent` the
    opposite. A list of one compares with the words `present` and `absent` themselves.
    """
    tests = [(key, _test(expected)) for key, expected in condition.items()]

    def holds(data: Mapping[str, Any]) -> bool:
        return all(test(dig(data, key)) for key, test in tests)

    return Guard(canonical(dict(condition)), holds)


def dig(data: Any, dotted: str, default: Any = None) -> Any:
    """The value at a dotted key, or `default` where the way ends early."""
    here = data
    for part in dotted.split("."):
        if isinstance(here, Mapping):
            here = here.get(part, _MISSING)
        elif isinstance(here, Sequence) and not isinstance(here, str) and part.removeprefix("-").isdecimal():
            index = int(part)
            here = here[index] if -len(here) <= index < len(here) else _MISSING
        else:
            return default
        if here is _MISSING:
            return default
    return here


def _present(value: Any) -> bool:
    return value is not None and value != "" and value != [] and value != {}


def _absent(value: Any) -> bool:
    return not _present(value)


def _test(expected: Any) -> Callable[[Any], bool]:
    if expected == "present":
        return _present
    if expected == "absent":
        return _absent
    if isinstance(expected, list | tuple):
        options = list(expected)
        return lambda value: any(_same(value, option) for option in options)
    return lambda value: _same(value, expected)


def _same(value: Any, expected: Any) -> bool:
    """Equality in which true is not 1."""
    return bool(value == expected) and isinstance(value, bool) == isinstance(expected, bool)
