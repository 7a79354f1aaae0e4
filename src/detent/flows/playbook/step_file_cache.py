"""Step files in memory: each is read once per process, whoever asks, however many runs there are."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from detent.authoring.problem import DocumentError, Place, Problem
from detent.flows.playbook.folder import PlaybookFolder
from detent.flows.playbook.instruction import InstructionFile, folded, short_name
from detent.flows.playbook.reading import Read, read_instruction
from detent.kernel.errors import nearest

_cache: dict[Path, Read] = {}
_lock = threading.Lock()


def read_cached(path: Path) -> Read | None:
    """What reading a file gave, the first time anybody asked; None when it is not there."""
    key = path.resolve()
    found = _cache.get(key)
    if found is not None:
        return found
    with _lock:  # files are small, and read once
        found = _cache.get(key)
        if found is None:
            try:
                raw = key.read_bytes()
            except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
                return None
            found = _cache[key] = read_instruction(raw, key)
    return found


def load_instruction_cached(path: str | Path) -> InstructionFile:
    """A step file, read once per process; `DocumentError` tells everything wrong with it."""
    return _usable(Path(path), Path(path).as_posix())


def clear_instruction_cache() -> None:
    """Forget every file, so that the next look reads it again."""
    with _lock:
        _cache.clear()


def _usable(path: Path, shown: str) -> InstructionFile:
    read = read_cached(path)
    if read is None:
        raise DocumentError("The playbook", [Problem("P01", "there is no such file.", Place(shown, 1))])
    errors = [problem for problem in read.shown(shown).problems if problem.severity == "error"]
    if errors or read.instruction is None:
        raise DocumentError(shown, errors)
    return read.instruction


class InstructionLoader:
    """The step files of a playbook, overlays laid over it."""

    def __init__(
        self, folder: str | Path | PlaybookFolder, overlays: Sequence[str | Path | PlaybookFolder] = ()
    ) -> None:
        self.folder = folder if isinstance(folder, PlaybookFolder) else PlaybookFolder.at(folder)
        self.overlays = tuple(
            one if isinstance(one, PlaybookFolder) else PlaybookFolder.at(one) for one in overlays
        )

    @property
    def folders(self) -> tuple[PlaybookFolder, ...]:
        """The folder and its overlays, the strongest last."""
        return (self.folder, *self.overlays)

    def files(self) -> dict[str, Path]:
        """Step files by id, each from the strongest folder that has it."""
        found: dict[str, Path] = {}
        for folder in self.folders:
            for path in folder.step_files():
                found[path.stem] = path
        return dict(sorted(found.items()))

    def shown(self, path: Path) -> str:
        """A file as people are told about it."""
        for folder in reversed(self.folders):
            if path.is_relative_to(folder.root) or path.is_relative_to(folder.steps):
                return folder.shown(path)
        return path.as_posix()

    def load_step_instruction(self, step_name: str) -> InstructionFile:
        """The step of a name or alias; `DocumentError` when there is none or it cannot be used."""
        files = self.files()
        path = files.get(step_name) or self._named(step_name, files)
        if path is None:
            wanted = self.folder.shown(self.folder.steps / f"{step_name}.md")
            there = ", ".join(files) or "none"
            message = f"there is no step '{step_name}'.{nearest(step_name, files)} Steps: {there}."
            raise DocumentError("The playbook", [Problem("P01", message, Place(wanted, 1))])
        return _usable(path, self.shown(path))

    def _named(self, name: str, files: Mapping[str, Path]) -> Path | None:
        """The file that goes by an alias. Other files are looked into only when no file's name will do."""
        wanted = folded(name)
        for stem, path in files.items():
            if wanted in (folded(stem), folded(short_name(stem))):
                return path
        for path in files.values():
            read = read_cached(path)
            names = read.instruction.names if read is not None and read.instruction is not None else ()
            if wanted in (folded(one) for one in names):
                return path
        return None
