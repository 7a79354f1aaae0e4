"""A session record keeps everything, and no session can be in a place that there is not."""

from __future__ import annotations

import copy
from itertools import product

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detent.flows.coding.response_state import AgentState
from detent.flows.coding.sessions.file_schema import problems_of, schema
from detent.flows.coding.sessions.record import (
    STATES,
    SessionInvalid,
    SessionRecord,
    SessionTooNew,
)
from detent.flows.coding.task_completion import Completion
from tests.examples import examples

ID = "2026-03-02_09-15-00_fix-parser_9f2c11"
DONE = {"line_no": 3, "marker_line": "TUNACODE DONE: fixed", "summary": "fixed", "source": "reply"}
VALIDATOR = jsonschema.Draft202012Validator(schema())


def session(**changes):
    """The file of the specification."""
    return {
        "schema": "detent.coding.session", "schema_version": 1, "session_id": ID,
        "created_at": "2026-03-02T09:15:00Z", "updated_at": "2026-03-02T09:16:00Z", "workspace": "/w",
        "model": None, "state": "response", "is_complete": True, "completion": DONE, "outcome": "completed",
        "outcome_reason": None, "checked": "none", "hold": None,
        "counters": {"iterations": 4, "unproductive": 0, "premature": 1, "refused": 0, "suspicious": 0,
                     "tool_calls": 6},
        "run_ids": ["r1"], "todos": [{"id": "1", "content": "x", "status": "pending", "priority": "low"}],
        "messages": [
            {"role": "user", "content": "fix it", "at": "2026-03-02T09:15:00Z", "run_id": "r1"},
            {"role": "assistant", "content": "…",
             "tool_calls": [{"id": "t1c1", "tool": "read_file", "args": {"filepath": "p.py"}}]},
            {"role": "tool", "tool_call_id": "t1c1", "tool": "read_file", "ok": True, "content": "…",
             "truncated": False},
            {"role": "nudge", "kind": "no_marker", "content": "…"},
        ],
        "files_changed": ["p.py"], "usage": {"input_tokens": 0, "output_tokens": 0, "cost_usd": 0.0},
        "legacy": {"completed": True, "processing": False, "task_completed": True, "has_user_response": True,
                   "awaiting_user_guidance": False, "has_final_synthesis": False},
        "migration": None, **changes,
    }  # fmt: skip


class TestContent:
    def test_the_file_of_the_specification_is_a_session(self):
        record = SessionRecord.from_plain(session())
        VALIDATOR.validate(session())
        assert record.to_plain() == session()
        assert list(record.to_plain()) == list(session())
        assert (record.state, record.is_complete) == (AgentState.RESPONSE, True)
        assert record.completion == Completion(3, "TUNACODE DONE: fixed", "fixed", "reply")
        assert record.counters["tool_calls"] == 6
        assert record.prompt == "fix it"
        assert record.assistant_turns == 1
        assert record.usage == {"input_tokens": 0, "output_tokens": 0, "cost_usd": 0.0}
        assert record.legacy_flags() == session()["legacy"]
        assert [turn["role"] for turn in record.turns] == ["user", "assistant", "tool", "nudge"]
        assert repr(record) == f"SessionRecord({ID}: response, complete)"

    def test_states_are_stored_as_the_four_strings_of_the_enum(self):
        """C-22"""
        assert tuple(state.value for state in AgentState) == STATES
        assert tuple(schema()["properties"]["state"]["enum"]) == STATES
        for state in AgentState:
            plain = session(state=state.value, is_complete=False, completion=None, outcome=None)
            record = SessionRecord.from_plain(plain)
            assert record.state is state
            assert type(record.to_plain()["state"]) is str

    def test_unknown_fields_stay_where_they_are_at_every_level(self):
        """C-22"""
        plain = session()
        spots = [
            plain, plain["completion"], plain["counters"], plain["todos"][0], plain["messages"][0],
            plain["messages"][1]["tool_calls"][0], plain["messages"][2], plain["usage"], plain["legacy"],
        ]  # fmt: skip
        for spot in spots:
            items = list(spot.items())
            spot.clear()
            spot.update([("aaa", {"b": [None, {"c": 1}]}), *items[:1], ("zzz", 0.5), *items[1:]])
        before = copy.deepcopy(plain)
        record = SessionRecord.from_plain(plain)
        assert record.to_plain() == before
        assert str(record.to_plain()) == str(before)  # the order, too
        plain["completion"]["aaa"] = "changed outside"
        record.to_plain()["messages"].clear()
        record.messages.clear()
        assert record.to_plain() == before
        moved = record.changed(counters={"iterations": 9}, usage={"input_tokens": 5}, model="m").to_plain()
        assert moved["counters"] == {**before["counters"], "iterations": 9}
        assert moved["usage"]["aaa"] == before["usage"]["aaa"]
        assert list(moved) == list(before)

    def test_what_is_no_turn_stands_among_the_messages_and_is_not_sent(self):
        odd = [None, 5, "x", [], {}, {"role": "system", "content": "x"}, {"role": "user", "content": 5}]
        plain = session()
        plain["messages"] = [*odd, *plain["messages"]]
        record = SessionRecord.from_plain(plain)
        assert record.messages == plain["messages"]
        assert len(record.turns) == 4

    def test_a_result_without_its_call_is_not_sent(self):
        plain = session()
        result = plain["messages"][2]
        plain["messages"] = [result, *plain["messages"][:2], result, result]
        assert [turn["role"] for turn in SessionRecord.from_plain(plain).turns] == [
            "user",
            "assistant",
            "tool",
        ]

    def test_missing_optional_fields_have_their_usual_values(self):
        plain = {name: session()[name] for name in schema()["required"]}
        plain |= {"is_complete": False, "state": "user_input", "messages": []}
        record = SessionRecord.from_plain(plain)
        assert record.to_plain() == plain
        assert (record.checked, record.run_ids, record.todos, record.prompt) == ("none", [], [], "")
        assert record.usage == record.usage_before_last == {
            "input_tokens": 0, "output_tokens": 0, "cost_usd": 0.0,
        }  # fmt: skip
        assert [record.completion, record.hold, record.workspace, record.migration] == [None] * 4
        assert set(record.counters.values()) == {0}

    def test_there_are_no_other_fields_to_change(self):
        with pytest.raises(TypeError, match="colour"):
            SessionRecord.from_plain(session()).changed(colour="red")


class TestBooleans:
    def test_they_are_written_anew_when_the_session_moves_and_left_alone_otherwise(self):
        found = {"completed": "TRUE", "other": 5}
        record = SessionRecord.from_plain(session(legacy=found))
        assert record.to_plain()["legacy"] == found
        assert record.changed(model="m", todos=[]).to_plain()["legacy"] == found
        assert record.changed(state="response").to_plain()["legacy"] == found  # no move
        moved = record.changed(state="assistant", is_complete=False, completion=None, outcome=None)
        assert moved.to_plain()["legacy"]["processing"] is True
        assert moved.changed(model="m").to_plain()["legacy"]["processing"] is True

    def test_they_can_be_left_out(self):
        """C-27"""
        record = SessionRecord.from_plain(session())
        assert "legacy" not in record.to_plain(legacy_flags=False)
        without = record.to_plain(legacy_flags=False)
        again = SessionRecord.from_plain(without)
        assert again.to_plain() == without  # nothing is added to a file that has none
        assert again.changed(outcome=None).to_plain()["legacy"]["completed"] is True

    def test_they_say_what_the_place_of_the_session_says(self):
        """C-15 over files"""
        messages = session()["messages"]
        open_call = {"run_id": "r", "name": "ask-t1c1", "why": "ask"}
        for state, outcome, hold, replied in product(
            STATES, (None, "incomplete", "waiting", "cancelled"), (None, open_call), (True, False)
        ):
            plain = session(
                state=state, is_complete=False, completion=None, outcome=outcome, hold=hold,
                messages=messages if replied else messages[:1], summary="x" if outcome else None,
            )  # fmt: skip
            flags = SessionRecord.from_plain(plain).legacy_flags()
            asked = outcome == "waiting" and hold is not None
            assert flags == {
                "completed": False, "processing": state in ("assistant", "tool_execution"),
                "task_completed": False, "has_user_response": replied,
                "awaiting_user_guidance": outcome == "incomplete" or asked,
                "has_final_synthesis": outcome == "incomplete",
            }  # fmt: skip

    def test_a_reply_to_an_earlier_prompt_is_no_reply(self):
        plain = session(is_complete=False, completion=None, outcome=None, state="user_input")
        plain["messages"] = [*plain["messages"], {"role": "user", "content": "next"}]
        assert not SessionRecord.from_plain(plain).legacy_flags()["has_user_response"]


class TestImpossible:
    @given(
        st.sampled_from([*STATES, "end", None]), st.sampled_from([True, False, None, 1]),
        st.sampled_from([None, DONE, {}, "x"]),
        st.sampled_from([*schema()["properties"]["outcome"]["enum"], "done"]),
    )  # fmt: skip
    @settings(max_examples=examples(400))
    def test_only_a_response_with_a_completion_is_complete(self, state, complete, completion, outcome):
        """C-29"""
        legal_completion = completion == DONE if complete is True else completion is None
        legal = (
            state in STATES
            and type(complete) is bool
            and legal_completion
            and (state == "response" if complete else outcome != "completed")
            and (outcome in ("completed", None) if complete else outcome != "done")
        )
        plain = session(state=state, is_complete=complete, completion=completion, outcome=outcome)
        fields = {"state": state, "is_complete": complete, "completion": completion, "outcome": outcome}
        begun = SessionRecord.new(ID, 0.0, workspace=None)
        assert VALIDATOR.is_valid(plain) is legal
        if legal:
            assert SessionRecord.from_plain(plain).is_complete is complete
            assert begun.changed(**fields).to_plain()["state"] == state
            return
        with pytest.raises(SessionInvalid):
            SessionRecord.from_plain(plain)
        with pytest.raises(SessionInvalid):
            begun.changed(**fields)

    @pytest.mark.parametrize("version", [2, 1.5, 10**30])
    def test_a_newer_version_is_refused_in_words(self, version):
        with pytest.raises(SessionTooNew, match="newer Detent.*Update Detent"):
            SessionRecord.from_plain({"schema": "detent.coding.session", "schema_version": version})

    @pytest.mark.parametrize(
        ("change", "problem"),
        [
            ({"schema_version": "1"}, "schema_version must be 1"),
            ({"schema_version": True}, "schema_version must be 1"),
            ({"schema": "other"}, 'schema must be "detent.coding.session"'),
            ({"session_id": "../x"}, "session_id is no session id"),
            ({"session_id": f"{ID}\n"}, "session_id is no session id"),
            ({"state": "done"}, "state must be one of"),
            ({"is_complete": 1}, "is_complete must be true or false"),
            ({"messages": {}}, "messages must be a list"),
            ({"todos": [{"id": 1}]}, "todos[0].content is missing"),
            ({"counters": {"iterations": -1}}, "counters.iterations must be 0 or more"),
            ({"counters": {"iterations": True}}, "counters.iterations must be a whole number"),
            ({"usage": {"cost_usd": "free"}}, "usage.cost_usd must be a number"),
            ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id is missing"),
            (
                {"messages": [{"role": "assistant", "content": "", "tool_calls": [{"id": "1", "tool": 5}]}]},
                "messages[0].tool_calls[0].tool must be text",
            ),
            ({"migration": {}}, "migration.vocabulary is missing"),
            ({"checked": "maybe"}, "checked must be one of"),
        ],
    )
    def test_a_wrong_field_is_refused_by_its_place(self, change, problem):
        with pytest.raises(SessionInvalid) as refused:
            SessionRecord.from_plain(session(**change))
        assert any(problem in told for told in refused.value.problems), refused.value.problems


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["", "user", "tool", "x", "response", ID]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["role", "content", "tool", "tool_call_id", "ok", "id", "kind", "tool_calls", "args",
                         "status", "line_no", "source", "reason", "error", "iterations", "input_tokens"]),
        inner, max_size=5),
    max_leaves=12,
)  # fmt: skip


@given(st.data())
@settings(max_examples=examples(800))
def test_the_quick_check_agrees_with_a_whole_validator_of_the_shipped_schema(data):
    plain = session()
    for name in data.draw(st.lists(st.sampled_from(list(schema()["properties"])), min_size=1, max_size=3)):
        if data.draw(st.booleans()):
            plain[name] = data.draw(JSON)
        elif isinstance(plain.get(name), list) and plain[name]:
            spot = data.draw(st.sampled_from(plain[name]))
            if isinstance(spot, dict):
                spot[data.draw(st.sampled_from([*spot, "x"]))] = data.draw(JSON)
        else:
            plain.pop(name, None)
    assert bool(problems_of(plain)) is not VALIDATOR.is_valid(plain)
