"""Single-step runs: one step of a workflow, without its `when`, on the results of another run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from detent.authoring.names import unique_match
from detent.flows.workflow.run_data import OUTER, STEP
from detent.flows.workflow.spec import StepSpec, WorkflowSpec, every
from detent.kernel.errors import ConfigurationError, nearest

ONLY = "only-"
"""Prefix of the last part of the name of a single-step flow."""


def step_named(spec: WorkflowSpec, key: str) -> StepSpec:
    """Return the step of a name or of how only one begins, or of a number among the top-level steps.

    Raises:
        ConfigurationError: there is no such step.
    """
    steps = {step.name: step for step in every(spec.steps)}
    if key in steps:
        return steps[key]
    if key.isdigit():
        if 1 <= int(key) <= len(spec.steps):
            return spec.steps[int(key) - 1]
        raise ConfigurationError(
            f"Workflow '{spec.name}' has steps 1 to {len(spec.steps)}; there is no step {key}."
        )
    if (match := unique_match(key, steps)) is not None:
        return steps[match]
    raise ConfigurationError(
        f"Workflow '{spec.name}' has no step '{key}'.{nearest(key, steps)} Steps: {', '.join(steps)}."
    )


def only(spec: WorkflowSpec, step: StepSpec) -> WorkflowSpec:
    """Return a workflow that consists of one step."""
    return replace(
        spec, name=f"{spec.name}.{ONLY}{step.name}", steps=(replace(step, when=None),), outputs=None,
        source={"step": step.name, "file": dict(spec.source)},
    )  # fmt: skip


def results_in(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the results of the steps in a run's data, for a step of another run to read."""
    results = dict(data.get(OUTER) or {})
    return results | {key[len(STEP) :]: value for key, value in data.items() if key.startswith(STEP)}
