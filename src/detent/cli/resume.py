"""The commands `resume` and `serve`, and the helper with which other commands change and drive a run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Annotated

import typer

from detent.cli.options import Options, takes

if TYPE_CHECKING:
    from detent.cli.workspace import Workspace
    from detent.engine.engine import Engine
    from detent.engine.ports import RunRow


def add(app: typer.Typer) -> None:
    """Add the commands to the program."""
    for command in (resume, serve):
        app.command(rich_help_panel="Start work")(command)


Act = Callable[["Engine", str], Awaitable[object]]
"""Changes a run before it is driven."""


async def see_through(
    workspace: Workspace,
    run: str,
    act: Act,
    options: Options,
    *,
    done: str = "",
    new_id: str | None = None,
) -> int:
    """Change a run, then drive it as `run` does. `new_id` is the id of a run that the change creates."""
    from detent.cli.drive import drive as driven
    from detent.cli.output import paint, say

    async with workspace.engine(deterministic=options.deterministic) as engine:
        run_id = await workspace.run_id(engine.store, run)
        flow = (await engine.store.row(run_id)).flow
        await know_run(workspace, engine, run_id)

        async def begin() -> str:
            await act(engine, run_id)
            if new_id is not None and not (options.detach or options.json or options.quiet):
                say(f"{paint(flow, bold=True)} {new_id}")
            return new_id or run_id

        return await driven(workspace, engine, begin, options, flow=flow, run_id=new_id or run_id, done=done)


async def know_run(workspace: Workspace, engine: Engine, run_id: str) -> None:
    """Load the flows of a run and of those it is part of."""
    for name in reversed([row.flow for row in await _ancestors(engine, run_id)]):
        await workspace.know(engine, name)


async def _ancestors(engine: Engine, run_id: str) -> list[RunRow]:
    """The rows of a run and its ancestors, up to the root."""
    rows = [await engine.store.row(run_id)]
    while rows[-1].parent is not None:
        rows.append(await engine.store.row(rows[-1].parent))
    return rows


# -- going on -----------------------------------------------------------------------------------------------


@takes("deterministic", "json", "quiet", "project", "log")
async def resume(
    options: Options,
    run: Annotated[str | None, typer.Argument(metavar="[RUN]", help="The run to resume.")] = None,
    all_: Annotated[
        bool, typer.Option("--all", help="Every interrupted run and every run that is due.")
    ] = False,
    concurrency: Annotated[
        int | None, typer.Option("--concurrency", metavar="N", min=1, help="Runs worked on at the same time.")
    ] = None,
) -> int:
    """Resume a run, or every interrupted run, and wait for it."""
    from detent.cli import run_status
    from detent.cli.drive import drive_many, ending_code
    from detent.cli.output import say, say_json, warn
    from detent.cli.progress import BatchProgress
    from detent.cli.signals import INTERRUPTED
    from detent.insight.formatting import count
    from detent.kernel.errors import ConfigurationError, RunStateError
    from detent.kernel.status import Status

    if (run is None) == (not all_):
        raise ConfigurationError("Say which run to resume, or --all.")
    workspace = options.workspace()
    if run is not None:

        async def act(engine: Engine, run_id: str) -> None:
            try:
                await engine.resume(run_id)
            except RunStateError:  # one that waits is shown with the commands that answer it
                if (await engine.store.row(run_id)).now.status is not Status.WAITING:
                    raise
                waiting = await engine.get(run_id)
                for name in run_status.failed_at_end(waiting):  # whatever was in its way may be mended
                    await engine.resolve(run_id, "again", hold=waiting.token(name))

        return await see_through(workspace, run, act, options)
    progress = None if options.json or options.quiet else BatchProgress(0)
    again = workspace.command("resume", "--all")
    taken: list[str] = []
    async with workspace.engine(
        observers=[progress] if progress else [], concurrency=concurrency, deterministic=options.deterministic
    ) as engine:
        missing = await _recall_open(workspace, engine)

        async def resumed() -> AsyncIterator[str]:
            run_ids = await engine.resume_all()
            if progress is not None:
                progress.total = len(run_ids)
            for run_id in run_ids:
                yield run_id

        results, stopped = await drive_many(engine, resumed(), taken, again=again, progress=progress)
        left = [run_id for run_id in taken if not (await engine.store.row(run_id)).now.status.is_end]
    for name, number in missing.items():
        warn(
            f"{count(number, 'run')} of flow '{name}' left alone: the flow is not known here (see --plugin)."
        )
    if options.json:
        say_json([run_status.run_plain(result) for result in results])
    elif progress is None:
        for run_id in taken:
            say(run_id)
    elif not taken:
        say("No run was interrupted.")
    else:
        say(f"Resumed {progress.line()}")
        for result in results:
            if result.status.value != "succeeded":
                say(f"  {result.id}  {run_status.summary(result)}")
                for command in run_status.next_commands(workspace, result)[:1]:
                    say(f"    {command}")
    if stopped and left:
        warn(f"Stopped. {count(len(left), 'run')} can go on: {again}")
        return INTERRUPTED
    return max((ending_code(workspace, result) for result in results), default=0)


async def _recall_open(workspace: Workspace, engine: Engine) -> dict[str, int]:
    """Load the flows of open runs; return the names not found, each with the number of runs that need it."""
    from detent.kernel.status import OPEN

    counts: dict[str, int] = {}
    for name, status, number in await engine.store.flows():
        if status in OPEN:
            counts[name] = counts.get(name, 0) + number
    return {name: counts[name] for name in await workspace.recall(engine, counts)}


@takes("deterministic", "project", "log")
async def serve(
    options: Options,
    poll: Annotated[
        float, typer.Option("--poll", metavar="SECONDS", min=0.05, help="How often to look for work.")
    ] = 1.0,
    concurrency: Annotated[
        int | None, typer.Option("--concurrency", metavar="N", min=1, help="Runs worked on at the same time.")
    ] = None,
) -> int:
    """Run a worker: resume interrupted runs, fire due timers."""
    import asyncio
    import signal

    from detent.cli.output import say
    from detent.cli.signals import GRACE, INTERRUPTED, graceful
    from detent.runtime.store_url import shown_url, store_url

    workspace = options.workspace(log="info")
    async with workspace.engine(
        concurrency=concurrency, create=True, deterministic=options.deterministic
    ) as engine:
        with graceful(lambda: "Runs are kept and go on with the next worker.") as stop:
            missing = await _recall_open(workspace, engine)
            known = ", ".join(sorted(engine.flows)) or "none yet"
            place = shown_url(store_url(workspace.settings))
            say(f"Serving {place} as worker {engine.active.leases.me.id}. Flows: {known}.")
            for name, number in missing.items():
                say(f"Left alone: {number} of flow '{name}', which is not known here.")
            serving = asyncio.ensure_future(engine.serve(poll=poll))
            stop_requested = asyncio.ensure_future(stop.asked.wait())
            learning = asyncio.ensure_future(_keep_learning(workspace, engine, poll))
            await asyncio.wait({serving, stop_requested}, return_when=asyncio.FIRST_COMPLETED)
            for task in (stop_requested, learning):
                task.cancel()
            if serving.done():
                serving.result()
            say("Draining: the steps under way are finished first.")
            serving.cancel()
            await asyncio.gather(serving, learning, return_exceptions=True)
            await engine.stop(GRACE)
    say("Drained.")
    return 0 if stop.signal == signal.SIGTERM else INTERRUPTED


async def _keep_learning(workspace: Workspace, engine: Engine, poll: float) -> None:
    """Load flows that other processes run from files."""
    import asyncio

    from detent.kernel.errors import DetentError

    while True:
        await asyncio.sleep(max(poll, 1.0))
        try:
            await _recall_open(workspace, engine)
        except DetentError as error:
            engine.active.tell_once("flow.not_loaded", str(error), error=str(error))
