"""Child runs: loops, sub-workflows and sub-agents as runs of their own, with derived ids."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from detent.engine.lineage import child_of, children
from detent.engine.moves import UNDOES, undoing_now
from detent.engine.offloaded import NOTHING, Beside
from detent.engine.raised import ChildrenWaiting
from detent.kernel.budget import Budget
from detent.kernel.entries import ChildEnded
from detent.kernel.errors import ConfigurationError, Fenced, RunBusy, RunStateError
from detent.kernel.ids import child_ids
from detent.kernel.run import Run
from detent.kernel.run_config import STEPS
from detent.kernel.status import Status
from detent.kernel.view import View

if TYPE_CHECKING:
    from detent.engine.driver import Driver
    from detent.engine.engine import Engine


class Child(NamedTuple):
    """How a child run ended."""

    key: str
    id: str
    status: Status
    state: str
    data: View
    reason: str | None
    error: str | None

    @property
    def ok(self) -> bool:
        """True when it succeeded."""
        return self.status is Status.SUCCEEDED


HALTED = "another one failed"
"""Why a child ended that had not failed itself."""


async def run_children(
    driver: Driver,
    flow: str,
    items: Sequence[tuple[str, Any] | tuple[str, Any, str]],
    limit: int | None,
    stop_on_failure: bool,
    *,
    tags: Sequence[str] = (),
    budget: Budget | None = None,
    config: Mapping[str, Any] | Callable[[str], Mapping[str, Any]] | None = None,
    beside: Beside | Mapping[str, Beside] = NOTHING,
) -> list[Child]:
    """Run children to their ends. `beside` is part of the data of each, or by key of which one.

    With `stop_on_failure`, once one has not succeeded none is begun, those under way end after their current
    step, and those never begun are left out. A step whose effects were begun is finished first, also where
    that was before a crash: what it did must be known to whoever undoes it.
    """
    keys = [item[0] for item in items]
    if len(set(keys)) != len(keys):
        raise ConfigurationError(f"Children of one step need different keys; got {keys}.")
    engine = driver.engine
    ids = {key: child_ids(driver.run.id, key) for key in keys}
    inherited = {key: value for key, value in driver.run.config.items() if key != STEPS}
    if undoing_now(driver.flow, driver.run):
        inherited[UNDOES] = True
    gate = asyncio.Semaphore(limit) if limit else None
    results: dict[str, Child] = {}
    waiting: dict[str, Run] = {}
    done = driver.run.children
    failed = any(done.get(child_id, _OK) != _OK for key in keys for child_id in ids[key])

    def halt() -> None:
        """Have those under way end after their current step."""
        for key in keys:
            for child_id in () if key in results else ids[key]:
                if (other := engine.driver_of(child_id)) is not None and other.run.parent == driver.run.id:
                    other.halting = HALTED

    async def one(key: str, data: Any, own: str = flow) -> None:
        nonlocal failed
        if gate is not None:
            await gate.acquire()
        try:
            ended = any(child_id in done for child_id in ids[key])
            if stop_on_failure and failed and not ended and not await _halt(driver, ids[key]):
                return
            told = config(key) if callable(config) else config
            settled = inherited | dict(told or {})
            apart = beside if isinstance(beside, Beside) else beside.get(key, NOTHING)
            run, counted = await engine.child_run(driver, key, own, data, tags, budget, settled, apart)
            if not run.status.is_end:
                waiting[key] = run
                return
            if run.status is not Status.SUCCEEDED:
                failed = True  # before anything is waited for, so that none is begun meanwhile
                if stop_on_failure:
                    halt()
            if run.id not in driver.run.children:
                used = run.used()
                await driver.commit_whole(
                    ChildEnded(run.id, run.status, run.total_spend, int(used["steps"]), used["seconds"])
                )
                if counted:
                    driver.count_out(used)
                elif driver.parent is not None:
                    driver.parent.count_in(used)  # ancestors have not heard of it yet
            results[key] = _child(key, run)
        finally:
            if gate is not None:
                gate.release()

    async with engine.slots.aside(driver):
        if len(items) == 1:
            await one(*items[0])
        else:
            tasks = [asyncio.ensure_future(one(*item)) for item in items]
            try:
                await asyncio.gather(*tasks)
            except BaseException:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                raise
        if waiting and stop_on_failure and failed:  # nobody need answer them any more
            left = {key for key, run in waiting.items() if not await _in_doubt(engine, run)}
            for key in left:
                del waiting[key]
            for item in items:
                if item[0] in left:
                    await one(*item)
    if waiting:
        raise ChildrenWaiting([run.id for run in waiting.values()])
    return [results[key] for key in keys if key in results]


async def _halt(driver: Driver, ids: Sequence[str]) -> bool:
    """Keep a child, whichever of the ids it has, from beginning another step; False when there is none."""
    from detent.engine import recovery

    engine = driver.engine
    child_id = await child_of(engine.store, driver.run.id, ids)
    if child_id is None:
        return False
    run = await engine.get(child_id)
    if run.status.is_end or await _in_doubt(engine, run):
        return True
    if run.status is Status.RUNNING and await _under_way(engine, run):
        with contextlib.suppress(RunBusy, RunStateError, Fenced):  # begun before a crash, finished now
            await recovery.resume(engine, child_id, parent=driver)
        if (other := engine.driver_of(child_id)) is not None:
            other.halting = HALTED
        return True
    with contextlib.suppress(RunStateError):  # it has ended since
        await engine.cancel(child_id, reason=HALTED, by="engine")
    return True


async def _under_way(engine: Engine, run: Run) -> bool:
    """Whether its step has begun something that must be known to be through."""
    if run.proposal is not None:
        return True
    async for row in children(engine.store, run.id):
        if not row.now.status.is_end:
            return True
    return False


async def _in_doubt(engine: Engine, run: Run) -> bool:
    """Whether it, or a run below it, waits to be told whether something happened."""
    for name, hold in run.holds.items():
        if name.startswith("effect:"):
            return True
        for below in hold.about.get("runs", ()) if hold.why == "children" else ():
            if await _in_doubt(engine, await engine.get(below)):
                return True
    return False


_OK = Status.SUCCEEDED.value


def _child(key: str, run: Run) -> Child:
    return Child(key, run.id, run.status, run.state, View(run.data), run.reason, run.error)
