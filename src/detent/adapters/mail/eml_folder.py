"""Mail in as a folder of `.eml` files; what is processed moves to `processed/` beside them.

Other files are left alone, and so is one that is still being written. A file is named by its name, size and
time, so that a newer one of the same name is never taken for it.
"""

from __future__ import annotations

import asyncio
import os
import stat
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from detent.adapters.disk import private_folder
from detent.adapters.mail.folders import LOOK_EVERY, file_time, named, read_bounded, watch, written
from detent.adapters.mail.source import LARGEST_MAIL, Arrival, MailGone
from detent.kernel.errors import ConfigurationError

PROCESSED = "processed"

FRESH = 2.0
"""Seconds after its last write during which a file is looked at twice."""
SETTLE = 0.2
"""Seconds between these two looks."""
ABANDONED = 60.0
"""Seconds after which an empty file is no longer taken for one whose writing has just begun."""


class EmlFolder:
    """A source over one folder."""

    def __init__(
        self,
        folder: Path,
        *,
        max_size: int = LARGEST_MAIL,
        look_every: float = LOOK_EVERY,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.folder = folder
        self._max_size = max_size
        self._look_every = look_every
        self._pause = pause
        self._listed: set[str] = set()

    def describe(self) -> str:
        return f"folder {self.folder}"

    def where(self, ref: str) -> str:
        return f"{self.folder / named(ref.rpartition('/')[0])}"

    async def open(self) -> None:
        await asyncio.to_thread(self._check)

    async def close(self) -> None:
        self._listed = set()

    async def list(self) -> tuple[str, ...]:
        first = await asyncio.to_thread(self._look)
        now = time.time()
        if any(now - facts.st_mtime < FRESH for facts in first.values()):
            await self._pause(SETTLE)
            again = await asyncio.to_thread(self._look)
            first = {name: facts for name, facts in first.items() if _same(facts, again.get(name))}
        ready = [
            (facts.st_mtime_ns, name, facts)
            for name, facts in first.items()
            if facts.st_size or now - facts.st_mtime > ABANDONED
        ]
        refs = tuple(_ref(name, facts) for _, name, facts in sorted(ready, key=lambda item: item[:2]))
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
        if not self.folder.is_dir():
            raise ConfigurationError(
                f"There is no folder {self.folder} to take mails from. Create it, or name another one."
            )
        try:
            private_folder(self.folder / PROCESSED)
            with os.scandir(self.folder):
                pass
        except OSError as error:
            raise ConfigurationError(
                f"Folder {self.folder} cannot be used for incoming mail ({error.strerror}):"
                f" it must be readable, and mails must be movable to {PROCESSED}/ in it."
            ) from error

    def _look(self) -> dict[str, os.stat_result]:
        """The mail files that are there; no folders, links or files that say they are unfinished."""
        found = {}
        with os.scandir(self.folder) as entries:
            for entry in entries:
                if entry.name.startswith(".") or not entry.name.lower().endswith(".eml"):
                    continue
                try:
                    facts = entry.stat(follow_symlinks=False)
                except FileNotFoundError:  # somebody else's by now
                    continue
                if stat.S_ISREG(facts.st_mode):
                    found[entry.name] = facts
        return found

    def _refs(self) -> set[str]:
        try:
            return {_ref(name, facts) for name, facts in self._look().items()}
        except OSError:  # the next listing will say what is wrong
            return set()

    def _fetch(self, ref: str) -> Arrival:
        try:
            facts, raw = read_bounded(self._path(ref), self._max_size)
        except FileNotFoundError:
            raise MailGone(ref, self.describe()) from None
        size = facts.st_size if raw is None else len(raw)
        return Arrival(ref, size, raw, file_time=file_time(facts))

    def _mark(self, ref: str) -> bool:
        try:
            source = self._path(ref)
        except MailGone:
            return False
        target, number = self.folder / PROCESSED / source.name, 1
        private_folder(target.parent)
        while True:
            try:
                return _move(source, target)
            except FileNotFoundError:  # another process was faster
                return False
            except FileExistsError:
                number += 1
                target = target.with_name(f"{source.stem}-{number}{source.suffix}")

    def _path(self, ref: str) -> Path:
        """Where the mail lies, made sure that it is this one."""
        path = self.folder / named(ref.rpartition("/")[0])
        try:
            if path.parent == self.folder and _ref(path.name, path.lstat()) == ref:
                return path
        except FileNotFoundError:
            pass
        raise MailGone(ref, self.describe())


def _ref(name: str, facts: os.stat_result) -> str:
    return f"{written(name)}/{facts.st_size}-{facts.st_mtime_ns}"


def _same(one: os.stat_result, other: os.stat_result | None) -> bool:
    return other is not None and (one.st_size, one.st_mtime_ns) == (other.st_size, other.st_mtime_ns)


def _move(source: Path, target: Path) -> bool:
    """Move without overwriting; dying half-way leaves two names for one file, which the next try ends.

    True for whoever takes the old name away, of all who try.
    """
    try:
        os.link(source, target)
    except (FileNotFoundError, FileExistsError):
        if not (target.exists() and source.exists() and target.samefile(source)):
            raise
    except OSError:  # a file system without links: not so strict about two movers at once
        if target.exists():
            raise FileExistsError(target) from None
        source.rename(target)
        return True
    try:
        source.unlink()
    except FileNotFoundError:
        return False
    return True
