"""Sessions with booleans become sessions with a state: always the same one, with a reason."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import product

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detent.flows.coding.sessions.export import legacy_form
from detent.flows.coding.sessions.file_schema import schema
from detent.flows.coding.sessions.folder import SessionFolder
from detent.flows.coding.sessions.json_text import parse, to_bytes
from detent.flows.coding.sessions.legacy import Mapped, is_session, map_legacy
from detent.flows.coding.sessions.record import SessionRecord
from tests.examples import examples
from tests.flows.coding.sessions.corpus import (
    FALSE,
    ODD,
    PARTS,
    PLAIN,
    SHAPES,
    STRANGE,
    TRUE,
    TYPED,
    WELL_FORMED,
    A,
    B,
    Expected,
    changed_messages,
    combinations,
    legacy_sessions,
)

NOW = 1_700_000_000.0
ID = "2025-01-02_03-04-05_fix-it_abcdef"
VALIDATOR = jsonschema.Draft202012Validator(schema())

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**12), 10**12)
    | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip
OWN_KEYS = st.sampled_from(
    [*schema()["properties"], *A, *B, "iteration_count", "working_directory", "current_model", "role", "kind"]
)
SORTS = {
    "request", "response", "text", "tool-call", "tool-return", "retry-prompt", "system-prompt", "user-prompt",
    "tool_use", "tool_result", "function", "user",
}  # fmt: skip
"""Words that only say of what sort a part is; the turn that it becomes says so in its own way."""


def mapped(plain, **options) -> Mapped:
    """What an object becomes; a session of this format, whatever it was."""
    result = map_legacy(plain, NOW, **options)
    record = SessionRecord.from_plain(result.record_fields)
    written = json.loads(to_bytes(record.to_plain()))
    VALIDATOR.validate(written)
    return result


def place_of(plain) -> Expected:
    fields, migration = mapped(plain)
    return Expected(fields["state"], fields["is_complete"], fields["outcome"], migration["reason"])


class TestFlags:
    def test_every_combination_of_both_vocabularies_maps_as_the_table_says(self):
        """C-23"""
        tried = 0
        for flags, expected in combinations():
            assert place_of({"session_id": ID, "messages": [], **flags}) == expected, flags
            tried += 1
        assert tried == 4 + 16 + 64

    @pytest.mark.parametrize(
        ("flags", "expected"),
        [
            # As the specification says it in words, so that the corpus cannot be wrong by itself.
            ({"completed": True}, ("response", True, "completed", "completed")),
            ({"completed": True, "processing": True}, ("response", True, "completed", "ambiguous")),
            ({"processing": True}, ("assistant", False, None, "processing")),
            ({"completed": False, "processing": False}, ("user_input", False, None, "idle")),
            ({"task_completed": True}, ("response", True, "completed", "completed")),
            (
                {"task_completed": True, "has_user_response": True},
                ("response", True, "completed", "completed"),
            ),
            (
                {"task_completed": True, "awaiting_user_guidance": True},
                ("response", True, "completed", "ambiguous"),
            ),
            (
                {"task_completed": True, "has_final_synthesis": True},
                ("response", True, "completed", "ambiguous"),
            ),
            ({"awaiting_user_guidance": True}, ("response", False, "incomplete", "awaiting_guidance")),
            (
                {"awaiting_user_guidance": True, "has_final_synthesis": True},
                ("response", False, "incomplete", "awaiting_guidance"),
            ),
            ({"has_final_synthesis": True}, ("response", False, "incomplete", "synthesised")),
            ({"has_user_response": True}, ("assistant", False, None, "processing")),
            ({"has_user_response": False}, ("user_input", False, None, "idle")),
            ({"has_user_response": False, "iteration_count": 3}, ("assistant", False, None, "processing")),
            # Both vocabularies.
            ({"completed": True, "task_completed": False}, ("response", True, "completed", "completed")),
            ({"completed": False, "task_completed": True}, ("response", True, "completed", "ambiguous")),
            ({"processing": True, "task_completed": False}, ("assistant", False, None, "processing")),
            (
                {"processing": True, "awaiting_user_guidance": True},
                ("response", False, "incomplete", "ambiguous"),
            ),
            ({"completed": False, "has_user_response": True}, ("assistant", False, None, "ambiguous")),
        ],
    )  # fmt: skip
    def test_a_row_of_the_table(self, flags, expected):
        assert place_of({"messages": [], **flags}) == expected

    def test_ambiguous_mappings_record_that_with_the_flags_as_they_were_found(self):
        """C-24"""
        flags = {"task_completed": "TRUE", "has_final_synthesis": 1, "completed": None}
        migration = mapped({"session_id": ID, **flags}).migration
        assert (migration["reason"], migration["ambiguous"]) == ("ambiguous", True)
        assert migration["original"] == flags
        assert list(migration["original"]) == list(flags)
        assert migration["vocabulary"] == "both"
        assert not mapped({"task_completed": True}).migration["ambiguous"]

    @pytest.mark.parametrize(
        ("flags", "vocabulary"),
        [
            ({"completed": False}, "completed/processing"),
            ({"processing": None}, "completed/processing"),
            ({"has_final_synthesis": 0}, "response_flags"),
            ({"has_final_synthesis": 0, "processing": 0}, "both"),
            ({}, "response_flags"),
        ],
    )
    def test_the_vocabulary_is_told_by_its_keys(self, flags, vocabulary):
        assert mapped({"messages": [], **flags}).migration["vocabulary"] == vocabulary

    def test_every_spelling_of_true_and_false_counts(self):
        for value in TRUE:
            assert place_of({"completed": value}).is_complete, value
            assert place_of({"task_completed": value}).is_complete, value
        for value in FALSE:
            assert place_of({"completed": value, "processing": value}).state == "user_input", value
            migration = mapped({"completed": value}).migration
            assert migration["detail"] is None, value

    def test_any_other_value_counts_as_false_and_is_named(self):
        """C-23: odd values"""
        for value in ODD:
            for name in (*A, *B):
                fields, migration = mapped({"session_id": ID, name: value})
                assert (fields["state"], fields["is_complete"]) == ("user_input", False), (name, value)
                assert name in migration["detail"], (name, value)
                assert migration["original"] == {name: value}

    def test_a_count_of_iterations_is_a_whole_number_above_nought(self):
        for count, state in ((1, "assistant"), (0, "user_input"), (-1, "user_input"), (True, "user_input"),
                             ("3", "user_input"), (2.5, "user_input"), (None, "user_input")):  # fmt: skip
            assert place_of({"has_user_response": False, "iteration_count": count}).state == state, count
        assert place_of({"completed": False, "iteration_count": 3}).state == "user_input"
        assert place_of({"completed": False, "has_user_response": False, "iteration_count": 3}) == (
            "assistant", False, None, "processing",
        )  # fmt: skip

    def test_a_state_beside_flags_wins_and_a_disagreement_is_noted(self):
        for state, completed in product(("user_input", "assistant", "tool_execution"), (True, False)):
            fields, migration = mapped({"session_id": ID, "state": state, "completed": completed})
            assert (fields["state"], fields["is_complete"]) == (state, False)
            assert (migration["reason"] == "state_wins") is completed
            assert (migration["detail"] == "state_wins") is completed
            assert migration["ambiguous"] is completed
        done = mapped({"state": "response", "task_completed": True})
        assert (done.record_fields["is_complete"], done.migration["reason"]) == (True, "state")
        assert (
            mapped({"session_id": ID, "state": "tool_execution", "processing": True}).migration["reason"]
            == "state"
        )
        assert (
            mapped({"session_id": ID, "state": "response", "processing": True}).migration["reason"]
            == "state_wins"
        )
        assert not mapped({"session_id": ID, "state": "response"}).record_fields["is_complete"]
        # An outcome stays where it fits the state.
        for outcome, expected in (("completed", None), ("cancelled", "cancelled"), ("odd", None)):
            fields = mapped({"session_id": ID, "state": "assistant", "outcome": outcome}).record_fields
            assert fields["outcome"] == expected

    def test_a_state_that_is_none_of_the_four_leaves_it_to_the_flags(self):
        for state in ("done", 5, [], "RESPONSE", {"state": "response"}):
            fields, migration = mapped({"state": state, "processing": True})
            assert fields["state"] == "assistant"
            assert migration["replaced"] == {"state": state}
            assert "state is" in migration["detail"]

    @pytest.mark.parametrize("text", ["TUNACODE DONE: all", "TUNACODE_TASK_COMPLETE\nfine"])
    def test_flags_win_over_a_marker_in_the_last_message(self, text):
        messages = [{"role": "user", "content": "x"}, {"role": "assistant", "content": text}]
        fields, migration = mapped({"completed": False, "messages": messages})
        assert (fields["state"], fields["is_complete"]) == ("user_input", False)
        assert migration["detail"] == "marker_in_transcript"
        assert mapped({"processing": True, "messages": messages}).migration["detail"] is None
        quoted = [*messages[:1], {"role": "assistant", "content": f"```\n{text}\n```"}]
        assert mapped({"messages": quoted}).migration["detail"] is None
        followed = [*messages, {"role": "user", "content": "more"}, {"role": "assistant", "content": "yes"}]
        assert mapped({"messages": followed}).migration["detail"] is None
        parts = [{"kind": "response", "parts": [{"part_kind": "text", "content": text}]}]
        assert mapped({"messages": parts}).migration["detail"] == "marker_in_transcript"

    def test_a_marker_that_repeats_a_line_of_a_tool_is_no_marker(self):
        line = "TUNACODE DONE: from a file"
        messages = [
            {"role": "user", "content": "read it"},
            {"role": "assistant", "content": "", "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "read_file", "arguments": "{}"}},
            ]},
            {"role": "tool", "tool_call_id": "c", "content": f"first\n{line}"},
            {"role": "assistant", "content": line},
        ]  # fmt: skip
        assert mapped({"messages": messages}).migration["detail"] is None
        messages[2]["content"] = "first"
        assert mapped({"messages": messages}).migration["detail"] == "marker_in_transcript"

    def test_completed_by_flag_says_so(self):
        completion = mapped({"completed": True}).record_fields["completion"]
        assert completion == {"line_no": 0, "marker_line": "", "summary": "", "source": "legacy_flag"}

    def test_an_object_without_flags_messages_and_id_is_no_session(self):
        assert not is_session({"theme": "dark", "state": "response"})
        for key in (*A, *B, "messages", "session_id"):
            assert is_session({key: None}), key


class TestNothingIsLost:
    def test_unknown_fields_stay_in_their_order_and_the_flags_move_to_legacy(self):
        plain = {
            "zebra": {"deep": [{"deeper": None}]}, "completed": 1, "messages": [], "alpha": [1.5, True],
            "working_directory": "/w", "session_id": ID, "current_model": "m", "processing": "FALSE",
            "yolo": True,
        }  # fmt: skip
        fields = mapped(plain).record_fields
        assert fields["legacy"] == {"completed": 1, "processing": "FALSE"}
        assert fields["zebra"] == plain["zebra"]
        assert fields["yolo"] is True
        assert (fields["workspace"], fields["model"]) == ("/w", "m")
        own = ["zebra", "messages", "alpha", "workspace", "session_id", "model", "yolo"]
        assert [name for name in fields if name in own] == own
        assert not {"completed", "processing", "working_directory", "current_model"} & fields.keys()

    def test_values_that_cannot_stay_in_a_field_are_kept_beside(self):
        plain = {**json.loads(WELL_FORMED["fields"]), "created_at": [1], "working_directory": 7}
        fields, migration = mapped(plain)
        kept = {**migration["replaced"]}
        for name, value in plain.items():
            if name in ("completed", "session_id", "files_changed", "todos"):
                continue
            assert kept.get(name, fields.get(name)) == value, name
        assert fields["files_changed"] == ["a"]
        assert kept["files_changed"] == [1, "a"]
        assert fields["todos"] == []
        assert fields["working_directory"] == 7

    def test_an_id_that_is_none_gives_way_to_the_name_of_the_file_or_to_the_content(self):
        for given_id in ("../../etc/passwd", "", "abc", 5, None, "ABCDEF01", f"{ID}\n", "a" * 65, "x.json"):
            named = mapped({"session_id": given_id, "messages": []}, name=ID).record_fields
            assert named["session_id"] == ID
            first = mapped({"session_id": given_id, "messages": [], "x": 1}, name="my session").record_fields
            again = mapped({"x": 1, "messages": [], "session_id": given_id}, name="other").record_fields
            assert first["session_id"] == again["session_id"]
            assert len(first["session_id"]) == 32
            other = mapped({"session_id": given_id, "messages": [], "x": 2}).record_fields
            assert other["session_id"] != first["session_id"]
            if given_id is not None:
                assert first["migration"]["replaced"] == {"session_id": given_id}

    def test_times_are_those_of_the_file_or_of_the_id(self):
        assert mapped({"session_id": ID}).record_fields["created_at"] == "2025-01-02T03:04:05Z"
        assert mapped({"session_id": "abcdef01"}).record_fields["created_at"] is None
        assert (
            mapped({"session_id": ID, "created_at": "yesterday"}).record_fields["created_at"] == "yesterday"
        )
        at = mapped({"session_id": ID, "created_at": 1.5}).record_fields
        assert at["created_at"] == "1970-01-01T00:00:01.500Z"
        assert at["migration"]["replaced"] == {"created_at": 1.5}
        assert mapped({"created_at": 1e300}).record_fields["created_at"] is None

    def test_a_file_of_this_format_that_lost_its_state_is_read_by_its_booleans(self):
        call = {"id": "t1c1", "tool": "glob", "args": {}}
        record = SessionRecord.new(ID, NOW, workspace="/w").changed(
            state="response", is_complete=True, outcome="completed",
            completion={"line_no": 2, "marker_line": "TUNACODE DONE: x", "summary": "x", "source": "reply"},
            messages=[
                {"role": "user", "content": "x"},
                {"role": "assistant", "content": "", "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "t1c1", "tool": "glob", "ok": True, "content": "a"},
                {"role": "nudge", "kind": "no_marker", "content": "go on"},
                {"role": "assistant", "content": "TUNACODE DONE: x"},
            ],
        )  # fmt: skip
        plain = record.to_plain()
        del plain["state"]
        fields, migration = mapped(plain)
        assert (fields["state"], fields["is_complete"]) == ("response", True)
        assert fields["completion"]["source"] == "reply"
        assert fields["messages"] == record.messages
        assert migration["original"] == plain["legacy"]
        assert "replaced" not in migration

    @given(st.dictionaries(OWN_KEYS | st.text(max_size=5), JSON, max_size=10))
    @settings(max_examples=examples(400))
    def test_no_object_makes_it_fail_and_no_value_is_dropped(self, plain):
        """C-25"""
        fields, migration = mapped(plain)
        kept = [*_leaves(fields)]
        for name, value in plain.items():
            if value is None or name in ("messages", "created_at"):
                continue
            if name in migration.get("replaced", {}):
                assert migration["replaced"][name] == value
            elif name in (*A, *B):
                assert fields["legacy"][name] == value
                assert migration["original"][name] == value
            elif name == "legacy":
                assert fields["legacy"] == value
            else:
                new_name = {"working_directory": "workspace", "current_model": "model"}.get(name, name)
                assert value in (fields.get(name), fields.get(new_name))
        assert len(kept) >= 1
        assert parse(to_bytes(fields)).plain == fields

    @given(st.randoms(use_true_random=False))
    @settings(max_examples=examples(2000))
    def test_any_messages_become_turns_or_stay_and_nothing_is_dropped(self, random):
        """C-25: whatever stands among the messages"""
        messages = changed_messages(random)
        record = SessionRecord.from_plain(mapped({"messages": messages}).record_fields)
        kept = json.dumps(record.messages)
        for leaf in _leaves(messages):
            if isinstance(leaf, str) and leaf not in SORTS:
                # Arguments that were JSON text are values now.
                assert json.dumps(leaf)[1:-1] in kept or leaf in kept, leaf
            elif isinstance(leaf, int | float) and leaf > 1:
                assert str(leaf) in kept, leaf
        open_calls = set()
        for turn in record.turns:
            if turn["role"] == "tool":
                assert turn["tool_call_id"] in open_calls
                open_calls.discard(turn["tool_call_id"])
            else:
                assert not open_calls  # every call is answered before anything else is said
                calls = turn.get("tool_calls") or () if turn["role"] == "assistant" else ()
                open_calls = {call["id"] for call in calls}
        assert not open_calls
        back = SessionRecord.from_plain(map_legacy(legacy_form(record), NOW).record_fields)
        assert [(turn["role"], turn["content"]) for turn in back.turns] == [
            (turn["role"], turn["content"]) for turn in record.turns
        ]


def _leaves(value):
    if isinstance(value, dict):
        for inner in value.values():
            yield from _leaves(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner)
    else:
        yield value


class TestMessages:
    def test_messages_with_roles_become_turns(self):
        record = SessionRecord.from_plain(mapped({"messages": PLAIN}).record_fields)
        assert [turn["role"] for turn in record.turns] == ["user", "assistant", "tool", "tool", "assistant"]
        user, asked, read, searched, answer = record.turns
        assert user == PLAIN[1]
        assert [(call["id"], call["tool"], call["args"]) for call in asked["tool_calls"]] == [
            ("t1c1", "read_file", {"filepath": "a.py"}), ("t1c2", "grep", "not json"),
        ]  # fmt: skip
        assert [call["provider_id"] for call in asked["tool_calls"]] == ["call_0", "call_0"]
        assert (read["tool_call_id"], read["tool"], read["ok"]) == ("t1c1", "read_file", True)
        assert (searched["tool_call_id"], searched["content"]) == ("t1c2", "no match")
        assert answer["content"] == "It is fixed."
        assert record.messages[0] == PLAIN[0]  # a system prompt is kept, and not sent again

    def test_messages_of_typed_parts_become_turns_with_the_parts_beside(self):
        record = SessionRecord.from_plain(mapped({"messages": TYPED}).record_fields)
        assert [turn["role"] for turn in record.turns] == ["user", "assistant", "tool", "user", "assistant"]
        look, asked, listed, go_on, answer = record.turns
        assert (look["content"], look["content_as_found"]) == ("look", TYPED[0]["content"])
        assert (asked["content"], asked["content_as_found"]) == ("I look.", TYPED[1]["content"])
        assert asked["tool_calls"][0]["args"] == {"directory": "."}
        assert (listed["content"], listed["tool_call_id"], listed["tool"]) == ("a.py", "t1c1", "list_dir")
        assert (go_on["content"], "content_as_found" in go_on) == ("go on", False)
        assert answer == {"role": "assistant", "content": "Nothing to do."}

    def test_requests_and_responses_of_parts_become_turns(self):
        record = SessionRecord.from_plain(mapped({"messages": PARTS}).record_fields)
        assert [turn["role"] for turn in record.turns] == ["user", "assistant", "tool", "tool", "assistant"]
        user, asked, listed, globbed, answer = record.turns
        assert (user["content"], user["parts"]) == ("list it", [PARTS[0]["parts"][1]])
        assert (asked["content"], asked["model_name"], asked["parts"]) == ("I list.", "m", PARTS[1]["parts"])
        assert [call["args"] for call in asked["tool_calls"]] == [{"directory": "."}, {"pattern": "*"}]
        assert (listed["content"], listed["ok"], listed["tool_call_id"]) == ("a.py", True, "t1c1")
        assert (globbed["ok"], globbed["tool"], globbed["content"]) == (False, "glob", '[{"msg": "bad"}]')
        assert answer == {"role": "assistant", "content": "a.py", "kind": "response"}

    def test_what_is_no_message_stays_as_it_was_and_is_counted(self):
        fields, migration = mapped({"messages": STRANGE})
        assert fields["messages"] == STRANGE
        assert migration["detail"] == f"{len(STRANGE)} messages kept as found"
        assert SessionRecord.from_plain(fields).turns == []
        mixed = mapped({"messages": [STRANGE[5], *PLAIN, STRANGE[0]]})
        assert mixed.record_fields["messages"][0] == STRANGE[5]
        assert mixed.record_fields["messages"][-1] is None
        assert mixed.migration["detail"] == "2 messages kept as found"

    def test_a_call_without_a_result_gets_one(self):
        messages = [PLAIN[1], PLAIN[2], PLAIN[3], {"role": "user", "content": "hello?"}]
        fields, migration = mapped({"messages": messages, "processing": True})
        added = fields["messages"][3]
        assert (added["role"], added["tool_call_id"], added["error"], added["ok"]) == (
            "tool", "t1c2", "interrupted", False,
        )  # fmt: skip
        assert migration["detail"] == "1 call without a result"
        # In the middle of tool execution the calls are still to be carried out.
        waiting = mapped({"messages": messages[:2], "state": "tool_execution", "processing": True})
        assert [message["role"] for message in waiting.record_fields["messages"]] == ["user", "assistant"]

    def test_results_that_answer_nothing_stay_and_are_not_sent(self):
        messages = [PLAIN[1], {"role": "tool", "tool_call_id": "other", "content": "x", "name": "glob"}]
        record = SessionRecord.from_plain(mapped({"messages": messages}).record_fields)
        assert record.messages[1]["content"] == "x"
        assert (record.messages[1]["tool_call_id"], record.messages[1]["tool"]) == ("other", "glob")
        assert [turn["role"] for turn in record.turns] == ["user"]

    def test_roles_and_fields_with_another_meaning_say_what_was_found(self):
        human, tool = mapped({"messages": [
            {"role": "Human", "content": "x"},
            {"role": "function", "content": "y", "ok": "no", "error": 5, "truncated": "some",
             "duration_ms": "1s"},
        ]}).record_fields["messages"]  # fmt: skip
        assert (human["role"], human["role_as_found"]) == ("user", "Human")
        assert (tool["ok"], tool["ok_as_found"]) == (True, "no")
        assert (tool["error_as_found"], tool["duration_ms_as_found"]) == (5, "1s")
        assert (tool["truncated"], tool["truncated_as_found"]) == (False, "some")

    def test_results_alone_in_a_message_keep_what_stood_beside_them(self):
        asked = {"role": "assistant", "content": "", "tool_calls": [
            {"id": "a", "function": {"name": "f", "arguments": "{}", "strict": True}, "tool": "x",
             "index": 0},
            {"id": "b", "function": {"name": "g", "arguments": None}},
        ]}  # fmt: skip
        results = {"role": "assistant", "when": 5, "role_as_found": "x", "ok": 1, "content": [
            {"type": "tool_result", "tool_use_id": "b", "content": {"rows": [1]}, "is_error": True},
            {"type": "tool_result", "tool_use_id": "a", "content": "text"},
        ]}  # fmt: skip
        called, second, first = mapped({"messages": [asked, results]}).record_fields["messages"]
        assert called["tool_calls"][0] == {
            "id": "t1c1", "tool": "f", "args": {}, "provider_id": "a", "tool_as_found": "x", "index": 0,
            "function": {"strict": True},
        }  # fmt: skip
        assert called["tool_calls"][1]["args"] is None
        assert (second["tool_call_id"], second["ok"]) == ("t1c2", False)
        assert second["content"] == '{"rows": [1]}'
        assert second["content_as_found"] == [results["content"][0]]
        assert (first["tool_call_id"], first["content"], first["when"]) == ("t1c1", "text", 5)
        assert (first["role_as_found"], first["role_as_found_as_found"]) == ("assistant", "x")
        assert first["ok_as_found"] == 1

    def test_results_without_ids_answer_the_first_call_of_their_name_or_of_any(self):
        calls = [{"id": "1", "function": {"name": name, "arguments": ""}} for name in ("f", "g", "g", "f")]
        results = [
            {"role": "tool", "content": "1", "name": "g"}, {"role": "tool", "content": "2"},
            {"role": "tool", "content": "3", "name": "g"}, {"role": "tool", "content": "4", "name": "h"},
            {"role": "tool", "content": "5", "tool_call_id": 7},
        ]  # fmt: skip
        asked = {"role": "assistant", "content": "", "tool_calls": calls}
        messages = mapped({"messages": [asked, *results]}).record_fields["messages"]
        ids = [message["tool_call_id"] for message in messages[1:]]
        assert ids == ["t1c2", "t1c1", "t1c3", "", "", "t1c4"]
        assert [message["tool"] for message in messages[1:]] == ["g", "f", "g", "h", "unknown", "f"]
        assert messages[5]["tool_call_id_as_found"] == 7
        assert messages[0]["tool_calls"][0]["args"] == ""

    def test_calls_of_another_form_and_odd_nudges_stay_beside(self):
        for odd in ("x", [1], [{"function": {}}], [{"id": "1"}], {"a": 1}):
            plain = {"messages": [{"role": "assistant", "content": "", "tool_calls": odd}]}
            [message] = mapped(plain).record_fields["messages"]
            assert message == {"role": "assistant", "content": "", "tool_calls_as_found": odd}
        [nudge] = mapped({"messages": [{"role": "nudge", "content": "x", "kind": 5}]})[0]["messages"]
        assert nudge == {"role": "nudge", "content": "x", "kind_as_found": 5}

    @pytest.mark.parametrize("levels", [90, 150])
    def test_arguments_that_are_nested_too_deeply_stay_text(self, levels):
        text = '{"x": ' + "[" * levels + "]" * levels + "}"
        call = {"id": "1", "function": {"name": "f", "arguments": text}}
        asked = {"role": "assistant", "content": "", "tool_calls": [call]}
        [message, _] = mapped({"messages": [asked]}).record_fields["messages"]
        args = message["tool_calls"][0]["args"]
        assert args == (text if levels > 100 else json.loads(text))
        twice = '{"a": 1, "a": 2}'
        call["function"]["arguments"] = twice
        [message, _] = mapped({"messages": [asked]}).record_fields["messages"]
        assert message["tool_calls"][0]["args"] == twice  # nothing of it is lost

    def test_parts_of_other_kinds_stay_with_their_text(self):
        parts = [
            {"part_kind": "thinking", "content": "hm"}, {"part_kind": "text", "content": "one"},
            {"part_kind": "text", "content": None}, {"part_kind": "tool-call", "tool_name": 5},
        ]  # fmt: skip
        novel = {"part_kind": "novelty", "content": {"a": 1}}
        odd = {"kind": "request", "parts": [novel], "role": "x", "tool": 1}
        answer, result, question = mapped({"messages": [
            {"kind": "response", "parts": parts, "content": "y"}, odd,
        ]}).record_fields["messages"]  # fmt: skip
        assert (answer["content"], answer["parts"]) == ('["one", null]', parts)
        assert answer["content_as_found"] == "y"
        assert answer["tool_calls"] == [{"id": "t1c1", "tool": "unknown", "args": None}]
        assert result["error"] == "interrupted"
        assert (question["role"], question["content"]) == ("user", '{"a": 1}')
        assert question["role_as_found"] == "x"

    def test_twenty_thousand_calls_of_one_name_are_matched_in_linear_time(self):
        calls = [{"id": "same", "function": {"name": "f", "arguments": "{}"}} for _ in range(20_000)]
        results = [{"role": "tool", "tool_call_id": "same", "content": str(n)} for n in range(20_000)]
        messages = [{"role": "assistant", "content": "", "tool_calls": calls}, *results]
        turns = SessionRecord.from_plain(map_legacy({"messages": messages}, NOW).record_fields).turns
        assert (len(turns), turns[-1]["content"], turns[-1]["tool_call_id"]) == (20_001, "19999", "t1c20000")


class TestSameEverywhere:
    def test_the_same_input_gives_the_same_mapping_in_another_process_and_time_zone(self, tmp_path):
        """C-26"""
        plains = [made.original for made in legacy_sessions(60)] + [{"messages": [], "x": {"b": 1, "a": 2}}]
        (tmp_path / "input.json").write_text(json.dumps(plains))
        program = (
            "import json, sys\n"
            "from detent.flows.coding.sessions.legacy import map_legacy\n"
            "print(json.dumps([map_legacy(plain, 5.0) for plain in json.load(open(sys.argv[1]))]))"
        )
        outputs = [
            subprocess.run(
                [sys.executable, "-c", program, str(tmp_path / "input.json")],
                env={"TZ": zone, "PYTHONHASHSEED": seed, "LC_ALL": "C"}, stdout=subprocess.PIPE, text=True,
                check=True,
            ).stdout
            for zone, seed in (("Asia/Tokyo", "1"), ("America/Lima", "2"))
        ]  # fmt: skip
        assert outputs[0] == outputs[1]
        here = json.loads(json.dumps([map_legacy(plain, 5.0) for plain in plains]))
        assert here == json.loads(outputs[0])

    def test_only_the_time_of_the_mapping_differs(self):
        for made in legacy_sessions(84):
            one, other = (map_legacy(made.original, now) for now in (1.0, 2.0))
            assert one.migration.pop("mapped_at") == "1970-01-01T00:00:01.000Z"
            other.migration.pop("mapped_at")
            assert one == other


END = {
    "completed": {
        "state": "response", "is_complete": True, "outcome": "completed",
        "completion": {"line_no": 1, "marker_line": "TUNACODE DONE: x", "summary": "x", "source": "reply"},
    },
    "incomplete": {"state": "response", "is_complete": False, "outcome": "incomplete"},
    "budget_exhausted": {"state": "assistant", "is_complete": False, "outcome": "budget_exhausted"},
    "waiting": {"state": "tool_execution", "is_complete": False, "outcome": "waiting"},
    "cancelled": {"state": "tool_execution", "is_complete": False, "outcome": "cancelled"},
    "failed": {"state": "assistant", "is_complete": False, "outcome": "failed"},
    "interrupted": {"state": "assistant", "is_complete": False, "outcome": None},
}  # fmt: skip
LOOK = """
import json, sys
from detent.flows.coding.sessions.folder import SessionFolder
folder = SessionFolder(sys.argv[1])
print(json.dumps({item.id: [item.state, item.is_complete, item.outcome] for item in folder.list()}))
"""


class TestRoundTrip:
    def test_older_sessions_that_go_on_are_found_again_by_another_process(self, tmp_path):
        """C-14 (the file half): load, go on to each outcome, save, load again"""
        folder = SessionFolder(tmp_path)
        expected = {}
        for made, (outcome, _) in zip(legacy_sessions(70), product(END, range(10)), strict=False):
            file = tmp_path / made.name
            file.write_text(json.dumps(made.original))
            record = folder.load(file.stem)
            assert (record.state_value, record.is_complete) == made.expected[:2]
            prompted = record.changed(
                state="user_input", is_complete=False, completion=None, outcome=None, outcome_reason=None,
                messages=[*record.messages, {"role": "user", "content": "go on"}],
            )  # fmt: skip
            folder.save(prompted)
            folder.save(prompted.changed(**END[outcome]))
            expected[file.stem] = [END[outcome][name] for name in ("state", "is_complete", "outcome")]
            assert (tmp_path / f"{made.name}.bak").read_text() == json.dumps(made.original)
        found = subprocess.run(
            [sys.executable, "-c", LOOK, str(tmp_path)], capture_output=True, text=True, check=True
        ).stdout
        assert json.loads(found) == expected
        assert len(expected) == 70

    def test_booleans_are_written_back_as_found_until_the_session_moves(self, tmp_path):
        found = {"task_completed": "TRUE", "has_user_response": None}
        (tmp_path / f"{ID}.json").write_text(json.dumps({"session_id": ID, "messages": [], **found}))
        folder = SessionFolder(tmp_path)
        folder.save(folder.load(ID))
        assert json.loads((tmp_path / f"{ID}.json").read_text())["legacy"] == found
        folder.save(folder.load(ID).changed(model="other"))
        assert json.loads((tmp_path / f"{ID}.json").read_text())["legacy"] == found
        moved = folder.load(ID).changed(state="assistant", is_complete=False, completion=None, outcome=None)
        folder.save(moved)
        assert json.loads((tmp_path / f"{ID}.json").read_text())["legacy"] == {
            "completed": False, "processing": True, "task_completed": False, "has_user_response": False,
            "awaiting_user_guidance": False, "has_final_synthesis": False,
        }  # fmt: skip
        assert json.loads((tmp_path / f"{ID}.json").read_text())["migration"]["original"] == found

    def test_every_shape_of_messages_survives_a_second_load_and_save(self, tmp_path):
        folder = SessionFolder(tmp_path)
        for number, messages in enumerate(SHAPES.values()):
            session = f"abcdef{number:02}"
            (tmp_path / f"{session}.json").write_text(
                json.dumps({"session_id": session, "messages": messages, "x": [1, {"y": None}]})
            )
            first = folder.load(session)
            folder.save(first, now=1.0)
            raw = (tmp_path / f"{session}.json").read_bytes()
            VALIDATOR.validate(json.loads(raw))
            again = folder.load(session)
            assert again.messages == first.messages
            folder.save(again, now=1.0)
            assert (tmp_path / f"{session}.json").read_bytes() == raw
