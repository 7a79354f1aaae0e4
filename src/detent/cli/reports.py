"""Commands that report on journals: `why`, `metrics`, `compare`, `export`."""

from __future__ import annotations

from typing import Annotated

import typer

from detent.cli.options import Options, Output, RunId, Since, takes
from detent.cli.runs import SECTION


def add(app: typer.Typer) -> None:
    """Add the commands to the program."""
    for command in (why, metrics, compare, export):
        app.command(rich_help_panel=SECTION)(command)


@takes("json", "store", "config")
async def why(options: Options, run: RunId) -> None:
    """Explain every move of a run.

    The reason, what it looked at, who decided, what it cost, and what else it might have done.
    """
    from detent.cli.output import fit, iso, say_json
    from detent.cli.workspace import definition, journal
    from detent.insight import why as reasons

    workspace = options.workspace(looks=True)
    async with workspace.store() as store:
        run_id = await workspace.run_id(store, run)
        description = await definition(store, run_id)
        decisions = reasons.why(await journal(store, run_id), description)
    if options.json:
        say_json([{**decision.to_plain(), "at": iso(decision.at)} for decision in decisions])
    else:
        for line in reasons.render(decisions).splitlines() or ["Nothing has been decided yet."]:
            fit(line)


@takes("json", "store", "config")
async def metrics(
    options: Options,
    run: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="A run; all runs of a flow if left out.")
    ] = None,
    flow: Annotated[str | None, typer.Option("--flow", metavar="NAME", help="All runs of this flow.")] = None,
    since: Since = None,
) -> None:
    """Report times, tokens and bottlenecks of a run or a flow."""
    from detent.cli.output import say, say_json
    from detent.cli.values import read_time
    from detent.cli.workspace import definition, journal
    from detent.insight.metrics import flow_metrics, run_metrics
    from detent.kernel.errors import ConfigurationError, FlowNotFound

    if run is not None and (flow is not None or since is not None):
        raise ConfigurationError("Give a run, or --flow and --since, not both.")
    workspace = options.workspace(looks=True)
    after = read_time(since, "--since")
    async with workspace.store() as store:
        if run is not None:
            run_id = await workspace.run_id(store, run)
            figures = run_metrics(
                await definition(store, run_id), await journal(store, run_id), title=f"Run {run_id}"
            )
            say_json(figures.to_plain()) if options.json else say(figures.report)
            return
        names = list(dict.fromkeys(name for name, _, _ in await store.flows()))
        if flow is not None and flow not in names:
            raise FlowNotFound(flow, {"flow": names})
        day = None if after is None else int(after // 86400)
        summaries = [flow_metrics(await store.edges(name, day)) for name in ([flow] if flow else names)]
    if options.json:
        plain = [summary.to_plain() for summary in summaries]
        say_json(plain[0] if flow else plain)
    else:
        say("\n\n".join(summary.report for summary in summaries if summary.flow) or "No moves to add up.")


@takes("json", "store", "config")
async def compare(
    options: Options,
    first: Annotated[str, typer.Argument(metavar="RUN", help="A run.")],
    second: Annotated[str, typer.Argument(metavar="RUN", help="The run to compare it with.")],
) -> None:
    """Compare two runs: where they diverge, and how they differ."""
    from detent.cli.output import fit, say_json
    from detent.cli.workspace import journal
    from detent.insight import compare as comparing

    workspace = options.workspace(looks=True)
    async with workspace.store() as store:
        a, b = [await workspace.run_id(store, run) for run in (first, second)]
        result = comparing.compare(await journal(store, a), await journal(store, b))
    if options.json:
        say_json({"runs": [a, b], **result.to_plain()})
    else:
        for line in comparing.render(result, a, b).splitlines():
            fit(line)


@takes("store", "config")
async def export(
    options: Options,
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="Runs to export.")],
    output: Output = None,
) -> None:
    """Print journals as JSON lines, one entry per line."""
    import sys

    from detent.cli.output import warn
    from detent.engine.journal_reader import read
    from detent.kernel.entries import to_plain
    from detent.kernel.errors import ConfigurationError
    from detent.kernel.plain import encode

    workspace = options.workspace(looks=True)
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
        from detent.insight.formatting import count

        warn(f"Written to {output}: {count(lines, 'entry')} of {count(len(ids), 'run')}.")
