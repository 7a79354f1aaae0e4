"""Hold tokens: the name of one question, so that an answer never meets another.

A step may ask under the same name at every visit. The number of the journal entry that asked tells those
questions apart, in journals of every version.
"""

from __future__ import annotations

from typing import NamedTuple


class HoldToken(NamedTuple):
    """One hold of one run; written `approval@17`."""

    name: str
    """Name of the hold."""
    seq: int
    """Number of the journal entry that asked."""

    def __str__(self) -> str:
        return f"{self.name}@{self.seq}"

    @classmethod
    def read(cls, text: str) -> HoldToken | None:
        """The token a text stands for; None for a text that is none, such as the bare name of a hold."""
        name, _, number = text.rpartition("@")
        is_number = number.isascii() and number.isdigit() and len(number) < 19
        return cls(name, int(number)) if name and is_number else None
