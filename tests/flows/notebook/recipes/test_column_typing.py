"""Numbers and dates in text, and a new table read like the first."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

from detent.flows.notebook.recipes.column_typing import (
    COLUMN_KINDS,
    CONSTANT_COLUMNS,
    DATES_IN_TEXT,
    NUMBERS_IN_TEXT,
    ROW_KEYS,
    TYPED_TABLE,
    VALID_VALUES,
)


@pytest.fixture(scope="module")
def code():
    names = {"re": re, "np": np, "pd": pd}
    for part in (
        NUMBERS_IN_TEXT, DATES_IN_TEXT, COLUMN_KINDS, ROW_KEYS, CONSTANT_COLUMNS, TYPED_TABLE, VALID_VALUES,
    ):  # fmt: skip
        exec(part, names)
    return names


NAN = float("nan")

NUMBERS = [
    (["$12,500", "$950"], ".", [12500, 950]),
    (["12.500 €", "1.200 €"], ".", [12500, 1200]),
    (["12.500,00 €", "999,00 €"], ".", [12500, 999]),
    (["12.500,00 €", "999,00 €"], ",", [12500, 999]),
    (["48,000 km", "900 km"], ".", [48000, 900]),
    (["12%", "7.5%"], ".", [12, 7.5]),
    (["12k", "1.5M", "900"], ".", [12000, 1.5e6, 900]),
    (["$1.2M", "$3M"], ".", [1.2e6, 3e6]),
    (["(1,200)", "300", "-5", "−7", "-$8"], ".", [-1200, 300, -5, -7, -8]),
    (["1,5", "2,25", "3"], ",", [1.5, 2.25, 3]),
    (["1,5", "2,25", "3"], ".", [1.5, 2.25, 3]),
    (["1 234,5", "2 000"], ",", [1234.5, 2000]),
    (["12,34,567", "1,00,000"], ".", [1234567, 100000]),
    (["1'234.50", "12.00"], ".", [1234.5, 12]),
    (["1e3", "2.5E-1"], ".", [1000, 0.25]),
    (["unknown", "12", "n/a", "?", "3"], ".", [NAN, 12, NAN, NAN, 3]),
    (["-3.5 °C", "4 °C"], ".", [-3.5, 4]),
]
NO_NUMBERS = [
    ["007", "012"], ["5 kg", "300 g"], ["A12", "B3"], ["1.2.2020", "3.4.2021"], ["$5", "€6"], ["10-20",
    "20-30"],
    ["1st", "2nd"], ["12:30", "13:00"], ["Bonn", "Ulm"], ["192.168.0.1", "10.0.0.1"], ["", "?"],
]  # fmt: skip


class TestNumbersInText:
    @pytest.mark.parametrize(("texts", "decimal", "values"), NUMBERS, ids=lambda value: str(value)[:30])
    def test_amounts_are_read(self, code, texts, decimal, values):
        rule = code["number_rule"](pd.Series(texts), decimal)
        assert rule is not None
        assert [code["read_number"](text, rule) for text in texts] == pytest.approx(values, nan_ok=True)

    @pytest.mark.parametrize("texts", NO_NUMBERS, ids=str)
    def test_codes_ranges_and_mixed_units_are_none(self, code, texts):
        assert code["number_rule"](pd.Series(texts)) is None

    def test_a_few_texts_may_be_unreadable_but_not_many(self, code):
        mostly = pd.Series([f"{n} km" for n in range(1, 98)] + ["far", "near", "there"])
        assert code["number_rule"](mostly) is not None
        assert code["number_rule"](mostly[60:]) is None


DATES = [
    (["2020-01-31", "2020-02-01"], False, "2020-01-31"),
    (["31.01.2020", "01.02.2020"], True, "2020-01-31"),
    (["01/02/2020", "03/04/2020"], False, "2020-01-02"),
    (["01/02/2020", "03/04/2020"], True, "2020-02-01"),
    (["01/02/2020", "23/04/2020"], False, "2020-02-01"),
    (["Jan 3, 2020", "Feb 4, 2021"], False, "2020-01-03"),
    (["2020-01-31T23:00:00-02:00", "2020-02-01T00:00:00+02:00"], False, "2020-02-01 01:00"),
    (["1/2/2020 10:00 PM", "12/13/2020 1:00 AM"], False, "2020-01-02 22:00"),
]


class TestDatesInText:
    @pytest.mark.parametrize(("texts", "day_first", "first"), DATES, ids=lambda value: str(value)[:30])
    def test_dates_are_read(self, code, texts, day_first, first):
        rule = code["date_rule"](pd.Series(texts), day_first)
        read = code["read_dates"](pd.Series(texts), rule)
        assert read[0] == pd.Timestamp(first)
        assert read.notna().all()

    @pytest.mark.parametrize(
        "texts", [["12 apples", "13 pears"], ["hello", "you"], ["10-20", "20-30"], ["9999-99-99"]]
    )
    def test_other_texts_are_none(self, code, texts):
        assert code["date_rule"](pd.Series(texts)) is None


class TestKinds:
    @pytest.mark.parametrize(
        ("name", "values", "kind"),
        [
            ("x", [1.5, 2.5, 2.5], "numeric"),
            ("order_id", [5, 9, 3], "id"),
            ("OrderID", [5, 9, 3], "id"),
            ("idle", [5, 9, 3], "numeric"),
            ("row", [0, 1, 2, 3], "id"),
            ("year", [2019, 2020, 2021], "numeric"),
            ("name", [f"Mr {n}" for n in range(30)], "id"),
            ("note", ["a note of more than five words", "and one more of them here"], "text"),
            ("zone", ["a", "b", "a"], "categorical"),
            ("flag", [True, False, None], "categorical"),
            ("c", [1, 1, 1], "constant"),
            ("e", [None, None], "constant"),
            ("sometimes", ["x", None, "x"], "categorical"),
            ("parts", [[1], [1, 2], [1]], "categorical"),
            ("cost", ["$1", "$20"], "numeric"),
            ("when", ["2020-01-01", "2020-02-01"], "datetime"),
            ("ride", pd.to_timedelta(np.arange(1, 40) ** 2, unit="s"), "numeric"),  # each differs
        ],
    )
    def test_a_column_is_told_by_its_values_and_name(self, code, name, values, kind):
        assert code["column_kind"](name, pd.Series(values))[0] == kind


class TestNewTables:
    """Part of N-110: what the notebook learned of types holds for a table it never saw."""

    RULES = {  # noqa: RUF012
        "kinds": {"n": "numeric", "t": "categorical", "d": "datetime", "f": "numeric", "z": "categorical"},
        "numbers": {"n": {"decimal": ",", "scale": {}}},
        "dates": {"d": {"format": "%d.%m.%Y", "day_first": True}},
        "sentinels": {"n": [-999.0]},
        "spelling": {"t": {"yes": "Yes", "no": "No"}},
    }

    def read(self, code, table):
        return code["valid_values"](code["typed_table"](pd.DataFrame(table), self.RULES), self.RULES)

    def test_it_is_read_by_the_rules_found_before(self, code):
        new = self.read(
            code,
            {
                "d": ["02.01.2020", "?", "31.12.2021"], "t": [" YES", "no", "maybe"], "n": ["1.000,5",
                "-999", "inf"],
                "f": [True, False, None], "z": [7.0, 8.0, None], "more": [1, 2, 3],
            },
        )  # fmt: skip
        assert list(new.columns) == ["n", "t", "d", "f", "z"]
        assert new["n"].tolist() == pytest.approx([1000.5, NAN, NAN], nan_ok=True)
        assert new["t"].tolist() == ["Yes", "No", "maybe"]
        assert new["d"].tolist() == [pd.Timestamp("2020-01-02"), pd.NaT, pd.Timestamp("2021-12-31")]
        assert new["f"].tolist() == pytest.approx([1, 0, NAN], nan_ok=True)
        assert new["z"].tolist()[:2] == ["7", "8"]

    def test_durations_are_seconds_as_parquet_has_them_and_as_text(self, code):
        spans = pd.Series(pd.to_timedelta([90061, None, -3600.5], unit="s"))
        for values in (spans, spans.astype(str).where(spans.notna(), None)):
            read = code["values_of_kind"](values, "numeric")
            assert read.tolist() == pytest.approx([90061.0, NAN, -3600.5], nan_ok=True)
        assert code["values_of_kind"](pd.Series(["5", "7"]), "numeric").tolist() == [5.0, 7.0]

    def test_columns_that_are_missing_stay_missing(self, code):
        assert list(self.read(code, {"t": ["yes"]}).columns) == ["t"]

    def test_a_column_read_as_numbers_this_time_needs_no_parsing(self, code):
        assert self.read(code, {"n": [1.5, -999.0]})["n"].tolist() == pytest.approx([1.5, NAN], nan_ok=True)

    def test_the_types_of_other_readers_become_plain(self, code):
        table = pd.DataFrame({"n": pd.array([1, None], dtype="Int64"), "t": pd.Categorical(["yes", None])})
        read = self.read(code, table)
        assert read["n"].dtype == "float64"
        assert read["t"].tolist()[0] == "Yes"
