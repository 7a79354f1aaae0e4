"""Names of states, events and tags (N-66: misspelt and other names are read, canonical ones are written)."""

from __future__ import annotations

import pytest

from detent.flows.notebook.payloads.aliases import (
    EVENT_ALIASES,
    EVENTS,
    STATES,
    decision_name,
    event_name,
    state_name,
    tag_name,
)
from detent.flows.notebook.payloads.kinds import EVENT_OF


@pytest.mark.parametrize(
    ("read", "written"),
    [
        ("TRANSITION_TO_COMPELETE_STEP", "TRANSITION_TO_COMPLETE_STEP"),
        ("TRANSITION_TO_STEP_COMPLETED", "TRANSITION_TO_COMPLETE_STEP"),
        ("COMPLETE_STEP", "TRANSITION_TO_COMPLETE_STEP"),
        ("START_BEHAVIOUR", "START_BEHAVIOR"),
        ("NEXT_BEHAVIOR", "START_BEHAVIOR"),
        ("NEXT_STEP", "START_STEP"),
        ("NEXT_STAGE", "COMPLETE_STAGE"),
        ("COMPELETE_STAGE", "COMPLETE_STAGE"),
        ("COMPLETE_BEHAVIOR", "COMPLETE_ACTION"),
        ("START_ACTION", "COMPLETE_ACTION"),
        ("start_workflow", "START_WORKFLOW"),
        (" Complete Stage ", "COMPLETE_STAGE"),
    ],
)
def test_events(read, written):
    assert event_name(read) == written


@pytest.mark.parametrize(
    ("read", "written"),
    [
        ("WORKFLOW_COMPLETED", "WORKFLOW_COMPLETE"),
        ("WORKFLOW_COMPLETE", "WORKFLOW_COMPLETE"),
        ("STATE_Step_Running", "STEP_RUNNING"),
        ("state_behaviour_running", "BEHAVIOR_RUNNING"),
        ("STEP_COMPLETE", "STEP_COMPLETED"),
        ("BEHAVIOR_COMPLETE", "BEHAVIOR_COMPLETED"),
        ("STATE_WORKFLOW_COMPLETED", "WORKFLOW_COMPLETE"),
        ("idle", "IDLE"),
        ("Cancelled", "CANCELLED"),
    ],
)
def test_states(read, written):
    assert state_name(read) == written


def test_canonical_names_stay():
    assert [event_name(name) for name in EVENTS] == list(EVENTS)
    assert [state_name(name) for name in STATES] == list(STATES)
    assert set(EVENT_ALIASES.values()) <= set(EVENTS)
    assert set(EVENT_OF.values()) <= set(EVENTS)


def test_names_that_mean_nothing():
    for name in ("", "RUNNING", "STEP", "COMPLETE", "STATE_"):
        assert event_name(name) is None
        assert state_name(name) is None


def test_a_completed_stage_is_a_decision_and_no_state():
    """N-17, as far as names go."""
    assert decision_name("state_stage_complete") == "STAGE_COMPLETED"
    assert state_name("STAGE_COMPLETED") is None
    assert event_name("STAGE_COMPLETED") is None


def test_tags():
    assert tag_name("behaviour") == "behavior"
    assert tag_name("add_text") == "add-text"
    assert tag_name("add_code2run") == "add-code2run"
    assert tag_name("update_project_title") == "update-project-title"
    for name in (
        "verified_artifacts",
        "stage_reflection",
        "needs_update",
        "update_reasoning",
        "add_on",
        "goal",
    ):
        assert tag_name(name) == name
