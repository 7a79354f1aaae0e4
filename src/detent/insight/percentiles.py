"""Percentiles over any number of amounts, in bounded memory."""

from __future__ import annotations

import math
from collections import Counter

EXACT = 2000
"""Number of distinct values up to which percentiles are exact; beyond it values are rounded to three
digits, which leaves 900 per power of ten."""


class Spread:
    """A histogram: each amount with its frequency."""

    def __init__(self) -> None:
        self.count = 0
        self._values: Counter[float] = Counter()
        self._exact = True

    def add(self, value: float, times: int = 1) -> None:
        """Add an amount."""
        self.count += times
        self._values[float(value) if self._exact else _rounded(value)] += times
        if self._exact and len(self._values) > EXACT:
            self._exact = False
            rounded: Counter[float] = Counter()
            for number, often in self._values.items():
                rounded[_rounded(number)] += often
            self._values = rounded

    @property
    def kept(self) -> int:
        """Number of distinct amounts in memory."""
        return len(self._values)

    def at(self, share: float) -> float | None:
        """The nearest-rank percentile: 0.5 is the median. None without amounts."""
        if not self.count:
            return None
        rank = max(1, math.ceil(share * self.count))
        passed = 0
        for value, often in sorted(self._values.items()):
            passed += often
            if passed >= rank:
                return value
        return max(self._values)


def _rounded(value: float) -> float:
    """Rounded to three significant digits, which bounds the number of distinct values."""
    return float(f"{value:.3g}")
