"""The stages and steps of a data-science project, read from `catalogue.yaml`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from detent.flows.notebook.payloads.values import Named, PcsTexts

USER_INPUTS: Mapping[str, str] = {
    "user_problem": "the user's problem in words",
    "user_submit_files": "paths of the user's files; the first is the data",
}
VALIDATION_REPORT = "step_validation_report"
"""What the closing behavior of a step writes."""
CLOSING_TASK = "validation_and_acceptance"
CLOSING_AGENT = "PCS"


@dataclass(frozen=True, slots=True)
class CatalogueStep:
    """A step: what it makes, what of, by whom, and when it is good enough."""

    id: str
    stage_id: str
    title: str
    goal: str
    agent: str
    task: str
    artifacts: tuple[Named, ...]
    acceptance: tuple[str, ...]
    """Expressions; one that begins with `$` stands for criteria that thresholds or settings make."""
    requires: tuple[str, ...]
    pcs: PcsTexts
    is_last: bool
    """Of its stage."""


@dataclass(frozen=True, slots=True)
class CatalogueStage:
    """A stage and its steps."""

    id: str
    title: str
    goal: str
    artifacts: tuple[str, ...]
    acceptance: tuple[str, ...]
    requires: tuple[str, ...]
    steps: tuple[CatalogueStep, ...]
    optional: bool = False


@cache
def catalogue() -> tuple[CatalogueStage, ...]:
    """All stages, in order."""
    text = files(__package__).joinpath("catalogue.yaml").read_text(encoding="utf-8")
    return tuple(_stage(entry) for entry in yaml.safe_load(text))


def find_stage(stage_id: str) -> CatalogueStage | None:
    """The stage of an id, if it is the catalogue's."""
    return _stages().get(stage_id)


def find_step(step_id: str) -> CatalogueStep | None:
    """The step of an id, if it is the catalogue's."""
    return _steps().get(step_id)


def description_of(name: str) -> str:
    """What a user input or an artifact of the catalogue is; empty for other names."""
    if name in USER_INPUTS:
        return USER_INPUTS[name]
    return _descriptions().get(name, "")


@cache
def _stages() -> Mapping[str, CatalogueStage]:
    return {stage.id: stage for stage in catalogue()}


@cache
def _steps() -> Mapping[str, CatalogueStep]:
    return {step.id: step for stage in catalogue() for step in stage.steps}


@cache
def _descriptions() -> Mapping[str, str]:
    return {artifact.name: artifact.text for step in _steps().values() for artifact in step.artifacts}


def _stage(entry: Mapping[str, Any]) -> CatalogueStage:
    last = len(entry["steps"]) - 1
    return CatalogueStage(
        id=entry["id"],
        title=entry["title"],
        goal=entry["goal"],
        artifacts=tuple(entry["artifacts"]),
        acceptance=tuple(entry["acceptance"]),
        requires=tuple(entry["requires"]),
        steps=tuple(_step(step, entry["id"], place == last) for place, step in enumerate(entry["steps"])),
        optional=entry.get("optional", False),
    )


def _step(entry: Mapping[str, Any], stage_id: str, is_last: bool) -> CatalogueStep:
    return CatalogueStep(
        id=entry["id"],
        stage_id=stage_id,
        title=entry["title"],
        goal=entry["goal"],
        agent=entry["agent"],
        task=entry["task"],
        artifacts=tuple(Named(name, text) for name, text in entry["artifacts"].items()),
        acceptance=tuple(entry["acceptance"]),
        requires=tuple(entry["requires"]),
        pcs=PcsTexts(entry["predictability"], entry["computability"], entry["stability"]),
        is_last=is_last,
    )
