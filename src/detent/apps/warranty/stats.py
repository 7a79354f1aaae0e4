"""Statistics of the mailbox's runs, step by step: folded from journals, page by page.

A run that continues where another failed begins with a copy of that journal. Copied entries are counted in
the run they come from; only the path is counted as a whole.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from detent.apps.warranty.legacy.flow import NAME as LEGACY
from detent.engine.journal_reader import read, rows_of
from detent.engine.ports import RunQuery, RunRow, Store
from detent.evals.paths import drawn
from detent.flows.playbook.instruction import DEGRADED, FAILED
from detent.insight.formatting import columns, count
from detent.insight.percentiles import Spread
from detent.insight.visits import StepVisit, visits
from detent.kernel.entries import Entry, Moved, Started
from detent.kernel.status import Status

FLOW = "warranty"
MOST_PATHS = 1000
"""Number of different paths that are counted separately."""
OTHERS = "others"
UNDER_WAY = "under way"
SHOWN = 10
"""Number of paths shown to people."""
TROUBLED = (Status.FAILED, Status.DEGRADED)


@dataclass(frozen=True, slots=True)
class StepStats:
    """The totals of the visits to one step."""

    step: str
    visits: int
    runs: int
    """Runs that visited the step."""
    share: float
    """Share of all runs."""
    failures: Mapping[str, int]
    """Runs that failed or were degraded here, by reason."""
    fallbacks: Mapping[str, int]
    """Visits in which the handler replaced the agent, by reason."""
    attempts: int
    p50_ms: float | None
    p95_ms: float | None

    def to_plain(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)


class Trouble(NamedTuple):
    """A place where runs fail."""

    step: str
    reason: str
    count: int  # type: ignore[assignment]  # a field, not the method of tuples
    run: str
    """One of them, the latest."""


class Flagged(NamedTuple):
    """Runs with a flag: they continued, but may deserve a look."""

    flag: str
    runs: int
    run: str
    """One of them, the latest."""


@dataclass(frozen=True, slots=True)
class MailboxStats:
    """The totals of all runs."""

    runs: int
    steps: tuple[StepStats, ...]
    """By name."""
    paths: Mapping[str, int]
    """The most frequent first."""
    ends: Mapping[str, int]
    troubles: tuple[Trouble, ...]
    """Where runs fail, the most frequent first."""
    legacy: Mapping[str, int] = field(default_factory=dict)
    """Runs of legacy mode by how they ended."""
    flags: tuple[Flagged, ...] = ()
    """The most frequent first."""

    def to_plain(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "runs": self.runs,
            "steps": [step.to_plain() for step in self.steps],
            "paths": [{"path": path, "runs": number} for path, number in self.paths.items()],
            "ends": dict(self.ends),
            "troubles": [trouble._asdict() for trouble in self.troubles],
            "legacy": dict(self.legacy),
            "flags": [flagged._asdict() for flagged in self.flags],
        }

    def lines(self) -> list[str]:
        """For people."""
        return _lines(self)


async def mailbox_stats(store: Store, since: float | None = None) -> MailboxStats:
    """Add up the runs created since a time, or all runs."""
    sums = _Sums()
    async for row in rows_of(store, RunQuery(flow=FLOW, since=since)):
        entries = [entry async for entry in read(store, row.id)]
        sums.add(row, entries)
    legacy: Counter[str] = Counter()
    async for row in rows_of(store, RunQuery(flow=LEGACY, since=since)):
        legacy[_end(row)] += 1
    return sums.stats(legacy)


@dataclass(slots=True)
class _StepSums:
    visits: int = 0
    runs: int = 0
    attempts: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    fallbacks: Counter[str] = field(default_factory=Counter)
    ms: Spread = field(default_factory=Spread)


@dataclass(slots=True)
class _Sums:
    runs: int = 0
    steps: defaultdict[str, _StepSums] = field(default_factory=lambda: defaultdict(_StepSums))
    paths: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    troubles: Counter[tuple[str, str]] = field(default_factory=Counter)
    latest: dict[tuple[str, str], str] = field(default_factory=dict)
    flags: Counter[str] = field(default_factory=Counter)
    flagged: dict[str, str] = field(default_factory=dict)

    def add(self, row: RunRow, entries: Sequence[Entry]) -> None:
        done = visits(entries)
        own = done[_copied(entries) :]
        self.runs += 1
        self.ends[_end(row)] += 1
        count_path(self.paths, done)
        for visit in own:
            here = self.steps[visit.step_name]
            here.visits += 1
            here.attempts += visit.attempts
            here.ms.add(visit.duration_ms)
            if visit.fallback is not None:
                here.fallbacks[visit.fallback] += 1
        for step in {visit.step_name for visit in own}:
            self.steps[step].runs += 1
        if row.now.status in TROUBLED:
            place = (_failing_step(entries, done), _reason(row))
            self.steps[place[0]].failures[place[1]] += 1
            self.troubles[place] += 1
            self.latest.setdefault(place, row.id)  # rows come newest first
        for flag in _flags(entries):
            self.flags[flag] += 1
            self.flagged.setdefault(flag, row.id)

    def stats(self, legacy: Counter[str]) -> MailboxStats:
        return MailboxStats(
            self.runs,
            tuple(
                StepStats(
                    name, sums.visits, sums.runs, sums.runs / self.runs, dict(sums.failures.most_common()),
                    dict(sums.fallbacks.most_common()), sums.attempts, sums.ms.at(0.5), sums.ms.at(0.95),
                )
                for name, sums in sorted(self.steps.items())
            ),
            dict(self.paths.most_common()),
            dict(self.ends.most_common()),
            tuple(
                Trouble(*place, number, self.latest[place]) for place, number in self.troubles.most_common()
            ),
            dict(legacy.most_common()),
            tuple(Flagged(flag, number, self.flagged[flag]) for flag, number in self.flags.most_common()),
        )  # fmt: skip


def count_path(paths: Counter[str], done: Sequence[StepVisit]) -> None:
    """Count the path of a run; beyond `MOST_PATHS` different paths, under `OTHERS`."""
    path = drawn([visit.step_name for visit in done])
    paths[path if path in paths or len(paths) < MOST_PATHS else OTHERS] += 1


def _copied(entries: Sequence[Entry]) -> int:
    """How many visits of a journal are copied from the run this one was forked from."""
    started = entries[0].body if entries else None
    origin = started.forked_from if isinstance(started, Started) else None
    return len(visits(entries[: int(origin["seq"])])) if origin else 0


def _flags(entries: Sequence[Entry]) -> set[str]:
    """Flags of a run, from its mail or from a step."""
    flags: set[str] = set()
    for entry in entries:
        body = entry.body
        if isinstance(body, Started):
            flags.update(body.data.get("flags") or ())
        elif isinstance(body, Moved):
            flags.update(body.append.get("flags") or ())
    return flags


def _end(row: RunRow) -> str:
    """The end of a run, or its status if it has not ended."""
    if not row.now.status.is_end:
        return UNDER_WAY if row.now.status is Status.RUNNING else row.now.status.value
    if row.now.status is Status.FAILED:
        return FAILED
    return row.now.state if row.now.status in (Status.SUCCEEDED, Status.DEGRADED) else row.now.status.value


def _failing_step(entries: Sequence[Entry], done: Sequence[StepVisit]) -> str:
    """The step in which a run failed; if it exceeded the limit of steps, the step it did not start."""
    for entry in reversed(entries):
        if isinstance(entry.body, Moved) and entry.body.to in (FAILED, DEGRADED):
            return entry.body.frm
    return done[-1].step_name if done else "none"


def _reason(row: RunRow) -> str:
    return (row.now.reason or row.now.status.value).partition(":")[0]


def _lines(stats: MailboxStats) -> list[str]:
    heads = ("step", "visits", "share", "attempts", "failures", "fallbacks", "p50 ms", "p95 ms")
    rows = [
        (
            step.step, f"{step.visits:,}", share(step.share, 1), f"{step.attempts:,}",
            _counted(step.failures), _counted(step.fallbacks), milliseconds(step.p50_ms),
            milliseconds(step.p95_ms),
        )
        for step in stats.steps
    ]  # fmt: skip
    lines = [count(stats.runs, "run"), *columns([heads, *rows], frozenset({1, 2, 3, 6, 7}))]
    lines += ["", "ends", *_table(stats.ends.items(), stats.runs)]
    shown = list(stats.paths.items())
    lines += ["", "paths", *_table(shown[:SHOWN], stats.runs)]
    if len(shown) > SHOWN:
        lines.append(f"  and {count(len(shown) - SHOWN, 'more path')}")
    if stats.troubles:
        troubles = [
            (f"  {trouble.step}", trouble.reason, f"{trouble.count:,}", trouble.run)
            for trouble in stats.troubles
        ]
        lines += ["", "where runs fail", *columns(troubles, frozenset({2}))]
    if stats.flags:
        flagged = [(f"  {item.flag}", f"{item.runs:,}", item.run) for item in stats.flags]
        lines += ["", "flagged, with the latest run", *columns(flagged, frozenset({1}))]
    if stats.legacy:
        lines += ["", "legacy mode", *_table(stats.legacy.items(), sum(stats.legacy.values()))]
    return lines


def _table(counts: Iterable[tuple[str, int]], of: int) -> list[str]:
    rows = [(f"  {name}", f"{number:,}", share(number, of)) for name, number in counts]
    return columns(rows, frozenset({1, 2}))


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {number}" for name, number in counts.items()) or "–"


def milliseconds(value: float | None) -> str:
    """A duration in a table."""
    return "–" if value is None else f"{value:.0f}"


def share(number: float, of: float) -> str:
    """A share in percent."""
    return f"{100 * number / of:.1f} %" if of else "–"
