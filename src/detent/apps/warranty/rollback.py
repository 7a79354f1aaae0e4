"""Rollback: when too many mails fail in step mode, new mails go through legacy mode until a reset.

The state is one small mark in the store: the last ended runs of real mail, and whether the rollback has
tripped. Every change is a conditional write, so several processes agree, and a trip is written once.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from detent.apps.warranty.processor import Orchestrator
from detent.apps.warranty.results import ProcessingResult
from detent.apps.warranty.settings import Orchestration
from detent.engine import logger
from detent.engine.ports import Store
from detent.kernel.errors import ConfigurationError, DetentError, StoreError
from detent.kernel.status import Status

MARK = "warranty/rollback"
DAY = 86400.0
RETIRE_AFTER = 14 * DAY
"""Seconds of step mode without a trip after which legacy mode may be retired."""
FIRST = 5
"""Number of failing runs that are named."""
TRIES = 200
"""Attempts at a write that conflicts with other processes."""

COUNTED = (Status.SUCCEEDED, Status.FAILED, Status.DEGRADED)
"""Ends that are counted; cancelled and waiting runs do not show whether the steps work."""
OF_RECIPIENT = frozenset({"recipient_refused", "bad_address"})
"""Errors that are about one address, which any sender can choose; runs they end are not counted."""


class IntakePaused(DetentError):
    """The rollback has tripped and legacy mode is retired, so no mail is taken in."""

    def __init__(self) -> None:
        super().__init__(
            "Too many mails failed by steps, and legacy mode is retired (orchestration.legacy_available is "
            "false), so no new mail is taken in. See: detent warranty rollback status"
        )


class Ended(NamedTuple):
    """An ended run in the window."""

    run_id: str
    ok: bool
    step: str | None = None
    """The step in which it failed, if it did."""


@dataclass(frozen=True, slots=True)
class Trip:
    """One trip of the rollback."""

    at: float
    by: str
    """`watch`, or `person`."""
    failed: int
    counted: int
    steps: Mapping[str, int] = field(default_factory=dict)
    """Failed runs by step."""
    runs: tuple[str, ...] = ()
    """The first runs that failed."""

    @property
    def rate(self) -> float:
        """Share of runs that had failed."""
        return self.failed / self.counted if self.counted else 0.0

    def to_plain(self) -> dict[str, Any]:
        """As the mark holds it."""
        return {
            "at": self.at, "by": self.by, "failed": self.failed, "counted": self.counted,
            "steps": dict(self.steps), "runs": list(self.runs),
        }  # fmt: skip

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any] | None) -> Trip | None:
        """Read back what `to_plain` wrote."""
        if plain is None:
            return None
        return cls(
            plain["at"], plain["by"], plain["failed"], plain["counted"], dict(plain["steps"]),
            tuple(plain["runs"]),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Watch:
    """The state of the rollback."""

    window: tuple[Ended, ...] = ()
    """The last ended runs since the last reset, the newest last."""
    tripped: Trip | None = None
    steps_since: float | None = None
    """Since when every mail has gone through step mode; None if the last one went through legacy mode."""
    last_trip: float | None = None
    """Time of the last trip, even if it was reset."""

    @property
    def failed(self) -> int:
        """Runs of the window that failed."""
        return sum(not run.ok for run in self.window)

    @property
    def rate(self) -> float:
        """Share of runs of the window that failed."""
        return self.failed / len(self.window) if self.window else 0.0

    def failing(self) -> dict[str, int]:
        """Steps in which runs of the window failed, the most frequent first."""
        return dict(Counter(run.step or "unknown" for run in self.window if not run.ok).most_common())

    def first_failing(self) -> tuple[str, ...]:
        """The first runs of the window that failed."""
        return tuple(run.run_id for run in self.window if not run.ok)[:FIRST]

    def trip(self, at: float, by: str) -> Watch:
        """The state after a trip."""
        trip = Trip(at, by, self.failed, len(self.window), self.failing(), self.first_failing())
        return replace(self, tripped=trip, last_trip=at)

    def to_plain(self) -> dict[str, Any]:
        """As the mark holds it."""
        return {
            "window": [[run.run_id, run.ok, run.step] if run.step else [run.run_id, run.ok]
                       for run in self.window],
            "tripped": self.tripped.to_plain() if self.tripped is not None else None,
            "steps_since": self.steps_since,
            "last_trip": self.last_trip,
        }  # fmt: skip

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any] | None) -> Watch:
        """Read back what `to_plain` wrote."""
        if not plain:
            return cls()
        return cls(
            tuple(Ended(*run) for run in plain["window"]), Trip.from_plain(plain["tripped"]),
            plain["steps_since"], plain["last_trip"],
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class RollbackStatus:
    """The state of the rollback, for people."""

    watch: Watch
    threshold: float
    """Share of failures above which the rollback trips."""
    min_runs: int
    may_retire: bool
    why: str
    """Why legacy mode may be retired, or what is missing."""

    def to_plain(self) -> dict[str, Any]:
        """As JSON values."""
        watch = self.watch
        return {
            "tripped": watch.tripped.to_plain() if watch.tripped is not None else None,
            "counted": len(watch.window),
            "failed": watch.failed,
            "rate": watch.rate,
            "threshold": self.threshold,
            "min_runs": self.min_runs,
            "failing_steps": watch.failing(),
            "first_failing_runs": list(watch.first_failing()),
            "steps_since": watch.steps_since,
            "last_trip": watch.last_trip,
            "legacy_may_be_retired": self.may_retire,
            "why": self.why,
        }


class Rollback:
    """Counts failures of one mailbox and decides the mode of new mails."""

    def __init__(self, store: Store, settings: Orchestration, now: Callable[[], float]) -> None:
        self.store = store
        self.settings = settings
        self._now = now
        if not settings.use_step_orchestrator and not settings.legacy_available:
            raise ConfigurationError(
                "orchestration.use_step_orchestrator is false, so mails would go through legacy mode, but "
                "orchestration.legacy_available says that it is retired. Set one of them to true."
            )

    # -- for the service -----------------------------------------------------------------------------------

    async def choose(self) -> Orchestrator:
        """The mode of the next mail.

        Raises:
            IntakePaused: the rollback has tripped and legacy mode is retired.
        """
        if not self.settings.use_step_orchestrator:
            return "legacy"
        if (await self.watch()).tripped is None:
            return "step"
        if not self.settings.legacy_available:
            raise IntakePaused
        return "legacy"

    async def paused(self) -> str | None:
        """The reason why no mail is taken in now; None when mails are."""
        if self.settings.legacy_available or (await self.watch()).tripped is None:
            return None
        return "rollback_tripped"

    async def settled(self, result: ProcessingResult) -> None:
        """Count the end of a run of real mail, each run once; trip when the failures exceed the threshold."""
        if result.status not in COUNTED:
            return
        if result.status is not Status.SUCCEEDED and result.error_code in OF_RECIPIENT:
            return
        if result.orchestrator == "legacy":
            await self._change(lambda watch: replace(watch, steps_since=None))
            return
        ok = result.status is Status.SUCCEEDED
        ended = Ended(result.run_id, ok, None if ok else result.failed_step)

        def after(watch: Watch) -> Watch:
            if any(run.run_id == ended.run_id for run in watch.window):
                return watch
            since = watch.steps_since if watch.steps_since is not None else self._now()
            window = (*watch.window, ended)[-self.settings.rollback.window :]
            watch = replace(watch, window=window, steps_since=since)
            return watch.trip(self._now(), "watch") if self._due(watch) else watch

        await self._change(after)

    async def line(self) -> str | None:
        """The line every output shows while the rollback is tripped; None otherwise."""
        trip = (await self.watch()).tripped
        if trip is None:
            return None
        consequence = (
            "new mails go through legacy mode" if self.settings.legacy_available else "no mail is taken in"
        )
        if trip.by == "person":
            return f"rolled back by hand: {consequence} (detent warranty rollback reset)"
        failures = f"{trip.failed} of {trip.counted} runs failed"
        return f"rolled back: {failures}, {consequence} (detent warranty rollback status)"

    # -- for people ----------------------------------------------------------------------------------------

    async def watch(self) -> Watch:
        """The stored state."""
        mark, _ = await self.store.mark(MARK)
        return Watch.from_plain(mark)

    async def status(self) -> RollbackStatus:
        """The state, with the thresholds and whether legacy mode may be retired."""
        watch = await self.watch()
        may, why = self._retirement(watch)
        rules = self.settings.rollback
        return RollbackStatus(watch, rules.threshold_percent / 100, rules.min_runs, may, why)

    async def reset(self) -> bool:
        """Return to step mode with a new window; False when the rollback had not tripped."""
        before, _ = await self._change(
            lambda watch: replace(watch, window=(), tripped=None, steps_since=None)
        )
        return before.tripped is not None

    async def trip(self) -> bool:
        """Trip the rollback by hand; False when it had tripped already."""
        before, _ = await self._change(
            lambda watch: watch if watch.tripped is not None else watch.trip(self._now(), "person")
        )
        return before.tripped is None

    # -- private --------------------------------------------------------------------------------------------

    def _due(self, watch: Watch) -> bool:
        rules = self.settings.rollback
        if not rules.enabled or watch.tripped is not None or len(watch.window) < rules.min_runs:
            return False
        return watch.failed * 100 > rules.threshold_percent * len(watch.window)

    def _retirement(self, watch: Watch) -> tuple[bool, str]:
        rules = self.settings.rollback
        if not self.settings.legacy_available:
            return False, "it is retired"
        if watch.tripped is not None:
            return False, "mails go through it now"
        now = self._now()
        if watch.steps_since is None:
            return False, "no mail has gone by steps yet, or one went through legacy mode since"
        days = (now - watch.steps_since) / DAY
        if days * DAY < RETIRE_AFTER:
            return False, f"step mode has been in use for {days:.1f} of {RETIRE_AFTER / DAY:.0f} days"
        if watch.last_trip is not None and now - watch.last_trip < RETIRE_AFTER:
            return False, f"the mailbox switched to legacy mode {(now - watch.last_trip) / DAY:.1f} days ago"
        if len(watch.window) < rules.min_runs:
            return False, f"{len(watch.window)} of {rules.min_runs} runs have ended since the last reset"
        if watch.failed * 100 >= rules.threshold_percent * len(watch.window):
            return False, f"{watch.rate:.1%} of the last runs failed"
        return True, f"{days:.0f} days of step mode, {watch.rate:.1%} of the last runs failed"

    async def _change(self, change: Callable[[Watch], Watch]) -> tuple[Watch, Watch]:
        """Write a change despite concurrent writers; returns the state before and after."""
        for attempt in range(TRIES):
            mark, version = await self.store.mark(MARK)
            before = Watch.from_plain(mark)
            after = change(before)
            if after == before:
                return before, after
            if await self.store.set_mark(MARK, after.to_plain(), version):
                self._log_change(before, after)
                return before, after
            await asyncio.sleep(random.uniform(0, 0.002 * (attempt + 1)))
        raise StoreError(f"The mark '{MARK}' could not be written: others kept writing it.")

    @staticmethod
    def _log_change(before: Watch, after: Watch) -> None:
        trip = after.tripped
        if trip is not None and before.tripped is None:
            logger.error(
                "rollback.tripped", rate=round(trip.rate, 4), failed=trip.failed, counted=trip.counted,
                by=trip.by, steps=dict(trip.steps), runs=list(trip.runs),
            )  # fmt: skip
        elif trip is None and before.tripped is not None:
            logger.info("rollback.reset")
