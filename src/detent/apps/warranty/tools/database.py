"""The SQLite file behind the embedded tools: making it, and working in it from several processes.

Each part of it (devices, tickets) has its own schema and version, so that parts may live in one file or in
several. All work is done in threads; a connection stays open, because closing the last one of a file is slow.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from detent.adapters.disk import PRIVATE_FILE
from detent.kernel.errors import DetentError

T = TypeVar("T")
Values: TypeAlias = Sequence[Any] | Mapping[str, Any]
"""Values of a statement's parameters."""

APPLICATION_ID = 0x44545741
"""Marks a file as ours (`DTWA`)."""

BUSY_TIMEOUT = 10.0
"""Seconds to wait for another process."""

_VERSIONS = "CREATE TABLE IF NOT EXISTS schema_versions (part TEXT PRIMARY KEY, version INTEGER NOT NULL)"
_SET_VERSION = "INSERT OR REPLACE INTO schema_versions (part, version) VALUES (?, ?)"


class DatabaseError(DetentError):
    """The file cannot be used."""

    exit_code = 2

    def __init__(
        self, message: str, *, code: str = "server", transient: bool = False, sure: bool = True
    ) -> None:
        self.code = code
        self.message = message
        self.transient = transient
        self.sure = sure
        """Whether it is certain that nothing was written."""
        super().__init__(message)


_WHY: dict[int, tuple[str, str, bool]] = {
    sqlite3.SQLITE_BUSY: ("timeout", "is in use by another process for too long", True),
    sqlite3.SQLITE_LOCKED: ("timeout", "is in use by another process for too long", True),
    sqlite3.SQLITE_READONLY: ("server", "is read-only", False),
    sqlite3.SQLITE_PERM: ("server", "may not be used by this user", False),
    sqlite3.SQLITE_NOTADB: ("server", "is not a SQLite file, or is damaged", False),
    sqlite3.SQLITE_CORRUPT: ("server", "is not a SQLite file, or is damaged", False),
    sqlite3.SQLITE_FULL: ("server", "cannot grow: the disk is full", True),
    sqlite3.SQLITE_CANTOPEN: ("server", "cannot be opened (is the folder there?)", False),
    sqlite3.SQLITE_IOERR: ("server", "cannot be read or written: disk error", True),
}
"""Meaning of SQLite's error codes: our code, the words, whether trying again may help."""


class Database:
    """One part of one file."""

    def __init__(self, path: Path, part: str, busy_timeout: float = BUSY_TIMEOUT) -> None:
        self.path = Path(path)
        self.part = part
        self._busy_timeout = busy_timeout
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Read in a thread."""
        return await asyncio.to_thread(self._within, work, "BEGIN")

    async def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Write in a thread, in one transaction, exclusively among all processes."""
        return await asyncio.to_thread(self._within, work, "BEGIN IMMEDIATE")

    async def rows(self, sql: str, values: Values = ()) -> list[sqlite3.Row]:
        """The rows of a query."""
        return await self.read(lambda connection: connection.execute(sql, values).fetchall())

    async def change(self, sql: str, values: Values = ()) -> int:
        """Change rows with one statement; returns how many."""
        return await self.write(lambda connection: connection.execute(sql, values).rowcount)

    async def close(self) -> None:
        """Close the connection; the next call opens a new one."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _within(self, work: Callable[[sqlite3.Connection], T], begin: str) -> T:
        with self._lock:
            with self._translated():
                connection = self._connected()
                connection.execute(begin)
                try:
                    value = work(connection)
                except BaseException:
                    connection.execute("ROLLBACK")
                    raise
            with self._translated(sure=False):
                try:
                    connection.execute("COMMIT")
                except BaseException:
                    with contextlib.suppress(sqlite3.Error):
                        connection.execute("ROLLBACK")
                    raise
            return value

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            # Created before SQLite would, which lets everybody read it; if that fails, SQLite reports why.
            with contextlib.suppress(OSError):
                os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, PRIVATE_FILE))
            connection = sqlite3.connect(
                self.path, timeout=self._busy_timeout, isolation_level=None, check_same_thread=False
            )
            try:
                self._check_ours(connection)
                self._use_wal(connection)
                self._migrate(connection)
            except BaseException:
                connection.close()
                raise
            connection.row_factory = sqlite3.Row
            self._connection = connection
        return self._connection

    def _check_ours(self, connection: sqlite3.Connection) -> None:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        if application not in (0, APPLICATION_ID):
            raise DatabaseError(f"{self.path} is another program's file. Name another as `tools.database`.")

    def _use_wal(self, connection: sqlite3.Connection) -> None:
        until = time.monotonic() + self._busy_timeout
        while True:
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                break
            except sqlite3.OperationalError as error:
                # Two processes switch a new file at once: SQLite refuses one of them without waiting.
                if _code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                    raise
                time.sleep(0.01)
        # A receipt must survive a loss of power.
        connection.execute("PRAGMA synchronous = FULL")

    def _migrate(self, connection: sqlite3.Connection) -> None:
        steps = _schema(self.part)
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.execute(_VERSIONS)
            row = connection.execute(
                "SELECT version FROM schema_versions WHERE part = ?", (self.part,)
            ).fetchone()
            version = row[0] if row else 0
            if version > len(steps):
                raise DatabaseError(
                    f"The {self.part} in {self.path} were written by a newer Detent (schema {version}; "
                    f"this one knows {len(steps)}). Upgrade Detent, or name another file as `tools.database`."
                )
            for step in steps[version:]:
                for statement in step.split(";\n"):
                    if statement.strip():
                        connection.execute(statement)
            connection.execute(_SET_VERSION, (self.part, len(steps)))
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    @contextlib.contextmanager
    def _translated(self, sure: bool = True) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            code, why, transient = _WHY.get(_code(error), ("server", "refused", False))
            raise DatabaseError(
                f"The file {self.path} {why} ({type(error).__name__}).",
                code=code,
                transient=transient,
                sure=sure,
            ) from error


def _code(error: sqlite3.Error) -> int:
    """SQLite's primary error code; 0 if the error is the library's own."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _schema(part: str) -> list[str]:
    """The steps of one part's schema, in order."""
    folder = resources.files("detent.apps.warranty.tools") / "sqlite_schema"
    names = sorted(item.name for item in folder.iterdir() if item.name.startswith(f"{part}_"))
    return [(folder / name).read_text(encoding="utf-8") for name in names]
