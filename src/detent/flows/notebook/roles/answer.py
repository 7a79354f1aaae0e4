"""A role's answer as it is journaled: the payload as plain values, and how it was read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from detent.flows.notebook.payloads.findings import Findings
from detent.flows.notebook.payloads.kinds import PayloadKind, kind_of
from detent.flows.notebook.payloads.plain import to_plain, value_of
from detent.flows.notebook.payloads.values import Actions, Payload, ReadPayload


@dataclass(frozen=True, slots=True)
class RoleAnswer:
    """A payload, and what a reader of the journal wants to know of it."""

    payload: Payload
    repairs: Sequence[str] = ()
    flags: Sequence[str] = ()
    raw: str = ""
    """The text of an agent's answer that had to be repaired."""

    @classmethod
    def read(cls, read: ReadPayload, raw: str) -> Self:
        """The answer of an agent."""
        return cls(read.value, read.repairs, read.flags, raw if read.repairs else "")

    def to_plain(self) -> dict[str, Any]:
        """As plain values."""
        plain: dict[str, Any] = {"kind": kind_of(self.payload), "payload": to_plain(self.payload)}
        if self.repairs:
            plain["repairs"] = list(self.repairs)
        if self.flags:
            plain["flags"] = list(self.flags)
        if self.raw:
            plain["raw"] = self.raw
        return plain

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Self:
        """Read back what `to_plain` wrote."""
        return cls(
            journaled(plain["kind"], plain["payload"]), plain.get("repairs", ()), plain.get("flags", ()),
            plain.get("raw", ""),
        )  # fmt: skip


def journaled(kind: PayloadKind, plain: Mapping[str, Any]) -> Payload:
    """A payload that the journal holds; it was checked when it was read."""
    value = value_of(kind, plain, Findings())
    if value is None:
        raise ValueError(f"The journal holds a {kind} payload that cannot be read.")
    return value


def journaled_actions(plain: Any) -> Actions:
    """The actions of a round that the journal holds."""
    actions = journaled("T4", {"actions": plain})
    assert isinstance(actions, Actions)
    return actions
