"""A mail source over a folder of `.eml` files; processed files move to `processed/` in it.

Other files are left alone, and so is a file that is still being written. A ref holds a file's name, size and
time, so that a newer file of the same name is never mistaken for the older one.
"""

from __future__ import annotations

import asyncio
import os
import stat
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from detent.adapters.disk import private_folder
from detent.adapters.mail.folders import LOOK_EVERY, FolderSource, loaded, named, written
from detent.adapters.mail.source import LARGEST_MAIL, Arrival, MailGone
from detent.kernel.errors import ConfigurationError

PROCESSED = "processed"

FRESH = 2.0
"""Seconds after its last write during which a file may still be growing and is looked at twice."""
SETTLE = 0.2
"""Seconds between these two looks."""
ABANDONED = 60.0
"""Seconds after which an empty file counts as a mail and no longer as one about to be written."""


class EmlFolder(FolderSource):
    """A source over a folder of `.eml` files."""

    def __init__(
        self,
        folder: Path,
        *,
        max_size: int = LARGEST_MAIL,
        look_every: float = LOOK_EVERY,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        super().__init__(folder, max_size=max_size, look_every=look_every)
        self._pause = pause

    def describe(self) -> str:
        return f"folder {self.folder}"

    def where(self, ref: str) -> str:
        return f"{self.folder / named(ref.rpartition('/')[0])}"

    async def list(self) -> tuple[str, ...]:
        files = await asyncio.to_thread(self._look)
        now = time.time()
        if any(now - facts.st_mtime < FRESH for facts in files.values()):
            await self._pause(SETTLE)
            again = await asyncio.to_thread(self._look)
            files = {name: facts for name, facts in files.items() if _same(facts, again.get(name))}
        ready = [
            (facts.st_mtime_ns, name, facts)
            for name, facts in files.items()
            if facts.st_size or now - facts.st_mtime > ABANDONED
        ]
        refs = tuple(_ref(name, facts) for _, name, facts in sorted(ready, key=lambda item: item[:2]))
        self._listed = set(refs)
        return refs

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
        """The mail files in the folder and their status; no folders, links or hidden files."""
        files = {}
        with os.scandir(self.folder) as entries:
            for entry in entries:
                if entry.name.startswith(".") or not entry.name.lower().endswith(".eml"):
                    continue
                try:
                    facts = entry.stat(follow_symlinks=False)
                except FileNotFoundError:  # another process took it
                    continue
                if stat.S_ISREG(facts.st_mode):
                    files[entry.name] = facts
        return files

    def _present(self) -> set[str]:
        return {_ref(name, facts) for name, facts in self._look().items()}

    def _fetch(self, ref: str) -> Arrival:
        try:
            return loaded(ref, self._path(ref), self._max_size)
        except FileNotFoundError:
            raise MailGone(ref, self.describe()) from None

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
        """The path of the mail, once its file is known to be the one the ref means."""
        path = self.folder / named(ref.rpartition("/")[0])
        try:
            if path.parent == self.folder and _ref(path.name, path.lstat()) == ref:
                return path
        except FileNotFoundError:
            pass
        raise MailGone(ref, self.describe())


def _ref(name: str, facts: os.stat_result) -> str:
    return f"{written(name)}/{facts.st_size}-{facts.st_mtime_ns}"


def _same(before: os.stat_result, after: os.stat_result | None) -> bool:
    return after is not None and (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)


def _move(source: Path, target: Path) -> bool:
    """Move without overwriting; True when it was this call that removed the old name.

    A crash half-way leaves two names for the same file; the next try completes the move.
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
