"""What became of a dispatch: three shapes, and no others."""

import itertools
import math
from dataclasses import FrozenInstanceError, fields
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detent.dispatch.autonomy import AutonomyLevel, Check, FallbackReason, StepMode
from detent.dispatch.equivalence import Discrepancy
from detent.dispatch.result import AgentFailure, DispatchResult
from detent.kernel.budget import Spend
from detent.kernel.plain import to_plain
from tests.examples import examples

DETERMINISTIC, AGENT = StepMode.DETERMINISTIC, StepMode.AGENT
COLLABORATOR = AutonomyLevel.COLLABORATOR
ONE = Discrepancy("/a", "value")
FIFTY = (ONE,) * 50

# The law, written once more as it stands in the specification: each row names what the other fields must be.
# (mode_used, fallback_used, fallback_reason) -> (agent_result_accepted, agent_called, forced, check)
EITHER = (False, True)
NO_CHECK = (None,)
LAW: dict[tuple[StepMode, bool, FallbackReason | None], tuple[Any, ...]] = {
    (DETERMINISTIC, False, None): (None, (False,), EITHER, NO_CHECK),
    (AGENT, False, None): (True, (True,), (False,), tuple(Check)),
    **{
        (DETERMINISTIC, True, FallbackReason(reason)): (False, called, (False,), check)
        for reason, called, check in [
            ("operator", (False,), NO_CHECK),
            ("no_intent", (False,), NO_CHECK),
            ("no_executor", (False,), NO_CHECK),
            ("exception", (True,), NO_CHECK),
            ("timeout", (True,), NO_CHECK),
            ("schema_violation", (True,), NO_CHECK),
            ("validation_failure", (True,), (Check.VALIDATOR, Check.COMPARE)),
            ("budget", EITHER, NO_CHECK),
            ("prose_unreviewed", (True,), NO_CHECK),
        ]
    },
}


def allowed(said: dict[str, Any]) -> bool:
    row = LAW.get((said["mode_used"], said["fallback_used"], said["fallback_reason"]))
    if row is None:
        return False
    accepted, called, forced, check = row
    details = said["validation_details"]
    return (
        said["agent_result_accepted"] is accepted
        and said["agent_called"] in called
        and said["forced"] in forced
        and said["check"] in check
        and (not details or said["check"] in (Check.VALIDATOR, Check.COMPARE, Check.CONTRACT))
        and len(details) <= 50
        and (said["more_details"] == 0 or (said["more_details"] > 0 and len(details) == 50))
        and (said["attempts"] >= 1 if said["agent_called"] else said["attempts"] == 0)
        and (said["agent_error"] is None or said["fallback_used"])
    )


CHOICES: dict[str, Any] = {
    "mode_used": st.sampled_from(StepMode),
    "fallback_used": st.booleans(),
    "fallback_reason": st.none() | st.sampled_from(FallbackReason),
    "autonomy_level": st.sampled_from(AutonomyLevel),
    "agent_called": st.booleans(),
    "agent_result_accepted": st.sampled_from([None, True, False]),
    "forced": st.booleans(),
    "check": st.none() | st.sampled_from(Check),
    "validation_details": st.sampled_from([(), (ONE,), FIFTY, (*FIFTY, ONE)]),
    "more_details": st.sampled_from([0, 3, -1]),
    "agent_error": st.sampled_from([None, AgentFailure("ExecutorError", "no")]),
    "attempts": st.sampled_from([0, 1, 3, -1]),
    "duration_ms": st.floats(0, 1e6),
    "agent_duration_ms": st.none() | st.floats(0, 1e6),
    "handler_duration_ms": st.none() | st.floats(0, 1e6),
    "spend": st.builds(Spend, st.integers(0, 9), st.integers(0, 9), st.floats(0, 9)),
    "shadow": st.booleans(),
}
ANYTHING = st.fixed_dictionaries(CHOICES)


@st.composite
def lawful(draw):
    """One of the allowed combinations, drawn row by row."""
    said = draw(ANYTHING)
    (mode, fallback, reason), (accepted, called, forced, check) = draw(st.sampled_from(list(LAW.items())))
    said |= {
        "mode_used": mode,
        "fallback_used": fallback,
        "fallback_reason": reason,
        "agent_result_accepted": accepted,
        "agent_called": draw(st.sampled_from(called)),
        "forced": draw(st.sampled_from(forced)),
        "check": draw(st.sampled_from(check)),
    }
    said["attempts"] = draw(st.integers(1, 4)) if said["agent_called"] else 0
    if said["check"] in (None, Check.NONE):
        said["validation_details"] = ()
    else:
        said["validation_details"] = draw(st.sampled_from([(), (ONE,), FIFTY]))
    said["more_details"] = draw(st.integers(0, 9)) if len(said["validation_details"]) == 50 else 0
    if not fallback:
        said["agent_error"] = None
    return said


@st.composite
def nearly_lawful(draw):
    """An allowed combination with one field drawn anew."""
    said = draw(lawful())
    name = draw(st.sampled_from(list(CHOICES)))
    return {**said, name: draw(CHOICES[name])}


def builds(said: dict[str, Any]) -> bool:
    try:
        DispatchResult("out", **said)
    except ValueError:
        return False
    return True


@settings(max_examples=examples(500))
@given(ANYTHING | lawful() | nearly_lawful())
def test_a_result_is_built_exactly_when_it_has_one_of_the_three_shapes(said):
    """D-57"""
    assert builds(said) is allowed(said)


def test_every_combination_of_the_fields_of_the_table_is_allowed_or_refused_as_it_says():
    """D-57: not drawn, but all of them."""
    built = 0
    for mode, fallback, reason, accepted, called, forced, check in itertools.product(
        StepMode, EITHER, [None, *FallbackReason], [None, True, False], EITHER, EITHER, [None, *Check]
    ):
        said = {
            "mode_used": mode, "fallback_used": fallback, "fallback_reason": reason,
            "agent_result_accepted": accepted, "agent_called": called, "forced": forced, "check": check,
            "validation_details": (), "more_details": 0, "agent_error": None, "attempts": int(called),
        }  # fmt: skip
        assert builds(said) is allowed(said), said
        built += allowed(said)
    assert (
        built == 2 + 4 + 3 + 3 + 2 + 2 + 1
    )  # plain, accepted, never called, failed, rejected, budget, unread


@given(lawful(), st.none() | st.text())
def test_a_result_survives_being_written_and_read(said, output):
    result = DispatchResult(output, **said)
    plain = result.to_plain()
    assert to_plain(plain) == plain
    assert DispatchResult.from_plain(plain, output) == result


@given(lawful())
def test_the_output_and_the_usual_are_not_written(said):
    result = DispatchResult("SENTINEL", **said)
    plain = result.to_plain()
    assert "SENTINEL" not in str(plain)
    usual = {one.name: one.default for one in fields(DispatchResult)}
    assert set(plain) == {"mode_used"} | {name for name, value in said.items() if value != usual[name]}


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"mode_used": AGENT}, "accepted: agent_result_accepted is True"),
        ({"mode_used": AGENT, "fallback_used": True}, "accepted: fallback_used is False"),
        ({"mode_used": DETERMINISTIC, "fallback_used": True}, "fallback: fallback_reason is set"),
        ({"mode_used": DETERMINISTIC, "fallback_reason": FallbackReason.TIMEOUT}, "plain: fallback_reason"),
        ({"mode_used": DETERMINISTIC, "agent_called": True, "attempts": 1}, "plain: agent_called is False"),
        ({"mode_used": DETERMINISTIC, "check": Check.NONE}, "plain: check is None, no answer reached"),
        ({"mode_used": DETERMINISTIC, "attempts": 2}, "attempts is 1 or more exactly when agent_called"),
        ({"mode_used": DETERMINISTIC, "agent_error": AgentFailure("E")}, "only a fallback has one"),
        ({"mode_used": "agent"}, "mode_used is a StepMode, not a str"),
    ],
)  # fmt: skip
def test_a_refusal_names_the_rule(said, message):
    """D-57"""
    with pytest.raises(ValueError, match=message):
        DispatchResult(None, **said)


def test_a_refusal_names_all_rules_broken_at_once():
    with pytest.raises(ValueError) as refused:
        DispatchResult("SENTINEL", AGENT, forced=True)
    for name in ("agent_result_accepted", "agent_called", "forced", "check"):
        assert f"accepted: {name}" in str(refused.value)
    assert "SENTINEL" not in str(refused.value)


@pytest.mark.parametrize("reason", ["operator", "no_intent", "no_executor"])
def test_what_keeps_an_agent_from_being_called_has_no_attempts(reason):
    result = DispatchResult.fallback(1, reason=FallbackReason(reason), autonomy_level=COLLABORATOR)
    assert (result.agent_called, result.agent_result_accepted, result.attempts) == (False, False, 0)
    with pytest.raises(ValueError, match=f"fallback for {reason}: agent_called is False"):
        DispatchResult.fallback(1, reason=FallbackReason(reason), autonomy_level=COLLABORATOR, attempts=1)


@pytest.mark.parametrize("reason", ["exception", "timeout", "schema_violation"])
def test_an_agent_that_failed_was_called(reason):
    result = DispatchResult.fallback(
        1, reason=FallbackReason(reason), autonomy_level=COLLABORATOR, attempts=3
    )
    assert (result.agent_called, result.shape, result.mode_used) == (True, "fallback", DETERMINISTIC)
    with pytest.raises(ValueError, match=f"fallback for {reason}: agent_called is True"):
        DispatchResult.fallback(1, reason=FallbackReason(reason), autonomy_level=COLLABORATOR)


def test_a_budget_may_run_out_before_or_between_attempts():
    for attempts in (0, 2):
        result = DispatchResult.fallback(
            1, reason=FallbackReason.BUDGET, autonomy_level=COLLABORATOR, attempts=attempts
        )
        assert result.agent_called is bool(attempts)


def test_a_rejection_is_a_fallback_that_says_which_check_rejected():
    rejected = DispatchResult.fallback(
        {"by": "handler"}, reason=FallbackReason.VALIDATION_FAILURE, autonomy_level=COLLABORATOR,
        attempts=1, check=Check.COMPARE, validation_details=FIFTY, more_details=7,
    )  # fmt: skip
    assert rejected.to_plain() == {
        "mode_used": "deterministic",
        "fallback_used": True,
        "fallback_reason": "validation_failure",
        "autonomy_level": "collaborator",
        "agent_called": True,
        "agent_result_accepted": False,
        "check": "compare",
        "validation_details": [{"pointer": "/a", "kind": "value"}] * 50,
        "more_details": 7,
        "attempts": 1,
    }
    for check in (None, Check.CONTRACT, Check.NONE):
        with pytest.raises(ValueError, match="check is validator or compare"):
            DispatchResult.fallback(
                1,
                reason=FallbackReason.VALIDATION_FAILURE,
                autonomy_level=COLLABORATOR,
                attempts=1,
                check=check,
            )


def test_a_plain_result_is_written_in_one_word():
    assert DispatchResult.plain({"a": 1}).to_plain() == {"mode_used": "deterministic"}
    forced = DispatchResult.plain(forced=True, autonomy_level=AutonomyLevel.APPROVER)
    assert forced.to_plain() == {"mode_used": "deterministic", "forced": True, "autonomy_level": "approver"}
    assert forced.shape == "plain"


def test_an_accepted_result_says_which_check_it_passed():
    result = DispatchResult.accepted(
        1, autonomy_level=AutonomyLevel.CONSULTANT, check=Check.CONTRACT, validation_details=(ONE,),
        duration_ms=12.5, agent_duration_ms=0.0, spend=Spend(10, 2, 0.5), attempts=2, shadow=True,
    )  # fmt: skip
    assert result.shape == "accepted"
    assert result.to_plain() == {
        "mode_used": "agent",
        "autonomy_level": "consultant",
        "agent_called": True,
        "agent_result_accepted": True,
        "check": "contract",
        "validation_details": [{"pointer": "/a", "kind": "value"}],
        "attempts": 2,
        "duration_ms": 12.5,
        "agent_duration_ms": 0.0,
        "spend": {"input_tokens": 10, "output_tokens": 2, "cost_usd": 0.5},
        "shadow": True,
    }


def test_an_accepted_result_at_approver_has_nothing_to_tell():
    level = AutonomyLevel.APPROVER
    assert DispatchResult.accepted(1, autonomy_level=level, check=Check.NONE).check is Check.NONE
    with pytest.raises(ValueError, match="validation_details come with check validator, compare or contract"):
        DispatchResult.accepted(1, autonomy_level=level, check=Check.NONE, validation_details=(ONE,))


def test_other_things_stored_beside_a_result_are_left_alone():
    plain = {**DispatchResult.plain().to_plain(), "model_id": "m", "prompt_fingerprint": "abc", "check": None}
    assert DispatchResult.from_plain(plain, 7) == DispatchResult.plain(7)


def test_a_result_cannot_be_changed_and_takes_lists():
    result = DispatchResult.accepted(
        autonomy_level=COLLABORATOR, check=Check.COMPARE, validation_details=[ONE]  # type: ignore[arg-type]
    )  # fmt: skip
    assert result.validation_details == (ONE,)
    with pytest.raises(FrozenInstanceError):
        result.forced = True  # type: ignore[misc]


def test_the_fields_stand_in_the_order_of_the_specification():
    assert [one.name for one in fields(DispatchResult)] == [
        "output", "mode_used", "fallback_used", "fallback_reason", "autonomy_level", "agent_called",
        "agent_result_accepted", "forced", "check", "validation_details", "more_details", "agent_error",
        "attempts", "duration_ms", "agent_duration_ms", "handler_duration_ms", "spend", "shadow",
    ]  # fmt: skip


def test_an_agent_failure_survives_being_written_and_read():
    for failure in (
        AgentFailure("ExecutorTimeoutError", "not answered within 3 s"),
        AgentFailure("ValueError"),
    ):
        assert AgentFailure.from_plain(failure.to_plain()) == failure
    assert AgentFailure("ValueError").to_plain() == {"type": "ValueError"}


def test_an_output_that_equals_nothing_is_no_hindrance():
    assert DispatchResult.from_plain(DispatchResult.plain(math.nan).to_plain()).output is None
