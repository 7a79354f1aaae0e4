"""Reading a SQLite store that cannot be written: read-only media, a folder of somebody else's, a backup."""

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
    """The index of the log, by which processes that share the store find their way in it."""
    return path.with_name(f"{path.name}-shm")


def cannot_be_written(path: Path) -> bool:
    """Whether a store file that is there can only be read by this process."""
    if not path.is_file():
        return False
    if not os.access(path, os.W_OK):
        return True
    if os.access(path.parent, os.W_OK):
        return False
    # Nothing can be made in the folder: what SQLite needs must be there already.
    return not all(os.access(beside, os.W_OK) for beside in (log_of(path), index_of(path)))


def reading_uri(path: Path) -> str:
    """How SQLite opens a file that it cannot write; not for one whose log lies there without its index."""
    place = f"file:{quote(str(path.absolute()))}?mode=ro"
    # Somebody may be writing where there is an index; where there is none and no log, nobody is.
    return place if index_of(path).exists() or _size(log_of(path)) else f"{place}&immutable=1"


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
        """Take it away."""
        shutil.rmtree(self._folder, ignore_errors=True)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
