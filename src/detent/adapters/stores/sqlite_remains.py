"""The remains of a SQLite store whose file is gone, and the ways out.

A process that has a store open while its file is deleted saves the content under another name
(`sqlite_guard`); a process that was killed leaves a log. In both cases no new store may be created unasked:
it would know nothing of the earlier runs, and would repeat what they have done.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import NamedTuple

from detent.adapters.stores.sqlite_reading import index_of, log_of
from detent.kernel.errors import StoreLost


class Remains(NamedTuple):
    """The files next to the place of a store that is gone."""

    path: Path
    """Where the store was."""
    rescued: tuple[Path, ...]
    """Copies that processes saved, the latest first."""
    logs: tuple[Path, ...]
    """Its log and the log's index."""

    @property
    def sentence(self) -> str:
        """What happened, in a sentence."""
        if not self.rescued:
            logs_text = (
                f"{' and '.join(map(str, self.logs))} {'is' if len(self.logs) == 1 else 'are'} left of it"
            )
            return f"The store {self.path} is gone, and {logs_text}."
        more = f" ({len(self.rescued) - 1} more beside it)" if len(self.rescued) > 1 else ""
        return f"The store {self.path} is gone, and what it held was saved to {self.rescued[0]}{more}."

    def error(self) -> StoreLost:
        """The refusal to create a new store, with both ways out."""
        restore = restore_commands(self.path, self.rescued[0] if self.rescued else None)
        files = [*self.rescued, *self.logs]
        aside = self.path.with_name(f"{self.path.name}.lost")
        arguments = " ".join(shlex.quote(str(file)) for file in (*files, aside))
        heading = "To go on with it" + ("" if self.rescued else ", put the file back or restore a backup")
        return StoreLost(
            f"{self.sentence} No new store is made in its place.\n"
            f"{heading}:\n  {restore[0]}\n  {restore[1]}\n"
            f"To begin a new one, move away what is left:\n"
            f"  mkdir -p {shlex.quote(str(aside))} && mv {arguments}"
        )


def remains_of(path: Path) -> Remains | None:
    """The remains of a store at a path; None if the store exists, or never did."""
    if path.exists():
        return None
    rescued = rescued_beside(path)
    logs = tuple(file.absolute() for file in (log_of(path), index_of(path)) if file.exists())
    # Checked again: another process may be creating a store, whose log comes after its file.
    if path.exists() or not (rescued or logs):
        return None
    return Remains(path.absolute(), rescued, logs)


def rescued_beside(path: Path) -> tuple[Path, ...]:
    """Copies saved of a deleted store at this path, the latest first."""
    beginning = f"{path.name}.rescued-"
    try:
        files = [
            file.absolute()
            for file in path.parent.iterdir()
            if file.name.startswith(beginning) and not file.name.endswith(("-wal", "-shm", "-journal"))
        ]
        return tuple(sorted(files, key=lambda file: (file.stat().st_mtime, file.name), reverse=True))
    except OSError:
        return ()


def restore_commands(path: Path, backup: Path | None) -> tuple[str, str]:
    """The commands that continue from a backup, or from one still to be named."""
    store = shlex.quote(str(path))
    source = "BACKUP" if backup is None else shlex.quote(str(backup))
    return f"detent store restore {source} --store {store}", f"detent resume --all --store {store}"
