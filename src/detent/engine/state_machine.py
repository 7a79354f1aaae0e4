"""A state machine without an engine: makes the moves of a table and keeps what each cost.

Inside an engine's run the same figures come from the journal (`StateHistory.from_journal`). One owner at a
time: there is no lock.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self

from detent.engine import logger
from detent.kernel.entries import Entry
from detent.kernel.errors import InvalidTransitionError, name_of
from detent.kernel.machine import Machine, S
from detent.kernel.state_history import StateHistory, StateTransition, _checked, _context, _label

Counts = Callable[[S, S], bool]
"""Says whether a move, given as from and to, starts a new iteration."""


class StateMachine(StateHistory[S]):
    """Moves by a `Machine`'s table and remembers what every move cost.

    `counts(from, to)` says which moves start a new iteration; without it none does. `clock` dates the moves.
    """

    __slots__ = ("_clock", "_counts")

    def __init__(
        self,
        machine: Machine[S],
        *,
        max_iterations: int = 3,
        counts: Counts[S] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(machine, max_iterations=max_iterations)
        self._counts = counts
        self._clock = clock

    @classmethod
    def from_dict(
        cls,
        machine: Machine[S],
        plain: Mapping[str, Any],
        *,
        counts: Counts[S] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> Self:
        """Read back what `to_dict` wrote; `RestoreError` names the field that is wrong."""
        restored = cls(machine, counts=counts, clock=clock)
        restored._restore(plain)
        return restored

    @classmethod
    def from_journal(
        cls,
        machine: Machine[S],
        entries: Iterable[Entry],
        *,
        max_iterations: int = 3,
        counts: Counts[S] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> Self:
        """Return what a run's journal adds up to; it can go on from there."""
        folded = cls(machine, max_iterations=max_iterations, counts=counts, clock=clock)
        folded._fold(entries)
        return folded

    def transition(
        self,
        to_state: S | str,
        context: Mapping[str, Any] | None = None,
        reason: str | None = None,
        duration_seconds: float = 0.0,
        tokens_consumed: int = 0,
    ) -> bool:
        """Move to `to_state` and record what the state being left has cost.

        True when it moved. False, with a warning, in an end; False and silent when asked to stay where it is
        in a machine whose `self_moves` are "noop". A move the table does not list raises
        `InvalidTransitionError`, a number that is no duration or no token count ValueError, a context that
        cannot be JSON TypeError with the key path. Whatever is raised, nothing changed.
        """
        here = self._state
        moves = self._rows[here].get(to_state)  # type: ignore[arg-type]
        if moves is None:
            target = self._find(to_state)
            if target is not None:
                moves = self._rows[here].get(target)
            if moves is None:
                return self._refuse(target, to_state)
        to: S = moves[0].to
        if type(duration_seconds) is not float or type(tokens_consumed) is not int or tokens_consumed < 0 \
                or not 0.0 <= duration_seconds < math.inf:  # fmt: skip
            duration_seconds, tokens_consumed = _checked(duration_seconds, tokens_consumed)
        transition: StateTransition[S] = StateTransition(
            here,
            to,
            self._clock(),
            _context(context) if context else {},
            _label(reason) if reason is not None else None,
            duration_seconds,
            tokens_consumed,
        )
        # Asked before anything changes, for it is the caller's code and may raise.
        counted = self._counts is not None and self._counts(here, to)
        self.history.append(transition)
        self._state = to
        if counted:
            self.iteration_count += 1
        if logger.wants(logger.INFO):
            self._log(transition)
        return True

    def reset(self) -> None:
        """Back to the start with no history and no iterations; `max_iterations` stays."""
        self._state = self.machine.start
        self.history.clear()
        self.iteration_count = 0

    def _refuse(self, target: S | None, to_state: Any) -> bool:
        here = self._state
        if target is not None:
            if here in self.machine.ends:
                logger.warning("state.move_refused", end=name_of(here), wanted=name_of(target))
                return False
            if target == here and self.machine.self_moves == "noop":
                return False
        raise InvalidTransitionError(here, to_state if target is None else target, self.machine.allowed(here))

    def _log(self, transition: StateTransition[S]) -> None:
        facts = {
            "from": name_of(transition.from_state),  # `from` is a keyword
            "to": name_of(transition.to_state),
            "iteration": self.iteration_count,
            "duration_s": round(transition.duration_seconds, 2),
            "tokens": transition.tokens_consumed,
            "reason": transition.reason,
        }
        logger.info("state.moved", **facts)
