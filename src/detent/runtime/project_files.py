"""The files of a project that configure Detent or are executed by it without being named on a command line.

These are the settings file, the definitions of every kind with the files they name, the plugins with every
module and whole package they import from the project, and the files that settings name: prompts and programs.
A project is trusted by the content of these files, and no agent may write them.
"""

from __future__ import annotations

import ast
import hashlib
import os
import shlex
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.machinery import EXTENSION_SUFFIXES
from itertools import pairwise
from pathlib import Path
from typing import Any

from detent.authoring.document import file_bytes
from detent.runtime.plugs import plugs
from detent.runtime.settings import FILES, Settings, config_home

CASES = "evals"
"""Folder of a project's eval cases unless `eval.test_suite_path` names another."""
MOST_FILES = 20_000
"""Most files below one of the folders; a project with more cannot be trusted by its content."""
LONGEST_NAME = 1000
"""Longest word of a command that may be a path, in characters."""
CODE = (".py", ".so", ".pyd")
"""Files that Python imports. Compiled files (`.pyc`) of a project are never loaded."""
_PASSED_OVER = ("__pycache__", ".git")


@dataclass(frozen=True)
class Imports:
    """The modules of a project that its own code imports."""

    files: tuple[Path, ...]
    absent: tuple[Path, ...]
    """Paths at which a new module would be found and executed."""
    packages: tuple[Path, ...] = ()
    """Folders of packages; all code in them counts."""


class ProjectFiles:
    """The files that configure one project."""

    def __init__(self, settings: Settings, environ: Mapping[str, str] | None = None) -> None:
        self._settings = settings
        self._environ = environ
        self.root = (settings.file.parent if settings.file is not None else settings.folder).resolve()
        self._here = settings.folder.resolve()
        self.crowded: list[Path] = []
        """Folders with more files than `files` reads."""

    def again(self) -> ProjectFiles:
        """The same project, to be read anew."""
        return ProjectFiles(self._settings, self._environ)

    # -- what there is --------------------------------------------------------------------------------------

    @cached_property
    def files(self) -> dict[str, Path]:
        """Every such file, by its name relative to the project's folder; files elsewhere by their path."""
        paths = [*self._settings_files(), *self._in_folders, *self.imports.files, *self.named]
        paths += self._plug_files
        return {self.shown(file): file for file in sorted(dict.fromkeys(paths))}

    @property
    def nothing(self) -> bool:
        """Whether no file here runs or configures anything unless a person names it."""
        passive = {resolved(file) for plug in plugs() for file in plug.passive(self.root)}
        return all(file in passive for file in self.files.values())

    @cached_property
    def digests(self) -> dict[str, str]:
        """SHA-256 of each of these files."""
        return {name: _digest(file) for name, file in self.files.items()}

    @property
    def plugins(self) -> list[str]:
        """Plugins that the project file names."""
        if not self._settings.of_project("plugins"):
            return []
        names = self._settings.get("plugins", default=[])
        return [names] if isinstance(names, str) else [str(name) for name in names]

    @cached_property
    def imports(self) -> Imports:
        """The project's plugins and other Python code, and what they import from the project."""
        base = self._settings.base("plugins")
        starts = [
            file for file in (*self.named, *self._in_folders, *self._plug_files) if file.suffix == ".py"
        ]
        modules: list[tuple[str, Path]] = []
        for name in self.plugins:
            if name.endswith(".py") or "/" in name or "\\" in name:
                place = resolved(base / name)
                starts += [place] if place.is_file() else self._below(place)
            else:
                modules.append((name, base))
        for command in self.programs.values():
            modules += [(module, self._here) for flag, module in pairwise(command) if flag == "-m"]
        return imported_files(starts, [base, self._here, self.root], modules, self.crowded)

    @cached_property
    def named(self) -> tuple[Path, ...]:
        """Files that settings name and that are read or executed: prompts and programs."""
        paths: list[Path] = []
        for heading in ("steps", "agents"):
            for name, entry in self._mapping(heading).items():
                if isinstance(entry, Mapping) and isinstance(entry.get("prompt_file"), str):
                    paths.append(self._settings.base(heading, name) / entry["prompt_file"])
        for name, command in self.programs.items():
            base = self._settings.base(*name.split("/")[0].split("."))
            paths += [base / word for word in command if len(word) < LONGEST_NAME and "\0" not in word]
        inside = (resolved(path) for path in paths)
        return tuple(path for path in inside if path.is_relative_to(self.root) and path.is_file())

    @cached_property
    def programs(self) -> dict[str, tuple[str, ...]]:
        """Commands that the project file has Detent start, by the setting that names each."""
        commands: dict[str, tuple[str, ...]] = {}
        for name, entry in self._mapping("mcp").items():
            if isinstance(entry, Mapping) and self._settings.of_project("mcp", str(name)):
                command = _words(entry.get("command"))
                commands |= {f"mcp.{name}": command} if command else {}
        for plug in plugs():
            for place, declared in plug.programs(self._settings).items():
                commands |= {place: command} if (command := _words(declared)) else {}
        return commands

    @property
    def guarded(self) -> tuple[Path, ...]:
        """Files and folders that no agent may write: all of these files, the paths at which new ones would be
        found, and the eval cases."""
        settings = self._settings
        suite = settings.get("eval", "test_suite_path")
        cases = settings.base("eval", "test_suite_path") / (suite if isinstance(suite, str) else CASES)
        places = [place / name for place in (self._here, self.root) for name in (*FILES, *self._folders)]
        home = config_home(self._environ)
        guarded = [*places, cases, *self.files.values(), *self.imports.absent, *self.imports.packages]
        guarded += [*self._plug_paths, *([home] if home else [])]
        # The links themselves, too: a link may be replaced.
        return tuple(dict.fromkeys(path for place in guarded for path in (place, resolved(place))))

    def shown(self, file: Path) -> str:
        """A file's name relative to the project's folder; its path if it lies elsewhere."""
        return file.relative_to(self.root).as_posix() if file.is_relative_to(self.root) else str(file)

    # -- finding --------------------------------------------------------------------------------------------

    def _settings_files(self) -> list[Path]:
        return [self._settings.file.resolve()] if self._settings.file is not None else []

    @cached_property
    def _in_folders(self) -> list[Path]:
        return [file for name in self._folders for file in self._below(self.root / name)]

    @property
    def _folders(self) -> list[str]:
        """Folders of a project in which every file counts."""
        return [name for plug in plugs() for name in plug.folders()]

    @cached_property
    def _plug_paths(self) -> list[Path]:
        """Files and folders that kinds and applications declare, whether or not they exist."""
        return [resolved(path) for plug in plugs() for path in plug.files(self._settings, self.root)]

    @cached_property
    def _plug_files(self) -> list[Path]:
        """The existing files among `_plug_paths`, folders expanded."""
        files = [
            file for path in self._plug_paths for file in (self._below(path) if path.is_dir() else [path])
        ]
        return [file for file in files if file.is_file()]

    def _below(self, folder: Path) -> list[Path]:
        return files_below(folder, self.crowded)

    def _mapping(self, heading: str) -> Mapping[str, Any]:
        section = self._settings.get(heading, default={})
        return section if isinstance(section, Mapping) else {}


def imported_files(
    starts: Iterable[Path],
    roots: Iterable[Path],
    modules: Iterable[tuple[str, Path]] = (),
    crowded: list[Path] | None = None,
) -> Imports:
    """Python files and modules, and the modules they import from `roots` or beside them, read statically.

    Of a package, every file of code counts. `modules` are names with the folder to search; packages that are
    too large to be read are added to `crowded`.
    """
    visited: dict[Path, None] = {}
    absent: dict[Path, None] = {}
    packages: dict[Path, None] = {}
    search_roots = [resolved(root) for root in roots]
    left = [resolved(path) for path in starts]

    def look(name: str, folders: Iterable[Path]) -> None:
        for folder in folders:
            files, package = _module(name, folder, crowded)
            left.extend(files)
            absent.update(dict.fromkeys(_candidates(name, folder)))
            if package is not None:
                packages[package] = None

    for name, folder in modules:
        look(name, [resolved(folder)])
    while left:
        file = left.pop()
        if file in visited:
            continue
        visited[file] = None
        if file.suffix != ".py":
            continue
        for name, level in _imports_of(file):
            if level:
                look(name, file.parents[level - 1 : level])
            elif name not in sys.stdlib_module_names:
                look(name, dict.fromkeys((file.parent, *search_roots)))
    return Imports(tuple(visited), tuple(absent), tuple(packages))


def _imports_of(file: Path) -> set[tuple[str, int]]:
    """The top-level names a Python file imports, each with its relative level; 0 for an absolute import."""
    try:
        tree = ast.parse(file_bytes(file))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    names: set[tuple[str, int]] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {(alias.name, 0) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {(name, node.level) for name in ([node.module] if node.module else _names(node))}
    return {(name.partition(".")[0], level) for name, level in names}


def _names(node: ast.ImportFrom) -> list[str]:
    return [alias.name for alias in node.names]


def _module(name: str, folder: Path, crowded: list[Path] | None) -> tuple[list[Path], Path | None]:
    """Every file that importing a module from a folder may execute, and the folder of a package.

    A package takes precedence over a module of its name; both count, because either may be removed.
    """
    first = name.partition(".")[0]
    if not first.isidentifier():
        return [], None
    package = resolved(folder / first)
    files = [resolved(path) for path in _candidates(first, folder) if path.is_file()]
    if not package.is_dir():
        return files, None
    code = [file for file in files_below(package, crowded) if file.suffix in CODE]
    return [*files, *code], package if code else None


def _candidates(name: str, folder: Path) -> list[Path]:
    """The paths at which Python looks for a module in a folder."""
    first = name.partition(".")[0]
    if not first.isidentifier():
        return []
    return [folder / first, *(folder / f"{first}{suffix}" for suffix in (".py", *EXTENSION_SUFFIXES))]


def files_below(folder: Path, crowded: list[Path] | None = None) -> list[Path]:
    """The files in a folder and below it; links to folders are followed.

    Beyond `MOST_FILES` the list is incomplete, and the folder is added to `crowded`.
    """
    files: list[Path] = []
    seen: set[Path] = set()
    for here, folders, names in os.walk(folder, followlinks=True):
        place = resolved(Path(here))
        if place in seen:
            folders.clear()
            continue
        seen.add(place)
        folders[:] = sorted(name for name in folders if name not in _PASSED_OVER)
        files += [resolved(Path(here) / name) for name in sorted(names)]
        if len(files) > MOST_FILES or len(seen) > MOST_FILES:
            if crowded is not None:
                crowded.append(folder)
            break
    return files


def resolved(path: Path) -> Path:
    """A path with its links followed, as far as possible."""
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError):
        return path.absolute()


def _digest(file: Path) -> str:
    try:
        if not file.is_file():  # reading a pipe or a device may never end
            return "unreadable"
        with file.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError:
        return "unreadable"


def _words(command: Any) -> tuple[str, ...]:
    if isinstance(command, str):
        try:
            return tuple(shlex.split(command))
        except ValueError:  # a quotation mark that is not closed; nothing runs
            return ()
    return tuple(str(word) for word in command) if isinstance(command, list) else ()
