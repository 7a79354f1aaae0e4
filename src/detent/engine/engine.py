"""The engine: start runs, finish them, follow them, and take up what was left lying.

What is asked of a run that is not under way here (release, resolve, cancel, fork, reopen) is in
`interventions`; finding what dead processes left is in `recovery`; one run's work is in `driver`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from detent.engine import forking, interventions, lineage, recovery
from detent.engine.breaker import Breakers
from detent.engine.calls import watch_threads_of
from detent.engine.clock import SystemClock
from detent.engine.context import blob_of
from detent.engine.driver import Driver
from detent.engine.flow import Flow
from detent.engine.journals import load
from detent.engine.leases import LeaseLost, Leases
from detent.engine.observers import Observers
from detent.engine.offloaded import Beside
from detent.engine.performer import HandlerPerformer, Performer, PerformerSource
from detent.engine.ports import USUAL_LEASE, Blob, Clock, NewRun, Resource, Store, Tape
from detent.engine.raised import failure, message_of
from detent.engine.slots import Slots
from detent.engine.standing import row_of
from detent.engine.timekeeper import Timekeeper
from detent.kernel import checks, log
from detent.kernel.budget import Budget
from detent.kernel.entries import ChildEnded, Entry, Held, Moved, Noted, Started
from detent.kernel.errors import (
    ConfigurationError,
    Fenced,
    FlowNotFound,
    RunBusy,
    RunExists,
    RunStateError,
    StoreError,
)
from detent.kernel.ids import ROOT, check_key, check_run_id, child_ids
from detent.kernel.plain import to_plain, writable
from detent.kernel.run import Run
from detent.kernel.run_config import FORCE, REPLAYED
from detent.kernel.status import Status


class Engine:
    """Drives runs of its flows in a store. Use as `async with Engine(store, [flow]) as engine`."""

    def __init__(
        self,
        store: Store,
        flows: Iterable[Flow] = (),
        *,
        observers: Iterable[Any] = (),
        concurrency: int = 1000,
        clock: Clock | None = None,
        lease: float = USUAL_LEASE,
        takeover_limit: int = 10,
        park_after: float = 30.0,
        worker_id: str | None = None,
        host: str | None = None,
        dispatch: PerformerSource | None = None,
        tape: Tape | None = None,
    ) -> None:
        if concurrency < 1:
            raise ConfigurationError(f"concurrency is {concurrency}; at least one run must be able to work.")
        self.store = store
        self.clock: Clock = clock or SystemClock()
        self.performer: Performer = HandlerPerformer() if dispatch is None else dispatch.performer()
        """Has each step performed."""
        self.flows: dict[str, Flow] = {}
        for flow in flows:
            self.add_flow(flow)
        self.observers = Observers(observers)
        self.leases = Leases(store, self.clock, lease, worker_id, host)
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
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._drivers: dict[str, Driver] = {}
        self._listeners: dict[str, set[asyncio.Event]] = {}
        self._helpers: set[asyncio.Task[None]] = set()
        self._told: set[tuple[str, str]] = set()
        self.taking: set[str] = set()
        """Runs being claimed by some task of this process."""
        self.unstopped: dict[str, Driver] = {}
        """Runs put down here while a thread still performs an effect of theirs; they stay this worker's."""
        self.dropped: set[str] = set()
        """Runs put down without the store knowing it."""
        self.swept: set[str] | None = None
        """Workers known to be dead when parents that may have missed a child's end were last looked for."""
        self._time = Timekeeper(self.clock, self._wake)
        self._opened = False

    # -- life -----------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Engine:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def open(self) -> None:
        """Open the store. Nothing is resumed by itself; see `resume_all` and `serve`."""
        if not self._opened:
            await self.store.open()
            self._opened = True

    async def prepare(self, flow: Flow) -> None:
        """Open what a flow needs beside the store, before the first of its runs is under way."""
        for resource in flow.needs:
            async with self._preparing:
                if not any(there is resource for there in self._resources):
                    await resource.open()
                    self._resources.append(resource)

    async def stop(self, grace: float = 30.0) -> None:
        """Finish the steps under way (at most `grace` seconds), put every run down, and close the store.

        Runs stay resumable.
        """
        self.stopping = True
        self._time.stop()
        self.slots.rouse()
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

    def _below(self, flow: Flow) -> list[Flow]:
        """Every flow that a run of this one may start, or they in turn."""
        found: dict[str, Flow] = {}
        waiting = [*flow.starts]
        while waiting:
            name = waiting.pop()
            if name not in found and name != flow.name and (one := self.flows.get(name)) is not None:
                found[name] = one
                waiting += one.starts
        return list(found.values())

    def add_observer(self, observer: Any) -> None:
        """Tell somebody more about every committed entry."""
        self.observers.add(observer)

    # -- runs -----------------------------------------------------------------------------------------------

    async def start(
        self,
        flow: str | Flow,
        data: Any = None,
        *,
        run_id: str | None = None,
        tags: Sequence[str] = (),
        budget: Budget | None = None,
        config: Mapping[str, Any] | None = None,
        force_deterministic: bool = False,
        beside: Iterable[bytes] = (),
        at: Any = None,
        drive: bool = True,
    ) -> str:
        """Start a run and give its id; it is durable from here on and under way unless `drive` is False.

        `at` names a state to begin in, in place of the machine's start; `data` must hold what it needs.
        `beside` are values to keep beside the journal; data refers to them as `kept_beside` says.
        `force_deterministic` keeps agents out of it and of all its children, whatever the configuration.
        """
        if isinstance(flow, Flow):
            self.add_flow(flow)
            flow = flow.name
        config = {**(config or {}), **self.performer.run_config()}
        if force_deterministic:
            config = {**config, FORCE: True}
        if self.tape is not None and self.tape.plays:
            config = {**config, REPLAYED: True}
        run_id = _new_id(run_id)
        if "." in run_id:
            config = {**config, ROOT: run_id}
        driver = await self._create(
            self.flow(flow), data, run_id, None, tags, budget, config, drive,
            tuple(blob_of(body) for body in beside), at,
        )  # fmt: skip
        if drive:
            self.launch(driver)
        return driver.run.id

    async def run(self, flow: str | Flow, data: Any = None, **options: Any) -> Run:
        """Start a run and finish it."""
        run_id = await self.start(flow, data, **options)
        driver = self._drivers.get(run_id)
        run = await driver.put_down() if driver is not None else None
        return run if run is not None and run.status.is_end else await self.finish(run_id)

    async def finish(self, run_id: str, *, patience: float | None = None) -> Run:
        """The run once it has ended, or once it waits for more than the clock.

        With `patience`, a wait for the clock longer than so many seconds is not waited for either. A run
        nobody drives is taken up.
        """
        while True:
            driver = self._drivers.get(run_id)
            if driver is not None:
                run = await driver.put_down()
                if run is not None and run.status.is_end:
                    return run
            row = await self.store.row(run_id)
            if row.now.status.is_end:
                return await self.get(run_id)
            if row.now.status is Status.WAITING:
                when = await recovery.outlook(self, row)
                if self.stopping or when is None:
                    return await self.get(run_id)
                left = when - self.clock.now()
                if patience is not None and left > patience:
                    return await self.get(run_id)
                await self._changed(run_id, max(0.05, min(left, 1.0)))
            elif run_id in self._drivers:
                continue
            elif self.stopping:
                return await self.get(run_id)
            else:
                try:
                    await self.resume(run_id)
                except RunBusy:
                    await self._changed(run_id, 0.1)
                except RunStateError:
                    continue

    async def follow(self, run_id: str, after: int = 0, *, poll: float = 0.2) -> AsyncIterator[Entry]:
        """Entries as they are committed, by whatever process, until the run ends."""
        while True:
            row = await self.store.row(run_id)
            page = await self.store.entries(run_id, after)
            for entry in page:
                yield entry
                after = entry.seq
            if not page and row.now.status.is_end and row.seq <= after:
                return
            if not page:
                await self._changed(run_id, poll)

    async def get(self, run_id: str) -> Run:
        """The run as its journal says now."""
        return await load(self.store, run_id)

    async def resume(self, run_id: str) -> str:
        """Take up a run that is under way nowhere. Gives its id; `RunBusy` while somebody else drives it."""
        return await recovery.resume(self, run_id)

    async def resume_all(self, *, flows: Iterable[str] | None = None) -> list[str]:
        """Take up everything dead processes left and everything whose time has come; gives the ids."""
        return await recovery.resume_all(self, flows)

    async def serve(self, *, poll: float = 1.0) -> None:
        """Keep taking up what is left lying or due, until `stop`."""
        await recovery.serve(self, poll)

    async def cancel(
        self,
        run_id: str,
        *,
        reason: str = "cancelled",
        by: str = "person",
        undo: bool = False,
        drive: bool = True,
    ) -> None:
        """End a run and its children as cancelled, here or wherever it is under way.

        With `undo`, where its flow can, what it did is undone first; the run is under way until then.
        """
        await interventions.cancel(self, run_id, reason, by, undo, drive)

    async def release(
        self,
        run_id: str,
        answer: Any = None,
        *,
        hold: str = "",
        by: str = "person",
        drive: bool = True,
    ) -> None:
        """Answer the hold whose token is `hold`; the run goes on.

        A token (`Run.token`) names one question. Raises `HoldNotOpen`, which says what is open, for an answer
        to one that was answered, replaced or timed out, and for an answer without a token.
        """
        await interventions.release(self, run_id, answer, hold, by, drive)

    async def resolve(
        self,
        run_id: str,
        how: str,
        *,
        hold: str = "",
        receipt: Any = interventions.UNSAID,
        by: str = "person",
        drive: bool = True,
    ) -> None:
        """Settle an effect in doubt: `happened` (with its receipt), `again`, or `skip`.

        Where the step uses what the tool gave back, `happened` needs the receipt. After `skip` the run goes
        on as if the effect had been performed and had given nothing back. `hold` is the token of the hold
        that asks about it, as for `release`.
        """
        await interventions.resolve(self, run_id, how, hold, receipt, by, drive)

    async def fork(
        self,
        run_id: str,
        at: int | None = None,
        *,
        set: Mapping[str, Any] | None = None,
        config: Mapping[str, Any] | None = None,
        budget: Budget | None = None,
        new_id: str | None = None,
        drive: bool = True,
    ) -> str:
        """A new run from the first `at` entries of another, with changed data, settings or budget."""
        return await interventions.fork(
            self, run_id, at, set or {}, config or {}, budget, _new_id(new_id), drive
        )

    async def fork_family(
        self,
        run_id: str,
        at: tuple[str, int],
        *,
        set: forking.Changes | None = None,
        new_id: str | None = None,
        drive: bool = True,
    ) -> str:
        """A new run as this one and everything below it stood when one of them wrote an entry.

        `at` is that run and the entry's number. `set` changes its data, as it says or as it gives from the
        new family.
        """
        made = await forking.fork_family(self, run_id, at, _new_id(new_id), changes=set)
        if drive:
            await self.resume(made)
        return made

    async def reopen(
        self, run_id: str, *, budget: Budget | None = None, reason: str = "", drive: bool = True
    ) -> None:
        """Send a run on that ended failed, degraded, cancelled or out of budget."""
        await interventions.reopen(self, run_id, budget, reason, drive)

    # -- what drivers and neighbours use --------------------------------------------------------------------

    async def _create(
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
        self.performer.check(flow, config, budget, self._below)
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

    async def register(self) -> None:
        if not any(helper.get_name() == "heed" and not helper.done() for helper in self._helpers):
            watch_threads_of(asyncio.get_running_loop())
            self._helper(recovery.heed(self), "heed")
        await self.leases.register()

    async def child_run(
        self,
        parent: Driver,
        key: str,
        flow: str,
        data: Any,
        tags: Sequence[str],
        budget: Budget | None,
        config: Mapping[str, Any],
        beside: Beside,
    ) -> tuple[Run, bool]:
        """A child run as far as it can be taken now, and whether its use was counted while under way."""
        ids = child_ids(parent.run.id, key)
        known = (child_id for child_id in ids if self._has(parent, child_id))
        child_id = next(known, None) or await self._child(
            parent, ids, key, self.flow(flow), data, tags, budget, config, beside
        )
        driver = self._drivers.get(child_id)
        run = await driver.put_down() if driver is not None else None
        if driver is None or run is None:
            return await self.get(child_id), False
        return run, driver.parent is parent

    def _has(self, parent: Driver, child_id: str) -> bool:
        """Whether a run is a child that has ended, or is under way here."""
        driver = self._drivers.get(child_id)
        return child_id in parent.run.children or (driver is not None and driver.run.parent == parent.run.id)

    async def _child(
        self,
        parent: Driver,
        ids: tuple[str, ...],
        key: str,
        flow: Flow,
        data: Any,
        tags: Sequence[str],
        budget: Budget | None,
        config: Mapping[str, Any],
        beside: Beside,
    ) -> str:
        """The id of a child that is under way from now on: a new one, or the one there is of this key."""
        usual, spare, *earlier = ids
        there = await lineage.child_of(self.store, parent.run.id, earlier)
        if there is None:
            try:
                check_key(key)
            except ConfigurationError:  # an earlier version may have begun it
                if (there := await lineage.child_of(self.store, parent.run.id, ids)) is None:
                    raise
        for child_id in (usual, spare) if there is None else ():
            try:
                made = await self._create(flow, data, child_id, parent, tags, budget, config, beside=beside)
            except RunExists:
                if (await self.store.row(child_id)).parent == parent.run.id:
                    there = child_id
                    break
            else:
                self.launch(made)
                return child_id
        if there is None:
            raise RunExists(spare)
        if (await self.store.row(there)).now.status is Status.RUNNING:
            # Somebody else has it, or it has just come to an end: its own affair, not its parent's.
            with contextlib.suppress(RunBusy, RunStateError, Fenced):
                await recovery.resume(self, there, parent=parent)
        return there

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
            await self.slots.enter(driver)
            await self._drive(driver)
            result = driver.run
            if result.status.is_end and result.parent is None and driver.flow.ended is not None:
                await self._tell_ended(driver.flow.ended, result)
        except Fenced as error:
            log.warning("run.fenced", run_id=run_id, epoch=error.epoch)
            await self.let_go(driver)
            # Whoever has it now may wait for a child that ended here and told only this driver.
            self._helper(recovery.wake_parent(self, run_id))
        except BaseException as raised:
            result = failed = failure(raised)
            if failed is not None:
                await self._put_aside(driver, failed)
            elif isinstance(raised, asyncio.CancelledError) and driver.cancelling is not None:
                await asyncio.shield(recovery.end(self, run_id, *driver.cancelling))
            else:
                if isinstance(raised, asyncio.CancelledError):
                    with contextlib.suppress(Exception):
                        await asyncio.shield(self.let_go(driver))
                raise
        finally:
            self.slots.leave(driver)
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
                await driver.stand_again()
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
            self.dropped.add(driver.run.id)

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
                self._helper(recovery.wake_parent(self, run.id))
        if run.status.is_end and not isinstance(last, ChildEnded | Noted):
            log.info("run.ended", run_id=run.id, flow=run.flow, status=run.status.value, steps=run.steps)
            # A parent that waits in this process hears of it from the driver.
            if run.parent is not None and self._drivers.get(run.parent) is not (driver.parent or driver):
                self._helper(recovery.wake_parent(self, run.parent))

    def _helper(self, work: Any, name: str | None = None) -> None:
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

    def _wake(self, run_id: str) -> None:
        """The clock says that a run's time has come."""
        self._helper(recovery.wake(self, run_id))

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

    async def _changed(self, run_id: str, seconds: float) -> None:
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


def _new_id(chosen: str | None) -> str:
    """The id of a new run: the chosen one, or one that no other run has."""
    return os.urandom(8).hex() if chosen is None else check_run_id(chosen)
