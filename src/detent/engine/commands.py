"""Commands of people and other processes on a run: release, resolve, cancel, reopen."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from detent.engine import claims, moves
from detent.engine.driver import Driver
from detent.engine.effects import AGAIN, HAPPENED, SKIP
from detent.engine.journal_reader import load, read
from detent.engine.ports import Request, RunQuery
from detent.engine.user_errors import ChildrenWaiting
from detent.kernel import checks
from detent.kernel.budget import Budget
from detent.kernel.entries import (
    Body,
    EffectBegun,
    EffectDone,
    EffectFailed,
    EffectSkipped,
    Ended,
    Held,
    Released,
    Reopened,
)
from detent.kernel.errors import (
    ConfigurationError,
    DetentError,
    Fenced,
    RunBusy,
    RunStateError,
    StoreError,
    nearest,
)
from detent.kernel.hold_token import HoldToken
from detent.kernel.placeholders import uses_receipt
from detent.kernel.plain import encode, to_plain
from detent.kernel.run import Run
from detent.kernel.status import REOPENABLE, Status

if TYPE_CHECKING:
    from detent.engine.active_runs import ActiveRuns

UNSAID: Any = object()
"""No receipt was given."""
PATIENCE = 15.0
"""Seconds to wait for another worker that is parking the run."""


@asynccontextmanager
async def _claimed_patiently(active: ActiveRuns, run_id: str) -> AsyncIterator[Driver]:
    """Claim a run, waiting up to `PATIENCE` for the worker that has it; park it again unless launched."""
    deadline = active.clock.elapsed() + PATIENCE
    async with AsyncExitStack() as stack:
        while True:
            try:
                driver = await stack.enter_async_context(claims.claimed(active, run_id))
                break
            except RunBusy:
                if active.clock.elapsed() > deadline:
                    raise
                await asyncio.sleep(0.05)
        yield driver


def _go_on(active: ActiveRuns, driver: Driver, drive: bool) -> None:
    """Drive the run in this process if `drive`; otherwise leave it for a worker to resume."""
    if drive and driver.run.status is Status.RUNNING:
        active.launch(driver)


@asynccontextmanager
async def _answering(
    active: ActiveRuns, run_id: str, hold: str | None, doubt: bool = False
) -> AsyncIterator[tuple[Driver, Held]]:
    """Claim a run to answer one of its holds; `doubt` for a hold about an effect in doubt.

    Raises:
        HoldNotOpen: `hold` is not the token of an open hold.
    """
    hold = "" if hold is None else str(hold)
    deadline = active.clock.elapsed() + PATIENCE
    async with AsyncExitStack() as stack:
        while True:
            # Checked before the claim too: the worker that has the run may already drive it with an answer.
            await _open_hold(active, await load(active.store, run_id), hold, doubt)
            try:
                driver = await stack.enter_async_context(claims.claimed(active, run_id))
                break
            except (RunBusy, Fenced):
                if active.clock.elapsed() > deadline:
                    raise
                await asyncio.sleep(0.05)
        yield driver, await _open_hold(active, driver.run, hold, doubt)


async def _open_hold(active: ActiveRuns, run: Run, hold: str, doubt: bool) -> Held:
    """The open hold that a token names.

    Raises:
        HoldNotOpen: there is no such hold; the message says what became of it.
    """
    token = HoldToken.read(hold)
    held = run.holds.get(token.name) if token is not None else None
    if held is not None and token is not None and run.held_at[token.name] == token.seq:
        if held.why != "children" and _about_effect(held) == doubt:
            return held
        verb = "resolve" if _about_effect(held) else "release"
        why = f"'{hold}' of run {run.id} is answered with {verb}."
        if held.why == "children":
            why = f"'{hold}' of run {run.id} waits for other runs: {', '.join(held.about['runs'][:5])}."
    elif token is not None and 0 < token.seq <= run.seq:
        why = await _fate(active, run, token)
    elif not hold:
        why = f"An answer to run {run.id} needs the token of the question it is for."
    elif hold in run.holds:
        why = f"'{hold}' of run {run.id} is the name of a hold; an answer needs the token of the question."
    else:
        why = f"Run {run.id} has not asked '{hold}'."
    raise run.not_open(hold, why)


def _about_effect(held: Held) -> bool:
    return held.name.startswith("effect:")


async def _fate(active: ActiveRuns, run: Run, token: HoldToken) -> str:
    """A sentence on what became of a hold that is no longer open."""
    was_asked = False
    async for entry in read(active.store, run.id, token.seq - 1):
        body = entry.body
        if entry.seq == token.seq:
            was_asked = isinstance(body, Held) and body.name == token.name
            if not was_asked:
                break
        elif isinstance(body, Released) and body.name == token.name:
            if body.by == "clock":
                return f"'{token}' of run {run.id} timed out; the clock has answered it."
            answer = f"'{body.answer[:200]}'" if isinstance(body.answer, str) else encode(body.answer)[:200]
            when = datetime.fromtimestamp(entry.at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
            return f"'{token}' of run {run.id} was answered {answer} by {body.by} at {when}."
        elif isinstance(body, Held) and body.name == token.name:
            return f"'{token}' of run {run.id} has been replaced by '{HoldToken(body.name, entry.seq)}'."
    if not was_asked:
        return f"Entry {token.seq} of run {run.id} is no question called '{token.name}'."
    return f"'{token}' of run {run.id} is open no more; the run has moved on without an answer."


async def release(active: ActiveRuns, run_id: str, answer: Any, hold: str, by: str, drive: bool) -> None:
    """Answer a hold.

    Raises:
        HoldNotOpen: `hold` is not the token of an open hold.
        ConfigurationError: the answer is not one of the hold's choices.
    """
    plain = to_plain(answer)
    async with _answering(active, run_id, hold) as (driver, held):
        if held.choices and plain not in held.choices:
            raise ConfigurationError(
                f"Hold '{held.name}' of run {run_id} takes one of: {', '.join(held.choices)}."
                f"{nearest(str(plain), held.choices)}"
            )
        bodies: list[Body] = [Released(held.name, plain, by)]
        if held.name in ("takeovers", "driver") and plain == "cancel":
            why = "its workers kept dying" if held.name == "takeovers" else "it could not be driven"
            bodies.append(Ended(Status.CANCELLED, why, by=by))
        await driver.commit(*bodies)
        _go_on(active, driver, drive)


async def resolve(
    active: ActiveRuns, run_id: str, how: str, hold: str, receipt: Any, by: str, drive: bool
) -> None:
    """Settle an effect in doubt.

    Raises:
        HoldNotOpen: `hold` is not the token of an open hold.
        ConfigurationError: `how` is unknown, or a receipt is needed.
    """
    if how not in (HAPPENED, AGAIN, SKIP):
        raise ConfigurationError(
            f"An effect in doubt is settled as {HAPPENED}, {AGAIN} or {SKIP}, not as '{how}'."
            f"{nearest(how, (HAPPENED, AGAIN, SKIP))}"
        )
    plain = None if receipt is UNSAID else to_plain(receipt)
    async with _answering(active, run_id, hold, doubt=True) as (driver, held):
        key, tool = held.about["effect"], held.about["tool"]
        body: Body
        if how == HAPPENED and receipt is UNSAID and uses_receipt(driver.run.proposal, key):
            raise ConfigurationError(
                f"The step uses what '{tool}' gave back: say what that was with the receipt "
                f"(--receipt JSON on the command line; null for nothing)."
            )
        if how == HAPPENED:
            body = EffectDone(key, tool, plain, "told")
        elif how == SKIP:
            body = EffectSkipped(key, tool, by)
        else:
            now = active.clock.now()
            body = EffectFailed(key, tool, "told", f"{by} said it did not happen", 0, now)
        await driver.commit(Released(held.name, how, by), body)
        _go_on(active, driver, drive)


async def cancel(
    active: ActiveRuns, run_id: str, reason: str, by: str, undo: bool = False, drive: bool = True
) -> None:
    """End a run and its descendants; with `undo`, the run rolls back first.

    Raises:
        RunStateError: the run has ended.
        ConfigurationError: with `undo`, the run's flow cannot roll back or the run has a parent.
    """
    reason, by = checks.text("reason", reason), checks.name("by", by)
    row = await active.store.row(run_id)
    if row.now.status.is_end:
        raise RunStateError(f"Run {run_id} has already ended ({row.now.status.value}).")
    if undo:
        flow = active.flow(row.flow)
        if flow.undoing is None:
            raise ConfigurationError(f"Runs of '{flow.name}' cannot undo what they did. Cancel without it.")
        if row.parent is not None:
            raise ConfigurationError(
                f"Run {run_id} is part of {row.parent}; what it did is undone with that."
            )
    await _stop(active, run_id, reason, by, undo)
    await _cancel_children(active, run_id, reason, by, undo)
    if not undo:
        return
    status = (await active.store.row(run_id)).now.status
    if status.is_end and status is not Status.CANCELLED:
        raise RunStateError(f"Run {run_id} has ended meanwhile ({status.value}); nothing was undone.")
    if drive:
        # Another worker may still settle its effects, or a person has to settle one in doubt.
        with contextlib.suppress(RunBusy, RunStateError):
            await active.resume(run_id)


async def _stop(active: ActiveRuns, run_id: str, reason: str, by: str, undo: bool = False) -> None:
    """End one run, in whichever process it is under way."""
    if active.under_way(run_id) is not None:
        await stop_here(active, run_id, reason, by, undo)
        return
    deadline = active.clock.elapsed() + PATIENCE
    while True:
        try:
            await end(active, run_id, reason, by, undo)
            return
        except RunBusy:
            if undo and await _called_off(active, run_id):
                return  # its worker settles its effects and then rolls it back
            await active.store.ask(run_id, Request(reason, by, undo))
            if active.clock.elapsed() > deadline:
                raise
            await asyncio.sleep(0.1)


async def stop_here(active: ActiveRuns, run_id: str, reason: str, by: str, undo: bool = False) -> None:
    """Stop the task that drives a run in this process; the task ends the run first.

    With `undo`, a task that performs effects first finishes them; then the run rolls back, or ends if its
    parent rolls it back.
    """
    under_way = active.under_way(run_id)
    if under_way is None or (undo and await _finishes(under_way[0], reason, by)):
        return
    driver, task = under_way
    driver.cancelling = (reason, by, undo)
    task.cancel()
    await asyncio.wait({task})
    if active.under_way(run_id) == under_way:  # cancelled before it had begun
        await end(active, run_id, reason, by, undo)
        active.forget(driver)


async def _finishes(driver: Driver, reason: str, by: str) -> bool:
    """Have a run in this process end once its effects are settled; False when none are unsettled."""
    flow, run = driver.flow, driver.run
    below = run.parent is not None
    if not below and moves.undoing_now(flow, run):
        return True  # on its way already
    if not (driver.performing or moves.unsettled(flow, run)):
        return False
    if below:
        driver.halting = driver.halting or reason
    else:
        await driver.log.call_off(reason, by)
    # Its effects may have been settled meanwhile, and the next step begun.
    return driver.performing or moves.unsettled(flow, run) or moves.undoing_now(flow, run)


async def end(
    active: ActiveRuns, run_id: str, reason: str, by: str, undo: bool = False, stopped: bool = False
) -> bool:
    """Claim an open run and end it as cancelled; False when it had already ended.

    With `undo` the run is left in its rollback state for a worker to resume; a run with unsettled effects
    settles them first, and a child run is left for its parent to roll back. `stopped` means that the call of
    an effect in doubt is known to be over; the journal then records it, so that reopening the run elsewhere
    need not wait for the call.
    """
    driver = await take_ended(active, run_id)
    if driver is None:
        return False
    flow, run = driver.flow, driver.run
    itself = undo and run.parent is None and flow.machine is not None and flow.undoing is not None
    if itself and moves.undoing_now(flow, run):
        await active.store.park(driver.lease)  # on its way already
        return True
    if undo and moves.unsettled(flow, run):
        if itself:
            await driver.log.call_off(reason, by)
        await active.store.park(driver.lease)
        return True
    over: list[Body] = []
    if stopped and run.begun is not None:
        line = await active.store.effect(run_id, run.begun)
        over = [EffectBegun(line.key, line.tool)] if line is not None else []
    await driver.commit(*over, moves.cancelled(flow, run, reason, by, undo=itself))
    if itself:
        await active.store.park(driver.lease)
    return True


async def take_ended(active: ActiveRuns, run_id: str) -> Driver | None:
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
    tools = ()

    def __init__(self, name: str) -> None:
        self.name = name


async def _called_off(active: ActiveRuns, run_id: str) -> bool:
    run = await active.get(run_id)
    return run.called_off is not None or moves.undoing_now(active.flow(run.flow), run)


async def _halt(active: ActiveRuns, run_id: str, reason: str, by: str) -> None:
    """Have a run end once its effects are settled, without waiting for that."""
    if (await active.get(run_id)).config.get(moves.UNDOES):
        return  # it is part of a rollback
    if active.under_way(run_id) is not None:
        await stop_here(active, run_id, reason, by, True)
        return
    try:
        await end(active, run_id, reason, by, True)
    except RunBusy:
        await active.store.ask(run_id, Request(reason, by, undo=True))


async def wind_up(active: ActiveRuns, driver: Driver, runs: Sequence[str], reason: str) -> None:
    """Have descendant runs end, each once its effects are settled, and wait for that.

    Raises:
        ChildrenWaiting: some of them wait for a person to settle an effect.
    """
    async with active.slots.released(driver):
        for run_id in runs:
            await _halt(active, run_id, reason, "engine")
        waiting = [run_id for run_id in runs if not await _wound_up(active, run_id, reason)]
    if waiting:
        raise ChildrenWaiting(waiting)


async def _wound_up(active: ActiveRuns, run_id: str, reason: str) -> bool:
    """Wait for a run to end; False when its effects cannot be settled for now."""
    while not active.stopping:
        run = await active.get(run_id)
        if run.status.is_end:
            return True
        try:
            if (under_way := active.driver_of(run_id)) is not None:
                await stop_here(active, run_id, reason, "engine", True)
                if active.driver_of(run_id) is under_way:
                    await asyncio.wait({under_way.put_down()})
            elif not moves.unsettled(active.flow(run.flow), run):
                await end(active, run_id, reason, "engine", True)
            elif run.status is Status.WAITING:
                return False
            else:
                await active.resume(run_id)
        except RunBusy:
            await active.store.ask(run_id, Request(reason, "engine", undo=True))
            await asyncio.sleep(0.05)
        except (Fenced, RunStateError):  # another worker was faster
            continue
        except StoreError:
            raise
        except DetentError as error:  # it cannot continue in this process; a person may help
            active.tell_once("run.not_wound_up", run_id, run_id=run_id, error=type(error).__name__)
            return False
    return False


async def _cancel_children(active: ActiveRuns, run_id: str, reason: str, by: str, undo: bool = False) -> None:
    cursor: int | None = None
    while True:
        page = await active.store.rows(RunQuery(parent=run_id, before=cursor, limit=200))
        for row in page.rows:
            if not row.now.status.is_end:
                await (_halt if undo else _stop)(active, row.id, reason, by)
            await _cancel_children(active, row.id, reason, by, undo)
        if page.next is None:
            return
        cursor = page.next


async def reopen(
    active: ActiveRuns, run_id: str, budget: Budget | None, reason: str, by: str, drive: bool
) -> None:
    """Continue an ended run from the working state it was last in.

    Raises:
        RunStateError: the run cannot be reopened.
    """
    reason, by = checks.text("reason", reason), checks.name("by", by)
    row = await active.store.row(run_id)
    if row.now.status not in REOPENABLE:
        raise RunStateError(f"Run {run_id} is {row.now.status.value} and cannot be reopened.")
    async with _claimed_patiently(active, run_id) as driver:
        run, machine = driver.run, driver.flow.machine
        if run.fingerprint != driver.flow.fingerprint:
            raise RunStateError(f"Run {run_id} ended under another definition; fork it instead.")
        state = run.state
        if machine.is_end(machine.state(state)):
            state = await _last_working(active, run_id, state)
        if driver.flow.undoing is not None and state == machine.named(driver.flow.undoing):
            raise RunStateError(
                f"Run {run_id} has undone what it did and cannot be reopened. Start a new one, or fork it."
            )
        if budget is None and run.budget is not None and run.budget.exceeded(run.used()):
            raise RunStateError(
                f"Run {run_id} has used up its {run.budget.exceeded(run.used())} budget; "
                f"give it a larger one."
            )
        await driver.commit(Reopened(state, by, reason, budget.to_plain() if budget else None))
        _go_on(active, driver, drive)


async def _last_working(active: ActiveRuns, run_id: str, end: str) -> str:
    """The state from which the run moved into its end state."""
    last = ""
    async for entry in read(active.store, run_id):
        if entry.kind == "moved" and entry.body.to == end:  # type: ignore[union-attr]
            last = entry.body.frm  # type: ignore[union-attr]
    return last
