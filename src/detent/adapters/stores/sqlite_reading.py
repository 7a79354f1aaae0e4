"""Reading a SQLite store that cannot be written: on read-only media, in another user's folder, a backup."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from urllib.parse import quote

from detent.kernel.errors import StoreUnavailable


def log_of(path: Path) -> Path:
    """The write-ahead log of a store file."""
    return path.with_name(f"{path.name}-wal")


def index_of(path: Path) -> Path:
    """The index of the log, shared by the processes that use the store."""
    return path.with_name(f"{path.name}-shm")


def cannot_be_written(path: Path) -> bool:
    """Whether this process can only read an existing store file."""
    if not path.is_file():
        return False
    if not os.access(path, os.W_OK):
        return True
    if os.access(path.parent, os.W_OK):
        return False
    # Nothing can be created in the folder, so the files SQLite needs must exist already.
    return not all(os.access(beside, os.W_OK) for beside in (log_of(path), index_of(path)))


def reading_uri(path: Path) -> str:
    """The URI by which SQLite opens a file it cannot write; not for one with a log but without its index."""
    uri = f"file:{quote(str(path.absolute()))}?mode=ro"
    # With an index, another process may be writing; without an index or a log, none is.
    return uri if index_of(path).exists() or _size(log_of(path)) else f"{uri}&immutable=1"


class ReadableCopy:
    """A copy of a store with its log in a folder of its own."""

    def __init__(self, path: Path) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="detent-reading-"))
        try:
            self.path = self._folder / path.name
            shutil.copyfile(path, self.path)
            if _size(log_of(path)):
                shutil.copyfile(log_of(path), log_of(self.path))
        except OSError as error:
            self.remove()
            raise StoreUnavailable(
                f"The store {path} is read-only, and no copy can be made to read from: {error.strerror}."
            ) from error

    def remove(self) -> None:
        """Delete it."""
        shutil.rmtree(self._folder, ignore_errors=True)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
