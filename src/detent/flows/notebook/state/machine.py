"""The states and events of a notebook run, and the one table of its moves.

Belongs here: which move is allowed. Which of several allowed moves a run takes is `decisions`; what a move
writes is `transitions`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any, NamedTuple, Self

from detent.engine.state_machine import StateMachine
from detent.kernel.entries import Entry
from detent.kernel.errors import InvalidTransitionError
from detent.kernel.guards import when
from detent.kernel.machine import Machine, Move
from detent.kernel.status import Status


class NotebookState(str, Enum):
    """Where a notebook run stands."""

    IDLE = "IDLE"
    STAGE_RUNNING = "STAGE_RUNNING"
    STEP_RUNNING = "STEP_RUNNING"
    BEHAVIOR_RUNNING = "BEHAVIOR_RUNNING"
    BEHAVIOR_COMPLETED = "BEHAVIOR_COMPLETED"
    STEP_COMPLETED = "STEP_COMPLETED"
    WORKFLOW_COMPLETE = "WORKFLOW_COMPLETE"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class NotebookEvent(str, Enum):
    """What moves a notebook run."""

    START_WORKFLOW = "START_WORKFLOW"
    START_STEP = "START_STEP"
    START_BEHAVIOR = "START_BEHAVIOR"
    COMPLETE_ACTION = "COMPLETE_ACTION"
    TRANSITION_TO_COMPLETE_STEP = "TRANSITION_TO_COMPLETE_STEP"
    COMPLETE_STAGE = "COMPLETE_STAGE"
    FAIL = "FAIL"
    CANCEL = "CANCEL"


_S = NotebookState
_E = NotebookEvent

ENDS = frozenset({_S.WORKFLOW_COMPLETE, _S.FAILED, _S.CANCELLED})
"""States that take no event."""

ROW = "row"
"""Key in a run's data: the row of the table that the step's facts have chosen. The guards read it."""


class Row(NamedTuple):
    """A row of the table: one reason for one move."""

    number: str
    """Such as `5c`."""
    state: NotebookState
    event: NotebookEvent
    to: NotebookState


ROWS: tuple[Row, ...] = (
    Row("1", _S.IDLE, _E.START_WORKFLOW, _S.STAGE_RUNNING),
    Row("2", _S.STAGE_RUNNING, _E.START_STEP, _S.STEP_RUNNING),
    Row("3", _S.STEP_RUNNING, _E.START_BEHAVIOR, _S.BEHAVIOR_RUNNING),
    Row("4", _S.BEHAVIOR_RUNNING, _E.COMPLETE_ACTION, _S.BEHAVIOR_COMPLETED),
    Row("5a", _S.BEHAVIOR_COMPLETED, _E.TRANSITION_TO_COMPLETE_STEP, _S.STEP_COMPLETED),
    Row("5b", _S.BEHAVIOR_COMPLETED, _E.START_BEHAVIOR, _S.BEHAVIOR_RUNNING),
    Row("5c", _S.BEHAVIOR_COMPLETED, _E.START_BEHAVIOR, _S.BEHAVIOR_RUNNING),
    Row("5d", _S.BEHAVIOR_COMPLETED, _E.TRANSITION_TO_COMPLETE_STEP, _S.STEP_COMPLETED),
    Row("6a", _S.STEP_COMPLETED, _E.START_STEP, _S.STEP_RUNNING),
    Row("6b", _S.STEP_COMPLETED, _E.COMPLETE_STAGE, _S.STAGE_RUNNING),
    Row("6c", _S.STEP_COMPLETED, _E.COMPLETE_STAGE, _S.WORKFLOW_COMPLETE),
    Row("6d", _S.STEP_COMPLETED, _E.START_STEP, _S.STEP_RUNNING),
    Row("6d", _S.STEP_COMPLETED, _E.COMPLETE_STAGE, _S.STAGE_RUNNING),
    Row("6e", _S.STEP_COMPLETED, _E.START_STEP, _S.STEP_RUNNING),
    Row("6f", _S.STEP_COMPLETED, _E.FAIL, _S.FAILED),
    *(Row("7", state, _E.FAIL, _S.FAILED) for state in _S if state not in ENDS),
    *(Row("8", state, _E.CANCEL, _S.CANCELLED) for state in _S if state not in ENDS),
)
"""Every row, those of one state in the order in which their guards are tried."""


def _moves(state: NotebookState) -> list[Move[NotebookState]]:
    """The moves out of a state. Where the facts choose between rows, a guard reads the row they chose."""
    numbers: dict[tuple[NotebookEvent, NotebookState], list[str]] = {}
    for row in ROWS:
        if row.state is state:
            numbers.setdefault((row.event, row.to), []).append(row.number)
    guarded = state in (_S.BEHAVIOR_COMPLETED, _S.STEP_COMPLETED)
    return [
        Move(
            to,
            event.value,
            when({ROW: chosen}) if guarded and event not in (_E.FAIL, _E.CANCEL) else None,
        )
        for (event, to), chosen in numbers.items()
    ]


NOTEBOOK: Machine[NotebookState] = Machine(
    name="notebook",
    version=1,
    start=_S.IDLE,
    moves={state: _moves(state) for state in _S if state not in ENDS},
    ends={_S.CANCELLED: Status.CANCELLED},
    # Two ends of two statuses each: succeeded, or degraded without verification; failed, or out of budget.
    may_end={_S.WORKFLOW_COMPLETE, _S.FAILED},
)
"""Every move of a notebook run."""


def events(state: NotebookState) -> tuple[NotebookEvent, ...]:
    """The events that a state takes, in table order."""
    return tuple(dict.fromkeys(row.event for row in ROWS if row.state is state))


def targets(state: NotebookState, event: NotebookEvent) -> tuple[NotebookState, ...]:
    """The states to which an event leads from a state; none if the state does not take it."""
    return tuple(dict.fromkeys(row.to for row in ROWS if row.state is state and row.event is event))


def check_move(state: NotebookState, event: NotebookEvent, to: NotebookState | None = None) -> NotebookState:
    """The state to which an event leads.

    Raises:
        InvalidTransitionError: the table does not list the move, or lists two and `to` names neither. Its
            `valid` holds the events that the state takes, or the two states.
    """
    leads = targets(state, event)
    if not leads:
        names = ", ".join(event.value for event in events(state)) or "none"
        raise InvalidTransitionError(state, event, events(state), f"Events here: {names}.")
    if to is None and len(leads) == 1:
        return leads[0]
    if to is None or to not in leads:
        raise InvalidTransitionError(state, to or event, leads, f"{event.value} leads to one of these.")
    return to


def starts_iteration(from_state: NotebookState, to_state: NotebookState) -> bool:
    """True when a move begins an iteration of a behavior."""
    return to_state is _S.BEHAVIOR_RUNNING


class NotebookStateMachine(StateMachine[NotebookState]):
    """The state machine of a notebook run: the kernel's object over `NOTEBOOK`, moved by events."""

    __slots__ = ()

    title = "Notebook"

    def __init__(self, *, max_iterations: int = 3, clock: Callable[[], float] = time.time) -> None:
        super().__init__(NOTEBOOK, max_iterations=max_iterations, counts=starts_iteration, clock=clock)

    def is_terminal(self) -> bool:
        """True in the states that take no event."""
        return self.current_state in ENDS

    def valid_events(self) -> tuple[NotebookEvent, ...]:
        """The events that the present state takes."""
        return events(self.current_state)

    def fire(
        self, event: NotebookEvent | str, to: NotebookState | None = None, reason: str | None = None
    ) -> NotebookState:
        """Move by an event; `to` says where, for an event that leads to two states.

        Raises:
            InvalidTransitionError: the present state does not take the event. Nothing has changed.
        """
        try:
            asked = NotebookEvent(event)
        except ValueError:
            raise InvalidTransitionError(self.current_state, event, self.valid_events()) from None
        reached = check_move(self.current_state, asked, to)
        self.transition(reached, {"event": asked.value}, reason)
        return reached

    # Both bring the table with them, so neither takes one.

    @classmethod
    def from_dict(  # type: ignore[override]
        cls, plain: Mapping[str, Any], *, clock: Callable[[], float] = time.time
    ) -> Self:
        """Read back what `to_dict` wrote; `RestoreError` names the field that is wrong."""
        restored = cls(clock=clock)
        restored._restore(plain)
        return restored

    @classmethod
    def from_journal(  # type: ignore[override]
        cls, entries: Iterable[Entry], *, max_iterations: int = 3, clock: Callable[[], float] = time.time
    ) -> Self:
        """What a run's journal adds up to, seen as this object."""
        folded = cls(max_iterations=max_iterations, clock=clock)
        folded._fold(entries)
        return folded
