"""Refits on other rows and with other settings: how many, on what, and what comes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.ensemble import VotingRegressor
from sklearn.metrics import balanced_accuracy_score, root_mean_squared_error
from sklearn.model_selection import KFold

from tests.flows.notebook.recipes.model_notebooks import ModelNotebook
from tests.flows.notebook.recipes.test_modelling import without_hold_out

pytestmark = pytest.mark.timeout(600)  # the notebooks take minutes where the machine is busy

PERTURBATION, SENSITIVITY = "data_perturbation_testing", "parameter_sensitivity"


def scores(notebook: ModelNotebook, kind: str) -> list[float]:
    return [
        result["score"]
        for result in notebook["perturbation_test_results"]
        if result["perturbation"].startswith(kind)
    ]


class TestRefits:
    # N-86
    def test_there_are_five_three_and_two(self, homes: ModelNotebook, blooms: ModelNotebook) -> None:
        for notebook in (homes, blooms):
            counts = [
                len(scores(notebook, kind)) for kind in ("rows drawn with repeats", "1 % noise", "other seed")
            ]
            assert counts == [5, 3, 2]
            assert len(notebook["perturbation_test_results"]) == 10

    def test_all_are_scored_on_the_same_quarter_of_the_training_rows(self, homes: ModelNotebook) -> None:
        rest, aside = list(KFold(4, shuffle=True, random_state=42).split(homes["X_train"]))[-1]
        assert homes["X_aside"].index.equals(homes["X_train"].index[aside])
        assert homes["X_rest"].index.equals(homes["X_train"].index[rest])

    def test_the_reference_is_a_refit_on_the_rest(self, homes: ModelNotebook) -> None:
        model = clone(homes["final_model"]).fit(homes["X_rest"], homes["y_rest"])
        error = root_mean_squared_error(homes["y_aside"], model.predict(homes["X_aside"]))
        assert homes["reference_score"] == pytest.approx(error)

    def test_noise_is_put_on_what_is_fitted_and_not_on_what_is_scored(self, homes: ModelNotebook) -> None:
        noisy = homes["X_rest"].copy()
        rng = np.random.default_rng(43)
        for name in ("size", "rooms"):
            values = noisy[name].astype(float)
            noisy[name] = values + 0.01 * values.std() * rng.standard_normal(len(values))
        model = clone(homes["final_model"]).fit(noisy, homes["y_rest"])
        error = root_mean_squared_error(homes["y_aside"], model.predict(homes["X_aside"]))
        assert scores(homes, "1 % noise")[0] == pytest.approx(error)

    def test_rows_drawn_with_repeats_are_as_many_and_keep_the_share_of_each_class(
        self, blooms: ModelNotebook
    ) -> None:
        places = blooms["drawn_again"](1)
        drawn = blooms["y_rest"].iloc[places]
        assert len(places) == len(blooms["y_rest"])
        assert len(set(places)) < len(places)
        assert drawn.value_counts().to_dict() == blooms["y_rest"].value_counts().to_dict()

    def test_each_class_refit_is_scored_by_the_primary_metric(self, blooms: ModelNotebook) -> None:
        places = blooms["drawn_again"](43)
        X, y = blooms["X_rest"].iloc[places], blooms["y_rest"].iloc[places]
        model = clone(blooms["final_model"]).fit(X, y)
        share = balanced_accuracy_score(blooms["y_aside"], model.predict(blooms["X_aside"]))
        assert scores(blooms, "rows drawn with repeats")[0] == pytest.approx(share)

    def test_the_settings_are_those_of_the_final_model_and_it_is_left_as_it_was(
        self, homes: ModelNotebook
    ) -> None:
        model = homes["final_model"]
        before, after = (
            {
                name: repr(value)
                for name, value in made.get_params().items()
                if isinstance(value, (int, float, str))
            }
            for made in (model, homes["with_seed"](model, 7))
        )
        changed = {name for name in before if before[name] != after[name]}
        assert changed
        assert all(name.endswith("random_state") and before[name] == "42" for name in changed)

    def test_the_hold_out_stays_closed(self, homes: ModelNotebook, tmp_path: Path) -> None:
        other = without_hold_out(homes, tmp_path)
        other.cook(PERTURBATION)
        assert other["perturbation_test_results"] == homes["perturbation_test_results"]  # N-85 as well

    @pytest.mark.parametrize("iteration", [2, 3])
    def test_a_retry_works_in_one_process_and_on_fewer_rows(
        self, homes: ModelNotebook, tmp_path: Path, iteration: int
    ) -> None:
        other = homes.branch(tmp_path)
        asked: list[int] = []

        def some_rows(cells: int) -> pd.Index:
            asked.append(cells)
            return other["X_train"].index[:40]

        other.names["some_rows"] = some_rows
        other.names["jobs_for"] = lambda X: pytest.fail("more than one process")
        other.names["final_model"] = other["contenders"]["Ridge"]
        other.cook(PERTURBATION, iteration=iteration)
        assert asked[0] == other["STUDY_CELLS"] // {2: 4, 3: 20}[iteration]


class TestSensitivity:
    def test_each_setting_is_moved_to_four_places(self, homes: ModelNotebook, blooms: ModelNotebook) -> None:
        for notebook in (homes, blooms):
            report = pd.DataFrame(notebook["sensitivity_analysis_report"])
            for _, entries in report.groupby("setting"):
                assert entries["factor"].tolist() == [0.5, 0.75, 1.25, 1.5]
            assert (report["change"] - (report["score"] / notebook["reference_score"] - 1)).abs().max() < 1e-9

    def test_only_the_one_setting_moves(self, homes: ModelNotebook) -> None:
        entry = homes["sensitivity_analysis_report"][0]
        (name,) = [
            name for name in homes["main_settings"](homes["final_model"]) if name.endswith(entry["setting"])
        ]
        moved = clone(homes["final_model"]).set_params(**{name: entry["value"]})
        model = moved.fit(homes["X_rest"], homes["y_rest"])
        error = root_mean_squared_error(homes["y_aside"], model.predict(homes["X_aside"]))
        assert entry["score"] == pytest.approx(error)

    @pytest.mark.parametrize(
        "name", ["Ridge", "RandomForest", "HistGradientBoosting", "HistGradientBoosting with defaults"]
    )
    def test_every_kind_of_model_has_settings_to_move(self, homes: ModelNotebook, name: str) -> None:
        assert homes["main_settings"](homes["candidates"][name])

    def test_a_setting_that_is_small_stays_allowed(self, homes: ModelNotebook, tmp_path: Path) -> None:
        other = homes.branch(tmp_path)
        model = clone(other["candidates"]["HistGradientBoosting"])
        inner = {name.rpartition("__")[2]: name for name in model.get_params()}
        other.names["final_settings"] = model.set_params(
            **{inner["max_leaf_nodes"]: 2, inner["min_samples_leaf"]: 1, inner["max_iter"]: 3}
        )
        values = pd.DataFrame(other.cook(SENSITIVITY)["sensitivity_analysis_report"])
        assert values.loc[values["setting"] == "max_leaf_nodes", "value"].min() == 2

    def test_the_number_of_trees_moves_too(self, homes: ModelNotebook, tmp_path: Path) -> None:
        # Shaped anew for its rows at each refit, a forest would have the same trees, and "nothing changes".
        other = homes.branch(tmp_path)
        other.names["final_model"] = other["candidates"]["RandomForest"]
        trees: list[int] = []

        def all_scores(model: Any, *_: Any) -> dict[str, float]:
            trees.append(getattr(model, "regressor_", model)["model"].n_estimators)
            return {"rmse": 1.0}

        other.names["all_scores"] = all_scores
        other.cook(PERTURBATION)
        del trees[:]
        other.cook(SENSITIVITY)
        assert trees[-4:] == [25, 38, 62, 75]

    def test_of_a_mean_of_models_those_of_its_members_move(
        self, homes: ModelNotebook, tmp_path: Path
    ) -> None:
        models = homes["candidates"]
        voting = VotingRegressor(
            [("member_0", models["Ridge"]), ("member_1", models["HistGradientBoosting"])]
        )
        assert [name.rpartition("__")[2] for name in homes["main_settings"](voting)] == [
            "alpha", "learning_rate", "max_leaf_nodes",
        ]  # fmt: skip
