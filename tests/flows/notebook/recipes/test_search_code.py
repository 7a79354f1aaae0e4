"""How the settings of models are searched."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import loguniform, randint, uniform
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import ParameterSampler
from sklearn.pipeline import Pipeline

from detent.flows.notebook.recipes.search_code import SEARCH
from tests.flows.notebook.recipes.model_notebooks import ModelNotebook

pytestmark = pytest.mark.timeout(600)  # the notebooks take minutes where the machine is busy

IMPORTS = """
from scipy.stats import loguniform, randint, uniform
from sklearn.model_selection import RandomizedSearchCV
"""


def search(rows: int = 100, cells: int = 20, **names: Any) -> dict[str, Any]:
    """The rules for a table with so many training rows, of which a search takes all up to 600,000 cells."""
    found = {
        "np": np, "loguniform": loguniform, "randint": randint, "uniform": uniform, "clone": clone,
        "TransformedTargetRegressor": TransformedTargetRegressor, "Ridge": Ridge,
        "LogisticRegression": LogisticRegression, "X_train": pd.DataFrame(index=range(rows)),
        "few_columns": lambda: 0.3, "CELLS_PER_ROW": cells, "SEARCH_CELLS": 600_000, "SEARCH_WORK": 60,
        "some_rows": lambda most: range(min(rows, max(2000, most // cells))), **names,
    }  # fmt: skip
    exec(SEARCH, found)
    return found


class TestWork:
    # 9.2: 10 settings, 25 in a retry, sized by the table's shape.
    @pytest.mark.parametrize(("settings", "parts"), [(10, 3), (25, 5)])
    def test_a_table_of_usual_size_gets_all(self, settings: int, parts: int) -> None:
        assert search(rows=900, cells=30)["affordable"](settings, parts) == settings

    @pytest.mark.parametrize(("settings", "tried"), [(10, 5), (25, 12)])
    def test_below_a_hundred_rows_half_of_them(self, settings: int, tried: int) -> None:
        assert search(rows=99)["affordable"](settings, 3) == tried

    @pytest.mark.parametrize(("rows", "cells"), [(240_000, 30), (4000, 1000), (240_000, 300)])
    def test_large_tables_get_fewer_and_never_less_than_four(self, rows: int, cells: int) -> None:
        few = search(rows=rows, cells=cells)["affordable"](25, 5)
        assert 4 <= few < 25

    def test_it_grows_with_folds_and_falls_with_work(self) -> None:
        costs = [search(rows=200_000, cells=cells)["affordable"](25, 3) for cells in (20, 100, 400, 3000)]
        assert costs == sorted(costs, reverse=True)
        assert costs[-1] == 4


class TestSettings:
    def test_every_one_is_a_setting_of_its_model_and_fits_it(
        self, homes: ModelNotebook, blooms: ModelNotebook
    ) -> None:
        for notebook in (homes, blooms):
            for name, model in notebook["candidates"].items():
                space = notebook["settings_to_try"](model)
                assert set(space) <= set(model.get_params()), name
                assert len(space) >= 1
                for drawn in ParameterSampler(space, 3, random_state=0):
                    clone(model).set_params(**drawn)
                    # What is no plain value would be missing among the parameters and their sensitivity.
                    assert all(isinstance(value, (int, float)) for value in drawn.values())

    @pytest.mark.parametrize("library", ["num_leaves", "max_depth"])
    def test_those_of_a_boosting_library(self, library: str) -> None:
        class Model(SimpleNamespace):
            def get_params(self) -> dict[str, Any]:
                return {"model": SimpleNamespace(**{library: 1})}

        space = search()["settings_to_try"](Model())
        assert f"model__{library}" in space
        assert "model__reg_lambda" in space

    def test_they_reach_through_the_logarithm_of_the_target(self) -> None:
        model = TransformedTargetRegressor(Pipeline([("features", "passthrough"), ("model", Ridge())]))
        assert list(search()["settings_to_try"](model)) == ["regressor__model__alpha"]

    def test_trees_are_told_from_boosting(self) -> None:
        model = Pipeline([("features", "passthrough"), ("model", ExtraTreesRegressor())])
        assert set(search()["settings_to_try"](model)) == {
            "model__max_features", "model__min_samples_leaf", "model__max_depth",
        }  # fmt: skip


class TestSearch:
    def test_the_same_settings_are_drawn_each_time(self, gaps: ModelNotebook, tmp_path: Path) -> None:
        # N-85
        other = gaps.branch(tmp_path)
        other.run(IMPORTS + SEARCH)
        found = [
            other.value('searched(candidates["Ridge"], 4, 3)').get_params()["model__alpha"] for _ in range(2)
        ]
        assert found[0] == found[1] != 10.0

    def test_the_best_by_the_folds_is_taken(self, gaps: ModelNotebook, tmp_path: Path) -> None:
        other = gaps.branch(tmp_path)
        other.run(IMPORTS + SEARCH)
        chosen = other.value('searched(candidates["Ridge"], 6, 3)')
        tried = [
            clone(gaps["candidates"]["Ridge"]).set_params(**drawn)
            for drawn in ParameterSampler(
                other["settings_to_try"](gaps["candidates"]["Ridge"]), 6, random_state=42
            )
        ]
        scores = [
            np.log(other["cross_validated"](model, gaps["X_train"], gaps["y_train"])["rmse"]).mean()
            for model in [chosen, *tried]
        ]
        assert scores[0] == min(scores)
