"""The runs under way in this process: their drivers and tasks, and what follows from their commits.

Claiming, waking, commands and children build on this; what of theirs is needed here comes in as `Duties`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Protocol

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
from detent.engine.ports import Blob, Clock, Lease, NewRun, Resource, Store, Tape
from detent.engine.step import Step
from detent.engine.timers import Timers
from detent.engine.user_errors import failure, message_of
from detent.kernel import checks, log
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
"""Seconds a run queues for a slot before a serving worker leaves it to others."""


class Duties(Protocol):
    """What is done for runs by those who build on `ActiveRuns`."""

    def wake(self, active: ActiveRuns, run_ids: list[str]) -> Coroutine[Any, Any, None]:
        """Answer the holds of runs whose time has come."""

    def wake_parent(self, active: ActiveRuns, run_id: str) -> Coroutine[Any, Any, None]:
        """Have a run go on that waited for its children, if they have ended."""

    def heed_requests(self, active: ActiveRuns) -> Coroutine[Any, Any, None]:
        """Carry out what other processes ask of runs under way here, until cancelled."""

    def resume(self, active: ActiveRuns, run_id: str) -> Coroutine[Any, Any, str]:
        """Take a run up and have it driven."""

    def end(
        self, active: ActiveRuns, run_id: str, reason: str, by: str, undo: bool, stopped: bool
    ) -> Coroutine[Any, Any, bool]:
        """End a run as cancelled."""

    def run_children(
        self, active: ActiveRuns, driver: Driver, *args: Any, **options: Any
    ) -> Coroutine[Any, Any, list[Child]]:
        """Run children to their ends."""

    def wind_up(
        self, active: ActiveRuns, driver: Driver, runs: Sequence[str], reason: str
    ) -> Coroutine[Any, Any, None]:
        """Cancel runs below a run under way."""


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
        """Has each step performed."""
        self.flows: dict[str, Flow] = {}
        for flow in flows:
            self.add_flow(flow)
        self.observers = Observers(observers)
        self.leases = leases
        self.breakers = Breakers(store, self.clock)
        self.tape = tape
        """Where everything asked of the outside world is recorded or played back."""
        self._resources: list[Resource] = []
        """What flows needed open, in the order in which it was opened."""
        self._preparing = asyncio.Lock()
        self.takeover_limit = takeover_limit
        """Take-overs without progress after which a run asks for attention instead."""
        self.park_after = park_after
        """Seconds of waiting for a retry above which the run is put down instead of kept at hand."""
        self.stopping = False
        self.slots = Slots(concurrency, self.clock)
        self.serving: asyncio.Event | None = None
        """Set while this process serves: that there may be something to take up."""
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._drivers: dict[str, Driver] = {}
        self._listeners: dict[str, set[asyncio.Event]] = {}
        self._helpers: set[asyncio.Task[None]] = set()
        self._told: set[tuple[str, str]] = set()
        self.taking: set[str] = set()
        """Runs being claimed by some task of this process."""
        self.unstopped: dict[str, Driver] = {}
        """Runs put down here while a thread still performs an effect of theirs; they stay this worker's."""
        self.dropped: dict[str, Lease] = {}
        """Runs put down without the store knowing it."""
        self.swept: set[str] | None = None
        """Workers known to be dead when parents that may have missed a child's end were last looked for."""
        self._time = Timers(self.clock, self._wake)
        self._opened = False

    async def get(self, run_id: str) -> Run:
        """The run as its journal says now."""
        return await load(self.store, run_id)

    async def open(self) -> None:
        """Open the store. Nothing is resumed by itself; see `resume_all` and `serve`."""
        if not self._opened:
            await self.store.open()
            self._opened = True

    async def stop(self, grace: float = 30.0) -> None:
        """Finish the steps under way (at most `grace` seconds), put every run down, and close the store.

        Runs stay resumable.
        """
        self.stopping = True
        self._time.stop()
        self.slots.wake_sleepers()
        # Helpers could take up more runs. The lease is kept while steps are finished.
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
                if not any(there is resource for there in self._resources):
                    await resource.open()
                    self._resources.append(resource)

    async def _let_go_of_helpers(self) -> None:
        """Close what was opened beside the store; one that cannot be closed does not keep the others open."""
        opened: list[Resource | Performer] = [self.performer, *reversed(self._resources)]
        self._resources.clear()
        for resource in opened:
            try:
                await resource.close()
            except Exception as error:
                log.error(
                    "resource.close_failed", resource=type(resource).__name__, error=type(error).__name__
                )

    async def _end_helpers(self) -> None:
        helpers = list(self._helpers)
        for helper in helpers:
            helper.cancel()
        await asyncio.gather(*helpers, return_exceptions=True)

    def add_flow(self, flow: Flow) -> None:
        """Make a flow known; it is checked when first used."""
        there = self.flows.get(flow.name)
        if there is not None and there is not flow:
            raise ConfigurationError(f"Two flows are named '{flow.name}'.")
        self.flows[flow.name] = flow
        if flow.performed_by is not None and type(self.performer) is HandlerPerformer:
            self.performer = flow.performed_by.performer()

    def flow(self, name: str) -> Flow:
        """A flow by name, checked."""
        found = self.flows.get(name)
        if found is None:
            raise FlowNotFound(name, self.flows)
        found.check()
        return found

    def below(self, flow: Flow) -> list[Flow]:
        """Every flow that a run of this one may start, or they in turn."""
        found: dict[str, Flow] = {}
        waiting = [*flow.starts]
        while waiting:
            name = waiting.pop()
            if name not in found and name != flow.name and (one := self.flows.get(name)) is not None:
                found[name] = one
                waiting += one.starts
        return list(found.values())

    async def register(self) -> None:
        if not any(helper.get_name() == "heed" and not helper.done() for helper in self._helpers):
            watch_threads_of(asyncio.get_running_loop())
            self.helper(self._duties.heed_requests(self), "heed")
        await self.leases.register()

    async def resume(self, run_id: str) -> str:
        """Take up a run that is under way nowhere."""
        return await self._duties.resume(self, run_id)

    def launch(self, driver: Driver) -> None:
        """Have a driver work in the background."""
        run_id = driver.run.id
        self._drivers[run_id] = driver
        self._tasks[run_id] = asyncio.create_task(self._work(driver), name=f"run {run_id}")

    async def _work(self, driver: Driver) -> None:
        """Drive in a slot until the run is put down, and tell those who wait for that."""
        run_id = driver.run.id
        result: Run | Exception | None = None
        try:
            await self._drive(driver)
            result = driver.run
            if result.status.is_end and result.parent is None and driver.flow.ended is not None:
                await self._tell_ended(driver.flow.ended, result)
        except Fenced as error:
            log.warning("run.fenced", run_id=run_id, epoch=error.epoch)
            await self.let_go(driver)
            # Whoever has it now may wait for a child that ended here and told only this driver.
            self.helper(self._duties.wake_parent(self, run_id))
        except BaseException as raised:
            result = failed = failure(raised)
            if failed is not None:
                await self._put_aside(driver, failed)
            elif isinstance(raised, asyncio.CancelledError) and driver.cancelling is not None:
                stopped = not driver.unstopped
                await asyncio.shield(self._duties.end(self, run_id, *driver.cancelling, stopped=stopped))
            else:
                if isinstance(raised, asyncio.CancelledError):
                    with contextlib.suppress(Exception):
                        await asyncio.shield(self.let_go(driver))
                raise
        finally:
            self.slots.release(driver)
            self.forget(driver, result)

    async def _drive(self, driver: Driver) -> None:
        """Drive; what was given up with the lease goes on once the run is known to be still ours."""
        while True:
            try:
                await driver.drive()
                return
            except LeaseLost as error:
                log.warning("run.given_up", run_id=driver.run.id, why=str(error))
                await driver.confirm()

    async def _put_aside(self, driver: Driver, error: Exception) -> None:
        """Have a person asked about a run that cannot be driven, and let it go."""
        kind, message = type(error).__name__, writable(message_of(error))
        log.error("run.driver_failed", run_id=driver.run.id, error=kind, message=message)
        if not isinstance(error, StoreError):
            # Not the step's doing (a tool that is gone, say): trying for ever would not help, a person may.
            try:
                await driver.log.reload()
                question = f"It cannot be driven: {kind}: {message}"[:500]
                await driver.commit(Held("driver", "attention", question, ["continue", "cancel"]))
            except Exception as another:
                log.error("run.not_held", run_id=driver.run.id, error=type(another).__name__)
        await self.let_go(driver)

    async def _tell_ended(self, ended: Callable[[Store, Run], Awaitable[None]], run: Run) -> None:
        """What is done about the end of a run cannot harm it."""
        try:
            await ended(self.store, run)
        except BaseException as error:
            if failure(error) is None:
                raise
            log.warning("run.not_tidied", run_id=run.id, error=type(error).__name__)

    async def let_go(self, driver: Driver) -> None:
        """Give a run up if it is still ours; when the store is away, remember to take it up again.

        One whose effect a thread still performs stays ours: others would find it not done, and do it again.
        """
        if driver.unstopped:
            self.unstopped[driver.run.id] = driver
            return
        try:
            await self.store.park(driver.lease)
        except StoreError:
            self.dropped[driver.run.id] = driver.lease

    def forget(self, driver: Driver, result: Run | Exception | None = None) -> None:
        """A run is no longer under way here."""
        run_id = driver.run.id
        if self._drivers.get(run_id) is driver:
            del self._tasks[run_id]
            del self._drivers[run_id]
        driver.tell_waiters(result)
        if self._listeners:
            self._announce(run_id)

    def committed(self, driver: Driver, entries: Sequence[Entry]) -> None:
        """After every commit: tell observers and followers, arrange what follows from it."""
        run = driver.run
        if self.observers:
            for entry in entries:
                self.observers.tell(run, driver.flow.machine, entry)
        if self._listeners:
            self._announce(run.id)
        last = entries[-1].body
        if type(last) is Moved:
            if driver.telling and driver.flow.tells:
                log.info(
                    "step.completed", run_id=run.id, step=last.frm, next=last.to,
                    ms=round(last.duration * 1000, 1), by=last.by, attempt=last.attempt,
                )  # fmt: skip
            if last.status is None:
                return
        elif type(last) is Held:
            log.info("run.waiting", run_id=run.id, hold=last.name, why=last.why)
            if last.wake_at is not None:
                self._time.at(last.wake_at, run.id)
            if last.why == "children":
                # A child may have ended between being looked at and the wait being written down.
                self.helper(self._duties.wake_parent(self, run.id))
        if run.status.is_end and not isinstance(last, ChildEnded | Noted):
            log.info("run.ended", run_id=run.id, flow=run.flow, status=run.status.value, steps=run.steps)
            # A parent that waits in this process hears of it from the driver.
            if run.parent is not None and self._drivers.get(run.parent) is not (driver.parent or driver):
                self.helper(self._duties.wake_parent(self, run.parent))

    def helper(self, work: Any, name: str | None = None) -> None:
        """Run something beside the runs, kept track of."""
        task: asyncio.Task[None] = asyncio.create_task(work, name=name)
        self._helpers.add(task)
        task.add_done_callback(self._helper_done)

    def _helper_done(self, task: asyncio.Task[None]) -> None:
        self._helpers.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("engine.helper_failed", task=task.get_name(), error=f"{type(error).__name__}: {error}")

    def wake_at(self, when: float, run_id: str) -> None:
        """Have the clock answer a run's holds when their time has come."""
        self._time.at(when, run_id)

    def _wake(self, run_ids: list[str]) -> None:
        """The clock says that the time of runs has come."""
        if self.serving is None:
            self.helper(self._duties.wake(self, run_ids))
        else:
            self.serving.set()

    def patience(self, driver: Driver) -> float | None:
        """Seconds a run may queue for a slot before it is left to other workers; None for ever."""
        return GIVEN_BACK_AFTER if self.serving is not None and driver.parent is None else None

    @property
    def room(self) -> int:
        """How many more runs can be at work here."""
        return self.slots.number - sum(not driver.waiting_calls for driver in self._drivers.values())

    def under_way(self, run_id: str) -> tuple[Driver, asyncio.Task[None]] | None:
        """The driver of a run in this process and the task it works in."""
        driver = self._drivers.get(run_id)
        return (driver, self._tasks[run_id]) if driver is not None else None

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
        if (event, about) not in self._told:
            self._told.add((event, about))
            log.warning(event, **facts)

    def _announce(self, run_id: str) -> None:
        for event in self._listeners.get(run_id, ()):
            event.set()

    async def changed(self, run_id: str, seconds: float) -> None:
        """Wait until the run changed in this process, at most so long: another may have changed it."""
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

    async def check_filled(self, step: Step, changes: Mapping[str, Any]) -> None:
        """Raise when an agent's outcome breaks the step's contract now that receipts are filled in."""
        await self.performer.check_filled(step, changes)

    async def run_children(self, work: Driver, *args: Any, **options: Any) -> list[Child]:
        """Run children of a run under way to their ends."""
        return await self._duties.run_children(self, work, *args, **options)

    async def wind_up(self, work: Driver, runs: Sequence[str], reason: str) -> None:
        """Cancel runs below a run under way, wherever they are under way."""
        await self._duties.wind_up(self, work, runs, reason)

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
    ) -> Driver:
        """Make a run durable."""
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
        self.taking.add(run_id)  # until it is launched, which follows without a pause
        try:
            lease = await self.store.create(
                NewRun(
                    run_id, flow.name, machine.name, started.parent, (entry,), row_of(run), tuple(run.tags),
                    self.leases.me.id if drive else None, flow.definition, blobs=blobs,
                    alone=not self._drivers,
                )
            )  # fmt: skip
        finally:
            self.taking.discard(run_id)
        driver = Driver(self, flow, run, lease, parent)
        self.committed(driver, (entry,))
        return driver
