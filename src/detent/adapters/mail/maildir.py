"""Mail in as a Maildir: mails in `new/`, and those in `cur/` that nobody has seen.

A mail that is processed moves to `cur/` with the flag S. It keeps its unique name, whatever its flags, and
goes by that name here.
"""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path

from detent.adapters.mail.folders import LOOK_EVERY, file_time, named, read_bounded, watch, written
from detent.adapters.mail.source import LARGEST_MAIL, Arrival, MailGone
from detent.kernel.errors import ConfigurationError

NEW, CUR = "new", "cur"
SEEN, TRASHED = "S", "T"

TRIES = 5
"""How often a mail is looked for that other programs keep renaming under our hands."""


class Maildir:
    """A source over one Maildir."""

    def __init__(self, folder: Path, *, max_size: int = LARGEST_MAIL, look_every: float = LOOK_EVERY) -> None:
        self.folder = folder
        self._max_size = max_size
        self._look_every = look_every
        self._listed: set[str] = set()

    def describe(self) -> str:
        return f"Maildir {self.folder}"

    def where(self, ref: str) -> str:
        return f"{named(ref)} in {self.folder}"

    async def open(self) -> None:
        await asyncio.to_thread(self._check)

    async def close(self) -> None:
        self._listed = set()

    async def list(self) -> tuple[str, ...]:
        refs = await asyncio.to_thread(self._unprocessed)
        self._listed = set(refs)
        return refs

    async def fetch(self, ref: str) -> Arrival:
        return await asyncio.to_thread(self._fetch, ref)

    async def mark_processed(self, ref: str) -> bool:
        return await asyncio.to_thread(self._mark, ref)

    async def wait(self, seconds: float) -> None:
        await watch(self._refs, self._listed, seconds, self._look_every)

    # -- in a thread ----------------------------------------------------------------------------------------

    def _check(self) -> None:
        missing = [name for name in (CUR, NEW, "tmp") if not (self.folder / name).is_dir()]
        if missing:
            raise ConfigurationError(
                f"{self.folder} is not a Maildir: it has no {', no '.join(f'{name}/' for name in missing)}."
                f" Name the folder that holds cur/, new/ and tmp/."
            )
        for name in (CUR, NEW):
            if not os.access(self.folder / name, os.R_OK | os.W_OK | os.X_OK):
                raise ConfigurationError(
                    f"Mails in {self.folder / name} cannot be read and moved: its permissions forbid it."
                )

    def _unprocessed(self) -> tuple[str, ...]:
        found: dict[str, int] = {}
        for place in (NEW, CUR):
            with os.scandir(self.folder / place) as entries:
                for entry in entries:
                    base, flags = _parted(entry.name)
                    if entry.name.startswith(".") or (place == CUR and {SEEN, TRASHED} & set(flags)):
                        continue
                    try:
                        facts = entry.stat(follow_symlinks=False)
                    except FileNotFoundError:  # moved on under our eyes
                        continue
                    if stat.S_ISREG(facts.st_mode):
                        found[base] = facts.st_mtime_ns
        return tuple(written(base) for base, _ in sorted(found.items(), key=lambda item: (item[1], item[0])))

    def _refs(self) -> set[str]:
        try:
            return set(self._unprocessed())
        except OSError:  # the next listing will say what is wrong
            return set()

    def _find(self, ref: str) -> tuple[str, str] | None:
        """In which of the two folders the mail is, and under which name."""
        wanted = named(ref)
        for place in (NEW, CUR):
            for name in os.listdir(self.folder / place):
                if _parted(name)[0] == wanted:
                    return place, name
        return None

    def _fetch(self, ref: str) -> Arrival:
        for _ in range(TRIES):
            if (found := self._find(ref)) is None:
                break
            try:
                facts, raw = read_bounded(self.folder / found[0] / found[1], self._max_size)
            except FileNotFoundError:  # renamed between looking and opening
                continue
            size = facts.st_size if raw is None else len(raw)
            return Arrival(ref, size, raw, file_time=file_time(facts))
        raise MailGone(ref, self.describe())

    def _mark(self, ref: str) -> bool:
        for _ in range(TRIES):
            if (found := self._find(ref)) is None:
                return False
            place, name = found
            base, flags = _parted(name)
            if place == CUR and SEEN in flags:
                return False
            target = f"{base}:2,{''.join(sorted({*flags, SEEN}))}"
            try:
                os.rename(self.folder / place / name, self.folder / CUR / target)
            except FileNotFoundError:  # another process was faster
                continue
            return True
        return False


def _parted(name: str) -> tuple[str, str]:
    """A file name as the mail's unique name and its flags."""
    base, _, info = name.partition(":")
    return base, info[2:] if info.startswith("2,") else ""
