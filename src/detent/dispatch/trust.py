"""The arithmetic of trust: from judged visits to "raise", "lower" and "wrong in at most so many".

One formula carries all of it. For an error rate q and a bet r, a judged visit multiplies a number by r if the
answer was wrong, and otherwise by (1 - r*q) / (1 - q). If the true rate is q, the number stays 1 on average,
no matter who looks at it and when. Bets below 1 grow only if errors are rarer than q, bets above 1 only if
they are more frequent. Nothing here knows a step, a store or a clock.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple, TypeAlias

RAISE_BETS = (0.0, 1 / 8, 1 / 4, 1 / 2)
LOWER_BETS = (2.0, 4.0, 10.0)
BOLDEST = 0.9
"""Largest r*q of a bet: beyond 1 the factor of a right answer would be zero or negative."""
HIGHEST = 1e12
"""Cap of the detector's numbers, which would otherwise overflow."""
POWER_SHARE = 0.2
"""The share of the accepted risk that is spent on measuring the check's power."""

Errors: TypeAlias = int | Mapping[float, int]
"""Wrong answers: their number, or their number by cost, from 0 (harmless) to 1 (the gravest)."""


def factor(bet: float, q: float, cost: float) -> float:
    """What one judged visit multiplies the number of a bet by; `cost` 0 is a right answer, 1 a wrong one."""
    bet = min(bet, BOLDEST / q)
    return cost * bet + (1 - cost) * (1 - bet * q) / (1 - q)


def raise_number(n: int, errors: Errors, q: float) -> float:
    """The evidence that errors are rarer than q: raise at 1 / risk.

    The chance that an agent with an error rate of at least q ever reaches 1 / risk is at most `risk`, however
    often the number is looked at.
    """
    by_cost = _by_cost(errors)
    right = n - sum(by_cost.values())
    if right < 0:
        raise ValueError(f"{sum(by_cost.values())} wrong of {n} judged visits cannot be.")
    logs = [
        sum((_log(factor(bet, q, cost)) * count for cost, count in by_cost.items() if count), 0.0)
        + (_log(factor(bet, q, 0.0)) * right if right else 0.0)
        for bet in RAISE_BETS
    ]
    return _mean_of_exponentials(logs)


def at_most(n: int, errors: Errors, risk: float) -> float:
    """The largest error rate that the judged visits do not refute; true at any time one looks."""
    low, high = 0.0, 1.0
    for _ in range(60):
        q = (low + high) / 2
        if q >= 1.0 or raise_number(n, errors, q) < 1 / risk:
            low = q
        else:
            high = q
    return high


@lru_cache(maxsize=1024)
def power_low(planted: int, caught: int, risk: float) -> float:
    """The least power of a check that has caught so many of the planted errors."""
    return 1 - at_most(planted, planted - caught, risk)


@lru_cache(maxsize=1024)
def _lower_factors(q: float, cost: float) -> tuple[float, ...]:
    return tuple(factor(bet, q, cost) for bet in LOWER_BETS)


class Detector(NamedTuple):
    """Notices that errors have become more frequent than q, whatever came before.

    An agent with an error rate of at most q raises an alarm at most once in `patience` judged visits on
    average.
    """

    numbers: tuple[float, ...] = (0.0,) * len(LOWER_BETS)

    @property
    def mean(self) -> float:
        """The evidence: an alarm at `patience`."""
        return sum(self.numbers) / len(self.numbers)

    def after(self, cost: float, q: float) -> Detector:
        """The detector after one more judged visit; `cost` 0 is a right answer, 1 a wrong one."""
        factors = _lower_factors(q, cost)
        return Detector(
            tuple([min((number + 1) * by, HIGHEST) for number, by in zip(self.numbers, factors, strict=True)])
        )

    def after_right(self, times: int, q: float) -> Detector:
        """The detector after so many right answers in a row, at the price of one."""
        if times < 2:
            return self.after(0.0, q) if times else self
        numbers = []
        for number, by in zip(self.numbers, _lower_factors(q, 0.0), strict=True):
            grown = by**times
            numbers.append(min(grown * number + by * (1 - grown) / (1 - by), HIGHEST))
        return Detector(tuple(numbers))

    def after_all(self, costs: Iterable[float], q: float) -> Detector:
        """The detector after several judged visits, in their order."""
        detector = self
        for cost in costs:
            detector = detector.after(cost, q)
        return detector


def _by_cost(errors: Errors) -> Mapping[float, int]:
    return {1.0: errors} if isinstance(errors, int) else errors


def _log(value: float) -> float:
    return math.log(value) if value > 0 else -math.inf


def _mean_of_exponentials(logs: list[float]) -> float:
    top = max(logs)
    if top == -math.inf:
        return 0.0
    if top > 700:  # beyond what a float can hold, and beyond every threshold
        return math.inf
    return math.exp(top) * sum(math.exp(log - top) for log in logs) / len(logs)
