"""Retry and breaker rules."""

import math

import pytest

from detent.kernel.errors import ConfigurationError
from detent.kernel.policy import ONCE, BreakerPolicy, RetryPolicy


def test_waits_double_up_to_the_longest():
    policy = RetryPolicy(max_attempts=7, wait_min=1, wait_max=10)
    assert [policy.wait_before(attempt) for attempt in range(1, 8)] == [0, 1, 2, 4, 8, 10, 10]


def test_the_first_attempt_waits_for_nothing():
    assert RetryPolicy(wait_min=5).wait_before(1) == 0
    assert RetryPolicy(wait_min=5).wait_before(0) == 0


def test_a_very_late_attempt_still_waits_a_finite_time():
    assert RetryPolicy(max_attempts=10**9, wait_min=1, wait_max=60).wait_before(10**6) == 60


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
