"""A worker: resumes interrupted runs and those whose time has come, and heeds requests of other processes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from detent.engine import claims, commands, waking
from detent.engine.driver import Driver
from detent.engine.journals import load
from detent.engine.ports import RunRow, Worker
from detent.kernel import log
from detent.kernel.errors import (
    Fenced,
    RunBusy,
    RunDamaged,
    RunNotFound,
    RunStateError,
    StoreError,
    StoreLost,
)
from detent.kernel.status import Status

if TYPE_CHECKING:
    from detent.engine.engine import Engine

BATCH = 64
"""Runs claimed at a time: few enough to leave some to other workers, enough to cost next to nothing each."""
GATHERED = 0.01
"""Seconds for which room is left to grow before more is claimed."""
GIVEN_BACK_AFTER = 1.0
"""Seconds a run queues for a slot before a serving worker leaves it to others."""
TRIED_AGAIN_AFTER = 60.0
"""Seconds after which runs that could not be taken up are tried again."""
OF_ONE_RUN = (Fenced, RunBusy, RunDamaged, RunNotFound)
"""Errors of the store that say nothing about other runs."""
HEED_EVERY = 0.5
"""Seconds between looks at what other processes ask of runs under way here."""


async def resume(engine: Engine, run_id: str, parent: Driver | None = None) -> str:
    """Take a run up and have it driven."""
    row = await engine.store.row(run_id)
    if row.now.status.is_end:
        raise RunStateError(
            f"Run {run_id} has ended ({row.now.status.value}); there is nothing to resume. "
            f"It can be reopened unless it succeeded, or forked."
        )
    if row.now.status is Status.WAITING:
        if row.now.wake_at is not None and row.now.wake_at <= engine.clock.now():
            engine.flow(row.flow)
            await engine.register()
            await waking.wake(engine, [run_id])
            return run_id
        waits = row.now.waits or ()
        if any(wait["why"] == "children" for wait in waits):
            await waking.wake_parent(engine, run_id)  # whoever drove the last of them may have gone since
            if engine.under_way(run_id) is not None:
                return run_id
            held = (await load(engine.store, run_id)).holds.get("children")
            below = ", ".join(held.about["runs"][:5]) if held is not None else "its children"
            raise RunStateError(f"Run {run_id} waits for {below}; see to that, or cancel it.")
        verb = "resolve" if any(wait["name"].startswith("effect:") for wait in waits) else "release"
        names = ", ".join(f"{wait['why']} '{wait.get('token', wait['name'])}'" for wait in waits)
        raise RunStateError(f"Run {run_id} waits for {names}; {verb} it, or cancel it.")
    if engine.under_way(run_id) is not None:
        return run_id
    if parent is None and row.parent is not None:
        parent = engine.driver_of(row.parent)
    async with claims.claimed(engine, run_id, parent) as driver:
        await claims.launch(engine, driver)
    return run_id


async def outlook(engine: Engine, row: RunRow) -> float | None:
    """When a waiting run may go on by itself: now, at a time, or (None) not before a person answers.

    What it waits for is set going on the way: timers are kept, children nobody drives are taken up.
    """
    times: list[float] = []
    if row.now.wake_at is not None:
        engine.wake_at(row.now.wake_at, row.id)
        times.append(row.now.wake_at)
    if any(wait["why"] == "children" for wait in row.now.waits or ()):
        held = (await load(engine.store, row.id)).holds.get("children")
        if held is None:
            return engine.clock.now()  # it has moved on meanwhile
        for child in held.about["runs"]:
            below = await engine.store.row(child)
            if below.now.status is Status.WAITING:
                when = await outlook(engine, below)
                if when is not None:
                    times.append(when)
                continue
            times.append(engine.clock.now())
            if below.now.status.is_end:
                await waking.wake_parent(engine, row.id)
            elif below.flow in engine.flows:
                with contextlib.suppress(RunBusy, RunStateError, Fenced):
                    await resume(engine, child)
    return min(times, default=None)


async def resume_all(engine: Engine, flows: Iterable[str] | None = None) -> list[str]:
    """Take up what is loose or due and belongs to a known flow, as much as there is room for."""
    return await _take_up(engine, flows, await _look_around(engine), set())


async def _look_around(engine: Engine) -> list[Worker]:
    """The workers that are dead; wakes parents that may have missed the end of a child because of it."""
    await engine.register()
    dead = await engine.leases.dead()
    gone = {worker.id for worker in dead}
    if engine.swept is None or not gone <= engine.swept:
        await waking.wake_parents(engine)
        engine.swept = gone
    return dead


async def _take_up(
    engine: Engine, flows: Iterable[str] | None, dead: Collection[Worker], refused: set[str]
) -> list[str]:
    """Claim runs batch by batch while there is room; `refused` comes to hold those that cannot go on here."""
    resumed: list[str] = []
    passed: set[str] = set()
    """Busy for the moment: another task or process was quicker, and may let them go again."""
    for run_id, lease in [*engine.dropped.items()]:
        await engine.store.park(lease)
        del engine.dropped[run_id]
    while (room := engine.room) > 0:
        taken = await engine.store.take(
            engine.leases.me.id, min(room, BATCH), now=engine.clock.now(), dead=dead,
            flows=engine.flows if flows is None else [*flows],
            skip=[*refused, *passed, *resumed, *engine.taking],
        )  # fmt: skip
        if not taken:
            break
        errors = await asyncio.gather(*(claims.go_on(engine, one) for one in taken))
        for one, error in zip(taken, errors, strict=True):
            if error is None:
                resumed.append(one.lease.run_id)
            elif isinstance(error, StoreError | RunStateError) and not isinstance(error, RunDamaged):
                passed.add(one.lease.run_id)
            else:
                refused.add(one.lease.run_id)
        for error in errors:
            if isinstance(error, StoreError) and not isinstance(error, OF_ONE_RUN):
                raise error
    return resumed


async def serve(engine: Engine, poll: float) -> None:
    """Keep taking up what is left lying or due."""
    engine.serving = asyncio.Event()
    refused: set[str] = set()
    dead: Collection[Worker] = ()
    looked = refused_since = float("-inf")
    try:
        while not engine.stopping:
            engine.serving.clear()
            try:
                now = engine.clock.elapsed()
                if now - refused_since >= TRIED_AGAIN_AFTER:
                    refused, refused_since = set(), now
                if now - looked >= poll:
                    dead, looked = await _look_around(engine), now
                await _take_up(engine, None, dead, refused)
            except StoreLost:
                raise
            except StoreError as error:  # away for a moment: the runs are still there when it is back
                log.warning("engine.store_away", error=str(error))
                await engine.clock.sleep(poll)
                continue
            await _until_work(engine, poll)
    finally:
        engine.serving = None


async def _until_work(engine: Engine, poll: float) -> None:
    """Wait until it is time to look again, or until there may be something to take up, and room for it."""
    assert engine.serving is not None
    if engine.room > 0:
        waits = [engine.clock.sleep(poll), engine.serving.wait(), engine.store.changed()]
    else:
        waits = [engine.clock.sleep(poll), _room(engine)]
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _room(engine: Engine) -> None:
    """Wait for room: for much of it, or a moment after the first, so that runs are claimed together."""
    while engine.room <= 0:
        await engine.slots.slot_released()
    if engine.room < engine.slots.number // 4:
        await asyncio.sleep(GATHERED)


async def heed_requests(engine: Engine) -> None:
    """Look now and then whether another process asks to cancel a run under way here."""
    strays: set[tuple[str, int]] = set()
    looked = engine.clock.elapsed()
    while True:
        await engine.clock.sleep(HEED_EVERY)
        try:
            if engine.clock.elapsed() - looked >= engine.leases.seconds / 3:
                strays, looked = await _free_strays(engine, strays), engine.clock.elapsed()
            if not engine._tasks:
                continue
            asked = await engine.store.asked(engine.leases.me.id)
        except StoreError as error:
            log.warning("engine.store_away", error=str(error))
            continue
        for run_id, request in asked:
            if engine.under_way(run_id) is not None:
                try:
                    await commands.stop_here(engine, run_id, *request)
                except StoreError as error:  # asked again at the next look
                    log.warning("run.not_cancelled", run_id=run_id, error=str(error))


async def _free_strays(engine: Engine, before: set[tuple[str, int]]) -> set[tuple[str, int]]:
    """Give up runs that the store calls ours and nobody here drives; gives those that may be such.

    A claim may be lost on its way from the store to a driver. Only what was there at the last look too is
    given up: the others may be on their way.
    """
    strays = {
        (run_id, epoch)
        for run_id, epoch in await engine.store.owned(engine.leases.me.id)
        if engine.under_way(run_id) is None and run_id not in engine.taking and not _unstopped(engine, run_id)
    }
    for run_id, epoch in strays & before:
        with contextlib.suppress(RunBusy, RunNotFound):
            lease = await engine.store.claim(run_id, engine.leases.me.id)
            if lease.epoch == epoch + 1 and engine.under_way(run_id) is None:
                await engine.store.park(lease)
                log.warning("run.freed", run_id=run_id)
    return strays - before


def _unstopped(engine: Engine, run_id: str) -> bool:
    driver = engine.unstopped.get(run_id)
    if driver is not None and not driver.unstopped:
        del engine.unstopped[run_id]
        return False
    return driver is not None
