"""The kinds of steps that a workflow file can have."""

from __future__ import annotations

from enum import Enum

from detent.dispatch.autonomy import StepMode


class StepType(str, Enum):
    """Kinds of steps of a workflow file."""

    PYTHON = "python"
    AGENT = "agent"
    GENERATE = "generate"
    VALIDATE = "validate"
    SUBWORKFLOW = "subworkflow"
    BRANCH = "branch"
    LOOP = "loop"
    CHECKPOINT = "checkpoint"

    @property
    def natural_mode(self) -> StepMode:
        """Mode of a step of this kind that configures none."""
        return StepMode.AGENT if self in (StepType.AGENT, StepType.GENERATE) else StepMode.DETERMINISTIC
