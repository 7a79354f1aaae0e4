"""Target sets and which of them may run together."""

from __future__ import annotations

import pytest

from detent.apps.choreography.domain.targets import disjoint, heads_of, target_sets

COUNTS = range(1, 13)


def test_the_sets_of_six_heads_are_as_counted_by_hand() -> None:
    """R-47."""
    assert {name: sorted(heads) for name, heads in target_sets(6).items() if not name.startswith("MH")} == {
        "ALL": [0, 1, 2, 3, 4, 5],
        "LEFT": [0, 1, 2],
        "RIGHT": [3, 4, 5],
        "ODD": [0, 2, 4],
        "EVEN": [1, 3, 5],
        "CENTER": [1, 2, 3, 4],
        "OUTER": [0, 5],
        "INNER": [2, 3],
    }
    assert sorted(target_sets(5)["LEFT"]) == [0, 1]
    assert sorted(target_sets(9)["INNER"]) == [3, 4, 5]
    assert sorted(target_sets(9)["OUTER"]) == [0, 1, 7, 8]


@pytest.mark.parametrize("count", COUNTS)
def test_sets_exist_from_their_least_number_of_heads_and_name_heads_that_exist(count: int) -> None:
    """R-47: n = 1…12."""
    sets = target_sets(count)
    expected = {"ALL", *(f"MH{k}" for k in range(1, count + 1))}
    expected |= {"LEFT", "RIGHT", "ODD", "EVEN"} if count >= 2 else set()
    expected |= {"CENTER", "OUTER", "INNER"} if count >= 4 else set()
    assert set(sets) == expected
    assert all(heads and heads <= frozenset(range(count)) for heads in sets.values())
    assert count < 4 or count >= 6 or sets["INNER"] == sets["CENTER"]


@pytest.mark.parametrize("count", COUNTS)
def test_halves_complement_each_other(count: int) -> None:
    """R-47: LEFT + RIGHT, ODD + EVEN and CENTER + OUTER share no head, and together are all."""
    pairs = [("LEFT", "RIGHT"), ("ODD", "EVEN"), ("CENTER", "OUTER")]
    for first, second in [pair for pair in pairs if pair[0] in target_sets(count)]:
        assert disjoint([first], [second], count)
        assert heads_of([first, second], count) == target_sets(count)["ALL"]
    if count >= 4:
        assert disjoint(["INNER"], ["OUTER"], count)
    for name in target_sets(count):
        assert not disjoint(["ALL"], [name], count)
    if count >= 2:
        assert disjoint(["MH1"], ["MH2"], count)
        assert not disjoint(["MH1"], ["LEFT"], count)
