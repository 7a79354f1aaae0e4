"""Cache of step files: each is read once per process, shared by all runs."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from detent.authoring.document import file_bytes
from detent.authoring.problem import DocumentError, Place, Problem
from detent.flows.playbook.folder import PlaybookFolder
from detent.flows.playbook.instruction import InstructionFile, folded, short_name
from detent.flows.playbook.reading import Read, read_instruction
from detent.kernel.errors import nearest

_cache: dict[Path, Read] = {}
_lock = threading.Lock()


def read_cached(path: Path) -> Read | None:
    """The result of reading a file, cached after the first read; None if the file does not exist."""
    key = path.resolve()
    read = _cache.get(key)
    if read is not None:
        return read
    with _lock:  # files are small, and read once
        read = _cache.get(key)
        if read is None:
            try:
                raw = file_bytes(key)
            except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
                return None
            read = _cache[key] = read_instruction(raw, key)
    return read


def load_instruction_cached(path: str | Path) -> InstructionFile:
    """A step file, read once per process; `DocumentError` lists every problem."""
    return _usable(Path(path), Path(path).as_posix())


def clear_instruction_cache() -> None:
    """Empty the cache, so that files are read again."""
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
    """The step files of a playbook and its overlays."""

    def __init__(
        self, folder: str | Path | PlaybookFolder, overlays: Sequence[str | Path | PlaybookFolder] = ()
    ) -> None:
        self.folder = folder if isinstance(folder, PlaybookFolder) else PlaybookFolder.at(folder)
        self.overlays = tuple(
            overlay if isinstance(overlay, PlaybookFolder) else PlaybookFolder.at(overlay)
            for overlay in overlays
        )

    @property
    def folders(self) -> tuple[PlaybookFolder, ...]:
        """The folder and its overlays, the strongest last."""
        return (self.folder, *self.overlays)

    def files(self) -> dict[str, Path]:
        """Step files by id, each from the strongest folder that has it."""
        files: dict[str, Path] = {}
        for folder in self.folders:
            for path in folder.step_files():
                files[path.stem] = path
        return dict(sorted(files.items()))

    def rank(self, path: Path) -> int:
        """Which of the folders a file is in, the strongest last."""
        ranks = [
            rank
            for rank, folder in enumerate(self.folders)
            if path.is_relative_to(folder.root) or path.is_relative_to(folder.steps)
        ]
        return max(ranks, default=0)

    def shown(self, path: Path) -> str:
        """A file's path for display."""
        for folder in reversed(self.folders):
            if path.is_relative_to(folder.root) or path.is_relative_to(folder.steps):
                return folder.shown(path)
        return path.as_posix()

    def load_step_instruction(self, step_name: str) -> InstructionFile:
        """The step of a name or alias; `DocumentError` if it does not exist or cannot be used."""
        files = self.files()
        path = files.get(step_name) or self._named(step_name, files)
        if path is None:
            expected_file = self.folder.shown(self.folder.steps / f"{step_name}.md")
            listed = ", ".join(files) or "none"
            message = f"there is no step '{step_name}'.{nearest(step_name, files)} Steps: {listed}."
            raise DocumentError("The playbook", [Problem("P01", message, Place(expected_file, 1))])
        return _usable(path, self.shown(path))

    def _named(self, name: str, files: Mapping[str, Path]) -> Path | None:
        """The file of an alias. Files are read only if no file name matches."""
        key = folded(name)
        for stem, path in files.items():
            if key in (folded(stem), folded(short_name(stem))):
                return path
        for path in files.values():
            read = read_cached(path)
            names = read.instruction.names if read is not None and read.instruction is not None else ()
            if key in (folded(alias) for alias in names):
                return path
        return None
