"""How models are scored and compared, and how the work is sized by the table's shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn import metrics
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import Ridge
from sklearn.model_selection import train_test_split
from sklearn.pipeline import Pipeline

from detent.flows.notebook.domain import scores as probe_scores
from detent.flows.notebook.domain.metric_words import LOWER_IS_BETTER
from detent.flows.notebook.recipes.comparison_code import COMPARISON, SCORES, SIZES
from detent.flows.notebook.recipes.split_code import SPLIT


def cell(*code: str, **names: Any) -> dict[str, Any]:
    """The variables after code has run over some; scikit-learn's scores are imported."""
    found = {"np": np, "pd": pd, **vars(metrics), **names}
    for part in code:
        exec(part, found)
    return found


def scoring(labels: Sequence[Any] = ()) -> dict[str, Any]:
    return cell(SCORES, IS_CLASSIFICATION=bool(labels), LABELS=list(labels))


def answers(labels: Sequence[Any], rows: int = 60) -> tuple[pd.Series, np.ndarray, pd.DataFrame]:
    """Labels of rows, guesses that are mostly right, and probabilities with many ties."""
    rng = np.random.default_rng(len(labels))
    places = rng.integers(0, len(labels), rows)
    guesses = np.where(rng.random(rows) < 0.7, places, rng.integers(0, len(labels), rows))
    chances = rng.random((rows, len(labels))).round(1) + 0.05 + np.eye(len(labels))[places]
    chances /= chances.sum(axis=1, keepdims=True)
    pick = pd.Series(list(labels))
    return (
        pick.iloc[places].set_axis(np.arange(rows) + 500),
        pick.iloc[guesses].to_numpy(),
        pd.DataFrame(chances.round(2), columns=list(labels)),
    )


class TestScoresOfNumbers:
    def test_they_are_those_of_scikit_learn(self) -> None:
        truth = pd.Series([3.0, 50.0, 7.0, 1.0])
        guess = np.array([4.0, 40.0, 7.5, 3.0])
        assert scoring()["scores_of"](truth, guess) == {
            "r2": metrics.r2_score(truth, guess),
            "rmse": metrics.root_mean_squared_error(truth, guess),
            "mse": metrics.mean_squared_error(truth, guess),
            "mae": metrics.mean_absolute_error(truth, guess),
            "mape": metrics.mean_absolute_percentage_error(truth, guess),
        }

    def test_a_single_row_has_no_r2(self) -> None:
        scores = scoring()["scores_of"](pd.Series([3.0]), np.array([4.0]))
        assert np.isnan(scores["r2"])
        assert scores["rmse"] == 1.0


class TestScoresOfClasses:
    @pytest.mark.parametrize("labels", [("no", "yes"), (0, 1), (False, True), (1.0, 2.0)])
    def test_of_two_the_last_is_the_positive_one(self, labels: tuple[Any, Any]) -> None:
        truth, guess, chances = answers(labels)
        found = scoring(labels)["scores_of"](truth, guess, chances)
        one = {"pos_label": labels[1]}
        assert found == pytest.approx(
            {
                "accuracy": metrics.accuracy_score(truth, guess),
                "balanced_accuracy": metrics.balanced_accuracy_score(truth, guess),
                "f1": metrics.f1_score(truth, guess, **one),
                "precision": metrics.precision_score(truth, guess, **one),
                "recall": metrics.recall_score(truth, guess, **one),
                "auc": metrics.roc_auc_score(truth == labels[1], chances[labels[1]]),
                "log_loss": -np.log([chances.loc[row, label] for row, label in enumerate(truth)]).mean(),
            },
            rel=1e-12,
        )

    @pytest.mark.parametrize("labels", [("c", "a", "b"), (3, 1, 2, 7)])
    def test_of_more_all_count_equally(self, labels: tuple[Any, ...]) -> None:
        labels = tuple(sorted(labels))
        truth, guess, chances = answers(labels)
        chances = chances.div(chances.sum(axis=1), axis=0)
        found = scoring(labels)["scores_of"](truth, guess, chances)
        every = {"average": "macro"}
        assert found == pytest.approx(
            {
                "accuracy": metrics.accuracy_score(truth, guess),
                "balanced_accuracy": metrics.balanced_accuracy_score(truth, guess),
                "f1": metrics.f1_score(truth, guess, **every),
                "precision": metrics.precision_score(truth, guess, **every),
                "recall": metrics.recall_score(truth, guess, **every),
                "auc": metrics.roc_auc_score(truth, chances, multi_class="ovr", average="macro"),
                "log_loss": metrics.log_loss(truth, chances, labels=list(labels)),
            },
            rel=1e-12,
        )

    @pytest.mark.parametrize("labels", [("no", "yes"), ("a", "b", "c", "d")])
    @pytest.mark.parametrize("present", [1, 2])
    def test_rows_that_lack_a_class_are_scored_as_the_flow_measures_them(
        self, labels: tuple[str, ...], present: int
    ) -> None:
        # Section 6: test_performance equals the probe's own figures, to 1e-9.
        truth, guess, chances = answers(labels, 90)
        rows = np.isin(truth, labels[:present])
        truth, guess, chances = truth[rows], guess[rows], chances[rows].reset_index(drop=True)
        found = scoring(labels)["scores_of"](truth, guess, chances)
        expected = probe_scores.scores_of("classification", truth, guess, chances, labels)
        assert found == pytest.approx(expected, rel=1e-9, nan_ok=True)

    def test_a_class_that_the_model_never_saw_has_no_chance(self) -> None:
        class Model:
            classes_ = ("a", "c")

            def predict_proba(self, rows: pd.DataFrame) -> np.ndarray:
                return np.array([[0.25, 0.75]] * len(rows))

        chances = scoring(("a", "b", "c"))["chances_of"](Model(), pd.DataFrame({"x": [1, 2]}))
        assert chances.to_dict("list") == {"a": [0.25] * 2, "b": [0.0] * 2, "c": [0.75] * 2}


class TestBest:
    def best(self, primary: str, **folds: list[float]) -> list[str]:
        higher = primary not in LOWER_IS_BETTER
        names = cell(SCORES, COMPARISON, PRIMARY=primary, HIGHER_IS_BETTER=higher)
        tables = {name: pd.DataFrame({primary: scores}) for name, scores in folds.items()}
        found: list[str] = names["best_names"](tables, len(folds))
        return found

    def test_more_is_better_for_shares(self) -> None:
        assert self.best("r2", low=[0.1, 0.2], high=[0.5, 0.6], negative=[-3.0, -1.0]) == [
            "high", "low", "negative",
        ]  # fmt: skip

    def test_less_is_better_for_errors(self) -> None:
        assert self.best("rmse", large=[5.0, 6.0], small=[1.0, 2.0]) == ["small", "large"]

    def test_one_that_a_fold_could_not_score_comes_last(self) -> None:
        assert self.best("rmse", broken=[0.1, np.nan], worst=[900.0, 900.0])[0] == "worst"
        assert self.best("auc", broken=[1.0, np.nan], worst=[0.1, 0.1])[0] == "worst"

    def test_an_error_of_nothing_is_the_best(self) -> None:
        assert self.best("rmse", good=[0.1, 0.1], perfect=[0.0, 0.0])[0] == "perfect"


class TestLimits:
    # 9.1: each metric has a good side.
    @pytest.mark.parametrize(
        ("comparison", "below", "equal", "above"),
        [
            ("<", True, False, False),
            ("<=", True, True, False),
            (">", False, False, True),
            (">=", False, True, True),
        ],
    )
    def test_each_comparison(self, comparison: str, below: bool, equal: bool, above: bool) -> None:
        meets = cell(COMPARISON)["meets"]
        limit = {"metric": "r2", "comparison": comparison, "value": 0.5}
        assert [meets(limit, {"r2": score}, {}) for score in (0.4, 0.5, 0.6)] == [below, equal, above]

    def test_the_baseline_is_to_be_beaten_and_not_to_be_reached(self) -> None:
        meets = cell(COMPARISON)["meets"]
        error = {"metric": "rmse", "comparison": "<", "value": "baseline"}
        share = {"metric": "balanced_accuracy", "comparison": ">", "value": "baseline"}
        assert [meets(error, {"rmse": score}, {"rmse": 2.0}) for score in (1.9, 2.0, 2.1)] == [1, 0, 0]
        assert [
            meets(share, {"balanced_accuracy": score}, {"balanced_accuracy": 0.5})
            for score in (0.4, 0.5, 0.6)
        ] == [0, 0, 1]

    @pytest.mark.parametrize("comparison", ["<", "<=", ">", ">="])
    def test_what_could_not_be_scored_keeps_no_limit(self, comparison: str) -> None:
        limit = {"metric": "auc", "comparison": comparison, "value": 0.5}
        assert cell(COMPARISON)["meets"](limit, {"auc": np.nan}, {}) is False


class TestTables:
    def test_a_bar_in_a_name_breaks_no_row(self) -> None:
        text = cell(COMPARISON)["markdown_table"]([{"model": "a|b", "rmse": 12345.678}])
        assert text.splitlines()[-1] == "| a/b | 12,346 |"


def sized(rows: int, columns: int, classes: int = 0, encoded: int = 0, wanted: int = 2) -> dict[str, Any]:
    """The rules for a table of so many training rows and numbers."""
    index = pd.RangeIndex(rows)
    labels = pd.Series(np.arange(rows) % max(classes, 1), index=index).map("class {}".format)
    return cell(
        SPLIT,
        SIZES,
        X_train=pd.DataFrame(index=index, columns=range(columns), dtype=float),
        y_train=labels,
        LABELS=sorted(labels.unique()) if classes else [],
        IS_CLASSIFICATION=classes > 0,
        N_JOBS=wanted,
        RANDOM_STATE=42,
        encoded_columns=encoded or columns,
        columns_by_kind=lambda X: {"numbers": list(X), "dates": [], "texts": []},
        train_test_split=train_test_split,
        clone=lambda model: model,
    )


class TestSizes:
    # 9.2: sized by the table's shape, so that no cell takes over a third of the time it may.
    def test_small_tables_are_used_whole_in_one_process(self) -> None:
        rules = sized(900, 30)
        assert len(rules["some_rows"](2_400_000)) == 900
        assert rules["jobs_for"](rules["X_train"]) == 1
        assert rules["forest_shape"](900) == {"n_estimators": 100, "max_samples": None}

    def test_a_long_table_is_compared_on_a_part(self) -> None:
        rules = sized(240_000, 30)
        assert len(rules["some_rows"](2_400_000)) == 80_000
        assert len(rules["some_rows"](30_000_000)) == 240_000  # the final fit takes all of them
        assert rules["jobs_for"](rules["X_train"]) == 2
        shape = rules["forest_shape"](240_000)
        assert shape["n_estimators"] == 40
        assert shape["max_samples"] * 240_000 == pytest.approx(10_000)

    def test_a_wide_table_too(self) -> None:
        rules = sized(4000, 1000)
        assert len(rules["some_rows"](2_400_000)) == 2400
        assert len(rules["some_rows"](600_000)) == 2000
        assert len(rules["some_rows"](30_000_000)) == 4000

    def test_many_classes_cost_as_many_columns(self) -> None:
        assert len(sized(50_000, 100, classes=10)["some_rows"](2_400_000)) == 2400
        assert len(sized(50_000, 100, classes=2)["some_rows"](2_400_000)) == 24_000

    def test_the_part_is_the_same_each_time_and_has_every_class(self) -> None:
        one, other = (sized(50_000, 100, classes=10) for _ in range(2))
        rows = one["some_rows"](2_400_000)
        assert rows.equals(other["some_rows"](2_400_000))
        assert set(one["y_train"][rows].value_counts()) == {240}

    def test_forests_are_shaped_for_the_rows_that_they_are_fitted_on(self) -> None:
        rules = sized(240_000, 30)
        model = Pipeline([("features", "passthrough"), ("model", RandomForestRegressor(n_estimators=7))])
        shaped = rules["for_rows"](model, 60_000).get_params()
        assert shaped["model__max_samples"] * 60_000 == pytest.approx(10_000)
        assert shaped["model__n_estimators"] == 40
        plain = Pipeline([("features", "passthrough"), ("model", Ridge())])
        assert rules["for_rows"](plain, 60_000) is plain
