"""What is remembered of runs while they are under way: little, and nothing of what they work on."""

from __future__ import annotations

from collections import deque

from detent.kernel.budget import NOTHING, Spend
from detent.kernel.entries import Entry

MOST_EVENTS = 128
"""Events kept for one span, the newest; the span says how many were dropped."""

Attributes = dict[str, str | int | float | bool]
Event = tuple[str, Attributes, float]


class Visit:
    """What is known of a visit of a state, or of the part of it that is told next."""

    __slots__ = ("began", "begun", "dropped", "events", "partial", "seq", "spend", "state")

    def __init__(self, seq: int, began: float, state: str | None, partial: bool = False) -> None:
        self.seq = seq
        """The entry it began with."""
        self.began = began
        self.state = state
        self.partial = partial
        """True when it did not begin with entering the state, as far as is known here."""
        self.events: deque[Event] = deque(maxlen=MOST_EVENTS)
        self.dropped = 0
        self.begun: tuple[str, str, float] | None = None
        """Key, tool and time of the effect that is being performed."""
        self.spend: Spend = NOTHING

    def label(self, run: RunUnderWay) -> str:
        """What its span's id is made of."""
        return f"step {run.id} {self.seq}"

    def happened(self, event: str, at: float, facts: Attributes) -> None:
        """Add an event."""
        self.dropped += len(self.events) == MOST_EVENTS
        self.events.append((event, facts, at))

    def settled(self, key: str, otherwise: float) -> float:
        """When the effect was begun; it is over now."""
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
        """The run at the top, after which the trace is named."""
        self.label = f"run {run_id}"
        self.began = began
        self.whole = False
        """True when all of it was seen here."""
        self.seq = 0
        self.steps = 0
        self.visit: Visit | None = None

    def visiting(self, entry: Entry, *, begins: bool = False) -> Visit:
        """The visit an entry belongs to; one that was begun elsewhere goes on from here.

        `begins` says that the entry itself is where this part of the visit begins.
        """
        if self.visit is None:
            seq, began = (entry.seq, entry.at) if begins else (entry.seq - 1, estimated_start(entry))
            self.visit = Visit(seq, began, None, partial=True)
        return self.visit


def estimated_start(entry: Entry) -> float:
    """When the work an entry tells of began, as far as the entry says."""
    return entry.at - float(getattr(entry.body, "duration", 0.0))
