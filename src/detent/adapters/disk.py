"""Durable and private files: syncing folders, and modes that keep others out."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import Any

PRIVATE_FILE, PRIVATE_FOLDER = 0o600, 0o700
"""Modes of files with customers' texts or state of runs, and of folders created for them."""


def sync_folder(folder: Path) -> None:
    """Make new names in a folder durable, where folders can be synced."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def private_folder(folder: Path) -> None:
    """Create a folder and its missing parents for the owner alone; an existing one stays as it is."""
    for path in reversed(missing_folders(folder) or [folder]):
        # A folder that exists by now is fine; a file in its place is an error.
        path.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)


def missing_folders(folder: Path) -> list[Path]:
    """A folder and its parents that do not exist yet, the innermost first."""
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    return missing


def open_private(path: Path, mode: str, **options: Any) -> Any:
    """An open file; a new one is for its owner alone."""
    return open(path, mode, opener=lambda name, flags: os.open(name, flags, PRIVATE_FILE), **options)


def shared(path: Path) -> bool:
    """Whether others than the owner may read a file or folder."""
    try:
        status = path.stat()
    except OSError:
        return False
    return bool(_excess(status)) and os.name == "posix"


def keep_private(*paths: Path) -> list[Path]:
    """Take away other users' rights on our own files; returns the paths that were changed.

    A group that may write keeps its rights: such a file is shared on purpose.
    """
    changed: list[Path] = []
    for path in paths:
        with contextlib.suppress(OSError):
            status = path.stat()
            if os.name == "posix" and status.st_uid == os.geteuid() and (excess := _excess(status)):
                path.chmod(stat.S_IMODE(status.st_mode) & ~excess)
                changed.append(path)
    return changed


def _excess(status: os.stat_result) -> int:
    """Rights beyond the owner's, and beyond those of a group that shares the file on purpose."""
    mode = stat.S_IMODE(status.st_mode)
    return mode & (stat.S_IRWXO if mode & stat.S_IWGRP else stat.S_IRWXO | stat.S_IRWXG)
