"""Copies of a SQLite store: made while others write, and restored."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from pathlib import Path
from typing import NamedTuple

from detent.adapters.stores.sqlite_file import APPLICATION_ID
from detent.adapters.stores.sqlite_integrity import damage_in
from detent.adapters.stores.sqlite_reading import cannot_be_written, index_of, log_of, reading_uri
from detent.adapters.stores.sqlite_remains import rescued_beside
from detent.kernel.errors import ConfigurationError, StoreUnavailable


def copy_to(source: sqlite3.Connection, target: Path) -> None:
    """Write the present content of a connection to a new file, atomically and private to this user.

    Raises:
        ConfigurationError: the file exists already.
        StoreUnavailable: it cannot be written.
    """
    if target.exists():
        raise ConfigurationError(f"{target} already exists; a backup does not replace anything.")
    spare = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        os.close(os.open(spare, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        with contextlib.closing(sqlite3.connect(spare, isolation_level=None)) as copy:
            source.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")  # a single file
        _sync(spare)
        spare.replace(target)
        _sync(target.parent)
    except OSError as error:
        raise StoreUnavailable(f"{target} cannot be written: {error.strerror}.") from error
    except sqlite3.Error as error:
        raise StoreUnavailable(f"The backup {target} was not made: {error}.") from error
    finally:
        for leftover in (spare, log_of(spare), index_of(spare)):
            leftover.unlink(missing_ok=True)


class Restored(NamedTuple):
    """Where files are after a backup was restored."""

    aside: Path | None
    """The store that was there before, if any."""
    backup: Path
    """The backup; one that was rescued beside the store is renamed, as it is in use again."""


def restore(backup: Path, path: Path, *, force: bool = False) -> Restored:
    """Put a copy of a backup in a store's place.

    Raises:
        ConfigurationError: there is a store and no `force`, or the backup is no store or damaged.
        StoreUnavailable: the files cannot be written.
    """
    if not backup.is_file():
        raise ConfigurationError(f"There is no file {backup}.")
    if path.exists() and not force:
        raise ConfigurationError(
            f"There is a store at {path}. With --force it is moved aside, to a name that is shown, and the "
            f"backup takes its place. End the processes that use it first."
        )
    spare = path.with_name(f"{path.name}.restoring-{os.getpid()}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        address = reading_uri(backup) if cannot_be_written(backup) else str(backup)
        with contextlib.closing(sqlite3.connect(address, uri=address != str(backup))) as source:
            (application,) = source.execute("PRAGMA application_id").fetchone()
            if application != APPLICATION_ID:
                raise ConfigurationError(f"{backup} is no store of Detent's.")
            if damage := damage_in(source):
                raise ConfigurationError(f"{backup} is damaged and was not restored. {damage[0]}")
            copy_to(source, spare)
        aside = _put_aside(path)
        spare.replace(path)
        _sync(path.parent)
    except sqlite3.DatabaseError as error:
        raise ConfigurationError(f"{backup} cannot be read as a store: {error}.") from error
    except OSError as error:
        raise StoreUnavailable(f"{path} cannot be restored: {error.strerror}.") from error
    finally:
        spare.unlink(missing_ok=True)
    if backup.absolute() in rescued_beside(path):
        done = backup.with_name(backup.name.replace(".rescued-", ".restored-"))
        with contextlib.suppress(OSError):
            _rename(backup, done)
            return Restored(aside, done)
    return Restored(aside, backup)


def _put_aside(path: Path) -> Path | None:
    """Rename a store with its log and the log's index."""
    name = f"{path.name}.before-{time.strftime('%Y%m%d-%H%M%S')}"
    aside = path.with_name(name)
    number = 1
    while aside.exists():
        number += 1
        aside = path.with_name(f"{name}-{number}")
    _rename(path, aside)
    return aside if aside.exists() else None


def _rename(path: Path, aside: Path) -> None:
    """Rename a store file with its log and the log's index, if they exist."""
    for old, new in ((log_of(path), log_of(aside)), (index_of(path), index_of(aside)), (path, aside)):
        with contextlib.suppress(FileNotFoundError):
            old.replace(new)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
