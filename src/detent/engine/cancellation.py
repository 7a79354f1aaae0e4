"""Cancelling runs: one run, its descendants, here or in another process, at once or once effects are settled.

A run is cancelled by one value, a `Cancellation`. The process that drives the run carries it out; another
process claims the run, or leaves the cancellation in the store for the worker that has it. With `undo`, a
step that has begun effects settles them first; then a root run moves to the state in which it rolls back, and
a child run ends, since its root rolls back what it did.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from detent.engine import moves
from detent.engine.driver import Driver
from detent.engine.family import children
from detent.engine.finishing import is_finishing
from detent.engine.journal_reader import load
from detent.engine.ports import Cancellation
from detent.engine.user_errors import ChildrenWaiting
from detent.kernel.entries import Body, EffectBegun
from detent.kernel.errors import (
    ConfigurationError,
    DetentError,
    Fenced,
    RunBusy,
    RunStateError,
    StoreError,
)
from detent.kernel.status import Status

if TYPE_CHECKING:
    from detent.engine.active_runs import ActiveRuns

PATIENCE = 15.0
"""Seconds to wait for another worker to carry out a cancellation."""


async def cancel(active: ActiveRuns, run_id: str, cancellation: Cancellation, drive: bool = True) -> None:
    """End a run and its descendants; with `undo`, the run rolls back first.

    Raises:
        RunStateError: the run has ended.
        ConfigurationError: with `undo`, the run's flow cannot roll back or the run has a parent.
    """
    row = await active.store.row(run_id)
    if row.now.status.is_end:
        raise RunStateError(f"Run {run_id} has already ended ({row.now.status.value}).")
    undo = cancellation.undo
    if undo:
        flow = active.flow(row.flow)
        if flow.undoing is None:
            raise ConfigurationError(f"Runs of '{flow.name}' cannot undo what they did. Cancel without it.")
        if row.parent is not None:
            raise ConfigurationError(
                f"Run {run_id} is part of {row.parent}; what it did is undone with that."
            )
    await _cancel_and_wait(active, run_id, cancellation)
    await _cancel_children(active, run_id, cancellation)
    if not undo:
        return
    status = (await active.store.row(run_id)).now.status
    if status.is_end and status is not Status.CANCELLED:
        raise RunStateError(f"Run {run_id} has ended meanwhile ({status.value}); nothing was undone.")
    if drive:
        # Another worker may still settle its effects, or a person has to settle one in doubt.
        with contextlib.suppress(RunBusy, RunStateError):
            await active.resume(run_id)


async def cancel_here(active: ActiveRuns, run_id: str, cancellation: Cancellation) -> None:
    """Cancel a run that is under way in this process, if it is.

    With `undo`, a step that performs effects finishes them first.
    """
    under_way = active.under_way(run_id)
    if under_way is None or (cancellation.undo and await _settles_first(under_way[0], cancellation)):
        return
    driver, task = under_way
    driver.cancellation = cancellation
    task.cancel()
    await asyncio.wait({task})
    if active.under_way(run_id) == under_way:  # cancelled before it had begun
        await end(active, run_id, cancellation)
        active.forget(driver)


async def _settles_first(driver: Driver, cancellation: Cancellation) -> bool:
    """Have a run in this process end once its effects are settled; False when none are unsettled."""
    flow, run = driver.flow, driver.run
    child = run.parent is not None
    if not child and moves.undoing_now(flow, run):
        return True  # it is rolling back already
    if not (driver.performing or moves.unsettled(flow, run)):
        return False
    if child:
        driver.cancellation = driver.cancellation or cancellation
    else:
        await driver.log.call_off(cancellation)
    # Its effects may have been settled meanwhile, and the next step begun.
    return driver.performing or moves.unsettled(flow, run) or moves.undoing_now(flow, run)


async def end(active: ActiveRuns, run_id: str, cancellation: Cancellation, stopped: bool = False) -> bool:
    """Claim an open run and end it as cancelled; False when it had already ended.

    With `undo` the run is left in its rollback state for a worker to resume; a run with unsettled effects
    settles them first, and a child run is left for its parent to roll back. `stopped` means that the call of
    an effect in doubt is known to be over; the journal then records it, so that reopening the run elsewhere
    need not wait for the call.
    """
    driver = await _claim(active, run_id)
    if driver is None:
        return False
    flow, run, undo = driver.flow, driver.run, cancellation.undo
    rolls_back = undo and run.parent is None and flow.machine is not None and flow.undoing is not None
    if rolls_back and moves.undoing_now(flow, run):
        await active.store.park(driver.lease)
        return True
    if undo and moves.unsettled(flow, run):
        if rolls_back:
            await driver.log.call_off(cancellation)
        await active.store.park(driver.lease)
        return True
    over: list[Body] = []
    if stopped and run.begun is not None:
        line = await active.store.effect(run_id, run.begun)
        over = [EffectBegun(line.key, line.tool)] if line is not None else []
    await driver.commit(*over, moves.cancelled(flow, run, cancellation._replace(undo=rolls_back)))
    if rolls_back:
        await active.store.park(driver.lease)
    elif is_finishing(run):
        active.launch(driver)
    return True


async def _claim(active: ActiveRuns, run_id: str) -> Driver | None:
    """Claim a run to end it, even if its flow is unknown here; None when it has ended."""
    row = await active.store.row(run_id)
    if row.now.status.is_end:
        return None
    flow = active.flows.get(row.flow)
    await active.register()
    lease = await active.store.claim(run_id, active.leases.me.id, await active.leases.dead())
    try:
        run = await load(active.store, run_id)
    except BaseException:
        await active.store.park(lease)
        raise
    if run.status.is_end:
        await active.store.park(lease)
        return None
    return Driver(active, flow if flow is not None else _Unknown(row.flow), run, lease)  # type: ignore[arg-type]


class _Unknown:
    """Placeholder for a flow unknown to this process: enough to end a run of it."""

    machine = None
    undoing = None
    at_end = None
    tools = ()

    def __init__(self, name: str) -> None:
        self.name = name


async def _request(active: ActiveRuns, run_id: str, cancellation: Cancellation) -> None:
    """Have a descendant run end once its effects are settled, without waiting for that."""
    if (await active.get(run_id)).config.get(moves.UNDOES):
        return  # it is part of a rollback
    if active.under_way(run_id) is not None:
        await cancel_here(active, run_id, cancellation)
        return
    try:
        await end(active, run_id, cancellation)
    except RunBusy:
        await active.store.ask(run_id, cancellation)


async def _cancel_and_wait(active: ActiveRuns, run_id: str, cancellation: Cancellation) -> None:
    """Cancel one run, waiting up to `PATIENCE` for the worker that has it.

    Raises:
        RunBusy: the worker has not carried it out.
    """
    if active.under_way(run_id) is not None:
        await cancel_here(active, run_id, cancellation)
        return
    deadline = active.clock.elapsed() + PATIENCE
    while True:
        try:
            await end(active, run_id, cancellation)
            return
        except RunBusy:
            if cancellation.undo and await _rolls_back(active, run_id):
                return  # its worker settles its effects and then rolls it back
            await active.store.ask(run_id, cancellation)
            if active.clock.elapsed() > deadline:
                raise
            await asyncio.sleep(0.1)


async def _rolls_back(active: ActiveRuns, run_id: str) -> bool:
    """Whether a run is rolling back, or will once its effects are settled."""
    run = await active.get(run_id)
    return run.called_off is not None or moves.undoing_now(active.flow(run.flow), run)


async def _cancel_children(active: ActiveRuns, run_id: str, cancellation: Cancellation) -> None:
    """Cancel the descendants of a run; with `undo`, without waiting for those that settle effects."""
    async for row in children(active.store, run_id):
        if not row.now.status.is_end:
            await (_request if cancellation.undo else _cancel_and_wait)(active, row.id, cancellation)
        await _cancel_children(active, row.id, cancellation)


async def cancel_descendants(active: ActiveRuns, driver: Driver, runs: Sequence[str], reason: str) -> None:
    """Have descendant runs end, each once its effects are settled, and wait for that.

    Raises:
        ChildrenWaiting: some of them wait for a person to settle an effect.
    """
    cancellation = Cancellation(reason, "engine", undo=True)
    async with active.slots.released(driver):
        for run_id in runs:
            await _request(active, run_id, cancellation)
        waiting = [run_id for run_id in runs if not await _ended(active, run_id, cancellation)]
    if waiting:
        raise ChildrenWaiting(waiting)


async def _ended(active: ActiveRuns, run_id: str, cancellation: Cancellation) -> bool:
    """Wait for a cancelled run to end; False when its effects cannot be settled for now."""
    while not active.stopping:
        run = await active.get(run_id)
        if run.status.is_end:
            return True
        try:
            if (under_way := active.driver_of(run_id)) is not None:
                await cancel_here(active, run_id, cancellation)
                if active.driver_of(run_id) is under_way:
                    await asyncio.wait({under_way.put_down()})
            elif not moves.unsettled(active.flow(run.flow), run):
                await end(active, run_id, cancellation)
            elif run.status is Status.WAITING:
                return False
            else:
                await active.resume(run_id)
        except RunBusy:
            await active.store.ask(run_id, cancellation)
            await asyncio.sleep(0.05)
        except (Fenced, RunStateError):  # another worker was faster
            continue
        except StoreError:
            raise
        except DetentError as error:  # it cannot continue in this process; a person may help
            active.tell_once("run.not_cancelled", run_id, run_id=run_id, error=type(error).__name__)
            return False
    return False
