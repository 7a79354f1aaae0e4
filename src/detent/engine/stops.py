"""Stops: where a run is put down without being ended. It stays open, and resuming it goes on from there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from detent.kernel.errors import ConfigurationError, name_of

if TYPE_CHECKING:
    from detent.engine.flow import Flow
    from detent.kernel.run import Run


class Stop(NamedTuple):
    """Where a run is to be put down."""

    state: str | None = None
    """In this state, before its step is performed."""
    steps: int | None = None
    """Once it has made so many moves in all."""

    def reached(self, run: Run) -> bool:
        """Whether the run is there, between two steps."""
        if run.proposal is not None:
            return False
        return run.state == self.state or (self.steps is not None and run.steps >= self.steps)


AT_ONCE = Stop(steps=0)
"""The stop of a run that was interrupted, or has reached its stop: it is not taken up here by itself."""


def stop_of(flow: Flow, steps: int, at: Any, after: int | None) -> Stop:
    """The stop at a state of a flow, or after some more moves of a run.

    Raises:
        ConfigurationError: there is no such state, or no such number.
    """
    if at is not None and not flow.machine.has(name_of(at)):
        raise ConfigurationError(f"Flow '{flow.name}' has no state '{name_of(at)}' to stop at.")
    if after is not None and (type(after) is not int or after < 1):
        raise ConfigurationError(f"A run stops after 1 move or more, not after {after!r}.")
    return Stop(None if at is None else name_of(at), None if after is None else steps + after)
