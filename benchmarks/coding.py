"""The bounds of the coding assistant: what was measured over what is allowed, which passes up to 1.

A comparison of times is judged only if the baseline agrees with itself to 1 %; else it is inconclusive, which
is not passed. What is measured is in `coding_parts`, the requests are in `coding_requests`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from benchmarks import machine
from benchmarks.coding_requests import PARITY
from benchmarks.paired import OFF, Paired, Round
from benchmarks.plan import Contestant
from benchmarks.runner import Outcome, run_once

TRANSITION_MS = 1.0
FAILED = 0.001
"""Share of valid transitions that may fail on a store whose commits fail."""
RESPONSE = 0.05
COMPATIBILITY = 0.02
MEMORY_MB = 10.0
FLAT = 1.2


class Sizes(NamedTuple):
    """How much is measured."""

    moves: int
    committed: int
    transitions: int
    """On the store whose commits fail."""
    once: int
    """Of so many commits one fails once."""
    for_good: int
    """Of so many commits one fails for good."""
    processes: int
    """In which the pairs are timed."""
    rounds: int
    """Pairs in each of them."""
    scenarios: tuple[str, ...]
    wait: float
    """Seconds that the model takes to answer."""
    turns: int
    """Of a long session."""
    short: int
    repeats: int
    """Of the sessions that are held against short ones."""


FULL = Sizes(200_000, 2_000, 10_000, 50, 5_000, 3, 5, PARITY, 0.2, 1_000, 10, 5)
QUICK = Sizes(20_000, 500, 500, 50, 5_000, 1, 2, ("S02", "S18"), 0.2, 40, 10, 1)


class Bound(NamedTuple):
    """A figure, and how large it may be."""

    name: str
    measured: float
    limit: float
    words: str
    """The same in its unit, and what else there is to say."""
    is_conclusive: bool = True

    @property
    def ratio(self) -> float:
        """Measured over bound."""
        return self.measured / self.limit

    @property
    def verdict(self) -> str:
        """Whether it passes."""
        if not self.is_conclusive:
            return "INCONCLUSIVE"
        return "MET" if self.ratio <= 1 else "MISSED"

    def __str__(self) -> str:
        return f"  {self.name:54}{self.ratio:9.4f}  {self.verdict:13}{self.words}"


class Failed(Exception):
    """A part gave no figures, and why."""


# -- judging ------------------------------------------------------------------------------------------------


Figures = Mapping[str, Any]


def transitions(part: Figures, sizes: Sizes) -> Iterator[Bound]:
    """Time a transition."""
    for name, key, count in (
        ("transition in memory, p99", "moved_ms", sizes.moves),
        ("transition committed in memory, p99", "committed_ms", sizes.committed),
    ):
        yield Bound(
            name, part[key], TRANSITION_MS, f"{part[key]:.4f} ms of {TRANSITION_MS:g}, {count:,} transitions"
        )


def disturbed(part: Figures) -> Bound:
    """Transitions that failed because their commit did."""
    words = (
        f"{part['lost']} of {part['n']:,} lost, each with an error; {part['failed_once']} of "
        f"{part['commits']:,} commits failed once, and without resuming {part['unresumed']:.2%} were lost"
    )
    return Bound("transitions lost where commits fail", part["share"], FAILED, words)


def pairs(name: str, limit: float, parts: Sequence[Figures], more: str = "") -> Bound:
    """The upper end of what pairs say."""
    compared = Paired.of([Round(*seconds) for part in parts for seconds in part["rounds"]])
    return Bound(name, compared.upper, limit, f"{compared}{more}", compared.is_conclusive)


def memory(name: str, flow: Figures, loop: Figures, turns: int) -> Bound:
    """What the flow takes more than the plain loop."""
    more = (flow["grown"] - loop["grown"]) / 1e6
    words = f"{more:.2f} MB of {MEMORY_MB:g} to turn {turns:,}: {flow['grown'] / 1e6:.2f} less the loop's "
    return Bound(name, max(0.0, more), MEMORY_MB, f"{words}{loop['grown'] / 1e6:.2f}")


def flat(way: str, parts: Sequence[Figures], sizes: Sizes) -> Iterator[Bound]:
    """A turn of a long session beside one of short sessions."""
    ratios, cpu = [], []
    for part in parts:
        ratios.append(part["long_ms"] * 2 / (part["short_ms"] + part["again_ms"]))
        cpu.append(part["long_cpu_ms"] * 2 / (part["short_cpu_ms"] + part["again_cpu_ms"]))
    off = median(part["again_ms"] / part["short_ms"] for part in parts) - 1
    long, short = median(part["long_ms"] for part in parts), median(part["short_ms"] for part in parts)
    beside = f"{sizes.turns:,} turns beside {sizes.short}"
    words = f"{long:.2f} ms beside {short:.2f} (itself {off:+.2%}); processor time {median(cpu):.2f} times"
    yield Bound(f"time a turn, {way}, {beside}", median(ratios), FLAT, words, abs(off) <= OFF)
    for name, key in (("store", "store"), ("session file", "file")):
        bytes_long, bytes_short = parts[0][f"{key}_long"], parts[0][f"{key}_short"]
        words = f"{bytes_long:,.0f} bytes beside {bytes_short:,.0f}"
        if key == "file":
            words += f"; to write it takes {median(part['writing_long_ms'] for part in parts):.0f} ms"
        yield Bound(f"bytes a turn, {name}, {way}", bytes_long / bytes_short, FLAT, words)


# -- measuring ----------------------------------------------------------------------------------------------


def in_a_process(name: str, param: dict[str, Any]) -> Figures:
    """The figures of a part, measured in a process of its own."""
    outcome = Outcome()
    run_once(Contestant(name, "benchmarks.coding_parts", peer=False), name, param, None, outcome)
    if outcome.problem:
        raise Failed(f"{name} {outcome.problem}")
    return outcome.runs[0]


class Measurement:
    """Runs the parts and judges them."""

    def __init__(self, sizes: Sizes, run: Callable[[str, dict[str, Any]], Figures] = in_a_process) -> None:
        self.sizes = sizes
        self._run = run
        self.raw: dict[str, list[Figures]] = {}
        """What the parts gave, by name."""

    def part(self, name: str, **param: Any) -> Figures:
        """Run a part."""
        figures = self._run(name, param)
        self.raw.setdefault(name, []).append({"param": param, "load": machine.load(), **figures})
        return figures

    def bounds(self) -> Iterator[Bound | Failed]:
        """Every bound, as soon as it is known, or why it is not."""
        for judged in (self._transitions, self._disturbed, self._pairs, self._memory, self._flat):
            try:
                yield from judged()
            except Failed as failed:
                yield failed

    def _transitions(self) -> Iterator[Bound]:
        sizes = self.sizes
        part = self.part("transitions", moves=sizes.moves, committed=sizes.committed)
        yield from transitions(part, sizes)

    def _disturbed(self) -> Iterator[Bound]:
        sizes = self.sizes
        yield disturbed(
            self.part(
                "disturbed", transitions=sizes.transitions, once=sizes.once, for_good=sizes.for_good,
                scenarios=PARITY,
            )
        )  # fmt: skip

    def _pairs(self) -> Iterator[Bound]:
        sizes = self.sizes
        parts: dict[str, list[Figures]] = {"response": [], "compatibility": []}
        for number in range(sizes.processes):
            for name, figures in parts.items():
                figures.append(
                    self.part(
                        name, first=number * sizes.rounds, rounds=sizes.rounds, wait=sizes.wait,
                        scenarios=sizes.scenarios,
                    )
                )  # fmt: skip
        response, compatibility = parts.values()
        commit = median(part["commit_ms"] for part in response)
        more = f"; a bare commit took {commit:.1f} ms meanwhile"
        yield pairs("response time over the plain loop", RESPONSE, response, more)
        machine_us, booleans_us = (
            median(part[key] for part in compatibility) for key in ("machine_us", "booleans_us")
        )
        more = f"; {machine_us:.0f} µs a reply beside {booleans_us:.0f}"
        yield pairs("compatibility layer over booleans", COMPATIBILITY, compatibility, more)

    def _memory(self) -> Iterator[Bound]:
        turns = self.sizes.turns
        for by_request, way in ((False, "one request"), (True, "requests of one turn")):
            for traced, what in ((True, "traced peak"), (False, "resident")):
                flow, loop = (
                    self.part("memory", flow=flow, traced=traced, by_request=by_request, turns=turns)
                    for flow in (True, False)
                )
                yield memory(f"memory, {way}, {what}", flow, loop, turns)

    def _flat(self) -> Iterator[Bound]:
        sizes = self.sizes
        for by_request, way in ((False, "one request"), (True, "requests of one turn")):
            parts = [
                self.part("flat", turns=sizes.turns, short=sizes.short, by_request=by_request)
                for _ in range(sizes.repeats)
            ]
            yield from flat(way, parts, sizes)


def main(quick: bool = False, measurement: Measurement | None = None) -> list[dict[str, Any]]:
    """Print the bounds, and return them with what was measured."""
    measurement = measurement or Measurement(QUICK if quick else FULL)
    note = "; quick sizes, indicative only" if quick else ""
    print(f"\ncoding: measured over bound, which passes up to 1{note}")
    judged: list[dict[str, Any]] = []
    for bound in measurement.bounds():
        if isinstance(bound, Failed):
            print(f"  NOT JUDGED: {bound}", flush=True)
            judged.append({"target": "coding", "verdict": "NOT JUDGED", "measured": str(bound)})
            continue
        print(bound, flush=True)
        judged.append(
            {
                "target": bound.name, "verdict": bound.verdict, "measured": bound.words,
                "ratio": bound.ratio, "limit": bound.limit,
            }
        )  # fmt: skip
    return [
        {
            "workload": "coding",
            "param": measurement.sizes._asdict(),
            "targets": judged,
            "parts": measurement.raw,
        }
    ]


if __name__ == "__main__":
    main("--quick" in sys.argv)
