"""Imports a project's code from its source files only.

A project is trusted by the content of its files. Compiled files (`.pyc`) could silently replace its sources,
so they are neither read nor written in the folders registered here.
"""

from __future__ import annotations

import sys
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, FileFinder, SourceFileLoader
from pathlib import Path
from types import CodeType

_FOLDERS: set[Path] = set()
"""Folders of projects that code is imported from."""


class SourceLoader(SourceFileLoader):
    """Loads a Python file from its text and ignores compiled files."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        code: CodeType = self.source_to_code(self.get_data(path), path)
        return code


def import_from_source(folder: Path) -> None:
    """Import modules in a folder, and packages below it, from their source files only."""
    folder = folder.resolve()
    if folder in _FOLDERS:
        return
    if not _FOLDERS:
        sys.path_hooks.insert(0, _finder)
    _FOLDERS.add(folder)
    for place in [place for place in sys.path_importer_cache if Path(place).resolve() == folder]:
        del sys.path_importer_cache[place]


def _finder(place: str) -> FileFinder:
    """A path hook: finds modules for folders of projects, and leaves others to Python."""
    folder = Path(place or ".").resolve()
    # Packages installed into an environment inside a project are not part of the project.
    roots = {Path(entry or ".").resolve() for entry in sys.path} | _FOLDERS
    nearest = next((entry for entry in (folder, *folder.parents) if entry in roots), None)
    if nearest not in _FOLDERS:
        raise ImportError(f"{place} is not a folder of a project")
    return FileFinder(str(folder), (ExtensionFileLoader, EXTENSION_SUFFIXES), (SourceLoader, [".py"]))
