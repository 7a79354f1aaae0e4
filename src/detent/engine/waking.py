"""Waking runs that wait: for the clock, or for their children."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from detent.engine import claims
from detent.engine.journals import load
from detent.engine.ports import RunQuery
from detent.kernel.entries import Released
from detent.kernel.errors import (
    Fenced,
    RunBusy,
    StoreUnavailable,
)
from detent.kernel.status import Status

if TYPE_CHECKING:
    from detent.engine.engine import Engine


async def wake(engine: Engine, run_ids: list[str]) -> None:
    """Have runs go on whose time has come; those that another has taken are passed over."""
    taken = await engine.store.take(
        engine.leases.me.id, len(run_ids), now=engine.clock.now(), flows=engine.flows, only=run_ids,
        dead=await engine.leases.dead(), skip=engine.taking,
    )  # fmt: skip
    for error in await asyncio.gather(*(claims.go_on(engine, one) for one in taken)):
        if error is not None and not isinstance(error, RunBusy | Fenced):
            raise error


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
            async with claims.claimed(engine, run_id) as driver:
                if "children" in driver.run.holds:
                    await driver.commit(Released("children", None, "engine"))
                    if driver.run.status is Status.RUNNING:
                        engine.launch(driver)
            return
        except Fenced:
            return  # whoever took it looks
        except (RunBusy, StoreUnavailable):
            await asyncio.sleep(0.1)  # somebody has it who may not be looking at its children


async def _any_ended(engine: Engine, runs: Iterable[str]) -> bool:
    for child in runs:
        if (await engine.store.row(child)).now.status.is_end:
            return True
    return False


async def wake_parents(engine: Engine) -> None:
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
