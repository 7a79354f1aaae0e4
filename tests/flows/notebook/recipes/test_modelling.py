"""The candidates: each scored by folds of the training rows, and by nothing else."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.compose import TransformedTargetRegressor, make_column_transformer
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import root_mean_squared_error
from sklearn.model_selection import KFold, StratifiedKFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from detent.flows.notebook.recipes.modelling import method_integration
from tests.flows.notebook.recipes.model_notebooks import ModelNotebook

pytestmark = pytest.mark.timeout(600)  # the notebooks take minutes where the machine is busy

CANDIDATES = "method_integration"
FOLDS = KFold(3, shuffle=True, random_state=42)


def history(notebook: ModelNotebook, model: str) -> dict[str, Any]:
    """What the cell reports of a model."""
    (entry,) = [entry for entry in notebook["training_history"] if entry["model"] == model]
    return dict(entry)


def by_hand(model: Any, notebook: ModelNotebook) -> tuple[float, float]:
    """RMSE and R² in folds of the training rows, by scikit-learn alone."""
    scored = cross_validate(
        model,
        notebook["df_typed"].loc[notebook["X_train"].index, ["a", "b"]],
        notebook["df_typed"].loc[notebook["X_train"].index, "y"],
        cv=FOLDS,
        scoring=("neg_root_mean_squared_error", "r2"),
    )
    return -scored["test_neg_root_mean_squared_error"].mean(), scored["test_r2"].mean()


def without_hold_out(notebook: ModelNotebook, folder: Path) -> ModelNotebook:
    """The notebook with its held-out rows taken away, and what the typed table has of them spoilt."""
    other = notebook.branch(folder)
    held_out = other.names.pop("X_test").index
    other.names.pop("y_test")
    typed = other["df_typed"].copy()
    typed.loc[held_out, other["target_column"]] = typed.loc[held_out, other["target_column"]].to_numpy()[::-1]
    for name in other["X_train"]:
        typed.loc[held_out, name] = None
    other.names["df_typed"] = typed
    return other


class TestScores:
    # P1: a score stated is the score that there is.
    @pytest.mark.parametrize(
        ("name", "estimator"),
        [
            ("Ridge", Ridge(alpha=10.0)),
            ("HistGradientBoosting with defaults", HistGradientBoostingRegressor(random_state=42)),
        ],
    )
    def test_they_are_those_of_a_pipeline_made_by_hand(
        self, gaps: ModelNotebook, name: str, estimator: Any
    ) -> None:
        # Medians and scales of all rows, or scores on rows trained with, are other figures on this table.
        model = make_pipeline(
            SimpleImputer(strategy="median", add_indicator=True), StandardScaler(), estimator
        )
        rmse, r2 = by_hand(model, gaps)
        entry = history(gaps, name)
        assert (entry["rmse"], entry["r2"]) == pytest.approx((rmse, r2), rel=1e-9)

    def test_those_of_classes_too(self, blooms: ModelNotebook) -> None:
        model = make_pipeline(
            make_column_transformer((StandardScaler(), ["petal", "stem"]), (OneHotEncoder(), ["soil"])),
            LogisticRegression(max_iter=1000, tol=1e-3),
        )
        X, y = blooms["X_train"], blooms["y_train"]
        scored = cross_validate(
            model, X, y, cv=StratifiedKFold(3, shuffle=True, random_state=42),
            scoring=("balanced_accuracy", "accuracy", "neg_log_loss"),
        )  # fmt: skip
        entry = history(blooms, "LogisticRegression")
        assert entry["balanced_accuracy"] == pytest.approx(scored["test_balanced_accuracy"].mean())
        assert entry["accuracy"] == pytest.approx(scored["test_accuracy"].mean())
        assert entry["log_loss"] == pytest.approx(-scored["test_neg_log_loss"].mean(), rel=1e-4)

    def test_the_baseline_is_scored_in_the_same_folds(self, gaps: ModelNotebook) -> None:
        rmse, r2 = by_hand(DummyRegressor(strategy="mean"), gaps)
        assert gaps["baseline_metrics"] == pytest.approx(
            {**gaps["baseline_metrics"], "rmse": rmse, "r2": r2, "n": len(gaps["X_train"])}
        )
        assert history(gaps, "Baseline")["rmse"] == pytest.approx(rmse)

    def test_every_class_counts_in_the_baseline(self, blooms: ModelNotebook) -> None:
        assert blooms["baseline_metrics"]["balanced_accuracy"] == pytest.approx(1 / 3)

    def test_the_spread_is_that_of_the_folds(self, gaps: ModelNotebook) -> None:
        spread = np.std(gaps["candidate_folds"]["Ridge"]["rmse"], ddof=1)
        assert history(gaps, "Ridge")["rmse_sd"] == pytest.approx(spread)

    def test_the_text_says_who_is_ahead_and_what_the_baseline_has(self, gaps: ModelNotebook) -> None:
        # Errors are compared by their logarithms, which the text above the cell says.
        logs = {name: np.log(folds["rmse"]).mean() for name, folds in gaps["candidate_folds"].items()}
        ahead = min(logs, key=lambda name: logs[name])
        assert "logarithm" in method_integration(gaps.kitchen).lead
        assert f"**{ahead}** is ahead" in gaps.texts[CANDIDATES]
        assert f"{gaps['baseline_metrics']['rmse']:.4g}" in gaps.texts[CANDIDATES]

    def test_the_hold_out_has_no_part_in_it(self, gaps: ModelNotebook, tmp_path: Path) -> None:
        # Section 6: no cell between the split and the hold-out's evaluation may look at it.
        other = without_hold_out(gaps, tmp_path)
        other.play(CANDIDATES)
        assert other["training_history"] == gaps["training_history"]
        rows = gaps["X_train"]
        for name, model in gaps["trained_models"].items():
            assert (other["trained_models"][name].predict(rows) == model.predict(rows)).all()


def listed(notebook: ModelNotebook, folder: Path, **names: Any) -> ModelNotebook:
    """The candidates of a notebook in which some variables are others, made and not fitted."""
    other = notebook.branch(folder)
    other.names.update(names)
    code, _, _ = method_integration(other.kitchen).code.partition("study_rows = ")
    other.run(code)
    return other


def estimator(model: Any) -> Any:
    """What learns inside a candidate."""
    return getattr(model, "regressor", model)["model"]


class TestCandidates:
    def test_there_are_three_kinds_and_boosting_with_its_defaults(self, gaps: ModelNotebook) -> None:
        assert list(gaps["candidates"]) == [
            "Ridge", "RandomForest", "HistGradientBoosting", "HistGradientBoosting with defaults",
        ]  # fmt: skip
        plain = estimator(gaps["candidates"]["HistGradientBoosting with defaults"])
        assert plain.get_params() == HistGradientBoostingRegressor(random_state=42).get_params()

    def test_only_of_errors_the_text_says_how_they_are_averaged(
        self, homes: ModelNotebook, blooms: ModelNotebook
    ) -> None:
        assert "mean of their logarithms" in method_integration(homes.kitchen).lead
        assert "logarithm" not in method_integration(blooms.kitchen).lead

    def test_every_one_of_them_has_a_seed(self, homes: ModelNotebook, blooms: ModelNotebook) -> None:
        # N-85
        for notebook in (homes, blooms):
            for model in [*notebook["candidates"].values(), notebook["final_model"]]:
                seeds = [value for name, value in model.get_params().items() if name.endswith("random_state")]
                assert seeds
                assert set(seeds) == {42}

    @pytest.mark.parametrize(("least", "there", "back"), [(1.0, np.log, np.exp), (0.0, np.log1p, np.expm1)])
    def test_of_a_skewed_target_the_logarithm_is_learned(
        self, gaps: ModelNotebook, tmp_path: Path, least: float, there: Any, back: Any
    ) -> None:
        skewed = np.exp(gaps["y_train"] - gaps["y_train"].min())
        plan = {**gaps["feature_engineering_strategy"], "log_target": True}
        other = listed(
            gaps, tmp_path, feature_engineering_strategy=plan, y_train=skewed - skewed.min() + least
        )
        model = other.value("make_candidates()")
        assert isinstance(model["Ridge"], TransformedTargetRegressor)
        assert (model["Ridge"].func, model["Ridge"].inverse_func) == (there, back)
        assert not isinstance(model["HistGradientBoosting with defaults"], TransformedTargetRegressor)

    @pytest.mark.parametrize(("shape", "logarithm"), [(np.exp, True), (lambda scaled: -np.exp(scaled), False),
                                                      (np.tanh, False)])  # fmt: skip
    def test_the_training_rows_alone_decide_for_the_logarithm(
        self, gaps: ModelNotebook, tmp_path: Path, shape: Any, logarithm: bool
    ) -> None:
        target = gaps["y_train"]
        shaped = shape((target - target.mean()) / target.std())
        plan = {**gaps["feature_engineering_strategy"], "log_target": True}  # as all rows would have it
        other = listed(gaps, tmp_path, feature_engineering_strategy=plan, y_train=shaped - shaped.min() + 1)
        assert isinstance(other.value("make_candidates()")["Ridge"], TransformedTargetRegressor) is logarithm

    def test_of_a_target_below_zero_it_is_not(self, gaps: ModelNotebook, tmp_path: Path) -> None:
        plan = {**gaps["feature_engineering_strategy"], "log_target": True}
        other = listed(gaps, tmp_path, feature_engineering_strategy=plan, y_train=gaps["y_train"] - 100)
        assert not isinstance(other.value("make_candidates()")["Ridge"], TransformedTargetRegressor)

    def test_scores_of_a_logarithm_are_in_the_target_s_own_units(
        self, gaps: ModelNotebook, tmp_path: Path
    ) -> None:
        other = listed(gaps, tmp_path, LOG_TARGET=True)
        model = other.value("model_of(linear_estimator(), log_target=True)").fit(
            gaps["X_train"], gaps["y_train"]
        )
        error = root_mean_squared_error(gaps["y_train"], model.predict(gaps["X_train"]))
        assert error < gaps["y_train"].std() * 1.5

    @pytest.mark.parametrize(("rare", "weight"), [(0.19, "balanced"), (0.25, None)])
    def test_a_small_class_is_weighted(
        self, blooms: ModelNotebook, tmp_path: Path, rare: float, weight: str | None
    ) -> None:
        labels = blooms["y_train"].copy()
        labels[:] = np.where(np.arange(len(labels)) < rare * len(labels), "rose", "iris")
        other = listed(blooms, tmp_path, y_train=labels)
        models = other.value("make_candidates()")
        for name in ("LogisticRegression", "RandomForest", "HistGradientBoosting"):
            assert estimator(models[name]).class_weight == weight

    def test_boosting_holds_no_rows_back_where_a_class_is_small(self, blooms: ModelNotebook) -> None:
        assert estimator(blooms["candidates"]["HistGradientBoosting"]).early_stopping is False

    def test_below_a_hundred_rows_settings_are_simpler(self, gaps: ModelNotebook, tmp_path: Path) -> None:
        many = pd.concat([gaps["X_train"]] * 2, ignore_index=True)
        other = listed(gaps, tmp_path, X_train=many)
        small, large = (
            estimator(models["HistGradientBoosting"]).max_iter
            for models in (gaps["candidates"], other.value("make_candidates()"))
        )
        assert (small, large) == (60, 400)


class Booster(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """A stand-in for a library's regressor."""

    broken = False

    def __init__(
        self, n_estimators=1, learning_rate=0.1, n_jobs=1, num_leaves=31, verbose=0, deterministic=False,
        force_row_wise=False, random_state=None,
    ):  # fmt: skip
        self.n_estimators, self.learning_rate, self.n_jobs = n_estimators, learning_rate, n_jobs
        self.num_leaves, self.verbose, self.deterministic = num_leaves, verbose, deterministic
        self.force_row_wise, self.random_state = force_row_wise, random_state

    def fit(self, X: Any, y: Any) -> Booster:
        if self.broken:
            raise OSError("libgomp is missing")
        self.model_ = Ridge().fit(X, y)
        return self

    def predict(self, X: Any) -> Any:
        return self.model_.predict(X)


class Broken(Booster):
    broken = True


class TestLibraries:
    def test_one_that_is_installed_is_a_candidate(
        self, gaps: ModelNotebook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "lightgbm", SimpleNamespace(LGBMRegressor=Booster))  # type: ignore[arg-type]
        models = listed(gaps, tmp_path).value("make_candidates()")
        assert estimator(models["LightGBM"]).random_state == 42

    def test_one_that_is_broken_ends_the_first_attempt_and_not_the_second(
        self, gaps: ModelNotebook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # N-75: a retry writes other code.
        monkeypatch.setitem(sys.modules, "lightgbm", SimpleNamespace(LGBMRegressor=Broken))  # type: ignore[arg-type]
        other = gaps.branch(tmp_path)
        with pytest.raises(ValueError, match="libgomp"):
            other.play(CANDIDATES)
        other.cook(CANDIDATES, iteration=2)
        assert list(other["candidates"]) == list(gaps["candidates"])
        assert "LightGBM" not in other["trained_models"]
        assert "libgomp" in other.printed


class TestLeaksBeforeTheFolds:
    def test_the_pipeline_is_fitted_on_training_rows(self, gaps: ModelNotebook) -> None:
        # N-84: a scaler fitted on all rows.
        numbers = gaps["feature_pipeline"]["columns"].named_transformers_["numbers"]
        assert numbers["simpleimputer"].statistics_ == pytest.approx(gaps["X_train"][["a", "b"]].median())
