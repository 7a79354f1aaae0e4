"""Claiming runs, one or many at a time, and continuing them from their journals."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable
from typing import TYPE_CHECKING

from detent.engine import logger, moves
from detent.engine.driver import Driver
from detent.engine.flow import Flow
from detent.engine.journal_reader import load, load_taken
from detent.engine.ports import Cancellation, Lease, Taken
from detent.engine.user_errors import failure, message_of
from detent.kernel import checks
from detent.kernel.entries import Claimed, Held, Migrated, Released
from detent.kernel.errors import (
    ConfigurationError,
    DefinitionChanged,
    Fenced,
    ReplayedRun,
    RunBusy,
    RunDamaged,
    RunNotFound,
    RunStateError,
    StoreError,
)
from detent.kernel.plain import to_plain
from detent.kernel.run import Run
from detent.kernel.run_config import REPLAYED
from detent.kernel.status import Status

if TYPE_CHECKING:
    from detent.engine.active_runs import ActiveRuns

UNDONE_WITH = Cancellation("its parent is being rolled back", "engine", undo=True)
"""Reason recorded for ending a child run because its root rolls back."""


@contextlib.asynccontextmanager
async def claimed(active: ActiveRuns, run_id: str, parent: Driver | None = None) -> AsyncIterator[Driver]:
    """A run claimed for the length of a block, which launches it; otherwise it is parked afterwards.

    Raises:
        RunBusy: another process or task has the run. The store lets a worker claim its own run again, so
            tasks of one process must not claim at the same time.
        DefinitionChanged: the run cannot continue under the current definition.
    """
    if run_id in active.taking or active.under_way(run_id) is not None:
        raise RunBusy(run_id, active.leases.me.id)
    active.taking.add(run_id)
    try:
        driver = await _claim(active, run_id, parent)
        try:
            yield driver
        finally:
            if active.under_way(run_id) is None:
                await active.let_go(driver)
    finally:
        active.taking.discard(run_id)


async def _claim(active: ActiveRuns, run_id: str, parent: Driver | None = None) -> Driver:
    """Claim a run and load it; it is not driven yet.

    Raises:
        RunBusy: another process has the run.
        DefinitionChanged: the run cannot continue under the current definition.
    """
    row = await active.store.row(run_id)
    flow = active.flow(row.flow)
    if flow.needs and not row.now.status.is_end:
        await active.prepare(flow)  # before the claim, so that no other worker waits for it
    await active.register()
    lease = await active.store.claim(run_id, active.leases.me.id, await active.leases.dead())
    return await _standing(active, row.flow, lease, load(active.store, run_id), parent)


async def _standing(
    active: ActiveRuns,
    flow_name: str,
    lease: Lease,
    reading: Awaitable[Run],
    parent: Driver | None = None,
    adopted: bool = False,
) -> Driver:
    """A driver for a claimed run, loaded from its journal; on failure the run is parked."""
    try:
        run = await reading
        flow = active.flow(flow_name)
        if flow.needs and not run.status.is_end:
            await active.prepare(flow)
        if run.seq != lease.seq:
            raise Fenced(run.id, lease.epoch, lease.seq)
        plays = active.tape is not None and active.tape.plays
        if run.config.get(REPLAYED) and not run.status.is_end and not plays:
            raise ReplayedRun(run.id)  # kept by a version that kept replayed runs
        if adopted and run.parent is not None and run.status is Status.RUNNING:
            parent = active.driver_of(run.parent)  # so that its budget covers the child as before
        carried = await migration(active, run, flow)
        driver = Driver(active, flow, run, lease, parent)
        if carried is not None:
            await driver.commit(carried)
        if run.parent is not None and not run.status.is_end:
            driver.cancellation = await _undone_with(active, run)
    except BaseException:
        await active.store.park(lease)
        raise
    return driver


async def _undone_with(active: ActiveRuns, run: Run) -> Cancellation | None:
    """Reason a child run may only settle effects in doubt: its root is rolling back."""
    above = None if run.config.get(moves.UNDOES) else run.parent
    while above is not None:
        try:
            row = await active.store.row(above)
        except RunNotFound:
            return None
        above = row.parent
        flow = active.flows.get(row.flow)
        if above is None and flow is not None and flow.undoing is not None:
            return UNDONE_WITH if row.now.state == flow.machine.named(flow.undoing) else None
    return None


async def migration(active: ActiveRuns, run: Run, flow: Flow) -> Migrated | None:
    """The entry that migrates a run to the current definition; None if the definition has not changed.

    Raises:
        DefinitionChanged: the flow has no migration for the run's definition.
        ConfigurationError: the migration failed.
    """
    if run.fingerprint == flow.fingerprint or run.status.is_end:
        return None
    migrate = flow.migrations.get(run.fingerprint) or flow.migrations.get(run.version)
    if migrate is None:
        old = await active.store.definition(run.fingerprint) or {}
        lines = flow.difference(old) or [f"fingerprint: {run.fingerprint} → {flow.fingerprint}"]
        raise DefinitionChanged(run.id, flow.name, lines, run.fingerprint)
    machine = flow.machine
    try:
        migrated = migrate(run)
        changes = to_plain(dict(migrated.set))
        state = machine.named(machine.state(migrated.state if migrated.state is not None else run.state))
        reason = checks.text("Migration.reason", migrated.reason)
    except BaseException as raised:
        if (error := failure(raised)) is None:
            raise
        raise ConfigurationError(
            f"The migration of run {run.id} to version {machine.version} of '{flow.name}' failed: "
            f"{type(error).__name__}: {message_of(error)}"
        ) from error
    if machine.is_end(machine.state(state)):
        raise ConfigurationError(f"The migration of run {run.id} leads into '{state}', which is an end.")
    return Migrated(machine.version, flow.fingerprint, state, changes, reason, machine.name)


async def launch(active: ActiveRuns, driver: Driver) -> None:
    """Drive a claimed run, if it can continue."""
    # It may have begun to wait or ended since its row was read.
    if driver.run.status is Status.RUNNING and driver.lease.lost is not None:
        await _taken_over(active, driver, driver.lease)
    if driver.run.status is Status.RUNNING:
        driver.resumed = True
        if driver.parent is not None:
            driver.parent.spending.count_in(driver.run.used())
        active.launch(driver)


async def _taken_over(active: ActiveRuns, driver: Driver, lease: Lease) -> None:
    """Record a takeover; a run whose workers keep dying is held for a person's attention instead."""
    logger.warning("run.taken_over", run_id=driver.run.id, lost=lease.lost, times=driver.run.takeovers + 1)
    claimed = Claimed(active.leases.me.id, lease.lost)
    if driver.run.takeovers + 1 < active.takeover_limit:
        await driver.commit(claimed)
        return
    await driver.commit(
        claimed,
        Held(
            "takeovers",
            "attention",
            f"Its worker died {driver.run.takeovers + 1} times in state '{driver.run.state}' without "
            f"progress. Continue?",
            ["continue", "cancel"],
        ),
    )


async def go_on(active: ActiveRuns, claim: Taken) -> Exception | None:
    """Continue a claimed run; returns the error that prevents it, which concerns no other run."""
    try:
        await _resume(active, claim)
    except BaseException as raised:  # a flow's resources, for example, may raise anything
        error = failure(raised)
        if error is None:
            raise
        if isinstance(error, RunDamaged) or not isinstance(error, RunStateError | StoreError):
            run_id = claim.lease.run_id
            active.tell_once("run.not_resumed", run_id, run_id=run_id, error=message_of(error))
        return error
    return None


async def _resume(active: ActiveRuns, claim: Taken) -> None:
    """Drive a run that was claimed in a batch, after answering its due holds with their defaults."""
    run_id, lease = claim.lease.run_id, claim.lease
    if run_id in active.taking or active.under_way(run_id) is not None:
        await active.store.park(lease)
        raise RunBusy(run_id, active.leases.me.id)
    active.taking.add(run_id)
    try:
        driver = await _standing(active, claim.flow, lease, load_taken(active.store, claim), adopted=True)
        try:
            now, run = active.clock.now(), driver.run
            due = [hold for hold in run.holds.values() if hold.wake_at is not None and hold.wake_at <= now]
            if due:
                await driver.commit(*(Released(hold.name, hold.default, "clock") for hold in due))
            await launch(active, driver)
        finally:
            if active.under_way(run_id) is None:
                await active.let_go(driver)
    finally:
        active.taking.discard(run_id)
