"""What a cell needs and the notebook lacks is written before it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from detent.flows.notebook.recipes.data_catalogue import RECIPES
from detent.flows.notebook.recipes.definitions import with_definitions
from detent.flows.notebook.recipes.recipe import Recipe, RecipeSettings
from tests.flows.notebook.recipes import tables
from tests.flows.notebook.recipes.notebooks import COLLECTION, EXPLORATION, INTEGRITY, METHODOLOGY, notebook

SETTINGS = RecipeSettings(seed=7)


class TestDefinitions:
    def test_a_cell_that_has_all_it_needs_stays_as_it_is(self):
        recipe = Recipe("", "x = np.mean([1, 2])", "str(x)")
        assert with_definitions(recipe, ["np"], SETTINGS) is recipe

    def test_what_is_missing_comes_first_with_what_that_needs(self):
        recipe = with_definitions(
            Recipe("", "kind = column_kind('a', values)", "code_name(kind)"), ["pd"], SETTINGS
        )
        names = {"pd": pd, "values": pd.Series(["1 km", "2 km"])}
        exec(recipe.code, names)
        assert names["kind"][0] == "numeric"
        assert "import pandas" not in recipe.code
        assert (
            recipe.code.index("import re")
            < recipe.code.index("def number_rule")
            < recipe.code.index("kind =")
        )

    def test_the_seed_is_that_of_the_settings(self):
        recipe = with_definitions(Recipe("", "x = RANDOM_STATE", "''"), [], SETTINGS)
        names = {}
        exec(recipe.code, names)
        assert names["x"] == 7

    def test_names_that_a_cell_binds_itself_are_not_brought_in(self):
        recipe = Recipe("", "def label(x):\n    return x\n\n\nlabel(1)", "''")
        assert with_definitions(recipe, [], SETTINGS) is recipe


class TestAfterAnotherAuthor:
    """Part of N-80: cells before were written by someone else, and left only what their criteria ask for."""

    @pytest.fixture
    def book(self, tmp_path):
        table = tables.customers()
        table.loc[::7, "plan"] = None
        book = notebook(tmp_path, table, "Predict churn")
        book.names.update(
            user_problem="Predict churn", user_submit_files=["assets/table.csv"], np=np, pd=pd,
            raw_dataset=table, target_column="churn", task_type="classification",
            data_inventory_checklist="read", data_structure_document={"dtypes": dict.fromkeys(table, 1)},
            variable_analysis_report=pd.DataFrame({"column": list(table)}), problem_thresholds=[],
            observation_unit_report={"rows": len(table)}, relevance_report={"usable_features": ["calls",
            "plan"]},
        )  # fmt: skip
        book.names["Path"] = Path
        return book

    def test_cleaning_exploring_and_planning_still_work(self, book):
        for step in [*INTEGRITY, *EXPLORATION, *METHODOLOGY]:
            recipe = RECIPES[step](replace(book.kitchen, iteration=3))
            book.texts[step] = book.play(recipe, step, defined=list(book.names))
        assert book["df_cleaned"].notna().all().all()
        assert len(book["eda_charts"]) >= 6
        assert book["feature_engineering_strategy"]["numeric"] == ["calls"]

    def test_reports_of_another_shape_do_not_stop_a_retry(self, book):
        for step in INTEGRITY:
            book.play(RECIPES[step](book.kitchen), step, defined=list(book.names))
        book.names.update(
            distribution_analysis="see above", correlation_matrix=np.eye(2), dimension_report="",
            validity_report=None,
            processing_pipeline_doc="cleaned", modeling_recommendations="none", relevance_report=["calls"],
        )  # fmt: skip
        for step in [*EXPLORATION[2:], *METHODOLOGY]:
            recipe = RECIPES[step](replace(book.kitchen, iteration=3))
            book.play(recipe, step, defined=list(book.names))
        assert len(book["eda_insights"]) >= 3
        assert len(book["methodology_document"]) > 200

    def test_the_first_stage_can_be_taken_over_at_any_step(self, book):
        for step in COLLECTION[2:]:
            recipe = RECIPES[step](replace(book.kitchen, iteration=2))
            book.play(recipe, step, defined=list(book.names))
        assert book["relevance_report"]["usable_features"] == ["calls", "plan", "since", "spent"]
