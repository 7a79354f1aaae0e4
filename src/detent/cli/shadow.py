"""Shadow comparison of past steps: `shadow replay`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from detent.cli.autonomy import SECTION
from detent.cli.options import Options, RunId, takes


def add(app: typer.Typer) -> None:
    """Add the commands to the program."""
    group = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Compare both sides of past steps.")
    group.command()(replay)
    app.add_typer(group, name="shadow", rich_help_panel=SECTION)


@takes("json", "project", "log")
async def replay(
    options: Options,
    run: RunId,
    step: Annotated[
        str | None, typer.Option("--step", metavar="NAME", help="Only the steps of this name.")
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep/--no-keep", help="Add the comparisons to the run's journal.")
    ] = True,
) -> int:
    """Run the other side of a run's past steps, and compare.

    Steps done by code are put to the agent, steps done by an agent to the code. Queries are answered from the
    journal and no effect is performed. What was compared before with the same model, prompt and code is
    passed over.
    """
    from detent.cli.output import say, say_json
    from detent.dispatch.replay import replay as again

    workspace = options.workspace()
    notes: list[dict[str, Any]] = []
    async with workspace.engine() as engine:
        run_id = await workspace.run_id(engine.store, run)
        await workspace.know(engine, (await engine.store.row(run_id)).flow)
        async for note in again(engine, run_id, step=step, keep=keep):
            notes.append(note)
            if not options.json:
                say(_line(note))
    if options.json:
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
