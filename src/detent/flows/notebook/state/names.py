"""States and events as files spell them: every accepted spelling, and the one that is written."""

from __future__ import annotations

from detent.flows.notebook.state.machine import NotebookEvent, NotebookState
from detent.kernel.errors import ConfigurationError, nearest

_E = NotebookEvent

_EVENTS = {
    "TRANSITION_TO_COMPELETE_STEP": _E.TRANSITION_TO_COMPLETE_STEP,
    "TRANSITION_TO_STEP_COMPLETED": _E.TRANSITION_TO_COMPLETE_STEP,
    "COMPLETE_STEP": _E.TRANSITION_TO_COMPLETE_STEP,
    "START_BEHAVIOUR": _E.START_BEHAVIOR,
    "NEXT_BEHAVIOR": _E.START_BEHAVIOR,
    "NEXT_STEP": _E.START_STEP,
    "NEXT_STAGE": _E.COMPLETE_STAGE,
    "COMPELETE_STAGE": _E.COMPLETE_STAGE,
    "COMPLETE_BEHAVIOR": _E.COMPLETE_ACTION,
    "START_ACTION": _E.COMPLETE_ACTION,
    # On the wire a decision, never a state.
    "STAGE_COMPLETED": _E.COMPLETE_STAGE,
} | {event.value: event for event in NotebookEvent}

_STATES = {
    "WORKFLOW_COMPLETED": NotebookState.WORKFLOW_COMPLETE,
    "BEHAVIOR_COMPLETE": NotebookState.BEHAVIOR_COMPLETED,
    "STEP_COMPLETE": NotebookState.STEP_COMPLETED,
} | {state.value: state for state in NotebookState}


def read_state_name(text: str) -> NotebookState:
    """The state that a text names, in any case and with or without the prefix `STATE_`.

    Raises:
        ConfigurationError: there is no such state.
    """
    name = text.strip().upper().removeprefix("STATE_")
    try:
        return _STATES[name]
    except KeyError:
        raise ConfigurationError(
            f"There is no state '{text}'.{nearest(name, _STATES)} "
            f"States: {', '.join(state.value for state in NotebookState)}."
        ) from None


def read_event_name(text: str) -> NotebookEvent:
    """The event that a text names, misspelt ones of older files included.

    Raises:
        ConfigurationError: there is no such event.
    """
    name = text.strip().upper()
    try:
        return _EVENTS[name]
    except KeyError:
        raise ConfigurationError(
            f"There is no event '{text}'.{nearest(name, _EVENTS)} "
            f"Events: {', '.join(event.value for event in NotebookEvent)}."
        ) from None
