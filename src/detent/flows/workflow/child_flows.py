"""Bodies: steps of a file that run as child runs, and the inputs and results these runs need."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from detent.flows.workflow.expressions import Prepared, condition, prepared
from detent.flows.workflow.run_data import used
from detent.flows.workflow.spec import (
    AgentStep,
    BranchStep,
    CheckpointStep,
    GenerateStep,
    LoopStep,
    PythonStep,
    StepSpec,
    SubworkflowStep,
    ValidateStep,
    every,
)


@dataclass(frozen=True, slots=True)
class Body:
    """The steps of a loop or of an `on_failure`, compiled into a flow."""

    flow: str
    """Name of its flow."""
    steps: tuple[str, ...]
    """Names of its steps, in the order of the file."""
    inputs: frozenset[str]
    """Inputs its expressions read."""
    outer: frozenset[str]
    """Steps outside of it that its expressions read."""
    names: frozenset[str]
    """Names by which settings and runs may refer to its steps, nested ones included."""


def reads(steps: Sequence[StepSpec]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the inputs, and the steps outside of the given ones, that steps read."""
    inputs, results = used(part for step in every(steps) for part in expressions(step))
    names = {step.name for step in every(steps)}
    return frozenset(inputs), frozenset(results - names)


def expressions(step: StepSpec) -> list[Prepared]:
    """Return the expressions that a step evaluates itself, without those of nested steps."""
    parts = [condition(step.when)] if step.when is not None else []
    match step:
        case PythonStep():
            parts += [prepared(list(step.args)), prepared(dict(step.kwargs))]
        case AgentStep() | GenerateStep():
            parts.append(prepared(step.context))
        case ValidateStep():
            parts += [condition(step.stages), condition(step.retry)]
        case SubworkflowStep():
            parts.append(prepared(dict(step.inputs)))
        case BranchStep():
            parts += [condition(option.when) for option in step.options if option.when is not None]
        case LoopStep():
            parts += [condition(part) for part in (step.for_each, step.until) if part is not None]
        case CheckpointStep():
            parts.append(prepared(step.checkpoint_id))
    return parts


def names_of(scope: str, steps: Iterable[StepSpec]) -> frozenset[str]:
    """Return the names by which settings may refer to steps, bare and qualified."""
    bare = [step.name for step in every(steps)]
    return frozenset([*bare, *(f"{scope}/{name}" for name in bare)])
