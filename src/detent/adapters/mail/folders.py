"""What the sources that are folders share: printable file names, bounded reading, watching for new mail."""

from __future__ import annotations

import asyncio
import os
from abc import ABC, abstractmethod
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote, unquote_to_bytes

from detent.adapters.mail.source import LARGEST_MAIL, Arrival

LOOK_EVERY = 1.0
"""Seconds between two listings of a folder while waiting for mail."""

_KEPT = " !@+=,;()[]"


def written(name: str) -> str:
    """A file name, which may hold any bytes, as plain printable text."""
    return quote(os.fsencode(name), safe=_KEPT)


def named(text: str) -> str:
    """The file name behind a `written` text."""
    return os.fsdecode(unquote_to_bytes(text))


def loaded(ref: str, path: Path, max_size: int) -> Arrival:
    """One mail read from its file; without its content when that has more than `max_size` bytes."""
    with path.open("rb") as file:
        facts = os.fstat(file.fileno())
        raw = file.read(max_size + 1) if facts.st_size <= max_size else None
    if raw is not None and len(raw) > max_size:  # it has grown since
        raw = None
    size = facts.st_size if raw is None else len(raw)
    return Arrival(ref, size, raw, file_time=datetime.fromtimestamp(facts.st_mtime, UTC))


class FolderSource(ABC):
    """A source whose mails are files: the disk is touched in a thread, and new mail is found by listing."""

    def __init__(self, folder: Path, *, max_size: int = LARGEST_MAIL, look_every: float = LOOK_EVERY) -> None:
        self.folder = folder
        self._max_size = max_size
        self._look_every = look_every
        self._listed: set[str] = set()
        """What the last listing gave."""

    async def open(self) -> None:
        await asyncio.to_thread(self._check)

    async def close(self) -> None:
        self._listed = set()

    async def fetch(self, ref: str) -> Arrival:
        return await asyncio.to_thread(self._fetch, ref)

    async def mark_processed(self, ref: str) -> bool:
        return await asyncio.to_thread(self._mark, ref)

    async def wait(self, seconds: float) -> None:
        """Return when there is a mail the last listing did not have, or after this time.

        The first look comes after a pause, so that a mail still being written does not keep us busy.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while (remaining := end - loop.time()) > 0:
            await asyncio.sleep(min(self._look_every, remaining))
            if await asyncio.to_thread(self._refs) - self._listed:
                return

    def _refs(self) -> set[str]:
        try:
            return self._present()
        except OSError:  # the next listing reports what is wrong
            return set()

    # -- in a thread ----------------------------------------------------------------------------------------

    @abstractmethod
    def _check(self) -> None:
        """Raise a `ConfigurationError` unless mails can be read and moved here."""

    @abstractmethod
    def _present(self) -> set[str]:
        """The refs of the mails in the folder now."""

    @abstractmethod
    def _fetch(self, ref: str) -> Arrival:
        """Read one mail; `MailGone` when it is no longer there."""

    @abstractmethod
    def _mark(self, ref: str) -> bool:
        """Mark one mail processed; True when this call did it."""
