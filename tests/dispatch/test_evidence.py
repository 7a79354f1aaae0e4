"""What counts as evidence about an agent, and what follows from it."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.dispatch.autonomy import AutonomyLevel
from detent.dispatch.evidence import (
    Demotion,
    EvidenceRules,
    Tally,
    Verdict,
    below,
    verdict_of,
    verdict_of_shadow,
    wilson,
)
from detent.kernel.errors import ConfigurationError

LETTERS = {"a": Verdict.AGREED, "d": Verdict.DIFFERED, "h": Verdict.HARD, "u": Verdict.UNCHECKED}


def tally(letters: str, keep: int = 50) -> Tally:
    """A tally of these verdicts, oldest first."""
    made = Tally()
    for letter in letters:
        made = made.after(LETTERS[letter], keep)
    return made


# -- the interval -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("agreed", "n", "lower", "upper"),
    [
        # The roots p of (p - a/n)² = z² p (1 - p) / n, worked out in decimals with 50 digits.
        (207, 212, 0.9459872728056974, 0.9898848302818163),
        (88, 88, 0.9581729333351078, 1.0),
        (73, 73, 0.9500079920442689, 1.0),
        (1, 2, 0.09453120573423072, 0.9054687942657693),
        (0, 10, 0.0, 0.2775327998628892),
    ],
)
def test_the_interval_is_wilsons(agreed, n, lower, upper):
    """D-49: the three lines printed in the specification are 94.6 %, 95.8 % and 95.0 %."""
    low, high = wilson(agreed, n)
    assert math.isclose(low, lower, rel_tol=1e-14, abs_tol=1e-15)
    assert math.isclose(high, upper, rel_tol=1e-14)


@given(st.integers(1, 5000), st.data())
def test_the_interval_solves_its_equation_and_holds_the_share(n, data):
    agreed = data.draw(st.integers(0, n))
    low, high = wilson(agreed, n)
    assert 0.0 <= low <= agreed / n <= high <= 1.0
    for end in (low, high):
        assert math.isclose((end - agreed / n) ** 2, wilson.__defaults__[0] ** 2 * end * (1 - end) / n,
                            rel_tol=1e-6, abs_tol=1e-12)  # fmt: skip


def test_of_nothing_nothing_is_known():
    assert wilson(0, 0) == (0.0, 1.0)
    with pytest.raises(ValueError, match="3 of 2 is no share"):
        wilson(3, 2)


# -- verdicts -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("record", "verdict"),
    [
        ({"mode_used": "agent", "check": "compare"}, Verdict.AGREED),
        ({"mode_used": "agent", "check": "validator"}, Verdict.AGREED),
        ({"mode_used": "agent", "check": "contract"}, Verdict.UNCHECKED),
        ({"mode_used": "agent", "check": "none"}, Verdict.UNCHECKED),
        ({"mode_used": "deterministic"}, None),
        ({"fallback_used": True, "fallback_reason": "validation_failure"}, Verdict.DIFFERED),
        ({"fallback_used": True, "fallback_reason": "exception"}, Verdict.HARD),
        ({"fallback_used": True, "fallback_reason": "timeout"}, Verdict.HARD),
        ({"fallback_used": True, "fallback_reason": "schema_violation"}, Verdict.HARD),
        ({"fallback_used": True, "fallback_reason": "no_executor"}, None),
        ({"fallback_used": True, "fallback_reason": "no_intent"}, None),
        ({"fallback_used": True, "fallback_reason": "operator"}, None),
        ({"fallback_used": True, "fallback_reason": "budget"}, None),
    ],
)
def test_each_shape_of_a_record_says_one_thing_about_the_agent(record, verdict):
    assert verdict_of(record) is verdict


@pytest.mark.parametrize(
    ("note", "verdict"),
    [
        ({"side": "agent", "outcome": "agreed"}, Verdict.AGREED),
        ({"side": "handler", "outcome": "differed"}, Verdict.DIFFERED),
        ({"side": "agent", "outcome": "failed", "reason": "timeout"}, Verdict.HARD),
        ({"side": "agent", "outcome": "failed", "reason": "budget"}, None),
        ({"side": "agent", "outcome": "failed", "reason": "no_executor"}, None),
        ({"side": "handler", "outcome": "failed", "reason": "exception"}, None),
        ({}, None),
    ],
)
def test_a_shadow_that_failed_counts_only_when_the_agent_failed_hard(note, verdict):
    assert verdict_of_shadow(note) is verdict


# -- tallies ------------------------------------------------------------------------------------------------


def test_a_tally_counts_and_remembers_only_the_latest():
    made = tally("aadhu" + "a" * 60)
    assert (made.n, made.agreed, made.differed, made.hard) == (64, 62, 1, 1)
    assert made.recent == "a" * 50
    assert made.agreement == 62 / 64
    assert Tally().agreement is None


def test_an_unchecked_answer_is_no_evidence_of_agreement():
    assert tally("uuu") == Tally(asked="uuu")


def test_a_tally_can_be_written_down_and_read_back():
    made = tally("aadhu")
    assert made.to_plain() == {"n": 4, "agreed": 2, "hard": 1, "recent": "aadh", "asked": "aadhu"}
    assert Tally.from_plain(made.to_plain()) == made
    assert Tally.from_plain(None) == Tally() == Tally.from_plain(Tally().to_plain())


@pytest.mark.parametrize("plain", [{"n": 1, "agreed": 2}, {"n": 1, "recent": "aa"}, {"n": 1, "recent": "x"}])
def test_a_tally_that_cannot_be_is_refused(plain):
    with pytest.raises(ValueError, match="tally"):
        Tally.from_plain(plain)


def test_drift_is_a_bad_window_in_a_good_series():
    rules = EvidenceRules()
    good = "a" * 200
    assert not tally(good + "d" * 4).drifts(rules)  # 16 of the last 20 is 0.8, not below
    assert tally(good + "d" * 5).drifts(rules)  # 15 of the last 20, 200 of 205 over all
    assert not tally("a" * 90 + "d" * 5).drifts(rules)  # the series is not above 0.95 itself
    assert not tally("a" * 14 + "d" * 5).drifts(rules)  # not a whole window yet


def test_three_hard_failures_among_the_last_twenty_lower_a_step():
    rules = EvidenceRules()
    assert tally("hh" + "a" * 10).demotion(rules) is None
    assert tally("hh" + "a" * 10 + "h").demotion(rules) == "3 of the last 13 failed hard"
    assert tally("hh" + "a" * 18 + "h").demotion(rules) is None  # the first has left the window


def test_answers_nobody_checked_keep_rare_failures_apart():
    """At approver nothing is compared: three failures among thousands of answers are no burst."""
    rules = EvidenceRules()
    assert tally("h" + "u" * 30 + "h" + "u" * 30 + "h").demotion(rules) is None
    assert tally("u" * 30 + "huhuh").demotion(rules) == "3 of the last 20 failed hard"


def test_agreement_below_the_mark_lowers_a_step_once_a_window_is_full():
    rules = EvidenceRules()
    assert tally("d" * 19).demotion(rules) is None
    assert tally("d" * 20).demotion(rules) == "0 of the last 20 agreed, below 80%"
    assert tally("a" * 16 + "d" * 4).demotion(rules) is None
    assert tally("a" * 100 + "d" * 5).demotion(rules) == "15 of the last 20 agreed, below 80%"


def test_unchecked_answers_do_not_push_comparisons_out_of_the_window():
    assert tally("du" * 20).demotion(EvidenceRules()) == "0 of the last 20 agreed, below 80%"


def test_a_project_may_forbid_lowering():
    assert tally("h" * 20).demotion(EvidenceRules(demote=False)) is None


def test_the_way_down_ends_at_the_floor():
    rules = EvidenceRules()
    assert below(AutonomyLevel.APPROVER, rules) is AutonomyLevel.CONSULTANT
    assert below(AutonomyLevel.COLLABORATOR, rules) is AutonomyLevel.OPERATOR
    assert below(AutonomyLevel.OPERATOR, rules) is None
    higher = EvidenceRules(floor=AutonomyLevel.COLLABORATOR)
    assert below(AutonomyLevel.CONSULTANT, higher) is AutonomyLevel.COLLABORATOR
    assert below(AutonomyLevel.COLLABORATOR, higher) is None


# -- rules --------------------------------------------------------------------------------------------------


def test_bad_rules_are_told_all_at_once():
    with pytest.raises(ConfigurationError) as caught:
        EvidenceRules(min_n=0, window=True, drift_below=1.2, floor="boss")  # type: ignore[arg-type]
    said = str(caught.value)
    assert "min_n is 0; a whole number of at least 1 is needed" in said
    assert "window is True" in said
    assert "drift_below is 1.2; a share between 0 and 1 is needed" in said
    assert "floor is 'boss'; one of operator, collaborator, consultant, approver is needed" in said


@pytest.mark.parametrize(
    "rules", [{"drift_below": 0.9, "drift_above": 0.8}, {"demote_hard": 21}, {"min_lower95": float("nan")}]
)
def test_rules_that_contradict_each_other_are_refused(rules):
    with pytest.raises(ConfigurationError):
        EvidenceRules(**rules)


def test_rules_say_how_much_a_tally_must_remember():
    assert EvidenceRules().keep == 50
    assert EvidenceRules(window=200).keep == 200


# -- demotions ----------------------------------------------------------------------------------------------


def test_a_demotion_can_be_written_down_and_read_back():
    made = Demotion(
        AutonomyLevel.COLLABORATOR, AutonomyLevel.CONSULTANT, "3 of the last 20 failed hard", 12.5, "engine",
        {"model_id": "m"},
    )  # fmt: skip
    plain = made.to_plain()
    assert plain == {
        "level": "collaborator", "was": "consultant", "why": "3 of the last 20 failed hard", "at": 12.5,
        "by": "engine", "series": {"model_id": "m"},
    }  # fmt: skip
    assert Demotion.from_plain(plain) == made
    assert Demotion.from_plain(None) is None
    with pytest.raises(ValueError, match="does not hold a demotion"):
        Demotion.from_plain({"other": 1})
