"""The machine of a coding request: its table, its completion, and its written form."""

import json
import random
import subprocess
import sys
import threading
from enum import Enum

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detent.engine.state_machine import StateMachine
from detent.flows.coding import agent_state, response_state
from detent.flows.coding.agent_state import AgentState
from detent.flows.coding.state_transition import CODING, AgentStateMachine
from detent.flows.coding.task_completion import Completion, judge_reply
from detent.kernel.budget import Spend
from detent.kernel.entries import Ended, Entry, Moved, Started
from detent.kernel.errors import ConfigurationError, InvalidTransitionError
from detent.kernel.state_history import RestoreError
from detent.kernel.status import Status
from tests.examples import examples

S = AgentState
NOOP, YES, ERROR = "no-op", "yes", "error"

# From the specification, cell by cell.
LAW = {
    S.USER_INPUT: {S.USER_INPUT: NOOP, S.ASSISTANT: YES, S.TOOL_EXECUTION: ERROR, S.RESPONSE: ERROR},
    S.ASSISTANT: {S.USER_INPUT: ERROR, S.ASSISTANT: NOOP, S.TOOL_EXECUTION: YES, S.RESPONSE: YES},
    S.TOOL_EXECUTION: {S.USER_INPUT: ERROR, S.ASSISTANT: ERROR, S.TOOL_EXECUTION: NOOP, S.RESPONSE: YES},
    S.RESPONSE: {S.USER_INPUT: ERROR, S.ASSISTANT: YES, S.TOOL_EXECUTION: ERROR, S.RESPONSE: NOOP},
}
WAYS = {
    S.USER_INPUT: [],
    S.ASSISTANT: [S.ASSISTANT],
    S.TOOL_EXECUTION: [S.ASSISTANT, S.TOOL_EXECUTION],
    S.RESPONSE: [S.ASSISTANT, S.RESPONSE],
}
DONE = "TUNACODE DONE: fixed"
BY_HAND = Completion(0, "", "", "setter")


def at(state: S) -> AgentStateMachine:
    machine = AgentStateMachine(clock=lambda: 1.0)
    for step in WAYS[state]:
        assert machine.transition_to(step)
    return machine


def completed() -> AgentStateMachine:
    machine = at(S.RESPONSE)
    machine.note_output(DONE)
    assert machine.is_complete
    return machine


def everything(machine: AgentStateMachine) -> tuple:
    return (machine.state, machine.completion, machine.is_complete, machine.iteration_count,
            machine.has_text, list(machine.history), machine.to_dict())  # fmt: skip


# -- the table ----------------------------------------------------------------------------------------------


def test_there_are_exactly_four_states_and_each_is_documented():
    """C-01"""
    assert [(state.name, state.value) for state in S] == [
        ("USER_INPUT", "user_input"),
        ("ASSISTANT", "assistant"),
        ("TOOL_EXECUTION", "tool_execution"),
        ("RESPONSE", "response"),
    ]
    assert Enum in S.__bases__
    assert response_state.AgentState is S
    source = agent_state.__spec__.loader.get_source(agent_state.__name__)  # type: ignore[union-attr]
    lines = [line.strip() for line in source.splitlines()]
    for state in S:
        place = lines.index(f'{state.name} = "{state.value}"')
        assert lines[place + 1].startswith('"""'), f"{state} is not documented"


@pytest.mark.parametrize("here", S)
@pytest.mark.parametrize("to", S)
def test_every_pair_moves_does_nothing_or_raises_as_the_table_says(here: S, to: S):
    """C-02, C-03, C-04"""
    machine = at(here)
    before = everything(machine)
    law = LAW[here][to]
    assert machine.can_transition_to(to) is (law != ERROR)
    assert machine.can_transition_to(to.value) is (law != ERROR)
    if law == YES:
        assert machine.transition_to(to, "because") is True
        assert machine.state is machine.current_state is to
        assert (machine.history[-1].from_state, machine.history[-1].to_state) == (here, to)
        assert (machine.history[-1].reason, machine.history[-1].timestamp) == ("because", 1.0)
        assert len(machine.history) == len(before[5]) + 1
    elif law == NOOP:
        assert machine.transition_to(to) is False
        assert everything(machine) == before
    else:
        with pytest.raises(InvalidTransitionError) as refused:
            machine.transition_to(to)
        error = refused.value
        valid = [state for state in S if LAW[here][state] == YES]
        assert (error.from_state, error.to_state, error.valid) == (here, to, valid)
        for state in (here, to, *valid):
            assert state.value in str(error)
        assert everything(machine) == before


@pytest.mark.parametrize("to", S)
def test_a_complete_request_makes_no_move_until_it_is_reset(to: S):
    """C-02, C-05"""
    machine = completed()
    before = everything(machine)
    assert machine.valid_next_states() == []
    assert machine.can_transition_to(to) is (to is S.RESPONSE)
    for move in (machine.transition_to, machine.transition):
        if to is S.RESPONSE:
            assert move(to) is False
        else:
            with pytest.raises(
                InvalidTransitionError, match="the request is complete; start a new one"
            ) as no:
                move(to)
            assert (no.value.from_state, no.value.to_state, no.value.valid) == (S.RESPONSE, to, [])
        assert everything(machine) == before
    machine.reset()
    assert machine.transition_to(S.ASSISTANT)


def test_the_next_states_are_a_row_of_the_table_in_the_order_of_the_enum():
    machine = AgentStateMachine()
    for here in S:
        row = [to for to in S if LAW[here][to] == YES]
        assert machine.valid_next_states(here) == machine.valid_next_states(here.value) == row
        assert at(here).valid_next_states() == row
    machine.valid_next_states(S.RESPONSE).append(S.USER_INPUT)
    assert machine.valid_next_states(S.RESPONSE) == [S.ASSISTANT]
    with pytest.raises(ValueError, match="Did you mean 'assistant'"):
        machine.valid_next_states("asistant")


@pytest.mark.parametrize("nonsense", ["nowhere", "", "ASSISTANT", None, 3])
def test_what_is_no_state_is_refused_and_changes_nothing(nonsense):
    for machine in (*map(at, S), completed()):
        before = everything(machine)
        assert machine.can_transition_to(nonsense) is False
        with pytest.raises(InvalidTransitionError):
            machine.transition_to(nonsense)
        assert everything(machine) == before


def test_states_may_be_named_by_their_values():
    machine = AgentStateMachine()
    assert machine.transition_to("assistant")
    assert machine.state is S.ASSISTANT


def test_one_table_says_which_moves_there_are():
    """C-06"""
    assert AgentStateMachine().machine is CODING
    assert CODING.start is S.USER_INPUT
    assert {state: list(CODING.allowed(state)) for state in S} == {
        here: [to for to in S if LAW[here][to] == YES] for here in S
    }
    assert (CODING.may_end, CODING.self_moves, dict(CODING.ends)) == ({S.RESPONSE}, "noop", {})


def test_a_hundred_thousand_random_legal_moves_are_all_accepted():
    """C-30, in memory"""
    machine, chance = AgentStateMachine(), random.Random(2)
    for _ in range(100_000):
        to = chance.choice(machine.valid_next_states())
        assert machine.transition_to(to) is True
    assert len(machine.history) == 100_000
    assert machine.iteration_count == sum(move.to_state is S.ASSISTANT for move in machine.history)


def test_the_metrics_verbs_are_the_houses_own():
    machine = AgentStateMachine()
    assert isinstance(machine, StateMachine)
    machine.transition(S.ASSISTANT, {"turn": 1}, "a prompt", 0.5, 0)
    machine.transition(S.RESPONSE, duration_seconds=2.0, tokens_consumed=70)
    assert machine.get_state_metrics(S.ASSISTANT).avg_tokens == 70
    assert machine.get_total_metrics()["total_duration_seconds"] == 2.5
    assert machine.get_total_metrics()["iteration_count"] == 1
    assert machine.get_transition_metrics()["unique_transitions"] == 2
    assert machine.format_metrics_report().startswith("=== Coding Metrics Report ===")
    assert machine.history[0].context == {"turn": 1}


def test_turns_of_the_assistant_are_counted_up_to_forty():
    machine = AgentStateMachine()
    assert machine.max_iterations == 40
    for turn in range(1, 41):
        assert not machine.exceeded_max_iterations()
        machine.transition_to(S.ASSISTANT)
        machine.transition_to(S.RESPONSE)
        assert machine.iteration_count == turn
    assert machine.exceeded_max_iterations()
    with pytest.raises(ConfigurationError):
        AgentStateMachine(max_iterations=0)


@pytest.mark.parametrize(
    "bad", [{"duration_seconds": -1.0}, {"tokens_consumed": -1}, {"context": {"a": object()}}]
)
def test_a_move_that_cannot_be_recorded_neither_moves_nor_completes(bad):
    """C-04"""
    machine = at(S.ASSISTANT)
    machine.note_output(DONE)
    before = everything(machine)
    with pytest.raises((ValueError, TypeError)):
        machine.transition(S.RESPONSE, **bad)
    assert everything(machine) == before
    assert machine.transition_to(S.RESPONSE)
    assert machine.is_complete, "the text noted was not lost"


# -- completion ---------------------------------------------------------------------------------------------


def test_an_answer_without_tools_ends_the_request():
    """C-10: the seed's first manual check."""
    machine = AgentStateMachine()
    assert not machine.is_processing
    machine.transition_to(S.ASSISTANT)
    assert machine.is_processing
    machine.note_output("It is in a.py.\nTUNACODE DONE: answered")
    assert not machine.is_complete, "judged in RESPONSE only"
    machine.transition_to(S.RESPONSE)
    assert machine.is_complete
    assert not machine.is_processing
    assert machine.completion == Completion(2, "TUNACODE DONE: answered", "answered", "reply")


def test_tools_and_then_an_answer_end_the_request():
    """C-11: the seed's second manual check."""
    machine = AgentStateMachine()
    machine.transition_to(S.ASSISTANT)
    machine.note_output("I will read it.")
    machine.transition_to(S.TOOL_EXECUTION)
    assert machine.is_processing
    machine.transition_to(S.RESPONSE)
    assert not machine.is_complete
    machine.transition_to(S.ASSISTANT)
    machine.note_output(DONE)
    machine.transition_to(S.RESPONSE)
    assert machine.is_complete
    assert [move.to_state.value for move in machine.history] == [
        "assistant", "tool_execution", "response", "assistant", "response",
    ]  # fmt: skip


def test_a_failed_tool_is_tried_again_and_the_request_ends():
    """C-12: the seed's third manual check."""
    machine = at(S.TOOL_EXECUTION)
    machine.transition_to(S.RESPONSE)
    machine.note_output("The command failed; I try another way.")
    assert not machine.is_complete
    machine.transition_to(S.ASSISTANT)
    machine.transition_to(S.TOOL_EXECUTION)
    machine.transition_to(S.RESPONSE)
    machine.note_output(DONE)
    assert machine.is_complete, "in RESPONSE a text is judged at once, after tools too"


PREMATURE = {
    "announced": "I will read the file now.",
    "untrue": "Done! Everything works.",
    "fenced": "```\nTUNACODE DONE: x\n```",
    "mid-line": "When I am ready I write TUNACODE DONE: fixed",
    "thinking": "<think>\nTUNACODE DONE: maybe\n</think>\nLet me look.",
    "call as text": '{"tool": "bash", "arguments": {"command": "ls"}}\nTUNACODE DONE: ran it',
    "blank": " \n ",
    "question": "Which of the two files do you mean?",
}


@pytest.mark.parametrize("text", PREMATURE.values(), ids=PREMATURE)
def test_known_premature_replies_loop_back_to_the_assistant(text: str):
    """C-13: the seed's fourth manual check."""
    machine = at(S.ASSISTANT)
    machine.note_output(text)
    machine.transition_to(S.RESPONSE)
    assert not machine.is_complete
    assert machine.transition_to(S.ASSISTANT)
    machine.transition_to(S.RESPONSE)
    assert not machine.is_complete, "a text is judged once"


def test_a_marker_that_repeats_a_tool_result_does_not_complete():
    machine = at(S.ASSISTANT)
    machine.note_output(DONE, tool_lines=["# notes", "  tunacode done: FIXED "])
    machine.transition_to(S.RESPONSE)
    assert not machine.is_complete
    machine.note_output(DONE)
    assert machine.is_complete


def test_a_marker_beside_tool_calls_is_dropped_when_the_tools_run():
    """C-09, as far as the machine alone shows it"""
    machine = at(S.ASSISTANT)
    machine.note_output(DONE)
    machine.transition_to(S.TOOL_EXECUTION)
    machine.note_output(DONE)
    machine.transition_to(S.RESPONSE)
    assert not machine.is_complete
    assert machine.transition_to(S.ASSISTANT)


def test_a_second_text_of_a_turn_takes_the_place_of_the_first():
    machine = at(S.ASSISTANT)
    machine.note_output(DONE)
    machine.note_output("On second thoughts, let me look again.")
    machine.transition_to(S.RESPONSE)
    assert not machine.is_complete


def test_the_names_of_further_tools_can_be_given():
    call = '{"name": "fetch_page", "arguments": {"url": "x"}}\nTUNACODE DONE: x'
    for names, complete in ((["fetch_page"], False), (["bash"], True)):
        machine = AgentStateMachine(known_tools=names)
        machine.transition_to(S.ASSISTANT)
        machine.note_output(call)
        machine.transition_to(S.RESPONSE)
        assert machine.is_complete is complete


@pytest.mark.parametrize("text", ["", "\x00", "\ud800", "TUNACODE DONE: \ud800", "<think>", "```"])
def test_any_text_can_be_noted(text: str):
    machine = at(S.RESPONSE)
    machine.note_output(text)
    assert machine.is_complete is text.startswith("TUNACODE")
    json.loads(json.dumps(machine.to_dict()))


def test_what_completed_a_request_first_stays():
    machine = completed()
    first = machine.completion
    machine.note_output("TUNACODE DONE: again")
    machine.note_output("not done after all")
    machine.complete(BY_HAND)
    assert machine.completion is first


@pytest.mark.parametrize("state", [S.USER_INPUT, S.ASSISTANT, S.TOOL_EXECUTION])
def test_only_response_can_be_complete(state: S):
    """C-29"""
    machine = at(state)
    machine.note_output(DONE)
    assert not machine.is_complete
    with pytest.raises(InvalidTransitionError, match="Only RESPONSE can be complete"):
        machine.complete(BY_HAND)
    assert machine.completion is None
    with pytest.raises(AttributeError):
        machine.is_complete = True  # type: ignore[misc]
    with pytest.raises(AttributeError):
        machine.completion = BY_HAND  # type: ignore[misc]
    machine = completed()
    machine.current_state = state
    assert (machine.is_complete, machine.completion) == (False, None)
    machine.current_state = S.RESPONSE.value
    assert not machine.is_complete, "a completion does not come back with the state"


def test_staying_where_it_is_keeps_a_completion():
    machine = completed()
    machine.current_state = S.RESPONSE
    assert machine.is_complete


def test_a_reset_begins_a_new_request():
    machine = completed()
    machine.reset()
    assert everything(machine) == everything(AgentStateMachine())
    machine.transition_to(S.ASSISTANT)
    machine.note_output(DONE)
    machine.reset()
    machine.transition_to(S.ASSISTANT)
    machine.transition_to(S.RESPONSE)
    assert not machine.is_complete, "a text of the request before is forgotten"


# -- written form -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("complete", [False, True])
@pytest.mark.parametrize("state", S)
def test_a_machine_is_read_back_as_it_was_written(state: S, complete: bool):
    """C-29"""
    machine = at(state)
    if complete:
        machine.note_output(DONE)
    plain = json.loads(json.dumps(machine.to_dict()))
    assert plain["current_state"] == state.value
    back = AgentStateMachine.from_dict(plain, clock=lambda: 1.0)
    assert everything(back) == everything(machine)
    assert back.is_complete is (complete and state is S.RESPONSE)
    if plain["completion"] is None:
        plain = {**plain, "completion": BY_HAND._asdict()}
        if state is S.RESPONSE:
            assert AgentStateMachine.from_dict(plain).completion == BY_HAND
        else:
            with pytest.raises(RestoreError, match="only 'response' can be complete") as no:
                AgentStateMachine.from_dict(plain)
            assert no.value.field == "completion"


@pytest.mark.parametrize(
    ("field", "value", "names"),
    [
        ("completion", "done", "completion"),
        ("completion", True, "completion"),
        ("completion", {**BY_HAND._asdict(), "line_no": -1}, "line_no"),
        ("completion", {**BY_HAND._asdict(), "line_no": True}, "line_no"),
        ("completion", {**BY_HAND._asdict(), "summary": None}, "summary"),
        ("completion", {**BY_HAND._asdict(), "marker_line": 1}, "marker_line"),
        ("completion", {**BY_HAND._asdict(), "source": "the model"}, "source"),
        ("has_text", "yes", "has_text"),
        ("current_state", "end", "current_state"),
        ("machine", {"name": "refine"}, "machine"),
    ],
)
def test_what_cannot_be_read_back_is_refused_by_the_name_of_its_field(field: str, value, names: str):
    plain = {**at(S.RESPONSE).to_dict(), field: value}
    with pytest.raises(RestoreError, match=names):
        AgentStateMachine.from_dict(plain)


def journal(*bodies) -> list[Entry]:
    started = Started(flow="coding", state="user_input", machine="coding", version=1, fingerprint="f")
    return [Entry(seq, float(seq), 1, body) for seq, body in enumerate([started, *bodies], 1)]


def test_a_journal_adds_up_to_a_machine():
    reply = {"role": "assistant", "content": DONE}
    completion = Completion(1, DONE, "fixed", "reply")
    prompt = {"turns": [{"role": "user", "content": "x"}]}
    entries = journal(
        Moved("user_input", "assistant", duration=0.5, iteration=True, append=prompt),
        Moved("assistant", "response", spend=Spend(input_tokens=7), append={"turns": [reply]}),
        Ended(Status.SUCCEEDED, set={"completion": completion._asdict()}),
    )
    machine = AgentStateMachine.from_journal(entries)
    assert (machine.state, machine.completion, machine.is_complete) == (S.RESPONSE, completion, True)
    assert (machine.iteration_count, machine.has_text, machine.max_iterations) == (1, True, 40)
    assert machine.get_state_metrics(S.ASSISTANT).total_tokens == 7
    on_the_way = AgentStateMachine.from_journal(iter(entries[:2]))
    assert (on_the_way.state, on_the_way.completion, on_the_way.has_text) == (S.ASSISTANT, None, False)
    with pytest.raises(RestoreError, match="only 'response' can be complete"):
        AgentStateMachine.from_journal([*entries[:2], entries[3]])


# -- no impossible pair -------------------------------------------------------------------------------------

TEXTS = ["", "text", DONE, f"```\n{DONE}\n```", "TUNACODE_TASK_COMPLETE", f"<think>{DONE}"]
ACTS = st.one_of(
    st.tuples(st.just("move"), st.sampled_from([*S, "response", "nowhere"])),
    st.tuples(st.just("note"), st.sampled_from(TEXTS)),
    st.tuples(st.just("put"), st.sampled_from(list(S))),
    st.tuples(st.sampled_from(["reset", "complete", "clear", "reload"]), st.none()),
)


@settings(max_examples=examples(1500))
@given(st.lists(ACTS, max_size=30))
def test_no_pair_of_state_and_completion_but_response_can_be_built_loaded_or_saved(acts):
    """C-29, C-05"""
    machine = AgentStateMachine()
    for act, value in acts:
        was_complete, moves = machine.is_complete, len(machine.history)
        try:
            match act:
                case "move":
                    expected = machine.can_transition_to(value)
                    machine.transition_to(value)
                    assert expected, f"moved to {value} from {machine.state}"
                case "note":
                    machine.note_output(value)
                case "put":
                    machine.current_state = value
                    machine.history.clear()
                case "reset":
                    machine.reset()
                case "complete":
                    machine.complete(BY_HAND)
                case "clear":
                    machine.clear_completion()
                case "reload":
                    machine = AgentStateMachine.from_dict(machine.to_dict())
        except InvalidTransitionError:
            assert machine.is_complete is was_complete
            assert len(machine.history) == moves
        if was_complete and act in ("move", "note", "complete", "reload"):
            assert machine.is_complete
        assert machine.is_complete is (machine.completion is not None)
        assert not machine.is_complete or machine.state is S.RESPONSE
        assert machine.is_processing is (machine.state in {S.ASSISTANT, S.TOOL_EXECUTION})
        plain = machine.to_dict()
        assert plain["completion"] is None or plain["current_state"] == "response"


@settings(max_examples=examples(1000))
@given(st.lists(st.one_of(st.sampled_from(list(S)), st.sampled_from(TEXTS)), max_size=25))
def test_a_text_completes_in_response_only_and_only_if_no_tool_ran_after_it(acts):
    """C-08, C-09, C-17: against the rule written out once more."""
    machine, here, kept, done = AgentStateMachine(), S.USER_INPUT, "", False
    for act in acts:
        if isinstance(act, str):
            machine.note_output(act)
            if here is S.RESPONSE:
                done = done or judge_reply(act).completion is not None
            elif here is not S.TOOL_EXECUTION:
                kept = act
        elif act is not here and LAW[here][act] == YES and not done:
            assert machine.transition_to(act)
            if (here, act) == (S.ASSISTANT, S.RESPONSE):
                done = judge_reply(kept).completion is not None
            kept = kept if act is S.ASSISTANT else ""
            here = act
        else:
            assert machine.can_transition_to(act) is (act is here)
        assert (machine.state, machine.is_complete) == (here, done)


def test_readers_beside_a_driver_never_see_an_impossible_pair():
    machine, over, wrong = AgentStateMachine(), threading.Event(), []

    def read() -> None:
        while not over.is_set():
            plain = machine.to_dict()
            if plain["completion"] is not None and plain["current_state"] != "response":
                wrong.append(plain)
            if machine.completion not in (None, fixed) or machine.state not in S:
                wrong.append((machine.completion, machine.state))
            machine.can_transition_to(S.ASSISTANT)
            machine.valid_next_states()

    fixed = Completion(1, DONE, "fixed", "reply")
    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    try:
        for _ in range(1000):
            machine.transition_to(S.ASSISTANT)
            machine.note_output(DONE)
            machine.transition_to(S.RESPONSE)
            assert machine.completion == fixed
            machine.reset()
    finally:
        over.set()
        for reader in readers:
            reader.join()
    assert wrong == []


def test_the_machine_needs_no_driver_store_or_terminal():
    code = (
        "import sys\n"
        "from detent.flows.coding.response_state import ResponseState\n"
        "heavy = {'asyncio', 'rich', 'typer', 'pydantic', 'detent.engine.driver', 'detent.adapters'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
