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


class StopRequest:
    """One caller's request to put a run down at a stop."""

    __slots__ = ("run", "stop")

    def __init__(self, stop: Stop) -> None:
        self.stop = stop
        self.run: Run | None = None
        """The run as it stood at the stop, once it was put down there."""


class Stops:
    """Stops asked for in this process, and the runs put down, which it does not take up by itself.

    Every request is met on its own: whoever waits for more than another's stop takes the run up again.
    """

    def __init__(self) -> None:
        self._requests: dict[str, list[StopRequest]] = {}
        self._down: dict[str, bool] = {}
        """Runs put down, and whether they were interrupted."""

    def __bool__(self) -> bool:
        return bool(self._requests or self._down)

    def ask(self, run_id: str, stop: Stop) -> StopRequest:
        """Have a run put down at a stop."""
        request = StopRequest(stop)
        self._requests.setdefault(run_id, []).append(request)
        return request

    def withdraw(self, run_id: str, request: StopRequest) -> None:
        """Forget a request, met or not."""
        others = [other for other in self._requests.get(run_id, ()) if other is not request]
        if others:
            self._requests[run_id] = others
        else:
            self._requests.pop(run_id, None)

    def interrupt(self, run_id: str) -> None:
        """Have a run put down at once, for all who wait for it."""
        self._down[run_id] = True

    def interrupted(self, run_id: str) -> bool:
        """Whether a run was interrupted and has not been taken up since."""
        return self._down.get(run_id, False)

    def put_down(self) -> list[str]:
        """Ids of the runs that are put down."""
        return list(self._down)

    def halts(self, run: Run) -> bool:
        """Whether a run is put down as it stands; meets the requests for it."""
        if run.proposal is not None:
            return False
        for request in [request for request in self._requests.get(run.id, ()) if request.stop.reached(run)]:
            request.run = run
            self.withdraw(run.id, request)
            self._down.setdefault(run.id, False)
        return run.id in self._down

    def taken_up(self, run_id: str) -> None:
        """A run that was put down goes on."""
        self._down.pop(run_id, None)

    def lift(self, run_id: str) -> None:
        """A run and its descendants, wherever they were put down, may go on."""
        for stopped in self.put_down():
            if stopped == run_id or stopped.startswith(f"{run_id}."):
                del self._down[stopped]


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
