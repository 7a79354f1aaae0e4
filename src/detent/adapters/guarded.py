"""Files that configure or run Detent itself, which no agent may write: told apart however a path is spelt."""

from __future__ import annotations

import contextlib
import hashlib
import os
import unicodedata
from collections.abc import Callable, Iterable
from pathlib import Path

COMPILED = ("__pycache__", (".pyc", ".pyo", ".so", ".pyd"))
"""Python executes these in place of a source."""

Folded = tuple[str, ...]


class Guarded:
    """Files and folders that only a person may change.

    `places` gives them, again for each question: what is loaded while a command runs counts, too. `told`
    hears of those that a program changed all the same.
    """

    def __init__(
        self, places: Callable[[], Iterable[Path]], told: Callable[[str, list[str]], None] | None = None
    ) -> None:
        self._places = places
        self._told = told

    def __contains__(self, path: object) -> bool:
        """Whether a path, links followed, is one of these places, lies in one, or is another name of one."""
        assert isinstance(path, Path)
        here = folded(path)
        if COMPILED[0] in here or here[-1].endswith(COMPILED[1]):
            return True
        places = list(self._places())
        if any(here[: len(place)] == place for place in map(folded, places)):
            return True
        return _is_linked(path) and any(_same(path, place) for place in places)

    def digests(self) -> dict[Path, str]:
        """What the files hold now."""
        found: dict[Path, str] = {}
        for place in self._places():
            for file in _files(place):
                with contextlib.suppress(OSError):
                    found[file] = hashlib.sha256(file.read_bytes()).hexdigest()
        return found

    def compare(self, before: dict[Path, str], program: str) -> list[str]:
        """Names of the files that a program has changed since; whoever has to know is told."""
        after = self.digests()
        changed = sorted(
            file.name for file in before.keys() | after.keys() if before.get(file) != after.get(file)
        )
        if changed and self._told is not None:
            self._told(program, changed)
        return changed


NOTHING = Guarded(tuple)


def folded(path: Path) -> Folded:
    """A path as a file system may take it: upper and lower case, composed characters, invisible ones and dots
    at the end make no difference."""
    return tuple(_folded(part) for part in path.parts)


def _folded(part: str) -> str:
    shown = "".join(char for char in part if unicodedata.category(char) != "Cf")
    return unicodedata.normalize("NFKC", shown).casefold().rstrip(". ") or part


def _is_linked(path: Path) -> bool:
    try:
        return path.stat().st_nlink > 1 and not path.is_dir()
    except OSError:
        return False


def _same(path: Path, place: Path) -> bool:
    return any(_one_file(path, file) for file in _files(place))


def _one_file(path: Path, file: Path) -> bool:
    try:
        return os.path.samefile(path, file)
    except OSError:
        return False


def _files(place: Path) -> list[Path]:
    if place.is_file():
        return [place]
    return [Path(here) / name for here, _, names in os.walk(place) for name in names]
