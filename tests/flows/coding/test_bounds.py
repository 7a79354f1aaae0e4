"""Time, memory and failing commits are measured by `make bench`; here, that the measure is one."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from benchmarks.coding import (
    COMPATIBILITY,
    RESPONSE,
    Measurement,
    Sizes,
    disturbed,
    flat,
    main,
    memory,
    pairs,
)
from benchmarks.coding_parts import PARTS
from benchmarks.coding_requests import PARITY
from benchmarks.paired import Paired, Round, order, upper_end

SMALL = Sizes(
    moves=200, committed=50, transitions=12, once=50, for_good=5_000, processes=1, rounds=1,
    scenarios=("S02",), wait=0.0, turns=11, short=5, repeats=1,
)  # fmt: skip
NAMES = {
    "transition in memory, p99", "transition committed in memory, p99", "transitions lost where commits fail",
    "response time over the plain loop", "compatibility layer over booleans",
    *(
        f"memory, {way}, {what}"
        for way in ("one request", "requests of one turn")
        for what in ("traced peak", "resident")
    ),
    *(
        f"{what}{way}{more}"
        for way in ("one request", "requests of one turn")
        for what, more in (
            ("time a turn, ", ", 11 turns beside 5"), ("bytes a turn, store, ", ""),
            ("bytes a turn, session file, ", ""),
        )
    ),
}  # fmt: skip


def rounds(*seconds: tuple[float, float, float]) -> dict[str, Any]:
    return {"rounds": seconds}


class TestPairs:
    def test_the_upper_end_is_judged_and_not_the_median(self):
        """C-35: most pairs are within 5 %, yet the median may well be above."""
        noisy = [(1.01, 1.0, 1.0)] * 8 + [(1.2, 1.0, 1.0)] * 7
        bound = pairs("response", RESPONSE, [rounds(*noisy)])
        assert Paired.of([Round(*one) for one in noisy]).median == pytest.approx(0.01)
        assert bound.verdict == "MISSED"
        assert pairs("response", RESPONSE, [rounds(*[(1.04, 1.0, 1.0)] * 15)]).verdict == "MET"

    @pytest.mark.parametrize(
        ("again", "verdict"), [(1.009, "MET"), (1.011, "INCONCLUSIVE"), (0.98, "INCONCLUSIVE")]
    )
    def test_a_baseline_that_is_off_from_itself_by_more_than_1_percent_decides_nothing(self, again, verdict):
        """C-35, C-37."""
        assert pairs("layer", COMPATIBILITY, [rounds(*[(1.0, 1.0, again)] * 15)]).verdict == verdict

    def test_pairs_of_all_processes_count(self):
        assert "of 15 pairs" in pairs("x", 0.05, [rounds(*[(1.0, 1.0, 1.0)] * 5)] * 3).words

    def test_the_order_is_swapped_from_round_to_round(self):
        assert [order(number) for number in range(3)] == [(0, 1, 2), (2, 1, 0), (0, 1, 2)]

    def test_the_upper_end_is_within_the_values_and_the_same_every_time(self):
        values = [0.01, 0.02, 0.03, 0.04, 0.30]
        assert 0.03 < upper_end(values) <= 0.30
        assert upper_end(values) == upper_end(values)
        assert upper_end([0.02] * 15) == 0.02


class TestBounds:
    def test_memory_is_what_the_flow_takes_more_than_the_loop(self):
        """C-36."""
        assert memory("m", {"grown": 12e6}, {"grown": 3e6}, 1000).ratio == pytest.approx(0.9)
        assert memory("m", {"grown": 14e6}, {"grown": 3e6}, 1000).verdict == "MISSED"

    def test_a_turn_that_grows_is_not_flat(self):
        """C-59: twice as many bytes, or a quarter more time."""
        part = {
            "short_ms": 1.0, "again_ms": 1.0, "long_ms": 1.25, "short_cpu_ms": 1.0, "again_cpu_ms": 1.0,
            "long_cpu_ms": 1.25, "store_short": 100.0, "store_long": 200.0, "file_short": 100.0,
            "file_long": 101.0, "writing_long_ms": 1.0,
        }  # fmt: skip
        assert [bound.verdict for bound in flat("one request", [part], SMALL)] == ["MISSED", "MISSED", "MET"]
        unsteady = {**part, "again_ms": 1.02}
        assert next(flat("one request", [unsteady], SMALL)).verdict == "INCONCLUSIVE"


class TestParts:
    @pytest.mark.exhaustive
    def test_each_bound_is_measured_and_printed_by_name(self, tmp_path: Path, capsys):
        """C-34 to C-37, C-59: the whole group, at sizes too small to say anything."""
        folders = (tmp_path / str(number) for number in itertools.count())

        def here(name: str, param: dict[str, Any]) -> Any:
            folder = next(folders)
            folder.mkdir()
            return PARTS[name]({**param, "folder": str(folder)})

        (row,) = main(measurement=Measurement(SMALL, here))
        assert {target["target"] for target in row["targets"]} == NAMES
        printed = capsys.readouterr().out
        assert all(f"{name} " in printed for name in NAMES)
        assert "NOT JUDGED" not in printed

    def test_requests_whose_commits_fail_are_resumed_and_those_that_cannot_be_say_why(self, tmp_path: Path):
        """C-30: a commit in 5 fails once, one in 60 for good; every other request reaches its goal."""
        part = PARTS["disturbed"](
            {"folder": str(tmp_path), "transitions": 150, "once": 5, "for_good": 60, "scenarios": PARITY}
        )
        assert part["failed_once"] > 25
        assert 0 < part["lost"] < 10
        assert part["n"] >= 150
        assert part["unresumed"] > part["share"] > 0.001
        assert disturbed(part).verdict == "MISSED"
        assert disturbed({**part, "lost": 2, "n": 10_000, "share": 0.0002}).verdict == "MET"
