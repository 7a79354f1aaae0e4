"""Waking runs that wait: for the clock, or for their children."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from detent.engine import claims
from detent.engine.journal_reader import load, rows_of
from detent.engine.ports import RunQuery
from detent.kernel.entries import Released
from detent.kernel.errors import (
    Fenced,
    RunBusy,
    StoreUnavailable,
)
from detent.kernel.status import Status

if TYPE_CHECKING:
    from detent.engine.active_runs import ActiveRuns


async def wake(active: ActiveRuns, run_ids: list[str]) -> None:
    """Have runs go on whose time has come; those that another has taken are passed over."""
    claimed = await active.store.take(
        active.leases.me.id, len(run_ids), now=active.clock.now(), flows=active.flows, only=run_ids,
        dead=await active.leases.dead(), skip=active.taking,
    )  # fmt: skip
    for error in await asyncio.gather(*(claims.go_on(active, claim) for claim in claimed)):
        if error is not None and not isinstance(error, RunBusy | Fenced):
            raise error


async def wake_parent(active: ActiveRuns, run_id: str) -> None:
    """Have a run that waits for its children look at them again, if one of them has ended."""
    while not active.stopping:
        try:
            row = await active.store.row(run_id)
            if row.now.status.is_end and row.parent is not None:
                run_id = row.parent  # which may wait for what is further below
                continue
            if row.now.status is not Status.WAITING or row.flow not in active.flows:
                return
            hold = (await load(active.store, run_id)).holds.get("children")
            if hold is None or not await _any_ended(active, hold.about["runs"]):
                return
            async with claims.claimed(active, run_id) as driver:
                if "children" in driver.run.holds:
                    await driver.commit(Released("children", None, "engine"))
                    if driver.run.status is Status.RUNNING:
                        active.launch(driver)
            return
        except Fenced:
            return  # whoever took it looks
        except (RunBusy, StoreUnavailable):
            await asyncio.sleep(0.1)  # somebody has it who may not be looking at its children


async def _any_ended(active: ActiveRuns, runs: Iterable[str]) -> bool:
    for child in runs:
        if (await active.store.row(child)).now.status.is_end:
            return True
    return False


async def wake_parents(active: ActiveRuns) -> None:
    """Wake parents whose children have ended: a worker may have died after the one and before the other."""
    async for row in rows_of(active.store, RunQuery(status=(Status.WAITING,))):
        if any(wait["why"] == "children" for wait in row.now.waits or ()):
            await wake_parent(active, row.id)
