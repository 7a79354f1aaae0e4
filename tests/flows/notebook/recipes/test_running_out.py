"""An attempt that ran out of time or memory is followed by one that asks for less, not for more."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from detent.flows.notebook.measuring.execution import ExecutionQuality
from detent.flows.notebook.measuring.reflection import feedback
from detent.flows.notebook.recipes.recipe import Kitchen, RecipeSettings
from detent.flows.notebook.recipes.tuning import model_training_tuning
from detent.flows.notebook.state.facts import Facts
from tests.flows.notebook.recipes.model_notebooks import MODELLING, flowers, prepared

SLOW = "TimeoutError: the cell did not end within 300 s"


def told(*errors: str) -> str:
    """What a retry is told, as the flow words it."""
    return feedback(Facts(at="2026-01-01T00:00:00+00:00"), ExecutionQuality("failed", errors), 1)


def code_of(iteration: int, feedback: str, folder: Path) -> str:
    book = prepared(folder, flowers(40), "kind")
    return model_training_tuning(Kitchen(book.kitchen.problem, RecipeSettings(), iteration, feedback)).code


@pytest.mark.parametrize(
    ("error", "asks_for_less"),
    [
        (SLOW, True),
        ("KernelDied: the kernel's process ended", True),
        ("MemoryError: Unable to allocate 3 GiB", True),
        ("ValueError: a TimeoutError in words", False),
    ],
)
def test_what_ran_out_decides(tmp_path, error, asks_for_less):
    code = code_of(2, told(error), tmp_path)
    ast.parse(code)
    assert ('consider("ExtraTrees"' not in code) == asks_for_less
    assert ("some_rows(STUDY_CELLS)" in code) == asks_for_less


def test_the_second_attempt_searches_little_and_the_third_nothing(tmp_path):
    second, third = (code_of(iteration, told(SLOW), tmp_path) for iteration in (2, 3))
    assert second.count("\nsearch_best_two(") == 1
    assert third.count("\nsearch_best_two(") == 0
    assert "VotingClassifier(members" not in third


def test_a_missed_limit_is_still_followed_by_a_wider_search(tmp_path):
    code = code_of(2, '- cv_metrics["r2"] >= 0.8 failed: 0.7', tmp_path)
    assert 'consider("ExtraTrees"' in code
    assert code.count("\nsearch_best_two(") == 2


def test_what_is_left_gives_a_model_and_says_so(tmp_path):
    book = prepared(tmp_path, flowers(40), "kind").cook(*MODELLING[:2])
    book.cook(MODELLING[2], iteration=3, feedback=told(SLOW))
    assert book["best_params"]["model"] in book["candidates"]
    assert "settings" not in book.texts[MODELLING[2]]
