"""Takes up runs: what dead processes left, what has become due, what is asked of the runs under way here."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING

from detent.engine import moves
from detent.engine.driver import Driver
from detent.engine.flow import Flow
from detent.engine.journals import load
from detent.engine.ports import Lease, RunQuery, RunRow
from detent.engine.raised import failure, message_of
from detent.kernel import checks, log
from detent.kernel.entries import Claimed, Held, Migrated, Released
from detent.kernel.errors import (
    ConfigurationError,
    DefinitionChanged,
    Fenced,
    RunBusy,
    RunNotFound,
    RunStateError,
    StoreError,
    StoreLost,
    StoreUnavailable,
)
from detent.kernel.plain import to_plain
from detent.kernel.run import Run
from detent.kernel.status import Status

if TYPE_CHECKING:
    from detent.engine.engine import Engine

HEED_EVERY = 0.5
"""Seconds between looks at what other processes ask of runs under way here."""


@contextlib.asynccontextmanager
async def taken(engine: Engine, run_id: str, parent: Driver | None = None) -> AsyncIterator[Driver]:
    """A run claimed for the length of a block; it is launched in there, or let go afterwards.

    `RunBusy` while somebody else has it, in this process or another: the store lets a worker claim its own
    run again, so two tasks of one process must not try at once.
    """
    if run_id in engine.taking or engine.under_way(run_id) is not None:
        raise RunBusy(run_id, engine.leases.me.id)
    engine.taking.add(run_id)
    try:
        driver = await take(engine, run_id, parent)
        try:
            yield driver
        finally:
            if engine.under_way(run_id) is None:
                await engine.let_go(driver)
    finally:
        engine.taking.discard(run_id)


async def take(engine: Engine, run_id: str, parent: Driver | None = None) -> Driver:
    """Claim a run and stand where its journal stands; nothing is driven yet.

    `RunBusy` while another process has it; `DefinitionChanged` when it cannot go on under the definition at
    hand.
    """
    row = await engine.store.row(run_id)
    flow = engine.flow(row.flow)
    if flow.needs and not row.now.status.is_end:
        await engine.prepare(flow)
    await engine.register()
    lease = await engine.store.claim(run_id, engine.leases.me.id, await engine.leases.dead())
    try:
        run = await load(engine.store, run_id)
        if run.seq != lease.seq:
            raise Fenced(run_id, lease.epoch, lease.seq)
        carried = await migration(engine, run, flow)
        driver = Driver(engine, flow, run, lease, parent)
        if carried is not None:
            await driver.commit(carried)
        if run.parent is not None and not run.status.is_end:
            driver.halting = await _undone_with(engine, run)
    except BaseException:
        await engine.store.park(lease)
        raise
    return driver


async def _undone_with(engine: Engine, run: Run) -> str | None:
    """Why a run below another may only finish what it has begun: what it is part of is being undone."""
    above = None if run.config.get(moves.UNDOES) else run.parent
    while above is not None:
        try:
            row = await engine.store.row(above)
        except RunNotFound:
            return None
        above = row.parent
        flow = engine.flows.get(row.flow)
        if above is None and flow is not None and flow.undoing is not None:
            return UNDONE_WITH if row.now.state == flow.machine.named(flow.undoing) else None
    return None


async def migration(engine: Engine, run: Run, flow: Flow) -> Migrated | None:
    """How the run is carried over to the definition at hand; None when it is the one it was started under."""
    if run.fingerprint == flow.fingerprint or run.status.is_end:
        return None
    migrate = flow.migrations.get(run.fingerprint) or flow.migrations.get(run.version)
    if migrate is None:
        old = await engine.store.definition(run.fingerprint) or {}
        lines = flow.difference(old) or [f"fingerprint: {run.fingerprint} → {flow.fingerprint}"]
        raise DefinitionChanged(run.id, flow.name, lines, run.fingerprint)
    machine = flow.machine
    try:
        wanted = migrate(run)
        changes = to_plain(dict(wanted.set))
        state = machine.named(machine.state(wanted.state if wanted.state is not None else run.state))
        reason = checks.text("Migration.reason", wanted.reason)
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
        waits = row.now.waits or ()
        if any(wait["why"] == "children" for wait in waits):
            await wake_parent(engine, run_id)  # whoever drove the last of them may have gone since
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
        parent = engine.driver_of(row.parent)  # so that its budget covers the child as before
    async with taken(engine, run_id, parent) as driver:
        # It may have come to a wait or an end since its row was read.
        if driver.run.status is Status.RUNNING and driver.lease.lost is not None:
            await _taken_over(engine, driver, driver.lease)
        if driver.run.status is Status.RUNNING:
            if parent is not None:
                parent.count_in(driver.run.used())
            engine.launch(driver)
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
            f"Its worker died {driver.run.takeovers + 1} times in state '{driver.run.state}' without "
            f"progress. Continue?",
            ["continue", "cancel"],
        ),
    )


async def resume_all(engine: Engine, flows: Iterable[str] | None = None) -> list[str]:
    """Take up all that is loose or due and belongs to a known flow."""
    wanted = set(flows) if flows is not None else set(engine.flows)
    resumed: list[str] = []
    passed: set[str] = set()
    dead = await engine.leases.dead()
    gone = {worker.id for worker in dead}
    if engine.swept is None or not gone <= engine.swept:
        await _sweep(engine)
        engine.swept = gone
    while True:
        now = engine.clock.now()
        limit = 500 + len(passed) - len(resumed)  # those that could not be resumed are still in the way
        loose = [*engine.dropped, *await engine.store.loose(dead, limit)]
        found = [run_id for run_id in [*loose, *await engine.store.due(now, limit)] if run_id not in passed]
        if not found:
            return resumed
        for run_id in found:
            if run_id in passed:
                continue
            passed.add(run_id)
            if await take_up(engine, run_id, wanted):
                engine.dropped.discard(run_id)
                resumed.append(run_id)
        dead = await engine.leases.dead()


async def _sweep(engine: Engine) -> None:
    """Wake parents whose children have ended: a worker may have died after the one and before the other."""
    cursor: int | None = None
    while True:
        page = await engine.store.rows(RunQuery(status=(Status.WAITING,), before=cursor, limit=500))
        for row in page.rows:
            if any(wait["why"] == "children" for wait in row.now.waits or ()):
                await wake_parent(engine, row.id)
        if page.next is None:
            return
        cursor = page.next


async def take_up(engine: Engine, run_id: str, wanted: set[str]) -> bool:
    """Resume one run if it is of a wanted flow; what cannot be resumed is logged, not fatal."""
    try:
        row = await engine.store.row(run_id)
        if row.flow not in wanted or engine.under_way(run_id) is not None:
            return False
        if row.parent is not None:
            await engine.store.row(row.parent)  # without one it belongs to a fork that never came to be
        await resume(engine, run_id)
    except (RunBusy, RunStateError, RunNotFound, Fenced):
        return False
    except StoreError:
        raise
    except BaseException as raised:  # what a flow needs open, say, may raise anything
        if (error := failure(raised)) is None:
            raise
        engine.tell_once("run.not_resumed", run_id, run_id=run_id, error=message_of(error))
        return False
    return True


async def serve(engine: Engine, poll: float) -> None:
    """Keep taking up what is left lying or due."""
    while not engine.stopping:
        try:
            await engine.register()
            await resume_all(engine)
        except StoreLost:
            raise
        except StoreError as error:  # away for a moment: the runs are still there when it is back
            log.warning("engine.store_away", error=str(error))
        await engine.clock.sleep(poll)


async def wake(engine: Engine, run_id: str) -> None:
    """Give the clock's answer to the holds whose time has come."""
    row = await engine.store.row(run_id)
    wake_at = row.now.wake_at
    if row.now.status is not Status.WAITING or wake_at is None or wake_at > engine.clock.now():
        return  # answered, or ended, before its time
    with contextlib.suppress(RunBusy, Fenced):
        async with taken(engine, run_id) as driver:
            now = engine.clock.now()
            due = [
                hold for hold in driver.run.holds.values() if hold.wake_at is not None and hold.wake_at <= now
            ]
            if due:
                await driver.commit(*(Released(hold.name, hold.default, "clock") for hold in due))
                if driver.run.status is Status.RUNNING:
                    engine.launch(driver)


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
                await wake_parent(engine, row.id)
            elif below.flow in engine.flows:
                with contextlib.suppress(RunBusy, RunStateError, Fenced):
                    await resume(engine, child)
    return min(times, default=None)


async def wake_parent(engine: Engine, run_id: str) -> None:
    """Have a run that waits for its children look at them again, if one of them has ended."""
    while not engine.stopping:
        try:
            row = await engine.store.row(run_id)
            if row.now.status.is_end and row.parent is not None:
                run_id = row.parent  # which may wait for what is further below
                continue
            if row.now.status is not Status.WAITING or row.flow not in engine.flows:
                return
            held = (await load(engine.store, run_id)).holds.get("children")
            if held is None or not await _any_ended(engine, held.about["runs"]):
                return
            async with taken(engine, run_id) as driver:
                if "children" in driver.run.holds:
                    await driver.commit(Released("children", None, "engine"))
                    if driver.run.status is Status.RUNNING:
                        engine.launch(driver)
            return
        except Fenced:
            return  # whoever took it looks
        except (RunBusy, StoreUnavailable):
            await engine.clock.sleep(0.1)  # somebody has it who may not be looking at its children


async def _any_ended(engine: Engine, runs: Iterable[str]) -> bool:
    for child in runs:
        if (await engine.store.row(child)).now.status.is_end:
            return True
    return False


async def heed(engine: Engine) -> None:
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
        for run_id, what in asked:
            if what in ("cancel", UNDO) and engine.under_way(run_id) is not None:
                try:
                    await cancel_here(engine, run_id, "cancelled", "person", what == UNDO)
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


UNDO = "undo"
"""What another process asks for: settle what the step has begun, then cancel, so that it can be undone."""
UNDONE_WITH = "what it is part of is being undone"
"""Why a run ended whose root undoes what it did."""


async def cancel_here(engine: Engine, run_id: str, reason: str, by: str, undo: bool = False) -> None:
    """Stop the task that drives a run in this process; it ends the run before it goes.

    With `undo`, a task that performs effects is left to finish them, and the run goes on from there to what
    is asked: to undo what it did, or to end where another run undoes it.
    """
    under_way = engine.under_way(run_id)
    if under_way is None or (undo and await _finishes(under_way[0], reason, by)):
        return
    driver, task = under_way
    driver.cancelling = (reason, by, undo)
    task.cancel()
    await asyncio.wait({task})
    if engine.under_way(run_id) == under_way:  # cancelled before it had begun
        await end(engine, run_id, reason, by, undo)
        engine.forget(driver)


async def _finishes(driver: Driver, reason: str, by: str) -> bool:
    """Have a run in this process end by itself once its effects are settled; False when there are none."""
    flow, run = driver.flow, driver.run
    below = run.parent is not None
    if not below and moves.undoing_now(flow, run):
        return True  # on its way already
    if not (driver.performing or moves.unsettled(flow, run)):
        return False
    if below:
        driver.halting = driver.halting or reason
    else:
        await driver.call_off(reason, by)
    # It may have come to the end of that meanwhile, and to another step.
    return driver.performing or moves.unsettled(flow, run) or moves.undoing_now(flow, run)


async def end(engine: Engine, run_id: str, reason: str, by: str, undo: bool = False) -> bool:
    """Claim an open run and end it as cancelled; False when it had ended.

    With `undo` it is left in the state in which it undoes what it did, for whoever takes it up; one whose
    step has begun something is left to settle that first, and one below another for that one to undo.
    """
    driver = await take_ended(engine, run_id)
    if driver is None:
        return False
    flow, run = driver.flow, driver.run
    itself = undo and run.parent is None and flow.machine is not None and flow.undoing is not None
    if itself and moves.undoing_now(flow, run):
        await engine.store.park(driver.lease)  # on its way already
        return True
    if undo and moves.unsettled(flow, run):
        if itself:
            await driver.call_off(reason, by)
        await engine.store.park(driver.lease)
        return True
    await driver.commit(moves.cancelled(flow, run, reason, by, undo=itself))
    if itself:
        await engine.store.park(driver.lease)
    return True


async def take_ended(engine: Engine, run_id: str) -> Driver | None:
    """Claim a run whatever its definition, for ending it; None when it has ended."""
    row = await engine.store.row(run_id)
    if row.now.status.is_end:
        return None
    flow = engine.flows.get(row.flow)
    await engine.register()
    lease = await engine.store.claim(run_id, engine.leases.me.id, await engine.leases.dead())
    try:
        run = await load(engine.store, run_id)
    except BaseException:
        await engine.store.park(lease)
        raise
    if run.status.is_end:
        await engine.store.park(lease)
        return None
    return Driver(engine, flow if flow is not None else _Unknown(row.flow), run, lease)  # type: ignore[arg-type]


class _Unknown:
    """Stands for a flow this process does not know: enough to end a run of it."""

    machine = None
    undoing = None
    tools = ()

    def __init__(self, name: str) -> None:
        self.name = name
