"""The state as keys of a run's data, and a transition as changes to them.

A list that grows is appended to, a variable is set by itself, and a list that shrinks from its front only
changes how much of it is left: no transition rewrites the whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from detent.flows.notebook.state.document import StateDocument
from detent.flows.notebook.state.ledger import Ledger, RunState
from detent.flows.notebook.state.machine import ROW
from detent.flows.notebook.state.state_json import write_state
from detent.kernel.plain import copied

_LEFT = ".left"
_LEVELS = ("stages", "steps", "behaviors")
_PROGRESS = ("document", "observation", "location", "progress")
_STATE = ("document", "state")
REST = "state.rest"
"""Key of everything that has no key of its own: what a foreign state file brought along."""
VARIABLE = "var."
"""Prefix of the keys of variables: `{"value": …}`, or null for one that is gone."""


class _Cell(NamedTuple):
    """A place of the state that has a key of its own, or a prefix of keys."""

    key: str
    path: tuple[str, ...]


_VALUES = (
    _Cell("location", ("document", "observation", "location", "current")),
    *(
        _Cell(f"{level}.{name}", (*_PROGRESS, level, name))
        for level in _LEVELS
        for name in ("current", "focus", "current_outputs")
    ),
    _Cell("behaviors.iteration", (*_PROGRESS, "behaviors", "iteration")),
    _Cell("notebook", (*_STATE, "notebook")),
    _Cell("fsm", (*_STATE, "FSM")),
    _Cell(ROW, ("ledger", "row")),
    *(
        _Cell(f"ledger.{name}", ("ledger", name))
        for name in ("escalated", "behaviors_since_entry", "last_failure", "kernel_deaths")
    ),
)
_LISTS = (
    *(_Cell(f"{level}.completed", (*_PROGRESS, level, "completed")) for level in _LEVELS),
    _Cell("effects.current", (*_STATE, "effects", "current")),
    _Cell("effects.history", (*_STATE, "effects", "history")),
    *(
        _Cell(f"ledger.{name}", ("ledger", name))
        for name in ("revised_stages", "backtracked", "earlier_goals")
    ),
)
_QUEUES = tuple(
    _Cell(f"{level}.remaining", (*_PROGRESS, level, "remaining")) for level in ("stages", "steps")
)
_MAPS = (
    _Cell(VARIABLE, (*_STATE, "variables")),
    *(
        _Cell(f"ledger.{name}.", ("ledger", name))
        for name in ("behavior_numbers", "locked", "closed_steps", "missed", "missed_in")
    ),
)  # fmt: skip


class Delta(NamedTuple):
    """Changes to a run's data, as an outcome takes them."""

    set: dict[str, Any]
    append: dict[str, list[Any]]


def to_data(before: RunState | None, after: RunState) -> Delta:
    """The changes that lead from one state to the next; from None, all of it."""
    old = None if before is None else _plain(before)
    new = _plain(after)
    delta = Delta({}, {})
    for cell in _VALUES:
        _add_value(delta, cell, old, new)
    for cell in _LISTS:
        _add_list(delta, cell, old, new)
    for cell in _QUEUES:
        _add_queue(delta, cell, old, new)
    for cell in _MAPS:
        _add_map(delta, cell, old, new)
    rest = _rest(new)
    if old is None or _rest(old) != rest:
        delta.set[REST] = rest
    return delta


def from_data(values: Mapping[str, Any]) -> RunState:
    """The state that a run's data adds up to; keys of others are left alone."""
    plain: dict[str, Any] = copied(values.get(REST, {}))
    for cell in _VALUES:
        if cell.key in values:
            _put(plain, cell.path, values[cell.key])
    for cell in _LISTS:
        if cell.key in values:
            _put(plain, cell.path, values[cell.key])
    for cell in _QUEUES:
        if cell.key in values:
            queue = values[cell.key]
            _put(plain, cell.path, queue[len(queue) - values[cell.key + _LEFT] :])
    for cell in _MAPS:
        found = {
            key.removeprefix(cell.key): value["value"]
            for key, value in values.items()
            if key.startswith(cell.key) and value is not None
        }
        _put(plain, cell.path, found)
    return RunState(
        StateDocument.model_validate(plain.get("document", {})), Ledger.from_plain(plain.get("ledger", {}))
    )


def _plain(run: RunState) -> dict[str, Any]:
    return {"document": write_state(run.document), "ledger": run.ledger.to_plain()}


def _add_value(delta: Delta, cell: _Cell, old: Any, new: Any) -> None:
    value = _get(new, cell.path)
    if old is None or not _same(_get(old, cell.path), value):
        delta.set[cell.key] = value


def _add_list(delta: Delta, cell: _Cell, old: Any, new: Any) -> None:
    items = _get(new, cell.path)
    known = None if old is None else _get(old, cell.path)
    if known is None or not _same(items[: len(known)], known):
        delta.set[cell.key] = items
    elif len(items) > len(known):
        delta.append[cell.key] = items[len(known) :]


def _add_queue(delta: Delta, cell: _Cell, old: Any, new: Any) -> None:
    items = _get(new, cell.path)
    known = None if old is None else _get(old, cell.path)
    if known is not None and _same(known, items):
        return
    left = len(items)
    if known is None or left > len(known) or not _same(known[len(known) - left :], items):
        delta.set[cell.key] = items
    delta.set[cell.key + _LEFT] = left


def _add_map(delta: Delta, cell: _Cell, old: Any, new: Any) -> None:
    values = _get(new, cell.path)
    known = {} if old is None else _get(old, cell.path)
    for name, value in values.items():
        if name not in known or not _same(known[name], value):
            delta.set[cell.key + name] = {"value": value}
    for name in known:
        if name not in values:
            delta.set[cell.key + name] = None


def _rest(plain: Mapping[str, Any]) -> dict[str, Any]:
    """What no cell holds."""
    taken = {cell.path for cells in (_VALUES, _LISTS, _QUEUES, _MAPS) for cell in cells}

    def left(value: Mapping[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
        inside = any(place[: len(path)] == path for place in taken)
        return {
            key: left(item, (*path, key)) if inside and isinstance(item, Mapping) else item
            for key, item in value.items()
            if (*path, key) not in taken
        }

    return left(plain, ())


def _get(plain: Any, path: tuple[str, ...]) -> Any:
    for part in path:
        plain = plain[part]
    return plain


def _put(plain: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for part in path[:-1]:
        plain = plain.setdefault(part, {})
    plain[path[-1]] = value


def _same(one: Any, other: Any) -> bool:
    """Equality in which true is not 1, and 1 is not 1.0."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(item, other[key]) for key, item in one.items())
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)
