"""The port mail comes in by: where unprocessed mails are listed, fetched and marked.

A source moves bytes and knows nothing of what they say. What is behind it (a folder, a Maildir, a mailbox on
a server) is chosen by configuration.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from detent.kernel.errors import DetentError

LARGEST_MAIL = 25 * 1024 * 1024
"""Bytes of the largest mail that is loaded, unless told otherwise."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """One mail as it lies in its source."""

    ref: str
    """Names it within its source: opaque, printable, and the same as long as the mail lies there."""
    size: int
    """Bytes; as the source tells them where the mail was not loaded."""
    raw: bytes | None = field(default=None, repr=False)
    """The mail as it came; None when it is larger than the source may load."""
    received: datetime | None = None
    """When the mail server took it in, by its own word; None where no server says so."""
    file_time: datetime | None = None
    """When its file was last written: the last resort for a mail that tells nothing better."""

    @property
    def too_large(self) -> bool:
        """It was not loaded because of its size."""
        return self.raw is None


class MailGone(DetentError):
    """A mail that was listed is no longer there: another process or a person took it."""

    def __init__(self, ref: str, source: str) -> None:
        self.ref = ref
        self.source = source
        super().__init__(f"Mail {ref} is no longer in {source}: it was moved or deleted meanwhile.")


class MailSource(Protocol):
    """Where mails come from. Several processes may look into the same one at once."""

    async def open(self) -> None:
        """Make sure that it is there and usable; an error that says what to check otherwise."""

    async def close(self) -> None:
        """Let go of it. It can be opened again."""

    async def list(self) -> tuple[str, ...]:
        """The refs of all mails not yet marked processed, oldest first."""

    async def fetch(self, ref: str) -> Arrival:
        """One mail, without changing anything about it; `MailGone` when it is not there any more."""

    async def mark_processed(self, ref: str) -> bool:
        """Never list it again; True when it was this call that marked it.

        A mail that is marked or gone already is no error.
        """

    async def wait(self, seconds: float) -> None:
        """Come back when something may have arrived since the last listing, or after this time."""

    def describe(self) -> str:
        """The source in words for people, without secrets."""

    def where(self, ref: str) -> str:
        """Where a mail lies, in words for people who want to look at it."""
