"""Bodies: steps of a file that are run as child runs of their own, and what these need to be told."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from detent.flows.workflow.expressions import Prepared, condition, prepared
from detent.flows.workflow.scope import used
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
)


@dataclass(frozen=True, slots=True)
class Body:
    """What stands inside a loop or behind an `on_failure`, ready to be run."""

    flow: str
    """Name of its flow."""
    steps: tuple[str, ...]
    """Names of its steps, in the order of the file."""
    inputs: frozenset[str]
    """Inputs its expressions read."""
    outer: frozenset[str]
    """Steps outside of it that its expressions read."""
    names: frozenset[str]
    """What settings and runs may call its steps, deeper ones included."""


def reads(steps: Sequence[StepSpec]) -> tuple[frozenset[str], frozenset[str]]:
    """Inputs, and steps outside of these, that steps read."""
    inputs, results = used(part for step in every(steps) for part in expressions(step))
    own = {step.name for step in every(steps)}
    return frozenset(inputs), frozenset(results - own)


def every(steps: Iterable[StepSpec]) -> Iterable[StepSpec]:
    """Steps and all that stand inside them."""
    for step in steps:
        yield step
        yield from every(step.inner)


def expressions(step: StepSpec) -> list[Prepared]:
    """Everything a step evaluates itself; what stands inside it is not looked at."""
    found = [condition(step.when)] if step.when is not None else []
    match step:
        case PythonStep():
            found += [prepared(list(step.args)), prepared(dict(step.kwargs))]
        case AgentStep() | GenerateStep():
            found.append(prepared(step.context))
        case ValidateStep():
            found += [condition(step.stages), condition(step.retry)]
        case SubworkflowStep():
            found.append(prepared(dict(step.inputs)))
        case BranchStep():
            found += [condition(option.when) for option in step.options if option.when is not None]
        case LoopStep():
            found += [condition(part) for part in (step.for_each, step.until) if part is not None]
        case CheckpointStep():
            found.append(prepared(step.checkpoint_id))
    return found


def names_of(scope: str, steps: Iterable[StepSpec]) -> frozenset[str]:
    """What settings may call steps: their names, bare and qualified."""
    bare = [step.name for step in every(steps)]
    return frozenset([*bare, *(f"{scope}/{name}" for name in bare)])
