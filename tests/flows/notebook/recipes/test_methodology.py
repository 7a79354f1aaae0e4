"""Stage 4: the variables that later stages read, with their exact keys."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from detent.flows.notebook.recipes.recipe import RecipeSettings
from tests.flows.notebook.recipes import tables
from tests.flows.notebook.recipes.notebooks import COLLECTION, INTEGRITY, METHODOLOGY, Notebook, notebook

PROPOSAL, EVALUATION, DOCUMENT = METHODOLOGY


def planned(folder, table, problem, **options) -> Notebook:
    book = notebook(folder, table, problem, **options).cook(*COLLECTION, *INTEGRITY)
    book.names["modeling_recommendations"] = ["Judge by RMSE."]
    return book.cook(*METHODOLOGY)


class TestProposal:
    def test_every_usable_feature_has_a_treatment_and_others_a_reason(self, tmp_path):
        table = tables.customers().assign(const=1)
        table.insert(0, "customer_id", np.arange(160) + 500)
        table["note"] = [f"this customer wrote a note of many words, number {n % 40}" for n in range(160)]
        strategy = planned(tmp_path, table, "Predict churn")["feature_engineering_strategy"]
        assert set(strategy) == {"numeric", "categorical", "datetime", "text", "left_out", "log_target"}
        assert strategy["numeric"] == ["calls", "spent"]
        assert strategy["categorical"] == ["plan"]
        assert strategy["datetime"] == ["since"]
        assert strategy["text"] == ["note"]
        assert set(strategy["left_out"]) == {"customer_id", "const"}
        assert all(strategy["left_out"].values())

    def test_there_are_three_candidates_or_more_for_each_task(self, tmp_path):
        book = planned(tmp_path / "regression", tables.houses(), "Predict price")
        assert [method["name"] for method in book["model_method_candidates"]][:3] == [
            "Ridge", "RandomForest", "HistGradientBoosting",
        ]  # fmt: skip
        book = planned(tmp_path / "classification", tables.customers(), "Predict churn")
        assert book["model_method_candidates"][0]["name"] == "LogisticRegression"
        assert all(set(method) == {"name", "family", "why"} for method in book["model_method_candidates"])

    def test_the_skew_of_all_rows_does_not_decide_for_the_logarithm(self, tmp_path):
        """The held-out rows are among them; stage 5 asks the training rows."""
        table = tables.houses()
        table["price"] = np.exp(table["price"] / 60_000)
        skewed = planned(tmp_path / "skewed", table, "Predict price")
        assert skewed["feature_engineering_strategy"]["log_target"] is True
        assert f"{table['price'].skew():.2f}" not in skewed["methodology_document"]
        even = planned(tmp_path / "even", tables.houses(), "Predict price")
        assert even["feature_engineering_strategy"]["log_target"] is True
        classes = planned(tmp_path / "classes", tables.customers(), "Predict churn")
        assert classes["feature_engineering_strategy"]["log_target"] is False


class TestEvaluation:
    def test_the_framework_has_these_keys(self, tmp_path):
        book = planned(tmp_path, tables.houses(), "Predict price, R2 above 0.8, RMSE below 30000")
        assert book["evaluation_framework"] == {
            "primary_metric": "r2",
            "higher_is_better": True,
            "folds": 5,
            "split": {"kind": "shuffled", "column": None},
            "why": "the rows are taken to be independent of each other",
            "test_size": 0.2,
            "seed": 42,
            "baseline": "mean",
            "thresholds": [
                {"metric": "r2", "comparison": ">", "value": 0.8},
                {"metric": "rmse", "comparison": "<", "value": 30000.0},
            ],
        }

    @pytest.mark.parametrize(
        ("problem", "constant"),
        [
            ("Predict price", "mean"),
            ("Predict price, MAE below 9", "median"),
            ("Predict town", "most_frequent"),
        ],
    )
    def test_the_baseline_is_the_constant_that_is_best_by_the_metric(self, tmp_path, problem, constant):
        # Against the median a model of pure noise that answers about the mean has the smaller RMSE.
        framework = planned(tmp_path, tables.houses(), problem)["evaluation_framework"]
        assert framework["baseline"] == constant

    def test_without_a_threshold_the_metric_follows_the_task(self, tmp_path):
        framework = planned(tmp_path / "r", tables.houses(), "Predict price")["evaluation_framework"]
        assert (framework["primary_metric"], framework["higher_is_better"]) == ("rmse", False)
        framework = planned(tmp_path / "c", tables.customers(), "Predict churn")["evaluation_framework"]
        assert (framework["primary_metric"], framework["higher_is_better"]) == ("balanced_accuracy", True)
        assert (framework["split"]["kind"], framework["baseline"]) == ("stratified", "most_frequent")

    def test_settings_are_taken_over(self, tmp_path):
        reading = notebook(tmp_path, tables.houses(), "Predict price").kitchen.problem
        book = Notebook(tmp_path, reading, settings=RecipeSettings(seed=7, test_size=0.3)).cook(
            *COLLECTION, *INTEGRITY
        )
        framework = book.cook(*METHODOLOGY[:2])["evaluation_framework"]
        assert (framework["seed"], framework["test_size"], book["RANDOM_STATE"]) == (7, 0.3, 7)

    def test_few_rows_mean_few_folds(self, tmp_path):
        assert (
            planned(tmp_path / "r", tables.houses(50), "Predict price")["evaluation_framework"]["folds"] == 3
        )
        table = tables.customers(60, share=0.1)  # six rows of the smaller class, four of them for training
        assert planned(tmp_path / "c", table, "Predict churn")["evaluation_framework"]["folds"] == 2

    def test_groups_bound_the_folds_and_the_split_says_why(self, tmp_path):
        table = tables.houses().assign(owner=np.repeat(np.arange(4), 30))
        book = notebook(tmp_path, table, "Predict price")
        split = replace(
            book.kitchen.problem.split, kind="group", column="owner", why="new owners are asked for"
        )
        book = Notebook(tmp_path, replace(book.kitchen.problem, split=split, groups=("owner",)))
        book.cook(*COLLECTION, *INTEGRITY)
        book.cook(*METHODOLOGY[:2])
        framework = book["evaluation_framework"]
        assert (framework["folds"], framework["split"]) == (3, {"kind": "group", "column": "owner"})
        assert framework["why"] == "new owners are asked for"
        assert "owner" in book["feature_engineering_strategy"]["left_out"]


class TestDocument:
    def test_it_holds_question_features_candidates_split_and_limits(self, tmp_path):
        table = tables.houses().assign(const=1)
        book = planned(tmp_path, table, "Predict price, RMSE < 25000")
        document = book["methodology_document"]
        for part in ("Predict price, RMSE < 25000", "`size`", "`const`", "Ridge", "5 folds",
        "hold-out of 20%",
                     "rmse < 25000.0", "Judge by RMSE."):  # fmt: skip
            assert part in document

    def test_remarks_of_the_reading_are_in_it(self, tmp_path):
        reading = notebook(tmp_path, tables.houses(), "Predict price").kitchen.problem
        book = Notebook(tmp_path, replace(reading, warnings=("No limit for R2.",))).cook(
            *COLLECTION, *INTEGRITY
        )
        book.names["modeling_recommendations"] = []
        assert "No limit for R2." in book.cook(*METHODOLOGY)["methodology_document"]


def test_a_retry_plans_the_same(tmp_path):
    table = pd.concat([tables.customers()])
    first = planned(tmp_path, table, "Predict churn")
    before = {name: first[name] for name in ("evaluation_framework", "feature_engineering_strategy")}
    first.cook(*METHODOLOGY, iteration=2)
    assert {name: first[name] for name in before} == before
