"""The loop with which every command drives runs until they end or wait, and reports their status."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from detent.cli import run_status
from detent.cli.output import say, say_json, warn
from detent.cli.progress import BatchProgress, StepLines
from detent.cli.signals import INTERRUPTED, graceful, until_stopped
from detent.kernel.status import Status

if TYPE_CHECKING:
    from detent.cli.options import Options
    from detent.cli.workspace import Workspace
    from detent.engine.engine import Engine
    from detent.kernel.run import Run
    from detent.runtime.plugs import Kind

PATIENCE = 60.0
"""Seconds a command waits for a due timer before it leaves the waiting run to `resume` or `serve`."""
IN_FLIGHT = 5000
"""Runs of a batch that may be started ahead of the ones being driven."""

Begin = Callable[[], Awaitable[str]]
"""Starts or changes a run and returns its id."""
Plain = Callable[["Engine", "Run"], Awaitable[Any]]
"""A run as JSON values."""


async def drive(
    workspace: Workspace,
    engine: Engine,
    begin: Begin,
    options: Options,
    *,
    flow: str,
    run_id: str | None = None,
    done: str = "",
    kind: Kind | None = None,
    lines: Any = None,
    plain: Plain | None = None,
    say_plain: Callable[[Any], None] = say_json,
    stop_at: Any = None,
    stop_after: int | None = None,
) -> int:
    """Start or change a run, drive it until it ends or waits, print its status; return the exit code.

    A parent run that waits for it is driven as well. `run_id` is given if an existing run is changed; `done`
    is a word for the change, printed if nothing is driven. The `kind` of the flow decides how it is shown;
    `lines` replaces the progress display, `say_plain` how the JSON value is printed. With `stop_at` or
    `stop_after` the run is put down there and stays open (`Engine.finish`).
    """
    kind = kind or workspace.catalog.display_of(flow)
    detach = options.detach
    shown = not (options.json or options.quiet or detach)
    if shown and lines is None:
        lines = _lines(engine, kind, flow, run_id)
    target = [run_id] if run_id is not None else []

    def again() -> str:
        return workspace.command("resume", *(target or ["--all"]))

    def going_on() -> str:
        return "The run is not kept." if workspace.forgets else f"Go on with: {again()}"

    with graceful(going_on) as stop, lines if shown else nullcontext():
        target[:] = [await begin()]
        if not detach:
            finished = _finished(engine, target[0], stop_at, stop_after)
            await until_stopped(engine, stop, finished, engine.active.runs_under_way)
    result = own = await engine.get(target[0])
    while result.status.is_end and result.parent is not None and not detach:
        result = await engine.get(result.parent)
    stopped = stop.asked.is_set() and not result.status.is_end
    if kind is not None and not detach:
        await kind.deliver(engine, own)
    if options.json:
        say_plain(run_status.run_plain(own) if plain is None else await plain(engine, own))
    elif shown and not stopped:
        told, asked = getattr(lines, "failure", None), getattr(lines, "asked", ())
        await tell(workspace, engine, result, kind, told=told, asked=asked)
    elif detach:
        say(f"{own.id} {done}".rstrip())
        say(f"  {again()}   (or leave it to: detent serve)")
    elif not stopped:
        say(own.id)
    if stopped:
        kept = f" The run is kept and can go on: {workspace.command('resume', result.id)}"
        warn(f"Stopped.{'' if workspace.forgets else kept}")
        return INTERRUPTED
    if detach:
        return 0
    return 1 if run_status.failed_at_end(result) else ending_code(workspace, result, kind)


def ending_code(workspace: Workspace, run: Run, kind: Kind | None = None) -> int:
    """Exit code for one run; its kind may say that being degraded is what was asked for."""
    if run.status is Status.DEGRADED:
        kind = workspace.catalog.display_of(run.flow) or kind
        if kind is not None and kind.ended_as_asked(run):
            return 0
    return run_status.exit_code(run.status)


async def tell(
    workspace: Workspace,
    engine: Engine,
    run: Run,
    kind: Kind | None = None,
    *,
    told: str | None = None,
    asked: Collection[str] = (),
) -> None:
    """Print the status of a run in the way of its kind.

    An error already `told` and questions already `asked` are not repeated.
    """
    kind = kind or workspace.catalog.display_of(run.flow)
    if kind is None or not await kind.tell_ending(workspace, engine, run, told):
        run_status.tell(workspace, run, told=told, asked=asked)


def _lines(engine: Engine, kind: Kind | None, flow: str, run_id: str | None) -> Any:
    """The observer that shows the run's progress."""
    lines = None if kind is None else kind.lines(engine, engine.flows[flow])
    if lines is None:
        lines = StepLines(run_id, engine.flows[flow].machine)
        engine.add_observer(lines)
    return lines


async def _finished(engine: Engine, run_id: str, stop_at: Any = None, stop_after: int | None = None) -> None:
    """Drive a run until it ends, waits or is where it is to stop, then the runs that waited for it."""
    if stop_at is not None or stop_after is not None:
        run = await engine.finish(run_id, patience=PATIENCE, stop_at=stop_at, stop_after=stop_after)
        if not run.status.is_end:
            return
    while (await engine.finish(run_id, patience=PATIENCE)).status.is_end and not engine.active.stopping:
        row = await engine.store.row(run_id)
        if row.parent is None:
            return
        above = await engine.store.row(row.parent)
        if above.now.status is not Status.WAITING and engine.active.under_way(above.id) is None:
            return  # the parent does not wait, and this process does not drive it
        run_id = above.id


async def drive_many(
    engine: Engine, runs: AsyncIterator[str], begun: list[str], *, again: str, progress: BatchProgress | None
) -> tuple[list[Run], bool]:
    """Drive each run that `runs` starts until it ends or waits; return them and whether a stop was requested.

    The ids of all are added to `begun`.
    """
    results: list[Run] = []
    window = asyncio.Semaphore(IN_FLIGHT)

    async def finish(run_id: str) -> None:
        try:
            result = await engine.finish(run_id, patience=PATIENCE)
        finally:
            window.release()
        if result.status is not Status.RUNNING:  # it is running if this process was stopped
            results.append(result)
            if progress is not None:
                progress.done(result.status.value)

    async def work() -> None:
        async with asyncio.TaskGroup() as group:
            async for run_id in runs:
                begun.append(run_id)
                await window.acquire()
                group.create_task(finish(run_id))

    with graceful(lambda: f"Go on with: {again}") as stop, progress or nullcontext():
        await until_stopped(engine, stop, work(), lambda: list(begun))
    return results, stop.asked.is_set()
