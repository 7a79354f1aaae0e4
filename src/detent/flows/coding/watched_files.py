"""The files of tests in a workspace, and those that a check's command runs, before and after a command."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path

from detent.flows.coding.check_parts import CheckParts

_LEFT_OUT = frozenset({
    "node_modules", "__pycache__", "venv", "site-packages", "vendor", "target", "build", "dist", "out", "bin",
    "obj", "coverage", "test-results", "playwright-report", "testresults",
})  # fmt: skip
"""Folders of what is installed or made, in small letters; hidden ones are left out, too."""
MOST_FILES = 2000
"""Files that are compared."""
MOST_VISITED = 50_000
"""Entries of folders that are looked at."""
LARGEST = 1024 * 1024
"""Bytes of a file whose content is compared; of a larger one, what the file system says of it."""

Contents = Mapping[str, str]
"""What stands in each file, by its path: a digest."""


class WatchedFiles:
    """What stands in the files of checks. They are read again only where the file system says so."""

    def __init__(self) -> None:
        self._digests: dict[tuple[str, int, int, int, int], str] = {}

    def contents(self, workspace: Path, parts: CheckParts) -> Contents:
        """What stands in these files now, as far as there are not too many."""
        found: dict[str, str] = {}
        for path in chain(_named(workspace, parts), _paths(workspace, parts)):
            if path not in found:
                with contextlib.suppress(OSError):
                    found[path] = self._digest(workspace / path)
            if len(found) >= MOST_FILES:
                break
        return found

    def _digest(self, file: Path) -> str:
        """What tells a file's content apart. Pipes and devices are not read, which might never end."""
        leads_to = f"{os.readlink(file)}: " if file.is_symlink() else ""
        try:
            status = file.stat()
        except FileNotFoundError:
            if leads_to:
                return leads_to
            raise
        key = (str(file), status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        if not stat.S_ISREG(status.st_mode):
            return f"{leads_to}{stat.S_IFMT(status.st_mode)}"
        if status.st_size > LARGEST:
            return f"{leads_to}{key}"
        if key not in self._digests:
            if len(self._digests) > 4 * MOST_FILES:
                self._digests.clear()
            self._digests[key] = hashlib.sha256(file.read_bytes()).hexdigest()
        return f"{leads_to}{self._digests[key]}"


def changed(before: Contents, after: Contents) -> list[str]:
    """The files that are new, gone or different."""
    return sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))


def _named(workspace: Path, parts: CheckParts) -> Iterator[str]:
    """The files that the command names, wherever they are in the workspace, relative to it."""
    for word in sorted(parts.files):
        path = os.path.relpath(workspace / word, workspace)
        if path.startswith(".."):
            continue
        if (workspace / path).is_dir():
            yield from (os.path.normpath(f"{path}/{name}") for name in sorted(parts.recipes))
        else:
            yield path


def _paths(workspace: Path, parts: CheckParts) -> Iterator[str]:
    """The files below a folder that the parts have, relative to it."""
    visited = 0
    for folder, folders, names in os.walk(workspace):
        folders[:] = sorted(
            name for name in folders if not name.startswith(".") and name.lower() not in _LEFT_OUT
        )
        visited += len(folders) + len(names)
        below = os.path.relpath(folder, workspace)
        for name in sorted(names):
            path = name if below == "." else f"{below}/{name}"
            if parts.has(path):
                yield path
        for name in folders:
            path = name if below == "." else f"{below}/{name}"
            if parts.has(f"{path}/_") and os.path.islink(os.path.join(folder, name)):
                yield path
        if visited > MOST_VISITED:
            return
