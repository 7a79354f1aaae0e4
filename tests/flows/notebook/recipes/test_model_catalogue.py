"""Stages 5 to 7 as a whole, on tables that are hard: each step's acceptance holds, or the refusal is clear."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from detent.flows.notebook.domain.problem import ProblemError
from detent.flows.notebook.domain.problem_reader import read_problem
from detent.flows.notebook.measuring.random_calls import unseeded_calls
from detent.flows.notebook.recipes.model_catalogue import RECIPES
from detent.flows.notebook.recipes.recipe import Kitchen
from tests.flows.notebook.recipes.model_notebooks import (
    MODELLING,
    PREDICTABILITY,
    STABILITY,
    ModelNotebook,
    prepared,
)
from tests.flows.notebook.recipes.tables_of_odd_names import ODD_NAMES

pytestmark = pytest.mark.timeout(600)  # the notebooks take minutes where the machine is busy


def cooked(folder: Path, table: pd.DataFrame, target: str, **options: Any) -> ModelNotebook:
    """All steps of stages 5 to 7, of which each checks its acceptance; two kinds of models go on."""
    first = prepared(folder, table, target, **options).cook(*MODELLING[:2])
    linear = "Ridge" if first["task_type"] == "regression" else "LogisticRegression"
    notebook = first.branch(folder, linear, "HistGradientBoosting with defaults")
    notebook.names["SEARCH_WORK"] = 0
    notebook.cook(MODELLING[2], *PREDICTABILITY[:4])
    notebook.play(PREDICTABILITY[4])
    return notebook.cook(*STABILITY)


class TestHardTables:
    # N-111, N-113, section 8
    def test_fifty_rows_more_columns_than_rows_and_a_class_of_one_row(self, tmp_path: Path) -> None:
        rng = np.random.default_rng(2)
        table = pd.DataFrame(rng.normal(size=(50, 70))).add_prefix("x")
        table["kind"] = np.select([table["x0"] > 0.6, table["x1"] > 0.4], ["up", "side"], "down")
        table.loc[9, "kind"] = "never seen again"
        notebook = cooked(tmp_path, table, "kind")
        assert 9 in notebook["X_train"].index
        assert notebook["LABELS"] == ["down", "never seen again", "side", "up"]
        assert "never seen again" in notebook["final_model"].classes_
        assert np.isfinite(notebook["cv_metrics"]["balanced_accuracy"])

    def test_two_unbalanced_classes_in_groups_with_gaps_everywhere_and_odd_names(
        self, tmp_path: Path
    ) -> None:
        rng = np.random.default_rng(3)
        names = [name or "blank" for name in ODD_NAMES]
        table = pd.DataFrame(rng.normal(size=(90, len(names))), columns=names)
        likely = table["class"] + rng.normal(0, 0.7, 90)
        table = table.mask(rng.random(table.shape) < 0.2)
        target, group = "say \"'\n{target}", "<<CLINIC>>"
        table[group] = [f"clinic {number}" for number in rng.integers(0, 18, 90)]
        table[target] = np.where(likely > likely.quantile(0.85), "yes", "no")
        notebook = cooked(tmp_path, table, target, split=("group", group), groups=[group])
        assert notebook["CLASS_WEIGHT"] == "balanced"
        assert group not in notebook["X_train"]
        assert notebook["domain_generalization_report"]["groups"]

    def test_later_rows_of_a_target_with_two_values(self, tmp_path: Path) -> None:
        rng = np.random.default_rng(4)
        when = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.permutation(60), unit="D")
        table = pd.DataFrame({"a": rng.normal(size=60), "b": rng.choice(list("uvw"), 60), "when": when})
        table["y"] = np.where(table["a"] + rng.normal(0, 0.4, 60) > 0, 7.5, 5.25)
        table.loc[::7, ["a", "b"]] = None
        notebook = cooked(tmp_path, table, "y", split=("time", "when"), dates=["when"])
        assert "holds for such rows only" in notebook.texts["holdout_evaluation"]
        assert notebook["X_train"]["when"].max() < notebook["X_test"]["when"].min()
        assert notebook["business_impact_report"]["beats_baseline"]
        assert "scored_rows" in notebook["temporal_validation_report"]

    def test_a_target_that_never_changes_is_refused_before_anything_runs(self, tmp_path: Path) -> None:
        for name, value in (("price", 5.5), ("kind", "a")):
            path = tmp_path / f"{name}.csv"
            pd.DataFrame({"x": range(60), name: value}).to_csv(path, index=False)
            with pytest.raises(ProblemError, match="same value in every row"):
                read_problem(f"Predict {name}", [path])


class TestRecipes:
    def test_every_step_of_the_three_stages_has_one(self) -> None:
        # N-96
        assert set(RECIPES) == {*MODELLING, *PREDICTABILITY, *STABILITY}

    def test_no_random_call_is_without_a_seed(self, gaps: ModelNotebook) -> None:
        # N-85
        for kitchen in kitchens(gaps):
            assert not unseeded_calls([write(kitchen).code for write in RECIPES.values()])

    @pytest.mark.parametrize("step", RECIPES)
    def test_a_retry_writes_other_code(self, gaps: ModelNotebook, step: str) -> None:
        # 9.2. What is left cannot fail for another reason than its inputs.
        one, two, _, _ = (RECIPES[step](kitchen).code for kitchen in kitchens(gaps))
        assert (one != two) is (step != "business_impact_assessment")


def kitchens(notebook: ModelNotebook) -> list[Kitchen]:
    """The three attempts, and one after a backtrack."""
    problem, settings = notebook.kitchen.problem, notebook.kitchen.settings
    attempts = [Kitchen(problem, settings, iteration=number) for number in (1, 2, 3)]
    return [*attempts, Kitchen(problem, settings, backtracks=1)]
