"""Cleans up after runs: their backups, effect notes and logs of commands in the project's own folder.

Which run no longer needs what is for others to say; here are only the places.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from pathlib import Path

from detent.adapters.project.backups import PURGED
from detent.adapters.project.effect_notes import folder_of

BACKUPS, NOTES, COMMANDS, READS, SPARE = "backups", "footprints", "commands", "reads", "tmp"
SPARE_AGE = 24 * 3600.0
"""Seconds after which nobody is still writing a temporary file."""


class Cleanup:
    """The files that runs keep for themselves below a folder."""

    def __init__(self, state: Path) -> None:
        self._state = state

    def of(self, root: str) -> bool:
        """Whether anything is kept for a run."""
        return any(self._place(kind, root).exists() for kind in (BACKUPS, NOTES, COMMANDS))

    def drop_notes(self, root: str) -> int:
        """Take away what told whether effects had happened; how many files went."""
        return _drop(self._place(NOTES, root))

    def drop_all(self, root: str) -> int:
        """Take away all of a run's; how many files went. That it had backups is remembered."""
        dropped = self.drop_notes(root) + _drop(self._place(COMMANDS, root))
        backups = self._place(BACKUPS, root)
        gone = [one for one in _files(backups) if one.name != PURGED]
        if gone:
            # First of all, so that nobody takes a file that is gone for one that never was.
            (backups / PURGED).write_text(json.dumps({"at": time.time()}))
        for one in gone:
            one.unlink(missing_ok=True)
        for folder in sorted((one for one in backups.rglob("*") if one.is_dir()), reverse=True):
            with contextlib.suppress(OSError):
                folder.rmdir()
        return dropped + len(gone)

    def drop_strays(self, before: float) -> int:
        """Take away what belongs to no run: logs of commands that only read, temporary files of the dead."""
        dropped = 0
        bounds = {
            self._state / COMMANDS / READS: before,
            self._state / SPARE: min(before, time.time() - SPARE_AGE),
        }
        for folder, bound in bounds.items():
            for one in _files(folder):
                with contextlib.suppress(OSError):
                    if one.stat().st_mtime < bound:
                        one.unlink()
                        dropped += 1
        return dropped

    def _place(self, kind: str, root: str) -> Path:
        return folder_of(self._state / kind, root)


def _files(folder: Path) -> list[Path]:
    return [one for one in folder.rglob("*") if not one.is_dir()] if folder.is_dir() else []


def _drop(folder: Path) -> int:
    many = len(_files(folder))
    shutil.rmtree(folder, ignore_errors=True)
    return many
