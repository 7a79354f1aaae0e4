"""The orchestration's state machine, requirement by requirement."""

import json
import os
import subprocess
import sys
from itertools import product

import pytest
import structlog

from detent.engine.state_machine import StateMachine
from detent.flows.refine.state_machine import (
    REFINE,
    OrchestrationState,
    OrchestrationStateMachine,
    starts_iteration,
)
from detent.kernel.budget import Spend
from detent.kernel.entries import Entry, Moved, Started
from detent.kernel.errors import InvalidTransitionError
from detent.kernel.state_history import RestoreError
from detent.kernel.status import Status

S = OrchestrationState

LAW = {
    S.INITIALIZED: [S.PLANNING, S.FAILED],
    S.PLANNING: [S.VALIDATING, S.FAILED, S.BUDGET_EXHAUSTED],
    S.VALIDATING: [S.IMPLEMENTING, S.PLANNING, S.FAILED],
    S.IMPLEMENTING: [S.JUDGING, S.FAILED, S.BUDGET_EXHAUSTED],
    S.JUDGING: [S.SUCCEEDED, S.IMPLEMENTING, S.PLANNING, S.FAILED, S.BUDGET_EXHAUSTED],
}
ENDS = {S.SUCCEEDED, S.FAILED, S.BUDGET_EXHAUSTED}

TWO_PLANS = [
    (S.PLANNING, 0.0, 0),
    (S.VALIDATING, 4.2, 1200),
    (S.PLANNING, 0.01, 0),
    (S.VALIDATING, 3.8, 1100),
    (S.IMPLEMENTING, 0.01, 0),
    (S.JUDGING, 6.0, 2400),
    (S.SUCCEEDED, 2.0, 900),
]

REPORT = """\
=== Orchestration Metrics Report ===

Final State: succeeded
Iterations: 2 / 3
Total Duration: 16.02s
Total Tokens: 5,600
Total Transitions: 7

--- State Visit Counts ---
  implementing: 1
  initialized: 1
  judging: 1
  planning: 2
  validating: 2

--- Bottleneck Analysis ---
Slowest State: implementing
  Avg Duration: 6.00s
  Total Duration: 6.00s
  Visits: 1

Highest Token State: implementing
  Avg Tokens: 2400
  Total Tokens: 2,400
  Visits: 1

--- Transition Patterns ---
Most Common: planning → validating (2x)
Unique Transitions: 6"""


@pytest.fixture
def sm() -> OrchestrationStateMachine:
    return OrchestrationStateMachine()


@pytest.fixture
def logged():
    with structlog.testing.capture_logs() as events:
        yield events
    structlog.reset_defaults()


def walk(sm: OrchestrationStateMachine, *hops) -> OrchestrationStateMachine:
    for state, duration, tokens in hops:
        assert sm.transition(state, duration_seconds=duration, tokens_consumed=tokens)
    return sm


def at(state: S) -> OrchestrationStateMachine:
    machine = OrchestrationStateMachine()
    machine.current_state = state
    return machine


def test_there_are_exactly_eight_states():
    """R-01"""
    assert {state.name: state.value for state in S} == {
        "INITIALIZED": "initialized",
        "PLANNING": "planning",
        "VALIDATING": "validating",
        "IMPLEMENTING": "implementing",
        "JUDGING": "judging",
        "SUCCEEDED": "succeeded",
        "FAILED": "failed",
        "BUDGET_EXHAUSTED": "budget_exhausted",
    }


def test_a_new_machine_is_initialized_and_empty(sm):
    """R-01"""
    assert sm.current_state is S.INITIALIZED
    assert (sm.history, sm.iteration_count, sm.max_iterations) == ([], 0, 3)


def test_the_table_and_the_ends_are_attributes_of_the_class():
    assert OrchestrationStateMachine.VALID_TRANSITIONS == LAW
    assert OrchestrationStateMachine.TERMINAL_STATES == ENDS


def test_each_end_is_the_status_of_its_name():
    assert dict(REFINE.ends) == {
        S.SUCCEEDED: Status.SUCCEEDED,
        S.FAILED: Status.FAILED,
        S.BUDGET_EXHAUSTED: Status.BUDGET_EXHAUSTED,
    }


@pytest.mark.parametrize(("frm", "to"), list(product(S, S)))
def test_each_of_the_64_pairs_is_allowed_or_refused_as_the_table_says(frm, to):
    """R-02, R-04, R-05, R-10"""
    machine = at(frm)
    allowed = to in LAW.get(frm, [])
    assert machine.can_transition_to(to) is machine.can_transition_to(to.value) is allowed
    assert machine.is_terminal() is (frm in ENDS)
    if allowed:
        assert machine.transition(to) is True
        assert machine.current_state is to
        assert [(made.from_state, made.to_state) for made in machine.history] == [(frm, to)]
        return
    if frm in ENDS:
        assert machine.transition(to) is False
    else:
        with pytest.raises(InvalidTransitionError) as refused:
            machine.transition(to)
        assert refused.value.valid == LAW[frm]
    assert (machine.current_state, machine.history, machine.iteration_count) == (frm, [], 0)


def test_a_move_records_when_why_what_and_how_much():
    """R-03"""
    machine = OrchestrationStateMachine(clock=lambda: 1790000000.25)
    machine.transition(S.PLANNING, {"plan": {"bars": [1]}}, "go", 4.2, 1200)
    (made,) = machine.history
    assert made.to_dict() == {
        "from_state": "initialized",
        "to_state": "planning",
        "timestamp": 1790000000.25,
        "reason": "go",
        "context": {"plan": {"bars": [1]}},
        "duration_seconds": 4.2,
        "tokens_consumed": 1200,
    }


def test_a_refusal_names_both_states_and_the_valid_ones(sm):
    """R-04"""
    with pytest.raises(InvalidTransitionError) as refused:
        sm.transition(S.SUCCEEDED)
    assert str(refused.value) == (
        "Invalid transition: initialized → succeeded. Valid transitions: ['planning', 'failed']"
    )


@pytest.mark.parametrize("end", sorted(ENDS))
def test_leaving_an_end_is_refused_with_a_warning(end, logged):
    """R-05, R-17"""
    assert at(end).transition(S.PLANNING) is False
    assert logged == [
        {"event": "state.move_refused", "log_level": "warning", "end": end.value, "wanted": "planning"}
    ]


def test_time_and_tokens_are_credited_to_the_state_that_was_left(sm):
    """R-06"""
    walk(sm, (S.PLANNING, 5.0, 100), (S.VALIDATING, 1.0, 0), (S.IMPLEMENTING, 15.0, 800))
    analysis = sm.get_bottleneck_analysis()
    assert analysis["slowest_state"]["state"] == "validating"
    assert analysis["highest_token_state"]["state"] == "validating"


def test_the_first_move_is_paid_by_the_initial_state(sm):
    """R-07"""
    walk(sm, (S.PLANNING, 10.5, 500))
    metrics = sm.get_state_metrics(S.INITIALIZED)
    assert (metrics.total_duration_seconds, metrics.total_tokens, metrics.visit_count) == (10.5, 500, 1)


@pytest.mark.parametrize(("frm", "to"), [(frm, to) for frm, row in LAW.items() for to in row])
def test_leaving_planning_and_refining_an_implementation_count_and_nothing_else(frm, to):
    """R-08"""
    machine = at(frm)
    machine.transition(to)
    expected = frm is S.PLANNING or (frm, to) == (S.JUDGING, S.IMPLEMENTING)
    assert machine.iteration_count == expected
    assert starts_iteration(frm, to) is expected


def test_the_third_iteration_of_three_is_the_last(sm):
    """R-09"""
    walk(sm, (S.PLANNING, 0.0, 0), (S.VALIDATING, 0.0, 0), (S.PLANNING, 0.0, 0), (S.VALIDATING, 0.0, 0))
    assert (sm.iteration_count, sm.exceeded_max_iterations()) == (2, False)
    walk(sm, (S.IMPLEMENTING, 0.0, 0), (S.JUDGING, 0.0, 0), (S.IMPLEMENTING, 0.0, 0))
    assert (sm.iteration_count, sm.exceeded_max_iterations()) == (3, True)


def test_the_five_working_states_have_metrics(sm):
    """R-11"""
    assert list(sm.get_all_state_metrics()) == list(S)[:5]


def test_totals_have_exactly_six_keys(sm):
    """R-12"""
    walk(sm, *TWO_PLANS)
    assert sm.get_total_metrics() == {
        "total_duration_seconds": pytest.approx(16.02),
        "total_tokens": 5600,
        "total_transitions": 7,
        "iteration_count": 2,
        "state_visits": {"initialized": 1, "planning": 2, "validating": 2, "implementing": 1, "judging": 1},
        "current_state": "succeeded",
    }


def test_costs_are_divided_by_iterations(sm):
    """R-14"""
    analysis = walk(sm, *TWO_PLANS).get_bottleneck_analysis()
    assert analysis["avg_duration_per_iteration"] == pytest.approx(8.01)
    assert analysis["avg_tokens_per_iteration"] == 2800


def test_the_report_is_this_text(sm):
    """R-15"""
    assert walk(sm, *TWO_PLANS).format_metrics_report() == REPORT


def test_the_report_of_a_new_machine_ends_at_the_visit_counts(sm):
    """R-15"""
    assert sm.format_metrics_report() == (
        "=== Orchestration Metrics Report ===\n\nFinal State: initialized\nIterations: 0 / 3\n"
        "Total Duration: 0.00s\nTotal Tokens: 0\nTotal Transitions: 0\n\n--- State Visit Counts ---"
    )


def test_each_move_is_logged_with_its_six_facts(sm, logged):
    """R-17"""
    walk(sm, *TWO_PLANS)
    assert [event["event"] for event in logged] == ["state.moved"] * 7
    assert logged[1] == {
        "event": "state.moved",
        "log_level": "info",
        "from": "planning",
        "to": "validating",
        "iteration": 1,
        "duration_s": 4.2,
        "tokens": 1200,
        "reason": None,
    }


def test_all_it_writes_is_json_without_infinities(sm):
    """R-33"""
    for machine in (sm, walk(OrchestrationStateMachine(), *TWO_PLANS)):
        metrics = [each.to_dict() for each in machine.get_all_state_metrics().values()]
        json.dumps(
            [machine.to_dict(), metrics, machine.get_total_metrics(), machine.get_bottleneck_analysis()],
            allow_nan=False,
        )


def test_it_survives_being_written_and_read(sm):
    sm.max_iterations = 5
    walk(sm, *TWO_PLANS)
    written = json.dumps(sm.to_dict())
    read = OrchestrationStateMachine.from_dict(json.loads(written))
    assert type(read) is OrchestrationStateMachine
    assert (read.history, read.iteration_count, read.max_iterations) == (sm.history, 2, 5)
    assert json.dumps(read.to_dict()) == written
    assert read.format_metrics_report() == sm.format_metrics_report()


def test_a_machine_that_was_read_goes_on_counting(sm):
    walk(sm, *TWO_PLANS[:1])
    read = OrchestrationStateMachine.from_dict(sm.to_dict(), clock=lambda: 5.0)
    read.transition(S.VALIDATING)
    assert read.iteration_count == 1
    assert read.history[-1].timestamp == 5.0


def test_a_written_machine_of_another_table_is_refused(sm):
    written = {**sm.to_dict(), "machine": {"name": "refine", "version": 9, "fingerprint": "x"}}
    with pytest.raises(RestoreError, match="version 9 → 1"):
        OrchestrationStateMachine.from_dict(written)


def test_it_is_a_fold_of_a_journal():
    entries = [
        Entry(1, 10.0, 1, Started("refine", "initialized", "refine", 1, REFINE.fingerprint)),
        Entry(2, 11.0, 1, Moved("initialized", "planning")),
        Entry(
            3, 15.0, 1, Moved("planning", "validating", duration=4.0, spend=Spend(1000, 200), iteration=True)
        ),
    ]
    folded = OrchestrationStateMachine.from_journal(entries, max_iterations=4)
    assert type(folded) is OrchestrationStateMachine
    assert (folded.current_state, folded.iteration_count, folded.max_iterations) == (S.VALIDATING, 1, 4)
    assert folded.get_state_metrics(S.PLANNING).total_tokens == 1200
    assert [made.timestamp for made in folded.history] == [11.0, 15.0]


def test_it_is_a_thin_name_over_the_shared_object():
    assert issubclass(OrchestrationStateMachine, StateMachine)
    assert OrchestrationStateMachine().machine is REFINE


def test_it_can_be_used_with_no_engine_near():
    """R-37"""
    code = """
import sys
before = set(sys.modules)
from detent.flows.refine.state_machine import OrchestrationStateMachine
OrchestrationStateMachine().transition("planning")
print("\\n".join(sorted(set(sys.modules) - before)))
"""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    loaded = run.stdout.split()
    foreign = {"asyncio", "sqlite3", "structlog", "pydantic", "yaml", "typer", "rich", "numpy", "librosa"}
    assert not foreign & {name.partition(".")[0] for name in loaded}
    engine = {name for name in loaded if name.startswith("detent.engine.")}
    assert engine == {"detent.engine.logger", "detent.engine.state_machine"}
    rooms = {name.split(".")[1] for name in loaded if name.startswith("detent.")}
    assert rooms == {"front_door", "engine", "kernel", "flows"}
