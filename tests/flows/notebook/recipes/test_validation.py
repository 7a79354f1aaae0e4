"""Stage 6: the folds, the hold-out with its interval, later rows and other groups; each score is the true one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn import metrics
from sklearn.base import clone
from sklearn.model_selection import KFold

from detent.flows.notebook.recipes.recipe import Kitchen
from detent.flows.notebook.recipes.validation import cross_validation_assessment, holdout_evaluation
from tests.flows.notebook.recipes.model_notebooks import ModelNotebook

pytestmark = pytest.mark.timeout(600)  # the notebooks take minutes where the machine is busy

FOLDS, HOLDOUT, TEMPORAL, DOMAIN = (
    "cross_validation_assessment", "holdout_evaluation", "temporal_validation", "domain_generalization",
)  # fmt: skip


def truth(notebook: ModelNotebook, rows: str) -> pd.Series:
    """The target of rows, out of the raw table."""
    found: pd.Series = notebook["raw_dataset"].loc[notebook[rows].index, notebook["target_column"]]
    return found


class TestFolds:
    def test_each_fold_is_scored_on_the_rows_left_out(self, homes: ModelNotebook) -> None:
        X, y = homes["X_train"], truth(homes, "X_train")
        by_hand = []
        for train, valid in KFold(3, shuffle=True, random_state=42).split(X):
            model = clone(homes["final_model"]).fit(X.iloc[train], y.iloc[train])
            by_hand.append(metrics.root_mean_squared_error(y.iloc[valid], model.predict(X.iloc[valid])))
        assert homes["cv_scores"] == pytest.approx(by_hand)
        assert homes["cv_mean"] == pytest.approx(np.mean(by_hand))
        assert homes["cv_spread"] == pytest.approx(np.std(by_hand, ddof=1))

    def test_they_agree_with_those_the_model_was_chosen_by(
        self, homes: ModelNotebook, blooms: ModelNotebook
    ) -> None:
        for notebook in (homes, blooms):
            assert notebook["cv_mean"] == pytest.approx(notebook["cv_metrics"][notebook["PRIMARY"]])

    @pytest.mark.parametrize(("scores", "every"), [([1.0, 2.0, 3.0], True), ([1.0, 2.0, 9.0], False)])
    @pytest.mark.parametrize("higher", [True, False])
    def test_a_fold_that_is_no_better_than_the_baseline_is_told(
        self, homes: ModelNotebook, tmp_path: Path, scores: list[float], every: bool, higher: bool
    ) -> None:
        other = homes.branch(tmp_path)
        baseline = -4.0 if higher else 4.0
        other.names.update(
            cv_scores=[-score for score in scores] if higher else scores, HIGHER_IS_BETTER=higher
        )
        other.names["baseline_metrics"] = {other["PRIMARY"]: baseline}
        text = other.value(cross_validation_assessment(other.kitchen).result.strip())
        assert ("Every fold is better" in text) is every


class TestHoldOut:
    # P1, N-104: the score stated is that of the rows held out.
    def test_scores_of_numbers_are_scikit_learn_s(self, homes: ModelNotebook) -> None:
        y, predicted = truth(homes, "X_test"), homes["final_model"].predict(homes["X_test"])
        assert homes["test_performance"] == pytest.approx(
            {
                "r2": metrics.r2_score(y, predicted),
                "rmse": metrics.root_mean_squared_error(y, predicted),
                "mse": metrics.mean_squared_error(y, predicted),
                "mae": metrics.mean_absolute_error(y, predicted),
                "mape": metrics.mean_absolute_percentage_error(y, predicted),
                "n": 18,
            }
        )

    def test_scores_of_classes_are_scikit_learn_s(self, blooms: ModelNotebook) -> None:
        model, rows, y = blooms["final_model"], blooms["X_test"], truth(blooms, "X_test")
        chances, predicted = model.predict_proba(rows), model.predict(rows)
        expected = {
            "accuracy": metrics.accuracy_score(y, predicted),
            "balanced_accuracy": metrics.balanced_accuracy_score(y, predicted),
            "f1": metrics.f1_score(y, predicted, average="macro"),
            "precision": metrics.precision_score(y, predicted, average="macro"),
            "recall": metrics.recall_score(y, predicted, average="macro"),
            "auc": metrics.roc_auc_score(y, chances, multi_class="ovr"),
            "log_loss": metrics.log_loss(y, chances),
            "n": len(y),
        }
        assert blooms["test_performance"] == pytest.approx(expected)

    def test_it_is_no_score_of_rows_trained_with(self, homes: ModelNotebook) -> None:
        predicted = homes["final_model"].predict(homes["X_train"])
        known = metrics.root_mean_squared_error(homes["y_train"], predicted)
        assert abs(homes["test_performance"]["rmse"] / known - 1) > 0.05

    def test_the_baseline_answers_what_it_learned_of_the_training_rows(self, homes: ModelNotebook) -> None:
        answer = truth(homes, "X_train").mean()
        errors = truth(homes, "X_test") - answer
        assert homes["baseline_performance"]["rmse"] == pytest.approx(np.sqrt((errors**2).mean()))
        assert homes["baseline_performance"]["mae"] == pytest.approx(errors.abs().mean())

    def test_the_most_frequent_class_is_that_of_the_training_rows(self, blooms: ModelNotebook) -> None:
        answer = truth(blooms, "X_train").mode()[0]
        share = (truth(blooms, "X_test") == answer).mean()
        assert blooms["baseline_performance"]["accuracy"] == pytest.approx(share)

    def test_the_look_is_counted(self, homes: ModelNotebook) -> None:
        assert homes["holdout_looks"] == 1
        again = Kitchen(homes.kitchen.problem, homes.kitchen.settings, backtracks=1)
        assert "holdout_looks = 2" in holdout_evaluation(again).code
        assert "second and last" in holdout_evaluation(again).lead


class TestInterval:
    def test_it_is_that_of_rows_drawn_with_repeats(self, homes: ModelNotebook) -> None:
        y, predicted = truth(homes, "X_test").to_numpy(), homes["final_model"].predict(homes["X_test"])
        choice = np.random.default_rng(7)
        draws = [choice.integers(0, len(y), len(y)) for _ in range(4000)]
        errors = [np.sqrt(np.mean((y[drawn] - predicted[drawn]) ** 2)) for drawn in draws]
        low, high = np.percentile(errors, [2.5, 97.5])
        found = homes["holdout_interval"]["rmse"]
        assert found == pytest.approx([low, high], abs=0.2 * (high - low))
        assert found[0] < homes["test_performance"]["rmse"] < found[1]

    def test_every_score_has_one(self, homes: ModelNotebook, blooms: ModelNotebook) -> None:
        for notebook in (homes, blooms):
            assert set(notebook["holdout_interval"]) == set(notebook["test_performance"]) - {"n"}
            for low, high in notebook["holdout_interval"].values():
                assert low <= high

    def resampled(self, homes: ModelNotebook, folder: Path, groups: Sequence[int]) -> pd.DataFrame:
        """Scores over draws of rows whose errors hang on their group."""
        other = homes.branch(folder)
        other.names.update(
            units=pd.Series(groups),
            scores_of=lambda y, predicted, chances: {"mae": float(np.abs(y - predicted).mean())},
        )
        errors = np.repeat([1.0, 2.0, 3.0, 8.0], 10)
        found: pd.DataFrame = other["resampled_scores"](pd.Series(np.zeros(40)), errors, None, 300)
        return found

    def test_groups_are_drawn_whole(self, homes: ModelNotebook, tmp_path: Path) -> None:
        # Rows drawn one by one would tell a certainty that new groups do not keep.
        apart = self.resampled(homes, tmp_path, range(40))["mae"]
        together = self.resampled(homes, tmp_path, np.repeat([5, 6, 7, 8], 10).tolist())["mae"]
        assert together.std() > 2 * apart.std()
        assert {round(value, 6) for value in together} <= {number / 4 for number in range(4, 33)}

    def test_it_repeats_exactly(self, homes: ModelNotebook, tmp_path: Path) -> None:
        # N-85
        one, other = (self.resampled(homes, tmp_path, range(40)) for _ in range(2))
        assert one.equals(other)


class TestLimitsInWords:
    # 9.3: met, missed or undecided, each metric by its own direction.
    @pytest.mark.parametrize(
        ("metric", "comparison", "factor", "met"),
        [
            ("rmse", "<", 100, True), ("rmse", "<", 0.01, False), ("mae", "<=", 100, True),
            ("mape", "<", 0.01, False), ("r2", ">", 0.1, True), ("r2", ">=", 10, False),
        ],
    )  # fmt: skip
    def test_a_limit_far_away(
        self, homes: ModelNotebook, tmp_path: Path, metric: str, comparison: str, factor: float, met: bool
    ) -> None:
        other = homes.branch(tmp_path)
        value = other["test_performance"][metric] * factor
        other.names["problem_thresholds"] = [{"metric": metric, "comparison": comparison, "value": value}]
        text = other.value(holdout_evaluation(other.kitchen).result.strip())
        assert (": **not met**" in text or ", **not met**" in text) is not met
        assert "undecided" not in text

    @pytest.mark.parametrize(("shift", "met"), [(1.001, True), (0.999, False)])
    def test_a_limit_inside_the_interval_is_undecided_on_both_sides(
        self, homes: ModelNotebook, tmp_path: Path, shift: float, met: bool
    ) -> None:
        other = homes.branch(tmp_path)
        value = other["test_performance"]["rmse"] * shift
        other.names["problem_thresholds"] = [{"metric": "rmse", "comparison": "<", "value": value}]
        text = other.value(holdout_evaluation(other.kitchen).result.strip())
        assert "**undecided**" in text
        assert ("**not met**" not in text) is met


class TestLaterRows:
    def test_the_past_is_trained_on_and_the_last_fifth_is_scored(self, homes: ModelNotebook) -> None:
        report = homes["temporal_validation_report"]
        when = homes["X_train"]["built"].sort_values(kind="stable")
        train, late = when.index[:57], when.index[57:]
        X, y = homes["X_train"], truth(homes, "X_train")
        model = clone(homes["final_model"]).fit(X.loc[train], y[train])
        error = metrics.root_mean_squared_error(y[late], model.predict(X.loc[late]))
        usual = np.sqrt(((y[late] - y[train].mean()) ** 2).mean())
        assert (report["rmse"], report["baseline"]) == pytest.approx((error, usual))
        assert (report["trained_rows"], report["scored_rows"], report["applicable"]) == (57, 15, True)
        assert report["begin"] == str(when.iloc[57])

    def test_without_dates_it_does_not_apply(self, blooms: ModelNotebook) -> None:
        report = blooms["temporal_validation_report"]
        assert report["applicable"] is False
        assert "no column with dates" in blooms.texts[TEMPORAL]

    def test_too_few_dates_are_told(self, homes: ModelNotebook, tmp_path: Path) -> None:
        other = homes.branch(tmp_path)
        typed = other["df_typed"].copy()
        typed.loc[typed.index[10:], "built"] = pd.NaT
        other.names["df_typed"] = typed
        assert "too few" in other.cook(TEMPORAL).texts[TEMPORAL]
        assert "rmse" not in other["temporal_validation_report"]

    def test_a_date_column_that_is_gone_is_told(self, homes: ModelNotebook, tmp_path: Path) -> None:
        other = homes.branch(tmp_path)
        other.names["df_typed"] = other["df_typed"].drop(columns="built")
        assert other.cook(TEMPORAL)["temporal_validation_report"]["reason"]


class TestGroups:
    def test_each_is_left_out_once(self, homes: ModelNotebook) -> None:
        groups = homes["domain_generalization_report"]["groups"]
        assert set(groups) == {"Bern", "Oslo", "Rome"}
        X, y = homes["X_train"], truth(homes, "X_train")
        inside = X["town"] == "Oslo"
        rest = X["town"].notna() & ~inside
        model = clone(homes["final_model"]).fit(X[rest], y[rest])
        error = metrics.root_mean_squared_error(y[inside], model.predict(X[inside]))
        assert groups["Oslo"]["rmse"] == pytest.approx(error)
        assert groups["Oslo"]["trained_rows"] == rest.sum()

    def test_more_than_ten_are_put_into_five_parts_and_never_parted(
        self, gaps: ModelNotebook, tmp_path: Path
    ) -> None:
        other = gaps.branch(tmp_path)
        raw = other["raw_dataset"].assign(clinic=np.arange(80) % 16)
        seen: list[tuple[set[int], set[int]]] = []

        def noted(rest: Any, inside: Any) -> tuple[dict[str, float], str]:
            seen.append((set(raw.loc[rest, "clinic"]), set(raw.loc[inside, "clinic"])))
            return {"rmse": 1.0, "baseline": 2.0, "scored_rows": len(inside)}, ""

        other.names.update(
            raw_dataset=raw, scores_elsewhere=noted, relevance_report={"dates": [], "groups": ["clinic"]},
            cv_metrics={"rmse": 1.0},
        )  # fmt: skip
        other.cook(DOMAIN)
        assert len(seen) == 5
        assert all(rest.isdisjoint(inside) for rest, inside in seen)

    def test_a_group_with_too_few_rows_is_named(self, homes: ModelNotebook, tmp_path: Path) -> None:
        other = homes.branch(tmp_path)
        raw = other["raw_dataset"].copy()
        raw["town"] = np.where(raw.index.isin(other["X_train"].index[:3]), "Ulm", "Bern")
        other.names["raw_dataset"] = raw
        other.cook(DOMAIN)
        assert set(other["domain_generalization_report"]["not_scored"]) == {"Bern", "Ulm"}
        assert "Nothing to measure here" in other.texts[DOMAIN]

    def test_without_groups_it_does_not_apply(self, gaps: ModelNotebook, tmp_path: Path) -> None:
        other = gaps.branch(tmp_path)
        other.cook(DOMAIN)
        assert other["domain_generalization_report"]["applicable"] is False
