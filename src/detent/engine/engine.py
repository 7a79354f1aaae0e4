"""The engine: start runs, finish them, follow them, and resume interrupted ones.

What people do to runs is in `commands` (release, resolve, reopen), `cancellation` and `fork`; claiming is in
`claims`, resuming and serving in `worker`, timers and parents in `waking`; one run's work is in `driver`.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any

from detent.engine import cancellation, children, commands, waking, worker
from detent.engine.active_runs import ActiveRuns
from detent.engine.clock import SystemClock
from detent.engine.exclusive import key_change
from detent.engine.flow import Flow
from detent.engine.fork import Changes, fork_family, fork_run
from detent.engine.interruption import interrupt
from detent.engine.leases import Leases
from detent.engine.offloaded import blob_of
from detent.engine.performer import HandlerPerformer, Performer, PerformerSource
from detent.engine.ports import USUAL_LEASE, Cancellation, Clock, Store, Tape
from detent.engine.stops import StopRequest, stop_of
from detent.kernel import checks
from detent.kernel.budget import Budget
from detent.kernel.entries import Entry
from detent.kernel.errors import (
    ConfigurationError,
    MarkMoved,
    RunBusy,
    RunStateError,
)
from detent.kernel.ids import ROOT, check_run_id
from detent.kernel.run import Run
from detent.kernel.run_config import FORCE, KEY, REPLAYED
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
        clock = clock or SystemClock()
        self.active = ActiveRuns(
            store, flows, duties=_DUTIES, observers=observers, concurrency=concurrency, clock=clock,
            leases=Leases(store, clock, lease, worker_id, host), takeover_limit=takeover_limit,
            park_after=park_after, tape=tape,
            performer=HandlerPerformer() if dispatch is None else dispatch.performer(),
        )  # fmt: skip
        """The runs under way in this process."""

    @property
    def store(self) -> Store:
        """Where runs are kept."""
        return self.active.store

    @property
    def clock(self) -> Clock:
        """The engine's clock."""
        return self.active.clock

    @property
    def flows(self) -> Mapping[str, Flow]:
        """The registered flows, by name."""
        return self.active.flows

    @property
    def performer(self) -> Performer:
        """Performs the steps."""
        return self.active.performer

    # -- life -----------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Engine:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def open(self) -> None:
        """Open the store. No run is resumed automatically; see `resume_all` and `serve`."""
        await self.active.open()

    async def stop(self, grace: float = 30.0) -> None:
        """Finish the steps under way (at most `grace` seconds), park every run, and close the store.

        Runs stay resumable.
        """
        await self.active.stop(grace)

    def add_flow(self, flow: Flow) -> None:
        """Register a flow; it is checked when first used."""
        self.active.add_flow(flow)

    def flow(self, name: str) -> Flow:
        """A flow by name, checked."""
        return self.active.flow(name)

    def add_observer(self, observer: Any) -> None:
        """Add an observer, which is notified of every committed entry."""
        self.active.observers.add(observer)

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
        exclusive: str | None = None,
        drive: bool = True,
    ) -> str:
        """Start a run and return its id; it is durable from here on and under way unless `drive` is False.

        `at` names a state to begin in, in place of the machine's start; `data` must hold what it needs.
        `beside` are values to keep beside the journal; data refers to them as `kept_beside` says.
        `force_deterministic` keeps agents out of it and of all its children, whatever the configuration.
        Of the runs started with one `exclusive` key, in whichever process, one can be open at a time.

        Raises:
            KeyTaken: another run with the same `exclusive` key is open.
        """
        if isinstance(flow, Flow):
            self.add_flow(flow)
            flow = flow.name
        config = {**(config or {}), **self.performer.run_config()}
        if force_deterministic:
            config = {**config, FORCE: True}
        if self.active.tape is not None and self.active.tape.plays:
            config = {**config, REPLAYED: True}
        run_id = _new_id(run_id)
        if "." in run_id:
            config = {**config, ROOT: run_id}
        if exclusive is not None:
            config = {**config, KEY: exclusive}
        blobs = tuple(blob_of(body) for body in beside)
        while True:
            mark = None if exclusive is None else await key_change(self.store, exclusive, run_id)
            try:
                driver = await self.active.create(
                    self.flow(flow), data, run_id, None, tags, budget, config, drive, blobs, at, mark=mark
                )
                break
            except MarkMoved:
                continue  # another run has taken the key, and may have ended already
        if drive:
            self.active.launch(driver)
        return driver.run.id

    async def run(self, flow: str | Flow, data: Any = None, **options: Any) -> Run:
        """Start a run and finish it."""
        run_id = await self.start(flow, data, **options)
        driver = self.active.driver_of(run_id)
        run = await driver.put_down() if driver is not None else None
        return run if run is not None and run.status.is_end else await self._finished(run_id, None)

    async def finish(
        self,
        run_id: str,
        *,
        patience: float | None = None,
        stop_at: Any = None,
        stop_after: int | None = None,
    ) -> Run:
        """The run once it has ended, once it waits for more than the clock, or once it is interrupted.

        With `patience`, a wait for the clock longer than so many seconds is not waited for either. A run
        nobody drives is taken up. With `stop_at` the run is put down in that state, before its step is
        performed; with `stop_after`, once it has made so many more moves. It stays open. Whoever waits for
        the same run beyond that stop, or without one, has it go on; both get it as it stood where they asked.
        """
        stops = self.active.stops
        stops.lift(run_id)
        if stop_at is None and stop_after is None:
            return await self._finished(run_id, patience)
        row = await self.store.row(run_id)
        request = stops.ask(run_id, stop_of(self.flow(row.flow), row.now.steps, stop_at, stop_after))
        try:
            return await self._finished(run_id, patience, request)
        finally:
            stops.withdraw(run_id, request)

    async def _finished(self, run_id: str, patience: float | None, request: StopRequest | None = None) -> Run:
        while True:
            driver = self.active.driver_of(run_id)
            met = request.run if request is not None else None
            if driver is not None and (met is None or driver.run is met):
                run = await driver.put_down()
                if run is not None and run.status.is_end:
                    return run
            if request is not None and request.run is not None:
                return request.run
            row = await self.store.row(run_id)
            if row.now.status.is_end or self.active.stops.interrupted(run_id):
                return await self.get(run_id)
            if row.now.status is Status.WAITING:
                when = await worker.outlook(self.active, row)
                if self.active.stopping or when is None:
                    return await self.get(run_id)
                seconds = when - self.clock.now()
                if patience is not None and seconds > patience:
                    return await self.get(run_id)
                await self.active.changed(run_id, max(0.05, min(seconds, 1.0)))
            elif run_id in self.active.runs_under_way():
                continue
            elif self.active.stopping:
                return await self.get(run_id)
            else:
                try:
                    await worker.resume(self.active, run_id)
                except RunBusy:
                    await self.active.changed(run_id, 0.1)
                except RunStateError:
                    continue

    async def follow(self, run_id: str, after: int = 0, *, poll: float = 0.2) -> AsyncIterator[Entry]:
        """Entries as they are committed, by any process, until the run ends."""
        while True:
            row = await self.store.row(run_id)
            page = await self.store.entries(run_id, after)
            for entry in page:
                yield entry
                after = entry.seq
            if not page and row.now.status.is_end and row.seq <= after:
                return
            if not page:
                await self.active.changed(run_id, poll)

    async def get(self, run_id: str) -> Run:
        """The run, folded from its journal."""
        return await self.active.get(run_id)

    async def resume(self, run_id: str) -> str:
        """Resume a run that is under way nowhere, and return its id.

        Raises:
            RunBusy: another process drives the run.
            RunStateError: the run has ended, or waits for an answer.
        """
        self.active.stops.lift(run_id)
        return await worker.resume(self.active, run_id)

    async def resume_all(self, *, flows: Iterable[str] | None = None) -> list[str]:
        """Resume the runs of dead processes and those whose timers are due; returns their ids."""
        return await worker.resume_all(self.active, flows)

    async def serve(self, *, poll: float = 1.0) -> None:
        """Run as a worker: resume interrupted runs and fire due timers until `stop`."""
        await worker.serve(self.active, poll)

    async def interrupt(self, run_id: str, *, grace: float = 5.0) -> None:
        """Put a run under way in this process down at once, with its children; it stays open.

        A model's reply under way is dropped. An effect gets `grace` seconds to end; after that it is in doubt
        and settled when the run is resumed. Whoever waits in `finish` gets the run as it stands.

        Raises:
            RunStateError: the run is not under way in this process.
        """
        await interrupt(self.active, run_id, grace)

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
        asked = Cancellation(checks.text("reason", reason), checks.name("by", by), undo)
        await cancellation.cancel(self.active, run_id, asked, drive)

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
        await commands.release(self.active, run_id, answer, hold, by, drive)

    async def resolve(
        self,
        run_id: str,
        how: str,
        *,
        hold: str = "",
        receipt: Any = commands.UNSAID,
        by: str = "person",
        drive: bool = True,
    ) -> None:
        """Settle an effect in doubt: `happened` (with its receipt), `again`, or `skip`.

        Where the step uses what the tool gave back, `happened` needs the receipt. After `skip` the run goes
        on as if the effect had been performed and had given nothing back. `hold` is the token of the hold
        that asks about it, as for `release`.
        """
        await commands.resolve(self.active, run_id, how, hold, receipt, by, drive)

    async def fork(
        self,
        run_id: str,
        at: int | None = None,
        *,
        set: Mapping[str, Any] | None = None,
        config: Mapping[str, Any] | None = None,
        budget: Budget | None = None,
        new_id: str | None = None,
        by: str = "person",
        drive: bool = True,
    ) -> str:
        """A new run from the first `at` entries of another, with changed data, settings or budget."""
        return await fork_run(
            self.active, run_id, at, set or {}, config or {}, budget, _new_id(new_id), by, drive
        )

    async def fork_family(
        self,
        run_id: str,
        at: tuple[str, int],
        *,
        set: Changes | None = None,
        new_id: str | None = None,
        by: str = "person",
        drive: bool = True,
    ) -> str:
        """A new run as this one and everything below it stood when one of them wrote an entry.

        `at` is that run and the entry's number. `set` changes its data, as it says or as it gives from the
        new family.
        """
        forked_id = await fork_family(self.active, run_id, at, _new_id(new_id), by=by, changes=set)
        if drive:
            await self.resume(forked_id)
        return forked_id

    async def reopen(
        self,
        run_id: str,
        *,
        budget: Budget | None = None,
        reason: str = "",
        by: str = "person",
        drive: bool = True,
    ) -> None:
        """Continue a run that ended failed, degraded, cancelled or out of budget."""
        await commands.reopen(self.active, run_id, budget, reason, by, drive)

    async def verdict(
        self, run_id: str, state: Any, right: bool, *, why: str = "", visit: int | None = None,
        by: str = "person",
    ) -> None:  # fmt: skip
        """Record a person's verdict on a visit of a state, the last one unless said.

        The run goes on as it is. If an agent performed the visit, it is evidence about the agent, as
        `StepContext.verdict` is.
        """
        await commands.verdict(self.active, run_id, state, right, why, visit, by)


class _Duties:
    """The functions of claims, waking, commands and children that runs under way need."""

    wake = staticmethod(waking.wake)
    wake_parent = staticmethod(waking.wake_parent)
    heed_requests = staticmethod(worker.heed_requests)
    resume = staticmethod(worker.resume)
    end = staticmethod(cancellation.end)
    run_children = staticmethod(children.run_children)
    cancel_descendants = staticmethod(cancellation.cancel_descendants)


_DUTIES = _Duties()


def _new_id(chosen: str | None) -> str:
    """The id of a new run: the chosen one, or one that no other run has."""
    return os.urandom(8).hex() if chosen is None else check_run_id(chosen)
