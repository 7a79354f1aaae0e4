"""How a great many amounts are spread, in little memory: the value below which a share of them lies."""

from __future__ import annotations

import math
from collections import Counter

EXACT = 2000
"""Different values up to which everything is exact; beyond, values are rounded to three digits, of which
there are 900 between one power of ten and the next."""


class Spread:
    """Amounts by how often they occurred."""

    def __init__(self) -> None:
        self.count = 0
        self._values: Counter[float] = Counter()
        self._exact = True

    def add(self, value: float, times: int = 1) -> None:
        """Take an amount in."""
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
        """Different amounts in memory."""
        return len(self._values)

    def at(self, share: float) -> float | None:
        """The amount of the nearest rank: 0.5 for the middle one. None while there is nothing."""
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
    """To three significant digits, so that there are only so many different ones."""
    return float(f"{value:.3g}")
