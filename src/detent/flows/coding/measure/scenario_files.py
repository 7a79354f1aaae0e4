"""Folders of scenarios: each file is an eval case, in YAML or JSON, whose input is that of `case_input`.

All problems of all files are reported at once, each with its place.
"""

from __future__ import annotations

from pathlib import Path

from detent.authoring.problem import DocumentError
from detent.evals.reading import find_case_files, read_files
from detent.flows.coding.measure.case_input import scenario_of
from detent.flows.coding.measure.scenario import Scenario
from detent.flows.coding.measure.suite import MeasurePlayer
from detent.kernel.errors import ConfigurationError


def read_scenarios(folder: Path) -> list[Scenario]:
    """The scenarios of a folder and its subfolders, by name.

    Raises:
        DocumentError: some files are no scenarios.
        ConfigurationError: there is no such folder, or no scenario in it.
    """
    if not folder.is_dir():
        raise ConfigurationError(f"There is no folder {folder}. Name a folder of scenarios.")
    files = [*find_case_files(folder), *_json_files(folder)]
    cases = read_files(files, MeasurePlayer(), base=folder)
    problems = cases.problems
    scenarios: list[Scenario] = []
    for case in cases.cases:
        try:
            scenarios.append(scenario_of(case))
        except DocumentError as error:
            problems += error.problems
    if problems:
        raise DocumentError(f"The scenarios in {folder}", problems)
    if not scenarios:
        raise ConfigurationError(f"There are no scenarios in {folder}: no YAML or JSON file.")
    return sorted(scenarios, key=lambda scenario: scenario.id)


def _json_files(folder: Path) -> list[Path]:
    return sorted(
        file
        for file in folder.rglob("*.json")
        if file.is_file() and not any(part.startswith(("_", ".")) for part in file.relative_to(folder).parts)
    )
