"""The commands of notebooks: `notebook …`. Starting and building one is `run notebook`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from detent.cli.options import NewId, Options, RunId, takes
from detent.flows.notebook.commands.run import Files, Out, Transitions, Until, start
from detent.kernel.errors import ConfigurationError

if TYPE_CHECKING:
    from detent.cli.workspace import Workspace
    from detent.engine.ports import Store
    from detent.kernel.run import Run

FLOW = "notebook"

group = typer.Typer(
    help="Data-science notebooks: state, cells, files.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

StateFile = Annotated[Path, typer.Option("--state-file", metavar="FILE", help="A state JSON.")]
OutFile = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write it there instead of printing it.")
]
Pretty = Annotated[str, typer.Option("--format", metavar="json|pretty", help="On one line, or indented.")]


def _written(value: Any, output: Path | None, format: str) -> None:
    """Print a value, or write it."""
    from detent.cli.output import say

    if format not in ("json", "pretty"):
        raise ConfigurationError(f"There is no format '{format}'. Formats: json, pretty.")
    text = json.dumps(value, ensure_ascii=False, indent=2 if format == "pretty" else None)
    if output is None:
        print(text)
        return
    try:
        output.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"{output} cannot be written: {error}.") from None
    say(f"Written to {output}.")


def _json_file(path: Path, what: str) -> Any:
    """The JSON of a file.

    Raises:
        ConfigurationError: it cannot be read.
    """

    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}.") from None
    except ValueError as error:
        raise ConfigurationError(f"{path} is no {what}: {error}.") from None


# -- runs ---------------------------------------------------------------------------------------------------

group.command("start")(start)


@group.command("list")
@takes("json", "store", "config")
def list_runs(
    options: Options,
    status: Annotated[
        list[str] | None,
        typer.Option("--status", metavar="STATUS", help="Only runs in this status. May be repeated."),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, max=10000, help="List at most N runs.")
    ] = 20,
) -> Any:
    """List notebooks, newest first; `detent runs --flow notebook` is the same."""
    from detent.cli.runs import runs

    return runs(
        flow=FLOW, status=status, tag=None, since=None, until=None, limit=limit, page=None, roots=False,
        json=options.json, store=options.store, config=options.config,
    )  # fmt: skip


TransitionNumber = Annotated[
    int | None,
    typer.Option("--transition", metavar="N", help="One transition: its payload, the state after."),
]
CellId = Annotated[str | None, typer.Option("--cell", metavar="ID", help="One cell and its outputs.")]
Claims = Annotated[bool, typer.Option("--claims", help="What agents claimed, against what was measured.")]


@group.command("show")
@takes("json", "store", "config")
async def show(
    options: Options,
    run_id: RunId,
    transition: TransitionNumber = None,
    cell: CellId = None,
    claims: Claims = False,
) -> None:
    """Show where a notebook stands: its location, its scores, its figures; or one transition or cell."""
    from detent.cli.output import clean, say, say_json
    from detent.cli.run_status import next_commands, summary
    from detent.flows.notebook.commands.block import block_lines
    from detent.flows.notebook.commands.display import ending_lines, location_lines
    from detent.flows.notebook.result import result_of
    from detent.flows.notebook.run_view import LOG, NotebookRun

    if sum((transition is not None, cell is not None, claims)) > 1:
        raise ConfigurationError("Say one of --transition, --cell and --claims.")
    workspace = options.workspace(looks=True)
    async with workspace.store() as store:
        run = await _notebook(workspace, store, run_id)
        if transition is not None:
            say_json(await _transition(store, run, transition))
        elif cell is not None:
            say_json(await _cell(store, run, cell))
        elif claims:
            lines = [line for line in run.data.get(LOG, ()) if line.get("claims")]
            say_json([
                {"role": line["role"], "event": line["event"], **line["claims"]} for line in lines
            ])  # fmt: skip
        elif options.json:
            say_json(result_of(run))
        else:
            view = NotebookRun(run.data)
            say(clean(view.reading.problem))
            for line in block_lines(view, run.id, "", 200)[1:3]:
                say(line)
            for line in location_lines(run):
                say(line)
            for line in ending_lines(run):
                say(line)
            say(f"  {summary(run)}")
            for command in next_commands(workspace, run):
                say(f"  {command}")


group.command("status")(show)


async def _transition(store: Store, run: Run, number: int) -> dict[str, Any]:
    from detent.flows.notebook.history import transitions
    from detent.flows.notebook.trace import payloads_of

    async for step in transitions(store, run.id):
        if step.number == number:
            return {
                "transition": step.name, "from": step.before, "to": step.to, "reason": step.reason,
                "payloads": await payloads_of(store, step), "state": step.state,
            }  # fmt: skip
    raise ConfigurationError(f"Run {run.id} has no transition {number}.")


async def _cell(store: Store, run: Run, cell_id: str) -> dict[str, Any]:
    from detent.flows.notebook.finished import finished_notebook

    finished = await finished_notebook(store, run)
    for cell in finished.cells:
        if cell.cell_id == cell_id:
            return {"cell_id": cell_id, "source": cell.source, "outputs": [*map(dict, cell.outputs)]}
    raise ConfigurationError(f"The notebook of run {run.id} has no cell '{cell_id}'.")


async def _notebook(workspace: Workspace, store: Store, run_id: str) -> Run:
    """A run of this flow."""
    from detent.engine.journal_reader import load

    run = await load(store, await workspace.run_id(store, run_id))
    if run.flow != FLOW:
        raise ConfigurationError(f"Run {run.id} is one of '{run.flow}', not a notebook.")
    return run


@group.command("resume")
@takes("deterministic", "json", "quiet", "project", "log")
async def resume(
    options: Options,
    run_id: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="Id of a run, or a unique prefix of it.")
    ] = None,
    until: Until = None,
    transitions: Transitions = None,
    state_file: Annotated[
        Path | None,
        typer.Option("--state-file", metavar="FILE", help="Begin a new run where a state JSON stands."),
    ] = None,
    file: Files = None,
    out: Out = None,
    id_: NewId = None,
) -> int:
    """Go on with a notebook that was stopped or interrupted; its files go where the run began says.

    With --state-file a new run begins there; --file, --out and --id are of that run.
    """
    from detent.cli.drive import drive
    from detent.cli.output import say
    from detent.cli.resume import know_run
    from detent.flows.notebook.commands.display import DISPLAY, observing, say_line
    from detent.flows.notebook.commands.libraries import require_libraries
    from detent.flows.notebook.commands.run import plain_result, resume_state, stop_of
    from detent.flows.notebook.run_view import NotebookRun

    stop = stop_of(until, transitions)
    if (run_id is None) == (state_file is None):
        raise ConfigurationError("Say one of a run and --state-file.")
    if state_file is not None:
        return await resume_state(options, state_file, file, out, id_, stop)
    if file or out or id_:
        raise ConfigurationError("--file, --out and --id come with --state-file.")
    assert run_id is not None
    require_libraries()
    workspace = options.workspace()
    async with workspace.engine(deterministic=options.deterministic) as engine:
        run = await _notebook(workspace, engine.store, run_id)
        await know_run(workspace, engine, run.id)
        view = NotebookRun(run.data)
        if stop:
            await _check_free(engine.store, run.id)

        async def begin() -> str:
            if not (options.json or options.quiet):
                for line in DISPLAY.header_lines(view.reading, run.id):
                    say(line)
            await observed.begin(run.id)
            if not stop or run.status.is_end:
                await engine.resume(run.id)
            return run.id

        async with observing(engine, view.options.trace, json=options.json) as observed:
            return await drive(
                workspace, engine, begin, options, flow=run.flow, run_id=run.id, kind=DISPLAY,
                plain=plain_result, say_plain=say_line, **stop,
            )  # fmt: skip


async def _check_free(store: Store, run_id: str) -> None:
    """Check that no other process drives a run: one that is to stop somewhere is taken up by waiting for it.

    Raises:
        RunBusy: another process does.
    """
    from detent.cli.run_status import undriven
    from detent.kernel.errors import RunBusy
    from detent.kernel.status import Status

    row = await store.row(run_id)
    if row.now.status is Status.RUNNING and row.owner and run_id not in await undriven(store, [row]):
        raise RunBusy(run_id, row.owner)


@group.command("export")
@takes("store", "config")
async def export(
    options: Options,
    run_id: RunId,
    format: Annotated[
        str,
        typer.Option(
            "--format", metavar="ipynb|html|md|json|all", help="The notebook, a page, text, or the trace."
        ),
    ] = "ipynb",
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="The folder to write into.")
    ] = Path(),
) -> None:
    """Write a run's notebook once more, from its journal: of ended, waiting and unfinished runs."""
    from detent.cli.output import say
    from detent.flows.notebook.commands.libraries import require_libraries
    from detent.flows.notebook.delivery import export as exported

    require_libraries(("nbformat",))
    workspace = options.workspace(looks=True)
    async with workspace.store() as store:
        run = await _notebook(workspace, store, run_id)
        for path in await exported(store, run, format, output):
            say(str(path))


@group.command("verify")
@takes("json", "store", "config")
async def verify(options: Options, run_id: RunId) -> int:
    """Execute a run's notebook again, in a fresh kernel and an empty folder; exit code 1 if it differs."""
    import asyncio

    from detent.cli.output import clean, paint, say, say_json, warn
    from detent.cli.signals import INTERRUPTED, done_first, graceful
    from detent.flows.notebook.commands.libraries import require_libraries
    from detent.flows.notebook.flow import jupyter_kernel
    from detent.flows.notebook.run_view import NotebookRun
    from detent.flows.notebook.settings import notebook_settings
    from detent.flows.notebook.verification import EXECUTING_AGAIN, verify_run

    require_libraries()
    workspace = options.workspace()
    settings = notebook_settings(workspace.settings)
    async with workspace.store() as store:
        run = await _notebook(workspace, store, run_id)
        if not any(cell.is_code for cell in NotebookRun(run.data).live):
            raise ConfigurationError(f"The notebook of run {run.id} has no code cell: nothing to verify.")
        with graceful() as stop:
            if not options.json:
                say(f"{EXECUTING_AGAIN}…")
            verifying = asyncio.ensure_future(verify_run(run, settings, jupyter_kernel(settings)))
            if not await done_first(verifying, stop):
                verifying.cancel()  # it closes its kernel
                await asyncio.gather(verifying, return_exceptions=True)
                warn("Stopped.")
                return INTERRUPTED
        verified = verifying.result()
    if options.json:
        say_json(verified)
    elif verified["passed"]:
        say(f"{paint('equal', 'green')}: every cell ran, every criterion passed, every result agrees.")
    else:
        say(f"{paint('different', 'red')}: {clean(str(verified['why']))}")
    return 0 if verified["passed"] else 1


# -- files --------------------------------------------------------------------------------------------------


@group.command("apply-transition")
@takes()
def apply_transition(
    options: Options,
    state_file: StateFile,
    transition_file: Annotated[
        Path, typer.Option("--transition-file", metavar="FILE", help="A payload, T1 to T6: XML or JSON.")
    ],
    results: Annotated[
        Path | None,
        typer.Option("--results", metavar="FILE", help="Outputs and variables of a T4's cells, as JSON."),
    ] = None,
    output: OutFile = None,
    format: Pretty = "json",
) -> None:
    """Read a state and a payload, and write the next state. Nothing is executed or measured."""
    from datetime import UTC, datetime

    from detent.flows.notebook.payloads.payload_error import PayloadError
    from detent.flows.notebook.payloads.reading import read_payload
    from detent.flows.notebook.state.apply_transition import apply_transition as applied
    from detent.flows.notebook.state.apply_transition import read_results

    state = _json_file(state_file, "state JSON")
    try:
        payload = read_payload(transition_file.read_bytes())
    except OSError as error:
        raise ConfigurationError(f"{transition_file} cannot be read: {error.strerror}.") from None
    except PayloadError as error:
        raise ConfigurationError(f"{transition_file}: {error}") from None
    given = None if results is None else read_results(_json_file(results, "results file"))
    at = datetime.now(UTC).isoformat(timespec="milliseconds")
    _written(applied(state, payload.value, at=at, results=given).state, output, format)


@group.command("test-actions")
@takes("config")
async def play_actions(
    options: Options,
    actions_file: Annotated[
        Path, typer.Option("--actions-file", metavar="FILE", help="Actions as XML, or as JSON lines.")
    ],
    state_file: Annotated[
        Path | None,
        typer.Option("--state-file", metavar="FILE", help="A state JSON: its title, place and variables."),
    ] = None,
    output: OutFile = None,
    no_kernel: Annotated[
        bool, typer.Option("--no-kernel", help="Write the cells without running them.")
    ] = False,
) -> int:
    """Play a file of actions into a scratch notebook; exit code 1 if a cell raises."""
    from detent.flows.notebook.commands.libraries import KERNEL, require_libraries
    from detent.flows.notebook.commands.scratch import actions_of, play
    from detent.flows.notebook.settings import notebook_settings
    from detent.flows.notebook.state.state_json import read_state

    require_libraries(("nbformat",) if no_kernel else KERNEL)
    settings = notebook_settings(options.workspace().settings)
    state = None if state_file is None else read_state(_json_file(state_file, "state JSON"))
    actions = actions_of(actions_file)
    notebook, raised = await play(actions, actions_file.name, settings, state=state, execute=not no_kernel)
    _written(notebook, output, "pretty")
    return 1 if raised else 0


@group.command("test-request")
@takes()
def show_request(
    options: Options,
    state_file: StateFile,
    role: Annotated[
        str | None, typer.Option("--role", metavar="ROLE", help="Whose request; else the state says.")
    ] = None,
    output: OutFile = None,
    format: Pretty = "pretty",
) -> None:
    """Print what the agent of a role would be sent, without sending it."""
    from detent.flows.notebook.roles.dialect import RoleDialect
    from detent.flows.notebook.roles.role import ROLES, role_of
    from detent.flows.notebook.state.state_json import read_state, write_state
    from detent.kernel.errors import nearest

    document = read_state(_json_file(state_file, "state JSON"))
    chosen = role_of(document.fsm.state) if role is None else ROLES.get(role.removeprefix("notebook/"))
    if chosen is None:
        why = f"There is no role '{role}'.{nearest(role, ROLES)}" if role else "No role acts in an end state."
        raise ConfigurationError(f"{why} Roles: {', '.join(ROLES)}.")
    plain = write_state(document)
    dialect = RoleDialect(chosen, lambda inputs, read, acts: [])
    request = {
        "role": chosen.name, "instructions": dialect.instructions(), "observation": plain["observation"],
        "state": plain["state"],
    }  # fmt: skip
    _written(request, output, format)
