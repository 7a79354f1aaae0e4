"""What the observer remembers of runs under way: little, and none of their data."""

from __future__ import annotations

from collections import deque

from detent.kernel.budget import NOTHING, Spend
from detent.kernel.entries import Entry

MOST_EVENTS = 128
"""Events kept for a span, the newest; the span has the number of those dropped."""

Attributes = dict[str, str | int | float | bool]
Event = tuple[str, Attributes, float]


class Visit:
    """What is known of a visit of a state, or of the part of it that is reported next."""

    __slots__ = ("began", "begun", "dropped", "events", "partial", "seq", "spend", "state")

    def __init__(self, seq: int, began: float, state: str | None, partial: bool = False) -> None:
        self.seq = seq
        """The entry it began with."""
        self.began = began
        self.state = state
        self.partial = partial
        """Whether it began before or without entering the state, as far as is known here."""
        self.events: deque[Event] = deque(maxlen=MOST_EVENTS)
        self.dropped = 0
        self.begun: tuple[str, str, float] | None = None
        """Key, tool and time of the effect that is being performed."""
        self.spend: Spend = NOTHING

    def label(self, run: RunUnderWay) -> str:
        """The text its span's id is derived from."""
        return f"step {run.id} {self.seq}"

    def happened(self, event: str, at: float, facts: Attributes) -> None:
        """Add an event."""
        self.dropped += len(self.events) == MOST_EVENTS
        self.events.append((event, facts, at))

    def settled(self, key: str, otherwise: float) -> float:
        """End the effect under way; returns when it began."""
        begun, self.begun = self.begun, None
        return begun[2] if begun is not None and begun[0] == key else otherwise


class RunUnderWay:
    """What is remembered of a run under way."""

    __slots__ = ("began", "flow", "id", "label", "parent", "root", "seq", "steps", "visit", "whole")

    def __init__(self, run_id: str, flow: str, parent: str | None, root: str, began: float) -> None:
        self.id = run_id
        self.flow = flow
        self.parent = parent
        self.root = root
        """The run at the top, which names the trace."""
        self.label = f"run {run_id}"
        self.began = began
        self.whole = False
        """Whether all of it was seen here."""
        self.seq = 0
        self.steps = 0
        self.visit: Visit | None = None

    def visiting(self, entry: Entry, *, begins: bool = False) -> Visit:
        """The visit an entry belongs to; a visit that was begun elsewhere continues from here.

        With `begins`, this part of the visit begins at the entry itself.
        """
        if self.visit is None:
            seq, began = (entry.seq, entry.at) if begins else (entry.seq - 1, estimated_start(entry))
            self.visit = Visit(seq, began, None, partial=True)
        return self.visit


def estimated_start(entry: Entry) -> float:
    """When the work an entry reports began, as far as the entry says."""
    return entry.at - float(getattr(entry.body, "duration", 0.0))
