"""Cleaning up after runs: their backups, effect notes and command logs in the project's own folder.

Which runs still need their files is for the caller to decide; this module only knows where they are.
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
"""Seconds after which a temporary file is certainly no longer being written."""


class Cleanup:
    """The files that runs keep for themselves below a folder."""

    def __init__(self, state: Path) -> None:
        self._state = state

    def of(self, root: str) -> bool:
        """Whether anything is kept for a run."""
        return any(self._folder(kind, root).exists() for kind in (BACKUPS, NOTES, COMMANDS))

    def drop_notes(self, root: str) -> int:
        """Delete the notes on whether effects had happened; returns the number of files."""
        return _delete(self._folder(NOTES, root))

    def drop_all(self, root: str) -> int:
        """Delete all files of a run; returns their number. A note remains that it had backups."""
        dropped = self.drop_notes(root) + _delete(self._folder(COMMANDS, root))
        backups = self._folder(BACKUPS, root)
        files = [file for file in _files(backups) if file.name != PURGED]
        if files:
            # First, so that a missing backup is never taken for a file that did not exist.
            (backups / PURGED).write_text(json.dumps({"at": time.time()}))
        for file in files:
            file.unlink(missing_ok=True)
        for folder in sorted((file for file in backups.rglob("*") if file.is_dir()), reverse=True):
            with contextlib.suppress(OSError):
                folder.rmdir()
        return dropped + len(files)

    def drop_strays(self, before: float) -> int:
        """Delete files that belong to no run: logs of read-only commands, old temporary files."""
        dropped = 0
        bounds = {
            self._state / COMMANDS / READS: before,
            self._state / SPARE: min(before, time.time() - SPARE_AGE),
        }
        for folder, bound in bounds.items():
            for file in _files(folder):
                with contextlib.suppress(OSError):
                    if file.stat().st_mtime < bound:
                        file.unlink()
                        dropped += 1
        return dropped

    def _folder(self, kind: str, root: str) -> Path:
        return folder_of(self._state / kind, root)


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if not path.is_dir()] if folder.is_dir() else []


def _delete(folder: Path) -> int:
    count = len(_files(folder))
    shutil.rmtree(folder, ignore_errors=True)
    return count
