"""What is left to `make test-all` is what the sample can spare."""

from __future__ import annotations

from itertools import combinations, product

import pytest

from tests import examples
from tests.examples import covering, one_in

COLUMNS = ("abcde", "fghij", "klmn", "op")


def sampled(parameters):
    return [one.values for one in parameters if not one.marks]


@pytest.mark.parametrize("together", [1, 2, 3])
def test_any_values_that_meet_in_the_matrix_meet_in_the_sample(together):
    rows = [row for row in product(*COLUMNS) if row[0] != "a" or row[1] == "f"]
    before = examples.left_out
    parameters = covering(rows=rows, together=together)
    assert len(parameters) + examples.left_out - before == len(rows)
    assert not examples.ALL or [one.values for one in parameters] == rows

    def met(rows):
        return {values for row in rows for values in combinations(enumerate(row), together)}

    sample = sampled(parameters)
    assert met(sample) == met(rows)
    assert len(sample) < len(rows)


def test_a_short_column_rotates():
    levels = [level for _, level in sampled(covering(range(40), "abcd", together=1))]
    assert {levels.count(level) for level in "abcd"} == {10}


def test_one_in_so_many_begins_with_the_first():
    assert sampled(one_in(3, range(7))) == [(0,), (3,), (6,)]
