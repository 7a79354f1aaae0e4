"""Two ways to do the same, timed in interleaved pairs, and what the pairs say.

The second way is timed twice in each round: how far it is off from itself tells what the machine's other work
makes of the figures.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

RESAMPLES = 10_000
CONFIDENCE = 0.95
OFF = 0.01
"""How far the second way may be off from itself before nothing is judged."""


class Round(NamedTuple):
    """Seconds of the first way, of the second, and of the second once more."""

    first: float
    second: float
    again: float


class Paired(NamedTuple):
    """What rounds say about the first way over the second."""

    median: float
    """Of the first over the second, less 1."""
    upper: float
    """Upper end of the interval of that median."""
    off: float
    """Median of the second way over itself, less 1."""
    pairs: int

    @property
    def is_conclusive(self) -> bool:
        """Whether the second way agrees with itself."""
        return abs(self.off) <= OFF

    @classmethod
    def of(cls, rounds: Sequence[Round]) -> Paired:
        """Sum up rounds."""
        ratios = [one.first / one.second - 1 for one in rounds]
        off = median(one.again / one.second for one in rounds) - 1
        return cls(median(ratios), upper_end(ratios), off, len(rounds))

    def __str__(self) -> str:
        return (
            f"median {self.median:+.2%}, upper end {self.upper:+.2%} of {self.pairs} pairs, "
            f"itself {self.off:+.2%}"
        )


def upper_end(values: Sequence[float]) -> float:
    """Upper end of the bootstrap interval of a median; the same for the same values."""
    chance, many = random.Random(1), range(RESAMPLES)
    medians = sorted(median(chance.choices(values, k=len(values))) for _ in many)
    return medians[min(len(medians) - 1, int((1 + CONFIDENCE) / 2 * len(medians)))]


def order(number: int) -> tuple[int, int, int]:
    """The order of a round: the second way stands in the middle, the other two change places."""
    return (0, 1, 2) if number % 2 == 0 else (2, 1, 0)
