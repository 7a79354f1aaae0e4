"""The unit tests of seed 001 as they are written there, but for the correction of R-06."""

import pytest

from detent.kernel.errors import InvalidTransitionError
from detent.refine import OrchestrationState, OrchestrationStateMachine


def test_state_machine_transitions():
    sm = OrchestrationStateMachine()

    # Valid transition
    assert sm.can_transition_to(OrchestrationState.PLANNING)
    sm.transition(OrchestrationState.PLANNING)
    assert sm.current_state == OrchestrationState.PLANNING

    # Invalid transition
    assert not sm.can_transition_to(OrchestrationState.SUCCEEDED)
    with pytest.raises(InvalidTransitionError):
        sm.transition(OrchestrationState.SUCCEEDED)


def test_terminal_states():
    sm = OrchestrationStateMachine()
    sm.current_state = OrchestrationState.SUCCEEDED

    assert sm.is_terminal()
    assert not sm.can_transition_to(OrchestrationState.PLANNING)


def test_metrics_tracking():
    sm = OrchestrationStateMachine()

    # Transition with metrics
    sm.transition(OrchestrationState.PLANNING, duration_seconds=10.5, tokens_consumed=500)

    # Get metrics
    metrics = sm.get_state_metrics(OrchestrationState.INITIALIZED)
    assert metrics.total_duration_seconds == 10.5
    assert metrics.total_tokens == 500
    assert metrics.visit_count == 1


def test_bottleneck_analysis():
    """R-06: time and tokens belong to the state that is left, so it is `validating`."""
    sm = OrchestrationStateMachine()

    # Simulate multiple transitions
    sm.transition(OrchestrationState.PLANNING, duration_seconds=5.0, tokens_consumed=100)
    sm.transition(OrchestrationState.VALIDATING, duration_seconds=1.0, tokens_consumed=0)
    sm.transition(OrchestrationState.IMPLEMENTING, duration_seconds=15.0, tokens_consumed=800)

    bottlenecks = sm.get_bottleneck_analysis()
    assert bottlenecks["slowest_state"]["state"] == "validating"
    assert bottlenecks["highest_token_state"]["state"] == "validating"
