"""The runs under way in this process: their drivers and tasks, and the consequences of their commits.

Claims, waking, commands and children build on this module; the functions it needs of them are its `Duties`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Protocol

from detent.engine import logger
from detent.engine.breaker import Breakers
from detent.engine.calls import watch_threads_of
from detent.engine.child import Child
from detent.engine.concurrency import Slots
from detent.engine.derived import row_of
from detent.engine.driver import Driver
from detent.engine.flow import Flow
from detent.engine.journal_reader import load
from detent.engine.leases import LeaseLost, Leases
from detent.engine.observers import Observers
from detent.engine.offloaded import Beside
from detent.engine.performer import HandlerPerformer, Performer
from detent.engine.ports import Blob, Cancellation, Clock, Lease, MarkChange, NewRun, Resource, Store, Tape
from detent.engine.stops import Stops
from detent.engine.timers import Timers
from detent.engine.user_errors import failure, message_of
from detent.engine.verdicts import VERDICT
from detent.kernel import checks
from detent.kernel.budget import Budget
from detent.kernel.entries import ChildEnded, Entry, Held, Moved, Noted, Started
from detent.kernel.errors import (
    ConfigurationError,
    Fenced,
    FlowNotFound,
    StoreError,
)
from detent.kernel.plain import to_plain, writable
from detent.kernel.run import Run

GIVEN_BACK_AFTER = 1.0
"""Seconds a run queues for a slot before a serving worker leaves it to other workers."""


class Duties(Protocol):
    """Functions that the modules built on `ActiveRuns` provide to it."""

    def wake(self, active: ActiveRuns, run_ids: list[str]) -> Coroutine[Any, Any, None]:
        """Answer the holds of runs whose timers are due."""

    def wake_parent(self, active: ActiveRuns, run_id: str) -> Coroutine[Any, Any, None]:
        """Continue a run that waits for its children, if they have ended."""

    def heed_requests(self, active: ActiveRuns) -> Coroutine[Any, Any, None]:
        """Carry out other processes' requests for runs under way here, until cancelled."""

    def resume(self, active: ActiveRuns, run_id: str) -> Coroutine[Any, Any, str]:
        """Resume a run."""

    def end(
        self, active: ActiveRuns, run_id: str, cancellation: Cancellation, stopped: bool
    ) -> Coroutine[Any, Any, bool]:
        """End a run as cancelled."""

    def run_children(
        self, active: ActiveRuns, driver: Driver, *args: Any, **options: Any
    ) -> Coroutine[Any, Any, list[Child]]:
        """Run children to their ends."""

    def cancel_descendants(
        self, active: ActiveRuns, driver: Driver, runs: Sequence[str], reason: str
    ) -> Coroutine[Any, Any, None]:
        """Cancel descendants of a run under way."""


class ActiveRuns:
    """Everything under way in one process, and what it shares."""

    def __init__(
        self,
        store: Store,
        flows: Iterable[Flow],
        *,
        duties: Duties,
        observers: Iterable[Any],
        concurrency: int,
        clock: Clock,
        leases: Leases,
        takeover_limit: int,
        park_after: float,
        performer: Performer,
        tape: Tape | None,
    ) -> None:
        self._duties = duties
        self.store = store
        self.clock = clock
        self.performer = performer
        """Performs the steps."""
        self.flows: dict[str, Flow] = {}
        for flow in flows:
            self.add_flow(flow)
        self.observers = Observers(observers)
        self.leases = leases
        self.breakers = Breakers(store, self.clock)
        self.tape = tape
        """Records or plays back every call to the outside world."""
        self._resources: list[Resource] = []
        """Resources opened for flows, in the order of opening."""
        self._preparing = asyncio.Lock()
        self.takeover_limit = takeover_limit
        """Takeovers without progress after which the run waits for a person."""
        self.park_after = park_after
        """Seconds until a retry above which the run is parked instead of kept in memory."""
        self.stopping = False
        self.stops = Stops()
        """Where runs are put down, though the engine goes on."""
        self.slots = Slots(concurrency, self.clock)
        self.serving: asyncio.Event | None = None
        """Exists while this process serves; set when there may be runs to resume."""
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._drivers: dict[str, Driver] = {}
        self._listeners: dict[str, set[asyncio.Event]] = {}
        self._helpers: set[asyncio.Task[None]] = set()
        self._warned: set[tuple[str, str]] = set()
        self.taking: set[str] = set()
        """Runs being claimed by some task of this process."""
        self.unstopped: dict[str, Driver] = {}
        """Runs stopped here while a thread still performs one of their effects; this worker keeps them."""
        self.dropped: dict[str, Lease] = {}
        """Runs whose parking failed, with their leases."""
        self.swept: set[str] | None = None
        """Dead workers known at the last search for parents that missed a child's end."""
        self._time = Timers(self.clock, self._wake)
        self._opened = False

    async def get(self, run_id: str) -> Run:
        """The run, folded from its journal."""
        return await load(self.store, run_id)

    async def open(self) -> None:
        """Open the store. No run is resumed automatically; see `resume_all` and `serve`."""
        if not self._opened:
            await self.store.open()
            self._opened = True

    async def stop(self, grace: float = 30.0) -> None:
        """Finish the steps under way (at most `grace` seconds), park every run, and close the store.

        Runs stay resumable.
        """
        self.stopping = True
        self._time.stop()
        self.slots.wake_sleepers()
        # Helpers could resume more runs. The lease is kept while steps finish.
        await self._end_helpers()
        while tasks := list(self._tasks.values()):
            _, late = await asyncio.wait(tasks, timeout=grace)
            for task in late:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for driver in list(self._drivers.values()):
                if (task := self._tasks[driver.run.id]).done():  # cancelled before it had begun
                    self.forget(driver)
        await self._end_helpers()
        if self._opened:
            self._opened = False
            try:
                await self._let_go_of_helpers()
                await self.leases.retire()
            finally:
                await self.store.close()

    async def prepare(self, flow: Flow) -> None:
        """Open what a flow needs beside the store, before the first of its runs is under way."""
        for resource in flow.needs:
            async with self._preparing:
                if not any(opened is resource for opened in self._resources):
                    await resource.open()
                    self._resources.append(resource)

    async def _let_go_of_helpers(self) -> None:
        """Close the performer and the resources; a failure to close one does not stop the others."""
        opened: list[Resource | Performer] = [self.performer, *reversed(self._resources)]
        self._resources.clear()
        for resource in opened:
            try:
                await resource.close()
            except Exception as error:
                logger.error(
                    "resource.close_failed", resource=type(resource).__name__, error=type(error).__name__
                )

    async def _end_helpers(self) -> None:
        helpers = list(self._helpers)
        for helper in helpers:
            helper.cancel()
        await asyncio.gather(*helpers, return_exceptions=True)

    def add_flow(self, flow: Flow) -> None:
        """Register a flow; it is checked when first used.

        Raises:
            ConfigurationError: another flow has the same name.
        """
        known = self.flows.get(flow.name)
        if known is not None and known is not flow:
            raise ConfigurationError(f"Two flows are named '{flow.name}'.")
        self.flows[flow.name] = flow
        if flow.kept_in is not None:
            flow.kept_in(self.store)
        if flow.performed_by is not None and type(self.performer) is HandlerPerformer:
            self.performer = flow.performed_by.performer()

    def flow(self, name: str) -> Flow:
        """A flow by name, checked."""
        flow = self.flows.get(name)
        if flow is None:
            raise FlowNotFound(name, {"flow": self.flows})
        flow.check()
        return flow

    def below(self, flow: Flow) -> list[Flow]:
        """Every flow that a run of this one may start, directly or indirectly."""
        flows: dict[str, Flow] = {}
        waiting = [*flow.starts]
        while waiting:
            name = waiting.pop()
            if name not in flows and name != flow.name and (child := self.flows.get(name)) is not None:
                flows[name] = child
                waiting += child.starts
        return list(flows.values())

    async def register(self) -> None:
        if not any(helper.get_name() == "heed" and not helper.done() for helper in self._helpers):
            watch_threads_of(asyncio.get_running_loop())
            self.helper(self._duties.heed_requests(self), "heed")
        await self.leases.register()

    async def resume(self, run_id: str) -> str:
        """Resume a run that is under way nowhere."""
        return await self._duties.resume(self, run_id)

    def launch(self, driver: Driver) -> None:
        """Start a driver in the background."""
        run_id = driver.run.id
        self.stops.taken_up(run_id)
        self._drivers[run_id] = driver
        self._tasks[run_id] = asyncio.create_task(self._work(driver), name=f"run {run_id}")

    async def _work(self, driver: Driver) -> None:
        """Drive a run until it ends, waits or is parked, and notify its waiters."""
        run_id = driver.run.id
        result: Run | Exception | None = None
        try:
            await self._drive(driver)
            if driver.resumed:
                await self.performer.catch_up(driver)
            result = driver.run
            if result.status.is_end and result.parent is None and driver.flow.ended is not None:
                await self._tell_ended(driver.flow.ended, result)
        except Fenced as error:
            logger.warning("run.fenced", run_id=run_id, epoch=error.epoch)
            await self.let_go(driver)
            # The run's new worker may wait for a child that ended here and notified only this driver.
            self.helper(self._duties.wake_parent(self, run_id))
        except BaseException as raised:
            result = failed = failure(raised)
            if failed is not None:
                await self._put_aside(driver, failed)
            elif isinstance(raised, asyncio.CancelledError) and driver.cancellation is not None:
                stopped = not driver.unstopped
                await asyncio.shield(self._duties.end(self, run_id, driver.cancellation, stopped))
            else:
                if isinstance(raised, asyncio.CancelledError):
                    with contextlib.suppress(Exception):
                        await asyncio.shield(self.let_go(driver))
                raise
        finally:
            self.slots.release(driver)
            if driver.resources.any_open:
                await asyncio.shield(driver.resources.close())
            self.forget(driver, result)

    async def _drive(self, driver: Driver) -> None:
        """Drive a run; after a lost lease, continue once the run is confirmed to be still ours."""
        while True:
            try:
                await driver.drive()
                return
            except LeaseLost as error:
                logger.warning("run.given_up", run_id=driver.run.id, why=str(error))
                await driver.confirm()

    async def _put_aside(self, driver: Driver, error: Exception) -> None:
        """Hold a run that cannot be driven for a person's attention, and park it."""
        kind, message = type(error).__name__, writable(message_of(error))
        logger.error("run.driver_failed", run_id=driver.run.id, error=kind, message=message)
        if not isinstance(error, StoreError):
            # Not the step's fault (a missing tool, say): retrying would not help, but a person may.
            try:
                await driver.log.reload()
                question = f"It cannot be driven: {kind}: {message}"[:500]
                await driver.commit(Held("driver", "attention", question, ["continue", "cancel"]))
            except Exception as another:
                logger.error("run.not_held", run_id=driver.run.id, error=type(another).__name__)
        await self.let_go(driver)

    async def _tell_ended(self, ended: Callable[[Store, Run], Awaitable[None]], run: Run) -> None:
        """Call a flow's `ended` hook; its failure does not affect the run."""
        try:
            await ended(self.store, run)
        except BaseException as error:
            if failure(error) is None:
                raise
            logger.warning("run.not_tidied", run_id=run.id, error=type(error).__name__)

    async def let_go(self, driver: Driver) -> None:
        """Park a run if it is still ours; if the store is unavailable, remember its lease for later.

        A run whose effect a thread still performs stays ours: another worker would find the effect not done,
        and repeat it.
        """
        if driver.unstopped:
            self.unstopped[driver.run.id] = driver
            return
        try:
            await self.store.park(driver.lease)
        except StoreError:
            self.dropped[driver.run.id] = driver.lease

    def forget(self, driver: Driver, result: Run | Exception | None = None) -> None:
        """Remove a run that is no longer under way here, and notify its waiters."""
        run_id = driver.run.id
        if self._drivers.get(run_id) is driver:
            del self._tasks[run_id]
            del self._drivers[run_id]
        driver.tell_waiters(result)
        if self._listeners:
            self._announce(run_id)

    def committed(self, driver: Driver, entries: Sequence[Entry]) -> None:
        """Handle a commit: notify observers and followers, schedule what follows from it."""
        run = driver.run
        if self.observers:
            for entry in entries:
                self.observers.tell(run, driver.flow.machine, entry)
        if self._listeners:
            self._announce(run.id)
        for entry in entries:
            if type(entry.body) is Noted and entry.body.topic == VERDICT:
                driver.verdicts.append(entry.body.body)
        last = entries[-1].body
        if type(last) is Moved:
            if driver.telling and driver.flow.tells:
                logger.info(
                    "step.completed", run_id=run.id, step=last.frm, next=last.to,
                    ms=round(last.duration * 1000, 1), by=last.by, attempt=last.attempt,
                )  # fmt: skip
            if last.status is None:
                return
        elif type(last) is Held:
            logger.info("run.waiting", run_id=run.id, hold=last.name, why=last.why)
            if last.wake_at is not None:
                self._time.at(last.wake_at, run.id)
            if last.why == "children":
                # A child may have ended between the check and the commit of the hold.
                self.helper(self._duties.wake_parent(self, run.id))
        if run.status.is_end and not isinstance(last, ChildEnded | Noted):
            logger.info("run.ended", run_id=run.id, flow=run.flow, status=run.status.value, steps=run.steps)
            # A parent that waits in this process is notified by the driver.
            if run.parent is not None and self._drivers.get(run.parent) is not (driver.parent or driver):
                self.helper(self._duties.wake_parent(self, run.parent))

    def helper(self, work: Any, name: str | None = None) -> None:
        """Run a background task, kept track of until it ends."""
        task: asyncio.Task[None] = asyncio.create_task(work, name=name)
        self._helpers.add(task)
        task.add_done_callback(self._helper_done)

    def _helper_done(self, task: asyncio.Task[None]) -> None:
        self._helpers.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error(
                "engine.helper_failed", task=task.get_name(), error=f"{type(error).__name__}: {error}"
            )

    def wake_at(self, when: float, run_id: str) -> None:
        """Schedule a timer that answers a run's holds."""
        self._time.at(when, run_id)

    def _wake(self, run_ids: list[str]) -> None:
        """Handle due timers of runs."""
        if self.serving is None:
            self.helper(self._duties.wake(self, run_ids))
        else:
            self.serving.set()

    def patience(self, driver: Driver) -> float | None:
        """Seconds a run may queue for a slot before it is left to other workers; None for no limit."""
        return GIVEN_BACK_AFTER if self.serving is not None and driver.parent is None else None

    @property
    def room(self) -> int:
        """Number of further runs this process can work on."""
        return self.slots.number - sum(not driver.waiting_calls for driver in self._drivers.values())

    def under_way(self, run_id: str) -> tuple[Driver, asyncio.Task[None]] | None:
        """The driver of a run in this process, and its task."""
        driver = self._drivers.get(run_id)
        return (driver, self._tasks[run_id]) if driver is not None else None

    def halts(self, run: Run) -> bool:
        """Whether a run is to be put down here, as it stands."""
        if self.stopping or not self.stops:
            return self.stopping
        return self.stops.halts(run)

    def drivers(self) -> list[Driver]:
        """The drivers of this process."""
        return list(self._drivers.values())

    def runs_under_way(self) -> list[str]:
        """Ids of the runs under way in this process."""
        return list(self._drivers)

    def driver_of(self, run_id: str) -> Driver | None:
        """The driver of a run in this process."""
        return self._drivers.get(run_id)

    @property
    def alone(self) -> bool:
        """True while at most one run is under way in this process."""
        return len(self._drivers) < 2

    def tell_once(self, event: str, about: str, **facts: Any) -> None:
        """Log a warning once per subject in this process."""
        if (event, about) not in self._warned:
            self._warned.add((event, about))
            logger.warning(event, **facts)

    def _announce(self, run_id: str) -> None:
        for event in self._listeners.get(run_id, ()):
            event.set()

    async def changed(self, run_id: str, seconds: float) -> None:
        """Wait until the run changes in this process, at most `seconds`: others may change it too."""
        event = asyncio.Event()
        self._listeners.setdefault(run_id, set()).add(event)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await event.wait()
        finally:
            listeners = self._listeners[run_id]
            listeners.discard(event)
            if not listeners:
                del self._listeners[run_id]

    def may_spend(self, flow: Flow, run: Run) -> bool:
        """True when performing steps of a run may cost tokens or money."""
        return self.performer.may_spend(flow, run)

    async def run_children(self, work: Driver, *args: Any, **options: Any) -> list[Child]:
        """Run children of a run under way to their ends."""
        return await self._duties.run_children(self, work, *args, **options)

    async def cancel_descendants(self, work: Driver, runs: Sequence[str], reason: str) -> None:
        """Cancel descendants of a run under way, in whichever process they are."""
        await self._duties.cancel_descendants(self, work, runs, reason)

    async def create(
        self,
        flow: Flow,
        data: Any,
        run_id: str,
        parent: Driver | None,
        tags: Sequence[str],
        budget: Budget | None,
        config: Mapping[str, Any],
        drive: bool = True,
        blobs: tuple[Blob, ...] = (),
        at: Any = None,
        beside: Beside | None = None,
        mark: MarkChange | None = None,
    ) -> Driver:
        """Create a run in the store.

        Raises:
            ConfigurationError: the flow, its configuration or the run's data is invalid.
            RunExists: the id is taken.
            MarkMoved: the mark to be set with the run has another version; there is no such run.
        """
        if beside is not None and beside.blobs:
            if flow.beside is None:
                raise ConfigurationError(f"Runs of '{flow.name}' take no values beside their journals.")
            data, blobs = {**data, flow.beside: beside.refs}, (*blobs, *beside.blobs)
        if flow.needs and drive:
            await self.prepare(flow)
        machine = flow.machine
        budget = budget or flow.budget
        if budget is not None and not isinstance(budget, Budget):
            raise checks.refuse("budget", budget, "a Budget, or None")
        self.performer.check(flow, config, budget, self.below)
        start = machine.start if at is None else machine.state(at)
        if machine.is_end(start):
            raise ConfigurationError(f"A run of '{flow.name}' cannot begin in '{machine.named(start)}'.")
        started = Started(
            flow.name, machine.named(start), machine.name, machine.version, flow.fingerprint,
            flow.read_input(data), parent.run.id if parent else None, budget.to_plain() if budget else None,
            to_plain(dict(config)), list(dict.fromkeys(checks.names("tags", tags))),
        )  # fmt: skip
        entry = Entry(1, self.clock.now(), 1, started)
        run = Run(run_id)
        run.apply(entry)
        if beside is not None and beside.blobs:
            run.beside = beside.shown(run.data)
        if drive and not self.leases.registered:
            await self.register()
        being_claimed = run_id in self.taking  # by another task: then it exists, and stays marked
        self.taking.add(run_id)  # until it is launched, which follows without an await
        try:
            lease = await self.store.create(
                NewRun(
                    run_id, flow.name, machine.name, started.parent, (entry,), row_of(run), tuple(run.tags),
                    self.leases.me.id if drive else None, flow.definition, blobs=blobs,
                    alone=not self._drivers, mark=mark,
                )
            )  # fmt: skip
        finally:
            if not being_claimed:
                self.taking.discard(run_id)
        driver = Driver(self, flow, run, lease, parent)
        self.committed(driver, (entry,))
        return driver
