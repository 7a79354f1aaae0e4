"""Scenarios for tests: those that ship, by id, and small ones written as a user would."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from textwrap import dedent

from detent.flows.coding.measure.scenario import Scenario
from detent.flows.coding.measure.scenario_files import read_scenarios
from detent.flows.coding.measure.suite import SHIPPED

LIES = ("S11", "S20", "S25")
LEGACY_PREMATURE = (
    "S03", "S04", "S05", "S06", "S07", "S08", "S09", "S10", "S11", "S13", "S14", "S16", "S17", "S19", "S20",
    "S21", "S23", "S25", "S31", "S32",
)  # fmt: skip
COMPLETED_AT = {
    # scenario: the reply at which the legacy rule and the machine complete it
    "S01": (1, 1), "S02": (2, 2), "S03": (1, 3), "S04": (1, 4), "S05": (1, 3), "S06": (1, 2), "S07": (1, 3),
    "S08": (1, 3), "S09": (2, 4), "S10": (2, 4), "S11": (2, 2), "S12": (3, 3), "S13": (1, 3), "S14": (2, 4),
    "S15": (4, 4), "S16": (1, 3), "S17": (1, 4), "S18": (2, 2), "S19": (2, 4), "S20": (1, 1), "S21": (2, 4),
    "S22": (2, 2), "S23": (1, None), "S24": (None, None), "S25": (3, 3), "S26": (2, 2), "S27": (1, 2),
    "S28": (1, 2), "S29": (1, None), "S30": (2, 2), "S31": (1, 3), "S32": (1, 3),
}  # fmt: skip


@cache
def shipped() -> dict[str, Scenario]:
    """The scenarios that ship, by id."""
    return {scenario.id: scenario for scenario in read_scenarios(SHIPPED)}


def write_scenario(folder: Path, name: str, body: str) -> Path:
    """A scenario file of the user's own; what every case has is added."""
    file = folder / f"{name}.yaml"
    head = f"scenario_id: {name}\ndescription: mine\ncategory: mine\nexpected_output: {{status: succeeded}}\n"
    file.write_text(head + dedent(body), encoding="utf-8")
    return file
