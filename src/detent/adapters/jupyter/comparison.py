"""Whether two values of kernels are equal, floats but for rounding."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from detent.adapters.jupyter.cell_result import VariableInfo

TOLERANCE = 1e-9
"""Relative difference of floats that are equal."""
NOISE = 1e-12
"""Absolute difference up to which they are equal as well: noise around zero has no relative size."""
LONGEST = 120


def difference(expected: VariableInfo, actual: VariableInfo) -> str | None:
    """What tells a value from the expected one, in a clause about it; None if nothing does.

    Values without a fingerprint, such as models, are compared by type, shape and size. Up to 256 floats are
    compared one by one; of more, such as a table's, sums of each column are, so that a change is noticed when
    it is more than rounding of the whole column.
    """
    if not actual.exists:
        return "does not exist"
    if actual.type != expected.type:
        return f"is of type {actual.type}, not {expected.type}"
    if (actual.shape, actual.size) != (expected.shape, expected.size):
        return f"has the shape {_extent(actual)}, not {_extent(expected)}"
    if expected.sha256 is None or actual.sha256 == expected.sha256:
        return None
    if expected.comparison is not None and actual.comparison is not None:
        if _same_content(expected.comparison, actual.comparison):
            return None
    elif expected.json is not None and _json_difference(expected.json, actual.json, "") is None:
        return None
    known = expected.json is not None and actual.json is not None
    return (_json_difference(expected.json, actual.json, "") if known else None) or "has another content"


def _extent(info: VariableInfo) -> str:
    sides = info.shape if info.shape is not None else (info.size,)
    return " x ".join("?" if side is None else str(side) for side in sides) or "of a scalar"


def _same_content(expected: Mapping[str, Any], actual: Mapping[str, Any]) -> bool:
    if expected.get("structure") != actual.get("structure"):
        return False
    if "values" in expected or "values" in actual:
        return _all_close(expected.get("values") or (), actual.get("values") or ())
    expected_sums, actual_sums = expected.get("sums") or (), actual.get("sums") or ()
    return len(expected_sums) == len(actual_sums) and all(map(_same_sums, expected_sums, actual_sums))


def _all_close(expected: Sequence[float], actual: Sequence[float]) -> bool:
    return len(expected) == len(actual) and all(map(close, expected, actual))


def _same_sums(expected: Sequence[float | None], actual: Sequence[float | None]) -> bool:
    """Whether sums of many floats agree: each may differ by what rounding of every float adds up to."""
    if None in expected or None in actual:
        return list(expected) == list(actual)
    allowed = TOLERANCE * 1.5 * float(expected[1] or 0.0) + NOISE
    return expected[0] == actual[0] and all(
        abs(float(before or 0.0) - float(after or 0.0)) <= allowed
        for before, after in zip(expected[1:], actual[1:], strict=True)
    )


def close(expected: float, actual: float) -> bool:
    """Whether two floats differ by rounding alone."""
    return math.isclose(expected, actual, rel_tol=TOLERANCE, abs_tol=NOISE)


def _json_difference(expected: Any, actual: Any, place: str) -> str | None:
    """Where two plain values differ first."""
    if expected is None or isinstance(expected, bool | str) or type(actual) is bool:
        same = type(actual) is type(expected) and actual == expected
    elif isinstance(expected, int | float):
        number = isinstance(actual, int | float)
        exact = isinstance(expected, int) and isinstance(actual, int)
        same = number and (actual == expected if exact else close(expected, actual))
    elif isinstance(expected, list) and isinstance(actual, list) and len(actual) == len(expected):
        pairs = enumerate(zip(expected, actual, strict=True))
        found = (_json_difference(before, after, f"{place}[{index}]") for index, (before, after) in pairs)
        return next(filter(None, found), None)
    elif isinstance(expected, dict) and isinstance(actual, dict) and expected.keys() == actual.keys():
        found = (_json_difference(expected[key], actual[key], f"{place}[{key!r}]") for key in expected)
        return next(filter(None, found), None)
    else:
        same = False
    return None if same else f"{place} is {_short(actual)}, not {_short(expected)}".strip()


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
