"""The format of workflow files, and the values a file is read into.

Each key of a file is declared once, with its type, its wording in messages and its description for editors.
Nothing is resolved or looked up; texts that may hold expressions are kept as written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, get_args

from detent.authoring.model import AtLeast, Pattern, Written
from detent.authoring.problem import Place, either
from detent.dispatch.config import UNSAID, StepConfig
from detent.flows.workflow.step_type import StepType

InputType = Literal["string", "integer", "boolean", "float", "object", "array"]

VERSION = "1.0"
"""The only version of the format."""
START = "ready"
ROLLING_BACK = "rolling_back"
SUCCEEDED = "succeeded"
FAILED = "failed"
CANCELLED = "cancelled"
RESERVED = (START, ROLLING_BACK, SUCCEEDED, FAILED, CANCELLED)
"""Names of states that every workflow has, so no step may have them."""
INPUT_NAME = r"[a-z_][a-z0-9_]*"

_NAME = Pattern(r"^[a-z][a-z0-9-]{0,63}$")
_STEP_NAME = Pattern(r"^[a-z][a-z0-9_-]{0,63}$")
_DOTTED = Pattern(r"^[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*[.:][A-Za-z_]\w*$")
"""A class by its module: `shop.orders.Report` or `shop.orders:Report`."""
_Text = Annotated[str, Pattern(r"\S")]
_CONDITION = "an expression, or true or false"
_FLAG = "true or false"
_A_STEP = {"$ref": "#/$defs/step"}
_STEPS = {"minItems": 1, "items": _A_STEP}

# A field is a row of a table: key, type, words.
# fmt: off
_Description = Annotated[str, Written("a text", "What it is for.")]
_Metadata = Annotated[Mapping[str, Any], Written("a mapping",
    "Anything you like; kept and never interpreted.", dict)]
_Rollback = Annotated[str | None, Written("the name of an action", "The action that undoes the step.", _Text)]
_OutputSchema = Annotated[Any, Written("a JSON Schema, or a class such as `shop.orders.Report`",
    "What the output must look like: a class by its dotted path, or a JSON Schema.",
    Annotated[str, _DOTTED] | dict)]
_Context = Annotated[Any, Written("a mapping, or the name of a context builder",
    "The context: values by name, or the name of a context builder.", _Text | dict,
    schema={"pattern": r"^(?!.*\$\{\{)"})]


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One declared input."""

    name: str
    type: Annotated[InputType, Written(either(get_args(InputType)), "What kind of value it takes.",
        required=True)]
    place: Place
    required: Annotated[bool, Written(_FLAG, "Whether it must be given: true without a default.")] = True
    default: Annotated[Any, Written("a value", "The value when none is given.")] = None
    has_default: bool = False
    description: _Description = ""
    enum: Annotated[tuple[Any, ...] | None, Written("a list of values", "The values it may have.", list,
        schema={"minItems": 1})] = None
    secret: Annotated[bool, Written(_FLAG,
        "Its value comes from the environment and is never written down.")] = False


@dataclass(frozen=True, slots=True)
class StepSpec:
    """The keys that every kind of step has."""

    type: ClassVar[StepType]
    name: Annotated[str, Written("how it is called",
        "How the step is called; its output is read as `steps.<name>.output`.", Annotated[str, _STEP_NAME],
        required=True,
        otherwise="a step is named with small letters, digits, '-' and '_', a letter first, 64 at most.",
        schema={"not": {"enum": list(RESERVED)}})]
    place: Place
    path: str
    """Its path in the file, such as `steps[2]` or `steps[2].steps[0]`."""
    description: _Description = ""
    when: Annotated[Any, Written(_CONDITION,
        "An expression, with or without `${{ }}`; the step is skipped when it does not hold.",
        str | bool)] = None
    requires: Annotated[tuple[str, ...], Written("a list of prerequisites",
        "Prerequisites that must be there before the run begins, such as `git`.", list[_Text])] = ()
    config: StepConfig = UNSAID
    metadata: _Metadata = field(default_factory=dict)
    places: Mapping[str, Place] = field(default_factory=dict)
    """Places of its parts: `action`, `kwargs.path`, `options[0].when` and so on."""

    @property
    def inner(self) -> tuple[StepSpec, ...]:
        """Steps nested in this one."""
        return ()

    @property
    def own_config(self) -> StepConfig | None:
        """Its `config`; None if it has none."""
        return None if self.config is UNSAID else self.config

    def at(self, part: str) -> Place:
        """Place of a part of the step; of the step itself if the part has none."""
        return self.places.get(part, self.place)


@dataclass(frozen=True, slots=True)
class PythonStep(StepSpec):
    """Calls a registered action."""

    type = StepType.PYTHON
    action: Annotated[str, Written("the action it calls", "The registered action it calls.", _Text,
        required=True)] = ""
    args: Annotated[tuple[Any, ...], Written("a list", "Values for the action's first parameters.",
        list)] = ()
    kwargs: Annotated[Mapping[str, Any], Written("a mapping of parameters to values",
        "Values for the action's parameters, by name.", dict)] = field(default_factory=dict)
    rollback: _Rollback = None
    output_schema: _OutputSchema = None


@dataclass(frozen=True, slots=True)
class AgentStep(StepSpec):
    """Asks a registered agent."""

    type = StepType.AGENT
    agent: Annotated[str, Written("the agent it asks", "The registered agent it asks.", _Text,
        required=True)] = ""
    context: _Context = None
    output_schema: _OutputSchema = None
    rollback: _Rollback = None


@dataclass(frozen=True, slots=True)
class GenerateStep(StepSpec):
    """Has a text written by a registered generator."""

    type = StepType.GENERATE
    generator: Annotated[str, Written("the generator that writes", "The registered generator that writes.",
        _Text, required=True)] = ""
    context: _Context = None
    rollback: _Rollback = None


@dataclass(frozen=True, slots=True)
class ValidateStep(StepSpec):
    """Runs the project's checks, mending between runs."""

    type = StepType.VALIDATE
    stages: Annotated[Any, Written("a list of stages, or an expression that gives one",
        "The checks, in order, or an expression that gives them.", list[_Text] | _Text, required=True,
        schema={"minItems": 1})] = ()
    retry: Annotated[Any, Written("a whole number of 0 or more, or an expression",
        "Runs after the first one; 3 where there is an on_failure, else 0.",
        Annotated[int, AtLeast(0)] | str)] = None
    on_failure: Annotated[StepSpec | None, Written("a step", "The step that runs before each new attempt.",
        Any, schema=_A_STEP)] = None
    must_pass: Annotated[bool, Written(_FLAG, "Whether checks that still fail fail the step.")] = True

    @property
    def inner(self) -> tuple[StepSpec, ...]:
        return () if self.on_failure is None else (self.on_failure,)


@dataclass(frozen=True, slots=True)
class SubworkflowStep(StepSpec):
    """Runs another workflow."""

    type = StepType.SUBWORKFLOW
    workflow: Annotated[str, Written("the name or path of the workflow it runs",
        "The workflow it runs: a name or path.", _Text, required=True)] = ""
    inputs: Annotated[Mapping[str, Any], Written("a mapping of inputs to values",
        "Values for the workflow's inputs.", dict)] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Option:
    """One way a branch may go."""

    step: Annotated[StepSpec, Written("the step that runs if it holds", "What is done.", Any, required=True,
        schema=_A_STEP)]
    when: Annotated[Any, Written(_CONDITION, "When it is chosen; left out: always.", str | bool)] = None
    """None only for the last option: else."""


@dataclass(frozen=True, slots=True)
class BranchStep(StepSpec):
    """Runs the step of the first option that holds."""

    type = StepType.BRANCH
    options: Annotated[tuple[Option, ...], Written("a list of `{when, step}`",
        "The ways it may go; the first that holds is taken.", list, required=True, schema={"minItems": 1,
        "items": {"$ref": "#/$defs/option"}})] = ()

    @property
    def inner(self) -> tuple[StepSpec, ...]:
        return tuple(option.step for option in self.options)


@dataclass(frozen=True, slots=True)
class LoopStep(StepSpec):
    """Runs its body for each item, until something holds, or its steps side by side."""

    type = StepType.LOOP
    steps: Annotated[tuple[StepSpec, ...], Written("a list of steps", "The body.", list, required=True,
        schema=_STEPS)] = ()
    for_each: Annotated[Any, Written("a list, or an expression that gives one",
        "A list, or an expression that gives one; the body runs once per `item`.", _Text | list,
        schema={"minItems": 1})] = None
    until: Annotated[Any, Written(_CONDITION, "Looked at after each pass; the loop ends when it holds.",
        str | bool)] = None
    parallel: Annotated[bool, Written(_FLAG, "Items in parallel, as many as the settings allow.")] = False
    max_concurrency: Annotated[int, AtLeast(0), Written("a whole number of 0 or more",
        "Items run in parallel; 0 for as many as the settings allow.")] = 1
    max_iterations: Annotated[int, AtLeast(1), Written("a whole number of 1 or more",
        "Passes of an `until` loop, at most.")] = 30
    on_exhausted: Annotated[Literal["fail", "continue"], Written("'fail' or 'continue'",
        "What becomes of an `until` loop after its last pass.")] = "fail"

    @property
    def inner(self) -> tuple[StepSpec, ...]:
        return self.steps

    @property
    def has_for_each(self) -> bool:
        """Whether it iterates over items."""
        return self.for_each is not None

    @property
    def apart(self) -> bool:
        """Whether it has no iterations: its steps run once, in parallel."""
        return self.for_each is None and self.until is None

    @property
    def bounded_by_settings(self) -> bool:
        """Whether the settings bound its concurrency."""
        return self.parallel or self.max_concurrency == 0 or self.apart


@dataclass(frozen=True, slots=True)
class CheckpointStep(StepSpec):
    """Gives the point a name to return to."""

    type = StepType.CHECKPOINT
    checkpoint_id: Annotated[Any, Written("a text", "How the point is called; the step's name when left out.",
        _Text)] = None


def every(steps: Iterable[StepSpec]) -> Iterator[StepSpec]:
    """Yield steps and all steps nested in them, in the order of the file."""
    waiting = [*steps][::-1]
    while waiting:
        step = waiting.pop()
        yield step
        waiting.extend(reversed(step.inner))


STEPS: Mapping[StepType, type[StepSpec]] = {
    kind.type: kind
    for kind in (
        PythonStep,
        AgentStep,
        GenerateStep,
        ValidateStep,
        SubworkflowStep,
        BranchStep,
        LoopStep,
        CheckpointStep,
    )
}


@dataclass(frozen=True, slots=True)
class WorkflowSpec:
    """Steps performed one after the other by code or by agents."""

    name: Annotated[str, Written("how it is called",
        "How the workflow is called: small letters, digits and hyphens.", Annotated[str, _NAME],
        required=True,
        otherwise="a workflow is named with small letters, digits and hyphens, a letter first, 64 at most.")]
    steps: Annotated[tuple[StepSpec, ...], Written("a list of steps",
        "The steps, in order. Names are unique in the whole file.", list, required=True, schema=_STEPS)]
    place: Place
    version: Annotated[str, Written(f'a text: write "{VERSION}", with the quotes',
        "The version of this format, in quotes.", required=True, schema={"const": VERSION})] = VERSION
    description: _Description = ""
    inputs: Annotated[Mapping[str, InputSpec], Written("a mapping of names to types",
        "What a run is given, by name; read as `inputs.<name>`.", dict,
        schema={"propertyNames": {"pattern": f"^{INPUT_NAME}$"},
        "additionalProperties": {"$ref": "#/$defs/input"}})] = field(default_factory=dict)
    outputs: Annotated[Mapping[str, Any] | None, Written("a mapping of names to expressions",
        "What the workflow gives, a `${{ expression }}` for each name; left out: the last step's output.",
        dict)] = None
    metadata: _Metadata = field(default_factory=dict)
    places: Mapping[str, Place] = field(default_factory=dict)
    """Places of parts outside of steps: `outputs.sha`, `inputs.push.default` and so on."""
    source: Mapping[str, Any] = field(default_factory=dict)
    """The file as plain values, from which its fingerprint is computed."""

    def every_step(self) -> Iterator[StepSpec]:
        """All steps, nested ones included, in the order of the file."""
        return every(self.steps)


# fmt: on
