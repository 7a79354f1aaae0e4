"""Everything that is wrong with a round before anything runs."""

import pytest

from detent.flows.notebook.measuring.code_check import check_cells, holdout_uses


def found(*sources, **settings):
    settings = {"known": {"X_train", "y_train", "frame"}, **settings}
    return [(problem.code, problem.cell, problem.name) for problem in check_cells(sources, **settings)]


def test_a_good_round_has_no_problem():
    assert found("import numpy as np\nmean = np.mean(X_train)", "print(mean)") == []


def test_each_kind_of_problem_is_reported_with_its_cell():
    """N-71, N-85, section 5.2."""
    assert found("import subprocess", "print(ghost)\nframe.sample(3)") == [
        ("forbidden_import", 0, "subprocess"),
        ("undefined_name", 1, "ghost"),
        ("unseeded", 1, "sample"),
    ]


def test_imports_of_earlier_cells_count_and_their_calls_are_not_reported_again():
    earlier = ["import numpy as np\nnp.random.rand(3)"]
    known = {"np"}
    assert found("np.random.rand(3)", known=known, imports=earlier) == [("unseeded", 0, "numpy.random.rand")]


class TestHoldout:
    """Section 6: between the split and its own step no cell names the hold-out."""

    @pytest.mark.parametrize(
        "source",
        [
            "model.score(X_test, y_test)",
            "search.fit(X_train, y_train, eval_set=[(X_test, y_train)])",
            "y = globals()['y_test']",
            "def f():\n    return y_test",
            "X_test = X_test.copy()",
        ],
    )
    def test_a_cell_that_names_it_is_refused_while_it_is_closed(self, source):
        """N-104."""
        known = {"model", "search", "X_train", "y_train", "X_test", "y_test"}
        assert "holdout" in [code for code, _, _ in found(source, known=known, holdout_is_closed=True)]
        assert "holdout" not in [code for code, _, _ in found(source, known=known)]

    @pytest.mark.parametrize(
        "source", ["X_tested = 1", "print('about X_test and y_test')", "# X_test", "a.y_testing"]
    )
    def test_other_names_and_prose_are_not(self, source):
        assert list(holdout_uses(source)) == []
