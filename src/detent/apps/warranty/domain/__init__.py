"""Domain knowledge, independent of the engine: serial numbers, scope, language, cover."""

from __future__ import annotations

from typing import Protocol


class TextPart(Protocol):
    """A part of a mail's text."""

    @property
    def kind(self) -> str:
        """`newest`, `quoted` or `forwarded`."""

    @property
    def text(self) -> str:
        """Its text."""
