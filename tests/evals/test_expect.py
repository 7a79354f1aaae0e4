"""Paths and calls held against what is expected."""

from __future__ import annotations

import pytest

from detent.evals.case import ExpectedFunctionCall, ExpectedStepExecution
from detent.evals.expect import validate_function_calls, validate_step_sequence
from detent.evals.likeness import differences
from detent.evals.paths import short_names
from detent.evals.played import PlayedStep
from detent.insight.visits import FunctionCall

A, B, C, D = "01-a", "02-b", "03a-c", "05-d"


def kinds(expected, actual):
    passed, failures = validate_step_sequence(expected, actual)
    assert passed is not bool(failures)
    return [(one.kind, one.position, one.step_name, one.expected, one.actual) for one in failures]


def test_no_expected_path_expects_nothing():
    """W-23: a case without the field skips the check."""
    assert validate_step_sequence(None, [A, B]) == (True, [])
    assert validate_step_sequence([], []) == (True, [])
    assert kinds([], [A]) == [("step_extra", 1, A, "no step here", A)]


def test_a_missing_extra_swapped_and_wrong_step_are_found_with_place_and_name():
    """W-19."""
    assert validate_step_sequence([A, B, C], [A, B, C]) == (True, [])
    assert kinds([A, B, C, D], [A, B, D]) == [("step_missing", 3, C, C, "no such step")]
    assert kinds([A, B, C, D], [A, B]) == [
        ("step_missing", 3, C, C, "no such step"),
        ("step_missing", 4, D, D, "no such step"),
    ]
    assert kinds([A, B, D], [A, B, C, D]) == [("step_extra", 3, C, "no step here", C)]
    assert kinds([A, B, C], [A, B, D]) == [("step_wrong", 3, D, C, D)]
    assert kinds([A, B, C], [A, C, B]) == [("step_wrong", 2, C, B, C), ("step_wrong", 3, B, C, B)]
    _, failures = validate_step_sequence([A, B, C], [A, C, B])
    assert [one.hint for one in failures] == ["swapped with step 3", "swapped with step 2"]
    assert kinds([A, B], []) == [
        ("step_missing", 1, A, A, "no such step"),
        ("step_missing", 2, B, B, "no such step"),
    ]


def test_a_failure_shows_both_paths_with_a_caret_under_the_first_difference():
    _, (failure,) = validate_step_sequence([A, B, C], [A, B, D])
    assert str(failure).splitlines() == [
        "step 3: expected 03a-c, got 05-d   (02 chose it)",
        "expected  01 → 02 → 03a",
        "got       01 → 02 → 05",
        "                    ^",
    ]
    _, failures = validate_step_sequence([A, B, C], [A])
    assert failures[0].lines == (
        "expected  01 → 02 → 03a",
        "got       01",
        "               ^",
    )
    assert failures[1].lines == ()
    _, (failure,) = validate_step_sequence([A], [])
    assert failure.lines == ("expected  01", "got       (no step)", "          ^")


def test_the_hint_names_the_step_that_chose_and_its_reason():
    ran = [PlayedStep(A, next_step=B, reason="found"), PlayedStep(B)]
    _, (failure,) = validate_step_sequence([A, C], ran)
    assert failure.hint == "01 chose it: found"


def test_names_may_be_beginnings_of_the_steps_that_ran():
    assert validate_step_sequence(["01", "03A"], [A, C]) == (True, [])
    assert not validate_step_sequence(["01", "03b"], [A, C])[0]


def test_numbers_that_two_steps_share_are_not_used_as_short_names():
    assert short_names(["01-a", "01-b", "02-c", "done"]) == {
        "01-a": "01-a", "01-b": "01-b", "02-c": "02", "done": "done",
    }  # fmt: skip


CALL = FunctionCall("f", {"x": 1, "to": "Ada  Lovelace"}, {"ok": True})
STEP = PlayedStep(
    A,
    output_text="SERIAL: SN1\nNEXT_STEP:   02-b",
    data_after={"n": 1, "deep": {"a": "x", "b": [1, 2]}},
    next_step=B,
    mode="agent",
    fallback="timeout",
    calls=(CALL,),
)


@pytest.mark.parametrize(
    ("holds", "fails", "kind"),
    [
        ({"output_contains": ("next_step: 02-b",)}, {"output_contains": ("SN2",)}, "output"),
        ({"output_excludes": ("SN2",)}, {"output_excludes": ("serial: sn1",)}, "output"),
        ({"function_call": "f"}, {"function_call": "g"}, "function_call"),
        ({"function_call": ("f",)}, {"function_call": ("f", "f")}, "function_call"),
        ({}, {"function_call": None}, "function_call"),
        ({"function_args": {"x": 1}}, {"function_args": {"x": 2}}, "function_args"),
        (
            {"function_call": "f", "function_args": {"to": "ada lovelace"}},
            {"function_call": "f", "function_args": {"y": 1}},
            "function_args",
        ),
        (
            {"function_call": ("f",), "function_args": {"f": {"x": 1}}},
            {"function_call": ("f",), "function_args": {"f": {"x": 3}}},
            "function_args",
        ),
        ({"data": {"deep": {"a": "X"}}}, {"data": {"deep": {"a": "y"}}}, "data"),
        ({"data": {"deep.a": "x", "gone": None}}, {"data": {"gone": 1}}, "data"),
        ({"data": {"deep": {"b": [1, 2]}}}, {"data": {"deep": {"b": [1]}}}, "data"),
        ({"next_step": B}, {"next_step": C}, "next_step"),
        ({"mode": "agent"}, {"mode": "deterministic"}, "mode"),
        ({"fallback": "timeout"}, {"fallback": "exception"}, "fallback"),
        ({"fallback": True}, {"fallback": None}, "fallback"),
        ({"fallback": True}, {"fallback": False}, "fallback"),
    ],
)
def test_every_expectation_of_a_step_is_able_to_fail(holds, fails, kind):
    """W-22."""
    assert validate_step_sequence([ExpectedStepExecution(A, **holds)], [STEP]) == (True, [])
    _, (failure,) = validate_step_sequence([ExpectedStepExecution(A, **fails)], [STEP], scenario_id="x")
    assert (failure.kind, failure.step_name, failure.position) == (kind, A, 1)
    assert failure.scenario_id == "x"
    assert failure.hint
    assert A in str(failure)


def test_a_step_without_a_fallback_is_not_taken_for_one():
    calm = PlayedStep(A)
    assert validate_step_sequence([ExpectedStepExecution(A, fallback=None)], [calm])[0]
    assert not validate_step_sequence([ExpectedStepExecution(A, fallback=True)], [calm])[0]
    assert not validate_step_sequence([ExpectedStepExecution(A, fallback="timeout")], [calm])[0]


def test_a_function_missing_in_the_right_step_fails():
    """W-21."""
    _, (failure,) = validate_step_sequence([ExpectedStepExecution(A, function_call="f")], [PlayedStep(A)])
    assert (failure.expected, failure.actual) == ("f", "none")
    passed, _ = validate_step_sequence(
        [ExpectedStepExecution(A, function_call="f", function_args={"x": 1})], [PlayedStep(A)]
    )
    assert not passed


def test_steps_around_a_missing_one_are_still_looked_into():
    expected = [ExpectedStepExecution(A, output_contains=("nothing like it",)), B, C]
    assert [one.kind for one in validate_step_sequence(expected, [STEP, C])[1]] == ["step_missing", "output"]


# -- calls --------------------------------------------------------------------------------------------------

SENT = FunctionCall(
    "send", {"to": "a@b.example", "body": "Your ticket\n is TKT-1"}, {"status": "sent"}, kind="effect"
)


def calls(expected, actual=(CALL, SENT), **options):
    return [
        (one.kind, one.expected, one.actual)
        for one in validate_function_calls(expected, actual, **options)[1]
    ]


def test_calls_are_held_against_names_in_order_and_number():
    """W-24."""
    assert calls(None) == calls(["f", "send"]) == []
    assert calls(["send"]) == [("calls", "send", "f, send")]
    assert calls(["send", "f"]) == [("calls", "send, f", "f, send")]
    assert calls([], ()) == []
    _, (failure,) = validate_function_calls(["f", "send", "send"], [CALL, SENT])
    assert failure.hint == "send 1 times instead of 2"


@pytest.mark.parametrize(
    ("holds", "fails", "kind"),
    [
        ({"arguments": {"to": "A@B.example"}}, {"arguments": {"to": "c@d.example"}}, "call_arguments"),
        ({"arguments_contain": {"to": ("@b",)}}, {"arguments_contain": {"to": ("@c",)}}, "call_arguments"),
        ({"arguments_contain": {}}, {"arguments_contain": {"cc": ("a",)}}, "call_arguments"),
        ({"body_contains": ("ticket is tkt-1",)}, {"body_contains": ("TKT-2",)}, "call_arguments"),
        ({"result_contains": {"status": "sent"}}, {"result_contains": {"status": "queued"}}, "call_result"),
    ],
)
def test_every_expectation_of_a_call_is_able_to_fail(holds, fails, kind):
    assert validate_function_calls(["f", ExpectedFunctionCall("send", **holds)], [CALL, SENT]) == (True, [])
    _, (failure,) = validate_function_calls(["f", ExpectedFunctionCall("send", **fails)], [CALL, SENT])
    assert failure.kind == kind
    assert failure.hint


def test_a_failed_call_fails_the_case_unless_it_was_planned():
    bad = FunctionCall("f", {}, success=False, error_message="timeout", step_name=A)
    _, (failure,) = validate_function_calls(None, [bad])
    assert (failure.kind, failure.step_name, failure.actual) == ("call_failed", A, "timeout")
    assert validate_function_calls(None, [bad], planned=["f"]) == (True, [])


def test_a_forbidden_call_fails_the_case():
    assert calls(None, forbidden=["send"]) == [("forbidden_call", "no call of send", "call 2")]


# -- likeness -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expected", "actual", "same"),
    [
        ("Ada  Lovelace", "ada lovelace\n", True),
        (1, 1.0, True),
        (1, True, False),
        (True, 1, False),
        (None, None, True),
        (None, 0, False),
        ({"a": {"b": 1}}, {"a": {"b": 1, "c": 2}}, True),
        ({"a": {"b": 1}}, {"a": None}, False),
        ({"a": [{"b": 1}]}, {"a": [{"b": 1, "c": 2}]}, True),
        ({"a": []}, {"a": "x"}, False),
        ({"a": {}}, {}, False),
        ("2026-05-31", "2026-05-31", True),
    ],
)
def test_values_compare_by_what_is_listed(expected, actual, same):
    assert (not list(differences(expected, actual))) is same


def test_a_number_where_text_was_meant_is_pointed_out():
    (found,) = differences({"serial": 730155208}, {"serial": "730155208"})
    assert found.hint == "YAML read a number; quote it to expect text"
    (found,) = differences({"n": "7"}, {"n": 7})
    assert "no text" in found.hint
