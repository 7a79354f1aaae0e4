"""A role's answer as it is journaled: the payload as plain values, and how it was read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from detent.flows.notebook.payloads.plain import from_plain, to_plain
from detent.flows.notebook.payloads.values import Payload, ReadPayload


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
        plain: dict[str, Any] = {"payload": to_plain(self.payload)}
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
            from_plain(plain["payload"]), plain.get("repairs", ()), plain.get("flags", ()),
            plain.get("raw", ""),
        )  # fmt: skip
