"""Columns are told apart by their values, and by their names where values do not tell."""

import numpy as np
import pandas as pd
import pytest

from detent.flows.notebook.domain.column_kinds import column_facts, column_kinds, sentinels
from detent.flows.notebook.domain.text_values import date_format, numbers_in_text


def column(values, name="x"):
    return pd.Series(values, name=name)


@pytest.mark.parametrize(
    ("values", "name", "kind"),
    [
        ([1.5, 2.5, 2.5, 4.0], "size", "numeric"),
        ([3, 1, 2, 2], "rooms", "numeric"),
        ([9.1, 9.2, 9.3, 9.7], "latitude", "numeric"),
        (pd.to_timedelta([90, 7000, 12, None], unit="s"), "ride", "numeric"),
        (["a", "b", "a", None], "zone", "categorical"),
        ([True, False, True, True], "sold", "categorical"),
        ([True, None, False, True], "sold", "categorical"),
        (pd.to_datetime(["2020-01-01", "2021-01-01", None]), "sold", "datetime"),
        (["2020-01-01", "2021-05-01", "?"], "sold", "datetime"),
        (["01.02.2020", "13.02.2020", "14.02.2020"], "sold", "datetime"),
        ([20200131, 20200229, 20200229], "sale_date", "datetime"),
        ([20200131, 20200229, 20200229], "price", "numeric"),
        (["$12,500", "$9,000", "$12,500"], "price", "numeric"),
        (["39", "?", "41", "39"], "age", "numeric"),
        (["it is a long way to go home", "so many words stand here once again"] * 2, "note", "text"),
        (["Braund, Mr. Owen", "Cumings, Mrs. John", "Heikkinen, Miss Laina"], "Name", "id"),
        ([526301100, 526350040, 526351010], "PID", "id"),
        ([4, 1, 3, 2], "order", "id"),
        ([1, 1, 2, 2], "patient_id", "numeric"),
        ([8450, 9600, 11250], "LotArea", "numeric"),
        (["007", "008", "010", "007"], "code", "categorical"),
        ([7, 7, 7], "x", "constant"),
        ([None, None, None], "x", "constant"),
        (["?", "a", "a"], "x", "constant"),
    ],
)  # fmt: skip
def test_a_column_has_its_kind(values, name, kind):
    assert column_facts(column(values, name)).kind == kind


@pytest.mark.parametrize(
    ("texts", "numbers"),
    [
        (["$12,500", "$8,000.50"], [12500, 8000.5]),
        (["48,000 km", "950 km", "1,200km"], [48000, 950, 1200]),
        (["12%", "7.5 %", "100%"], [12, 7.5, 100]),
        (["€1.234,50", "€7,00"], [1234.5, 7]),
        (["1 234 m²", "12 m²"], [1234, 12]),
        (["-3.5 °C", "+4 °C", "−1 °C"], [-3.5, 4, -1]),
        (["$1.2M", "$500K", "$3M"], [1.2e6, 5e5, 3e6]),
        (["1 star", "5 stars"], [1, 5]),
        (["USD 5", "USD 7"], [5, 7]),
        (["5", "?", None, "7"], [5, None, None, 7]),
    ],
)
def test_numbers_are_read_from_text(texts, numbers):
    found = numbers_in_text(column(texts))
    assert found is not None
    assert [None if np.isnan(value) else value for value in found] == numbers


@pytest.mark.parametrize(
    "texts",
    [
        ["12A", "14B", "3C"],
        ["01.02.2020", "02.02.2020"],
        ["030 1234", "030 98765"],
        ["<=50K", ">50K"],
        ["1st", "2nd", "3rd"],
        ["10-20", "20-30"],
        ["007", "008"],
        ["192.168.1.1", "10.0.0.1"],
        ["A1", "B2"],
        ["5 km", "3 miles", "4 km"],
        ["", None],
    ],
)
def test_texts_with_digits_are_not_all_numbers(texts):
    assert numbers_in_text(column(texts)) is None


def test_one_odd_value_in_twenty_does_not_hide_the_numbers():
    assert numbers_in_text(column([f"{n} km" for n in range(39)] + ["far"])) is not None
    assert numbers_in_text(column([f"{n} km" for n in range(9)] + ["far"])) is None


@pytest.mark.parametrize(
    ("texts", "format"),
    [
        (["2020-01-31", "2021-12-01"], "%Y-%m-%d"),
        (["2020-01-31 10:00:00", "2021-12-01 11:30:00"], "%Y-%m-%d %H:%M:%S"),
        (["31.01.2020", "01.02.2020"], "%d.%m.%Y"),
        (["01/31/2020", "02/01/2020"], "%m/%d/%Y"),
        (["31/01/2020", "01/02/2020"], "%d/%m/%Y"),
        (["Jan 31, 2020", "Feb 1, 2020"], "%b %d, %Y"),
        (["31-Jan-2020", "01-Feb-2020"], "%d-%b-%Y"),
        (["2020-01-31T10:00:00Z", "2021-12-01T11:30:00.5Z"], "ISO8601"),
        (["2020-01", "2021-12"], "%Y-%m"),
        (["red", "green"], None),
        (["1.5", "2.25"], None),
        (["12-34", "99-01"], None),
    ],
)
def test_dates_are_read_from_text(texts, format):
    assert date_format(column(texts)) == format


class TestSentinels:
    def test_a_repeated_number_far_off_stands_for_missing(self):
        assert sentinels(column([1.0, 5.0, 3.0, -999.0, -999.0])) == (-999.0,)

    @pytest.mark.parametrize(
        "values", [[990, 995, 999, 999], [1, 5, 3, 999], [1, 2, 3], [-120, -99, -99, 50]]
    )
    def test_other_numbers_stand_for_themselves(self, values):
        assert sentinels(column(values)) == ()


def test_missing_texts_are_counted():
    facts = column_facts(column(["a", "?", None, "n/a", "b", "a"]))
    assert (facts.missing, facts.distinct) == (3, 2)


def test_odd_names_are_only_names():
    table = pd.DataFrame({'a"b': [1, 2, 2], "it's": ["x", "y", "x"], "": [1, 1, 1]})
    assert column_kinds(table) == {'a"b': "numeric", "it's": "categorical", "": "constant"}
