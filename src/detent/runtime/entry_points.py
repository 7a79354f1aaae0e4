"""Entry points of installed packages, read again only after an installation, and the error for an entry point
or plugin that cannot be loaded.

`importlib.metadata` takes longer to import than a listing of commands takes to print, so its lookup is done
here for packages in folders. Where packages are kept or found in other ways, it is asked.
"""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache, reduce
from importlib import import_module
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from detent.kernel.errors import ConfigurationError

Places = tuple[tuple[str, int | None], ...]
"""The import path, and when each of its folders was changed."""


@dataclass(frozen=True, slots=True)
class EntryPoint:
    """An object that an installed package offers under a name."""

    name: str
    value: str
    """Where it is: `package.module:attribute`."""
    group: str
    info: Path | None = field(default=None, compare=False)
    """The folder that describes the package."""

    @property
    def package(self) -> str | None:
        """Name of the package."""
        if self.info is None:
            return None
        from importlib.metadata import Distribution

        return Distribution.at(self.info).metadata["Name"]

    def load(self) -> Any:
        """Import the object."""
        module, _, path = self.value.partition("[")[0].partition(":")
        return reduce(getattr, filter(None, path.strip().split(".")), import_module(module.strip()))


def offered(group: str, name: str | None = None) -> list[EntryPoint]:
    """The entry points of a group, or those of one name in it.

    Finding them means reading files of every installed package, so the result is cached until a folder on
    the import path changes.
    """
    places = tuple((place, _changed(place)) for place in sys.path)
    return [point for point in _of_group(group, places) if name is None or point.name == name]


def _changed(place: str) -> int | None:
    try:
        return os.stat(place or os.curdir).st_mtime_ns
    except OSError:
        return None


@lru_cache(maxsize=32)
def _of_group(group: str, places: Places) -> tuple[EntryPoint, ...]:
    if (points := _in_folders(places)) is not None:
        return tuple(point for point in points if point.group == group)
    from importlib.metadata import entry_points

    return tuple(EntryPoint(point.name, point.value, group) for point in entry_points(group=group))


@lru_cache(maxsize=1)
def _in_folders(places: Places) -> tuple[EntryPoint, ...] | None:
    """Every entry point; None where not all packages are found in folders."""
    if any(finder is not PathFinder and hasattr(finder, "find_distributions") for finder in sys.meta_path):
        return None
    try:
        return tuple(point for info in _infos(places) for point in _points(info))
    except NotADirectoryError:  # an archive
        return None


def _infos(places: Places) -> Iterator[Path]:
    """The folders that describe packages: of several with the same name, the first."""
    known: set[str] = set()
    for place, _ in places:
        if place.endswith(".egg"):
            raise NotADirectoryError(place)
        try:
            entries = os.listdir(place or os.curdir)
        except (FileNotFoundError, PermissionError):
            continue
        for entry in entries:
            if entry.endswith((".dist-info", ".egg-info")):
                package = re.sub(r"[-_.]+", "_", entry.rpartition(".")[0].partition("-")[0]).lower()
                if package not in known:
                    known.add(package)
                    yield Path(place, entry)


def _points(info: Path) -> Iterator[EntryPoint]:
    try:
        text = (info / "entry_points.txt").read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return
    group = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            group = line.strip("[]")
        elif "=" in line and not line.startswith("#"):
            name, value = map(str.strip, line.split("=", 1))
            yield EntryPoint(name, value, group, info)


class PluginError(ConfigurationError):
    """A plugin or entry point cannot be loaded."""

    def __init__(self, place: str, error: BaseException, file: str | None, line: int | None) -> None:
        self.place = place
        self.file = file
        self.line = line
        self.error = error
        cause = str(error) if isinstance(error, ConfigurationError) else _error_line(error)
        where = f" ({file}, line {line})" if file and line else ""
        super().__init__(f"{place} cannot be loaded{where}: {cause}")


def shown_point(point: EntryPoint) -> str:
    """An entry point for people: its value, and the package that offers it."""
    package = point.package
    return point.value if package is None else f"{point.value} of {package}"


def _error_line(error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error.msg}"
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def plugin_error(place: str, error: BaseException, file: Path | None = None) -> PluginError:
    """The error with its line: the deepest line in the plugin itself, else the deepest of all."""
    if isinstance(error, SyntaxError) and error.filename:
        return PluginError(place, error, _short(error.filename), error.lineno)
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<frozen ") and Path(frame.filename).parent != Path(__file__).parent
    ]
    own = [frame for frame in frames if file is not None and Path(frame.filename) == file]
    if not frames:
        return PluginError(place, error, None, None)
    chosen = (own or frames)[-1]
    return PluginError(place, error, _short(chosen.filename), chosen.lineno)


def _short(filename: str) -> str:
    path = Path(filename)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else filename
