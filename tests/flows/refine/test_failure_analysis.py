"""What follows from a failed evaluation, for every combination of owners."""

from __future__ import annotations

from itertools import product

import pytest

from detent.flows.refine.attempt import Attempt, best_attempt
from detent.flows.refine.evaluation import (
    AutomaticFailure,
    Category,
    CategoryScore,
    Evaluation,
    Issue,
    Rubric,
    ValidationReport,
    Weakness,
)
from detent.flows.refine.failure_analysis import analyse
from detent.kernel.errors import ConfigurationError


def never(*_):
    return None


PLANS, WRITINGS = ("p1", "p2", "p3"), ("i1", "i2", "i3")
RUBRIC = Rubric(
    tuple(Category(name, "plan") for name in PLANS)
    + tuple(Category(name, "implementation") for name in WRITINGS),
    (AutomaticFailure("bad_plan", "plan", never), AutomaticFailure("bad_work", "implementation", never)),
)


def evaluation(failing=(), codes=(), rest=100.0):
    scores = tuple(
        CategoryScore(name, 50 if name in failing else rest, weaknesses=(Weakness(f"{name} is weak"),))
        for name in (*PLANS, *WRITINGS)
    )
    return Evaluation(category_scores=scores, automatic_failures=tuple(codes))


@pytest.mark.parametrize(("plans", "writings"), product(range(4), range(4)))
@pytest.mark.parametrize("codes", [(), ("bad_plan",), ("bad_work",), ("bad_plan", "bad_work")], ids=str)
def test_every_combination_of_failing_owners(plans, writings, codes):
    """R-42"""
    failing = (*PLANS[:plans], *WRITINGS[:writings])
    analysis = analyse(evaluation(failing, codes), RUBRIC)
    if "bad_plan" in codes:
        expected = ("both" if len(codes) == 2 else "plan", "replan")
    elif codes or plans == writings == 0:
        expected = ("implementation", "refine_implementation")
    elif plans == writings:
        expected = ("both", "replan")
    elif plans > writings:
        expected = ("plan", "replan")
    else:
        expected = ("implementation", "refine_implementation")
    assert (analysis.primary_issue, analysis.fix_strategy) == expected
    assert analysis.failure_categories == (*codes, *failing)
    if codes:
        assert analysis.root_cause == codes[0]
    elif failing:
        assert analysis.root_cause == f"{failing[0]} 50: {failing[0]} is weak"


@pytest.mark.parametrize(("overall", "strategy"), [(59.9, "replan"), (60, "refine_implementation")])
def test_without_a_failing_category_the_overall_score_decides(overall, strategy):
    """R-42, with and without a rubric."""
    assert analyse(Evaluation(overall)).fix_strategy == strategy
    assert analyse(Evaluation(overall), RUBRIC).fix_strategy == strategy


@pytest.mark.parametrize(
    ("options", "escalated"),
    [
        ({}, False),
        ({"refined": True, "gain": 0.9}, True),
        ({"refined": True, "gain": -3}, True),
        ({"refined": True, "gain": 1.0}, False),
        ({"refined": False, "gain": 0.0}, False),
        ({"refined": True, "gain": None}, False),
        ({"replan": True}, True),
    ],
    ids=str,
)
def test_a_refinement_that_leads_nowhere_is_planned_anew(options, escalated):
    """R-42, rule 4."""
    soft = analyse(evaluation(WRITINGS[:1]), RUBRIC, **options)
    assert (soft.escalated, soft.fix_strategy == "replan") == (escalated, escalated)
    hard = analyse(evaluation(PLANS[:1]), RUBRIC, **options)
    assert (hard.escalated, hard.fix_strategy) == (False, "replan")


@pytest.mark.parametrize(
    "wrong",
    [
        Evaluation(category_scores=(CategoryScore("p1", 1),)),
        Evaluation(category_scores=(*evaluation().category_scores, CategoryScore("p4", 1))),
        Evaluation(category_scores=(*evaluation().category_scores, CategoryScore("p1", 1))),
        evaluation(codes=("bad_plna",)),
    ],
    ids=["missing", "unknown", "twice", "code"],
)
def test_only_names_of_the_rubric_count(wrong):
    """R-42"""
    with pytest.raises(ValueError, match="p1|p2|p4|bad_plan"):
        RUBRIC.check_names(wrong)
    RUBRIC.check_names(evaluation(codes=("bad_plan",)))


def test_a_rubric_names_everything_once():
    with pytest.raises(ConfigurationError, match="'a' twice"):
        Rubric((Category("a", "plan"),), (AutomaticFailure("a", "plan", never),))


VALID, INVALID = ValidationReport(), ValidationReport((Issue("error", "r", "m"),))


def scored(number, overall, lowest=None, codes=()):
    scores = () if lowest is None else (CategoryScore("a", lowest), CategoryScore("b", 2 * overall - lowest))
    return Attempt(number, {}, VALID, {}, Evaluation(overall, scores, codes))


@pytest.mark.parametrize(
    ("attempts", "best"),
    [
        ([scored(1, 50), scored(2, 60)], 2),
        ([scored(1, 90, codes=("x",)), scored(2, 20)], 2),
        ([scored(1, 60, 50), scored(2, 60, 55)], 2),
        ([scored(1, 60, 55), scored(2, 60, 50)], 1),
        ([scored(1, 60), scored(2, 60)], 1),
        ([Attempt(1, {}, VALID), scored(2, 0, codes=("x",))], 2),
        ([Attempt(1, {}, VALID), Attempt(2, {}, INVALID)], 1),
        ([Attempt(1, {}, VALID), Attempt(2, {}, VALID)], 2),
        ([Attempt(1, {}, INVALID), Attempt(2, {}, None)], 2),
    ],
)
def test_the_best_attempt(attempts, best):
    """R-25: in whatever order they are given."""
    for given in (attempts, attempts[::-1]):
        assert best_attempt(given).iteration == best
    assert best_attempt([]) is None


def test_an_attempt_survives_being_written_and_read():
    attempt = scored(3, 60, 50, ("x",))
    assert Attempt.from_plain(attempt.to_plain()) == attempt
