"""Shadow comparison of past steps: `shadow replay`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from detent.cli import options
from detent.cli.autonomy import SECTION


def add(app: typer.Typer) -> None:
    """Add the commands to the program."""
    group = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Compare both sides of past steps.")
    group.command()(replay)
    app.add_typer(group, name="shadow", rich_help_panel=SECTION)


def replay(
    run: options.RunId,
    step: Annotated[
        str | None, typer.Option("--step", metavar="NAME", help="Only the steps of this name.")
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep/--no-keep", help="Add the comparisons to the run's journal.")
    ] = True,
    json: options.Json = False,
    plugin: options.Plugins = None,
    store: options.Store = None,
    config: options.Config = None,
    verbose: options.Verbose = 0,
    log_level: options.LogLevel = None,
) -> int:
    """Run the other side of a run's past steps, and compare.

    Steps done by code are put to the agent, steps done by an agent to the code. Queries are answered from the
    journal and no effect is performed. What was compared before with the same model, prompt and code is
    passed over.
    """
    from detent.cli.workspace import Workspace, run_async

    workspace = Workspace(store, config, plugin)
    workspace.log(verbose, log_level)
    return run_async(_replay(workspace, run, step, keep, json))


async def _replay(workspace: Any, run: str, step: str | None, keep: bool, json: bool) -> int:
    from detent.cli.output import say, say_json
    from detent.dispatch.replay import replay as again

    notes: list[dict[str, Any]] = []
    async with workspace.engine() as engine:
        run_id = await workspace.run_id(engine.store, run)
        await workspace.know(engine, (await engine.store.row(run_id)).flow)
        async for note in again(engine, run_id, step=step, keep=keep):
            notes.append(note)
            if not json:
                say(_line(note))
    if json:
        say_json(notes)
    elif not notes:
        say("There is nothing to compare, or it has been compared before.")
    return 0


def _line(note: dict[str, Any]) -> str:
    from detent.cli.output import clean, paint

    outcome = note["outcome"]
    colour = {"agreed": "green", "differed": "yellow"}.get(outcome, "red")
    more = note.get("error") or note.get("reason") or ""
    if note.get("pointers"):
        more = "at " + ", ".join(pointer or "the whole" for pointer in note["pointers"][:5])
    where = f"{clean(note['step'])}  entry {note['of']}"
    took = f"{note['side']} {note['duration_ms']:.0f} ms"
    return f"  {where}  {paint(outcome, colour)}  {took}  {clean(more)}".rstrip()
