"""Child runs: loops, subflows and sub-agents as runs of their own, with derived ids."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from detent.engine import cancellation, worker
from detent.engine.child import Child
from detent.engine.family import child_of, children
from detent.engine.flow import Flow
from detent.engine.moves import UNDOES, undoing_now
from detent.engine.offloaded import NOTHING, Beside
from detent.engine.ports import Cancellation
from detent.engine.user_errors import ChildrenWaiting
from detent.kernel import checks
from detent.kernel.budget import Budget
from detent.kernel.entries import ChildEnded
from detent.kernel.errors import ConfigurationError, Fenced, RunBusy, RunExists, RunStateError
from detent.kernel.ids import check_key, child_ids
from detent.kernel.run import Run
from detent.kernel.run_config import KEY, STEPS
from detent.kernel.status import Status
from detent.kernel.view import View

if TYPE_CHECKING:
    from detent.engine.active_runs import ActiveRuns
    from detent.engine.driver import Driver


HALTED = Cancellation("another one failed", "engine", undo=True)
"""Ends a child, once its effects are settled, because a sibling failed."""


async def run_children(
    active: ActiveRuns,
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
    """Run children to their ends. `beside` holds offloaded values for the data of all children, or by key.

    With `stop_on_failure`, no child is started after one has not succeeded, those under way end after their
    current step, and those never started are left out of the result. A step with unsettled effects is
    finished first, even after a crash, because a rollback must know what the step did.
    """
    for item in items:
        if not isinstance(item, tuple | list) or len(item) not in (2, 3):
            raise ConfigurationError(
                f"A child is given as (key, data) or (key, data, flow), not as {checks.shown(item)}."
            )
    keys = [item[0] for item in items]
    if len(set(keys)) != len(keys):
        raise ConfigurationError(f"Children of one step need different keys; got {keys}.")
    ids = {key: child_ids(driver.run.id, key) for key in keys}
    inherited = {key: value for key, value in driver.run.config.items() if key not in (STEPS, KEY)}
    if undoing_now(driver.flow, driver.run):
        inherited[UNDOES] = True
    gate = asyncio.Semaphore(limit) if limit else None
    results: dict[str, Child] = {}
    waiting: dict[str, Run] = {}
    done = driver.run.children
    failed = any(done.get(child_id, _OK) != _OK for key in keys for child_id in ids[key])

    def halt() -> None:
        """Have the children under way end after their current step."""
        for key in keys:
            for child_id in () if key in results else ids[key]:
                if (other := active.driver_of(child_id)) is not None and other.run.parent == driver.run.id:
                    other.cancellation = HALTED

    async def run_child(key: str, data: Any, own: str = flow) -> None:
        nonlocal failed
        if gate is not None:
            await gate.acquire()
        try:
            ended = any(child_id in done for child_id in ids[key])
            if stop_on_failure and failed and not ended and not await _halt(active, driver, ids[key]):
                return
            overrides = config(key) if callable(config) else config
            settled = inherited | dict(overrides or {})
            apart = beside if isinstance(beside, Beside) else beside.get(key, NOTHING)
            run, counted = await child_run(active, driver, key, own, data, tags, budget, settled, apart)
            if not run.status.is_end:
                waiting[key] = run
                return
            if run.status is not Status.SUCCEEDED:
                failed = True  # before the next await, so that no child starts meanwhile
                if stop_on_failure:
                    halt()
            if run.id not in driver.run.children:
                used = run.used()
                await driver.commit_whole(
                    ChildEnded(run.id, run.status, run.total_spend, int(used["steps"]), used["seconds"])
                )
                if counted:
                    driver.spending.count_out(used)
                elif driver.parent is not None:
                    driver.parent.spending.count_in(used)  # not yet counted for the ancestors
            results[key] = _ended(key, run)
        finally:
            if gate is not None:
                gate.release()

    async with active.slots.released(driver):
        if len(items) == 1:
            await run_child(*items[0])
        else:
            tasks = [asyncio.ensure_future(run_child(*item)) for item in items]
            try:
                await asyncio.gather(*tasks)
            except BaseException:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                raise
        if waiting and stop_on_failure and failed:  # their holds need no answer any more
            unneeded = {key for key, run in waiting.items() if not await _in_doubt(active, run)}
            for key in unneeded:
                del waiting[key]
            for item in items:
                if item[0] in unneeded:
                    await run_child(*item)
    if waiting:
        raise ChildrenWaiting([run.id for run in waiting.values()])
    return [results[key] for key in keys if key in results]


async def _halt(active: ActiveRuns, driver: Driver, ids: Sequence[str]) -> bool:
    """Keep a child, under whichever of `ids`, from starting another step; False when there is none."""
    child_id = await child_of(active.store, driver.run.id, ids)
    if child_id is None:
        return False
    run = await active.get(child_id)
    if run.status.is_end or await _in_doubt(active, run):
        return True
    if run.status is Status.RUNNING and await _under_way(active, run):
        with contextlib.suppress(
            RunBusy, RunStateError, Fenced
        ):  # interrupted by a crash: finish its step now
            await worker.resume(active, child_id, parent=driver)
        if (other := active.driver_of(child_id)) is not None:
            other.cancellation = HALTED
        return True
    with contextlib.suppress(RunStateError):  # it has ended since
        await cancellation.cancel(active, child_id, HALTED._replace(undo=False))
    return True


async def _under_way(active: ActiveRuns, run: Run) -> bool:
    """Whether its step has begun effects or child runs that must be settled."""
    if run.proposal is not None:
        return True
    async for row in children(active.store, run.id):
        if not row.now.status.is_end:
            return True
    return False


async def _in_doubt(active: ActiveRuns, run: Run) -> bool:
    """Whether the run or a descendant waits for a person to settle an effect in doubt."""
    for name, hold in run.holds.items():
        if name.startswith("effect:"):
            return True
        for below in hold.about.get("runs", ()) if hold.why == "children" else ():
            if await _in_doubt(active, await active.get(below)):
                return True
    return False


_OK = Status.SUCCEEDED.value


def _ended(key: str, run: Run) -> Child:
    return Child(key, run.id, run.status, run.state, View(run.data), run.reason, run.error)


async def child_run(
    active: ActiveRuns,
    parent: Driver,
    key: str,
    flow: str,
    data: Any,
    tags: Sequence[str],
    budget: Budget | None,
    config: Mapping[str, Any],
    beside: Beside,
) -> tuple[Run, bool]:
    """A child run, driven as far as possible now, and whether its use was counted while under way."""
    ids = child_ids(parent.run.id, key)
    ended_or_active = (child_id for child_id in ids if _has(active, parent, child_id))
    child_id = next(ended_or_active, None) or await _child(
        active, parent, ids, key, active.flow(flow), data, tags, budget, config, beside
    )
    driver = active.driver_of(child_id)
    run = await driver.put_down() if driver is not None else None
    if driver is None or run is None:
        return await active.get(child_id), False
    return run, driver.parent is parent


def _has(active: ActiveRuns, parent: Driver, child_id: str) -> bool:
    """Whether a run is a child that has ended or is under way in this process."""
    driver = active.driver_of(child_id)
    return child_id in parent.run.children or (driver is not None and driver.run.parent == parent.run.id)


async def _child(
    active: ActiveRuns,
    parent: Driver,
    ids: tuple[str, ...],
    key: str,
    flow: Flow,
    data: Any,
    tags: Sequence[str],
    budget: Budget | None,
    config: Mapping[str, Any],
    beside: Beside,
) -> str:
    """The id of the child with this key, now under way: an existing one or a new one."""
    usual, spare, *earlier = ids
    existing = await child_of(active.store, parent.run.id, earlier)
    if existing is None:
        try:
            check_key(key)
        except ConfigurationError:  # an earlier version may have started it
            if (existing := await child_of(active.store, parent.run.id, ids)) is None:
                raise
    for child_id in (usual, spare) if existing is None else ():
        try:
            child = await active.create(flow, data, child_id, parent, tags, budget, config, beside=beside)
        except RunExists:
            if (await active.store.row(child_id)).parent == parent.run.id:
                existing = child_id
                break
        else:
            active.launch(child)
            return child_id
    if existing is None:
        raise RunExists(spare)
    if (await active.store.row(existing)).now.status is Status.RUNNING:
        # Another worker has it, or it has just ended: neither concerns the parent.
        with contextlib.suppress(RunBusy, RunStateError, Fenced):
            await worker.resume(active, existing, parent=parent)
    return existing
