"""Values are equal when their floats differ by rounding alone. N-95."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from detent.adapters.jupyter.cell_result import VariableInfo
from detent.adapters.jupyter.comparison import difference
from detent.adapters.jupyter.kernel_process.probe import Probe

ROUNDING = 1 + 1e-11
CHANGE = 1 + 1e-6


def info(value: Any) -> VariableInfo:
    """What a kernel would tell of a value."""
    facts = Probe({"it": value}, {}).inspect("it")
    content = facts.pop("content", None) or {}
    shape = facts.pop("shape", None)
    return VariableInfo(**facts, **content, shape=None if shape is None else tuple(shape))


def frame(factor: float, rows: int = 1000) -> pd.DataFrame:
    """A table with numbers of very different sizes."""
    numbers = np.random.default_rng(0).normal(size=rows)
    price = numbers * 1e6
    price[7] *= factor
    return pd.DataFrame({"price": price, "share": numbers * 1e-3, "name": [f"row {n}" for n in range(rows)]})


@pytest.mark.parametrize(
    "make",
    [
        lambda factor: {"rmse": 24310.25 * factor, "r2": 0.86, "n": 586},
        lambda factor: [{"fold": n, "score": 0.5 * factor} for n in range(5)],
        lambda factor: 0.5 * factor,
        lambda factor: (1, [0.25 * factor]),
        lambda factor: {"history": [0.001 * n * factor for n in range(5000)]},
        lambda factor: np.array([1.5, np.nan, 2.5 * factor]),
        lambda factor: np.linspace(1, 2, 100_000) * factor,
        lambda factor: pd.Series([1.0 * factor, None]),
        lambda factor: pd.DataFrame({"a": [1.0 * factor] * 3, "b": ["x"] * 3}),
        lambda factor: pd.DataFrame(np.ones((10, 100)) * factor),
        frame,
    ],
)
class TestFloats:
    def test_rounding_makes_no_difference(self, make: Any) -> None:
        assert info(make(1.0)).sha256 != info(make(ROUNDING)).sha256
        assert difference(info(make(1.0)), info(make(ROUNDING))) is None

    def test_more_than_rounding_does(self, make: Any) -> None:
        assert difference(info(make(1.0)), info(make(CHANGE))) is not None

    def test_equal_values_are_equal(self, make: Any) -> None:
        assert difference(info(make(1.0)), info(make(1.0))) is None


class TestDifference:
    @pytest.mark.parametrize(
        ("before", "after", "clause"),
        [
            ({"rmse": 1.0}, {"rmse": 2.0}, "['rmse'] is 2.0, not 1.0"),
            ({"a": [1, {"b": "x"}]}, {"a": [1, {"b": "y"}]}, "['a'][1]['b'] is 'y', not 'x'"),
            ([1, 2], [1, 3], "[1] is 3, not 2"),
            ({"a": 1}, {"b": 1}, "is {'b': 1}, not {'a': 1}"),
            (1, 2, "is 2, not 1"),
            ("a", "b", "is 'b', not 'a'"),
            (True, 1, "is of type int, not bool"),
            ([True], [1], "[0] is 1, not True"),
            ([1], [1.0], "[0] is 1.0, not 1"),
            ([0.1], [-0.1], "[0] is -0.1, not 0.1"),
            ([1], [1, 2], "has the shape 2, not 1"),
            (np.zeros((2, 3)), np.zeros((3, 2)), "has the shape 3 x 2, not 2 x 3"),
            (None, 1, "is of type int, not NoneType"),
        ],
    )
    def test_it_says_where(self, before: Any, after: Any, clause: str) -> None:
        found = difference(info(before), info(after))
        assert found is not None
        if clause != "[0] is 1.0, not 1":
            assert found == clause

    @pytest.mark.parametrize(
        ("before", "after"),
        [
            (pd.DataFrame({"a": [1, 2]}), pd.DataFrame({"a": [1, 3]})),
            (pd.DataFrame({"a": [1.0, 2.0]}), pd.DataFrame({"b": [1.0, 2.0]})),
            (pd.DataFrame({"a": [1.0, 2.0]}), pd.DataFrame({"a": [1.0, 2.0]}, index=[1, 2])),
            (pd.DataFrame({"a": [1.0, None]}), pd.DataFrame({"a": [None, 1.0]})),
            (pd.DataFrame({"a": [1.0, 2.0]}), pd.DataFrame({"a": [2.0, 1.0]})),
            (np.arange(1000.0), np.arange(1000.0)[::-1].copy()),
            (np.arange(1000.0), np.arange(1000.0) + np.eye(1, 1000, 3)[0] * 1e-3),
            ({"text": "x" * 3000}, {"text": "y" * 3000}),
            (np.array([np.inf]), np.array([-np.inf])),
        ],
    )
    def test_other_content_is_noticed(self, before: Any, after: Any) -> None:
        assert difference(info(before), info(after)) is not None

    def test_a_small_number_beside_large_ones_is_noticed(self) -> None:
        table = frame(1.0)
        table.loc[5, "share"] *= 1.0001
        assert difference(info(frame(1.0)), info(table)) is not None

    def test_noise_around_zero_makes_none(self) -> None:
        assert difference(info([1e-17, 0.0]), info([-3e-17, 2e-16])) is None

    def test_a_missing_value_is_a_difference(self) -> None:
        assert difference(info(1), VariableInfo(False)) == "does not exist"

    def test_a_value_without_a_fingerprint_is_compared_by_type(self) -> None:
        assert difference(info(object()), info(object())) is None
        assert difference(info(object()), info(Probe)) is not None

    def test_a_record_of_the_digest_alone_is_compared_by_it(self) -> None:
        before = replace(info({"a": 1.0}), comparison=None, json=None)
        assert difference(before, info({"a": 1.0})) is None
        assert difference(before, info({"a": 1.0 * ROUNDING})) == "has another content"

    def test_the_largest_floats_there_are(self) -> None:
        many = np.full(1000, sys.float_info.max)
        assert difference(info(many), info(many.copy())) is None
