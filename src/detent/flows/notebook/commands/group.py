"""The commands of notebooks: `notebook …`. Starting and building one is `run notebook`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from detent.cli.options import Options, RunId, takes

if TYPE_CHECKING:
    from detent.kernel.run import Run

group = typer.Typer(
    help="Data-science notebooks: their state, their cells, their files.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

StateFile = Annotated[Path, typer.Option("--state-file", metavar="FILE", help="A state JSON.")]
OutFile = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write it there instead of printing it.")
]
Pretty = Annotated[str, typer.Option("--format", metavar="F", help="json: on one line; pretty: indented.")]


def _written(value: Any, output: Path | None, format: str) -> None:
    """Print a value, or write it."""
    from detent.cli.output import say
    from detent.kernel.errors import ConfigurationError

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
    from detent.kernel.errors import ConfigurationError

    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}.") from None
    except ValueError as error:
        raise ConfigurationError(f"{path} is no {what}: {error}.") from None


# -- runs ---------------------------------------------------------------------------------------------------


@group.command("show")
@takes("json", "store", "config")
async def show(
    options: Options,
    run_id: RunId,
    transition: Annotated[
        int | None, typer.Option("--transition", metavar="N", help="The state after this transition.")
    ] = None,
    cell: Annotated[
        str | None, typer.Option("--cell", metavar="ID", help="One cell and its outputs.")
    ] = None,
    claims: Annotated[
        bool, typer.Option("--claims", help="What agents claimed, against what was measured.")
    ] = False,
) -> None:
    """Show where a notebook stands: its location, its scores, its figures; or one transition or cell."""
    from detent.cli.output import clean, say, say_json
    from detent.engine.journal_reader import load
    from detent.flows.notebook.commands.display import ending_lines
    from detent.flows.notebook.finished import finished_notebook
    from detent.flows.notebook.history import transitions
    from detent.flows.notebook.result import result_of
    from detent.flows.notebook.run_view import LOG, NotebookRun
    from detent.kernel.errors import ConfigurationError

    workspace = options.workspace(looks=True)
    async with workspace.store() as store:
        run = _of_notebook(await load(store, await workspace.run_id(store, run_id)))
        if transition is not None:
            async for step in transitions(store, run.id):
                if step.number == transition:
                    say_json(
                        {"transition": step.name, "from": step.before, "to": step.to, "state": step.state}
                    )
                    return
            raise ConfigurationError(f"Run {run.id} has no transition {transition}.")
        if cell is not None:
            finished = await finished_notebook(store, run)
            found = next((item for item in finished.cells if item.cell_id == cell), None)
            if found is None:
                raise ConfigurationError(f"The notebook of run {run.id} has no cell '{cell}'.")
            say_json({"cell_id": cell, "source": found.source, "outputs": [*map(dict, found.outputs)]})
            return
        if claims:
            said = [line for line in run.data.get(LOG, ()) if line.get("claims")]
            say_json([
                {"role": line["role"], "event": line["event"], **line["claims"]} for line in said
            ])  # fmt: skip
            return
        if options.json:
            say_json(result_of(run))
            return
        view = NotebookRun(run.data)
        where = view.document.location
        say(f"{clean(view.reading.problem)}   {view.document.fsm.state.value}")
        say("  " + " / ".join(filter(None, (where.stage_id, where.step_id, where.behavior_id))))
        for line in ending_lines(run):
            say(line)


def _of_notebook(run: Run) -> Run:
    from detent.kernel.errors import ConfigurationError

    if run.flow != "notebook":
        raise ConfigurationError(f"Run {run.id} is one of '{run.flow}', not a notebook.")
    return run


@group.command("export")
@takes("store", "config")
async def export(
    options: Options,
    run_id: RunId,
    format: Annotated[
        str, typer.Option("--format", metavar="F", help="ipynb, html, md, json (states and payloads) or all.")
    ] = "ipynb",
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="The folder to write into.")
    ] = Path(),
) -> None:
    """Write a run's notebook once more, from its journal: of ended, waiting and unfinished runs."""
    from detent.cli.output import say
    from detent.engine.journal_reader import load
    from detent.flows.notebook.delivery import export as exported

    workspace = options.workspace(looks=True)
    async with workspace.store() as store:
        run = _of_notebook(await load(store, await workspace.run_id(store, run_id)))
        for path in await exported(store, run, format, output):
            say(str(path))


@group.command("verify")
@takes("json", "store", "config")
async def verify(options: Options, run_id: RunId) -> int:
    """Execute a run's notebook again, in a fresh kernel and an empty folder; exit code 1 if it differs."""
    from detent.cli.output import clean, paint, say, say_json
    from detent.engine.journal_reader import load
    from detent.flows.notebook.flow import jupyter_kernel
    from detent.flows.notebook.settings import notebook_settings
    from detent.flows.notebook.verification import verify_run

    workspace = options.workspace(looks=True)
    settings = notebook_settings(workspace.settings)
    async with workspace.store() as store:
        run = _of_notebook(await load(store, await workspace.run_id(store, run_id)))
        verified = await verify_run(run, settings, jupyter_kernel(settings))
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
    from detent.kernel.errors import ConfigurationError

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
    output: OutFile = None,
    no_kernel: Annotated[
        bool, typer.Option("--no-kernel", help="Write the cells without running them.")
    ] = False,
) -> int:
    """Play a file of actions into a scratch notebook; exit code 1 if a cell raises."""
    from detent.flows.notebook.commands.scratch import actions_of, play
    from detent.flows.notebook.settings import notebook_settings

    settings = notebook_settings(options.workspace().settings)
    notebook, raised = await play(
        actions_of(actions_file), actions_file.name, settings, execute=not no_kernel
    )
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
    from detent.kernel.errors import ConfigurationError, nearest

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
