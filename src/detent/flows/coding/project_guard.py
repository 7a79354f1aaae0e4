"""The files of a workspace that belong to Detent: what configures it, and where it keeps its runs.

A workspace is usually the project that Detent runs in, but may also lie in one or hold some.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from detent.adapters.guarded import Guarded, folded
from detent.adapters.project.sandbox import OWN_FOLDER
from detent.kernel.errors import ConfigurationError
from detent.runtime.project_files import ProjectFiles
from detent.runtime.settings import FILES, Settings, SettingsError, read_settings
from detent.runtime.store_url import store_url

SESSIONS = "sessions"
"""Folder beside a store in which session files are."""
_MARKS = (FILES[0], OWN_FOLDER)
"""Names in a folder that show that it is a project."""
_CHOSEN, _USER = "DETENT_CONFIG", "DETENT_USER_CONFIG"


def is_settings_file(place: Path) -> bool:
    """Whether a file has the name of a project's settings: it makes a project of whatever folder it is in."""
    return folded(place)[-1] == FILES[0]


def guards(root: Path, place: Path) -> Iterator[Guarded]:
    """For each project that a file of a workspace may belong to, the files that configure it."""
    above = dict.fromkeys((*place.parents, *root.parents))
    marked = [folder for folder in above if any(os.path.lexists(folder / mark) for mark in _MARKS)]
    for folder in dict.fromkeys((root, *marked)):
        yield Guarded(partial(_configuring, folder))


def stores(root: Path) -> list[Path]:
    """Files and folders in which the project of a folder keeps runs and sessions, besides Detent's folder."""
    settings = _settings(root)
    url = store_url(settings)
    if "://" in url or url.startswith("memory:"):
        return []
    file = settings.base("store") / url.removeprefix("sqlite:").partition("?")[0]
    return [file, file.parent / SESSIONS]


def _configuring(folder: Path) -> Iterable[Path]:
    user = os.environ.get(_USER)
    own = [Path(user).expanduser().resolve()] if user else []
    return [*own, *ProjectFiles(_settings(folder)).guarded]


def _settings(folder: Path) -> Settings:
    """The settings of a folder, as far as they can be read."""
    plain = {name: value for name, value in os.environ.items() if name not in (_CHOSEN, _USER)}
    for environ in (os.environ, plain):
        try:
            return read_settings(folder=folder, environ=environ)
        except SettingsError as error:
            if error.settings is not None:
                return error.settings
        except ConfigurationError:  # a file that the environment names and that is not in this folder
            continue
    file = next((folder / name for name in FILES if (folder / name).is_file()), None)
    with contextlib.suppress(OSError):
        return Settings(folder, file)
    return Settings(folder)
