"""Target sets: names for groups of heads, counted from the left, and which may run at the same time."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache


@cache
def target_sets(fixtures: int) -> dict[str, frozenset[int]]:
    """The sets that exist for a number of fixtures, each with the 0-based places of its heads."""
    n = fixtures
    if n < 1:
        return {}
    places = range(n)
    sets = {"ALL": frozenset(places)}
    sets |= {f"MH{place + 1}": frozenset({place}) for place in places}
    if n >= 2:
        sets["LEFT"] = frozenset(places[: n // 2])
        sets["RIGHT"] = frozenset(places[n // 2 :])
        sets["ODD"] = frozenset(places[::2])
        sets["EVEN"] = frozenset(places[1::2])
    if n >= 4:
        edge = max(1, n // 4)
        sets["CENTER"] = frozenset(places[n // 4 : n - n // 4])
        sets["OUTER"] = frozenset([*places[:edge], *places[-edge:]])
        sets["INNER"] = frozenset(places[n // 3 : n - n // 3]) if n >= 6 else sets["CENTER"]
    return sets


def heads_of(targets: Iterable[str], fixtures: int) -> frozenset[int]:
    """The heads that some targets name; unknown ones name none."""
    sets = target_sets(fixtures)
    return frozenset().union(*(sets.get(target, frozenset()) for target in targets))


def disjoint(first: Iterable[str], second: Iterable[str], fixtures: int) -> bool:
    """True if two target lists may run in the same bar: they share no head."""
    return not heads_of(first, fixtures) & heads_of(second, fixtures)
