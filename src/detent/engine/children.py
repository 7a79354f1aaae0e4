"""Child runs: loops, sub-workflows and sub-agents as runs of their own, with derived ids."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from detent.engine.dispatch import STEPS
from detent.kernel.budget import Budget
from detent.kernel.entries import ChildEnded
from detent.kernel.errors import ConfigurationError, RunNotFound, RunStateError
from detent.kernel.run import Run
from detent.kernel.status import Status
from detent.kernel.view import View

if TYPE_CHECKING:
    from detent.engine.driver import Driver


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


class ChildrenWaiting(BaseException):
    """Children wait for somebody, so their parent does too. No `except Exception` of a step swallows it."""

    def __init__(self, runs: list[str]) -> None:
        self.runs = runs
        super().__init__(f"waiting for {', '.join(runs)}")


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
) -> list[Child]:
    """Run children to their ends.

    With `stop_on_failure`, once one has not succeeded none is begun, those under way end after their current
    step, and those never begun are left out.
    """
    keys = [item[0] for item in items]
    if len(set(keys)) != len(keys):
        raise ConfigurationError(f"Children of one step need different keys; got {keys}.")
    if any(not key or len(key) > 200 for key in keys):
        raise ConfigurationError("A child's key must have 1 to 200 characters.")
    engine = driver.engine
    inherited = {key: value for key, value in driver.run.config.items() if key != STEPS}
    gate = asyncio.Semaphore(limit) if limit else None
    results: dict[str, Child] = {}
    waiting: dict[str, str] = {}
    done = driver.run.children
    failed = any(done.get(f"{driver.run.id}.{key}", _OK) != _OK for key in keys)

    def halt() -> None:
        """Have those under way end after their current step."""
        for key in keys:
            if key not in results and (other := engine.driver_of(f"{driver.run.id}.{key}")) is not None:
                other.halting = "another one failed"

    async def one(key: str, data: Any, own: str = flow) -> None:
        nonlocal failed
        if gate is not None:
            await gate.acquire()
        try:
            child_id = f"{driver.run.id}.{key}"
            if stop_on_failure and failed and child_id not in done:
                try:  # begun before a crash, perhaps
                    await engine.cancel(child_id, reason="another one failed", by="engine")
                except RunNotFound:
                    return
                except RunStateError:
                    pass  # it has ended since
            told = config(key) if callable(config) else config
            settled = inherited | dict(told or {})
            run, counted = await engine.child_run(driver, child_id, own, data, tags, budget, settled)
            if not run.status.is_end:
                waiting[key] = child_id
                return
            if child_id not in driver.run.children:
                used = run.used()
                await driver.commit_whole(
                    ChildEnded(child_id, run.status, run.total_spend, int(used["steps"]), used["seconds"])
                )
                if counted:
                    driver.count_out(used)
                elif driver.parent is not None:
                    driver.parent.count_in(used)  # ancestors have not heard of it yet
            results[key] = _child(key, run)
            if run.status is not Status.SUCCEEDED:
                failed = True
                if stop_on_failure:
                    halt()
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
            left, waiting = waiting, {}
            for item in items:
                if item[0] in left:
                    await one(*item)
    if waiting:
        raise ChildrenWaiting(list(waiting.values()))
    return [results[key] for key in keys if key in results]


_OK = Status.SUCCEEDED.value


def _child(key: str, run: Run) -> Child:
    return Child(key, run.id, run.status, run.state, View(run.data), run.reason, run.error)
