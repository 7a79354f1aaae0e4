"""How much the score of a model may vary over refits, and from which size of a table on that is required."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from detent.flows.notebook.domain.problem import ProblemReading

FEWEST_STABLE_ROWS = 200
"""Below, the variation over refits measures the sample; it is then reported and not required."""


class Stability(NamedTuple):
    """How much the score may vary over refits."""

    threshold: float = 0.1
    """The variation coefficient from which a model is not stable."""
    required: bool | None = None
    """None: from so many rows up that the figure is more than the sample."""

    def is_required(self, reading: ProblemReading) -> bool:
        """Whether a model that is not stable fails."""
        return reading.table.rows >= FEWEST_STABLE_ROWS if self.required is None else self.required


USUAL = Stability()
