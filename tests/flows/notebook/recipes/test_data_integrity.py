"""Stage 2, first half: types, doubled observations, constants, sentinels, spelling."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from tests.flows.notebook.recipes import tables
from tests.flows.notebook.recipes.notebooks import COLLECTION, INTEGRITY, Notebook, notebook

DIMENSION, VALIDITY, COMPLETENESS, VERIFICATION = INTEGRITY


def cleaned(folder, table, problem, steps=INTEGRITY, **options) -> Notebook:
    return notebook(folder, table, problem, **options).cook(*COLLECTION, *steps)


class TestTypes:
    def test_numbers_and_dates_in_text_are_parsed(self, tmp_path):
        table = tables.houses()
        table["rent"] = [
            f"{value:,.2f} €".translate(str.maketrans(",.", ".,")) for value in table["price"] / 10
        ]
        table["sold"] = pd.date_range("2020-01-28", periods=len(table)).strftime("%d.%m.%Y")
        book = cleaned(tmp_path, table, "Predict price", [DIMENSION])
        typed = book["df_typed"]
        assert typed["rent"].tolist() == pytest.approx((table["price"] / 10).round(2).tolist())
        assert typed["sold"].tolist() == pd.date_range("2020-01-28", periods=len(table)).tolist()
        assert book["dimension_report"]["numbers_in_text"] == ["rent"]
        assert "`rent`" in book.texts[DIMENSION]
        assert "`sold`" in book.texts[DIMENSION]

    def test_texts_that_do_not_fit_are_counted_and_shown(self, tmp_path):
        table = tables.houses()
        table["way"] = [f"{n + 1} km" for n in range(len(table))]
        table.loc[[3, 4], "way"] = ["far away", "near"]
        book = cleaned(tmp_path, table, "Predict price", [DIMENSION])
        assert book["dimension_report"]["unreadable"]["way"] == {"cells": 2, "examples": ["far away", "near"]}
        assert book["df_typed"]["way"].isna().sum() == 2
        assert "2 cells" in book.texts[DIMENSION]

    def test_a_target_of_amounts_in_text_becomes_numbers(self, tmp_path):
        table = tables.houses()
        prices = table["price"].copy()
        table["price"] = [f"${value:,.0f}" for value in prices]
        book = cleaned(tmp_path, table, "Predict price")
        assert book["task_type"] == "regression"
        assert book["df_typed"]["price"].tolist() == prices.tolist()

    def test_true_and_false_become_numbers_in_features_and_stay_in_a_target(self, tmp_path):
        table = tables.customers().assign(active=np.tile([True, False], 80))
        table["churn"] = table["churn"] == "yes"
        book = cleaned(tmp_path, table, "Predict churn")
        assert book["df_typed"]["active"].tolist() == [1.0, 0.0] * 80
        assert book["df_typed"]["churn"].dtype == bool

    def test_durations_are_numbers(self, tmp_path):
        """As Parquet has them: each differs, and none is a category or names its row."""
        book = cleaned(tmp_path, tables.houses(), "Predict price")
        spans = pd.Series(pd.to_timedelta(range(40), unit="h"))
        assert book["column_rule"]("ride", spans) == ("numeric", None, None)
        assert book["target_rule"](spans) == ("numeric", None, None)

    def test_the_raw_table_is_untouched_and_rows_keep_their_index(self, tmp_path):
        table = tables.houses()
        table.loc[:4, "price"] = np.nan
        book = notebook(tmp_path, table, "Predict price").cook(*COLLECTION)
        before = book["raw_dataset"].copy()
        book.cook(*INTEGRITY)
        assert book["raw_dataset"].equals(before)
        assert book["df_typed"].index.tolist() == list(range(5, 120))
        assert book["df_typed"]["price"].equals(before["price"].loc[5:])


class TestRowsAndColumns:
    def test_doubled_observations_are_dropped_by_key(self, tmp_path):
        table = tables.houses()
        table.insert(0, "house_id", np.arange(len(table)) + 500)
        book = cleaned(tmp_path, pd.concat([table, table.head(7)], ignore_index=True), "Predict price")
        assert len(book["df_typed"]) == 120
        assert book["dimension_report"]["dropped_rows"] == 7
        assert "7 rows repeated" in book.texts[DIMENSION]

    def test_equal_rows_without_a_key_are_kept_and_reported(self, tmp_path):
        table = tables.mushrooms()
        book = cleaned(tmp_path, table, "Predict edible")
        assert len(book["df_typed"]) == len(table)
        equal = int(table.duplicated().sum())
        assert book["dimension_report"]["equal_rows"] == equal
        assert f"earlier one: {equal}" in book.texts[DIMENSION]

    def test_rows_that_share_a_key_and_differ_are_kept(self, tmp_path):
        table = tables.houses()
        table.insert(0, "house_id", np.repeat(np.arange(60), 2))
        book = cleaned(tmp_path, table, "Predict price", split="shuffled")
        assert len(book["df_typed"]) == 120

    def test_constant_columns_go_and_copies_are_named(self, tmp_path):
        table = tables.houses().assign(const=3, empty=np.nan, partly=np.where(np.arange(120) % 2, "x", None))
        table["size_again"] = table["size"]
        book = cleaned(tmp_path, table, "Predict price")
        assert set(book["dimension_report"]["dropped_columns"]) == {"const", "empty"}
        assert "partly" in book["df_typed"].columns
        assert book["dimension_report"]["copies"] == {"size_again": "size"}
        assert "`size_again`" in book.texts[DIMENSION]


class TestValidity:
    def test_sentinels_of_nines_become_missing_where_they_stand_apart(self, tmp_path):
        table = tables.houses()
        table["age"] = table["age"].astype(float)
        table.loc[:5, "age"] = -999
        table["score"] = np.tile([999, 998, 997, 500, 400, 100], 20)  # 999 belongs to these
        table["code"] = np.tile([1, 2, 3, 99], 30)
        book = cleaned(tmp_path, table, "Predict price")
        assert book["validity_report"]["sentinels"] == {"age": {"-999": 6}, "code": {"99": 30}}
        assert book["df_typed"]["age"].isna().sum() == 6
        assert book["df_typed"]["score"].max() == 999
        assert "-999 in `age` (6 cells)" in book.texts[VALIDITY]

    def test_a_target_keeps_its_extremes(self, tmp_path):
        table = tables.houses()
        table.loc[:5, "price"] = 9_999_999
        assert cleaned(tmp_path, table, "Predict price")["df_typed"]["price"].max() == 9_999_999

    def test_infinities_become_missing_and_a_target_without_end_drops_its_row(self, tmp_path):
        table = tables.houses()
        table.loc[3, "size"] = np.inf
        table.loc[7, "price"] = -np.inf
        book = cleaned(tmp_path, table, "Predict price")
        assert book["validity_report"]["infinities"] == {"size": 1, "price": 1}
        assert np.isnan(book["df_typed"].loc[3, "size"])
        assert 7 not in book["df_typed"].index

    def test_one_category_has_one_spelling_the_most_frequent(self, tmp_path):
        table = tables.houses()
        table["town"] = np.tile(["Bonn", "Bonn", " bonn", "BONN ", "Ulm", "?"], 20)
        book = cleaned(tmp_path, table, "Predict price")
        assert set(book["df_typed"]["town"].dropna()) == {"Bonn", "Ulm"}
        assert book["df_typed"]["town"].isna().sum() == 20
        assert book["validity_report"]["respelled"] == {"town": ["BONN", "bonn"]}

    def test_labels_are_spelled_alike_too(self, tmp_path):
        table = tables.mushrooms()
        table["edible"] = [
            f" {label.upper()}" if n % 9 == 0 else label for n, label in enumerate(table["edible"])
        ]
        book = cleaned(tmp_path, table, "Predict edible")
        assert set(book["df_typed"]["edible"]) == {"yes", "no"}


class TestRetries:
    """What fails for one column must not fail the cell again, and nothing may get worse."""

    @pytest.mark.parametrize("iteration", [2, 3])
    def test_a_retry_types_as_well_as_the_first_time(self, tmp_path, iteration):
        table = tables.customers()
        table["paid"] = [f"${value:,.2f}" for value in table["spent"]]
        first = cleaned(tmp_path / "first", table, "Predict churn")
        book = notebook(tmp_path / "again", table, "Predict churn").cook(
            *COLLECTION, *INTEGRITY, iteration=iteration
        )
        assert book["df_typed"].equals(first["df_typed"])
        assert book["df_cleaned"].equals(first["df_cleaned"])
