"""Stage 8, first half: documentation, summary and figures, honest about what was not reached."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.image import imread

from tests.flows.notebook.recipes import tables
from tests.flows.notebook.recipes.notebooks import (
    BEFORE_MODELS,
    COMMUNICATION,
    Notebook,
    notebook,
    without_charts,
)
from tests.flows.notebook.recipes.outcomes import add_outcome

DOCUMENTATION, SUMMARY, FIGURES = COMMUNICATION


@pytest.fixture(scope="module")
def modelled(tmp_path_factory) -> Notebook:
    problem = "Predict price, RMSE below 30000 and R2 above 0.2"
    return add_outcome(
        notebook(tmp_path_factory.mktemp("book"), tables.houses(), problem).cook(*BEFORE_MODELS)
    )


@pytest.fixture
def book(modelled) -> Notebook:
    """The notebook after stage 7, as often as it is wanted."""
    fresh = copy.copy(modelled)
    fresh.names = {**modelled.names}
    fresh.texts, fresh.warnings = {}, []
    # Functions look names up where they were defined: their module is this namespace now.
    for name in (
        "problem_thresholds",
        "test_performance",
        "cv_metrics",
        "holdout_interval",
        "leakage_report",
    ):
        fresh.names[name] = copy.deepcopy(modelled.names[name])
    return fresh


def limits(book, *pairs):
    book.names["problem_thresholds"] = [
        {"metric": metric, "comparison": sign, "value": value} for metric, sign, value in pairs
    ]


class TestVerdict:
    """Part of N-93: what was not achieved is called so everywhere."""

    def test_met_in_folds_and_hold_out_is_achieved(self, book):
        book.cook(*COMMUNICATION)
        for text in (book["technical_documentation"], book["executive_summary"]):
            assert "The goal was **achieved**" in text
            assert "not achieved" not in text
            assert "not met" not in text

    @pytest.mark.parametrize(
        "change",
        [
            lambda book: limits(book, ("rmse", "<", 10.0)),
            lambda book: limits(book, ("rmse", "<", 30000.0), ("r2", ">", 0.9999)),
            lambda book: book["cv_metrics"].update(rmse=40000.0),
            lambda book: book["test_performance"].update(rmse=40000.0),
            lambda book: book["test_performance"].pop("rmse"),
            lambda book: limits(book, ("mape", "<", 0.1)),
        ],
        ids=["missed", "one of two missed", "missed in the folds", "missed on the hold-out", "gone",
        "never measured"],
    )  # fmt: skip
    def test_anything_less_is_not_achieved(self, book, change):
        change(book)
        book.cook(*COMMUNICATION)
        for text in (book["technical_documentation"], book["executive_summary"], book.texts[DOCUMENTATION]):
            assert "**not achieved**" in text
            assert "The goal was **achieved**" not in text
        assert "not achieved" in book["visualization_package"]["outputs/report/scores.png"]
        assert "Do not rely on it" in book["executive_summary"]

    def test_a_criterion_that_is_no_limit_is_named_as_not_met(self, book):
        """The limits are met, and the model varies more than was asked."""
        book.kitchen = replace(book.kitchen, missed={"spread < 0.1": "0.153"})
        book.cook(*COMMUNICATION)
        for text in (book["technical_documentation"], book["executive_summary"]):
            assert "The goal was **not achieved**" in text
            assert "- `spread < 0.1`: 0.153, **not met**." in text
        assert "1 criterion" in book["executive_summary"]
        assert "Do not rely on it" in book["executive_summary"]

    @pytest.mark.parametrize("achieved", [True, False])
    def test_a_limit_inside_the_interval_is_undecided(self, book, achieved):
        score = book["test_performance"]["rmse"]
        book["cv_metrics"]["rmse"] = score
        limits(book, ("rmse", "<", score * (1.05 if achieved else 0.95)))
        book.cook(DOCUMENTATION, SUMMARY)
        for text in (book["technical_documentation"], book["executive_summary"]):
            assert "undecided" in text.lower()
        assert ("**achieved**" in book["executive_summary"]) is achieved

    def test_a_limit_outside_the_interval_is_decided(self, book):
        book.cook(DOCUMENTATION, SUMMARY)
        assert "undecided" not in book["executive_summary"].lower()

    def test_without_limits_the_baseline_has_to_be_beaten_twice(self, book):
        limits(book, ("rmse", "<", "baseline"))
        book.cook(DOCUMENTATION)
        assert "The goal was **achieved**" in book["technical_documentation"]
        book["test_performance"]["rmse"] = book["baseline_performance"]["rmse"] + 1
        book.cook(DOCUMENTATION)
        assert "**not achieved**" in book["technical_documentation"]


class TestDocumentation:
    def test_the_file_is_the_document(self, book):
        book.cook(DOCUMENTATION)
        written = (book.folder / "outputs" / "technical_documentation.md").read_text(encoding="utf-8")
        assert written.strip() == book["technical_documentation"].strip()

    def test_its_figures_are_those_of_the_notebook(self, book):
        """N-72."""
        book.cook(DOCUMENTATION)
        document = book["technical_documentation"]
        assert book["data_inventory_checklist"]["sha256"] in document
        assert (
            "| rmse | "
            + " | ".join(
                f"{book[name]['rmse']:,.0f}"
                for name in ("baseline_metrics", "cv_metrics", "baseline_performance", "test_performance")
            )
            + " |"
            in document
        )
        assert f"{book['test_performance']['rmse']:,.0f}" in document
        assert "0.034" in document
        assert "price_in_thousands" in document

    def test_what_was_never_measured_is_said_to_be_so(self, book):
        for name in ("stability_metrics", "stability_certification", "business_impact_report"):
            del book.names[name]
        book.cook(DOCUMENTATION)
        assert book["technical_documentation"].count("not measured") >= 3


class TestSummary:
    def test_it_is_one_page_that_begins_with_the_answer(self, book):
        book.cook(DOCUMENTATION, SUMMARY)
        summary = book["executive_summary"]
        assert len(summary.split()) < 400
        assert summary.index("Predict price") < summary.index("**Answer.**") < summary.index("How good it is")
        assert f"off by {book['test_performance']['mae']:,.0f}" in summary
        assert f"off by {book['baseline_performance']['mae']:,.0f} on the same rows" in summary
        assert f"{book['baseline_metrics']['mae']:,.0f}" not in summary  # that of the folds
        assert "`size`" in summary
        assert "Collect more rows of small towns." in summary

    def test_classes_are_told_by_balanced_accuracy(self, tmp_path):
        book = without_charts(notebook(tmp_path, tables.customers(), "Predict churn"))
        add_outcome(book).cook(DOCUMENTATION, SUMMARY)
        assert (
            f"balanced accuracy is {book['test_performance']['balanced_accuracy']:.4g}"
            in book["executive_summary"]
        )

    def test_the_positive_class_is_named_where_scores_are_about_it(self, tmp_path):
        book = without_charts(notebook(tmp_path, tables.customers(), "Predict churn"))
        add_outcome(book)
        limits(book, ("f1", ">", 0.1))
        book.names["LABELS"] = ["no", "yes"]
        for name in ("cv_metrics", "test_performance", "baseline_metrics", "baseline_performance"):
            book.names[name]["f1"] = 0.25
        book.cook(DOCUMENTATION, SUMMARY)
        assert book["technical_documentation"].count("the positive class, `yes`") == 2
        assert "the positive class, `yes`" in book["executive_summary"]
        book.names["LABELS"] = ["a", "b", "c"]
        book.cook(DOCUMENTATION)
        assert "means over the classes" in book["technical_documentation"]


class TestFigures:
    def test_every_figure_under_outputs_has_a_caption(self, book):
        book.cook(DOCUMENTATION, FIGURES)
        package = book["visualization_package"]
        assert {(book.folder / path).exists() for path in package} == {True}
        assert package["outputs/evaluation/predicted_and_actual.png"] == "Predicted and actual"
        assert package["outputs/eda/01_target.png"] == "Distribution of price"
        assert all(package.values())
        assert len(package) == len(list((book.folder / "outputs").rglob("*.png"))) >= 8

    def test_the_score_chart_is_no_blank(self, book):
        book.cook(DOCUMENTATION, FIGURES)
        pixels = imread(book.folder / "outputs" / "report" / "scores.png")[..., :3]
        assert (pixels < 0.9).any(axis=2).mean() > 0.05

    def test_a_retry_adds_figures_where_there_are_few(self, book, tmp_path):
        book.folder = tmp_path
        book.cook(DOCUMENTATION)
        with pytest.raises(AssertionError, match="visualization_package"):
            book.cook(FIGURES)
        book.cook(FIGURES, iteration=2)
        assert len(book["visualization_package"]) == 8


def test_scores_that_are_not_numbers_do_not_stop_the_report(book):
    book["test_performance"]["r2"] = np.float64("nan")
    book.cook(*COMMUNICATION)
    assert "**not achieved**" in book["executive_summary"]
