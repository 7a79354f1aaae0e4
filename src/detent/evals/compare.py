"""Compares two reports, or the arms of one report."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import NamedTuple

from detent.dispatch.evidence import wilson
from detent.evals.answers import AgentAlone, AnswerCounts, percent
from detent.evals.paths import drawn
from detent.evals.report import CaseResult, EvalReport
from detent.insight.formatting import columns, money
from detent.insight.percentiles import Spread
from detent.kernel.budget import NOTHING, Spend

SLOWER_RATIO, SLOWER_MS = 1.5, 50.0
"""A case counts as slower when it takes longer by both this factor and this many milliseconds."""
NO_ANSWERS = AnswerCounts()
TOO_FEW = 30
"""Fewer plays than this are too few for a conclusion about an arm."""


class Slower(NamedTuple):
    """A case that takes longer than before."""

    case: str
    before: float
    after: float


class PathChange(NamedTuple):
    """A case that takes another path than before."""

    case: str
    before: tuple[str, ...]
    after: tuple[str, ...]


class AnswerChange(NamedTuple):
    """What became of a step's answers, before and after."""

    step: str
    before: AnswerCounts
    after: AnswerCounts


@dataclass(frozen=True, slots=True)
class Comparison:
    """How a report differs from an earlier one."""

    newly_failing: tuple[str, ...] = ()
    newly_passing: tuple[str, ...] = ()
    slower: tuple[Slower, ...] = ()
    paths: tuple[PathChange, ...] = ()
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    answers: tuple[AnswerChange, ...] = ()
    """By step, then in total; empty when no agent was asked in either report."""
    alone: tuple[AgentAlone, AgentAlone] | None = None
    """What the agents come to alone, before and after; None when no agent was asked in either report."""

    @property
    def worse(self) -> bool:
        """True when a case fails that passed before."""
        return bool(self.newly_failing)


def compare(before: EvalReport, after: EvalReport) -> Comparison:
    """How `after` differs from `before`, case by case; repetitions of a case are judged together."""
    old, new = _by_case(before), _by_case(after)
    both = [label for label in new if label in old]
    return Comparison(
        tuple(label for label in both if _passed(old[label]) and not _passed(new[label])),
        tuple(label for label in both if not _passed(old[label]) and _passed(new[label])),
        tuple(
            Slower(label, was, now)
            for label in both
            if (now := _ms(new[label])) > SLOWER_RATIO * (was := _ms(old[label])) and now - was > SLOWER_MS
        ),
        tuple(
            PathChange(label, old[label][0].path, new[label][0].path)
            for label in both
            if {play.path for play in old[label]} != {play.path for play in new[label]}
        ),
        tuple(label for label in new if label not in old),
        tuple(label for label in old if label not in new),
        _answer_changes(before, after),
        (before.agent_alone, after.agent_alone) if before.answers.asked or after.answers.asked else None,
    )


def _answer_changes(before: EvalReport, after: EvalReport) -> tuple[AnswerChange, ...]:
    if not (before.answers.asked or after.answers.asked):
        return ()
    old, new, none = before.answers_by_step, after.answers_by_step, AnswerCounts()
    steps = sorted({*old, *new})
    changes = [AnswerChange(step, old.get(step, none), new.get(step, none)) for step in steps]
    return (*changes, AnswerChange("total", before.answers, after.answers))


def _by_case(report: EvalReport) -> dict[str, list[CaseResult]]:
    cases: dict[str, list[CaseResult]] = {}
    for case in report.cases:
        cases.setdefault(replace(case, repeat=1).label, []).append(case)
    return cases


def _passed(plays: Sequence[CaseResult]) -> bool:
    return all(play.passed for play in plays)


def _ms(plays: Sequence[CaseResult]) -> float:
    return median(play.ms for play in plays)


def render(comparison: Comparison) -> list[str]:
    """A comparison as lines."""
    lines: list[str] = []

    def section(title: str, rows: Iterable[str]) -> None:
        items = list(rows)
        if items:
            lines.append(f"{title}: {len(items)}")
            lines.extend(f"  {row}" for row in items)

    section("newly failing", comparison.newly_failing)
    section("newly passing", comparison.newly_passing)
    section(
        "another path",
        (f"{change.case}   {drawn(change.before)}  ⇒  {drawn(change.after)}" for change in comparison.paths),
    )
    section(
        "slower", (f"{case.case}   {case.before:.0f} ms ⇒ {case.after:.0f} ms" for case in comparison.slower)
    )
    section("new cases", comparison.added)
    section("cases no longer there", comparison.removed)
    lines = lines or ["no difference"]
    if comparison.alone is not None:
        lines.append("answers kept")
        lines += [f"  {step}   {_kept(was)} ⇒ {_kept(now)}" for step, was, now in comparison.answers]
        was, now = comparison.alone
        lines.append(f"by the agent alone: {_alone(was)} ⇒ {_alone(now)}")
    return lines


def _kept(counts: AnswerCounts) -> str:
    if not counts.asked:
        return "no agent was asked"
    return f"{counts.kept} of {counts.asked} ({percent(counts.kept, counts.asked)})"


def _alone(alone: AgentAlone) -> str:
    if not alone.counted:
        return "no agent was asked"
    return f"{alone.passed} / {alone.counted} ({percent(alone.passed, alone.counted)})"


# -- arms ---------------------------------------------------------------------------------------------------


class Gap(NamedTuple):
    """The difference of two shares, with its 95 % interval."""

    difference: float
    lower: float
    upper: float

    def __str__(self) -> str:
        low, high = 100 * self.lower, 100 * self.upper
        return f"{100 * self.difference:+.1f} points ({low:+.1f} … {high:+.1f})"


def newcombe(passed: int, n: int, base_passed: int, base_n: int) -> Gap:
    """The first share minus the second, with Newcombe's interval, built from the two Wilson intervals."""
    if n == 0 or base_n == 0:
        return Gap(0.0, -1.0, 1.0)
    share, base = passed / n, base_passed / base_n
    low, high = wilson(passed, n)
    base_low, base_high = wilson(base_passed, base_n)
    difference = share - base
    return Gap(
        difference,
        max(-1.0, difference - math.hypot(share - low, base_high - base)),
        min(1.0, difference + math.hypot(high - share, base - base_low)),
    )


@dataclass(frozen=True, slots=True)
class Arm:
    """The results of the cases in one arm."""

    name: str
    runs: int
    passed: int
    paths: Mapping[tuple[str, ...], int]
    ends: Mapping[str, int]
    fallbacks: Mapping[str, int]
    """By reason."""
    p50: float
    p95: float
    spend: Spend
    answers: AnswerCounts = NO_ANSWERS
    gap: Gap | None = None
    """Share of passes minus that of the first arm; None for the first arm itself."""

    @property
    def too_few(self) -> bool:
        """True when there are too few plays for a conclusion."""
        return self.runs < TOO_FEW


def arms(report: EvalReport) -> list[Arm]:
    """Every arm of a report, in the order requested; deprecated cases are not counted."""
    results: list[Arm] = []
    for name in report.arms:
        plays = [case for case in report.cases if case.arm == name and case.counted]
        passed = sum(case.passed for case in plays)
        spend, ms = NOTHING, Spread()
        for case in plays:
            spend += case.spend
            ms.add(case.ms)
        gap = newcombe(passed, len(plays), results[0].passed, results[0].runs) if results else None
        results.append(
            Arm(
                name,
                len(plays),
                passed,
                Counter(case.path for case in plays),
                Counter(case.end or case.status or "none" for case in plays),
                Counter(step.fallback for case in plays for step in case.steps if step.fallback is not None),
                ms.at(0.5) or 0.0,
                ms.at(0.95) or 0.0,
                spend,
                AnswerCounts.of(answer for case in plays for answer in case.answers),
                gap,
            )
        )
    return results


def render_arms(results: Sequence[Arm]) -> list[str]:
    """Arms as lines: one row each, then their paths, ends and fallbacks."""
    rows = [
        ("arm", "passed", "share", "kept", "p50 ms", "p95 ms", "tokens", "cost", "difference to the first")
    ]
    for arm in results:
        share = f"{100 * arm.passed / arm.runs:.1f} %" if arm.runs else "–"
        notes = ["" if arm.gap is None else str(arm.gap), "too few plays to say much" * arm.too_few]
        rows.append(
            (
                arm.name, f"{arm.passed} / {arm.runs}", share, _arm_kept(arm.answers), f"{arm.p50:.0f}",
                f"{arm.p95:.0f}", f"{arm.spend.tokens:,}", money(arm.spend.cost_usd),
                "   ".join(filter(None, notes)),
            )
        )  # fmt: skip
    lines = columns(rows, frozenset({1, 2, 3, 4, 5, 6, 7}))
    for arm in results:
        lines += [
            f"{arm.name} {title}: {_shares(counts, arm.runs)}"
            for title, counts in (
                ("paths", {drawn(path): number for path, number in arm.paths.items()}),
                ("ends", arm.ends),
                ("fallbacks", arm.fallbacks),
            )
            if counts
        ]
    return lines


def _arm_kept(counts: AnswerCounts) -> str:
    return f"{counts.kept} / {counts.asked}" if counts.asked else "–"


def _shares(counts: Mapping[str, int], runs: int) -> str:
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{name} {number} ({100 * number / max(1, runs):.0f} %)" for name, number in ordered)
