"""What a person's approval of a draft may add to the sentences that agents may choose."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol


class NewSentence(NamedTuple):
    """A sentence of an approved draft, offered for the bank."""

    text: str
    """With slots in place of facts."""
    readings: tuple[str, ...] = ()
    """As it would read with other values."""
    problem: str | None = None
    """Why it cannot be added."""

    def to_plain(self) -> dict[str, Any]:
        """As plain values."""
        return {"text": self.text, "readings": list(self.readings), "problem": self.problem}


class SentenceBank(Protocol):
    """The approved sentences of one step."""

    def offered(self, text: str, own: str, data: Mapping[str, Any]) -> list[NewSentence]:
        """The sentences of an approved text that neither the bank, for this state, nor the handler's text
        holds; slots in place."""

    def add(
        self, sentence: NewSentence, data: Mapping[str, Any], within: Path, *, by: str, day: str,
        group: str | None = None,
    ) -> tuple[str, str]:  # fmt: skip
        """Add a sentence for the state of this data; returns its id and the file, which is below `within`.

        Raises:
            ConfigurationError: the file cannot take it.
        """
