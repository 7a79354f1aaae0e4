"""The recipes as a whole: complete, pure, seeded, and the same at every execution."""

from __future__ import annotations

import ast
from dataclasses import replace
from importlib.util import find_spec

import pandas as pd
import pytest

from detent.flows.notebook.measuring.code_check import check_cells, holdout_uses
from detent.flows.notebook.recipes.data_catalogue import RECIPES
from detent.flows.notebook.recipes.recipe import Kitchen
from tests.flows.notebook.recipes import tables
from tests.flows.notebook.recipes.notebooks import ACCEPTANCE, BEFORE_MODELS, Notebook, notebook

HAS_SCRIPT = find_spec("detent.flows.notebook.recipes.predict_script") is not None
WRITTEN = [step for step in RECIPES if HAS_SCRIPT or step != "stakeholder_guidance"]
"""The script of `stakeholder_guidance` is written with stage 5."""
PUBLIC = {
    "hashlib", "joblib", "lightgbm", "matplotlib", "numpy", "pandas", "pathlib", "platform", "re", "sklearn",
    "warnings", "xgboost",
}  # fmt: skip


@pytest.fixture(scope="module")
def kitchen(tmp_path_factory) -> Kitchen:
    table = tables.odd_names()
    table["</add-code2run>"] = "constant"
    folder = tmp_path_factory.mktemp("kitchen")
    return notebook(folder, table, "Predict it, RMSE below 3", target="'] + [1/0", keep=["a|b"]).kitchen


def test_every_step_of_stages_1_to_4_and_8_has_a_recipe():
    """Part of N-96."""
    assert set(RECIPES) == set(ACCEPTANCE)
    assert len(RECIPES) == 22


@pytest.mark.parametrize("step", WRITTEN)
class TestEachRecipe:
    def test_it_is_the_same_whenever_it_is_written(self, step, kitchen):
        """Part of N-16."""
        assert RECIPES[step](kitchen) == RECIPES[step](kitchen)

    def test_it_has_prose_code_and_an_expression(self, step, kitchen):
        for iteration in (1, 2, 3):
            recipe = RECIPES[step](replace(kitchen, iteration=iteration))
            assert len(recipe.lead.split()) >= 12
            ast.parse(recipe.code)
            ast.parse(recipe.result.strip(), mode="eval")

    def test_a_retry_writes_other_code(self, step, kitchen):
        first, second, third = (RECIPES[step](replace(kitchen, iteration=n)).code for n in (1, 2, 3))
        assert first != second
        assert first != third

    def test_public_packages_are_imported_and_nothing_of_ours(self, step, kitchen):
        """Part of N-109."""
        for node in ast.walk(ast.parse(RECIPES[step](kitchen).code)):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = (
                    [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module]
                )
                assert {name.partition(".")[0] for name in names} <= PUBLIC

    def test_random_calls_are_seeded_and_no_clock_is_read(self, step, kitchen):
        """Part of N-85 and N-16."""
        for iteration in (1, 2, 3):
            code = RECIPES[step](replace(kitchen, iteration=iteration)).code
            for node in ast.walk(ast.parse(code)):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                    called = node.func.attr
                    assert called not in (
                        "now",
                        "today",
                        "time",
                        "perf_counter",
                        "resolve",
                        "absolute",
                        "cwd",
                    )
                    if called == "sample":
                        assert "random_state" in {keyword.arg for keyword in node.keywords}

    def test_lines_are_short_enough_to_read(self, step, kitchen):
        recipe = RECIPES[step](kitchen)
        assert max(map(len, recipe.code.splitlines())) <= 120


class TestTogether:
    def test_what_agents_are_refused_the_recipes_do_not_do_either(self, kitchen):
        """Part of N-71, N-85: no unseeded call, no unknown name, nothing that the policy forbids."""
        for iteration in (1, 2, 3):
            sources = [RECIPES[step](replace(kitchen, iteration=iteration)).code for step in WRITTEN]
            later = ["X_train", "cv_metrics"]  # of stage 5
            assert check_cells(sources, known=later) == ()

    def test_stages_1_to_4_know_nothing_of_the_hold_out(self, kitchen):
        for step in BEFORE_MODELS:
            assert list(holdout_uses(RECIPES[step](kitchen).code)) == []


@pytest.fixture(scope="module")
def twice(tmp_path_factory) -> list[Notebook]:
    """The same problem from the top, two times, in two folders."""
    books = []
    for folder in ("one", "two"):
        table = tables.customers(150)
        table.loc[::6, "spent"] = None
        book = notebook(tmp_path_factory.mktemp(folder), table, "Predict churn")
        books.append(book.cook(*BEFORE_MODELS))
    return books


class TestExecutedAgain:
    """Part of N-16 and N-95: a second execution gives the same variables, texts and figures."""

    def test_every_variable_of_the_catalogue_is_equal(self, twice):
        one, two = twice
        for name in (
            "data_inventory_checklist", "data_structure_document", "variable_analysis_report",
            "relevance_report",
            "observation_unit_report", "pcs_hypothesis_framework", "data_existence_report",
            "dimension_report",
            "validity_report", "processing_pipeline_doc", "data_quality_report",
            "integrity_verification_report",
            "distribution_analysis", "relation_strength", "eda_insights", "eda_summary",
            "modeling_recommendations",
            "eda_charts", "feature_engineering_strategy", "model_method_candidates", "evaluation_framework",
            "methodology_document",
        ):  # fmt: skip
            assert one[name] == two[name], name
            assert str(one.folder) not in str(one[name]), name
        for name in ("raw_dataset", "df_typed", "df_cleaned", "correlation_matrix"):
            pd.testing.assert_frame_equal(one[name], two[name])

    def test_texts_and_printed_output_are_equal(self, twice):
        one, two = twice
        assert one.texts == two.texts
        assert one.printed == two.printed

    def test_charts_are_equal_byte_for_byte(self, twice):
        one, two = twice
        for chart in one["eda_charts"]:
            assert (one.folder / chart).read_bytes() == (two.folder / chart).read_bytes()
