"""A mail source of files named on the command line. They are read and left in place."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from detent.adapters.mail.folders import loaded
from detent.adapters.mail.source import Arrival, MailGone
from detent.insight.formatting import count
from detent.kernel.errors import ConfigurationError


class NamedFiles:
    """A source over a handful of files."""

    name = "files"
    """Its id in records, for any files."""

    def __init__(self, files: Sequence[Path], *, max_size: int) -> None:
        self.files = list(dict.fromkeys(file.resolve() for file in files))
        self._max_size = max_size

    def describe(self) -> str:
        return count(len(self.files), "file")

    async def open(self) -> None:
        for file in self.files:
            if not file.is_file():
                raise ConfigurationError(f"There is no file {file} (--mail).")

    async def close(self) -> None:
        pass

    async def list(self) -> tuple[str, ...]:
        return tuple(str(file) for file in self.files)

    async def fetch(self, ref: str) -> Arrival:
        try:
            return await asyncio.to_thread(loaded, ref, Path(ref), self._max_size)
        except FileNotFoundError:
            raise MailGone(ref, self.describe()) from None
        except OSError as error:
            raise ConfigurationError(f"{ref} cannot be read: {error.strerror}.") from None

    async def mark_processed(self, ref: str) -> bool:
        return True

    def where(self, ref: str) -> str:
        return ref

    async def wait(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
