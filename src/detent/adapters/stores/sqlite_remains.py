"""What is left of a SQLite store whose file is gone, and the ways out.

A process that holds a store open while its file is deleted saves what it held under another name
(`sqlite_guard`); a process that was killed leaves a log. In neither place may a new store be made unasked: it
would know nothing of the runs there were, and would do again what they have done.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import NamedTuple

from detent.adapters.stores.sqlite_reading import index_of, log_of
from detent.kernel.errors import StoreLost


class Remains(NamedTuple):
    """What lies beside the place of a store that is gone."""

    path: Path
    """Where the store was."""
    rescued: tuple[Path, ...]
    """What processes saved of it, the file written last first."""
    logs: tuple[Path, ...]
    """Its log and the log's index."""

    @property
    def sentence(self) -> str:
        """What happened, for people."""
        if not self.rescued:
            left = f"{' and '.join(map(str, self.logs))} {'is' if len(self.logs) == 1 else 'are'} left of it"
            return f"The store {self.path} is gone, and {left}."
        more = f" ({len(self.rescued) - 1} more beside it)" if len(self.rescued) > 1 else ""
        return f"The store {self.path} is gone, and what it held was saved to {self.rescued[0]}{more}."

    def error(self) -> StoreLost:
        """The refusal to make a new store, with both ways out."""
        restore = restore_commands(self.path, self.rescued[0] if self.rescued else None)
        files = [*self.rescued, *self.logs]
        aside = self.path.with_name(f"{self.path.name}.lost")
        words = " ".join(shlex.quote(str(file)) for file in (*files, aside))
        how = "To go on with it" + ("" if self.rescued else ", put the file back or restore a backup")
        return StoreLost(
            f"{self.sentence} No new store is made in its place.\n"
            f"{how}:\n  {restore[0]}\n  {restore[1]}\n"
            f"To begin a new one, move away what is left:\n"
            f"  mkdir -p {shlex.quote(str(aside))} && mv {words}"
        )


def remains_of(path: Path) -> Remains | None:
    """What is left of a store that was here; None where there is one, or never was."""
    if path.exists():
        return None
    rescued = rescued_beside(path)
    logs = tuple(file.absolute() for file in (log_of(path), index_of(path)) if file.exists())
    # Looked at once more: another process may just be making a store, whose log comes after its file.
    if path.exists() or not (rescued or logs):
        return None
    return Remains(path.absolute(), rescued, logs)


def rescued_beside(path: Path) -> tuple[Path, ...]:
    """Files that hold what was saved of a deleted store here, the one written last first."""
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
    """What to type to go on from a backup, or from one that is yet to be named."""
    place = shlex.quote(str(path))
    source = "BACKUP" if backup is None else shlex.quote(str(backup))
    return f"detent store restore {source} --store {place}", f"detent resume --all --store {place}"
