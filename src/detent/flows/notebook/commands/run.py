"""`run notebook`: from a problem and a data file to a finished notebook."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from detent.cli.options import NewId, Options, takes
from detent.flows.notebook.kind import KIND

if TYPE_CHECKING:
    from detent.cli.workspace import Workspace
    from detent.engine.engine import Engine
    from detent.engine.ports import Tape
    from detent.flows.notebook.start import Beginning
    from detent.kernel.run import Run

ProblemText = Annotated[
    str | None,
    typer.Option("--problem", metavar="TEXT", help='Such as "Predict SalePrice; RMSE < 25000".'),
]
ProblemFile = Annotated[
    Path | None, typer.Option("--problem-file", metavar="FILE", help="A file that holds the problem.")
]
Files = Annotated[
    list[Path] | None,
    typer.Option(
        "--file", metavar="DATA", help="The table: csv, tsv, parquet, jsonl, xlsx. May be repeated."
    ),
]
Target = Annotated[
    str | None,
    typer.Option("--target", metavar="COL", help="The column to predict; else read from the text."),
]
Keep = Annotated[
    list[str] | None,
    typer.Option("--keep", metavar="COL", help="Keep a column that looks like a leak. May be repeated."),
]
SplitBy = Annotated[
    str | None, typer.Option("--split", metavar="S", help="shuffled, group:COL or time:COL; else chosen.")
]
Out = Annotated[
    Path | None, typer.Option("--out", metavar="FILE.ipynb|DIR", help="Where the notebook is written.")
]
Trace = Annotated[
    Path | None,
    typer.Option("--trace", metavar="DIR", help="Write states, payloads and a log as the run goes."),
]


@takes("deterministic", "record", "replay", "detach", "budget", "json", "quiet", "project", "log")
async def run(
    options: Options,
    problem: ProblemText = None,
    problem_file: ProblemFile = None,
    file: Files = None,
    target: Target = None,
    keep: Keep = None,
    split: SplitBy = None,
    out: Out = None,
    trace: Trace = None,
    title: Annotated[str, typer.Option("--title", metavar="TEXT", help="The notebook's title.")] = "",
    profile: Annotated[
        str | None, typer.Option("--profile", metavar="P", help="compact or full: every step is checked.")
    ] = None,
    no_report: Annotated[bool, typer.Option("--no-report", help="Leave the last stage out.")] = False,
    no_verify: Annotated[
        bool, typer.Option("--no-verify", help="Do not execute the finished notebook again.")
    ] = False,
    mode: Annotated[
        list[str] | None,
        typer.Option("--mode", metavar="ROLE=MODE", help="agent or deterministic. May be repeated."),
    ] = None,
    autonomy: Annotated[
        list[str] | None,
        typer.Option("--autonomy", metavar="ROLE=LEVEL", help="How far an agent is trusted."),
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="STATE", help="Stop when the run is in this state.")
    ] = None,
    transitions: Annotated[
        int | None, typer.Option("--transitions", metavar="N", min=1, help="Stop after so many transitions.")
    ] = None,
    id_: NewId = None,
) -> int:
    """Solve a problem on a table, and write the notebook that does it.

    Exit code 0: the thresholds are met, or the run stopped as asked; 1: they are not, and the best attempt is
    written; 3: a library or the kernel is missing.
    """
    from detent.cli.record import exit_code, tape
    from detent.cli.values import read_step_settings
    from detent.flows.notebook.commands.beginning import beginning_of

    workspace = options.workspace()
    workspace.settings = workspace.settings.over(
        read_step_settings(mode, autonomy, example="action_generator", scope=f"{KIND.name}/")
    )
    beginning = beginning_of(
        workspace, problem, problem_file, file or [], target=target, keep=keep or [], split=split,
        profile=profile, report=not no_report, verify=not no_verify, title=title,
    )  # fmt: skip
    silent = options.json or options.quiet
    with tape(options, workspace.settings, KIND.flows, json=silent) as recording:
        code = await _drive(
            options, workspace, beginning, recording, id_, out, trace, _stop(until, transitions)
        )
        return exit_code(recording, code)


def _stop(until: str | None, transitions: int | None) -> dict[str, Any]:
    """Where the run is to stop, as `Engine.finish` takes it."""
    from detent.flows.notebook.state.names import read_state_name

    stop: dict[str, Any] = {}
    if until is not None:
        stop["stop_at"] = read_state_name(until)
    if transitions is not None:
        stop["stop_after"] = transitions
    return stop


async def _drive(
    options: Options,
    workspace: Workspace,
    beginning: Beginning,
    recording: Tape | None,
    run_id: str | None,
    out: Path | None,
    trace: Path | None,
    stop: dict[str, Any],
) -> int:
    from detent.cli import unused_agents
    from detent.cli.drive import drive
    from detent.cli.output import clean, paint, say
    from detent.cli.values import read_budget
    from detent.flows.notebook.commands.display import DISPLAY
    from detent.flows.notebook.delivery import deliver
    from detent.flows.notebook.flow import NotebookFlow
    from detent.flows.notebook.settings import notebook_settings
    from detent.flows.notebook.start import prepared, read
    from detent.flows.notebook.trace import write_trace
    from detent.runtime.wiring import engine_for

    reading = read(beginning)
    flow = NotebookFlow(notebook_settings(workspace.settings))
    others = [source.flow for name, source in workspace.catalog.all().items() if name != flow.name]
    engine = engine_for(workspace.settings, [flow, *others], tape=recording)
    started: list[str] = []
    with unused_agents.telling(workspace.command, engine):
        async with engine:
            await unused_agents.check(workspace.settings, engine, [flow], forced=options.deterministic)

            async def begin() -> str:
                begun = await engine.start(
                    flow, prepared(beginning, reading), run_id=run_id,
                    budget=read_budget(options, workspace.settings),
                    force_deterministic=options.deterministic, drive=not (options.detach or stop),
                )  # fmt: skip
                started.append(begun)
                if not (options.json or options.quiet or options.detach):
                    say(f"{paint('notebook', bold=True)}  {clean(reading.problem)[:60]}  run {begun}")
                    for line in DISPLAY.reading_lines(reading):
                        say(line)
                if stop:
                    await engine.finish(begun, **stop)
                return begun

            code = await drive(workspace, engine, begin, options, flow=flow.name, kind=DISPLAY, plain=_plain)
            run = await engine.get(started[0])
            if not options.detach:
                written = await deliver(engine.store, run, out)
                if trace is not None:
                    await write_trace(engine.store, run.id, trace)
                if not (options.json or options.quiet):
                    say(f"  {clean(written)}")
            return code


async def _plain(engine: Engine, run: Run) -> Any:
    from detent.flows.notebook.result import result_of

    return result_of(run)
