"""Entry points of installed packages, read again only after an installation, and the error for an entry point
or plugin that cannot be loaded."""

from __future__ import annotations

import os
import sys
import traceback
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from detent.kernel.errors import ConfigurationError


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
def _of_group(group: str, places: tuple[Any, ...]) -> tuple[EntryPoint, ...]:
    return tuple(_everything(places).select(group=group))


@lru_cache(maxsize=1)
def _everything(places: tuple[Any, ...]) -> Any:
    return entry_points()


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
    package = f" of {point.dist.name}" if point.dist is not None else ""
    return f"{point.value}{package}"


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
