"""Paths as text: short names of steps, arrows, a caret under the first difference."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

ARROW = " → "
NOTHING = "(no step)"
_NUMBERED = re.compile(r"(\d+[a-z]?)[-_.]", re.IGNORECASE)


def short_names(steps: Iterable[str]) -> dict[str, str]:
    """A short name for each step: its number if no other step has it, otherwise the whole name."""
    names = list(dict.fromkeys(steps))
    numbers = {name: match.group(1) for name in names if (match := _NUMBERED.match(name)) is not None}
    taken = list(numbers.values())
    return {
        name: numbers[name] if name in numbers and taken.count(numbers[name]) == 1 else name for name in names
    }


def drawn(path: Sequence[str], names: dict[str, str] | None = None) -> str:
    """A path on one line."""
    known = short_names(path) if names is None else names
    return ARROW.join(known.get(step, step) for step in path) or NOTHING


def beside(expected: Sequence[str], actual: Sequence[str]) -> tuple[str, ...]:
    """Both paths, one below the other, and a caret under the first difference; empty for equal paths."""
    if list(expected) == list(actual):
        return ()
    names = short_names([*expected, *actual])
    at = next(
        (index for index, pair in enumerate(zip(expected, actual, strict=False)) if pair[0] != pair[1]),
        min(len(expected), len(actual)),
    )
    shared = [names[step] for step in actual[:at]]
    column = len(ARROW.join(shared)) + (len(ARROW) if shared else 0)
    label = "expected  "
    return (
        f"{label}{drawn(expected, names)}",
        f"{'got'.ljust(len(label))}{drawn(actual, names)}",
        " " * (len(label) + column) + "^",
    )
