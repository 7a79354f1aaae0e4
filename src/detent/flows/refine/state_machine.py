"""The table of plan, validate, implement, judge, and its state machine under the name users know.

Belongs here: the states, the moves, what counts as an iteration. The object itself is the kernel's, so this
module can be used and tested with no engine near.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any, ClassVar, Self

from detent.engine.state_machine import StateMachine
from detent.kernel.entries import Entry
from detent.kernel.machine import Machine
from detent.kernel.status import Status


class OrchestrationState(str, Enum):
    """Where an orchestration stands. The last three are ends."""

    INITIALIZED = "initialized"
    PLANNING = "planning"
    VALIDATING = "validating"
    IMPLEMENTING = "implementing"
    JUDGING = "judging"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    BUDGET_EXHAUSTED = "budget_exhausted"


_S = OrchestrationState

REFINE: Machine[OrchestrationState] = Machine(
    name="refine",
    version=1,
    start=_S.INITIALIZED,
    moves={
        _S.INITIALIZED: [_S.PLANNING, _S.FAILED],
        _S.PLANNING: [_S.VALIDATING, _S.FAILED, _S.BUDGET_EXHAUSTED],
        # A plan that does not hold goes back to planning, with what was wrong.
        _S.VALIDATING: [_S.IMPLEMENTING, _S.PLANNING, _S.FAILED],
        _S.IMPLEMENTING: [_S.JUDGING, _S.FAILED, _S.BUDGET_EXHAUSTED],
        # Good enough; nearly, so refine; far off, so plan anew. The budget is checked after judging too.
        _S.JUDGING: [_S.SUCCEEDED, _S.IMPLEMENTING, _S.PLANNING, _S.FAILED, _S.BUDGET_EXHAUSTED],
    },
    ends={
        _S.SUCCEEDED: Status.SUCCEEDED,
        _S.FAILED: Status.FAILED,
        _S.BUDGET_EXHAUSTED: Status.BUDGET_EXHAUSTED,
    },
)


def starts_iteration(from_state: OrchestrationState, to_state: OrchestrationState) -> bool:
    """True when a move adds an iteration: a plan is done, or an implementation is to be refined."""
    return from_state is _S.PLANNING or (from_state is _S.JUDGING and to_state is _S.IMPLEMENTING)


class OrchestrationStateMachine(StateMachine[OrchestrationState]):
    """The state machine of an orchestration: the kernel's object over `REFINE`."""

    __slots__ = ()

    title = "Orchestration"

    VALID_TRANSITIONS: ClassVar[dict[OrchestrationState, list[OrchestrationState]]] = {
        state: list(REFINE.allowed(state)) for state in REFINE.moves
    }
    """The table, to read. Changing this copy changes no law."""

    TERMINAL_STATES: ClassVar[frozenset[OrchestrationState]] = frozenset(REFINE.ends)

    def __init__(self, *, max_iterations: int = 3, clock: Callable[[], float] = time.time) -> None:
        super().__init__(REFINE, max_iterations=max_iterations, counts=starts_iteration, clock=clock)

    # Both bring the table with them, so neither takes one.

    @classmethod
    def from_dict(  # type: ignore[override]
        cls, plain: Mapping[str, Any], *, clock: Callable[[], float] = time.time
    ) -> Self:
        """Read back what `to_dict` wrote; `RestoreError` names the field that is wrong."""
        made = cls(clock=clock)
        made._restore(plain)
        return made

    @classmethod
    def from_journal(  # type: ignore[override]
        cls, entries: Iterable[Entry], *, max_iterations: int = 3, clock: Callable[[], float] = time.time
    ) -> Self:
        """What a run's journal adds up to, seen as this object."""
        made = cls(max_iterations=max_iterations, clock=clock)
        made._fold(entries)
        return made
