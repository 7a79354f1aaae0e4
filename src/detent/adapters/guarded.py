"""Files that configure or run Detent itself and that no agent may write, however their path is spelt."""

from __future__ import annotations

import contextlib
import hashlib
import os
import unicodedata
from collections.abc import Callable, Iterable
from pathlib import Path

COMPILED = ("__pycache__", (".pyc", ".pyo", ".so", ".pyd"))
"""Python executes these instead of a source."""

Folded = tuple[str, ...]


class Guarded:
    """Files and folders that only a person may change.

    `places` is called for each check, as files loaded while a command runs count, too. `told` is called with
    the files that a program changed nevertheless.
    """

    def __init__(
        self, places: Callable[[], Iterable[Path]], told: Callable[[str, list[str]], None] | None = None
    ) -> None:
        self._places = places
        self._on_change = told

    def __contains__(self, path: object) -> bool:
        """Whether a path, with links followed, is in one of these places or a hard link to a file in one."""
        assert isinstance(path, Path)
        parts = folded(path)
        if COMPILED[0] in parts or parts[-1].endswith(COMPILED[1]):
            return True
        places = list(self._places())
        if any(parts[: len(place)] == place for place in map(folded, places)):
            return True
        return _is_linked(path) and any(_same(path, place) for place in places)

    def digests(self) -> dict[Path, str]:
        """The hashes of the files now."""
        hashes: dict[Path, str] = {}
        for place in self._places():
            for file in _files(place):
                with contextlib.suppress(OSError):
                    hashes[file] = hashlib.sha256(file.read_bytes()).hexdigest()
        return hashes

    def compare(self, before: dict[Path, str], program: str) -> list[str]:
        """Names of the files that a program has changed since; they are also reported to the callback."""
        after = self.digests()
        changed = sorted(
            file.name for file in before.keys() | after.keys() if before.get(file) != after.get(file)
        )
        if changed and self._on_change is not None:
            self._on_change(program, changed)
        return changed


NOTHING = Guarded(tuple)


def folded(path: Path) -> Folded:
    """A path as a file system may compare it: without regard to case, composed or invisible characters, and
    dots at the end of a name."""
    return tuple(_folded(part) for part in path.parts)


def _folded(part: str) -> str:
    visible = "".join(char for char in part if unicodedata.category(char) != "Cf")
    return unicodedata.normalize("NFKC", visible).casefold().rstrip(". ") or part


def _is_linked(path: Path) -> bool:
    try:
        return path.stat().st_nlink > 1 and not path.is_dir()
    except OSError:
        return False


def _same(path: Path, place: Path) -> bool:
    return any(_same_file(path, file) for file in _files(place))


def _same_file(path: Path, file: Path) -> bool:
    try:
        return os.path.samefile(path, file)
    except OSError:
        return False


def _files(place: Path) -> list[Path]:
    if place.is_file():
        return [place]
    return [Path(folder) / name for folder, _, names in os.walk(place) for name in names]
