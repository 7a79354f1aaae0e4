"""Misspelt and older names of states and events."""

import pytest

from detent.flows.notebook.state.machine import NotebookEvent, NotebookState
from detent.flows.notebook.state.names import read_event_name, read_state_name
from detent.kernel.errors import ConfigurationError

E, S = NotebookEvent, NotebookState


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("TRANSITION_TO_COMPELETE_STEP", E.TRANSITION_TO_COMPLETE_STEP),
        ("TRANSITION_TO_STEP_COMPLETED", E.TRANSITION_TO_COMPLETE_STEP),
        ("COMPLETE_STEP", E.TRANSITION_TO_COMPLETE_STEP),
        ("START_BEHAVIOUR", E.START_BEHAVIOR),
        ("NEXT_BEHAVIOR", E.START_BEHAVIOR),
        ("NEXT_STEP", E.START_STEP),
        ("NEXT_STAGE", E.COMPLETE_STAGE),
        ("COMPELETE_STAGE", E.COMPLETE_STAGE),
        ("COMPLETE_BEHAVIOR", E.COMPLETE_ACTION),
        ("START_ACTION", E.COMPLETE_ACTION),
        *((event.value, event) for event in E),
    ],
)
def test_an_event_is_read_by_any_of_its_names(written, meant):
    """N-66."""
    assert read_event_name(written) is meant


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("STATE_STEP_RUNNING", S.STEP_RUNNING),
        ("step_running", S.STEP_RUNNING),
        ("State_Behavior_Complete", S.BEHAVIOR_COMPLETED),
        ("STEP_COMPLETE", S.STEP_COMPLETED),
        ("WORKFLOW_COMPLETED", S.WORKFLOW_COMPLETE),
        *((state.value, state) for state in S),
    ],
)
def test_a_state_is_read_by_any_of_its_names(written, meant):
    assert read_state_name(written) is meant


def test_a_stage_that_is_complete_is_an_event_and_never_a_state():
    """N-17."""
    assert read_event_name("STAGE_COMPLETED") is E.COMPLETE_STAGE
    with pytest.raises(ConfigurationError):
        read_state_name("STAGE_COMPLETED")


@pytest.mark.parametrize("read", [read_state_name, read_event_name])
def test_an_unknown_name_is_refused_with_the_nearest(read):
    with pytest.raises(ConfigurationError, match="Did you mean"):
        read("START_STEPP" if read is read_event_name else "STEP_RUNING")
