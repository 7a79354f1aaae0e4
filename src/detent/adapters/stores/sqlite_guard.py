"""Notices when the files of an open SQLite store are deleted or replaced, and saves their content.

An open file outlives its name: commits to a deleted store succeed, and are lost with the process. So after
each commit and before each read the names are compared with the open files, which takes a microsecond.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from pathlib import Path

from detent.adapters.stores.sqlite_reading import log_of
from detent.adapters.stores.sqlite_remains import restore_commands
from detent.kernel.errors import StoreLost

Identity = tuple[int, int]


class SQLiteGuard:
    """Knows the files of one open store."""

    def __init__(self, path: Path) -> None:
        self._path = os.fspath(path.absolute())
        self._log_path = os.fspath(log_of(path.absolute()))
        self._file = _identity(self._path)
        self._log: Identity | None = None
        self._lock = threading.Lock()
        self._lost: StoreLost | None = None

    def check(self, connection: sqlite3.Connection, committed: bool = False) -> None:
        """Raise `StoreLost` once the store is no longer where it was; its content is saved first.

        `committed` means that this connection has just committed, so there must be a log.
        """
        if self._lost is None:
            intact = self.in_place()
            if intact and committed:
                log = _identity(self._log_path)
                if self._log is None:
                    self._log = log
                intact = log == self._log
            if intact:
                return
        raise self._notice(connection)

    def in_place(self) -> bool:
        """Whether the file is where it was."""
        return _identity(self._path) == self._file

    def refuse(self) -> None:
        """Raise `StoreLost` if the loss was noticed before."""
        if self._lost is not None:
            raise self._lost

    def _notice(self, connection: sqlite3.Connection) -> StoreLost:
        with self._lock:
            if self._lost is None:
                current = _identity(self._path)
                event = (
                    "was deleted"
                    if current is None
                    else "was replaced by another file"
                    if current != self._file
                    else "lost its log file"
                )
                self._lost = StoreLost(
                    f"The store {self._path} {event} while it was in use. {self._rescue(connection)}"
                )
            return self._lost

    def _rescue(self, connection: sqlite3.Connection) -> str:
        """Save the content of the open files next to where they were; returns a sentence about the result."""
        name = f"{self._path}.rescued-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
        try:
            Path(name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            with contextlib.closing(sqlite3.connect(name)) as target:
                connection.backup(target)
        except (OSError, sqlite3.Error) as error:
            return f"What it held could not be saved to {name}: {error}."
        restore, resume = restore_commands(Path(self._path), Path(name))
        return (
            f"Everything it held was saved to {name}. Nothing was written since. "
            f"To go on from there:\n  {restore}\n  {resume}"
        )


def _identity(path: str) -> Identity | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino
