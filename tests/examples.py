"""How much is tried: a sample with `make test`, everything with `make test-all`.

`make test-all` sets `DETENT_TEST_ALL`: properties are tried with as many examples as they ask for, and the
cases marked `exhaustive` run as well. `DETENT_TEST_EXAMPLES` multiplies the examples beyond that.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Hashable, Iterable
from itertools import combinations, product
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

ALL = bool(os.environ.get("DETENT_TEST_ALL"))
left_out = 0
"""Exhaustive cases that were not even made, because collecting them takes time too."""
TIMES = float(os.environ.get("DETENT_TEST_EXAMPLES", "1"))
USUAL = 100
"""Examples of a property that asks for no number."""
FEWEST = 15


def examples(wanted: int) -> int:
    """How many examples to try where so many are wanted when there is time."""
    return max(FEWEST, round(wanted * TIMES * (1 if ALL else 1 / 4)))


def covering(
    *columns: Iterable[Hashable], rows: Iterable[tuple[Hashable, ...]] = (), together: int = 2
) -> list[Any]:
    """The rows of a matrix as parameters, those beyond a sample marked `exhaustive`.

    The matrix is every combination of the columns, or the rows given. The sample holds every combination of
    values of any two columns (or of `together` columns) found in the matrix. So a rule that breaks for one
    value, or for two values at once, breaks in the sample too.
    """
    matrix = list(rows or product(*columns))
    assert len(matrix[0]) >= together
    missing = {row: set(combinations(enumerate(row), together)) for row in matrix}
    sample: set[tuple[Hashable, ...]] = set()
    # Where rows add equally much, the values used least so far go first, so that short columns rotate.
    used: Counter[tuple[int, Hashable]] = Counter()
    while candidates := [row for row in matrix if missing[row]]:
        most = max(len(missing[row]) for row in candidates)
        equals = (row for row in candidates if len(missing[row]) == most)
        best = min(equals, key=lambda row: sum(used[cell] for cell in enumerate(row)))
        sample.add(best)
        used.update(enumerate(best))
        covered = set(missing[best])
        for row in candidates:
            missing[row] -= covered
    return _parameters((row, row in sample) for row in matrix)


def one_in(stride: int, cases: Iterable[Any]) -> list[Any]:
    """The cases as parameters: every so-many-th in the sample, the others marked `exhaustive`."""
    return _parameters(((case,), not number % stride) for number, case in enumerate(cases))


def _parameters(rows: Iterable[tuple[tuple[Any, ...], bool]]) -> list[Any]:
    """Rows as parameters, each with whether it is in the sample; the others only where all are tried."""
    global left_out
    parameters = []
    for row, sampled in rows:
        if sampled or ALL:
            parameters.append(pytest.param(*row, marks=() if sampled else pytest.mark.exhaustive))
        else:
            left_out += 1
    return parameters


# How long an example takes says how busy the machine is, not whether the property holds.
settings.register_profile(
    "detent",
    max_examples=examples(USUAL),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("detent")
