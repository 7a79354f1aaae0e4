"""Takes up runs: what dead processes left, what has become due, what is asked of the runs under way here."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from detent.engine.driver import Driver
from detent.engine.flow import Flow
from detent.engine.journals import load
from detent.engine.ports import Lease
from detent.kernel import log
from detent.kernel.entries import Claimed, Ended, Held, Migrated, Released
from detent.kernel.errors import (
    ConfigurationError,
    DefinitionChanged,
    DetentError,
    Fenced,
    RunBusy,
    RunStateError,
    StoreError,
)
from detent.kernel.machine import difference
from detent.kernel.plain import to_plain
from detent.kernel.run import Run
from detent.kernel.status import Status

if TYPE_CHECKING:
    from detent.engine.engine import Engine

HEED_EVERY = 0.5
"""Seconds between looks at what other processes ask of runs under way here."""


async def take(engine: Engine, run_id: str, parent: Driver | None = None) -> Driver:
    """Claim a run and stand where its journal stands; nothing is driven yet.

    `RunBusy` while somebody else has it; `DefinitionChanged` when it cannot go on under the definition at hand.
    """
    if engine.under_way(run_id) is not None:
        raise RunBusy(run_id, engine.leases.me.id)
    row = await engine.store.row(run_id)
    flow = engine.flow(row.flow)
    await engine._register()
    lease = await engine.store.claim(
        run_id, engine.leases.me.id, engine.clock.now(), await engine.leases.dead()
    )
    try:
        run = await load(engine.store, run_id)
        if run.seq != lease.seq:
            raise Fenced(run_id, lease.epoch, lease.seq)
        migration = await _migration(engine, run, flow)
    except BaseException:
        await engine.store.park(lease)
        raise
    driver = Driver(engine, flow, run, lease, parent)
    if migration is not None:
        await driver.commit(migration)
    return driver


async def _migration(engine: Engine, run: Run, flow: Flow) -> Migrated | None:
    """How the run is carried over to the definition at hand; None when it is the one it was started under."""
    if run.fingerprint == flow.fingerprint or run.status.is_end:
        return None
    migrate = flow.migrations.get(run.fingerprint) or flow.migrations.get(run.version)
    if migrate is None:
        old = await engine.store.definition(run.fingerprint) or {}
        lines = difference(old, flow.definition) or [
            f"fingerprint: {run.fingerprint} → {flow.fingerprint}"
        ]
        raise DefinitionChanged(run.id, flow.name, lines)
    wanted = migrate(run)
    machine = flow.machine
    try:
        state = machine.named(machine.state(wanted.state if wanted.state is not None else run.state))
    except ValueError as error:
        raise ConfigurationError(f"The migration of run {run.id} names no state to go on in: {error}") from None
    if machine.is_end(machine.state(state)):
        raise ConfigurationError(f"The migration of run {run.id} leads into '{state}', which is an end.")
    return Migrated(
        machine.version, flow.fingerprint, state, to_plain(dict(wanted.set)), wanted.reason, machine.name
    )


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
            await wake(engine, run_id)
            return run_id
        names = ", ".join(f"{wait['why']} '{wait['name']}'" for wait in row.now.waits or ())
        raise RunStateError(f"Run {run_id} waits for {names}; release it, or cancel it.")
    if engine.under_way(run_id) is not None:
        return run_id
    driver = await take(engine, run_id, parent)
    if driver.lease.lost is not None:
        await _taken_over(engine, driver, driver.lease)
    if parent is not None:
        parent.count_in(driver.run.used())
    if driver.run.status is Status.RUNNING:
        engine._launch(driver)
    return run_id


async def _taken_over(engine: Engine, driver: Driver, lease: Lease) -> None:
    """Write the take-over down; a run that keeps killing its workers asks for attention instead."""
    log.warning("run.taken_over", run_id=driver.run.id, lost=lease.lost, times=driver.run.takeovers + 1)
    claimed = Claimed(engine.leases.me.id, lease.lost)
    if driver.run.takeovers + 1 < engine.takeover_limit:
        await driver.commit(claimed)
        return
    await driver.commit(
        claimed,
        Held(
            "takeovers",
            "attention",
            f"Its worker died {driver.run.takeovers + 1} times in state '{driver.run.state}' without progress. "
            f"Continue?",
            ["continue", "cancel"],
        ),
    )


async def resume_all(engine: Engine, flows: Iterable[str] | None = None) -> list[str]:
    """Take up all that is loose or due and belongs to a known flow."""
    wanted = set(flows) if flows is not None else set(engine.flows)
    taken: list[str] = []
    passed: set[str] = set()
    while True:
        now = engine.clock.now()
        dead = await engine.leases.dead()
        found = [
            run_id
            for run_id in [*await engine.store.loose(now, dead, 500), *await engine.store.due(now, 500)]
            if run_id not in passed
        ]
        if not found:
            return taken
        for run_id in found:
            passed.add(run_id)
            if await take_up(engine, run_id, wanted):
                taken.append(run_id)


async def take_up(engine: Engine, run_id: str, wanted: set[str]) -> bool:
    """Resume one run if it is of a wanted flow; what cannot be resumed is logged, not fatal."""
    try:
        row = await engine.store.row(run_id)
        if row.flow not in wanted or engine.under_way(run_id) is not None:
            return False
        await resume(engine, run_id)
    except (RunBusy, RunStateError, Fenced):
        return False
    except StoreError:
        raise
    except DetentError as error:
        engine.tell_once("run.not_resumed", run_id, run_id=run_id, error=str(error))
        return False
    return True


async def serve(engine: Engine, poll: float) -> None:
    """Keep taking up what is left lying or due."""
    await engine._register()
    while not engine.stopping:
        await resume_all(engine)
        await engine.clock.sleep(poll)


async def wake(engine: Engine, run_id: str) -> None:
    """Give the clock's answer to the holds whose time has come."""
    try:
        driver = await take(engine, run_id)
    except (RunBusy, Fenced):
        return
    now = engine.clock.now()
    due = [hold for hold in driver.run.holds.values() if hold.wake_at is not None and hold.wake_at <= now]
    if not due:
        await engine.store.park(driver.lease)
        return
    await driver.commit(*(Released(hold.name, hold.default, "clock") for hold in due))
    if driver.run.status is Status.RUNNING:
        engine._launch(driver)


async def recheck_children(engine: Engine, run_id: str, runs: list[str]) -> None:
    """A child may have ended between being looked at and its parent's wait being written down."""
    for child in runs:
        if (await engine.store.row(child)).now.status.is_end:
            await wake_parent(engine, run_id)
            return


async def wake_parent(engine: Engine, run_id: str) -> None:
    """Have a run that waits for its children look at them again."""
    row = await engine.store.row(run_id)
    if row.now.status is not Status.WAITING or row.flow not in engine.flows:
        return
    try:
        driver = await take(engine, run_id)
    except (RunBusy, Fenced):
        return
    if "children" in driver.run.holds:
        await driver.commit(Released("children", None, "engine"))
        if driver.run.status is Status.RUNNING:
            engine._launch(driver)
            return
    await engine.store.park(driver.lease)


async def heed(engine: Engine) -> None:
    """Look now and then whether another process asks to cancel a run under way here."""
    while True:
        await engine.clock.sleep(HEED_EVERY)
        if not engine._tasks:
            continue
        try:
            asked = await engine.store.asked(engine.leases.me.id)
        except StoreError as error:
            log.warning("engine.store_away", error=str(error))
            continue
        for run_id, what in asked:
            if what == "cancel" and engine.under_way(run_id) is not None:
                await cancel_here(engine, run_id, "cancelled", "person")


async def cancel_here(engine: Engine, run_id: str, reason: str, by: str) -> None:
    """Stop the task that drives a run in this process; it ends the run before it goes."""
    under_way = engine.under_way(run_id)
    if under_way is None:
        return
    driver, task = under_way
    driver.cancelling = (reason, by)
    task.cancel()
    await asyncio.wait({task})
    if engine.under_way(run_id) == under_way:  # cancelled before it had begun
        await end(engine, run_id, reason, by)
        engine.forget(driver)


async def end(engine: Engine, run_id: str, reason: str, by: str) -> bool:
    """Claim an open run and end it as cancelled; False when it had ended."""
    driver = await take_ended(engine, run_id)
    if driver is None:
        return False
    await driver.commit(Ended(Status.CANCELLED, reason, by=by))
    return True


async def take_ended(engine: Engine, run_id: str) -> Driver | None:
    """Claim a run whatever its definition, for ending it; None when it has ended."""
    row = await engine.store.row(run_id)
    if row.now.status.is_end:
        return None
    flow = engine.flows.get(row.flow)
    await engine._register()
    lease = await engine.store.claim(
        run_id, engine.leases.me.id, engine.clock.now(), await engine.leases.dead()
    )
    run = await load(engine.store, run_id)
    return Driver(engine, flow if flow is not None else _Unknown(row.flow), run, lease)  # type: ignore[arg-type]


class _Unknown:
    """Stands for a flow this process does not know: enough to end a run of it."""

    machine = None

    def __init__(self, name: str) -> None:
        self.name = name
