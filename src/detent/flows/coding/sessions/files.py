"""Writing session files: private, whole or not at all, and nothing lost that was there before."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any

from detent.adapters.anchored import OpenFolder, open_folder
from detent.adapters.disk import PRIVATE_FILE
from detent.flows.coding.sessions.json_text import to_bytes
from detent.flows.coding.sessions.reading import Content, Unusable, bytes_of, state_of

BACKUP = ".bak"
"""What the name of a kept original ends with; a number follows where there are several."""

_REMAINS = re.compile(r"\.[0-9a-f]{16}\.detent-session\.tmp")


def file_bytes(plain: Mapping[str, Any]) -> bytes:
    """A session as a file has it: a field a line, and a message a line."""
    return to_bytes(plain, by_item=("messages",))


@contextlib.contextmanager
def locked(root: Path, path: Path) -> Iterator[OpenFolder]:
    """An open folder in which no other process of this program replaces files meanwhile.

    Where folders cannot be locked, as on some network disks, nothing is.
    """
    with open_folder(root, path) as folder:
        try:
            import fcntl

            handle = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        except (ImportError, OSError):
            yield folder
            return
        try:
            with contextlib.suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_EX)
                remove_remains(folder)
            yield folder
        finally:
            os.close(handle)


def replace_file(folder: OpenFolder, name: str, raw: bytes, before: Content | None) -> None:
    """Write a file that only its owner may read, in place of the one that was read before.

    Raises:
        Unusable: another program has changed that one meanwhile.
    """
    with _temporary(folder, raw) as temporary:
        if before is not None and state_of(folder.stat(name)) != before.status:
            raise Unusable("was changed by another program just now; try again")
        folder.move(temporary, folder, name)
    with contextlib.suppress(OSError):
        folder.sync()


def write_new(folder: OpenFolder, name: str, raw: bytes) -> None:
    """Write a file that only its owner may read, of a name that no file has.

    Raises:
        FileExistsError: one has it.
    """
    with _temporary(folder, raw) as temporary:
        try:
            folder.link(temporary, folder, name)
        except FileExistsError:
            raise
        except OSError:  # no second names on this disk
            if os.path.lexists(folder.path / name):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name) from None
            folder.move(temporary, folder, name)
    with contextlib.suppress(OSError):
        folder.sync()


@contextlib.contextmanager
def _temporary(folder: OpenFolder, raw: bytes) -> Iterator[str]:
    """A temporary file with these bytes, on the disk."""
    temporary = f".{secrets.token_hex(8)}.detent-session.tmp"
    try:
        with folder.create(temporary, PRIVATE_FILE) as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
        yield temporary
    finally:
        folder.remove(temporary, missing_ok=True)


def remove_remains(folder: OpenFolder) -> None:
    """Remove the temporary files of writers that were killed; the folder must be locked."""
    for name in os.listdir(folder.path):
        if _REMAINS.fullmatch(name):
            folder.remove(name, missing_ok=True)


def keep_backup(folder: OpenFolder, name: str, raw: bytes) -> str:
    """Keep a file under another name before it is replaced, and return that name; never over another file.

    Killed on the way, this leaves a whole copy or none.

    Raises:
        OSError: it cannot be written.
    """
    for number in count():
        backup = f"{name}{BACKUP}" + (f".{number}" if number else "")
        try:
            folder.stat(backup)
        except FileNotFoundError:
            with contextlib.suppress(FileExistsError):
                write_new(folder, backup, raw)
                return backup
        with contextlib.suppress(Unusable, FileNotFoundError):  # a link, say, or a folder
            if bytes_of(folder, backup)[0] == raw:
                return backup
    raise AssertionError("numbers do not end")
