"""The way back: when too many mails fail by steps, new ones go through legacy mode until somebody looks.

What is watched is one small mark in the store: the last ended runs of real mail, and whether the way back was
taken. Every change is a conditional write, so several processes agree, and a trip is written once.
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
"""Seconds of untroubled step mode after which legacy mode may be retired."""
FIRST = 5
"""Failing runs that are named."""
TRIES = 200
"""At a write that other processes get in the way of."""

COUNTED = (Status.SUCCEEDED, Status.FAILED, Status.DEGRADED)
"""Ends that are watched; cancelled and waiting runs say nothing about the steps."""


class IntakePaused(DetentError):
    """Step mode has failed too often, and there is no legacy mode to fall back on."""

    def __init__(self) -> None:
        super().__init__(
            "Too many mails failed by steps, and legacy mode is retired (orchestration.legacy_available is "
            "false), so no new mail is taken in. See: detent warranty rollback status"
        )


class Ended(NamedTuple):
    """An ended run as the watch remembers it."""

    run_id: str
    ok: bool
    step: str | None = None
    """Where it failed, when it did."""


@dataclass(frozen=True, slots=True)
class Trip:
    """The way back was taken."""

    at: float
    by: str
    """`watch`, or `person`."""
    failed: int
    counted: int
    steps: Mapping[str, int] = field(default_factory=dict)
    """Where the runs failed."""
    runs: tuple[str, ...] = ()
    """The first that failed."""

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
    """What is remembered."""

    window: tuple[Ended, ...] = ()
    """The last ended runs since the last reset, the newest last."""
    tripped: Trip | None = None
    steps_since: float | None = None
    """Since when every mail went by steps; None while one went through legacy mode last."""
    last_trip: float | None = None
    """When the way back was last taken, resets or not."""

    @property
    def failed(self) -> int:
        """Runs of the window that failed."""
        return sum(not one.ok for one in self.window)

    @property
    def rate(self) -> float:
        """Their share."""
        return self.failed / len(self.window) if self.window else 0.0

    def failing(self) -> dict[str, int]:
        """Steps in which runs of the window failed, the most frequent first."""
        return dict(Counter(one.step or "unknown" for one in self.window if not one.ok).most_common())

    def first_failing(self) -> tuple[str, ...]:
        """The first runs of the window that failed."""
        return tuple(one.run_id for one in self.window if not one.ok)[:FIRST]

    def trip(self, at: float, by: str) -> Watch:
        """As it is once the way back is taken."""
        trip = Trip(at, by, self.failed, len(self.window), self.failing(), self.first_failing())
        return replace(self, tripped=trip, last_trip=at)

    def to_plain(self) -> dict[str, Any]:
        """As the mark holds it."""
        return {
            "window": [[one.run_id, one.ok, one.step] if one.step else [one.run_id, one.ok]
                       for one in self.window],
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
            tuple(Ended(*one) for one in plain["window"]), Trip.from_plain(plain["tripped"]),
            plain["steps_since"], plain["last_trip"],
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class RollbackStatus:
    """How the watch stands, for people."""

    watch: Watch
    threshold: float
    """Share of failures above which the way back is taken."""
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
    """Watches the mails of one mailbox."""

    def __init__(self, store: Store, settings: Orchestration, now: Callable[[], float]) -> None:
        self.store = store
        self.settings = settings
        self._now = now
        if not settings.use_step_orchestrator and not settings.legacy_available:
            raise ConfigurationError(
                "orchestration.use_step_orchestrator is false, so mails would go through legacy mode, but "
                "orchestration.legacy_available says that it is retired. Set one of them to true."
            )

    # -- what the service asks ------------------------------------------------------------------------------

    async def choose(self) -> Orchestrator:
        """Which way the next mail goes; `IntakePaused` when there is none."""
        if not self.settings.use_step_orchestrator:
            return "legacy"
        if (await self.watch()).tripped is None:
            return "step"
        if not self.settings.legacy_available:
            raise IntakePaused
        return "legacy"

    async def paused(self) -> str | None:
        """Why no mail is taken in just now; None when mails are."""
        if self.settings.legacy_available or (await self.watch()).tripped is None:
            return None
        return "rollback_tripped"

    async def settled(self, result: ProcessingResult) -> None:
        """Take in how a run of real mail ended, each run once; take the way back when it is due."""
        if result.status not in COUNTED:
            return
        if result.orchestrator == "legacy":
            await self._change(lambda watch: replace(watch, steps_since=None))
            return
        ok = result.status is Status.SUCCEEDED
        ended = Ended(result.run_id, ok, None if ok else result.failed_step)

        def after(watch: Watch) -> Watch:
            if any(one.run_id == ended.run_id for one in watch.window):
                return watch
            since = watch.steps_since if watch.steps_since is not None else self._now()
            window = (*watch.window, ended)[-self.settings.rollback.window :]
            watch = replace(watch, window=window, steps_since=since)
            return watch.trip(self._now(), "watch") if self._due(watch) else watch

        await self._change(after)

    async def line(self) -> str | None:
        """What every output says while the way back is taken."""
        trip = (await self.watch()).tripped
        if trip is None:
            return None
        what = "new mails go through legacy mode" if self.settings.legacy_available else "no mail is taken in"
        if trip.by == "person":
            return f"rolled back by hand: {what} (detent warranty rollback reset)"
        failures = f"{trip.failed} of {trip.counted} runs failed"
        return f"rolled back: {failures}, {what} (detent warranty rollback status)"

    # -- what people ask ------------------------------------------------------------------------------------

    async def watch(self) -> Watch:
        """What is remembered."""
        mark, _ = await self.store.mark(MARK)
        return Watch.from_plain(mark)

    async def status(self) -> RollbackStatus:
        """How it stands."""
        watch = await self.watch()
        may, why = self._retirement(watch)
        rules = self.settings.rollback
        return RollbackStatus(watch, rules.threshold_percent / 100, rules.min_runs, may, why)

    async def reset(self) -> bool:
        """Back to step mode, with a new window; False when the way back had not been taken."""
        before, _ = await self._change(
            lambda watch: replace(watch, window=(), tripped=None, steps_since=None)
        )
        return before.tripped is not None

    async def trip(self) -> bool:
        """Take the way back by hand; False when it had been taken."""
        before, _ = await self._change(
            lambda watch: watch if watch.tripped is not None else watch.trip(self._now(), "person")
        )
        return before.tripped is None

    # -- within ---------------------------------------------------------------------------------------------

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
        """Write a change, however many others write too; gives how it was and how it is."""
        for attempt in range(TRIES):
            mark, version = await self.store.mark(MARK)
            before = Watch.from_plain(mark)
            after = change(before)
            if after == before:
                return before, after
            if await self.store.set_mark(MARK, after.to_plain(), version):
                self._tell(before, after)
                return before, after
            await asyncio.sleep(random.uniform(0, 0.002 * (attempt + 1)))
        raise StoreError(f"The mark '{MARK}' could not be written: others kept writing it.")

    @staticmethod
    def _tell(before: Watch, after: Watch) -> None:
        trip = after.tripped
        if trip is not None and before.tripped is None:
            logger.error(
                "rollback.tripped", rate=round(trip.rate, 4), failed=trip.failed, counted=trip.counted,
                by=trip.by, steps=dict(trip.steps), runs=list(trip.runs),
            )  # fmt: skip
        elif trip is None and before.tripped is not None:
            logger.info("rollback.reset")
