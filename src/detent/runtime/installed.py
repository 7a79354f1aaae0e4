"""What installed packages offer through entry points: read once, and again when something was installed."""

from __future__ import annotations

import os
import sys
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any


def offered(group: str, name: str | None = None) -> list[EntryPoint]:
    """What is offered under a group, or under one name of it.

    To find it, the files of every package there is must be read; what was found is kept for as long as none
    of the folders that hold packages changes.
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
