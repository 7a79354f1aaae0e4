"""One step of a workflow by itself: its `when` ignored, what other steps gave taken from another run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from detent.flows.workflow.child_flows import every
from detent.flows.workflow.scope import OUTER, STEP
from detent.flows.workflow.spec import StepSpec, WorkflowSpec
from detent.kernel.errors import ConfigurationError, nearest

ONLY = "only-"
"""Begins the last part of the name of a flow that performs one step of a file."""


def step_named(spec: WorkflowSpec, said: str) -> StepSpec:
    """The step a person means: by name, or by its number among those of the file."""
    steps = list(every(spec.steps))
    for step in steps:
        if step.name == said:
            return step
    if said.isdigit():
        if 1 <= int(said) <= len(spec.steps):
            return spec.steps[int(said) - 1]
        raise ConfigurationError(
            f"Workflow '{spec.name}' has steps 1 to {len(spec.steps)}; there is no step {said}."
        )
    names = [step.name for step in steps]
    raise ConfigurationError(
        f"Workflow '{spec.name}' has no step '{said}'.{nearest(said, names)} Steps: {', '.join(names)}."
    )


def only(spec: WorkflowSpec, step: StepSpec) -> WorkflowSpec:
    """A workflow of that step alone."""
    return replace(
        spec, name=f"{spec.name}.{ONLY}{step.name}", steps=(replace(step, when=None),), outputs=None,
        source={"step": step.name, "file": dict(spec.source)},
    )  # fmt: skip


def results_in(data: Mapping[str, Any]) -> dict[str, Any]:
    """What the steps of a run gave, for a step of another run to read."""
    found = dict(data.get(OUTER) or {})
    return found | {key[len(STEP) :]: value for key, value in data.items() if key.startswith(STEP)}
