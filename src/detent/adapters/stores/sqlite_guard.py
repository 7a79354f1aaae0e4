"""Notices when the files of an open SQLite store are deleted or replaced, and saves what they held.

An open file outlives its name: commits to a deleted store succeed, and are gone with the process. So after
each commit and before each read, the names are compared with the files that are open: a microsecond each.
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
        """Raise `StoreLost` once the store lies no longer where it was; what it held is saved first.

        `committed` after a commit by this connection: then there is a log.
        """
        if self._lost is None:
            whole = self.in_place()
            if whole and committed:
                log = _identity(self._log_path)
                if self._log is None:
                    self._log = log
                whole = log == self._log
            if whole:
                return
        raise self._notice(connection)

    def in_place(self) -> bool:
        """Whether the file lies where it was."""
        return _identity(self._path) == self._file

    def refuse(self) -> None:
        """Raise `StoreLost` if that was noticed before."""
        if self._lost is not None:
            raise self._lost

    def _notice(self, connection: sqlite3.Connection) -> StoreLost:
        with self._lock:
            if self._lost is None:
                there = _identity(self._path)
                what = (
                    "was deleted"
                    if there is None
                    else "was replaced by another file"
                    if there != self._file
                    else "lost its log file"
                )
                self._lost = StoreLost(
                    f"The store {self._path} {what} while it was in use. {self._rescue(connection)}"
                )
            return self._lost

    def _rescue(self, connection: sqlite3.Connection) -> str:
        """Save what the open files hold beside where they were; says what came of it."""
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
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
