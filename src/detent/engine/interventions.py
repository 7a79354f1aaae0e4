"""What people and other processes may do to a run: release, resolve, cancel, fork, reopen."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from detent.engine import recovery
from detent.engine.driver import Driver, row_of
from detent.engine.effects import AGAIN, HAPPENED, SKIP
from detent.engine.journals import load, read
from detent.engine.ports import LedgerLine, NewRun, RunQuery
from detent.kernel.budget import Budget
from detent.kernel.entries import (
    Body,
    EffectDone,
    EffectFailed,
    EffectSkipped,
    Ended,
    Entry,
    Forked,
    Held,
    Released,
    Reopened,
    Started,
)
from detent.kernel.errors import (
    ConfigurationError,
    DetentError,
    RunBusy,
    RunExists,
    RunNotFound,
    RunStateError,
    nearest,
)
from detent.kernel.plain import to_plain
from detent.kernel.run import Run
from detent.kernel.status import REOPENABLE, Status

if TYPE_CHECKING:
    from detent.engine.engine import Engine

PATIENCE = 15.0
"""Seconds to wait for a run that is just being put down by somebody else."""


async def _take(engine: Engine, run_id: str) -> Driver:
    """Claim a run, waiting a little for whoever is just letting it go."""
    deadline = engine.clock.elapsed() + PATIENCE
    while True:
        try:
            return await recovery.take(engine, run_id)
        except RunBusy:
            if engine.clock.elapsed() > deadline:
                raise
            await engine.clock.sleep(0.05)


async def _go_on(engine: Engine, driver: Driver, drive: bool) -> None:
    """Drive the run from here, or leave it for whoever takes it up."""
    if drive and driver.run.status is Status.RUNNING:
        engine._launch(driver)
    else:
        await engine.store.park(driver.lease)


async def _waiting(engine: Engine, run_id: str) -> Driver:
    row = await engine.store.row(run_id)
    if row.now.status is not Status.WAITING:
        raise RunStateError(f"Run {run_id} does not wait for anything; it is {row.now.status.value}.")
    driver = await _take(engine, run_id)
    if driver.run.status is not Status.WAITING:
        await engine.store.park(driver.lease)
        raise RunStateError(f"Run {run_id} does not wait any more; it is {driver.run.status.value}.")
    return driver


async def release(
    engine: Engine, run_id: str, answer: Any, hold: str | None, by: str, drive: bool
) -> None:
    """Answer a hold."""
    driver = await _waiting(engine, run_id)
    try:
        held = _pick(driver.run, hold)
        plain = to_plain(answer)
        if held.choices and plain not in held.choices:
            raise ConfigurationError(
                f"Hold '{held.name}' of run {run_id} takes one of: {', '.join(held.choices)}."
                f"{nearest(str(plain), held.choices)}"
            )
    except BaseException:
        await engine.store.park(driver.lease)
        raise
    bodies: list[Body] = [Released(held.name, plain, by)]
    if held.name == "takeovers" and plain == "cancel":
        bodies.append(Ended(Status.CANCELLED, "its workers kept dying", by=by))
    await driver.commit(*bodies)
    await _go_on(engine, driver, drive)


def _pick(run: Run, name: str | None) -> Held:
    """The hold meant: the one named, or the only one a person may answer."""
    for_people = {
        key: held for key, held in run.holds.items() if not key.startswith("effect:") and held.why != "children"
    }
    if name is None and len(for_people) == 1:
        return next(iter(for_people.values()))
    if name in for_people:
        return for_people[name]
    if name is None and not for_people and any(key.startswith("effect:") for key in run.holds):
        raise RunStateError(f"Run {run.id} has an effect in doubt; settle it with resolve.")
    there = ", ".join(f"'{key}'" for key in for_people) or "none that can be answered"
    if name is None:
        raise ConfigurationError(f"Run {run.id} has these holds: {there}. Say which one.")
    raise ConfigurationError(f"Run {run.id} has no hold '{name}'. Holds: {there}.")


async def resolve(
    engine: Engine, run_id: str, how: str, effect: str | None, receipt: Any, by: str, drive: bool
) -> None:
    """Settle an effect in doubt."""
    if how not in (HAPPENED, AGAIN, SKIP):
        raise ConfigurationError(
            f"An effect in doubt is settled as {HAPPENED}, {AGAIN} or {SKIP}, not as '{how}'."
            f"{nearest(how, (HAPPENED, AGAIN, SKIP))}"
        )
    driver = await _waiting(engine, run_id)
    try:
        doubts = {
            held.about["effect"]: held for key, held in driver.run.holds.items() if key.startswith("effect:")
        }
        chosen = [key for key in doubts if effect is None or key.startswith(effect)]
        if len(chosen) != 1:
            there = ", ".join(f"{key} ({held.about['tool']})" for key, held in doubts.items()) or "none"
            raise ConfigurationError(f"Run {run_id}: effects in doubt: {there}.")
        plain = to_plain(receipt)
    except BaseException:
        await engine.store.park(driver.lease)
        raise
    key = chosen[0]
    tool = doubts[key].about["tool"]
    body: Body
    if how == HAPPENED:
        body = EffectDone(key, tool, plain, "told")
    elif how == SKIP:
        body = EffectSkipped(key, tool, by)
    else:
        now = engine.clock.now()
        body = EffectFailed(key, tool, "told", f"{by} said it did not happen", 0, now)
    await driver.commit(Released(f"effect:{key}", how, by), body)
    await _go_on(engine, driver, drive)


async def cancel(engine: Engine, run_id: str, reason: str, by: str) -> None:
    """End a run and everything below it."""
    row = await engine.store.row(run_id)
    if row.now.status.is_end:
        raise RunStateError(f"Run {run_id} has already ended ({row.now.status.value}).")
    await _stop(engine, run_id, reason, by)
    await _cancel_children(engine, run_id, reason, by)


async def _stop(engine: Engine, run_id: str, reason: str, by: str) -> None:
    """End one run, wherever it is under way."""
    if engine.under_way(run_id) is not None:
        await recovery.cancel_here(engine, run_id, reason, by)
        return
    deadline = engine.clock.elapsed() + PATIENCE
    while True:
        try:
            await recovery.end(engine, run_id, reason, by)
            return
        except RunBusy:
            await engine.store.ask(run_id, "cancel")
            if engine.clock.elapsed() > deadline:
                raise
            await asyncio.sleep(0.1)


async def _cancel_children(engine: Engine, run_id: str, reason: str, by: str) -> None:
    cursor: int | None = None
    while True:
        page = await engine.store.rows(RunQuery(parent=run_id, before=cursor, limit=200))
        for row in page.rows:
            if not row.now.status.is_end:
                await _stop(engine, row.id, reason, by)
            await _cancel_children(engine, row.id, reason, by)
        if page.next is None:
            return
        cursor = page.next


async def reopen(engine: Engine, run_id: str, budget: Budget | None, reason: str, drive: bool) -> None:
    """Send an ended run on, from the working state it was last in."""
    row = await engine.store.row(run_id)
    if row.now.status not in REOPENABLE:
        raise RunStateError(f"Run {run_id} is {row.now.status.value} and cannot be reopened.")
    driver = await _take(engine, run_id)
    run, machine = driver.run, driver.flow.machine
    try:
        if run.fingerprint != driver.flow.fingerprint:
            raise RunStateError(f"Run {run_id} ended under another definition; fork it instead.")
        state = run.state
        if machine.is_end(machine.state(state)):
            state = await _last_working(engine, run_id, state)
        if budget is None and run.budget is not None and run.budget.exceeded(run.used()):
            raise RunStateError(
                f"Run {run_id} has used up its {run.budget.exceeded(run.used())} budget; give it a larger one."
            )
    except BaseException:
        await engine.store.park(driver.lease)
        raise
    await driver.commit(Reopened(state, "person", reason, budget.to_plain() if budget else None))
    await _go_on(engine, driver, drive)


async def _last_working(engine: Engine, run_id: str, end: str) -> str:
    """The state the run was in before it moved into an end."""
    last = ""
    async for entry in read(engine.store, run_id):
        if entry.kind == "moved" and entry.body.to == end:  # type: ignore[union-attr]
            last = entry.body.frm  # type: ignore[union-attr]
    return last


async def fork(
    engine: Engine,
    run_id: str,
    at: int | None,
    changes: Mapping[str, Any],
    config: Mapping[str, Any],
    budget: Budget | None,
    new_id: str,
    drive: bool,
) -> str:
    """Copy the first `at` entries into a new run that goes its own way from there."""
    row = await engine.store.row(run_id)
    copied: list[Entry] = []
    ledger: dict[str, LedgerLine] = {}
    run = Run(new_id)
    async for entry in read(engine.store, run_id):
        if at is not None and entry.seq > at:
            break
        body = entry.body
        if isinstance(body, Started):
            body = Started(
                body.flow, body.state, body.machine, body.version, body.fingerprint, body.data, None,
                body.budget, body.config, body.tags, {"run": run_id, "seq": at},
            )  # fmt: skip
        line = Entry(entry.seq, entry.at, 1, body)
        run.apply(line)
        if at is None and run.status.is_end:
            break
        copied.append(line)
        if isinstance(body, EffectDone | EffectSkipped):
            state = "done" if isinstance(body, EffectDone) else "skipped"
            ledger[body.key] = LedgerLine(body.key, body.tool, state, entry.seq)
    if not copied:
        raise RunNotFound(run_id)
    if at is not None and at > row.seq:
        raise ConfigurationError(f"Run {run_id} has {row.seq} entries; it cannot be forked after entry {at}.")
    if at is not None and at < 1:
        raise ConfigurationError("A fork keeps at least the first entry.")
    run = Run.fold(new_id, copied)
    if run.status.is_end:
        raise ConfigurationError(
            f"Entry {at} of run {run_id} ends it; fork from an earlier entry (at most {len(copied) - 1})."
        )
    flow = engine.flow(run.flow)
    now = engine.clock.now()
    forked = Forked(to_plain(dict(changes)), to_plain(dict(config)), budget.to_plain() if budget else None)
    copied[0] = copied[0]._replace(
        body=_forked_at(copied[0].body, run_id, len(copied))
    )
    copied.append(Entry(len(copied) + 1, now, 1, forked))
    run = Run.fold(new_id, copied)
    old = await engine.store.definition(run.fingerprint)
    await engine._register()
    try:
        lease = await engine.store.create(
            NewRun(
                new_id, run.flow, run.machine, None, tuple(copied), row_of(run), tuple(run.tags),
                engine.leases.me.id, old or flow.definition, tuple(ledger.values()), run_id,
            )
        )  # fmt: skip
    except RunExists:
        raise
    await engine.store.park(lease)
    if drive:
        try:
            await engine.resume(new_id)
        except DetentError:
            await load(engine.store, new_id)
            raise
    return new_id


def _forked_at(body: Body, run_id: str, seq: int) -> Started:
    assert isinstance(body, Started)
    return Started(
        body.flow, body.state, body.machine, body.version, body.fingerprint, body.data, None, body.budget,
        body.config, body.tags, {"run": run_id, "seq": seq},
    )  # fmt: skip
