"""The six roles: what each is called, which payload it gives, and what it is for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources

from detent.flows.notebook.payloads.kinds import PayloadKind
from detent.flows.notebook.state.machine import NotebookState


@dataclass(frozen=True, slots=True)
class Role:
    """A role that code or an agent plays."""

    name: str
    """The step's name, below `notebook/`."""
    kind: PayloadKind
    state: NotebookState
    """Where it acts first."""
    intent: str

    def prompt(self) -> str:
        """The role's own part of the prompt, as it ships."""
        return (resources.files("detent.flows.notebook.roles") / "prompts" / f"{self.name}.txt").read_text(
            encoding="utf-8"
        )


STAGE_PLANNER = Role(
    "stage_planner", "T1", NotebookState.IDLE,
    "Break the user's problem into the stages of a data-science project, each with a goal, artifacts and "
    "checkable acceptance.",
)  # fmt: skip
STEP_PLANNER = Role(
    "step_planner", "T2", NotebookState.STAGE_RUNNING,
    "Break the current stage into executable steps that together produce its artifacts.",
)  # fmt: skip
BEHAVIOR_ARRANGER = Role(
    "behavior_arranger", "T3", NotebookState.STEP_RUNNING,
    "Choose who does the next piece of work in this step, with which inputs, outputs and acceptance.",
)  # fmt: skip
ACTION_GENERATOR = Role(
    "action_generator", "T4", NotebookState.BEHAVIOR_RUNNING,
    "Write the text and code cells that produce this behavior's outputs.",
)  # fmt: skip
BEHAVIOR_REFLECTOR = Role(
    "behavior_reflector", "T5", NotebookState.BEHAVIOR_COMPLETED,
    "Judge what the behavior produced and decide whether the step is complete.",
)  # fmt: skip
STAGE_REFLECTOR = Role(
    "stage_reflector", "T6", NotebookState.STEP_COMPLETED,
    "Judge the stage's progress, keep its variables in order and decide how to go on.",
)  # fmt: skip

ROLES: Mapping[str, Role] = {
    role.name: role
    for role in (
        STAGE_PLANNER, STEP_PLANNER, BEHAVIOR_ARRANGER, ACTION_GENERATOR, BEHAVIOR_REFLECTOR, STAGE_REFLECTOR
    )
}  # fmt: skip
"""By name, in the order of the transitions."""


def role_of(state: NotebookState) -> Role | None:
    """The role that acts in a state; None in the ends."""
    return next((role for role in ROLES.values() if role.state is state), None)
