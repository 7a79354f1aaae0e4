"""A worker: resumes interrupted runs, fires due timers, and handles requests of other processes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from detent.engine import cancellation, claims, logger, waking
from detent.engine.driver import Driver
from detent.engine.journal_reader import load
from detent.engine.ports import RunRow, Worker
from detent.kernel.errors import (
    Fenced,
    RunBusy,
    RunDamaged,
    RunNotFound,
    RunStateError,
    StoreError,
    StoreLost,
)
from detent.kernel.status import REOPENABLE, Status

if TYPE_CHECKING:
    from detent.engine.active_runs import ActiveRuns

BATCH = 64
"""Runs claimed at a time: few enough to leave some to other workers, enough to be cheap."""
GATHERED = 0.01
"""Seconds to wait for more free slots before claiming runs."""
TRIED_AGAIN_AFTER = 60.0
"""Seconds after which runs that could not be resumed are tried again."""
OF_ONE_RUN = (Fenced, RunBusy, RunDamaged, RunNotFound)
"""Errors of the store that concern one run only."""
HEED_EVERY = 0.5
"""Seconds between polls for requests of other processes."""


async def resume(active: ActiveRuns, run_id: str, parent: Driver | None = None) -> str:
    """Resume a run.

    Raises:
        RunStateError: the run has ended, or waits for an answer.
        RunBusy: another worker has the run.
    """
    row = await active.store.row(run_id)
    if row.now.status.is_end:
        raise RunStateError(
            f"Run {run_id} has ended ({row.now.status.value}); there is nothing to resume. It can be "
            f"{'reopened or forked' if row.now.status in REOPENABLE else 'forked'}."
        )
    if row.now.status is Status.WAITING:
        if row.now.wake_at is not None and row.now.wake_at <= active.clock.now():
            active.flow(row.flow)
            await active.register()
            await waking.wake(active, [run_id])
            return run_id
        waits = row.now.waits or ()
        if any(wait["why"] == "children" for wait in waits):
            await waking.wake_parent(
                active, run_id
            )  # the worker of the last child may have died before waking it
            if active.under_way(run_id) is not None:
                return run_id
            hold = (await load(active.store, run_id)).holds.get("children")
            below = ", ".join(hold.about["runs"][:5]) if hold is not None else "its children"
            raise RunStateError(f"Run {run_id} waits for {below}; see what that needs, or cancel it.")
        verb = "resolve" if any(wait["name"].startswith("effect:") for wait in waits) else "release"
        names = ", ".join(f"{wait['why']} '{wait.get('token', wait['name'])}'" for wait in waits)
        raise RunStateError(f"Run {run_id} waits for {names}; {verb} it, or cancel it.")
    if active.under_way(run_id) is not None:
        return run_id
    if parent is None and row.parent is not None:
        parent = active.driver_of(row.parent)
    async with claims.claimed(active, run_id, parent) as driver:
        await claims.launch(active, driver)
    return run_id


async def outlook(active: ActiveRuns, row: RunRow) -> float | None:
    """When a waiting run may continue by itself: now, at a time, or (None) only after a person answers.

    As a side effect its timers are scheduled, and its interrupted children are resumed.
    """
    times: list[float] = []
    if row.now.wake_at is not None:
        active.wake_at(row.now.wake_at, row.id)
        times.append(row.now.wake_at)
    if any(wait["why"] == "children" for wait in row.now.waits or ()):
        hold = (await load(active.store, row.id)).holds.get("children")
        if hold is None:
            return active.clock.now()  # it has moved on meanwhile
        for child in hold.about["runs"]:
            below = await active.store.row(child)
            if below.now.status is Status.WAITING:
                when = await outlook(active, below)
                if when is not None:
                    times.append(when)
                continue
            times.append(active.clock.now())
            if below.now.status.is_end:
                await waking.wake_parent(active, row.id)
            elif below.flow in active.flows:
                with contextlib.suppress(RunBusy, RunStateError, Fenced):
                    await resume(active, child)
    return min(times, default=None)


async def resume_all(active: ActiveRuns, flows: Iterable[str] | None = None) -> list[str]:
    """Resume interrupted and due runs of known flows, as many as there are free slots."""
    return await _take_up(active, flows, await _look_around(active), set())


async def _look_around(active: ActiveRuns) -> list[Worker]:
    """The dead workers; also wakes parents that may have missed a child's end because of them."""
    await active.register()
    dead = await active.leases.dead()
    dead_ids = {worker.id for worker in dead}
    if active.swept is None or not dead_ids <= active.swept:
        await waking.wake_parents(active)
        await _catch_up(active)
        active.swept = dead_ids
    return dead


async def _catch_up(active: ActiveRuns) -> None:
    """Have done what crashes have prevented for runs that nobody resumes: they have ended, or wait."""
    for run_id in await active.performer.unfinished(active.store):
        try:
            row = await active.store.row(run_id)
            if row.flow not in active.flows or row.now.status is Status.RUNNING:
                continue  # it is caught up with when it is resumed
            async with claims.claimed(active, run_id) as driver:
                await active.performer.catch_up(driver)
        except (RunStateError, Fenced, RunBusy, RunNotFound) as error:
            logger.info("run.not_caught_up", run_id=run_id, error=type(error).__name__)


async def _take_up(
    active: ActiveRuns, flows: Iterable[str] | None, dead: Collection[Worker], refused: set[str]
) -> list[str]:
    """Claim runs in batches while there are free slots; adds runs that cannot continue here to `refused`."""
    resumed: list[str] = []
    passed: set[str] = set()
    """Runs that another task or process has just claimed, and may release again."""
    for run_id, lease in [*active.dropped.items()]:
        await active.store.park(lease)
        del active.dropped[run_id]
    while (room := active.room) > 0:
        put_down = active.stops.put_down()
        claimed = await active.store.take(
            active.leases.me.id, min(room, BATCH), now=active.clock.now(), dead=dead,
            flows=active.flows if flows is None else [*flows],
            skip=[*refused, *passed, *resumed, *active.taking, *put_down],
        )  # fmt: skip
        if not claimed:
            break
        errors = await asyncio.gather(*(claims.go_on(active, claim) for claim in claimed))
        for claim, error in zip(claimed, errors, strict=True):
            if error is None:
                resumed.append(claim.lease.run_id)
            elif isinstance(error, StoreError | RunStateError) and not isinstance(error, RunDamaged):
                passed.add(claim.lease.run_id)
            else:
                refused.add(claim.lease.run_id)
        for error in errors:
            if isinstance(error, StoreError) and not isinstance(error, OF_ONE_RUN):
                raise error
    return resumed


async def serve(active: ActiveRuns, poll: float) -> None:
    """Resume interrupted and due runs until the engine stops."""
    active.serving = asyncio.Event()
    refused: set[str] = set()
    dead: Collection[Worker] = ()
    looked = refused_since = float("-inf")
    try:
        while not active.stopping:
            active.serving.clear()
            try:
                now = active.clock.elapsed()
                if now - refused_since >= TRIED_AGAIN_AFTER:
                    refused, refused_since = set(), now
                if now - looked >= poll:
                    dead, looked = await _look_around(active), now
                await _take_up(active, None, dead, refused)
            except StoreLost:
                raise
            except StoreError as error:  # temporarily unavailable: the runs will still be there
                logger.warning("engine.store_away", error=str(error))
                await active.clock.sleep(poll)
                continue
            await _until_work(active, poll)
    finally:
        active.serving = None


async def _until_work(active: ActiveRuns, poll: float) -> None:
    """Wait for the next poll, or until there may be runs to resume and free slots for them."""
    assert active.serving is not None
    if active.room > 0:
        waits = [active.clock.sleep(poll), active.serving.wait(), active.store.changed()]
    else:
        waits = [active.clock.sleep(poll), _room(active)]
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _room(active: ActiveRuns) -> None:
    """Wait for several free slots, or a moment after the first, so that runs are claimed together."""
    while active.room <= 0:
        await active.slots.slot_released()
    if active.room < active.slots.number // 4:
        await asyncio.sleep(GATHERED)


async def heed_requests(active: ActiveRuns) -> None:
    """Poll for requests of other processes to cancel runs under way here."""
    strays: set[tuple[str, int]] = set()
    looked = active.clock.elapsed()
    while True:
        await active.clock.sleep(HEED_EVERY)
        try:
            if active.clock.elapsed() - looked >= active.leases.seconds / 3:
                strays, looked = await _free_strays(active, strays), active.clock.elapsed()
            if not active._tasks:
                continue
            requests = await active.store.asked(active.leases.me.id)
        except StoreError as error:
            logger.warning("engine.store_away", error=str(error))
            continue
        for run_id, request in requests:
            if active.under_way(run_id) is not None:
                try:
                    await cancellation.cancel_here(active, run_id, request)
                except StoreError as error:  # repeated at the next poll
                    logger.warning("run.not_cancelled", run_id=run_id, error=str(error))


async def _free_strays(active: ActiveRuns, before: set[tuple[str, int]]) -> set[tuple[str, int]]:
    """Park runs that the store assigns to this worker but no driver has; returns the new candidates.

    A claim may be lost between the store and a driver. Only runs already found at the last poll (`before`)
    are parked: the others may still be about to start.
    """
    strays = {
        (run_id, epoch)
        for run_id, epoch in await active.store.owned(active.leases.me.id)
        if active.under_way(run_id) is None and run_id not in active.taking and not _unstopped(active, run_id)
    }
    for run_id, epoch in strays & before:
        with contextlib.suppress(RunBusy, RunNotFound):
            lease = await active.store.claim(run_id, active.leases.me.id)
            if lease.epoch == epoch + 1 and active.under_way(run_id) is None:
                await active.store.park(lease)
                logger.warning("run.freed", run_id=run_id)
    return strays - before


def _unstopped(active: ActiveRuns, run_id: str) -> bool:
    driver = active.unstopped.get(run_id)
    if driver is not None and not driver.unstopped:
        del active.unstopped[run_id]
        return False
    return driver is not None
