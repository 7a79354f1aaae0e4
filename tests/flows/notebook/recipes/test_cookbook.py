"""Recipes behind cells of the recipes before them, and behind cells that another author wrote."""

from __future__ import annotations

from dataclasses import replace

import pytest

from detent.flows.notebook.domain.catalogue_data import catalogue
from detent.flows.notebook.measuring.expressions import assigned_names
from detent.flows.notebook.recipes.cookbook import CLOSING, RECIPES, recipe_for
from detent.flows.notebook.recipes.preparation import missing_names, with_preparation
from detent.flows.notebook.recipes.recipe import Kitchen, Recipe
from tests.flows.notebook.domain.made_notebook import reading_of
from tests.flows.notebook.recipes.model_notebooks import houses, prepared

STEPS = [step for stage in catalogue() for step in stage.steps]
KITCHEN = Kitchen(reading_of())


class TestWhichRecipe:
    def test_every_step_has_one_and_a_foreign_step_has_none(self):
        assert list(RECIPES) == [step.id for step in STEPS]
        assert recipe_for("make_tea", KITCHEN, [], [], ()) is None

    def test_the_closing_behavior_asserts_the_criteria(self):
        recipe = recipe_for("method_proposal", KITCHEN, [CLOSING], ["len(frame) > 3"], ["pd", "frame"])
        assert "len(frame) > 3" in recipe.code

    @pytest.mark.parametrize("task", ["regression", "classification"])
    def test_behind_the_recipes_before_it_a_recipe_stays_as_it_is(self, task):
        """N-16: nothing is written twice."""
        kitchen = Kitchen(reading_of(task))
        defined: set[str] = set()
        for step, write in RECIPES.items():
            recipe = write(kitchen)
            assert recipe_for(step, kitchen, [], [], defined).code == recipe.code
            defined |= assigned_names(recipe.code)


class TestBehindAnotherAuthor:
    """N-80: cells of an agent left the artifacts of their steps and nothing else."""

    def test_nothing_is_missing_and_nothing_of_theirs_is_made_again(self):
        defined = {"user_problem", "user_submit_files"}
        for step in STEPS:
            own = assigned_names(RECIPES[step.id](KITCHEN).code)
            recipe = recipe_for(step.id, KITCHEN, [], [], defined)
            assert missing_names(recipe, defined) == set(), step.id
            assert not (assigned_names(recipe.code) & defined) - own, step.id
            defined |= {artifact.name for artifact in step.artifacts}

    def test_code_scores_behind_an_agents_split_and_model(self, tmp_path):
        book = prepared(tmp_path, houses(), "price")
        book.run(
            "from sklearn.model_selection import train_test_split\n"
            "made = train_test_split(df_typed[['size', 'rooms', 'town']], df_typed['price'], random_state=1)\n"
            "X_train, X_test, y_train, y_test = made\n"
            "feature_pipeline, leakage_report = ['none'], {'leaks': []}\n"
            "trained_models, training_history = {'a': 1, 'b': 2, 'c': 3}, [{'model': 'a', 'rmse': 9e9}]\n"
            "from sklearn.compose import make_column_selector, make_column_transformer\n"
            "from sklearn.impute import SimpleImputer\n"
            "from sklearn.linear_model import LinearRegression\n"
            "from sklearn.pipeline import make_pipeline\n"
            "numbers = make_column_transformer((SimpleImputer(), make_column_selector(dtype_include='number')))\n"
            "final_model = make_pipeline(numbers, LinearRegression()).fit(X_train, y_train)\n"
            "cv_metrics = {'rmse': 30000.0}\n"
            "import warnings"
        )
        rows, model = list(book["X_test"].index), book["final_model"]
        for step in ("cross_validation_assessment", "holdout_evaluation", "business_impact_assessment"):
            recipe = recipe_for(step, replace(book.kitchen, iteration=1), [], [], set(book.names))
            book.run(recipe.code, step)
            assert book.value(recipe.result.strip())
        assert list(book["X_test"].index) == rows
        assert book["final_model"] is model
        assert book["trained_models"] == {"a": 1, "b": 2, "c": 3}
        assert book["test_performance"]["n"] == len(rows)
        assert book["business_impact_report"]["beats_baseline"]


class TestStatements:
    def test_a_loop_that_fills_a_name_comes_with_it(self):
        earlier = [
            "from math import sqrt\nfound = {}\nfor n in range(3):\n    found[n] = sqrt(n)\nprint(found)"
        ]
        recipe = with_preparation(Recipe("", "total = sum(found.values())", "str(total)"), earlier, [])
        assert "print" not in recipe.code
        names: dict[str, object] = {}
        exec(recipe.code, names)
        assert names["total"] > 2

    def test_what_is_there_is_not_made_again_though_it_was_made_beside_what_is_missing(self):
        earlier = ["first, second = 1, 2"]
        recipe = Recipe("", "third = first + second", "str(third)")
        assert with_preparation(recipe, earlier, ["first"]).code == recipe.code

    def test_loop_variables_and_those_of_functions_are_not_missing(self):
        code = "def f(x):\n    return [y for y in x]\n\nfor z in f([1]):\n    print(z)"
        assert missing_names(Recipe("", code, "str([q for q in f([2])])"), []) == set()
