"""The arithmetic of trust, against the published values and its own laws."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detent.dispatch.trust import (
    LOWER_BETS,
    RAISE_BETS,
    Detector,
    at_most,
    factor,
    power_low,
    raise_number,
)
from tests.examples import examples

Q = 0.02
PATIENCE = 10_000


def alarm(costs: Iterable[float], q: float = Q) -> int | None:
    """The number of the verdict at which a detector raises an alarm."""
    detector = Detector()
    for number, cost in enumerate(costs, 1):
        detector = detector.after(cost, q)
        if detector.mean >= PATIENCE:
            return number
    return None


def every(nth: int, of: int) -> list[float]:
    return [float(number % nth == 0) for number in range(1, of + 1)]


@pytest.mark.parametrize(("n", "wrong", "number"), [(189, 0, 24.59), (190, 0, 25.03), (500, 2, 66.2)])
def test_the_raise_number_has_its_published_values(n: int, wrong: int, number: float) -> None:
    assert raise_number(n, wrong, Q) == pytest.approx(number, rel=1e-3)


@pytest.mark.parametrize(
    ("tolerated", "clean"), [(0.1, 37), (0.05, 75), (0.02, 190), (0.01, 382), (0.005, 767)]
)
def test_the_clean_visits_needed_are_as_published(tolerated: float, clean: int) -> None:
    reached = next(n for n in itertools.count(1) if raise_number(n, 0, tolerated) >= 1 / 0.04)
    assert reached == clean


@pytest.mark.parametrize(
    ("n", "wrong", "risk", "rate"),
    [
        (40, 0, 0.04, 0.0912),
        (212, 0, 0.04, 0.0179),
        (212, 5, 0.04, 0.0666),
        (1000, 10, 0.04, 0.0224),
        (200, 2, 0.01, 0.0519),
        (37, 1, 0.01, 0.207),
    ],
)
def test_at_most_has_its_published_values(n: int, wrong: int, risk: float, rate: float) -> None:
    assert at_most(n, wrong, risk) == pytest.approx(rate, abs=6e-5 if rate < 0.1 else 6e-4)


def test_the_detector_raises_its_alarm_where_published() -> None:
    assert alarm([1.0] * 10) == 5
    assert alarm([0.0] * 1000 + [1.0] * 10) == 1004
    assert alarm(every(10, 1000)) == 90
    assert alarm(every(20, 1000)) == 380
    assert alarm(every(50, 20_000)) is None


def test_without_evidence_nothing_is_excluded() -> None:
    assert at_most(0, 0, 0.04) == 1.0
    assert at_most(50, 50, 0.04) == 1.0
    assert power_low(0, 0, 0.01) == 0.0
    assert raise_number(0, 0, Q) == 1.0


def test_a_bold_bet_never_makes_a_right_answer_count_against_the_agent() -> None:
    # 10 * 0.1 = 1 would make the factor zero, and the detector blind for ever.
    for q in (0.02, 0.1, 0.3, 0.9):
        for bet in (*RAISE_BETS, *LOWER_BETS):
            assert factor(bet, q, 0.0) > 0


@given(q=st.floats(0.001, 0.5), bet=st.sampled_from([*RAISE_BETS, *LOWER_BETS]))
@settings(max_examples=examples(200))
def test_at_a_rate_of_exactly_q_a_number_stays_the_same_on_average(q: float, bet: float) -> None:
    assert q * factor(bet, q, 1.0) + (1 - q) * factor(bet, q, 0.0) == pytest.approx(1.0)


@given(n=st.integers(1, 3000), share=st.floats(0, 1), risk=st.sampled_from([0.01, 0.04, 0.2]))
@settings(max_examples=examples(200))
def test_at_most_covers_the_seen_rate_rises_with_errors_and_falls_with_visits(
    n: int, share: float, risk: float
) -> None:
    wrong = int(n * share)
    rate = at_most(n, wrong, risk)
    assert rate >= wrong / n
    assert at_most(n + 1, wrong, risk) <= rate + 1e-12
    assert at_most(n + 1, wrong + 1, risk) >= rate - 1e-12


@given(costs=st.lists(st.sampled_from([0.0, 0.0, 0.0, 0.1, 1.0]), max_size=60), seed=st.integers(0, 99))
@settings(max_examples=examples(200))
def test_the_order_of_verdicts_changes_the_detector_and_nothing_else(costs: list[float], seed: int) -> None:
    shuffled = list(costs)
    random.Random(seed).shuffle(shuffled)

    def errors(of: list[float]) -> dict[float, int]:
        return {cost: of.count(cost) for cost in of if cost}

    assert raise_number(len(costs), errors(shuffled), Q) == pytest.approx(
        raise_number(len(costs), errors(costs), Q), rel=1e-9
    )
    assert Detector().after_all([1.0, 0.0], Q) != Detector().after_all([0.0, 1.0], Q)


def test_looking_after_every_visit_raises_a_bad_agent_no_more_often_than_the_risk() -> None:
    # The rule it replaces raised 18 % of such agents.
    chance, raised, agents = random.Random(13), 0, 300
    number = cache(lambda n, wrong: raise_number(n, wrong, Q))
    for _ in range(agents):
        wrong = 0
        for n in range(1, 1501):
            wrong += chance.random() < Q
            if number(n, wrong) >= 25:
                raised += 1
                break
    assert raised / agents <= 0.05


def test_cheap_errors_weigh_by_their_cost() -> None:
    assert raise_number(300, {0.1: 15}, Q) >= 25  # 5 % at a tenth of the cost: 0.5 % mean cost
    assert raise_number(300, 15, Q) < 1
    assert at_most(300, {0.1: 15}, 0.04) < Q < at_most(300, 15, 0.04)
    assert raise_number(5000, {0.1: 1500}, Q) < 1  # 30 % at a tenth: 3 %


def test_many_clean_visits_overflow_nothing() -> None:
    assert raise_number(10**7, 0, Q) > 1e12
    assert Detector().after_all([1.0] * 2000, 0.5).mean <= 1e12
    assert 0 < at_most(10**7, 0, 0.04) < 1e-5


def test_a_weak_check_needs_more_evidence_not_less() -> None:
    whole = at_most(400, 0, 0.04) / power_low(200, 200, 0.01)
    half = at_most(400, 0, 0.04) / power_low(200, 100, 0.01)
    assert half > 1.9 * whole


@given(st.lists(st.tuples(st.integers(0, 400), st.booleans()), max_size=12))
@settings(max_examples=examples(200))
def test_right_answers_in_a_row_can_be_added_at_once(stretches: list[tuple[int, bool]]) -> None:
    at_once = one_by_one = Detector()
    for right, wrong in stretches:
        at_once = at_once.after_right(right, Q)
        one_by_one = one_by_one.after_all([0.0] * right, Q)
        if wrong:
            at_once, one_by_one = at_once.after(1.0, Q), one_by_one.after(1.0, Q)
    assert at_once.numbers == pytest.approx(one_by_one.numbers, rel=1e-9)
