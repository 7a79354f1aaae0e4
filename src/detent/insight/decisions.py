"""The decisions of a run, as values: what was decided, on what grounds, and what was done about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal

from detent.kernel.budget import NOTHING, Spend
from detent.kernel.plain import copied

DecisionKind = Literal[
    "move", "end", "hold", "fallback", "effect", "verdict", "cancellation", "migration", "fork", "reopening"
]


@dataclass(frozen=True, slots=True)
class Change:
    """The change a decision made to one key of the data."""

    key: str
    after: Any
    """The new value; for an addition, the items added."""
    before: Any = None
    """The old value of a key that was set; None when it had none."""
    added: bool = False
    """True if items were added to the list at the key."""


@dataclass(frozen=True, slots=True)
class Look:
    """A query asked while deciding."""

    tool: str
    args: Any = None
    answer: Any = None


@dataclass(frozen=True, slots=True)
class Alternative:
    """An alternative that the table (or, for a hold, the question) offered."""

    to: str
    event: str | None = None
    when: str | None = None
    """The alternative's condition, for people."""
    reason: str | None = None
    held: bool | None = None
    """Whether the condition held on the data at that time; None if unknown."""


@dataclass(frozen=True, slots=True)
class Performed:
    """The fate of one effect proposed for a decision."""

    key: str
    tool: str
    args: Any = None
    how: str = "pending"
    """performed, probed, told, reused, denied, edited, skipped, failed; in doubt or pending until settled."""
    by: str | None = None
    """Who denied, changed or skipped it."""
    proposed_by: str | None = None
    """Who asked for it: handler, agent, person or engine."""
    reason: str | None = None
    """Why it was denied or skipped."""
    asked: Any = None
    """The arguments that were asked for, if a person has changed them."""
    receipt: Any = None
    failures: tuple[str, ...] = ()
    """Failed attempts, as `code: message`."""
    duration: float = 0.0


@dataclass(frozen=True, slots=True)
class Decision:
    """One decision and its grounds."""

    seq: int
    """Number of the entry that records the decision."""
    at: float
    kind: DecisionKind
    state: str
    """State of the run at the decision."""
    to: str | None = None
    """Target of the decision: a state; for an effect its tool, for a hold its name."""
    by: str = "engine"
    """handler, agent, person, engine, clock."""
    reason: str | None = None
    event: str | None = None
    status: str | None = None
    """Final status, set when the decision ended the run."""
    attempts: int = 1
    failures: tuple[str, ...] = ()
    """Failed attempts before the decision, as `type: message`."""
    duration: float = 0.0
    """Duration of the whole visit; for a hold, of the wait; for an effect, of the call."""
    spend: Spend = NOTHING
    changed: tuple[Change, ...] = ()
    looked: tuple[Look, ...] = ()
    alternatives: tuple[Alternative, ...] = ()
    effects: tuple[Performed, ...] = ()
    """Effects of the decision; for a decision about one effect, that effect."""
    children: tuple[str, ...] = ()
    """Child runs the step waited for, as `id: status`."""
    question: str | None = None
    answer: Any = None
    answered: bool | None = None
    """For a hold: whether it was answered."""
    detail: Mapping[str, Any] | None = None
    """Details from dispatch and the gate."""

    def to_plain(self) -> dict[str, Any]:
        """As JSON values, without empty fields."""
        plain: dict[str, Any] = {"seq": self.seq, "at": self.at, "kind": self.kind, "state": self.state}
        for item in fields(self):
            attribute = getattr(self, item.name)
            if item.name not in plain and attribute is not None and attribute != ():
                plain[item.name] = _plain(attribute)
        return plain


def _plain(part: Any) -> Any:
    if isinstance(part, Spend):
        return part.to_plain()
    if isinstance(part, tuple):
        return [_plain(item) for item in part]
    if is_dataclass(part) and not isinstance(part, type):
        return {item.name: _plain(getattr(part, item.name)) for item in fields(part)}
    return copied(dict(part)) if isinstance(part, Mapping) else part
