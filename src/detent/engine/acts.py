"""Acts: the effects that a visit has asked for and that are settled, with what came of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from detent.engine.outcome import Effect


class Act(NamedTuple):
    """One settled effect of a visit."""

    key: str
    effect: Effect
    """With the arguments it was performed with; none if those were purged."""
    settled: Mapping[str, Any]
    """`receipt`, or `code` and `message`; see `Run.settled`."""
    asked: Effect | None = None
    """What was asked for, if a person has put this effect in its place."""

    @property
    def happened(self) -> bool:
        """Whether it was performed: it neither failed for good nor was left out by a person."""
        return "receipt" in self.settled and not self.settled.get("skipped")

    @property
    def receipt(self) -> Any:
        """What performing it gave back; None for one that did not happen."""
        return self.settled.get("receipt")
