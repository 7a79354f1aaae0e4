"""The criteria of a stage, asserted again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from detent.flows.notebook.recipes import closing
from detent.kernel.errors import ConfigurationError
from tests.flows.notebook.recipes import tables
from tests.flows.notebook.recipes.notebooks import COLLECTION, INTEGRITY, notebook


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    return notebook(tmp_path_factory.mktemp("book"), tables.houses(), "Predict price").cook(
        *COLLECTION, *INTEGRITY
    )


@pytest.fixture(params=[1, 2, 3])
def report(request, book):
    def closed(*criteria):
        recipe = closing.recipe(replace(book.kitchen, iteration=request.param), criteria)
        return book.play(recipe), book["step_validation_report"]

    return closed


class TestClosing:
    def test_criteria_that_hold_are_reported_with_what_was_measured(self, report):
        criteria = [
            "df_cleaned.isnull().sum().sum() == 0",
            "len(raw_dataset) > 0",
            'Path("assets/table.csv").exists()',
        ]
        text, outcome = report(*criteria)
        assert list(outcome) == criteria
        assert all(entry["passed"] for entry in outcome.values())
        assert outcome["len(raw_dataset) > 0"]["measured"] == 120
        assert "3 of 3" in text

    def test_a_criterion_that_fails_is_named_with_its_figure(self, report):
        text, outcome = report("len(raw_dataset) > 200", "raw_dataset.shape[1] >= 2")
        assert outcome["len(raw_dataset) > 200"] == {"passed": False, "measured": 120}
        assert "1 of 2" in text
        assert "`len(raw_dataset) > 200` (measured: 120)" in text

    def test_one_that_raises_has_failed_and_the_rest_is_seen(self, report):
        _, outcome = report("nothing_of_this_name > 1", "len(raw_dataset) > 0")
        assert not outcome["nothing_of_this_name > 1"]["passed"]
        assert "NameError" in outcome["nothing_of_this_name > 1"]["measured"]
        assert outcome["len(raw_dataset) > 0"]["passed"]

    @pytest.mark.parametrize(
        "criterion", ["raw_dataset.shape", "len(raw_dataset)", "(1 == 1, False)", "'yes'"]
    )
    def test_only_true_is_true(self, report, criterion):
        """N-103: what Python takes for true is no answer."""
        assert not report(criterion)[1][criterion]["passed"]

    def test_true_of_numpy_counts(self, report):
        assert report("np.bool_(True)")[1]["np.bool_(True)"]["passed"]


def test_a_criterion_that_is_no_expression_is_refused(book):
    with pytest.raises(ConfigurationError, match="x = 1"):
        closing.recipe(book.kitchen, ["x = 1"])


def test_what_is_checked_is_evaluated_once_more_not_remembered(book):
    recipe = closing.recipe(book.kitchen, ["len(df_cleaned) == 120"])
    book.play(recipe)
    book.names["df_cleaned"] = book["df_cleaned"].head(3)
    book.play(recipe)
    assert book["step_validation_report"]["len(df_cleaned) == 120"] == {"passed": False, "measured": 3}
