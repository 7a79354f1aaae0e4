"""The final model: the best by the folds, fitted on the training rows, saved, and never worse in a retry."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.metrics import balanced_accuracy_score, root_mean_squared_error
from sklearn.model_selection import KFold, StratifiedKFold

from detent.flows.notebook.recipes.recipe import Kitchen
from detent.flows.notebook.recipes.tuning import model_training_tuning
from tests.flows.notebook.recipes.model_notebooks import STABILITY, ModelNotebook
from tests.flows.notebook.recipes.test_modelling import without_hold_out

pytestmark = pytest.mark.timeout(600)  # the notebooks take minutes where the machine is busy

TUNING = "model_training_tuning"
DEFAULTS = "HistGradientBoosting with defaults"


def tuned(notebook: ModelNotebook, folder: Path, iteration: int = 1, **kitchen: Any) -> ModelNotebook:
    """A notebook tuned from two candidates, with four settings for each search and few trees."""
    other = notebook.branch(folder, "Ridge", DEFAULTS)
    other.names.update(
        SEARCH_WORK=0,
        forest_shape=lambda rows: {"n_estimators": 5, "max_samples": None},
        boosting_settings=lambda: {"max_iter": 10, "min_samples_leaf": 5},
    )
    return other.cook(TUNING, iteration=iteration, **kitchen)


@pytest.fixture(scope="module")
def attempts(gaps: ModelNotebook, tmp_path_factory: pytest.TempPathFactory) -> list[ModelNotebook]:
    """The three attempts at one table, each with its replayed beginning."""
    return [tuned(gaps, tmp_path_factory.mktemp("attempt"), iteration) for iteration in (1, 2, 3)]


class TestScores:
    def test_those_of_numbers_are_those_of_the_folds(self, homes: ModelNotebook) -> None:
        # P1; a score on rows that the model was fitted with would be half of it.
        X, y, errors = homes["X_train"], homes["y_train"], []
        for train, valid in KFold(3, shuffle=True, random_state=42).split(X):
            model = clone(homes["final_model"]).fit(X.iloc[train], y.iloc[train])
            errors.append(root_mean_squared_error(y.iloc[valid], model.predict(X.iloc[valid])))
        assert homes["cv_metrics"]["rmse"] == pytest.approx(np.mean(errors))
        assert homes["cv_metrics"]["n"] == len(X) == 72

    def test_those_of_classes_too(self, blooms: ModelNotebook) -> None:
        X, y, shares = blooms["X_train"], blooms["y_train"], []
        for train, valid in StratifiedKFold(3, shuffle=True, random_state=42).split(X, y):
            model = clone(blooms["final_model"]).fit(X.iloc[train], y.iloc[train])
            shares.append(balanced_accuracy_score(y.iloc[valid], model.predict(X.iloc[valid])))
        assert blooms["cv_metrics"]["balanced_accuracy"] == pytest.approx(np.mean(shares))

    def test_the_final_model_is_the_best_by_the_folds(self, homes: ModelNotebook) -> None:
        logs = {name: np.log(folds["rmse"]).mean() for name, folds in homes["contender_folds"].items()}
        assert homes["best_params"]["model"] == homes["winner"] == min(logs, key=lambda name: logs[name])
        assert set(homes["candidates"]) < set(homes["contenders"])

    def test_it_is_fitted_on_the_training_rows_and_no_others(self, homes: ModelNotebook) -> None:
        again = clone(homes["final_model"]).fit(homes["X_train"], homes["y_train"])
        rows = homes["X_test"]
        assert (again.predict(rows) == homes["final_model"].predict(rows)).all()
        assert homes["best_params"]["rows"] == len(homes["X_train"])

    def test_the_hold_out_has_no_part_in_it_and_all_repeats_exactly(
        self, gaps: ModelNotebook, attempts: list[ModelNotebook], tmp_path: Path
    ) -> None:
        # N-85, and section 6: no look at the hold-out before its step.
        other = tuned(without_hold_out(gaps, tmp_path), tmp_path)
        first = attempts[0]
        assert other["cv_metrics"] == first["cv_metrics"]
        assert other["best_params"] == first["best_params"]
        rows = gaps["X_test"]
        assert (other["final_model"].predict(rows) == first["final_model"].predict(rows)).all()
        for step in STABILITY[:2]:
            for notebook in (first, other):
                notebook.cook(step)
        assert other["perturbation_test_results"] == first["perturbation_test_results"]
        assert other["sensitivity_analysis_report"] == first["sensitivity_analysis_report"]


class TestRetries:
    # 9.2: each attempt writes other code, and keeps what was tried before.
    def test_each_attempt_tries_more(self, attempts: list[ModelNotebook]) -> None:
        one, two, three = (set(notebook["contenders"]) for notebook in attempts)
        assert one < two < three
        assert {"ExtraTrees", "Ridge with interactions"} <= two - one
        assert three - two == {"Mean of the best three"}

    def test_none_ends_worse_than_the_one_before(self, attempts: list[ModelNotebook]) -> None:
        # Section 7, "never worse".
        logs = [
            np.log(notebook["contender_folds"][notebook["winner"]]["rmse"]).mean() for notebook in attempts
        ]
        assert logs[2] <= logs[1] <= logs[0]

    def test_what_an_attempt_tried_before_has_the_same_score_again(
        self, attempts: list[ModelNotebook]
    ) -> None:
        for name, folds in attempts[0]["contender_folds"].items():
            assert attempts[2]["contender_folds"][name].equals(folds)

    def test_an_earlier_candidate_that_is_better_stays(self, gaps: ModelNotebook, tmp_path: Path) -> None:
        # A candidate beyond reach, as a lucky model of another author's would be.
        other = gaps.branch(tmp_path, "Ridge", DEFAULTS)
        other.names["SEARCH_WORK"] = 0
        other["candidate_folds"][DEFAULTS] = other["candidate_folds"][DEFAULTS].assign(rmse=1e-3)
        other.play(TUNING)
        assert other["winner"] == DEFAULTS

    def test_the_ensemble_is_of_the_best_three(self, attempts: list[ModelNotebook]) -> None:
        last = attempts[2]
        others = {name: np.log(folds["rmse"]).mean() for name, folds in last["contender_folds"].items()}
        others.pop("Mean of the best three")
        best = sorted(others, key=lambda name: others[name])[:3]
        assert [model for _, model in last["members"]] == [last["contenders"][name] for name in best]

    def test_after_a_backtrack_the_search_is_the_wider_one(self, gaps: ModelNotebook) -> None:
        kitchen = gaps.kitchen
        back = Kitchen(kitchen.problem, kitchen.settings, backtracks=1)
        wider = Kitchen(kitchen.problem, kitchen.settings, iteration=2)
        assert model_training_tuning(back) == model_training_tuning(wider)
        assert model_training_tuning(back) != model_training_tuning(kitchen)


class TestLimits:
    def with_folds(
        self, notebook: ModelNotebook, folder: Path, limits: list[dict[str, Any]]
    ) -> ModelNotebook:
        """Ridge has the smaller RMSE, boosting the smaller MAE, and nothing else comes near."""
        other = notebook.branch(folder, "Ridge", DEFAULTS)
        other.names.update(SEARCH_WORK=0, problem_thresholds=limits)
        folds = other["candidate_folds"]
        folds["Ridge"] = folds["Ridge"].assign(rmse=0.01, mae=0.009)
        folds[DEFAULTS] = folds[DEFAULTS].assign(rmse=0.02, mae=0.001)
        other.play(TUNING)
        return other

    def test_of_those_that_keep_every_limit_the_best_is_chosen(
        self, gaps: ModelNotebook, tmp_path: Path
    ) -> None:
        limits = [
            {"metric": "rmse", "comparison": "<", "value": 0.03},
            {"metric": "mae", "comparison": "<", "value": 0.005},
        ]
        other = self.with_folds(gaps, tmp_path, limits)
        assert other["winner"] == DEFAULTS
        assert "NOT met" not in other.printed.rpartition("chosen:")[2]

    def test_where_none_keeps_them_the_best_is_chosen_and_the_text_says_so(
        self, gaps: ModelNotebook, tmp_path: Path
    ) -> None:
        # N-93
        other = self.with_folds(gaps, tmp_path, [{"metric": "r2", "comparison": ">=", "value": 0.9999}])
        assert other["winner"] == "Ridge"
        assert "**not met**" in other.texts[TUNING]


class TestFiles:
    def test_the_model_loads_in_a_fresh_process_and_predicts_the_same(self, homes: ModelNotebook) -> None:
        # 9.3
        rows = homes["X_test"].copy()
        rows.iloc[0, :] = None
        rows.to_pickle(homes.folder / "rows.pkl")
        code = (
            "import joblib, pandas as pd\n"
            "model = joblib.load('models/model.pkl')\n"
            "joblib.dump(model.predict(pd.read_pickle('rows.pkl')), 'predicted.pkl')"
        )
        subprocess.run([sys.executable, "-I", "-c", code], cwd=homes.folder, check=True, timeout=300)
        predicted = joblib.load(homes.folder / "predicted.pkl")
        assert (predicted == homes["final_model"].predict(rows)).all()
        assert np.isfinite(predicted).all()

    def test_nothing_of_the_notebook_is_in_it(
        self, blooms: ModelNotebook, attempts: list[ModelNotebook]
    ) -> None:
        for model in (blooms["final_model"], *attempts[2]["contenders"].values()):
            assert b"__main__" not in pickle.dumps(model)

    def test_the_check_compares_the_saved_model_with_the_one_in_memory(
        self, gaps: ModelNotebook, tmp_path: Path
    ) -> None:
        class Other:
            """What is loaded, if the file were another model's."""

            def predict(self, rows: pd.DataFrame) -> np.ndarray:
                return np.zeros(len(rows))

        other = gaps.branch(tmp_path, "Ridge")
        other.names["SEARCH_WORK"] = 0
        loads = type("Joblib", (), {"dump": joblib.dump, "load": lambda *_: Other()})
        other.names["joblib"] = loads
        other.play(TUNING)
        assert other["reload_check"]["equal"] is False
        assert "**something else**" in other.texts[TUNING]

    def test_the_parameters_are_plain_values(self, homes: ModelNotebook, blooms: ModelNotebook) -> None:
        for notebook in (homes, blooms):
            assert len(notebook["best_params"]) > 2
            json.dumps(notebook["best_params"])
        logistic = blooms["plain_settings"](blooms["candidates"]["LogisticRegression"])
        assert logistic["max_iter"] == 1000
        assert "deprecated" not in logistic.values()
