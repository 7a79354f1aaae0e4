"""The closed choices of dispatch."""

from itertools import pairwise

import pytest

from detent.dispatch.autonomy import AutonomyLevel, Check, FallbackReason, StepMode

LOWEST_FIRST = [
    AutonomyLevel.OPERATOR,
    AutonomyLevel.COLLABORATOR,
    AutonomyLevel.CONSULTANT,
    AutonomyLevel.APPROVER,
]


def test_reasons_and_checks_are_closed():
    assert {reason.value for reason in FallbackReason} == {
        "exception", "timeout", "schema_violation", "validation_failure",
        "no_executor", "no_intent", "operator", "budget", "prose_unreviewed",
    }  # fmt: skip
    assert {check.value for check in Check} == {"validator", "compare", "contract", "none"}
    assert {mode.value for mode in StepMode} == {"deterministic", "agent"}


def test_levels_are_ordered_by_trust_not_by_name():
    assert sorted(AutonomyLevel, key=lambda level: level.value) != LOWEST_FIRST
    assert sorted({*AutonomyLevel}) == LOWEST_FIRST
    assert min(AutonomyLevel) is AutonomyLevel.OPERATOR
    assert max(AutonomyLevel) is AutonomyLevel.APPROVER
    assert [level.rank for level in LOWEST_FIRST] == [0, 1, 2, 3]


@pytest.mark.parametrize("one", AutonomyLevel)
@pytest.mark.parametrize("other", AutonomyLevel)
def test_any_two_levels_can_be_compared(one, other):
    assert (one < other) is (one.rank < other.rank)
    assert (one <= other) is (one.rank <= other.rank)
    assert (one > other) is (one.rank > other.rank)
    assert (one >= other) is (one.rank >= other.rank)
    assert (one == other) is (one is other)


def test_the_level_above_and_the_level_below_are_neighbours():
    for lower, higher in pairwise(LOWEST_FIRST):
        assert lower.above is higher
        assert higher.below is lower
    assert AutonomyLevel.OPERATOR.below is None
    assert AutonomyLevel.APPROVER.above is None


def test_a_level_is_not_compared_with_a_text():
    """As texts, "consultant" would come before "operator"."""
    with pytest.raises(TypeError):
        _ = AutonomyLevel.CONSULTANT < "operator"
    with pytest.raises(TypeError):
        _ = AutonomyLevel.CONSULTANT >= 2


def test_a_level_is_written_and_read_by_its_value():
    assert AutonomyLevel("consultant") is AutonomyLevel.CONSULTANT
    assert AutonomyLevel.CONSULTANT == "consultant"
