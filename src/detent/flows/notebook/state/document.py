"""The state document: where a run stands and what it holds, as its state JSON shows it.

Belongs here: the parts and their types. How a foreign file is read and a document is written is
`state_json`; what each state demands of it is `state_checks`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    WithJsonSchema,
    model_serializer,
    model_validator,
)

from detent.flows.notebook.state.machine import NotebookEvent, NotebookState
from detent.flows.notebook.state.names import read_event_name, read_state_name
from detent.kernel.errors import ConfigurationError

NEVER = "1970-01-01T00:00:00Z"
"""Timestamp of a document that names none: the empty value of a moment."""
STAGE_OR_STEP_ID = r"^[a-z][a-z0-9_]{0,79}$"
BEHAVIOR_ID = r"^[a-z][a-z0-9_]{0,79}_b[1-9][0-9]*$"
_MOMENT = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$"

CompletionStatus = Literal["success", "partial", "failed"]


def _moment(value: Any) -> Any:
    """A moment with its zone; one without is UTC."""
    if isinstance(value, str) and re.fullmatch(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?", value.strip()):
        return value.strip().replace(" ", "T") + "Z"
    return value


def _real(value: str) -> str:
    datetime.fromisoformat(value)  # the pattern lets a 13th month through
    return value


def _state_name(value: Any) -> Any:
    return _named(read_state_name, value)


def _event_name(value: Any) -> Any:
    return _named(read_event_name, value)


def _named(read: Any, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return read(value)
    except ConfigurationError as error:
        raise ValueError(str(error)) from None


def _described(value: Any) -> Any:
    """Names with descriptions; a list of names, or of items with a name, is read too."""
    if not isinstance(value, list | tuple):
        return value
    described: dict[str, Any] = {}
    for item in value:
        if isinstance(item, str):
            described[item] = ""
        elif isinstance(item, Mapping) and isinstance(item.get("name"), str):
            described[item["name"]] = item.get("description", "")
        else:
            return value
    return described


def _expected(value: Any) -> Any:
    """Artifacts that are expected; a bare name is one without a description."""
    if isinstance(value, Mapping):
        return [{"name": name, "description": text} for name, text in value.items()]
    if isinstance(value, list | tuple):
        return [{"name": item} if isinstance(item, str) else item for item in value]
    return value


Id = Annotated[str, Field(pattern=STAGE_OR_STEP_ID)]
BehaviorId = Annotated[str, Field(pattern=BEHAVIOR_ID)]
Moment = Annotated[
    str,
    BeforeValidator(_moment),
    Field(pattern=_MOMENT),
    AfterValidator(_real),
    WithJsonSchema({"type": "string", "format": "date-time", "pattern": _MOMENT}),
]
Described = Annotated[dict[str, str], BeforeValidator(_described)]
Names = tuple[str, ...]


def _describe(schema: dict[str, Any], model: type[BaseModel]) -> None:
    """A part's schema as files are written: what may be absent is not null, all else is required."""
    optional = model.may_be_absent if issubclass(model, Part) else frozenset()
    schema["required"] = [name for name in model.model_fields if name not in optional]
    for name, field in schema["properties"].items():
        field.pop("title", None)
        field.pop("default", None)
        if name in optional and "anyOf" in field:
            (kind,) = (kind for kind in field.pop("anyOf") if kind != {"type": "null"})
            field.update(kind)
    schema.pop("title", None)
    schema.pop("additionalProperties", None)


class Part(BaseModel):
    """A part of the document. Unknown keys are kept."""

    model_config = ConfigDict(frozen=True, extra="allow", json_schema_extra=_describe)

    may_be_absent: ClassVar[frozenset[str]] = frozenset()
    """Fields that are left out when they are None."""

    @model_validator(mode="before")
    @classmethod
    def _null_is_missing(cls, value: Any) -> Any:
        """Null in place of a list, a text or a part is read as its empty value."""
        if not isinstance(value, Mapping):
            return value
        fields = cls.model_fields
        return {
            key: item
            for key, item in value.items()
            if item is not None or key not in fields or fields[key].default is None
        }

    @model_serializer(mode="wrap")
    def _leave_out(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        plain: dict[str, Any] = handler(self)
        return {
            name: value
            for name, value in plain.items()
            if value is not None or name not in self.may_be_absent
        }


class Location(Part):
    """Ids of where the run is; null where it has none."""

    stage_id: Id | None = None
    step_id: Id | None = None
    behavior_id: BehaviorId | None = None
    behavior_iteration: Annotated[int, Field(ge=1)] | None = None


class ExpectedArtifact(Part):
    """An artifact that is to be produced."""

    name: str
    description: str = ""


class Outputs(Part):
    """What a stage, step or behavior is to produce, and how far it is."""

    may_be_absent: ClassVar[frozenset[str]] = frozenset({"remaining"})

    expected: Annotated[tuple[ExpectedArtifact, ...], BeforeValidator(_expected)] = ()
    produced: Names = ()
    in_progress: Names = ()
    remaining: Names | None = None
    """Expected and not produced, written after a reflection."""

    @property
    def expected_names(self) -> Names:
        """The names that are expected."""
        return tuple(artifact.name for artifact in self.expected)


class Stage(Part):
    """A stage of the plan."""

    may_be_absent: ClassVar[frozenset[str]] = frozenset(
        {"verified_artifacts", "required_variables", "optional", "experience", "completion_status"}
    )

    stage_id: Id
    title: str = ""
    goal: str = ""
    verified_artifacts: Described | None = None
    required_variables: Described | None = None
    optional: bool | None = None
    experience: str | None = None
    completion_status: CompletionStatus | None = None


class Step(Part):
    """A step of a stage."""

    may_be_absent: ClassVar[frozenset[str]] = frozenset(
        {"verified_artifacts", "required_variables", "pcs_considerations", "completion_status"}
    )

    step_id: Id
    title: str = ""
    goal: str = ""
    verified_artifacts: Described | None = None
    required_variables: Described | None = None
    pcs_considerations: dict[str, str] | None = None
    completion_status: CompletionStatus | None = None
    """`failed` on the current step marks it as escalated."""


class Behavior(Part):
    """A behavior of a step."""

    may_be_absent: ClassVar[frozenset[str]] = frozenset(
        {
            "step_id", "agent", "task", "inputs", "outputs", "acceptance", "whathappened",
            "completion_status", "artifacts_produced",
        }
    )  # fmt: skip

    behavior_id: BehaviorId
    step_id: Id | None = None
    agent: str | None = None
    task: str | None = None
    inputs: dict[str, Any] | None = None
    outputs: Described | None = None
    acceptance: tuple[str, ...] | None = None
    whathappened: dict[str, Any] | None = None
    completion_status: CompletionStatus | None = None
    artifacts_produced: Names | None = None


class StageLevel(Part):
    """The stages of the run."""

    completed: tuple[Stage, ...] = ()
    current: Stage | None = None
    remaining: tuple[Stage, ...] = ()
    focus: str = ""
    current_outputs: Outputs = Outputs()


class StepLevel(Part):
    """The steps of the current stage."""

    completed: tuple[Step, ...] = ()
    current: Step | None = None
    remaining: tuple[Step, ...] = ()
    focus: str = ""
    current_outputs: Outputs = Outputs()


class BehaviorLevel(Part):
    """The behaviors of the current step."""

    completed: tuple[Behavior, ...] = ()
    current: Behavior | None = None
    iteration: Annotated[int, Field(ge=1)] | None = None
    focus: str = ""
    """The current behavior's task."""
    current_outputs: Outputs = Outputs()


class Progress(Part):
    """Progress at all levels."""

    stages: StageLevel = StageLevel()
    steps: StepLevel = StepLevel()
    behaviors: BehaviorLevel = BehaviorLevel()


class WholeLocation(Part):
    """Where the run is, and how far."""

    current: Location = Location()
    progress: Progress = Progress()


class Observation(Part):
    """What is seen of the run."""

    location: WholeLocation = WholeLocation()


class Effects(Part):
    """Texts of the program's output."""

    current: tuple[str, ...] = ()
    """Of the current iteration, in order."""
    history: tuple[str, ...] = ()
    """Of everything before it."""


class NotebookSummary(Part):
    """The notebook, in short."""

    notebook_id: str | None = None
    title: str | None = None
    cell_count: Annotated[int, Field(ge=0)] = 0
    last_cell_type: Literal["code", "markdown"] | None = None
    last_output: str | None = None


class MachinePosition(Part):
    """Where the machine stands."""

    state: Annotated[NotebookState, BeforeValidator(_state_name)] = NotebookState.IDLE
    last_transition: Annotated[NotebookEvent, BeforeValidator(_event_name)] | None = None
    timestamp: Moment = NEVER


class HeldState(Part):
    """What the run holds."""

    variables: dict[str, Any] = {}
    effects: Effects = Effects()
    notebook: NotebookSummary = NotebookSummary()
    FSM: MachinePosition = MachinePosition()


class StateDocument(Part):
    """The whole state of a run, as its state JSON shows it."""

    observation: Observation = Observation()
    state: HeldState = HeldState()

    # Short ways to the parts that every transition reads.

    @property
    def fsm(self) -> MachinePosition:
        """Where the machine stands."""
        return self.state.FSM

    @property
    def location(self) -> Location:
        """Where the run is."""
        return self.observation.location.current

    @property
    def stages(self) -> StageLevel:
        """The stages of the run."""
        return self.observation.location.progress.stages

    @property
    def steps(self) -> StepLevel:
        """The steps of the current stage."""
        return self.observation.location.progress.steps

    @property
    def behaviors(self) -> BehaviorLevel:
        """The behaviors of the current step."""
        return self.observation.location.progress.behaviors

    @property
    def variables(self) -> Mapping[str, Any]:
        """Values by name."""
        return self.state.variables
