"""The six payloads as typed values, whoever wrote them and in whichever format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

ArtifactStatus = Literal["complete", "incomplete", "missing"]
CriterionStatus = Literal["passed", "failed", "partial"]
GoalStatus = Literal["achieved", "partial", "not_achieved"]
Quality = Literal["complete", "partial", "needs_validation"]


@dataclass(frozen=True, slots=True)
class Named:
    """A variable or artifact with its description or value."""

    name: str
    text: str = ""


# -- T1: START_WORKFLOW -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PlannedStage:
    """A stage of a plan."""

    id: str
    title: str
    goal: str
    verified_artifacts: tuple[Named, ...]
    required_variables: tuple[Named, ...] = ()
    optional: bool = False
    insert_before: str | None = None
    insert_after: str | None = None
    replaces: str | None = None


@dataclass(frozen=True, slots=True)
class StagePlan:
    """T1: the stages of the work."""

    stages: tuple[PlannedStage, ...]
    """In the order in which they are done: placements are applied."""
    focus: str = ""
    goals: str = ""
    title: str = ""
    description: str = ""


# -- T2: START_STEP -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PcsTexts:
    """What predictability, computability and stability mean here."""

    predictability: str
    computability: str
    stability: str


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """A step of a stage."""

    id: str
    title: str
    goal: str
    verified_artifacts: tuple[Named, ...]
    pcs_considerations: PcsTexts
    required_variables: tuple[Named, ...] = ()


@dataclass(frozen=True, slots=True)
class ContextFilter:
    """Which variables the next prompt shows whole, and which in short."""

    include: tuple[str, ...] = ()
    summarize: tuple[tuple[str, str], ...] = ()
    """Names, each with how: shape_only, describe_only, head_only, last_N_only."""


@dataclass(frozen=True, slots=True)
class WhatHappened:
    """A short account for the next prompt."""

    overview: str = ""
    background: str = ""
    key_findings: str = ""


@dataclass(frozen=True, slots=True)
class StepPlan:
    """T2: the steps of the current stage."""

    steps: tuple[PlannedStep, ...]
    focus: str = ""
    goals: str = ""
    """The stage's goal, revised; empty keeps it."""
    whathappened: WhatHappened | None = None
    context_filter: ContextFilter | None = None


# -- T3: START_BEHAVIOR -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BehaviorPlan:
    """T3: who does the next piece of work, with what, and when it is good enough."""

    behavior_id: str
    step_id: str
    agent: str
    task: str
    outputs: tuple[Named, ...]
    acceptance: tuple[str, ...]
    inputs: tuple[Named, ...] = ()
    effects: bool = False
    whathappened: WhatHappened | None = None
    context_filter: ContextFilter | None = None


# -- T4: COMPLETE_ACTION ------------------------------------------------------------------------------------

ActionKind = Literal[
    "update_title", "update_section_title", "update_step_title", "add_section", "add_text", "add_code",
    "communicate", "note",
]  # fmt: skip
"""`note` is journaled only: thinking, and claims such as `mark_step_complete`."""


@dataclass(frozen=True, slots=True)
class Action:
    """One action on the notebook."""

    kind: ActionKind
    text: str = ""
    """Markdown, code, a title, or a message."""
    to: str | None = None
    """The agent that a communication is for."""
    name: str = ""
    """For a `note`: what it was called."""


@dataclass(frozen=True, slots=True)
class Actions:
    """T4: one round of text and code."""

    actions: tuple[Action, ...]

    @property
    def has_code(self) -> bool:
        """Whether a cell is to be executed."""
        return any(action.kind == "add_code" for action in self.actions)


# -- T5: behavior reflection --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ArtifactJudged:
    """An artifact and its status; T6 writes `in_progress` where T5 writes `incomplete`."""

    name: str
    status: ArtifactStatus


@dataclass(frozen=True, slots=True)
class CriterionJudged:
    """A criterion and its status."""

    text: str
    status: CriterionStatus


@dataclass(frozen=True, slots=True)
class Tracking:
    """Names that were produced, are in progress, and remain."""

    produced: tuple[str, ...] = ()
    in_progress: tuple[str, ...] = ()
    remaining: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BehaviorReflection:
    """T5: what a behavior produced, and whether its step is complete."""

    step_is_complete: bool
    artifacts: tuple[ArtifactJudged, ...]
    criteria: tuple[CriterionJudged, ...]
    code_execution: Literal["success", "failed", "partial"]
    goal_status: GoalStatus
    next_state: Literal["STEP_RUNNING", "STEP_COMPLETED"]
    reasoning: str
    tracking: Tracking
    errors_found: str = ""
    warnings_found: str = ""
    goal_reasoning: str = ""
    new_variables: tuple[str, ...] = ()
    """Names under which the behavior's output is kept (`save_current_effect`)."""
    variables_produced: tuple[Named, ...] = ()
    whathappened: WhatHappened | None = None
    if_continuing: str = ""
    if_moving_forward: str = ""


# -- T6: stage reflection -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Finding:
    """Something found, and how much it matters."""

    text: str
    priority: Literal["high", "medium", "low"] = "medium"


@dataclass(frozen=True, slots=True)
class GoalReview:
    """Whether the stage's goal needs a change."""

    needs_update: bool
    reasoning: str = ""
    new_goal: str = ""


@dataclass(frozen=True, slots=True)
class Extracted:
    """A variable found in the notebook."""

    name: str
    type: str = ""
    source: str = ""
    summary: str = ""
    quality: Quality | None = None


@dataclass(frozen=True, slots=True)
class Retained:
    """A variable that is needed further on."""

    name: str
    next_use: str = ""


@dataclass(frozen=True, slots=True)
class Deprecated:
    """A variable that is not needed any more."""

    name: str
    replacement: str | None = None
    safe: bool | None = None


@dataclass(frozen=True, slots=True)
class Gap:
    """A variable that is needed and not there."""

    name: str
    needed_for: str
    urgency: Literal["critical", "important"]
    how_to_obtain: str
    """`backtrack:<step_id>`, or words."""


@dataclass(frozen=True, slots=True)
class VariableManagement:
    """The four lists of variables."""

    extracted: tuple[Extracted, ...] = ()
    retain: tuple[Retained, ...] = ()
    deprecate: tuple[Deprecated, ...] = ()
    gaps: tuple[Gap, ...] = ()


@dataclass(frozen=True, slots=True)
class StageReflection:
    """T6: how far the stage is, and how to go on."""

    stage_is_complete: bool
    step_id: str
    step_status: Literal["complete", "incomplete"]
    completed_steps: int
    remaining_steps: int
    percentage: float
    artifacts: tuple[ArtifactJudged, ...]
    goal_status: GoalStatus
    next_state: Literal["STAGE_COMPLETED", "STEP_RUNNING"]
    reasoning: str
    variables: VariableManagement
    tracking: Tracking
    pcs_check: PcsTexts
    next_focus: str = ""
    step_artifacts: str = ""
    findings: tuple[Finding, ...] = ()
    goal_review: GoalReview | None = None
    experience: str | None = None
    experience_from: str | None = None


Payload: TypeAlias = StagePlan | StepPlan | BehaviorPlan | Actions | BehaviorReflection | StageReflection


@dataclass(frozen=True, slots=True)
class ReadPayload:
    """A payload as it was read: the value, and what had to be done to read it."""

    value: Payload
    repairs: tuple[str, ...] = ()
    """The rules of repair that were used, R1 to R10; empty if the strict reading succeeded."""
    flags: tuple[str, ...] = ()
    """Soft discrepancies: counts outside the usual, what is not used, unknown names."""
    details: Mapping[str, str] = field(default_factory=dict)
    """How it came: `format` is xml or json, `shape` of a T6 short or long, `placed` the moves of stages."""
