"""The kinds of steps that a workflow file can have."""

import pytest

from detent.dispatch.autonomy import StepMode
from detent.flows.workflow.step_type import StepType


def test_there_are_eight_kinds_of_step_and_no_others():
    """D-11"""
    assert {kind.value for kind in StepType} == {
        "python", "agent", "generate", "validate", "subworkflow", "branch", "loop", "checkpoint"
    }  # fmt: skip
    assert len(StepType) == 8


def test_nobody_can_add_a_kind_of_step():
    """D-11"""
    with pytest.raises(TypeError):

        class MoreTypes(StepType):  # type: ignore[misc]
            APPROVAL = "approval"

    with pytest.raises(ValueError):
        StepType("approval")


def test_only_agent_and_generate_steps_are_performed_by_agents_when_nobody_says_otherwise():
    natural = {kind for kind in StepType if kind.natural_mode is StepMode.AGENT}
    assert natural == {StepType.AGENT, StepType.GENERATE}
