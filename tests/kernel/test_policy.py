"""Retry and breaker rules."""

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.kernel.errors import ConfigurationError
from detent.kernel.policy import ONCE, BreakerPolicy, RetryPolicy

SECONDS = st.floats(0, 1e6)


@given(st.tuples(SECONDS, SECONDS).map(sorted), st.integers(2, 60), st.text())
def test_a_wait_is_what_doubling_says_give_or_take_a_quarter_and_within_its_limits(limits, attempt, run_id):
    policy = RetryPolicy(100, *limits)
    wait = policy.wait_before(attempt, run_id)
    assert limits[0] <= wait <= limits[1]
    doubled = min(limits[1], limits[0] * 2 ** (attempt - 2))
    assert 0.75 * doubled <= wait <= max(1.25 * doubled, limits[0])
    assert wait == policy.wait_before(attempt, run_id)


@pytest.mark.parametrize("attempt", [2, 3, 5, 9])
def test_runs_that_failed_together_come_back_spread_over_the_quarter(attempt):
    policy = RetryPolicy(10, 1.0, 60.0)
    waits = [policy.wait_before(attempt, f"run-{number}") for number in range(1000)]
    doubled = min(60.0, 2.0 ** (attempt - 2))
    shortest, longest = max(1.0, 0.75 * doubled), min(60.0, 1.25 * doubled)
    tenths = Counter(int(10 * (wait - shortest) / (longest - shortest)) for wait in waits)
    assert set(tenths) == set(range(10))
    assert max(tenths.values()) < 2 * min(tenths.values())


def test_equal_limits_mean_exactly_that_long():
    assert [RetryPolicy(5, 2.0, 2.0).wait_before(number, "r") for number in (1, 2, 3, 9)] == [0, 2, 2, 2]


def test_the_first_attempt_waits_for_nothing():
    assert RetryPolicy(wait_min=5).wait_before(1, "r") == 0
    assert RetryPolicy(wait_min=5).wait_before(0, "r") == 0


def test_a_very_late_attempt_still_waits_a_finite_time():
    assert 45 <= RetryPolicy(max_attempts=10**9, wait_min=1, wait_max=60).wait_before(10**6, "r") <= 60


def test_retries_come_on_top_of_the_first_attempt():
    assert RetryPolicy.retries(2).max_attempts == 3
    assert RetryPolicy.retries(0) == RetryPolicy(1)
    assert ONCE.max_attempts == 1


@pytest.mark.parametrize(
    "bad",
    [
        {"max_attempts": 0},
        {"wait_min": -1},
        {"wait_min": 5, "wait_max": 4},
        {"wait_min": math.nan},
        {"wait_max": math.nan},
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(bad):
    with pytest.raises(ConfigurationError):
        RetryPolicy(**bad)


@pytest.mark.parametrize("bad", [{"failures": 0}, {"cooldown": 0}, {"cooldown": -1}])
def test_a_breaker_that_makes_no_sense_is_refused(bad):
    with pytest.raises(ConfigurationError):
        BreakerPolicy(**bad)


def test_policies_cannot_be_changed():
    with pytest.raises(AttributeError):
        RetryPolicy().max_attempts = 5  # type: ignore[misc]
    with pytest.raises(AttributeError):
        BreakerPolicy().failures = 5  # type: ignore[misc]
