"""The moves made by a table, what each cost, and the report on them.

Belongs here: where the machine stands, the metrics of its states, the written form, the fold of a run's
journal. Does not belong here: making moves, which takes a clock (`engine/state_machine`).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from operator import index
from typing import Any, ClassVar, Generic, Self

from detent.kernel.entries import Entry, Migrated, Moved, Reopened, Started
from detent.kernel.errors import ConfigurationError, DetentError, InvalidTransitionError, name_of
from detent.kernel.machine import Machine, S
from detent.kernel.plain import copied, to_plain

SCHEMA_VERSION = 1
"""Version of the written form of a `StateHistory`."""

REASON_LENGTH = 200
"""Longer reasons are cut: a reason is a label, not a text."""


class RestoreError(DetentError, ValueError):
    """A written state machine cannot be read back; `field` says where."""

    def __init__(self, field: str, problem: str) -> None:
        self.field = field
        self.problem = problem
        super().__init__(f"{field}: {problem}")


@dataclass(slots=True)
class StateTransition(Generic[S]):
    """One move that was made. Duration and tokens belong to the state that was left."""

    from_state: S
    to_state: S
    timestamp: float
    """Seconds since the epoch."""
    context: dict[str, Any] = field(default_factory=dict)
    reason: str | None = None
    duration_seconds: float = 0.0
    tokens_consumed: int = 0

    def to_dict(self) -> dict[str, Any]:
        """As JSON values; a context that cannot be one raises TypeError naming the key path."""
        duration, tokens = _checked(self.duration_seconds, self.tokens_consumed)
        return {
            "from_state": name_of(self.from_state),
            "to_state": name_of(self.to_state),
            "timestamp": self.timestamp,
            "reason": self.reason,
            "context": to_plain(self.context, "context"),
            "duration_seconds": duration,
            "tokens_consumed": tokens,
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any], state: Callable[[str], S]) -> StateTransition[S]:
        """Read back what `to_dict` wrote. `state` finds a state by its name: an enum class will do."""
        duration, tokens = _checked(plain.get("duration_seconds", 0.0), plain.get("tokens_consumed", 0))
        return StateTransition(
            state(plain["from_state"]),
            state(plain["to_state"]),
            _moment(plain["timestamp"]),
            _context(plain.get("context")),
            _label(plain.get("reason")),
            duration,
            tokens,
        )


@dataclass(slots=True)
class StateMetrics(Generic[S]):
    """What the visits to one state add up to. A visit counts once the state has been left."""

    state: S
    visit_count: int = 0
    total_duration_seconds: float = 0.0
    total_tokens: int = 0
    avg_duration_seconds: float = 0.0
    avg_tokens: float = 0.0
    min_duration_seconds: float = math.inf
    """Infinity while there is no visit; null in JSON."""
    max_duration_seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        shortest = self.min_duration_seconds
        return {
            "state": name_of(self.state),
            "visit_count": self.visit_count,
            "total_duration_seconds": self.total_duration_seconds,
            "total_tokens": self.total_tokens,
            "avg_duration_seconds": self.avg_duration_seconds,
            "avg_tokens": self.avg_tokens,
            "min_duration_seconds": shortest if math.isfinite(shortest) else None,
            "max_duration_seconds": self.max_duration_seconds,
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any], state: Callable[[str], S]) -> StateMetrics[S]:
        """Read back what `to_dict` wrote. `state` finds a state by its name: an enum class will do."""
        values = dict(plain)
        if values.get("min_duration_seconds") is None:
            values["min_duration_seconds"] = math.inf
        return StateMetrics(**{**values, "state": state(values["state"])})


class StateHistory(Generic[S]):
    """The state a machine is in, the moves that led there, and what they add up to."""

    __slots__ = ("_max_iterations", "_rows", "_state", "history", "iteration_count", "machine")

    title: ClassVar[str | None] = None
    """Name at the head of the report; the machine's own when None."""

    machine: Machine[S]
    history: list[StateTransition[S]]
    iteration_count: int

    def __init__(self, machine: Machine[S], *, max_iterations: int = 3) -> None:
        self.machine = machine
        self.history = []
        self.iteration_count = 0
        self.max_iterations = max_iterations
        self._state = machine.start
        # The table's own rows, not `machine.allows`: text that equals a member must become the member.
        self._rows = machine._allowed

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {self.machine.name!r} in {name_of(self._state)!r} "
            f"after {len(self.history)} transitions>"
        )

    # -- where it stands ------------------------------------------------------------------------------------

    @property
    def current_state(self) -> S:
        """The state it is in. Assigning is for tests and for restoring: it records nothing."""
        return self._state

    @current_state.setter
    def current_state(self, state: S) -> None:
        self._state = self.machine.state(state)

    @property
    def max_iterations(self) -> int:
        """How many iterations may be started; at least 1."""
        return self._max_iterations

    @max_iterations.setter
    def max_iterations(self, value: int) -> None:
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ConfigurationError(f"max_iterations is {value!r}; it must be a whole number of 1 or more.")
        self._max_iterations = value

    def is_terminal(self) -> bool:
        """True in an end."""
        return self._state in self.machine.ends

    def can_transition_to(self, state: S | str) -> bool:
        """True when the table lists the move from here; never in an end."""
        target = self._find(state)
        return target is not None and target in self._rows[self._state]

    def exceeded_max_iterations(self) -> bool:
        """True when no further iteration may be started. Ask it before starting one."""
        return self.iteration_count >= self._max_iterations

    def get_transition_history(self) -> list[StateTransition[S]]:
        """The moves made, oldest first, in a list of the caller's own."""
        return self.history.copy()

    def _find(self, state: Any) -> S | None:
        """The state meant by a member or by its text; None when there is none such."""
        if state not in self._rows and not isinstance(state, str):
            return None
        try:
            return self.machine.state(state)
        except ValueError:
            return None

    # -- adding up ------------------------------------------------------------------------------------------

    def get_state_metrics(self, state: S | str) -> StateMetrics[S]:
        """What the visits to one state add up to."""
        member = self.machine.state(state)
        return _metrics(member, [move for move in self.history if move.from_state == member])

    def get_all_state_metrics(self) -> dict[S, StateMetrics[S]]:
        """The same for every state that is no end, in the table's order, unvisited ones too."""
        left: dict[S, list[StateTransition[S]]] = {
            state: [] for state in self.machine.states if state not in self.machine.ends
        }
        for move in self.history:
            if move.from_state in left:  # a migrated run may have left states this table no longer has
                left[move.from_state].append(move)
        return {state: _metrics(state, visits) for state, visits in left.items()}

    def get_total_metrics(self) -> dict[str, Any]:
        """Duration, tokens, transitions, iterations, times each state was left, and where it stands."""
        visits: dict[str, int] = {}
        for move in self.history:
            name = name_of(move.from_state)
            visits[name] = visits.get(name, 0) + 1
        return {
            "total_duration_seconds": _sum(move.duration_seconds for move in self.history),
            "total_tokens": sum(move.tokens_consumed for move in self.history),
            "total_transitions": len(self.history),
            "iteration_count": self.iteration_count,
            "state_visits": visits,
            "current_state": name_of(self._state),
        }

    def get_transition_metrics(self) -> dict[str, Any]:
        """How often each move was made, in order of first occurrence, and the most common one."""
        counts: dict[str, int] = {}
        for move in self.history:
            key = f"{name_of(move.from_state)} → {name_of(move.to_state)}"
            counts[key] = counts.get(key, 0) + 1
        common = max(counts, key=lambda key: counts[key], default=None)  # the first of equals
        return {
            "transition_counts": counts,
            "most_common_transition": common,
            "most_common_count": counts[common] if common is not None else 0,
            "unique_transitions": len(counts),
        }

    def get_bottleneck_analysis(self) -> dict[str, Any]:
        """The states with the highest averages of time and of tokens, and what an iteration costs."""
        visited = [metrics for metrics in self.get_all_state_metrics().values() if metrics.visit_count]
        if not visited:
            return {
                "slowest_state": None,
                "highest_token_state": None,
                "avg_duration_per_iteration": 0.0,
                "avg_tokens_per_iteration": 0.0,
            }
        slowest = max(visited, key=lambda metrics: metrics.avg_duration_seconds)
        hungriest = max(visited, key=lambda metrics: metrics.avg_tokens)
        total = self.get_total_metrics()
        iterations = self.iteration_count
        return {
            "slowest_state": {
                "state": name_of(slowest.state),
                "avg_duration_seconds": slowest.avg_duration_seconds,
                "total_duration_seconds": slowest.total_duration_seconds,
                "visit_count": slowest.visit_count,
            },
            "highest_token_state": {
                "state": name_of(hungriest.state),
                "avg_tokens": hungriest.avg_tokens,
                "total_tokens": hungriest.total_tokens,
                "visit_count": hungriest.visit_count,
            },
            "avg_duration_per_iteration": (
                total["total_duration_seconds"] / iterations if iterations > 0 else 0.0
            ),
            "avg_tokens_per_iteration": total["total_tokens"] / iterations if iterations > 0 else 0.0,
        }

    def format_metrics_report(self, *, whole: bool = True) -> str:
        """All of it for people to read; the layout is fixed.

        Unless `whole`, iterations and tokens are left out if there were none, and the limit, which a journal
        does not name.
        """
        total = self.get_total_metrics()
        bottleneck = self.get_bottleneck_analysis()
        patterns = self.get_transition_metrics()
        iterated = whole or self.iteration_count > 0
        limit = f" / {self.max_iterations}" if whole else ""
        lines = [
            f"=== {self.title or self.machine.name} Metrics Report ===",
            "",
            f"Final State: {total['current_state']}",
            *([f"Iterations: {self.iteration_count}{limit}"] if iterated else []),
            f"Total Duration: {total['total_duration_seconds']:.2f}s",
            f"Total Tokens: {total['total_tokens']:,}",
            f"Total Transitions: {total['total_transitions']}",
            "",
            "--- State Visit Counts ---",
            *(f"  {state}: {count}" for state, count in sorted(total["state_visits"].items())),
        ]
        slowest, hungriest = bottleneck["slowest_state"], bottleneck["highest_token_state"]
        if slowest is not None:
            lines += [
                "",
                "--- Bottleneck Analysis ---",
                f"Slowest State: {slowest['state']}",
                f"  Avg Duration: {slowest['avg_duration_seconds']:.2f}s",
                f"  Total Duration: {slowest['total_duration_seconds']:.2f}s",
                f"  Visits: {slowest['visit_count']}",
            ]
        if hungriest is not None and (whole or total["total_tokens"]):
            lines += [
                "",
                f"Highest Token State: {hungriest['state']}",
                f"  Avg Tokens: {hungriest['avg_tokens']:.0f}",
                f"  Total Tokens: {hungriest['total_tokens']:,}",
                f"  Visits: {hungriest['visit_count']}",
            ]
        if patterns["most_common_transition"] is not None:
            lines += [
                "",
                "--- Transition Patterns ---",
                f"Most Common: {patterns['most_common_transition']} ({patterns['most_common_count']}x)",
                f"Unique Transitions: {patterns['unique_transitions']}",
            ]
        return "\n".join(lines)

    # -- written form ---------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """The whole object as JSON values, with the identity of its table."""
        machine = self.machine
        return {
            "schema_version": SCHEMA_VERSION,
            "machine": _identity(machine),
            "current_state": name_of(self._state),
            "iteration_count": self.iteration_count,
            "max_iterations": self.max_iterations,
            "history": [move.to_dict() for move in self.history],
        }

    @classmethod
    def from_dict(cls, machine: Machine[S], plain: Mapping[str, Any]) -> Self:
        """Read back what `to_dict` wrote; `RestoreError` names the field that is wrong.

        A smaller form without `schema_version`, `machine`, `max_iterations` and contexts is read too. The
        moves must chain, be in the table, and lead to `current_state`. (An object folded from a journal that
        was reopened or migrated need not chain; its journal is what restores it.)
        """
        restored = cls(machine)
        restored._restore(plain)
        return restored

    @classmethod
    def from_journal(cls, machine: Machine[S], entries: Iterable[Entry], *, max_iterations: int = 3) -> Self:
        """Return what a run's journal adds up to.

        Each `Moved` is a transition. A start, a migration or a reopening changes where the run stands without
        being a move; a fork goes on from where its copied part stands. Iterations are those the journal
        marks.
        """
        folded = cls(machine, max_iterations=max_iterations)
        folded._fold(entries)
        return folded

    def _restore(self, plain: Mapping[str, Any]) -> None:
        if not isinstance(plain, Mapping):
            raise RestoreError("(top)", "a mapping is needed.")
        schema = plain.get("schema_version", SCHEMA_VERSION)
        if schema != SCHEMA_VERSION:
            raise RestoreError("schema_version", f"is {schema!r}; this version reads {SCHEMA_VERSION}.")
        self._check_identity(plain.get("machine"))
        current = self._read_state(plain, "current_state")
        iterations = plain.get("iteration_count", 0)
        if type(iterations) is not int or iterations < 0:
            raise RestoreError(
                "iteration_count", f"is {iterations!r}; it must be a whole number of 0 or more."
            )
        try:
            self.max_iterations = plain.get("max_iterations", 3)
        except ConfigurationError as error:
            raise RestoreError("max_iterations", str(error)) from error
        rows = plain.get("history", [])
        if not isinstance(rows, list):
            raise RestoreError("history", "must be a list.")
        history: list[StateTransition[S]] = []
        for number, row in enumerate(rows):
            history.append(self._read_transition(row, f"history[{number}]", history))
        if history and history[-1].to_state != current:
            raise RestoreError(
                "current_state",
                f"is '{name_of(current)}', but the last transition led to '{name_of(history[-1].to_state)}'.",
            )
        self._state, self.history, self.iteration_count = current, history, iterations

    def _check_identity(self, written: Any) -> None:
        if written is None:
            return
        if not isinstance(written, Mapping):
            raise RestoreError("machine", "must be a mapping of name, version and fingerprint.")
        ours = _identity(self.machine)
        changed = [
            f"{key} {written.get(key)} → {value}" for key, value in ours.items() if written.get(key) != value
        ]
        if changed:
            raise RestoreError("machine", f"was written under another table: {', '.join(changed)}.")

    def _read_state(self, plain: Mapping[str, Any], key: str, where: str = "") -> S:
        name = plain.get(key)
        if not isinstance(name, str):
            raise RestoreError(f"{where}{key}", f"is {name!r}; it must be the name of a state.")
        try:
            return self.machine.state(name)
        except ValueError as error:
            raise RestoreError(f"{where}{key}", str(error)) from error

    def _read_transition(self, row: Any, where: str, before: list[StateTransition[S]]) -> StateTransition[S]:
        if not isinstance(row, Mapping):
            raise RestoreError(where, "must be a mapping.")
        frm = self._read_state(row, "from_state", f"{where}.")
        to = self._read_state(row, "to_state", f"{where}.")
        if before and before[-1].to_state != frm:
            raise RestoreError(
                f"{where}.from_state",
                f"is '{name_of(frm)}', but the transition before led to '{name_of(before[-1].to_state)}'.",
            )
        if to not in self._rows[frm]:
            raise RestoreError(
                f"{where}.to_state", str(InvalidTransitionError(frm, to, self.machine.allowed(frm)))
            )
        try:
            return StateTransition.from_dict(row, self.machine.state)
        except KeyError as error:
            raise RestoreError(f"{where}.{error.args[0]}", "is missing.") from error
        except (TypeError, ValueError) as error:
            raise RestoreError(where, str(error)) from error

    def _fold(self, entries: Iterable[Entry]) -> None:
        unknown: str | None = None
        for entry in entries:
            body = entry.body
            if isinstance(body, Moved):
                for name in (body.frm, body.to):
                    if not self.machine.has(name):
                        unknown = name
                frm, to = self._named(body.frm), self._named(body.to)
                reason = _label(body.reason)
                context = copied(dict(body.set))
                self.history.append(
                    StateTransition(frm, to, entry.at, context, reason, body.duration, body.spend.tokens)
                )
                self._state = to
                self.iteration_count += body.iteration
            elif isinstance(body, Started | Reopened | Migrated):
                if isinstance(body, Migrated):
                    unknown = None  # what came before stood under another table
                if not self.machine.has(body.state):
                    unknown = body.state
                self._state = self._named(body.state)
        if unknown is not None:
            raise ValueError(
                f"The journal has the state '{unknown}', which machine '{self.machine.name}' has not, "
                f"and no migration after it."
            )

    def _named(self, name: str) -> S:
        """The state of this name; a state from before a migration stays the text it is."""
        return self.machine.state(name) if self.machine.has(name) else name  # type: ignore[return-value]


def _identity(machine: Machine[Any]) -> dict[str, Any]:
    return {"name": machine.name, "version": machine.version, "fingerprint": machine.fingerprint}


def _checked(duration: Any, tokens: Any) -> tuple[float, int]:
    """Duration and tokens as float and int; ValueError when they cannot be such."""
    seconds = float(duration)
    if not 0.0 <= seconds < math.inf:
        raise ValueError(f"duration_seconds is {duration}; it must be a finite number of 0 or more.")
    count = int(index(tokens))
    if count < 0:
        raise ValueError(f"tokens_consumed is {tokens}; it must be 0 or more.")
    return seconds, count


def _moment(timestamp: Any) -> float:
    moment = float(timestamp)
    if not math.isfinite(moment):
        raise ValueError(f"timestamp is {timestamp}; it must be finite.")
    return moment


def _context(context: Any) -> dict[str, Any]:
    plain = to_plain(context, "context") if context is not None else {}
    if not isinstance(plain, dict):
        raise TypeError(f"'context' is a {type(context).__name__}; it must be a mapping.")
    return plain


def _label(reason: Any) -> str | None:
    if reason is None:
        return None
    if not isinstance(reason, str):
        raise TypeError(f"'reason' is a {type(reason).__name__}; it must be text.")
    return reason[:REASON_LENGTH]


def _sum(durations: Iterable[float]) -> float:
    """A sum that stays finite, as every part is: JSON has no infinity."""
    return min(sum(durations, 0.0), sys.float_info.max)


def _metrics(state: S, visits: list[StateTransition[S]]) -> StateMetrics[S]:
    if not visits:
        return StateMetrics(state)
    count = len(visits)
    durations = [move.duration_seconds for move in visits]
    duration = _sum(durations)
    tokens = sum(move.tokens_consumed for move in visits)
    return StateMetrics(
        state, count, duration, tokens, duration / count, tokens / count, min(durations), max(durations)
    )
