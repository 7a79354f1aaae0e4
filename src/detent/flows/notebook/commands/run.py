"""`run notebook`: from a problem and a data file to a finished notebook."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from detent.cli.options import NewId, Options, takes
from detent.flows.notebook.kind import KIND

if TYPE_CHECKING:
    from collections.abc import Mapping

    from detent.cli.workspace import Workspace
    from detent.engine.engine import Engine
    from detent.engine.ports import Tape
    from detent.flows.notebook.commands.beginning import Request
    from detent.flows.notebook.start import Beginning
    from detent.flows.notebook.state.document import StateDocument
    from detent.kernel.budget import Budget
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
Title = Annotated[str, typer.Option("--title", metavar="TEXT", help="The notebook's title.")]
Profile = Annotated[
    str | None, typer.Option("--profile", metavar="P", help="compact or full: every step is checked.")
]
NoReport = Annotated[bool, typer.Option("--no-report", help="Leave the last stage out.")]
NoVerify = Annotated[bool, typer.Option("--no-verify", help="Do not execute the finished notebook again.")]
Mode = Annotated[
    list[str] | None,
    typer.Option("--mode", metavar="ROLE=MODE", help="agent or deterministic. May be repeated."),
]
Level = Annotated[
    list[str] | None,
    typer.Option("--autonomy", metavar="ROLE=LEVEL", help="How far an agent is trusted."),
]
MostTransitions = Annotated[
    int | None,
    typer.Option("--max-transitions", metavar="N", min=1, help="Transitions that the run may make."),
]
Until = Annotated[
    str | None, typer.Option("--until", metavar="STATE", help="Stop when the run is in this state.")
]
Transitions = Annotated[
    int | None, typer.Option("--transitions", metavar="N", min=1, help="Stop after so many transitions.")
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
    title: Title = "",
    profile: Profile = None,
    no_report: NoReport = False,
    no_verify: NoVerify = False,
    mode: Mode = None,
    autonomy: Level = None,
    max_transitions: MostTransitions = None,
    until: Until = None,
    transitions: Transitions = None,
    id_: NewId = None,
) -> int:
    """Solve a problem on a table, and write the notebook that does it.

    Exit code 0: the thresholds are met, or the run stopped as asked; 1: they are not, and the best attempt is
    written; 3: a library or the kernel is missing.
    """
    from detent.flows.notebook.commands.beginning import Request

    request = Request(
        problem, problem_file, file or (), target, keep or (), split, out, trace, title, profile,
        not no_report, not no_verify, id_,
    )  # fmt: skip
    return await _run(options, request, mode, autonomy, max_transitions, stop_of(until, transitions))


@takes("deterministic", "budget", "json", "quiet", "project", "log")
async def start(
    options: Options,
    problem: ProblemText = None,
    problem_file: ProblemFile = None,
    file: Files = None,
    target: Target = None,
    keep: Keep = None,
    split: SplitBy = None,
    out: Out = None,
    trace: Trace = None,
    title: Title = "",
    profile: Profile = None,
    no_report: NoReport = False,
    no_verify: NoVerify = False,
    mode: Mode = None,
    autonomy: Level = None,
    max_transitions: MostTransitions = None,
    id_: NewId = None,
) -> int:
    """Plan the stages of a notebook, show the plan, and stop; `notebook resume` goes on."""
    from detent.flows.notebook.commands.beginning import Request

    request = Request(
        problem, problem_file, file or (), target, keep or (), split, out, trace, title, profile,
        not no_report, not no_verify, id_,
    )  # fmt: skip
    return await _run(options, request, mode, autonomy, max_transitions, stop_of(None, 1), shows_plan=True)


async def resume_state(
    options: Options,
    state_file: Path,
    files: list[Path] | None,
    out: Path | None,
    run_id: str | None,
    stop: Mapping[str, Any],
) -> int:
    """Begin a new run where a state JSON stands.

    Raises:
        ConfigurationError: it is no state that a run can begin with.
    """
    state, request = _foreign(state_file, files, out, run_id)
    return await _run(options, request, None, None, None, stop, state=state)


def _foreign(
    state_file: Path, files: list[Path] | None, out: Path | None, run_id: str | None
) -> tuple[StateDocument, Request]:
    """A state, and what the run that begins with it is about."""
    import json

    from detent.flows.notebook.commands.beginning import Request
    from detent.flows.notebook.foreign_state import check_beginning, files_of, problem_of
    from detent.flows.notebook.state.state_json import read_state
    from detent.kernel.errors import ConfigurationError

    try:
        plain = json.loads(state_file.read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{state_file} cannot be read: {error}.") from None
    state = read_state(plain)
    check_beginning(state)
    named = files or files_of(state, state_file.absolute().parent)
    return state, Request(problem_of(state), files=named, out=out, run_id=run_id)


def stop_of(until: str | None, transitions: int | None) -> dict[str, Any]:
    """Where a run is to stop, as `Engine.finish` takes it.

    Raises:
        ConfigurationError: there is no such state.
    """
    from detent.flows.notebook.state.names import read_state_name

    stop: dict[str, Any] = {}
    if until is not None:
        stop["stop_at"] = read_state_name(until)
    if transitions is not None:
        stop["stop_after"] = transitions
    return stop


async def _run(
    options: Options,
    request: Request,
    mode: list[str] | None,
    autonomy: list[str] | None,
    max_transitions: int | None,
    stop: Mapping[str, Any],
    *,
    shows_plan: bool = False,
    state: StateDocument | None = None,
) -> int:
    from detent.cli.record import exit_code, tape
    from detent.cli.values import read_step_settings
    from detent.flows.notebook.commands.beginning import beginning_of, new_run_id
    from detent.flows.notebook.commands.libraries import require_libraries
    from detent.flows.notebook.roles.role import ROLES
    from detent.kernel.errors import ConfigurationError, nearest

    workspace = options.workspace()
    performers = read_step_settings(mode, autonomy, example="action_generator", scope=f"{KIND.name}/")
    for _, step, _ in performers:
        if (name := step.removeprefix(f"{KIND.name}/")) not in ROLES:
            raise ConfigurationError(
                f"A notebook has no role '{name}'.{nearest(name, ROLES)} It has: {', '.join(ROLES)}."
            )
    workspace.settings = workspace.settings.over(performers)
    require_libraries()
    run_id = new_run_id(request.run_id)
    beginning = beginning_of(workspace, request, run_id)
    budget = _budget(options, workspace, max_transitions)
    silent = options.json or options.quiet
    with tape(options, workspace.settings, KIND.flows, json=silent) as recording:
        code = await _drive(
            options, workspace, beginning, run_id, budget, recording, stop, shows_plan=shows_plan, state=state
        )
        return exit_code(recording, code)


def _budget(options: Options, workspace: Workspace, max_transitions: int | None) -> Budget:
    """The budget of the run, and its transitions at most: the first limit that is reached ends it."""
    from detent.cli.values import read_budget
    from detent.flows.notebook.settings import notebook_settings
    from detent.flows.notebook.start import limited

    most = max_transitions or notebook_settings(workspace.settings).max_transitions
    return limited(read_budget(options, workspace.settings), most)


async def _drive(
    options: Options,
    workspace: Workspace,
    beginning: Beginning,
    run_id: str,
    budget: Budget,
    recording: Tape | None,
    stop: Mapping[str, Any],
    *,
    shows_plan: bool = False,
    state: StateDocument | None = None,
) -> int:
    """Start a run, at the beginning or with a state of another origin, and drive it."""
    from detent.cli import unused_agents
    from detent.cli.drive import drive
    from detent.cli.output import say
    from detent.flows.notebook.commands.beginning import read_or_ask
    from detent.flows.notebook.commands.display import DISPLAY, observing, plan_lines, say_line
    from detent.flows.notebook.flow import NotebookFlow
    from detent.flows.notebook.foreign_state import prepared_from
    from detent.flows.notebook.run_view import NotebookRun
    from detent.flows.notebook.settings import notebook_settings
    from detent.flows.notebook.start import prepared
    from detent.flows.notebook.work_folder import delete_folder
    from detent.kernel.errors import ConfigurationError, RunNotFound
    from detent.runtime.wiring import engine_for

    silent = options.json or options.quiet or options.detach
    beginning, reading = read_or_ask(beginning, silent=silent)
    flow = NotebookFlow(notebook_settings(workspace.settings))
    others = [source.flow for name, source in workspace.catalog.all().items() if name != flow.name]
    engine = engine_for(workspace.settings, [flow, *others], tape=recording)
    with unused_agents.telling(workspace.command, engine):
        async with engine:
            await unused_agents.check(workspace.settings, engine, [flow], forced=options.deterministic)
            try:
                await engine.store.row(run_id)
            except RunNotFound:
                pass
            else:
                raise ConfigurationError(f"There is a run '{run_id}' already. Choose another --id.")
            if beginning.work.exists():
                raise ConfigurationError(f"{beginning.work} is there already. Choose another --id.")

            async def begin() -> str:
                try:
                    data = (
                        prepared(beginning, reading) if state is None
                        else prepared_from(beginning, reading, state)
                    )  # fmt: skip
                    await engine.start(
                        flow, data, run_id=run_id, budget=budget,
                        at=None if state is None else state.fsm.state,
                        force_deterministic=options.deterministic, drive=False,
                    )  # fmt: skip
                except BaseException:
                    delete_folder(beginning.work)
                    raise
                if not silent:
                    for line in DISPLAY.header_lines(reading, run_id):
                        say(line)
                await observed.begin(run_id)
                return run_id

            async with observing(engine, beginning.options.trace, json=options.json) as observed:
                code = await drive(
                    workspace, engine, begin, options, flow=flow.name, kind=DISPLAY, plain=plain_result,
                    say_plain=say_line, **stop,
                )  # fmt: skip
            if shows_plan and not silent:
                for line in plan_lines(NotebookRun((await engine.get(run_id)).data).document):
                    say(line)
    if workspace.forgets:
        delete_folder(beginning.work)
    return code


async def plain_result(engine: Engine, run: Run) -> Any:
    """The result of a run as `--json` prints it."""
    from detent.flows.notebook.result import result_of

    return result_of(run)
