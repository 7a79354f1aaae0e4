"""An attempt that ran out of time or memory is followed by one that asks for less, not for more."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from detent.flows.notebook.recipes.recipe import Kitchen, RecipeSettings
from detent.flows.notebook.recipes.tuning import model_training_tuning
from tests.flows.notebook.recipes.model_notebooks import MODELLING, flowers, prepared


def code_of(folder: Path, iteration: int, ran_out: int = 0) -> str:
    book = prepared(folder, flowers(40), "kind")
    kitchen = Kitchen(book.kitchen.problem, RecipeSettings(), iteration, ran_out=ran_out)
    return model_training_tuning(kitchen).code


@pytest.mark.parametrize("iteration", [2, 3])
def test_what_ran_out_asks_for_less(tmp_path, iteration):
    code = code_of(tmp_path, iteration, ran_out=1)
    ast.parse(code)
    assert 'consider("ExtraTrees"' not in code
    assert "VotingClassifier(members" not in code
    assert "some_rows(STUDY_CELLS)" in code


def test_after_two_attempts_nothing_is_searched(tmp_path):
    second, third = (code_of(tmp_path, 1 + times, times) for times in (1, 2))
    assert second.count("\nsearch_best_two(") == 1
    assert third.count("\nsearch_best_two(") == 0


def test_a_missed_limit_is_still_followed_by_a_wider_search(tmp_path):
    code = code_of(tmp_path, 2)
    assert 'consider("ExtraTrees"' in code
    assert code.count("\nsearch_best_two(") == 2


def test_what_is_left_gives_a_model_and_says_so(tmp_path):
    book = prepared(tmp_path, flowers(40), "kind").cook(*MODELLING[:2])
    book.cook(MODELLING[2], iteration=3, ran_out=2)
    assert book["best_params"]["model"] in book["candidates"]
    assert "settings" not in book.texts[MODELLING[2]]
