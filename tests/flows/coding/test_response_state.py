"""Code that was written for booleans, over a machine and over a run."""

import subprocess
import sys
import warnings
from itertools import product

import pytest

from detent.flows.coding.agent_state import AgentState
from detent.flows.coding.response_state import ResponseState, warn_again
from detent.flows.coding.state_transition import CODING, AgentStateMachine
from detent.flows.coding.task_completion import Completion
from detent.kernel.state_history import RestoreError

S = AgentState
FLAGS = ("has_user_response", "task_completed", "awaiting_user_guidance", "has_final_synthesis")
DONE = "TUNACODE DONE: x"
WAYS = {
    S.USER_INPUT: [],
    S.ASSISTANT: [S.ASSISTANT],
    S.TOOL_EXECUTION: [S.ASSISTANT, S.TOOL_EXECUTION],
    S.RESPONSE: [S.ASSISTANT, S.RESPONSE],
}

pytestmark = pytest.mark.filterwarnings("ignore:Setting ResponseState:DeprecationWarning")


def at(state: S) -> AgentStateMachine:
    machine = AgentStateMachine(clock=lambda: 0.0)
    for step in WAYS[state]:
        machine.transition_to(step)
    return machine


def read(state: ResponseState) -> dict[str, bool]:
    return {name: getattr(state, name) for name in FLAGS}


def legal(machine: AgentStateMachine) -> bool:
    return all(CODING.allows(move.from_state, move.to_state) for move in machine.history)


# -- as booleans --------------------------------------------------------------------------------------------


def test_a_new_state_is_all_false():
    assert read(ResponseState()) == dict.fromkeys(FLAGS, False)


@pytest.mark.parametrize("values", list(product([False, True], repeat=4)))
def test_the_older_constructor_reads_back_what_it_was_given(values):
    """C-16"""
    given = dict(zip(FLAGS, values, strict=True))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        state = ResponseState(**given)
    assert read(state) == given
    assert state.is_complete is given["task_completed"]
    with pytest.raises(TypeError):
        ResponseState(False, True)  # type: ignore[call-arg]


@pytest.mark.parametrize("here", S)
def test_all_sequences_of_four_writes_read_back_what_plain_booleans_would(here: S):
    """C-16: after every write all four are read; from every state, by legal moves only."""
    writes = list(product(FLAGS, (True, False)))
    for sequence in product(writes, repeat=4):
        machine, unread = at(here), ResponseState(at(here))
        state, plain = ResponseState(machine), dict.fromkeys(FLAGS, False)
        for name, value in sequence:
            setattr(state, name, value)
            setattr(unread, name, value)
            plain[name] = value
            assert read(state) == plain
            assert state.is_complete is state.completed is machine.is_complete is plain["task_completed"]
            assert machine.is_complete is (machine.completion is not None and machine.state is S.RESPONSE)
        assert legal(machine)
        assert read(unread) == plain, "reading has no effect"


@pytest.mark.parametrize("values", list(product([False, True], repeat=4)))
def test_sequences_after_every_constructor_read_back_too(values):
    """C-16"""
    for sequence in product(product(FLAGS, (True, False)), repeat=2):
        plain = dict(zip(FLAGS, values, strict=True))
        machine = AgentStateMachine()
        state = ResponseState(machine, **plain)
        for name, value in sequence:
            setattr(state, name, value)
            plain[name] = value
            assert read(state) == plain
        assert legal(machine)


@pytest.mark.parametrize("here", S)
def test_completing_goes_to_response_by_legal_moves(here: S):
    """C-16, C-17"""
    machine = at(here)
    before = len(machine.history)
    state = ResponseState(machine)
    state.task_completed = True
    assert machine.state is state.state is S.RESPONSE
    assert machine.completion == Completion(0, "", "", "setter")
    made = [(move.to_state, move.reason) for move in machine.history[before:]]
    ways = {
        S.USER_INPUT: [S.ASSISTANT, S.RESPONSE],
        S.ASSISTANT: [S.RESPONSE],
        S.TOOL_EXECUTION: [S.RESPONSE],
        S.RESPONSE: [],
    }
    assert made == [(to, "compat") for to in ways[here]]
    assert legal(machine)
    state.task_completed = True
    assert len(machine.history) == before + len(made)
    state.task_completed = False
    assert machine.state is S.RESPONSE
    assert not state.task_completed
    assert machine.to_dict()["completion"] is None
    assert machine.transition_to(S.ASSISTANT), "not complete, so it goes on"


@pytest.mark.parametrize("here", S)
def test_setting_false_what_is_not_complete_changes_nothing(here: S):
    machine = at(here)
    before = machine.to_dict()
    ResponseState(machine).task_completed = False
    assert machine.to_dict() == before


def test_a_completion_by_the_reply_is_kept_when_it_is_set_too():
    machine = at(S.ASSISTANT)
    machine.note_output(DONE)
    state = ResponseState(machine)
    assert not state.task_completed
    state.task_completed = True
    assert machine.completion == Completion(1, DONE, "x", "reply")


def test_values_that_are_no_booleans_are_taken_by_their_truth():
    state = ResponseState(has_final_synthesis="yes")  # type: ignore[arg-type]
    state.has_user_response = 1  # type: ignore[assignment]
    state.awaiting_user_guidance = None  # type: ignore[assignment]
    state.task_completed = "done"  # type: ignore[assignment]
    assert list(read(state).values()) == [True, True, False, True]


# -- what they mean -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [None, "", " \n", "<think>hm</think>", "text", DONE])
@pytest.mark.parametrize("here", S)
def test_every_boolean_is_as_it_is_defined_in_every_state(here: S, text: str | None):
    """C-15"""
    machine = at(here)
    state = ResponseState(machine)
    if text is not None:
        machine.note_output(text)
    complete = here is S.RESPONSE and text == DONE
    processing = here in {S.ASSISTANT, S.TOOL_EXECUTION}
    assert state.to_flags() == {
        "completed": complete,
        "processing": processing,
        "task_completed": complete,
        "has_user_response": text in ("text", DONE),
        "awaiting_user_guidance": False,
        "has_final_synthesis": False,
    }
    assert (state.is_complete, state.is_processing) == (state.completed, state.processing)
    assert (state.is_complete, state.is_processing) == (machine.is_complete, machine.is_processing)
    assert state.state is here
    assert here.value in repr(state)


def test_completion_and_work_are_the_machines_and_cannot_be_set():
    """C-17: there is no second flag."""
    state = ResponseState()
    for name in ("is_complete", "completed", "is_processing", "processing", "state"):
        with pytest.raises(AttributeError):
            setattr(state, name, True)
    with pytest.raises(AttributeError):
        state.done = True  # type: ignore[attr-defined]


def test_a_value_that_was_set_holds_until_the_next_reply():
    machine = at(S.ASSISTANT)
    state = ResponseState(machine)
    machine.note_output("text")
    state.has_user_response = False
    state.awaiting_user_guidance = state.has_final_synthesis = True
    machine.transition_to(S.RESPONSE)
    assert list(read(state).values()) == [False, False, True, True]
    machine.transition_to(S.ASSISTANT)
    machine.note_output("")
    assert list(read(state).values()) == [True, False, False, False]
    state.has_final_synthesis = True
    assert list(read(state).values()) == [True, False, False, True], "older marks do not come back"


def test_a_reset_forgets_what_was_set():
    machine = AgentStateMachine()
    state = ResponseState(machine, **dict.fromkeys(FLAGS, True))
    machine.reset()
    assert read(state) == dict.fromkeys(FLAGS, False)
    assert state.state is S.USER_INPUT


def test_flags_that_are_not_given_leave_a_machine_as_it_is():
    machine = at(S.RESPONSE)
    machine.note_output(DONE)
    assert ResponseState(machine).task_completed
    assert not ResponseState(machine, task_completed=False).task_completed


def test_a_loop_written_for_booleans_runs_on_the_machine():
    """C-16: a driver as older code has it."""
    replies = iter(["I will read it.", "Found it.\nTUNACODE DONE: read"])
    machine = AgentStateMachine()
    state, turns = ResponseState(machine), 0
    while not state.task_completed:
        turns += 1
        machine.transition_to(S.ASSISTANT)
        machine.note_output(next(replies))
        machine.transition_to(S.RESPONSE)
        if not state.has_user_response:
            state.has_user_response = True
    assert (turns, state.has_user_response, machine.completion.summary) == (2, True, "read")


# -- warnings -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FLAGS)
def test_a_setter_warns_once_in_a_process_and_names_the_line_that_sets(name: str):
    warn_again()
    state = ResponseState()
    with pytest.warns(DeprecationWarning, match=rf"ResponseState\.{name} is deprecated") as caught:
        setattr(state, name, True)
    assert [warning.filename for warning in caught] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        setattr(state, name, False)
        setattr(ResponseState(), name, True)
    other = FLAGS[FLAGS.index(name) - 1]
    with pytest.warns(DeprecationWarning, match=other):
        setattr(ResponseState(), other, False)


def test_reading_never_warns():
    warn_again()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        state = ResponseState(task_completed=True)
        state.to_flags()
        repr(state)


def test_a_warning_that_is_an_error_sets_nothing_and_is_raised_once():
    warn_again()
    machine = AgentStateMachine()
    state = ResponseState(machine)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(DeprecationWarning):
            state.task_completed = True
        assert machine.state is S.USER_INPUT
        state.task_completed = True
    assert machine.is_complete


def test_a_fresh_process_shows_each_warning_once():
    code = (
        "from detent.flows.coding.response_state import ResponseState\n"
        "for _ in range(3):\n"
        "    state = ResponseState()\n"
        "    state.task_completed = True\n"
        "    state.has_user_response = True\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stderr.count("DeprecationWarning: Setting ResponseState.") == 2


# -- over a run ---------------------------------------------------------------------------------------------

SAID = {"role": "assistant", "content": "text"}
BY_REPLY = Completion(1, DONE, "x", "reply")._asdict()


def test_a_complete_run_reads_as_complete():
    """C-15"""
    data = {"turns": [SAID], "completion": BY_REPLY, "outcome": "completed", "summary": "x"}
    state = ResponseState.of_run(data, state="response")
    assert state.to_flags() == {
        "completed": True, "processing": False, "task_completed": True, "has_user_response": True,
        "awaiting_user_guidance": False, "has_final_synthesis": False,
    }  # fmt: skip


def test_an_incomplete_run_waits_for_guidance_and_has_a_synthesised_summary():
    """C-15"""
    data = {"turns": [], "completion": None, "outcome": "incomplete", "summary": "not finished: …"}
    state = ResponseState.of_run(data, state=S.RESPONSE)
    assert list(read(state).values()) == [False, False, True, True]
    assert not ResponseState.of_run({**data, "summary": ""}).has_final_synthesis


def test_an_open_question_waits_for_guidance_and_an_open_confirmation_does_not():
    for holds, awaiting in (
        (["ask-t1c1"], True),
        (["confirm:k:d"], False),
        ({"confirm-t1c1": 1, "ask-x": 2}, True),
    ):
        state = ResponseState.of_run({}, state="tool_execution", holds=holds)
        assert (state.awaiting_user_guidance, state.is_processing) == (awaiting, True)


@pytest.mark.parametrize(
    ("content", "has_text"),
    [
        ("text", True),
        ({"$blob": "…", "size": 9}, True),
        ("", False),
        (" \n", False),
        (None, False),
        ("<think>x", False),
    ],
)
def test_text_of_the_assistant_is_a_response(content, has_text: bool):
    data = {"turns": [{"role": "user", "content": "do it"}, {"role": "assistant", "content": content}]}
    assert ResponseState.of_run(data).has_user_response is has_text


@pytest.mark.parametrize("name", FLAGS)
def test_setters_over_a_run_raise_and_change_nothing(name: str):
    warn_again()
    data = {"turns": [SAID]}
    state = ResponseState.of_run(data, state="assistant")
    before = state.to_flags()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(AttributeError, match=f"'{name}' of a run can only be read"):
            setattr(state, name, not before[name])
    assert (state.to_flags(), data) == (before, {"turns": [SAID]})


@pytest.mark.parametrize("here", [S.USER_INPUT, S.ASSISTANT, S.TOOL_EXECUTION])
def test_a_run_that_is_complete_anywhere_but_in_response_is_refused(here: S):
    """C-29"""
    for given in ({"state": here}, {"state": here.value}):
        with pytest.raises(RestoreError, match="only 'response' can be complete"):
            ResponseState.of_run({"completion": BY_REPLY}, **given)
    with pytest.raises(RestoreError, match="only 'response' can be complete"):
        ResponseState.of_run({"completion": BY_REPLY, "state": here.value})
    assert ResponseState.of_run({"completion": BY_REPLY, "state": "response"}).is_complete


def test_a_state_that_is_none_is_refused():
    with pytest.raises(ValueError, match="no state 'done'"):
        ResponseState.of_run({}, state="done")


@pytest.mark.parametrize(
    ("data", "state"),
    [
        ({}, S.USER_INPUT),
        ({"turns": []}, S.USER_INPUT),
        ({"turns": [{"role": "user", "content": "x"}]}, S.ASSISTANT),
        ({"turns": [SAID, {"role": "nudge", "content": "go on"}]}, S.ASSISTANT),
        ({"turns": [{**SAID, "tool_calls": [{"id": "t1c1"}]}]}, S.TOOL_EXECUTION),
        ({"turns": [SAID]}, S.RESPONSE),
        ({"turns": [SAID, {"role": "tool", "content": "x"}]}, S.RESPONSE),
        ({"turns": [], "completion": BY_REPLY}, S.RESPONSE),
        ({"turns": [], "outcome": "incomplete"}, S.RESPONSE),
        ({"turns": [SAID], "state": "assistant"}, S.ASSISTANT),
    ],
)
def test_a_run_stands_where_its_turns_have_led(data, state: S):
    assert ResponseState.of_run(data).state is state
    assert ResponseState.of_run(data, state="response").state is S.RESPONSE


def test_a_view_follows_the_runs_data():
    data: dict = {"turns": [SAID], "completion": None}
    state = ResponseState.of_run(data, state="response")
    assert not state.task_completed
    data["completion"] = BY_REPLY
    assert state.task_completed
