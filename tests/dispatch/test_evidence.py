"""What counts as evidence about an agent, and what follows from it."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.dispatch.autonomy import AutonomyLevel
from detent.dispatch.evidence import (
    ByLevel,
    Demotion,
    EvidenceRules,
    Power,
    Verdict,
    below,
    verdict_of,
    verdict_of_shadow,
    wilson,
)
from detent.kernel.errors import ConfigurationError

LETTERS = {"a": Verdict.AGREED, "d": Verdict.DIFFERED, "h": Verdict.OUTAGE, "u": Verdict.UNCHECKED}


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
        ({"fallback_used": True, "fallback_reason": "exception"}, Verdict.OUTAGE),
        ({"fallback_used": True, "fallback_reason": "timeout"}, Verdict.OUTAGE),
        ({"fallback_used": True, "fallback_reason": "schema_violation"}, Verdict.REFUSED),
        ({"fallback_used": True, "fallback_reason": "no_executor"}, Verdict.MISCONFIGURED),
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
        ({"side": "agent", "outcome": "failed", "reason": "timeout"}, Verdict.OUTAGE),
        ({"side": "agent", "outcome": "failed", "reason": "budget"}, None),
        ({"side": "agent", "outcome": "failed", "reason": "no_executor"}, Verdict.MISCONFIGURED),
        ({"side": "handler", "outcome": "failed", "reason": "exception"}, None),
        ({}, None),
    ],
)
def test_a_shadow_that_failed_counts_only_when_the_agent_failed(note, verdict):
    assert verdict_of_shadow(note) is verdict


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
        EvidenceRules(recheck=True, min_power=1.2, tolerate=ByLevel(0.02, 7), risk=0, floor="boss")  # type: ignore[arg-type]
    message = str(caught.value)
    assert "recheck is True; a whole number of at least 0 is needed" in message
    assert "min_power is 1.2; a share between 0 and 1 is needed" in message
    assert "tolerate.approver is 7; a share between 0 and 1 is needed" in message
    assert "risk is 0; a chance between 0 and 1 is needed" in message
    assert "floor is 'boss'; one of operator, collaborator, consultant, approver is needed" in message


@pytest.mark.parametrize(
    "rules", [{"tolerate": ByLevel(0.0, 0.0)}, {"patience": 1}, {"harm": 0}, {"risk": float("nan")}]
)
def test_rules_that_no_evidence_can_meet_are_refused(rules):
    with pytest.raises(ConfigurationError):
        EvidenceRules(**rules)


def test_the_harm_that_is_accepted_sets_the_share_of_audits():
    rules = EvidenceRules(harm=20)
    assert rules.audited_share(AutonomyLevel.CONSULTANT, Power(10_000, 10_000)) == pytest.approx(
        0.05, rel=0.01
    )
    weak = rules.audited_share(AutonomyLevel.CONSULTANT, Power(10_000, 5_000))
    assert weak > 0.1  # a check that misses half must look twice as often


def sort(name: str, planted: int, caught: int) -> dict[str, object]:
    return {"sort": name, "planted": planted, "caught": caught}


def test_the_power_that_counts_is_that_of_the_weakest_sort():
    """A pooled share would hide the blind spot."""
    mark = {"sorts": [sort("value", 100, 100), sort("move", 50, 10)]}
    assert Power.from_plain(mark) == Power(50, 10, "move")
    assert Power.from_plain({"sorts": [sort("value", 0, 0)]}) is None
    assert Power.from_plain(None) is None


# -- demotions ----------------------------------------------------------------------------------------------


def test_a_demotion_can_be_written_down_and_read_back():
    made = Demotion(
        AutonomyLevel.COLLABORATOR, AutonomyLevel.CONSULTANT, "3 of the last 20 failed hard", 12.5, "engine",
        {"model_id": "m"},
    )  # fmt: skip
    plain = made.to_plain()
    assert plain == {
        "level": "collaborator", "was": "consultant", "why": "3 of the last 20 failed hard", "at": 12.5,
        "by": "engine", "series": {"model_id": "m"}, "work": "",
    }  # fmt: skip
    assert Demotion.from_plain(plain) == made
    assert Demotion.from_plain(None) is None
    with pytest.raises(ValueError, match="does not hold a demotion"):
        Demotion.from_plain({"other": 1})
