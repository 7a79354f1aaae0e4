"""The table: which states there are, which moves are allowed, where a run may end.

A Machine is immutable, checked when it is made (all problems at once), and has a fingerprint, so that a run
can tell whether it still stands under the definition it was started with. It knows nothing of steps or time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from detent.kernel.errors import (
    DefinitionError,
    GuardRefusedError,
    InvalidTransitionError,
    name_of,
    nearest,
)
from detent.kernel.guards import Guard
from detent.kernel.plain import copied, digest
from detent.kernel.status import Status

S = TypeVar("S")

SelfMoves = Literal["error", "noop"]


@dataclass(frozen=True, slots=True)
class Move(Generic[S]):
    """One allowed move out of a state."""

    to: S
    event: str | None = None
    """Name of the event this move answers to, where a flow speaks in events."""
    when: Guard | None = None
    """Condition on the data after the step; None always holds."""
    reason: str | None = None
    """Label told for the move when the step gives no reason of its own."""


MoveLike: TypeAlias = S | Move[S]


@dataclass(frozen=True, slots=True)
class MachineProblem:
    """One thing wrong with a definition."""

    code: str
    where: str
    message: str

    def __str__(self) -> str:
        return f"{self.code} {self.where}: {self.message}"


class Machine(Generic[S]):
    """An immutable table of states and moves.

    `moves` maps a state to its allowed targets, in order of preference: bare states or `Move`s. `ends` maps
    each end to the status a run has there. `may_end` names working states in which a step may also declare
    the run over. `self_moves` says what the state-machine object does when asked to stay where it is.
    """

    __slots__ = (
        "_allowed", "_by_name", "_conditional", "_description", "_names", "ends", "fingerprint", "may_end",
        "moves", "name", "self_moves", "start", "states", "version",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        *,
        start: S,
        moves: Mapping[S, Iterable[MoveLike[S]]],
        ends: Mapping[S, Status] | Iterable[S] = (),
        version: int = 1,
        may_end: Iterable[S] = (),
        self_moves: SelfMoves = "error",
    ) -> None:
        self.name = name
        self.version = version
        self.start = start
        self.ends: Mapping[S, Status] = MappingProxyType(
            dict(ends)
            if isinstance(ends, Mapping)
            else {end: _status_for(end) for end in _ordered(ends, _order(start, moves, {}))}
        )
        self.may_end = frozenset(may_end)
        self.self_moves: SelfMoves = self_moves
        order = _order(start, moves, self.ends)
        self.moves: Mapping[S, tuple[Move[S], ...]] = MappingProxyType(
            {
                state: tuple(_as_move(move) for move in _ordered(targets, order))
                for state, targets in moves.items()
            }
        )
        self.states: tuple[S, ...] = _states(start, self.moves, self.ends)
        problems = _problems(self)
        if problems:
            raise DefinitionError(f"Machine '{name}'", problems)
        self._names: dict[S, str] = {state: name_of(state) for state in self.states}
        self._by_name: dict[str, S] = {text: state for state, text in self._names.items()}
        self._allowed: dict[S, dict[S, tuple[Move[S], ...]]] = {}
        for state in self.states:
            row: dict[S, tuple[Move[S], ...]] = {}
            for move in self.moves.get(state, ()):
                row[move.to] = (*row.get(move.to, ()), move)
            self._allowed[state] = row
        self._conditional = frozenset(
            state for state, row in self.moves.items() if any(move.when is not None for move in row)
        )
        self._description = self._describe()
        self.fingerprint: str = digest(self._description, 16)

    def __setattr__(self, key: str, value: Any) -> None:
        if hasattr(self, "fingerprint"):
            raise AttributeError(f"Machine '{self.name}' is immutable; '{key}' cannot be set.")
        object.__setattr__(self, key, value)

    def __delattr__(self, key: str) -> None:
        raise AttributeError(f"Machine '{self.name}' is immutable; '{key}' cannot be deleted.")

    def __copy__(self) -> Machine[S]:
        return self  # what cannot change needs no copy

    def __deepcopy__(self, memo: Any) -> Machine[S]:
        return self

    def __repr__(self) -> str:
        return (
            f"Machine({self.name!r}, version={self.version}, states={len(self.states)}, "
            f"fingerprint={self.fingerprint})"
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Machine) and other.fingerprint == self.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    # -- asking ---------------------------------------------------------------------------------------------

    def allowed(self, state: S) -> tuple[S, ...]:
        """The states that may follow `state`, in table order, each once."""
        return tuple(self._allowed[state])

    def allows(self, state: S, to: S) -> bool:
        """True when the table lists the move."""
        return to in self._allowed[state]

    def conditional(self, state: S) -> bool:
        """True when some move out of `state` has a condition."""
        return state in self._conditional

    def is_end(self, state: S) -> bool:
        """True when runs stop in this state."""
        return state in self.ends

    def state(self, name: str | S) -> S:
        """The state that goes by a name; KeyError-free: an unknown one raises ValueError with the nearest."""
        if name in self._names:
            # Not `name` itself: a member of another enum may equal ours.
            return self._by_name[self._names[name]]
        text = name_of(name)
        try:
            return self._by_name[text]
        except KeyError:
            hint = nearest(text, self._by_name)
            raise ValueError(f"Machine '{self.name}' has no state '{text}'.{hint}") from None

    def has(self, name: str) -> bool:
        """True when a state goes by this name."""
        return name in self._by_name

    def named(self, state: S) -> str:
        """The text a state goes by."""
        return self._names[state]

    def choose(
        self,
        state: S,
        data: Mapping[str, Any],
        *,
        to: S | None = None,
        event: str | None = None,
    ) -> Move[S]:
        """The move to take out of `state`: the first that fits `to` and `event` and whose condition holds.

        Raises `InvalidTransitionError` when the table lists no such move, `GuardRefusedError` when it does
        but the condition forbids it.
        """
        row = self._allowed[state]
        if to is not None:
            fitting: Sequence[Move[S]] = row.get(to, ())
        else:
            fitting = self.moves.get(state, ())
        if event is not None:
            fitting = [move for move in fitting if move.event == event]
        if not fitting:
            target = to if to is not None else (f"[{event}]" if event else "(nothing)")
            why = "" if event is None or to is not None else f"Events here: {self._events(state)}."
            raise InvalidTransitionError(state, target, tuple(row), why)
        for move in fitting:
            if move.when is None or move.when(data):
                return move
        conditions = "; ".join(f"{name_of(move.to)} needs {move.when}" for move in fitting)
        raise GuardRefusedError(
            state, to if to is not None else "(none)", tuple(row), f"No condition holds: {conditions}."
        )

    def _events(self, state: S) -> str:
        events = dict.fromkeys(move.event for move in self.moves.get(state, ()) if move.event)
        return ", ".join(events) or "none"

    def route_to(self, state: S, status: Status, data: Mapping[str, Any] | None = None) -> S | None:
        """An end of this status that `state` may go to directly on this data, if the table has one."""
        for to, moves in self._allowed[state].items():
            if self.ends.get(to) is not status:
                continue
            if any(move.when is None or move.when(data or {}) for move in moves):
                return to
        return None

    # -- identity -------------------------------------------------------------------------------------------

    def describe(self) -> dict[str, Any]:
        """The whole table as plain values; the fingerprint is the hash of this."""
        return dict(copied(self._description))

    def _describe(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "version": self.version,
            "start": name_of(self.start),
            "states": [name_of(state) for state in self.states],
            "moves": {
                name_of(state): [
                    {
                        key: value
                        for key, value in (
                            ("to", name_of(move.to)),
                            ("event", move.event),
                            ("when", move.when.name if move.when else None),
                            ("reason", move.reason),
                        )
                        if value is not None
                    }
                    for move in moves
                ]
                for state, moves in self.moves.items()
            },
            "ends": {name_of(end): status.value for end, status in self.ends.items()},
            "may_end": sorted(name_of(state) for state in self.may_end),
            "self_moves": self.self_moves,
        }


def difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """What changed between two described tables, one sentence per line."""
    lines: list[str] = []
    for key in ("name", "version", "start", "self_moves"):
        if old.get(key) != new.get(key):
            lines.append(f"{key}: {old.get(key)} → {new.get(key)}")
    before, after = list(old.get("states", [])), list(new.get("states", []))
    lines += [f"state removed: {state}" for state in before if state not in after]
    lines += [f"state added: {state}" for state in after if state not in before]
    if sorted(before) == sorted(after) and before != after:
        lines.append(f"states reordered: {', '.join(before)} → {', '.join(after)}")
    for state in dict.fromkeys([*old.get("moves", {}), *new.get("moves", {})]):
        was = [_move_text(move) for move in old.get("moves", {}).get(state, [])]
        now = [_move_text(move) for move in new.get("moves", {}).get(state, [])]
        lines += [f"move removed: {state} → {move}" for move in was if move not in now]
        lines += [f"move added: {state} → {move}" for move in now if move not in was]
        if sorted(was) == sorted(now) and was != now:
            lines.append(f"moves of {state} reordered: {', '.join(was)} → {', '.join(now)}")
    for state in dict.fromkeys([*old.get("ends", {}), *new.get("ends", {})]):
        was_end, now_end = old.get("ends", {}).get(state), new.get("ends", {}).get(state)
        if was_end != now_end:
            lines.append(f"end {state}: {was_end} → {now_end}")
    if old.get("may_end", []) != new.get("may_end", []):
        lines.append(f"may_end: {old.get('may_end')} → {new.get('may_end')}")
    for key in dict.fromkeys([*old, *new]):
        if key not in _TABLE_KEYS and old.get(key) != new.get(key):
            lines += _other_difference(key, old.get(key), new.get(key))
    return lines


_TABLE_KEYS = frozenset({"name", "version", "start", "states", "moves", "ends", "may_end", "self_moves"})


LONGEST_VALUE = 80
"""Characters of a value that a difference shows."""


def _other_difference(key: str, old: Any, new: Any) -> list[str]:
    """What a flow added to its table's description, compared as deep as it goes."""
    return changes(old, new, key)


def changes(old: Any, new: Any, where: str = "") -> list[str]:
    """What changed between two plain values, one per line; lists of named things are compared by name."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return [
            line
            for name in dict.fromkeys([*old, *new])
            if old.get(name) != new.get(name)
            for line in changes(old.get(name), new.get(name), f"{where} {name}".lstrip())
        ]
    was, now = _by_name(old), _by_name(new)
    if was is None or now is None:
        if _alike(old, new):
            pairs = enumerate(zip(old, new, strict=True))
            return [line for at, (a, b) in pairs if a != b for line in changes(a, b, f"{where} [{at}]")]
        return [f"{where}: {_short(old)} → {_short(new)}"]
    lines = [f"{where} {name}: removed" for name in was if name not in now]
    lines += [f"{where} {name}: added" for name in now if name not in was]
    both = [name for name in was if name in now]
    for name in both:
        if was[name] != now[name]:
            lines += changes(was[name], now[name], f"{where} {name}")
    order = [name for name in now if name in was]
    if both != order:
        lines.append(f"{where} reordered: {', '.join(both)} → {', '.join(order)}")
    return lines


def _by_name(value: Any) -> dict[str, Any] | None:
    """A list of things that each have a name of their own; None for anything else."""
    if not isinstance(value, list | tuple) or not value:
        return None
    if not all(isinstance(item, Mapping) and isinstance(item.get("name"), str) for item in value):
        return None
    named = {item["name"]: item for item in value}
    return named if len(named) == len(value) else None


def _alike(old: Any, new: Any) -> bool:
    """Whether two lists hold mappings that can be compared item by item."""
    if not (isinstance(old, list) and isinstance(new, list) and len(old) == len(new)):
        return False
    return all(isinstance(item, Mapping) for item in (*old, *new))


def _short(value: Any) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1] + "…"


def _move_text(move: Mapping[str, Any]) -> str:
    text = str(move["to"])
    if move.get("event"):
        text += f" on {move['event']}"
    if move.get("when"):
        text += f" when {move['when']}"
    if move.get("reason"):
        text += f" because {move['reason']!r}"
    return text


# -- building and checking ----------------------------------------------------------------------------------


def _as_move(move: Any) -> Move[Any]:
    return move if isinstance(move, Move) else Move(move)


def _status_for(end: Any) -> Status:
    """The status an end has by its name, when `ends` gives no mapping."""
    name = name_of(end).lower()
    return next((status for status in Status if status.is_end and status.value == name), Status.SUCCEEDED)


def _order(start: Any, moves: Mapping[Any, Any], ends: Mapping[Any, Any]) -> dict[Any, int]:
    """A stable order of states, used to read sets the same way every time."""
    if isinstance(start, Enum):
        return {member: index for index, member in enumerate(type(start))}
    return {state: index for index, state in enumerate(dict.fromkeys([*moves, *ends]))}


def _ordered(targets: Iterable[Any], order: Mapping[Any, int]) -> list[Any]:
    if isinstance(targets, str):
        raise TypeError(f"States must be given as a collection; {targets!r} is a single text.")
    if isinstance(targets, AbstractSet):
        return sorted(targets, key=lambda target: (order.get(_as_move(target).to, len(order)), str(target)))
    return list(targets)


def _states(
    start: Any, moves: Mapping[Any, tuple[Move[Any], ...]], ends: Mapping[Any, Any]
) -> tuple[Any, ...]:
    if isinstance(start, Enum):
        return tuple(type(start))
    return tuple(dict.fromkeys([start, *moves, *ends]))


def _problems(machine: Machine[Any]) -> list[MachineProblem]:
    """Everything wrong with a table, in table order."""
    problems: list[MachineProblem] = []
    known = set(machine.states)
    names = [name_of(state) for state in machine.states]

    def add(code: str, state: Any, message: str) -> None:
        problems.append(MachineProblem(code, f"'{name_of(state)}'", message))

    if not machine.name or not isinstance(machine.version, int) or machine.version < 1:
        problems.append(MachineProblem("M01", "machine", "needs a name and a version of 1 or more."))
    if machine.start in machine.ends:
        add("M02", machine.start, "is the start and an end at once.")
    if not machine.ends and not machine.may_end:
        problems.append(MachineProblem("M03", "machine", "has no end, so no run could ever finish."))
    for end, status in machine.ends.items():
        if end not in known:
            add("M04", end, "is named as an end but is not a state of this machine.")
        if not isinstance(status, Status) or not status.is_end:
            add("M05", end, f"is an end but maps to {status!r}, which is not a final status.")
    for state in sorted(machine.may_end - known, key=name_of):
        add("M04", state, "is named in may_end but is not a state of this machine.")
    for state, moves in machine.moves.items():
        if state not in known:
            add(
                "M04", state, f"has moves but is not a state of this machine.{nearest(name_of(state), names)}"
            )
        if state in machine.ends and moves:
            add("M06", state, "is an end but has moves out of it.")
        seen: set[tuple[Any, Any, Any]] = set()
        open_events: set[Any] = set()
        for move in moves:
            if move.to not in known:
                add("M07", state, f"may go to '{name_of(move.to)}', which is not a state of this machine."
                    f"{nearest(name_of(move.to), names)}")  # fmt: skip
            if move.to == state and machine.self_moves == "noop":
                add("M08", state, "lists itself as a target, but staying is a no-op in this machine.")
            key = (move.to, move.event, move.when.name if move.when else None)
            if key in seen:
                add("M09", state, f"lists the move to '{name_of(move.to)}' twice.")
            seen.add(key)
            if move.event is not None and move.event in open_events:
                add("M10", state, f"can never take '{name_of(move.to)}' on {move.event}: "
                    "an unconditional move before it always wins.")  # fmt: skip
            if move.event is not None and move.when is None:
                open_events.add(move.event)
    for state in machine.states:
        if state not in machine.ends and not machine.moves.get(state) and state not in machine.may_end:
            add("M11", state, "is a dead end: it has no moves and is not declared as an end.")
    reached = _reach({machine.start}, machine.moves)
    for state in machine.states:
        if state not in reached:
            add("M12", state, f"cannot be reached from '{name_of(machine.start)}'.")
    exits = {state for state in known if state in machine.ends or state in machine.may_end}
    if exits:
        can_leave = _reach(exits, _reversed(machine.moves))
        for state in machine.states:
            if state in reached and state not in can_leave and machine.moves.get(state):
                add("M13", state, "has no way to any end: a loop without exit.")
    if len(set(names)) != len(names):
        problems.append(MachineProblem("M14", "machine", "has two states of the same name."))
    return problems


def _reach(start: set[Any], moves: Mapping[Any, Iterable[Move[Any]]]) -> set[Any]:
    seen = set(start)
    todo = list(start)
    while todo:
        for move in moves.get(todo.pop(), ()):
            if move.to not in seen:
                seen.add(move.to)
                todo.append(move.to)
    return seen


def _reversed(moves: Mapping[Any, tuple[Move[Any], ...]]) -> dict[Any, list[Move[Any]]]:
    back: dict[Any, list[Move[Any]]] = {}
    for state, row in moves.items():
        for move in row:
            back.setdefault(move.to, []).append(Move(state))
    return back
