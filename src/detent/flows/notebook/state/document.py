"""The state document: where a run stands and what it holds, as its state JSON shows it.

Belongs here: the parts and their types. How a foreign file is read and a document is written is
`state_json`; what each state demands of it is `state_checks`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from detent.flows.notebook.state.machine import NotebookState
from detent.flows.notebook.state.parts import (
    NEVER,
    BehaviorId,
    Described,
    EventName,
    Id,
    Moment,
    Names,
    Part,
    StateName,
    as_expected,
    updated,
)

CompletionStatus = Literal["success", "partial", "failed"]


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

    expected: Annotated[tuple[ExpectedArtifact, ...], BeforeValidator(as_expected)] = ()
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

    state: StateName = NotebookState.IDLE
    last_transition: EventName | None = None
    timestamp: Moment = NEVER


class HeldState(Part):
    """What the run holds."""

    variables: dict[str, Any] = Field(default_factory=dict)
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

    def changed(
        self,
        *,
        location: Location | None = None,
        stages: StageLevel | None = None,
        steps: StepLevel | None = None,
        behaviors: BehaviorLevel | None = None,
        variables: Mapping[str, Any] | None = None,
        effects: Effects | None = None,
        notebook: NotebookSummary | None = None,
        fsm: MachinePosition | None = None,
    ) -> StateDocument:
        """A copy with these parts in place of its own."""
        where = self.observation.location
        progress = updated(where.progress, stages=stages, steps=steps, behaviors=behaviors)
        where = updated(where, current=location, progress=progress)
        held = updated(
            self.state,
            variables=None if variables is None else dict(variables),
            effects=effects,
            notebook=notebook,
            FSM=fsm,
        )
        return updated(self, observation=updated(self.observation, location=where), state=held)
