"""A workflow as its file says it, read and checked for shape: values only, nothing resolved or looked up.

Texts that may hold expressions are kept as written; `expressions` reads them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from detent.dispatch.autonomy import StepType
from detent.dispatch.config import UNSAID, StepConfig
from detent.flows.workflow.problems import Place

InputType = Literal["string", "integer", "boolean", "float", "object", "array"]

START = "ready"
ROLLING_BACK = "rolling_back"
SUCCEEDED = "succeeded"
FAILED = "failed"
CANCELLED = "cancelled"
RESERVED = (START, ROLLING_BACK, SUCCEEDED, FAILED, CANCELLED)
"""Names of states that every workflow has, so no step may go by them."""


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One declared input."""

    name: str
    type: InputType
    place: Place
    required: bool = True
    default: Any = None
    has_default: bool = False
    description: str = ""
    enum: tuple[Any, ...] | None = None
    secret: bool = False
    """Its value comes from the environment and is never journaled."""


@dataclass(frozen=True, slots=True)
class StepSpec:
    """What every kind of step says."""

    name: str
    place: Place
    path: str
    """Its place among the keys of the file, such as `steps[2]` or `steps[2].steps[0]`."""
    description: str = ""
    when: Any = None
    """A text with or without `${{ }}`, or a truth value; None: always."""
    requires: tuple[str, ...] = ()
    config: StepConfig = UNSAID
    metadata: Mapping[str, Any] = field(default_factory=dict)
    places: Mapping[str, Place] = field(default_factory=dict)
    """Where its parts stand: `action`, `kwargs.path`, `options[0].when` and so on."""

    @property
    def type(self) -> StepType:
        """Its kind."""
        raise NotImplementedError

    @property
    def inner(self) -> tuple[StepSpec, ...]:
        """Steps that stand inside this one."""
        return ()

    def at(self, part: str) -> Place:
        """Where a part of it stands, or the step itself."""
        return self.places.get(part, self.place)


@dataclass(frozen=True, slots=True)
class PythonStep(StepSpec):
    """Calls a registered action."""

    action: str = ""
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    rollback: str | None = None
    output_schema: Any = None
    """A dotted path or a JSON Schema."""

    @property
    def type(self) -> StepType:
        return StepType.PYTHON


@dataclass(frozen=True, slots=True)
class AgentStep(StepSpec):
    """Asks a registered agent."""

    agent: str = ""
    context: Any = None
    """A mapping, or the name of a context builder."""
    output_schema: Any = None
    rollback: str | None = None

    @property
    def type(self) -> StepType:
        return StepType.AGENT


@dataclass(frozen=True, slots=True)
class GenerateStep(StepSpec):
    """Has a text written by a registered generator."""

    generator: str = ""
    context: Any = None
    rollback: str | None = None

    @property
    def type(self) -> StepType:
        return StepType.GENERATE


@dataclass(frozen=True, slots=True)
class ValidateStep(StepSpec):
    """Runs the project's checks, mending between runs."""

    stages: Any = ()
    """Names, or an expression that gives them."""
    retry: Any = None
    """Runs after the first: a number, an expression, or None for the usual."""
    on_failure: StepSpec | None = None
    must_pass: bool = True

    @property
    def type(self) -> StepType:
        return StepType.VALIDATE

    @property
    def inner(self) -> tuple[StepSpec, ...]:
        return () if self.on_failure is None else (self.on_failure,)


@dataclass(frozen=True, slots=True)
class SubworkflowStep(StepSpec):
    """Runs another workflow."""

    workflow: str = ""
    inputs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def type(self) -> StepType:
        return StepType.SUBWORKFLOW


@dataclass(frozen=True, slots=True)
class Option:
    """One way a branch may go."""

    step: StepSpec
    when: Any = None
    """None only for the last: else."""


@dataclass(frozen=True, slots=True)
class BranchStep(StepSpec):
    """Runs the step of the first option that holds."""

    options: tuple[Option, ...] = ()

    @property
    def type(self) -> StepType:
        return StepType.BRANCH

    @property
    def inner(self) -> tuple[StepSpec, ...]:
        return tuple(option.step for option in self.options)


@dataclass(frozen=True, slots=True)
class LoopStep(StepSpec):
    """Runs its body for each item, until something holds, or its steps side by side."""

    steps: tuple[StepSpec, ...] = ()
    for_each: Any = None
    """An expression or a list; None with `has_for_each` false where it is not said."""
    has_for_each: bool = False
    until: Any = None
    parallel: bool = False
    max_concurrency: int = 1
    """0: the bound of the settings, `workflow.max_parallel`."""
    max_iterations: int = 30
    on_exhausted: Literal["fail", "continue"] = "fail"

    @property
    def type(self) -> StepType:
        return StepType.LOOP

    @property
    def inner(self) -> tuple[StepSpec, ...]:
        return self.steps

    @property
    def apart(self) -> bool:
        """It goes over nothing: its steps run once, side by side."""
        return not self.has_for_each and self.until is None

    @property
    def bounded_by_settings(self) -> bool:
        """As many side by side as the settings allow."""
        return self.parallel or self.max_concurrency == 0 or self.apart


@dataclass(frozen=True, slots=True)
class CheckpointStep(StepSpec):
    """Gives the point a name to return to."""

    checkpoint_id: Any = None
    """A text that may hold expressions; None: the step's name."""

    @property
    def type(self) -> StepType:
        return StepType.CHECKPOINT


@dataclass(frozen=True, slots=True)
class WorkflowSpec:
    """A whole file."""

    name: str
    steps: tuple[StepSpec, ...]
    place: Place
    version: str = "1.0"
    description: str = ""
    inputs: Mapping[str, InputSpec] = field(default_factory=dict)
    outputs: Mapping[str, Any] | None = None
    """Expressions by name; None: the last finished step's output is the result."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    places: Mapping[str, Place] = field(default_factory=dict)
    """Where parts outside of steps stand: `outputs.sha`, `inputs.push.default` and so on."""
    source: Mapping[str, Any] = field(default_factory=dict)
    """The file as plain values: what its fingerprint is made of."""

    def every_step(self) -> Iterator[StepSpec]:
        """All steps, bodies included, in the order of the file."""
        waiting = list(reversed(self.steps))
        while waiting:
            step = waiting.pop()
            yield step
            waiting.extend(reversed(step.inner))
