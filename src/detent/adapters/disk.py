"""What every file of ours needs: to survive a power cut, and to be for its owner alone."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import Any

PRIVATE_FILE, PRIVATE_FOLDER = 0o600, 0o700
"""Rights of files with texts of customers or what runs keep, and of folders made for them."""


def sync_folder(folder: Path) -> None:
    """Make new names in a folder last, where folders can be synced."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def private_folder(folder: Path) -> None:
    """Make a folder, and those above it that are missing, for the owner alone; one that is there stays so."""
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for one in reversed(missing or [folder]):
        # One that is there by now is as good; a file in its place is not.
        one.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)


def open_private(path: Path, mode: str, **options: Any) -> Any:
    """A file, open; where it is made, it is for its owner alone."""
    return open(path, mode, opener=lambda name, flags: os.open(name, flags, PRIVATE_FILE), **options)


def shared(path: Path) -> bool:
    """Whether others than the owner may read a file or folder."""
    try:
        found = path.stat()
    except OSError:
        return False
    return bool(_excess(found)) and os.name == "posix"


def keep_private(*paths: Path) -> list[Path]:
    """Take rights from others on what is ours; gives what was changed.

    A group that may write keeps its rights: the file is shared on purpose.
    """
    changed: list[Path] = []
    for path in paths:
        with contextlib.suppress(OSError):
            found = path.stat()
            if os.name == "posix" and found.st_uid == os.geteuid() and (excess := _excess(found)):
                path.chmod(stat.S_IMODE(found.st_mode) & ~excess)
                changed.append(path)
    return changed


def _excess(found: os.stat_result) -> int:
    """Rights beyond the owner's, and beyond those of a group the file is shared with on purpose."""
    mode = stat.S_IMODE(found.st_mode)
    return mode & (stat.S_IRWXO if mode & stat.S_IWGRP else stat.S_IRWXO | stat.S_IRWXG)
