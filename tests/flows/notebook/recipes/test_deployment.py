"""Stage 8, second half: the script with its guide, and the model card."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec

import pytest

from detent.flows.notebook.recipes.deployment import script_literal
from tests.flows.notebook.recipes import tables
from tests.flows.notebook.recipes.notebooks import RECIPES, Notebook, notebook, without_charts
from tests.flows.notebook.recipes.outcomes import add_outcome


def reported(folder, table, problem, **options) -> Notebook:
    book = without_charts(notebook(folder, table, problem, **options))
    return add_outcome(book).cook("technical_documentation")


@pytest.fixture(scope="module")
def houses(tmp_path_factory) -> Notebook:
    table = tables.houses().assign(const=1)
    return reported(tmp_path_factory.mktemp("houses"), table, "Predict price, RMSE < 30000")


class TestModelCard:
    def test_it_holds_all_that_a_card_must(self, houses):
        """Section 9.3 names them."""
        houses.cook("deployment_support")
        card = (houses.folder / "outputs" / "model_card.md").read_text(encoding="utf-8")
        assert card == houses["model_card"]
        for title in (
            "Purpose", "Data", "Features", "Columns removed as leaks", "Model", "Limits",
            "Scores and baseline",
            "Predictability, computability, stability", "Hold-out", "Limitations", "How to use",
            "Seed and versions",
        ):  # fmt: skip
            assert f"\n## {title}\n" in card
        for part in (
            "Predict price, RMSE < 30000", houses["data_inventory_checklist"]["sha256"], "table.csv",
            "120 rows and 6 columns", "`const`", "`price_in_thousands`", "alpha", "rmse < 30,000",
            f"{houses['baseline_metrics']['rmse']:,.0f}", "looked at 1 time", "python outputs/predict.py",
            "seed 42", f"pandas {houses['pd'].__version__}", "coefficient of variation 0.034",
        ):  # fmt: skip
            assert part in card

    @pytest.mark.parametrize(
        ("usual", "said"),
        [
            (150.0, "excludes the baseline's 150: better than the baseline"),
            (100.0, "holds the baseline's 100: **no better than the baseline, beyond chance**"),
            (50.0, "excludes the baseline's 50: **worse** than the baseline"),
        ],
    )
    def test_predictability_names_what_was_checked_and_the_baseline(self, houses, usual, said):
        """N-84: a scored hold-out without leaks is compliant; that is no praise of the score."""
        names = houses.names
        kept = names["holdout_interval"], names["baseline_performance"]
        names["holdout_interval"] = {"rmse": [90.0, 110.0]}
        names["baseline_performance"] = {"rmse": usual}
        try:
            houses.cook("deployment_support")
        finally:
            names["holdout_interval"], names["baseline_performance"] = kept
        (line,) = [line for line in houses["model_card"].splitlines() if line.startswith("- predictability")]
        assert line.startswith(
            "- predictability: checks passed: 24 rows held out and scored, leaks that remain: none"
        )
        assert "not that it is good" in line
        assert said in line

    def test_no_clock_time_and_no_path_of_this_machine_is_in_it(self, houses):
        houses.cook("deployment_support")
        assert str(houses.folder) not in houses["model_card"]

    def test_what_was_not_achieved_is_a_limitation(self, houses):
        limit, houses.names["problem_thresholds"] = (
            houses["problem_thresholds"], [{"metric": "rmse", "comparison": "<", "value": 5.0}],
        )  # fmt: skip
        try:
            houses.cook("deployment_support")
            assert "The goal was **not achieved**" in houses["model_card"]
            assert "- Not achieved: rmse < 5" in houses["model_card"]
            assert "not achieved" in houses.texts["deployment_support"]
        finally:
            houses.names["problem_thresholds"] = limit

    def test_so_is_a_criterion_that_is_no_limit(self, houses):
        """The card names it though the cells before it were an agent's and did not."""
        kitchen = replace(houses.kitchen, missed={"spread < 0.1": "0.153"})
        houses.play(RECIPES["deployment_support"](kitchen))
        try:
            assert "The goal was **not achieved**" in houses["model_card"]
            assert "- Not achieved: `spread < 0.1`: 0.153, **not met**." in houses["model_card"]
        finally:
            del houses.names["criteria_missed"]

    def test_rows_further_ahead_in_time_are_not_what_the_score_is_about(self, houses):
        kept = houses["evaluation_framework"]
        houses.names["evaluation_framework"] = {**kept, "split": {"kind": "time", "column": "built"}}
        try:
            houses.cook("deployment_support")
            assert "holds for such rows only" in houses["model_card"]
        finally:
            houses.names["evaluation_framework"] = kept
        houses.cook("deployment_support")
        assert "holds for such rows only" not in houses["model_card"]

    def test_a_second_look_at_the_hold_out_is_said(self, houses):
        houses.names["holdout_looks"] = 2
        try:
            houses.cook("deployment_support")
            assert "looked at 2 times" in houses["model_card"]
        finally:
            houses.names["holdout_looks"] = 1

    def test_leaks_rare_classes_and_gaps_are_limitations(self, tmp_path):
        table = tables.customers(240, share=0.03)
        table.loc[table.index % 2 == 0, "spent"] = None
        book = reported(tmp_path, table, "Predict churn")
        book["leakage_report"]["leaks"] = ["calls"]
        book.names["stability_certification"] = {"certified": False}
        card = book.cook("deployment_support")["model_card"]
        limitations = card[card.index("## Limitations") :]
        assert "yes: 7" in limitations
        assert "`spent`" in limitations
        assert "calls" in limitations
        assert "not certified" in limitations

    def test_odd_names_stay_inside_code(self, tmp_path):
        """Part of N-111."""
        book = reported(tmp_path, tables.odd_names(), "Predict it", target="'] + [1/0")
        card = book.cook("deployment_support")["model_card"]
        assert "`<script>alert(1)</script>`" in card
        assert "`x y`" in card


class TestScript:
    @pytest.mark.parametrize("script", ['print("a")\n', "x = '''a'''\n", "x = 'a\\n'\n", "x = 1\\", "'", ""])
    def test_a_script_comes_out_of_its_cell_as_it_went_in(self, script):
        assert eval(script_literal(script)) == script

    @pytest.mark.skipif(
        find_spec("detent.flows.notebook.recipes.predict_script") is None, reason="written with stage 5"
    )
    def test_the_script_is_written_and_the_guide_says_how_to_run_it(self, houses):
        houses.cook("stakeholder_guidance")
        script = (houses.folder / "outputs" / "predict.py").read_text(encoding="utf-8")
        compile(script, "predict.py", "exec")
        assert "python outputs/predict.py NEW [OUT]" in houses["implementation_guide"]
        assert "`size`" in houses["implementation_guide"]
