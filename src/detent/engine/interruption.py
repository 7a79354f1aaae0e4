"""Interrupting a run: it is put down at once, with its children, and stays open. `cancellation` ends runs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from detent.kernel.errors import RunStateError

if TYPE_CHECKING:
    from detent.engine.active_runs import ActiveRuns
    from detent.engine.driver import Driver


async def interrupt(active: ActiveRuns, run_id: str, grace: float) -> None:
    """Put a run of this process down at once, with its descendants; an effect under way gets `grace` seconds.

    Raises:
        RunStateError: the run is not under way in this process.
    """
    family = [driver for driver in active.drivers() if _is_within(driver, run_id)]
    if not family:
        raise RunStateError(
            f"Run {run_id} is not under way in this process, so it cannot be interrupted here."
        )
    for driver in family:
        active.stops.interrupt(driver.run.id)
    await asyncio.gather(*(_put_down(active, driver, grace) for driver in family))


async def _put_down(active: ActiveRuns, driver: Driver, grace: float) -> None:
    under_way = active.under_way(driver.run.id)
    if under_way is None or under_way[0] is not driver:
        return
    task = under_way[1]
    if driver.performing:
        await asyncio.wait({task}, timeout=grace)
    task.cancel()
    await asyncio.wait({task})
    if active.under_way(driver.run.id) == under_way:  # cancelled before it had begun
        await active.let_go(driver)
        active.forget(driver)


def _is_within(driver: Driver | None, run_id: str) -> bool:
    while driver is not None:
        if driver.run.id == run_id:
            return True
        driver = driver.parent
    return False
