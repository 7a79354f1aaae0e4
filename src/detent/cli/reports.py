"""Commands that report on journals: `why`, `metrics`, `compare`, `export`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from detent.cli import options
from detent.cli.runs import SECTION, definition, journal

if TYPE_CHECKING:
    from detent.cli.workspace import Workspace


def add(app: typer.Typer) -> None:
    """Add the commands to the program."""
    for command in (why, metrics, compare, export):
        app.command(rich_help_panel=SECTION)(command)


def why(
    run: options.RunId,
    json: options.Json = False,
    store: options.Store = None,
    config: options.Config = None,
) -> None:
    """Explain every move of a run.

    The reason, what it looked at, who decided, what it cost, and what else it might have done.
    """
    from detent.cli.workspace import Workspace, run_async

    run_async(_why(Workspace(store, config, looks=True), run, json))


async def _why(workspace: Workspace, run: str, json: bool) -> None:
    from detent.cli.output import fit, iso, say_json
    from detent.insight import why as reasons

    async with workspace.store() as store:
        run_id = await workspace.run_id(store, run)
        description = await definition(store, run_id)
        decisions = reasons.why(await journal(store, run_id), description)
    if json:
        say_json([{**decision.to_plain(), "at": iso(decision.at)} for decision in decisions])
    else:
        for line in reasons.render(decisions).splitlines() or ["Nothing has been decided yet."]:
            fit(line)


def metrics(
    run: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="A run; all runs of a flow if left out.")
    ] = None,
    flow: Annotated[str | None, typer.Option("--flow", metavar="NAME", help="All runs of this flow.")] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="WHEN", help="Moves since: 7d, 2026-01-31.")
    ] = None,
    json: options.Json = False,
    store: options.Store = None,
    config: options.Config = None,
) -> None:
    """Report times, tokens and bottlenecks of a run or a flow."""
    from detent.cli.values import read_time
    from detent.cli.workspace import Workspace, run_async
    from detent.kernel.errors import ConfigurationError

    if run is not None and (flow is not None or since is not None):
        raise ConfigurationError("Give a run, or --flow and --since, not both.")
    run_async(_metrics(Workspace(store, config, looks=True), run, flow, read_time(since, "--since"), json))


async def _metrics(
    workspace: Workspace, run: str | None, flow: str | None, since: float | None, json: bool
) -> None:
    from detent.cli.output import say, say_json
    from detent.insight.metrics import flow_metrics, run_metrics
    from detent.kernel.errors import FlowNotFound

    async with workspace.store() as store:
        if run is not None:
            run_id = await workspace.run_id(store, run)
            figures = run_metrics(
                await definition(store, run_id), await journal(store, run_id), title=f"Run {run_id}"
            )
            say_json(figures.to_plain()) if json else say(figures.report)
            return
        names = list(dict.fromkeys(name for name, _, _ in await store.flows()))
        if flow is not None and flow not in names:
            raise FlowNotFound(flow, names)
        day = None if since is None else int(since // 86400)
        summaries = [flow_metrics(await store.edges(name, day)) for name in ([flow] if flow else names)]
    if json:
        plain = [summary.to_plain() for summary in summaries]
        say_json(plain[0] if flow else plain)
    else:
        say("\n\n".join(summary.report for summary in summaries if summary.flow) or "No moves to add up.")


def compare(
    first: Annotated[str, typer.Argument(metavar="RUN", help="A run.")],
    second: Annotated[str, typer.Argument(metavar="RUN", help="The run to compare it with.")],
    json: options.Json = False,
    store: options.Store = None,
    config: options.Config = None,
) -> None:
    """Compare two runs: where they diverge, and how they differ."""
    from detent.cli.workspace import Workspace, run_async

    run_async(_compare(Workspace(store, config, looks=True), first, second, json))


async def _compare(workspace: Workspace, first: str, second: str, json: bool) -> None:
    from detent.cli.output import fit, say_json
    from detent.insight import compare as comparing

    async with workspace.store() as store:
        a, b = [await workspace.run_id(store, run) for run in (first, second)]
        result = comparing.compare(await journal(store, a), await journal(store, b))
    if json:
        say_json({"runs": [a, b], **result.to_plain()})
    else:
        for line in comparing.render(result, a, b).splitlines():
            fit(line)


def export(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="Runs to export.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write it there.")
    ] = None,
    store: options.Store = None,
    config: options.Config = None,
) -> None:
    """Print journals as JSON lines, one entry a line."""
    from detent.cli.workspace import Workspace, run_async

    run_async(_export(Workspace(store, config, looks=True), runs, output))


async def _export(workspace: Workspace, runs: list[str], output: Path | None) -> None:
    import sys

    from detent.cli.output import warn
    from detent.engine.journal_reader import read
    from detent.kernel.entries import to_plain
    from detent.kernel.errors import ConfigurationError
    from detent.kernel.plain import encode

    async with workspace.store() as store:
        ids = [await workspace.run_id(store, run) for run in runs]
        try:
            file = output.open("w", encoding="utf-8") if output is not None else sys.stdout
        except OSError as error:
            raise ConfigurationError(f"{output} cannot be written: {error.strerror}.") from None
        lines = 0
        try:
            for run_id in ids:
                async for entry in read(store, run_id):
                    file.write(encode({"run": run_id, **to_plain(entry)}) + "\n")
                    lines += 1
            file.flush()
        finally:
            if output is not None:
                file.close()
    if output is not None:
        warn(f"Written to {output}: {lines:,} entries of {len(ids)} run{'s' if len(ids) != 1 else ''}.")
