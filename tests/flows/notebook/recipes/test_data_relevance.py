"""Stage 1, second half: what a row is, which columns are of use, what will be checked."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from detent.flows.notebook.domain.problem import Split
from tests.flows.notebook.recipes import tables
from tests.flows.notebook.recipes.notebooks import COLLECTION, Notebook, notebook

UNIT, RELEVANCE, PCS = COLLECTION[3:]


def collected(folder, table, problem, **options) -> Notebook:
    return notebook(folder, table, problem, **options).cook(*COLLECTION)


class TestObservationUnit:
    def test_a_key_tells_that_rows_are_doubled(self, tmp_path):
        table = tables.houses()
        table.insert(0, "house_id", np.arange(len(table)) + 500)
        book = collected(tmp_path, pd.concat([table, table.head(7)]), "Predict price")
        report = book["observation_unit_report"]
        assert (report["keys"], report["equal_rows"]) == (["house_id"], 7)
        assert "7 of 127 rows" in book.texts[UNIT]

    def test_without_a_key_equal_rows_are_counted_and_no_more(self, tmp_path):
        table = tables.mushrooms()
        book = collected(tmp_path, table, "Predict edible")
        assert book["observation_unit_report"]["keys"] == []
        assert book["observation_unit_report"]["equal_rows"] == int(table.duplicated().sum()) > 0
        assert "they stay" in book.texts[UNIT]

    def test_numbers_that_happen_to_differ_are_no_key(self, tmp_path):
        table = tables.houses()
        table["measure"] = np.random.default_rng(0).normal(size=len(table))
        book = collected(tmp_path, pd.concat([table, table.head(3)]), "Predict price")
        assert book["observation_unit_report"]["keys"] == []


class TestRelevance:
    def test_every_column_is_used_or_left_out_with_a_reason(self, tmp_path):
        table = tables.houses().assign(const=1, empty=np.nan)
        table.insert(0, "house_id", np.arange(len(table)) + 500)
        book = collected(tmp_path, table, "Predict price")
        report = book["relevance_report"]
        assert report["usable_features"] == ["size", "rooms", "town", "age"]
        assert set(report["excluded"]) == {"house_id", "const", "empty"}
        assert all(reason for reason in report["excluded"].values())
        assert "**4 columns**" in book.texts[RELEVANCE]

    def test_a_person_may_keep_a_column(self, tmp_path):
        table = tables.houses()
        table.insert(0, "house_id", np.arange(len(table)) + 500)
        book = collected(tmp_path, table, "Predict price", keep=["house_id"])
        assert "house_id" in book["relevance_report"]["usable_features"]

    def test_dates_and_groups_are_listed_and_the_group_of_the_split_is_no_feature(self, tmp_path):
        table = tables.houses().assign(owner=np.repeat(np.arange(24), 5))
        table["sold"] = pd.date_range("2020-01-01", periods=len(table)).strftime("%d.%m.%Y")
        book = collected(tmp_path, table, "Predict price", split="group:owner")
        report = book["relevance_report"]
        assert report["dates"] == ["sold"]
        assert report["groups"][0] == "owner"
        assert "owner" in report["excluded"]
        assert "sold" in report["usable_features"]

    def test_thresholds_become_data(self, tmp_path):
        book = collected(tmp_path, tables.houses(), "Predict price with RMSE < 25000 and R² of at least 0.85")
        assert book["problem_thresholds"] == [
            {"metric": "rmse", "comparison": "<", "value": 25000.0},
            {"metric": "r2", "comparison": ">=", "value": 0.85},
        ]

    @pytest.mark.parametrize(
        ("table", "problem", "rule"),
        [
            (tables.houses, "Predict price", {"metric": "rmse", "comparison": "<", "value": "baseline"}),
            (
                tables.customers,
                "Predict churn",
                {"metric": "balanced_accuracy", "comparison": ">", "value": "baseline"},
            ),
        ],
    )
    def test_without_a_threshold_the_baseline_is_to_be_beaten(self, tmp_path, table, problem, rule):
        assert collected(tmp_path, table(), problem)["problem_thresholds"] == [rule]

    def test_a_retry_uses_what_is_left_rather_than_nothing(self, tmp_path):
        table = pd.DataFrame({"key": np.arange(30) * 7, "y": np.tile(["a", "b"], 15)})
        reading = notebook(tmp_path, table, "Predict y", keep=["key"]).kitchen.problem
        book = Notebook(tmp_path, replace(reading, keep=())).cook(*COLLECTION[:4])
        with pytest.raises(AssertionError, match="usable_features"):
            book.cook(RELEVANCE)
        assert book.cook(RELEVANCE, iteration=2)["relevance_report"]["usable_features"] == ["key"]


class TestHypotheses:
    def test_what_will_be_checked_names_split_seed_and_limits(self, tmp_path):
        reading = notebook(tmp_path, tables.houses(), "Predict price, RMSE < 25000").kitchen.problem
        reading = replace(reading, split=Split("time", "age", "later rows are asked for"))
        book = Notebook(tmp_path, reading).cook(*COLLECTION)
        framework = book["pcs_hypothesis_framework"]
        assert "time" in framework["predictability"]["check"]
        assert "rmse < 25000.0" in framework["predictability"]["fails_if"]
        assert framework["predictability"]["why_this_split"] == "later rows are asked for"
        assert "42" in framework["computability"]["check"]
        assert framework["computability"]["data_sha256"] == book["data_inventory_checklist"]["sha256"]
        assert "10%" in framework["stability"]["fails_if"]

    def test_rows_without_target_are_counted(self, tmp_path):
        table = tables.houses()
        table.loc[:8, "price"] = None
        book = collected(tmp_path, table, "Predict price")
        assert book["data_existence_report"]["rows_without_target"] == 9
        assert "9 rows without it" in book.texts[PCS]
