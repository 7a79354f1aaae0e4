"""Patterns under a limit of computing time, which the work of others does not use up."""

from __future__ import annotations

from itertools import count

import pytest

from detent.engine.patterns import PatternBudget, PatternTimeout

PATTERN, TEXT = "^(a+)+$", "a" * 1000 + "!"
"""A search of some thousandths of a second, which is longer than the smallest limit."""


def test_a_search_is_not_given_up_for_what_other_threads_compute():
    """The clock says that this thread has hardly computed at all."""
    budget = PatternBudget(1e-6, clock=lambda: 0.0)
    assert not budget.fits(PATTERN, TEXT)
    assert budget.fits("a", TEXT)


def test_a_search_is_given_up_for_what_it_computes_itself():
    budget = PatternBudget(1e-6, clock=count().__next__)
    with pytest.raises(PatternTimeout):
        budget.fits(PATTERN, TEXT)
    with pytest.raises(PatternTimeout):
        budget.fits("a", "a")


def test_many_short_searches_are_no_long_one():
    """Each takes what is granted for a search; the free seconds are hardly touched."""
    budget = PatternBudget(clock=count(0, 25e-6).__next__)
    assert all(budget.fits("a", "a") for _ in range(50_000))
