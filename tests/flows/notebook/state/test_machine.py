"""The table of a notebook run, row by row."""

from itertools import product

import pytest

from detent.flows.notebook.state.machine import (
    ENDS,
    NOTEBOOK,
    NotebookEvent,
    NotebookState,
    NotebookStateMachine,
    check_move,
    events,
)
from detent.kernel.errors import GuardRefusedError, InvalidTransitionError
from detent.kernel.status import Status

S, E = NotebookState, NotebookEvent

LAW = {
    (S.IDLE, E.START_WORKFLOW): [S.STAGE_RUNNING],
    (S.STAGE_RUNNING, E.START_STEP): [S.STEP_RUNNING],
    (S.STEP_RUNNING, E.START_BEHAVIOR): [S.BEHAVIOR_RUNNING],
    (S.BEHAVIOR_RUNNING, E.COMPLETE_ACTION): [S.BEHAVIOR_COMPLETED],
    (S.BEHAVIOR_COMPLETED, E.TRANSITION_TO_COMPLETE_STEP): [S.STEP_COMPLETED],
    (S.BEHAVIOR_COMPLETED, E.START_BEHAVIOR): [S.BEHAVIOR_RUNNING],
    (S.STEP_COMPLETED, E.START_STEP): [S.STEP_RUNNING],
    (S.STEP_COMPLETED, E.COMPLETE_STAGE): [S.STAGE_RUNNING, S.WORKFLOW_COMPLETE],
    **{(state, E.FAIL): [S.FAILED] for state in S if state not in ENDS},
    **{(state, E.CANCEL): [S.CANCELLED] for state in S if state not in ENDS},
}
"""From, event, to: table 1.2, written once more by hand."""


class TestTheTable:
    """N-14."""

    def test_lists_exactly_the_moves_of_the_law(self):
        table = {}
        for state, row in NOTEBOOK.moves.items():
            for move in row:
                table.setdefault((state, E(move.event)), []).append(move.to)
        assert table == LAW

    @pytest.mark.parametrize(("state", "event"), list(product(S, E)))
    def test_every_other_pair_of_state_and_event_raises_and_names_the_valid_events(self, state, event):
        machine = NotebookStateMachine()
        machine.current_state = state
        leads = LAW.get((state, event))
        if leads is not None:
            assert machine.fire(event, leads[0]) is leads[0]
            assert machine.current_state is leads[0]
            return
        with pytest.raises(InvalidTransitionError) as refused:
            machine.fire(event)
        assert refused.value.valid == [valid for (here, valid) in LAW if here is state]
        assert all(valid.value in str(refused.value) for valid in refused.value.valid)
        assert machine.current_state is state
        assert not machine.history

    def test_no_pair_of_states_moves_without_an_event_of_the_table(self):
        for state, to in product(NOTEBOOK.states, NOTEBOOK.states):
            assert NOTEBOOK.allows(state, to) == any(
                here is state and to in leads for (here, _), leads in LAW.items()
            )

    def test_an_event_with_two_targets_must_say_which(self):
        with pytest.raises(InvalidTransitionError) as refused:
            check_move(S.STEP_COMPLETED, E.COMPLETE_STAGE)
        assert refused.value.valid == [S.STAGE_RUNNING, S.WORKFLOW_COMPLETE]
        with pytest.raises(InvalidTransitionError):
            check_move(S.STEP_COMPLETED, E.COMPLETE_STAGE, S.STEP_RUNNING)

    def test_an_unknown_event_is_refused_like_an_unlisted_one(self):
        with pytest.raises(InvalidTransitionError) as refused:
            NotebookStateMachine().fire("BEGIN")
        assert refused.value.valid == [E.START_WORKFLOW, E.FAIL, E.CANCEL]


@pytest.mark.parametrize(
    ("row", "event", "to"),
    [
        ("5a", E.TRANSITION_TO_COMPLETE_STEP, S.STEP_COMPLETED),
        ("5d", E.TRANSITION_TO_COMPLETE_STEP, S.STEP_COMPLETED),
        ("5b", E.START_BEHAVIOR, S.BEHAVIOR_RUNNING),
        ("5c", E.START_BEHAVIOR, S.BEHAVIOR_RUNNING),
    ],
)
def test_the_guards_refuse_a_move_that_is_not_of_the_chosen_row(row, event, to):
    # The facts chose `row`; whoever performed the step, another move is refused.
    assert NOTEBOOK.choose(S.BEHAVIOR_COMPLETED, {"row": row}, to=to, event=event.value).to is to
    other = S.STEP_COMPLETED if to is S.BEHAVIOR_RUNNING else S.BEHAVIOR_RUNNING
    with pytest.raises(GuardRefusedError):
        NOTEBOOK.choose(S.BEHAVIOR_COMPLETED, {"row": row}, to=other)


@pytest.mark.parametrize(
    ("row", "allowed"),
    [
        ("6a", {S.STEP_RUNNING}),
        ("6b", {S.STAGE_RUNNING}),
        ("6c", {S.WORKFLOW_COMPLETE}),
        ("6d", {S.STEP_RUNNING, S.STAGE_RUNNING}),
        ("6e", {S.STEP_RUNNING}),
        ("6f", set()),
    ],
)
def test_a_closed_step_moves_on_only_by_its_row(row, allowed):
    for to in (S.STEP_RUNNING, S.STAGE_RUNNING, S.WORKFLOW_COMPLETE):
        if to in allowed:
            assert NOTEBOOK.choose(S.STEP_COMPLETED, {"row": row}, to=to).to is to
        else:
            with pytest.raises(GuardRefusedError):
                NOTEBOOK.choose(S.STEP_COMPLETED, {"row": row}, to=to)


class TestEachState:
    def test_idle_takes_start_workflow_fail_and_cancel(self):
        """N-03."""
        assert events(S.IDLE) == (E.START_WORKFLOW, E.FAIL, E.CANCEL)

    def test_a_stage_is_entered_by_its_plan_or_a_completed_stage_and_left_by_a_step(self):
        """N-05."""
        assert {pair for pair, leads in LAW.items() if S.STAGE_RUNNING in leads} == _into(S.STAGE_RUNNING)
        assert _into(S.STAGE_RUNNING) == {
            (S.IDLE, E.START_WORKFLOW),
            (S.STEP_COMPLETED, E.COMPLETE_STAGE),
        }
        assert events(S.STAGE_RUNNING)[:-2] == (E.START_STEP,)

    def test_a_step_is_entered_from_a_stage_or_a_completed_step_and_left_by_a_behavior(self):
        """N-07."""
        assert _into(S.STEP_RUNNING) == {(S.STAGE_RUNNING, E.START_STEP), (S.STEP_COMPLETED, E.START_STEP)}
        assert events(S.STEP_RUNNING)[:-2] == (E.START_BEHAVIOR,)

    def test_a_behavior_is_entered_from_a_step_or_a_completed_behavior_and_left_by_its_actions(self):
        """N-09."""
        assert _into(S.BEHAVIOR_RUNNING) == {
            (S.STEP_RUNNING, E.START_BEHAVIOR),
            (S.BEHAVIOR_COMPLETED, E.START_BEHAVIOR),
        }
        assert events(S.BEHAVIOR_RUNNING)[:-2] == (E.COMPLETE_ACTION,)

    def test_a_completed_behavior_completes_its_step_or_is_followed_by_a_behavior(self):
        """N-11."""
        assert events(S.BEHAVIOR_COMPLETED)[:-2] == (E.TRANSITION_TO_COMPLETE_STEP, E.START_BEHAVIOR)

    def test_a_completed_step_is_followed_by_a_step_a_stage_or_the_end(self):
        """N-13."""
        assert events(S.STEP_COMPLETED)[:-2] == (E.START_STEP, E.COMPLETE_STAGE)

    @pytest.mark.parametrize("end", sorted(ENDS))
    def test_an_end_takes_no_event(self, end):
        """N-15."""
        assert events(end) == ()
        assert not NOTEBOOK.allowed(end)

    def test_ends_have_the_statuses_of_the_kernel(self):
        assert NOTEBOOK.ends == {S.CANCELLED: Status.CANCELLED}
        assert NOTEBOOK.may_end == {S.WORKFLOW_COMPLETE, S.FAILED}
        machine = NotebookStateMachine()
        for state in S:
            machine.current_state = state
            assert machine.is_terminal() is (state in ENDS)


def _into(state):
    return {(here, E(move.event)) for here, row in NOTEBOOK.moves.items() for move in row if move.to is state}


def test_the_machine_counts_iterations_and_restores_what_it_wrote():
    machine = NotebookStateMachine(clock=lambda: 5.0)
    for event in (E.START_WORKFLOW, E.START_STEP, E.START_BEHAVIOR, E.COMPLETE_ACTION, E.START_BEHAVIOR):
        machine.fire(event)
    assert machine.iteration_count == 2
    assert machine.history[0].context == {"event": "START_WORKFLOW"}
    again = NotebookStateMachine.from_dict(machine.to_dict())
    assert again.current_state is S.BEHAVIOR_RUNNING
    assert again.to_dict() == machine.to_dict()
