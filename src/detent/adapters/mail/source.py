"""The port for incoming mail: unprocessed mails are listed, fetched and marked.

A source moves bytes and knows nothing about their content. Configuration chooses what is behind it: a folder,
a Maildir, or a mailbox on a server.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from detent.kernel.errors import DetentError

LARGEST_MAIL = 25 * 1024 * 1024
"""Bytes of the largest mail that is loaded by default."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """One mail in its source."""

    ref: str
    """Identifies it within its source: opaque, printable, and stable as long as the mail is there."""
    size: int
    """Bytes; as reported by the source where the mail was not loaded."""
    raw: bytes | None = field(default=None, repr=False)
    """The mail as it came; None when it is larger than the source may load."""
    received: datetime | None = None
    """When the mail server accepted it, according to the server; None where no server says so."""
    file_time: datetime | None = None
    """When its file was last written: the last resort for a mail without a better time."""

    @property
    def too_large(self) -> bool:
        """Whether it was not loaded because of its size."""
        return self.raw is None


class MailGone(DetentError):
    """A listed mail is no longer there: another process or a person took it."""

    def __init__(self, ref: str, source: str) -> None:
        self.ref = ref
        self.source = source
        super().__init__(f"Mail {ref} is no longer in {source}: it was moved or deleted meanwhile.")


class MailSource(Protocol):
    """A source of mails. Several processes may use the same one at once."""

    async def open(self) -> None:
        """Make sure that the source exists and can be used; the error says what to check."""

    async def close(self) -> None:
        """Release it. It can be opened again."""

    async def list(self) -> tuple[str, ...]:
        """The refs of all mails not yet marked processed, oldest first."""

    async def fetch(self, ref: str) -> Arrival:
        """One mail, unchanged; `MailGone` when it is no longer there."""

    async def mark_processed(self, ref: str) -> bool:
        """Mark a mail so that it is never listed again; True when it was this call that marked it.

        A mail that is already marked or gone is no error.
        """

    async def wait(self, seconds: float) -> None:
        """Return when something may have arrived since the last listing, or after this time."""

    def describe(self) -> str:
        """The source's name for messages, without secrets."""

    def where(self, ref: str) -> str:
        """Where a mail is, for people who want to look at it."""
