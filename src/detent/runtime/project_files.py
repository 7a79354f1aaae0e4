"""The files of a project that configure Detent or are executed by it without being named on a command line.

These are the settings file, the workflow files, playbooks and instructions, the plugins with every module
they import from the project, and the files that settings name: prompts, programs of MCP servers, programs of
validation stages. A project is trusted by the content of these files, and no agent may write them.
"""

from __future__ import annotations

import ast
import hashlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from detent.runtime.settings import FILES, Settings, config_home

FOLDERS = (".detent/workflows", "playbooks", "instructions")
"""Folders of a project whose every file counts."""
CASES = "evals"
"""Where a project keeps its eval cases unless `eval.test_suite_path` says otherwise."""
MANIFEST = "playbook.yaml"
"""In a folder that is itself a playbook."""
MOST_FILES = 20_000
"""Files below one of the folders that are read."""
_PASSED_OVER = ("__pycache__", ".git")


@dataclass(frozen=True)
class Imports:
    """The modules of a project that code of it imports."""

    files: tuple[Path, ...]
    absent: tuple[Path, ...]
    """Paths at which a module would be found and executed if somebody wrote one there."""


class ProjectFiles:
    """What configures one project."""

    def __init__(self, settings: Settings, environ: Mapping[str, str] | None = None) -> None:
        self._settings = settings
        self._environ = environ
        self.root = (settings.file.parent if settings.file is not None else settings.folder).resolve()
        self._here = settings.folder.resolve()

    def again(self) -> ProjectFiles:
        """The same project, to be read anew."""
        return ProjectFiles(self._settings, self._environ)

    # -- what there is --------------------------------------------------------------------------------------

    @cached_property
    def files(self) -> dict[str, Path]:
        """Every file that counts, by its name from the project's folder; files elsewhere by their path."""
        found = [*self._settings_files(), *self._in_folders(), *self.imports.files, *self.named]
        found += self._playbook
        return {self.shown(file): file for file in sorted(dict.fromkeys(found))}

    @property
    def nothing(self) -> bool:
        """Nothing here runs or configures anything unless a person names it; a playbook without code, too."""
        texts = set(self._playbook) if not any(file.suffix == ".py" for file in self._playbook) else set()
        return all(file in texts for file in self.files.values())

    @cached_property
    def digests(self) -> dict[str, str]:
        """SHA-256 of each of these files."""
        return {name: _digest(file) for name, file in self.files.items()}

    @property
    def plugins(self) -> list[str]:
        """Plugins that the project file names."""
        if not self._settings.of_project("plugins"):
            return []
        said = self._settings.get("plugins", default=[])
        return [said] if isinstance(said, str) else [str(name) for name in said]

    @cached_property
    def imports(self) -> Imports:
        """The project's plugins, and what they import from the project."""
        base = self._settings.base("plugins")
        starts: list[Path] = []
        absent: list[Path] = []
        for name in self.plugins:
            if name.endswith(".py") or "/" in name or "\\" in name:
                place = _resolved(base / name)
                starts += [place] if place.is_file() else files_below(place)
            else:
                there = _module(name, [base])
                starts += there
                absent += [] if there else _candidates(name, [base])
        found = imported_files(starts, [base, self._here])
        return Imports(found.files, (*found.absent, *absent))

    @cached_property
    def named(self) -> tuple[Path, ...]:
        """Files that settings name and that are read or executed: prompts and programs."""
        found: list[Path] = []
        for heading in ("steps", "agents"):
            for name, entry in self._mapping(heading).items():
                if isinstance(entry, Mapping) and isinstance(entry.get("prompt_file"), str):
                    found.append(self._settings.base(heading, name) / entry["prompt_file"])
        for name, command in self.programs.items():
            base = self._settings.base(*name.split("/")[0].split("."))
            found += [base / word for word in command if len(word) < 1000 and "\0" not in word]
        said = self._mapping("playbook")
        for key in ("steps_dir", "templates_dir", "scenarios_dir"):
            if isinstance(said.get(key), str):
                found += files_below(self.root / said[key])
        overlays = said.get("overlays")
        for folder in overlays if isinstance(overlays, list) else ():
            found += files_below(self.root / str(folder))
        inside = (_resolved(path) for path in found)
        return tuple(path for path in inside if path.is_relative_to(self.root) and path.is_file())

    @cached_property
    def programs(self) -> dict[str, tuple[str, ...]]:
        """Commands that the project file has Detent start, by the setting that names each."""
        found: dict[str, tuple[str, ...]] = {}
        for name, entry in self._mapping("mcp").items():
            if isinstance(entry, Mapping) and self._settings.of_project("mcp", str(name)):
                command = _words(entry.get("command"))
                found |= {f"mcp.{name}": command} if command else {}
        stages = self._mapping("validation").get("stages")
        for name, entry in stages.items() if isinstance(stages, Mapping) else ():
            for key in ("command", "fix_command") if isinstance(entry, Mapping) else ():
                if command := _words(entry.get(key)):
                    found[f"validation.stages.{name}.{key}"] = command
        return found

    @property
    def guarded(self) -> tuple[Path, ...]:
        """Files and folders that no agent may write: all of these, where new ones would be looked for, and
        the cases that evals are played from."""
        settings = self._settings
        suite = settings.get("eval", "test_suite_path")
        cases = settings.base("eval", "test_suite_path") / (suite if isinstance(suite, str) else CASES)
        places = [self._here / name for name in (*FILES, *FOLDERS)]
        places += [self.root / name for name in (*FILES, *FOLDERS)]
        home = config_home(self._environ)
        found = [*places, cases, *self.files.values(), *self.imports.absent, *([home] if home else [])]
        # The names themselves, too: a link may be replaced.
        return tuple(dict.fromkeys(one for place in found for one in (place, _resolved(place))))

    def shown(self, file: Path) -> str:
        """A file's name from the project's folder; its path where it is not in there."""
        return file.relative_to(self.root).as_posix() if file.is_relative_to(self.root) else str(file)

    # -- finding --------------------------------------------------------------------------------------------

    def _settings_files(self) -> list[Path]:
        return [self._settings.file.resolve()] if self._settings.file is not None else []

    def _in_folders(self) -> list[Path]:
        return [file for name in FOLDERS for file in files_below(self.root / name)]

    @cached_property
    def _playbook(self) -> list[Path]:
        """The files of the project's folder where it is itself a playbook."""
        if not (self.root / MANIFEST).is_file():
            return []
        texts = [file for name in ("steps", "templates") for file in files_below(self.root / name)]
        code = imported_files(sorted(self.root.glob("*.py")), [self.root]).files
        return [_resolved(self.root / MANIFEST), *texts, *code]

    def _mapping(self, heading: str) -> Mapping[str, Any]:
        said = self._settings.get(heading, default={})
        return said if isinstance(said, Mapping) else {}


def imported_files(starts: Iterable[Path], roots: Iterable[Path]) -> Imports:
    """Python files, and the files below `roots` or beside them that they import, as far as text tells."""
    found: dict[Path, None] = {}
    absent: dict[Path, None] = {}
    left = [_resolved(path) for path in starts]
    given = [_resolved(root) for root in roots]
    while left:
        file = left.pop()
        if file in found:
            continue
        found[file] = None
        if file.suffix != ".py":
            continue
        for name in _imports_of(file):
            if name.partition(".")[0] in sys.stdlib_module_names:
                continue
            folders = list(dict.fromkeys((file.parent, *given)))
            there = _module(name, folders)
            left += there
            absent |= {} if there else dict.fromkeys(_candidates(name, folders))
    return Imports(tuple(found), tuple(absent))


def _imports_of(file: Path) -> Iterator[str]:
    """Names a Python file imports; relative ones as they are found from its own folder."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level > 1:
                continue  # of a package above, whose own files import it by its whole name
            if node.module:
                yield node.module
            yield from (f"{node.module}.{one.name}" if node.module else one.name for one in node.names)


def _module(name: str, folders: Iterable[Path]) -> list[Path]:
    """The files that importing a module from one of these folders executes; none when it is not there."""
    parts = name.split(".")
    if not all(part.isidentifier() for part in parts):
        return []
    for folder in folders:
        found: list[Path] = []
        place = folder
        for part in parts:
            place = place / part
            if place.with_suffix(".py").is_file():
                found.append(_resolved(place.with_suffix(".py")))
                break
            if not place.is_dir():
                break
            if (place / "__init__.py").is_file():
                found.append(_resolved(place / "__init__.py"))
        if found:
            return found
    return []


def _candidates(name: str, folders: Iterable[Path]) -> list[Path]:
    """Where a module would be found, were it there."""
    first = name.partition(".")[0]
    if not first.isidentifier():
        return []
    return [
        place
        for folder in folders
        for place in (folder / f"{first}.py", folder / first)
        if not place.exists()
    ]


def files_below(folder: Path) -> list[Path]:
    found: list[Path] = []
    for here, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in _PASSED_OVER)
        found += [_resolved(Path(here) / name) for name in sorted(names)]
        if len(found) > MOST_FILES:
            break
    return found


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError):
        return path.absolute()


def _digest(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError:
        return "unreadable"


def _words(command: Any) -> tuple[str, ...]:
    if isinstance(command, str):
        return tuple(command.split())
    return tuple(str(word) for word in command) if isinstance(command, list) else ()
