"""The file behind the SQLite store: creating, recognising and migrating it, and explaining its errors."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from importlib import resources
from pathlib import Path
from typing import Literal

from detent.adapters.disk import PRIVATE_FILE, PRIVATE_FOLDER, keep_private
from detent.adapters.stores.sqlite_guard import SQLiteGuard
from detent.adapters.stores.sqlite_reading import ReadableCopy, cannot_be_written, reading_uri
from detent.adapters.stores.sqlite_remains import remains_of
from detent.kernel.errors import (
    StoreDamaged,
    StoreError,
    StoreLost,
    StoreMissing,
    StoreTooNew,
    StoreUnavailable,
)

APPLICATION_ID = 0x44544E54
"""Marks a file as ours (`DTNT`)."""
TABLES = (
    "runs", "entries", "folds", "effects", "tags", "edges", "definitions", "blobs", "blob_refs", "marks",
    "workers",
)  # fmt: skip
"""The tables of this version's schema."""
NOT_KEPT = """\
# Made by detent: runs belong to this machine, workflows to the project.
*
!workflows/
!workflows/**
"""
"""The .gitignore of a folder that a store creates for itself."""

_WHY = {
    sqlite3.SQLITE_BUSY: "is locked by another process for more than {seconds:g} seconds",
    sqlite3.SQLITE_LOCKED: "is locked by another process for more than {seconds:g} seconds",
    sqlite3.SQLITE_READONLY: "is read-only",
    sqlite3.SQLITE_PERM: "may not be used by this user",
    sqlite3.SQLITE_AUTH: "may not be used by this user",
    sqlite3.SQLITE_NOTADB: "is not a SQLite file, or is damaged",
    sqlite3.SQLITE_CORRUPT: "is damaged; `detent store check` says more, and docs/stores.md what to do",
    sqlite3.SQLITE_FULL: "cannot grow: the disk is full",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened (is the folder there, and may it be written to?)",
    sqlite3.SQLITE_IOERR: "cannot be read or written: disk error",
}
"""The meaning of SQLite's error codes."""


class Moved(sqlite3.OperationalError):
    """The file was deleted or replaced; an earlier connection still sees its content."""


class SQLiteFile:
    """One file, and how to connect to it."""

    def __init__(
        self, path: Path, sync: Literal["full", "normal"], create: bool, busy_timeout: float
    ) -> None:
        self.path = path
        self.sync = sync
        self.create = create
        """False refuses to create a missing file."""
        self.busy_timeout = busy_timeout
        self.read_only = False
        """Whether the file, or the folder for its log, cannot be written."""
        self.guard: SQLiteGuard | None = None
        self._copy: ReadableCopy | None = None

    def prepare(self) -> None:
        """Make sure that the file exists, is ours, and has this version's schema."""
        self.read_only = cannot_be_written(self.path)
        if self.read_only:
            self._prepare_to_read()
        else:
            self._prepare_to_write()
            self.guard = SQLiteGuard(self.path)

    def _prepare_to_read(self) -> None:
        """Find a way to read a file that cannot be written, or whose folder cannot."""
        try:
            with contextlib.closing(self._reach(self.busy_timeout)) as connection:
                current = self._check_ours(connection) == len(migrations())
                if current:
                    self._check_tables(connection)
        except sqlite3.Error as error:
            if _code(error) not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
                raise self.translate(error) from error
            current = False
        if current:
            return
        # Its log cannot be read in place, or its schema is old: both can be mended in a copy.
        self._copy = ReadableCopy(self.path)
        try:
            with contextlib.closing(self._reach(self.busy_timeout)) as connection:
                self._check_ours(connection)
                self._migrate(connection)
        except BaseException as error:
            self.close()
            if isinstance(error, sqlite3.Error):
                raise self.translate(error) from error
            raise

    def close(self) -> None:
        """Delete a copy that was made for reading."""
        if self._copy is not None:
            self._copy.remove()
            self._copy = None

    def _prepare_to_write(self) -> None:
        folder = self.path.parent
        if not self.path.exists():
            if (remains := remains_of(self.path)) is not None:
                raise remains.error()
            if not self.create:
                if self.path.is_symlink():
                    raise StoreUnavailable(f"The store {self.path} is a symbolic link that leads to no file.")
                raise StoreMissing(f"There is no store at {self.path} yet. The first `detent run` makes one.")
            if folder.name == ".detent" and folder.parent.is_dir():
                self._make_own(folder)
            self._make_private()
        if not folder.is_dir():
            raise StoreUnavailable(f"The folder {folder} for the store does not exist.")
        if self.path.is_dir():
            raise StoreUnavailable(f"{self.path} is a folder, not a store file.")
        if not self.create and self.path.is_file() and self.path.stat().st_size == 0:
            raise StoreUnavailable(
                f"The store {self.path} is empty (0 bytes): it was cut off, or never written. Restore a "
                f"backup (detent store restore FILE), or delete it to begin anew."
            )
        try:
            with contextlib.closing(self._reach(self.busy_timeout)) as connection:
                # Checked before anything is changed, as it may be another program's file; and in one
                # transaction, as another process may be creating it at this moment.
                connection.execute("BEGIN")
                self._check_ours(connection)
                connection.execute("COMMIT")
                self._configure(connection, self.busy_timeout)
                self._migrate(connection)
                self._check_tables(connection)
                keep_private(*self.files, *([folder] if folder.name == ".detent" else []))
        except sqlite3.Error as error:
            raise self.translate(error) from error

    @staticmethod
    def _make_own(folder: Path) -> None:
        try:
            folder.mkdir(exist_ok=True, mode=PRIVATE_FOLDER)
        except OSError as error:
            raise StoreUnavailable(f"The folder {folder} cannot be made: {error.strerror}.") from error
        with contextlib.suppress(OSError), (folder / ".gitignore").open("x") as file:
            file.write(NOT_KEPT)

    def _make_private(self) -> None:
        """Create the file before SQLite does, which would let everybody read it."""
        # If it cannot be created, SQLite says why.
        with contextlib.suppress(OSError):
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, PRIVATE_FILE))

    @property
    def files(self) -> tuple[Path, ...]:
        """The file and those SQLite keeps next to it."""
        return (self.path, *(self.path.with_name(self.path.name + end) for end in ("-wal", "-shm")))

    def connect(self, busy_timeout: float | None = None) -> sqlite3.Connection:
        """A connection ready for use; `busy_timeout` is how long it waits for a lock."""
        patience = self.busy_timeout if busy_timeout is None else busy_timeout
        if self.guard is not None and not self.guard.in_place():
            raise Moved
        connection = self._reach(patience)
        try:
            if not self.read_only:
                self._configure(connection, patience)
        except BaseException:
            connection.close()
            raise
        return connection

    def _reach(self, busy_timeout: float) -> sqlite3.Connection:
        in_place = self.read_only and self._copy is None
        return sqlite3.connect(
            reading_uri(self.path) if in_place else self.path if self._copy is None else self._copy.path,
            uri=in_place,
            timeout=busy_timeout,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )

    def _configure(self, connection: sqlite3.Connection, patience: float) -> None:
        """Configure a connection. The first one switches the file to WAL, for good."""
        until = time.monotonic() + patience
        while True:
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                break
            except sqlite3.OperationalError as error:
                # When two processes switch a new file at once, SQLite refuses one of them without waiting.
                if _code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                    raise
                time.sleep(0.01)
        # A log that is reused syncs faster than one that grows.
        connection.execute("PRAGMA wal_autocheckpoint = 400")
        connection.execute(f"PRAGMA synchronous = {'FULL' if self.sync == 'full' else 'NORMAL'}")

    def _migrate(self, connection: sqlite3.Connection) -> None:
        """Bring the file to this version's schema, even while another process does the same."""
        steps = migrations()
        if _version(connection) == len(steps):
            return
        connection.execute("BEGIN EXCLUSIVE")
        try:
            version = self._check_ours(connection)
            for number in range(version, len(steps)):
                for statement in steps[number].split(";\n"):
                    if statement.strip():
                        connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {len(steps)}")
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def _check_ours(self, connection: sqlite3.Connection) -> int:
        """The schema version of a file that is ours, 0 for an empty one; refuses any other."""
        version = _version(connection)
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        used = version > 0 or connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is not None
        if used and application != APPLICATION_ID:
            raise StoreUnavailable(f"{self.path} is a SQLite file, but not one of Detent's.")
        if version > len(migrations()):
            raise StoreTooNew(
                f"The store {self.path} was written by a newer Detent (schema {version}; this one knows "
                f"{len(migrations())}). Upgrade Detent, or use another store."
            )
        return version

    def _check_tables(self, connection: sqlite3.Connection) -> None:
        """Raise `StoreUnavailable` unless the file has every table of the schema."""
        tables = {
            name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        }
        if missing := [name for name in TABLES if name not in tables]:
            raise StoreUnavailable(
                f"The store {self.path} is damaged: it lacks the table {', '.join(missing)}. Restore a "
                f"backup (detent store restore FILE); docs/stores.md says more."
            )

    def translate(self, error: Exception) -> Exception:
        """A database error as one of ours, in one sentence."""
        if isinstance(error, StoreError) or not isinstance(error, sqlite3.Error):
            return error
        if isinstance(error, Moved):
            return StoreLost(f"The store {self.path} was deleted or replaced since it was opened.")
        code = _code(error)
        why = _WHY.get(code, f"refused: {error}").format(seconds=self.busy_timeout)
        damaged = code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)
        return (StoreDamaged if damaged else StoreUnavailable)(f"The store {self.path} {why}.")


def _code(error: sqlite3.Error) -> int:
    """SQLite's primary error code; 0 for an error of the library itself."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def migrations() -> list[str]:
    """The schema's steps, in order."""
    folder = resources.files("detent.adapters.stores") / "sqlite_schema"
    names = sorted(item.name for item in folder.iterdir() if item.name.endswith(".sql"))
    return [(folder / name).read_text(encoding="utf-8") for name in names]
