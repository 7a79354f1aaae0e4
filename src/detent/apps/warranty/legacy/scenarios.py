"""The scenario files: the descriptions of the scenarios for a model, read and checked at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from detent.apps.warranty.flow import shipped
from detent.apps.warranty.legacy.detect_scenario import SCENARIOS
from detent.apps.warranty.settings import WarrantySettings
from detent.authoring.problem import DocumentError, Place, Problem
from detent.flows.playbook.instruction import InstructionFile
from detent.flows.playbook.step_file_cache import read_cached
from detent.kernel.plain import digest

TAKEN = "P11"
"""Problem code of a file named like an end. Allowed for a scenario, because no edge leads to it by name."""


def scenarios_folder(settings: WarrantySettings) -> Path:
    """The project's own scenario files if it has any, otherwise the shipped ones."""
    own = settings.path(settings.playbook.scenarios_dir)
    return own if own.is_dir() else shipped() / "scenarios"


class Scenarios(Mapping[str, InstructionFile]):
    """The five scenarios, by name."""

    def __init__(self, folder: Path) -> None:
        """Read a folder.

        Raises:
            DocumentError: lists every file that is missing or cannot be used.
        """
        self.folder = folder
        self._files: dict[str, InstructionFile] = {}
        problems: list[Problem] = []
        for name in SCENARIOS:
            path = folder / f"{name}.md"
            shown = f"{folder.name}/{path.name}"
            read = read_cached(path)
            if read is None:
                problems.append(Problem("P01", "there is no such scenario file.", Place(shown, 1)))
                continue
            problems += [
                problem
                for problem in read.shown(shown).problems
                if problem.severity == "error" and problem.code != TAKEN
            ]
            if read.instruction is not None:
                self._files[name] = read.instruction
        if problems:
            raise DocumentError("The scenarios of legacy mode", problems)

    def __getitem__(self, name: str) -> InstructionFile:
        return self._files[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

    def fingerprint_parts(self) -> dict[str, str]:
        """A digest of each file's text."""
        return {f"scenarios/{name}.md": digest(file.body, 16) for name, file in self._files.items()}
