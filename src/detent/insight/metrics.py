"""Metrics of one run, from its journal, and of all runs of a flow.

The kernel's `StateHistory` adds up the moves of a run; this module adds money, failed attempts and waiting.
The metrics of a flow come from counted moves, so they cost the same for ten runs and for a million.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any, Protocol

from detent.insight.formatting import columns, money, span, total
from detent.insight.table import machine_of
from detent.kernel.entries import AttemptFailed, EffectDone, Entry, Held, Moved, Released
from detent.kernel.machine import Machine
from detent.kernel.run import Run
from detent.kernel.state_history import StateHistory


@dataclass(frozen=True, slots=True)
class StateFigures:
    """Totals over the visits to one state. A visit counts once the run has left the state."""

    state: str
    visits: int = 0
    seconds: float = 0.0
    fastest: float | None = None
    """None while there is no visit."""
    slowest: float = 0.0
    tokens: int = 0
    cost_usd: float = 0.0

    @property
    def avg_seconds(self) -> float:
        """Mean length of a visit."""
        return self.seconds / self.visits if self.visits else 0.0

    @property
    def avg_tokens(self) -> float:
        """Mean tokens of a visit."""
        return self.tokens / self.visits if self.visits else 0.0

    def to_plain(self) -> dict[str, Any]:
        """As JSON values, under the names `StateMetrics.to_dict` uses."""
        return {
            "state": self.state,
            "visit_count": self.visits,
            "total_duration_seconds": self.seconds,
            "total_tokens": self.tokens,
            "avg_duration_seconds": self.avg_seconds,
            "avg_tokens": self.avg_tokens,
            "min_duration_seconds": self.fastest,
            "max_duration_seconds": self.slowest,
            "total_cost_usd": self.cost_usd,
        }


# -- one run ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunMetrics:
    """The metrics of one run."""

    machine: str
    status: str
    states: tuple[StateFigures, ...]
    """Every working state in table order, visited or not."""
    totals: Mapping[str, Any]
    """The six totals of `StateHistory.get_total_metrics`, over the moves."""
    transitions: Mapping[str, Any]
    bottlenecks: Mapping[str, Any]
    tokens: int
    """Total spend, including spend outside moves: comparisons, children, an unfinished visit."""
    cost_usd: float
    elapsed_seconds: float
    """From the first entry to the last, waiting included."""
    waited_seconds: float
    """Seconds spent in answered holds, summed."""
    failed_attempts: int
    effects: int
    """Number of effects that happened."""
    report: str = field(repr=False)
    """The text report, in the layout of `StateHistory.format_metrics_report`, without what does not apply."""

    def to_plain(self) -> dict[str, Any]:
        """As JSON values."""
        plain = {part.name: getattr(self, part.name) for part in fields(self) if part.name != "report"}
        return {**plain, "states": [figures.to_plain() for figures in self.states]}


def run_metrics(
    machine: Machine[Any] | Mapping[str, Any],
    entries: Iterable[Entry],
    *,
    max_iterations: int = 3,
    title: str | None = None,
) -> RunMetrics:
    """The metrics of a run from its whole journal and its table, or the table's stored description.

    `title` stands at the head of the report in place of the machine's name.
    """
    journal = list(entries)
    folded: StateHistory[Any] = StateHistory.from_journal(
        machine_of(machine), journal, max_iterations=max_iterations
    )
    run = Run.fold("", journal)
    costs: dict[str, list[float]] = {}
    for entry in journal:
        if isinstance(entry.body, Moved):
            costs.setdefault(entry.body.frm, []).append(entry.body.spend.cost_usd)
    states = []
    for state, metrics in folded.get_all_state_metrics().items():
        name = folded.machine.named(state)
        visited = metrics.visit_count > 0
        states.append(
            StateFigures(
                name,
                metrics.visit_count,
                metrics.total_duration_seconds,
                metrics.min_duration_seconds if visited else None,
                metrics.max_duration_seconds,
                metrics.total_tokens,
                total(costs.get(name, ())),
            )
        )
    spent = run.total_spend
    return RunMetrics(
        machine=folded.machine.name,
        status=run.status.value,
        states=tuple(states),
        totals=folded.get_total_metrics(),
        transitions=folded.get_transition_metrics(),
        bottlenecks=folded.get_bottleneck_analysis(),
        tokens=spent.tokens,
        cost_usd=spent.cost_usd,
        elapsed_seconds=max(0.0, journal[-1].at - journal[0].at) if journal else 0.0,
        waited_seconds=_waited(journal),
        failed_attempts=sum(isinstance(entry.body, AttemptFailed) for entry in journal),
        effects=len({entry.body.key for entry in journal if isinstance(entry.body, EffectDone)}),
        report=_titled(folded.format_metrics_report(whole=False), title),
    )


def _waited(journal: list[Entry]) -> float:
    since: dict[str, float] = {}
    waits: list[float] = []
    for entry in journal:
        if isinstance(entry.body, Held):
            since[entry.body.name] = entry.at
        elif isinstance(entry.body, Released) and entry.body.name in since:
            waits.append(max(0.0, entry.at - since.pop(entry.body.name)))
    return total(waits)


def _titled(report: str, title: str | None) -> str:
    if title is None:
        return report
    return f"=== {title} Metrics Report ===\n{report.partition(chr(10))[2]}"


# -- many runs ----------------------------------------------------------------------------------------------


class CountedMove(Protocol):
    """One move of a flow, summed over a day; stores update it with every commit."""

    @property
    def flow(self) -> str: ...
    @property
    def day(self) -> int: ...
    @property
    def frm(self) -> str: ...
    @property
    def to(self) -> str: ...
    @property
    def count(self) -> int: ...
    @property
    def seconds(self) -> float: ...
    @property
    def fastest(self) -> float: ...
    @property
    def slowest(self) -> float: ...
    @property
    def tokens(self) -> int: ...
    @property
    def cost_usd(self) -> float: ...


@dataclass(frozen=True, slots=True)
class TransitionFigures:
    """Count, time and cost of one move."""

    frm: str
    to: str
    count: int
    seconds: float
    fastest: float
    slowest: float
    tokens: int
    cost_usd: float

    @property
    def name(self) -> str:
        """`a → b`."""
        return f"{self.frm} → {self.to}"

    def to_plain(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "from_state": self.frm,
            "to_state": self.to,
            "count": self.count,
            "total_duration_seconds": self.seconds,
            "avg_duration_seconds": self.seconds / self.count if self.count else 0.0,
            "min_duration_seconds": self.fastest,
            "max_duration_seconds": self.slowest,
            "total_tokens": self.tokens,
            "total_cost_usd": self.cost_usd,
        }


@dataclass(frozen=True, slots=True)
class FlowMetrics:
    """The metrics of all runs of one flow."""

    flow: str | None
    """None when there were no moves."""
    first_day: int | None
    """Days since the epoch, UTC."""
    last_day: int | None
    states: tuple[StateFigures, ...]
    """States that were left at least once, by name."""
    transitions: tuple[TransitionFigures, ...]
    """Most frequent first."""

    @property
    def moves(self) -> int:
        """Number of moves."""
        return sum(transition.count for transition in self.transitions)

    @property
    def seconds(self) -> float:
        """Working time in seconds."""
        return total(transition.seconds for transition in self.transitions)

    @property
    def tokens(self) -> int:
        """Tokens of the moves."""
        return sum(transition.tokens for transition in self.transitions)

    @property
    def cost_usd(self) -> float:
        """Cost of the moves."""
        return total(transition.cost_usd for transition in self.transitions)

    @property
    def slowest_state(self) -> StateFigures | None:
        """The state with the longest average visit."""
        return max(self.states, key=lambda figures: figures.avg_seconds, default=None)

    @property
    def highest_token_state(self) -> StateFigures | None:
        """The state with the highest average token count."""
        return max(self.states, key=lambda figures: figures.avg_tokens, default=None)

    @property
    def report(self) -> str:
        """The text report."""
        return _flow_report(self)

    def to_plain(self) -> dict[str, Any]:
        """As JSON values."""
        slowest, hungriest = self.slowest_state, self.highest_token_state
        return {
            "flow": self.flow,
            "first_day": _date(self.first_day),
            "last_day": _date(self.last_day),
            "totals": {
                "total_transitions": self.moves,
                "total_duration_seconds": self.seconds,
                "total_tokens": self.tokens,
                "total_cost_usd": self.cost_usd,
            },
            "states": [figures.to_plain() for figures in self.states],
            "transitions": [transition.to_plain() for transition in self.transitions],
            "bottlenecks": {
                "slowest_state": slowest.to_plain() if slowest else None,
                "highest_token_state": hungriest.to_plain() if hungriest else None,
            },
        }


def flow_metrics(edges: Iterable[CountedMove]) -> FlowMetrics:
    """Sum the counted moves of one flow over all days."""
    rows = [edge for edge in edges if edge.count > 0]
    flows = sorted({edge.flow for edge in rows})
    if len(flows) > 1:
        raise ValueError(f"Figures of different flows cannot be added up: {', '.join(flows)}.")
    by_pair: dict[tuple[str, str], list[CountedMove]] = {}
    by_state: dict[str, list[CountedMove]] = {}
    for edge in rows:
        by_pair.setdefault((edge.frm, edge.to), []).append(edge)
        by_state.setdefault(edge.frm, []).append(edge)
    transitions = [TransitionFigures(frm, to, *_sums(same)) for (frm, to), same in by_pair.items()]
    states = [StateFigures(state, *_sums(left)) for state, left in by_state.items()]
    return FlowMetrics(
        flows[0] if flows else None,
        min((edge.day for edge in rows), default=None),
        max((edge.day for edge in rows), default=None),
        tuple(sorted(states, key=lambda figures: figures.state)),
        tuple(sorted(transitions, key=lambda transition: (-transition.count, transition.frm, transition.to))),
    )


def _sums(edges: list[CountedMove]) -> tuple[int, float, float, float, int, float]:
    """Count, seconds, fastest, slowest, tokens and cost of some moves."""
    return (
        sum(edge.count for edge in edges), total(edge.seconds for edge in edges),
        min(edge.fastest for edge in edges), max(edge.slowest for edge in edges),
        sum(edge.tokens for edge in edges), total(edge.cost_usd for edge in edges),
    )  # fmt: skip


def _flow_report(metrics: FlowMetrics) -> str:
    lines = [
        f"=== {metrics.flow or 'Flow'} Metrics Report ===",
        "",
        f"Total Duration: {metrics.seconds:.2f}s",
        f"Total Tokens: {metrics.tokens:,}",
        f"Total Cost: {money(metrics.cost_usd)}",
        f"Total Transitions: {metrics.moves:,}",
        "",
        "--- States ---",
    ]
    slowest, hungriest = metrics.slowest_state, metrics.highest_token_state
    if slowest is None or hungriest is None:
        return "\n".join(lines)
    heads = ("State", "Visits", "Avg", "Min", "Max", "Tokens", "Cost")
    rows = [
        (
            figures.state, f"{figures.visits:,}", span(figures.avg_seconds), span(figures.fastest or 0.0),
            span(figures.slowest), f"{figures.tokens:,}", money(figures.cost_usd),
        )
        for figures in metrics.states
    ]  # fmt: skip
    lines += [f"  {line}" for line in columns([heads, *rows], frozenset(range(1, 7)))]
    tokens = [
        f"Highest Token State: {hungriest.state}",
        f"  Avg Tokens: {hungriest.avg_tokens:.0f}",
        f"  Total Tokens: {hungriest.tokens:,}",
        f"  Visits: {hungriest.visits}",
        "",
    ]
    if not hungriest.tokens:  # no step asked a model
        tokens = []
    lines += [
        "",
        "--- Bottleneck Analysis ---",
        f"Slowest State: {slowest.state}",
        f"  Avg Duration: {slowest.avg_seconds:.2f}s",
        f"  Total Duration: {slowest.seconds:.2f}s",
        f"  Visits: {slowest.visits}",
        "",
        *tokens,
        "--- Transition Patterns ---",
        f"Most Common: {metrics.transitions[0].name} ({metrics.transitions[0].count}x)",
        f"Unique Transitions: {len(metrics.transitions)}",
        *(
            f"  {line}"
            for line in columns(
                ((transition.name, f"{transition.count:,}") for transition in metrics.transitions),
                frozenset({1}),
            )
        ),
    ]
    return "\n".join(lines)


def _date(day: int | None) -> str | None:
    """A day as `2026-09-21`; None for a day outside the calendar's range."""
    if day is None:
        return None
    try:
        return datetime.fromtimestamp(day * 86400, UTC).date().isoformat()
    except (OverflowError, OSError, ValueError):
        return None
