"""What the application knows about its subject, true with no engine near: serials, scope, language, cover."""

from __future__ import annotations

from typing import Protocol


class TextPart(Protocol):
    """A piece of a mail's text, as a reader of mails gives it."""

    @property
    def kind(self) -> str:
        """`newest`, `quoted` or `forwarded`."""

    @property
    def text(self) -> str:
        """Its text."""
