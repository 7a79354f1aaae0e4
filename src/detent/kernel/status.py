"""How a run stands, apart from the state its machine is in."""

from __future__ import annotations

from enum import Enum


class Status(str, Enum):
    """Status of a run. The first two are open; the others are ends."""

    RUNNING = "running"
    WAITING = "waiting"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    DEGRADED = "degraded"
    BUDGET_EXHAUSTED = "budget_exhausted"
    CANCELLED = "cancelled"

    @property
    def is_end(self) -> bool:
        """True when the run has ended, however it ended."""
        return self not in OPEN


OPEN = frozenset({Status.RUNNING, Status.WAITING})
ENDS = frozenset(status for status in Status if status not in OPEN)

REOPENABLE = frozenset({Status.FAILED, Status.BUDGET_EXHAUSTED, Status.DEGRADED, Status.CANCELLED})
"""Ends from which a person may send a run on again."""
