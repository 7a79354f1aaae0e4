"""Spending and limits."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.kernel.budget import LIMITS, NOTHING, Budget, Spend
from detent.kernel.errors import BudgetExceededError, ConfigurationError

SPENDS = st.builds(
    Spend, st.integers(0, 10**9), st.integers(0, 10**9), st.floats(0, 1e6, allow_nan=False).map(float)
)


@given(SPENDS, SPENDS)
def test_spends_add_up(one, other):
    both = one + other
    assert both.tokens == one.tokens + other.tokens
    assert both.cost_usd == one.cost_usd + other.cost_usd
    assert both == other + one


@given(SPENDS)
def test_nothing_added_changes_nothing(spend):
    assert spend + NOTHING == NOTHING + spend == spend


@given(SPENDS)
def test_a_spend_survives_being_written_and_read(spend):
    assert Spend.from_plain(spend.to_plain()) == spend


def test_zeros_are_not_written():
    assert Spend(output_tokens=3).to_plain() == {"output_tokens": 3}
    assert NOTHING.to_plain() == {}
    assert Spend.from_plain({}) is Spend.from_plain(None) is NOTHING


def test_a_spend_of_nothing_is_false():
    assert not Spend()
    assert Spend(cost_usd=0.01)
    assert Spend(1)


@pytest.mark.parametrize("bad", [{"input_tokens": -1}, {"output_tokens": -1}, {"cost_usd": -0.1}])
def test_negative_spending_is_refused(bad):
    with pytest.raises(ValueError):
        Spend(**bad)


@pytest.mark.parametrize("cost", [math.nan, math.inf])
def test_a_cost_is_a_finite_number(cost):
    with pytest.raises(ValueError):
        Spend(cost_usd=cost)


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf])
def test_a_limit_is_above_zero_and_finite(limit, value):
    with pytest.raises(ConfigurationError, match=f"Budget {limit}"):
        Budget(**{limit: value})


@pytest.mark.parametrize("limit", LIMITS)
def test_a_limit_is_reached_when_all_of_it_is_used(limit):
    limits: dict[str, Any] = {limit: 10}
    budget = Budget(**limits)
    assert budget.exceeded({limit: 9.9}) is None
    assert budget.exceeded({limit: 10}) == limit
    budget.check({limit: 9.9})
    with pytest.raises(BudgetExceededError) as refused:
        budget.check({limit: 11})
    assert (refused.value.limit, refused.value.allowed, refused.value.spent) == (limit, 10, 11)


def test_the_first_limit_reached_is_named():
    assert Budget(tokens=5, steps=2).exceeded({"tokens": 1, "steps": 2}) == "steps"
    assert Budget(tokens=5, steps=2).exceeded({"tokens": 9, "steps": 2}) == "tokens"


def test_without_limits_nothing_is_exceeded():
    assert Budget().exceeded(dict.fromkeys(LIMITS, 1e12)) is None
    assert Budget().remaining({"tokens": 5}) == {}


def test_an_advisory_budget_tells_but_stops_nothing():
    budget = Budget(tokens=5, enforce=False)
    assert budget.exceeded({"tokens": 6}) == "tokens"
    budget.check({"tokens": 6})


def test_what_remains_may_be_negative():
    assert Budget(tokens=5, seconds=2.5).remaining({"tokens": 7}) == {"tokens": -2, "seconds": 2.5}


@pytest.mark.parametrize(
    "budget", [Budget(tokens=5), Budget(cost_usd=0.5, steps=3, seconds=1.5), Budget(tokens=1, enforce=False)]
)
def test_a_budget_survives_being_written_and_read(budget):
    assert Budget.from_plain(budget.to_plain()) == budget


def test_no_budget_written_is_no_budget_read():
    assert Budget.from_plain(None) is None
    assert Budget.from_plain({}) is None


def test_an_unknown_limit_is_refused_with_the_known_ones():
    with pytest.raises(ConfigurationError) as refused:
        Budget.from_plain({"token": 5})
    assert "token" in str(refused.value)
    assert "tokens, cost_usd, steps, seconds" in str(refused.value)
