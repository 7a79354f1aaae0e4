"""Files below a folder, reached from the folder down by descriptors, so that no link on the way is followed.

A path that was checked may lead elsewhere by the time it is used, if another process replaces a folder with a
link. Here each folder on the way is opened from its parent and refused if it is a link, and files are
created, renamed and removed within open folders. On systems without such calls, plain paths are used.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from detent.adapters.disk import PRIVATE_FILE, PRIVATE_FOLDER, sync_folder

DESCRIPTORS = (
    {os.open, os.mkdir, os.rename, os.unlink, os.rmdir, os.symlink, os.stat, os.link} <= os.supports_dir_fd
    and hasattr(os, "O_NOFOLLOW")
    and hasattr(os, "O_DIRECTORY")
)
"""Whether this system can work within open folders."""

_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _NOFOLLOW | getattr(os, "O_CLOEXEC", 0)


class OpenFolder:
    """An open folder: the names in it stay the same even if its path changes."""

    def __init__(self, path: Path, fd: int | None) -> None:
        self.path = path
        self._fd = fd

    def open(self, name: str, flags: int, mode: int = 0o666) -> int:
        """A descriptor of a file; a link of this name is an error."""
        return os.open(self._name(name), flags | _NOFOLLOW, mode, dir_fd=self._fd)

    def create(self, name: str, mode: int = 0o666) -> BinaryIO:
        """A new file, open for writing; it must not exist."""
        return os.fdopen(self.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb")

    def read(self, name: str) -> BinaryIO:
        """A file, open for reading."""
        return os.fdopen(self.open(name, os.O_RDONLY), "rb")

    def stat(self, name: str) -> os.stat_result:
        """The status of a name; a link is not followed."""
        return os.stat(self._name(name), dir_fd=self._fd, follow_symlinks=False)

    def move(self, name: str, to: OpenFolder, as_name: str) -> None:
        """Rename a file within this folder or into another one, replacing any file of that name."""
        os.replace(self._name(name), to._name(as_name), src_dir_fd=self._fd, dst_dir_fd=to._fd)

    def link(self, name: str, to: OpenFolder, as_name: str) -> None:
        """Give a file a second name, which must not exist."""
        os.link(self._name(name), to._name(as_name), src_dir_fd=self._fd, dst_dir_fd=to._fd)

    def remove(self, name: str, missing_ok: bool = False) -> None:
        """Remove a file, or a link itself."""
        try:
            os.unlink(self._name(name), dir_fd=self._fd)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def remove_folder(self, name: str) -> None:
        """Remove an empty folder."""
        os.rmdir(self._name(name), dir_fd=self._fd)

    def symlink(self, target: str, name: str) -> None:
        """Create a link."""
        os.symlink(target, self._name(name), dir_fd=self._fd)

    def sync(self) -> None:
        """Make new names durable."""
        if self._fd is not None:
            os.fsync(self._fd)
        else:
            sync_folder(self.path)

    def _name(self, name: str) -> str:
        return name if self._fd is not None else str(self.path / name)


@contextlib.contextmanager
def open_folder(root: Path, path: Path, *, make: int | None = None) -> Iterator[OpenFolder]:
    """A folder at or below `root`, open. `make` is the mode for missing folders, which are then created.

    `OSError` (ELOOP, ENOTDIR) when there is a link on the way. Links in `root` itself are allowed.
    """
    if not DESCRIPTORS:
        if make is not None:
            path.mkdir(parents=True, exist_ok=True, mode=make)
        yield OpenFolder(path, None)
        return
    if make is not None and not root.exists():
        root.mkdir(parents=True, exist_ok=True, mode=make)
    fd = os.open(root, _FOLDER & ~_NOFOLLOW)
    try:
        for part in path.relative_to(root).parts:
            child = _below(fd, part, make)
            os.close(fd)
            fd = child
        yield OpenFolder(path, fd)
    finally:
        os.close(fd)


def _below(fd: int, part: str, make: int | None) -> int:
    if part == "..":
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), part)
    try:
        return os.open(part, _FOLDER, dir_fd=fd)
    except FileNotFoundError:
        if make is None:
            raise
        with contextlib.suppress(FileExistsError):  # another process was faster
            os.mkdir(part, make, dir_fd=fd)
        return os.open(part, _FOLDER, dir_fd=fd)


def write_private(root: Path, file_path: Path, raw: bytes, temporary: str) -> None:
    """Write a file below `root` that only its owner may read, atomically."""
    with open_folder(root, file_path.parent, make=PRIVATE_FOLDER) as folder:
        try:
            with folder.create(temporary, PRIVATE_FILE) as file:
                file.write(raw)
                file.flush()
                os.fsync(file.fileno())
            folder.move(temporary, folder, file_path.name)
            with contextlib.suppress(OSError):
                folder.sync()
        finally:
            folder.remove(temporary, missing_ok=True)
