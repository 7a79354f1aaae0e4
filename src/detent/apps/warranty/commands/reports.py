"""Reports on the mailbox: `warranty stats`, `warranty rollback`, `warranty ab`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from detent.apps.warranty.commands.run import mailbox_workspace
from detent.cli.options import Options, Since, takes

if TYPE_CHECKING:
    from detent.apps.warranty.rollback import Rollback, RollbackStatus
    from detent.apps.warranty.settings import WarrantySettings
    from detent.cli.workspace import Workspace
    from detent.engine.ports import Store


def add(group: typer.Typer) -> None:
    """Add these commands to the group."""
    back = typer.Typer(
        help="Return to legacy mode.",
        no_args_is_help=True,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    back.command("status")(status)
    back.command("reset")(reset)
    back.command("trip")(trip)
    group.command("stats")(stats)
    group.command("ab")(ab)
    group.add_typer(back, name="rollback")


@takes("json", "store", "config")
async def stats(
    options: Options,
    since: Since = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write a page of it there.")
    ] = None,
) -> None:
    """Report where mails go, where they fail, and what takes long.

    Visits, failures, fallbacks and times of every step; ends and common paths.
    """
    import time

    from detent.apps.warranty.stats import mailbox_stats
    from detent.apps.warranty.stats_page import page
    from detent.cli.output import fit, say_json, write
    from detent.cli.values import read_time

    after = read_time(since, "--since")
    async with _opened(mailbox_workspace(options, looks=True)) as (store, _, rollback):
        figures = await mailbox_stats(store, after)
        line = await rollback.line()
    if html is not None:
        write(page(figures, now=time.time(), since=after, line=line), html)
    if options.json:
        say_json({**figures.to_plain(), "rolled_back": line})
    elif html is None:
        if line is not None:
            fit(line)
        for text in figures.lines() if figures.runs or figures.legacy else ["No runs to add up."]:
            fit(text)


@takes("json", "store", "config")
async def ab(
    options: Options,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The experiment.")],
    since: Since = None,
) -> None:
    """Compare the arms of an experiment on the mails in it."""
    from detent.apps.warranty.experiment import report
    from detent.cli.output import fit, say_json
    from detent.cli.values import read_time

    workspace = mailbox_workspace(options, looks=True)
    after = read_time(since, "--since")
    async with _opened(workspace) as (store, settings, _):
        comparison = await report(store, name, settings.orchestration.router.experiment, after)
    if options.json:
        say_json(comparison.to_plain())
        return
    for line in comparison.lines():
        fit(line)


@takes("json", "store", "config")
async def status(options: Options) -> None:
    """Show how mails fare by steps, and what that means.

    The rate, the failing steps and runs, and whether legacy mode may be retired.
    """
    from detent.cli.output import say, say_json

    workspace = mailbox_workspace(options, looks=True)
    async with _opened(workspace) as (_, settings, rollback):
        state = await rollback.status()
        line = await rollback.line()
    if options.json:
        say_json(state.to_plain())
        return
    for text in _status_lines(state, line, settings.orchestration.use_step_orchestrator):
        say(text)


def _status_lines(state: RollbackStatus, line: str | None, steps: bool) -> list[str]:
    from detent.cli.output import iso

    watch = state.watch
    lines = [
        line
        or (
            "mails are handled step by step"
            if steps
            else "mails are handled in legacy mode, as the settings say"
        )
    ]
    if watch.tripped is not None:
        lines.append(f"since       {iso(watch.tripped.at)}")
    lines.append(
        f"window      {watch.failed} of {len(watch.window)} runs failed ({watch.rate:.1%}); more than "
        f"{state.threshold:.1%} of at least {state.min_runs} runs switch to legacy mode"
    )
    if watch.failing():
        each = ", ".join(f"{step} {number}" for step, number in watch.failing().items())
        lines.append(f"steps       {each}")
        lines.append(f"first runs  {', '.join(watch.first_failing())}")
    lines.append(f"legacy      {'may be retired' if state.may_retire else 'may not be retired'}: {state.why}")
    return lines


@takes("store", "config")
async def reset(options: Options) -> None:
    """Return to step mode and begin a new window."""
    from detent.cli.output import say

    async with _opened(mailbox_workspace(options)) as (_, _settings, rollback):
        back = await rollback.reset()
    say("Back to step mode, with a new window." if back else "Step mode was on already; a new window begins.")


@takes("store", "config")
async def trip(options: Options) -> None:
    """Send new mails through legacy mode from now on."""
    from detent.cli.output import say

    async with _opened(mailbox_workspace(options)) as (_, _settings, rollback):
        changed = await rollback.trip()
    say("New mails go through legacy mode." if changed else "New mails go through legacy mode already.")


@asynccontextmanager
async def _opened(workspace: Workspace) -> AsyncIterator[tuple[Store, WarrantySettings, Rollback]]:
    """The store, the mailbox's settings and its rollback."""
    import time

    from detent.apps.warranty.mailbox import warranty_settings
    from detent.apps.warranty.rollback import Rollback

    settings: Any = warranty_settings(workspace.settings)
    async with workspace.store() as store:
        yield store, settings, Rollback(store, settings.orchestration, time.time)
