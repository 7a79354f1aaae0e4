"""The commands about playbooks: `playbook new`, `check`, `diagram`, `step`."""

from __future__ import annotations

import json as json_text
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from detent.cli import options

if TYPE_CHECKING:
    from detent.cli.workspace import Workspace
    from detent.flows.playbook.flow import PlaybookFlow
    from detent.flows.playbook.playbook import Playbook
    from detent.flows.playbook.trial import StepTrial

playbook = typer.Typer(
    help="Start, check, draw and try playbooks.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Folder = Annotated[
    str, typer.Argument(metavar="DIR", help="A playbook's folder, or its name under playbooks/.")
]


# -- new ----------------------------------------------------------------------------------------------------


@playbook.command("new")
def new(
    folder: Annotated[
        str, typer.Argument(metavar="DIR", help="The folder to make; it may not hold anything.")
    ],
) -> None:
    """Start a playbook of three small steps, ready to run.

    With a sample input and a case.
    """
    from detent.cli.new import begin
    from detent.flows.playbook.kind import KIND

    begin(KIND, folder)


# -- check --------------------------------------------------------------------------------------------------


@playbook.command("check")
def check(
    folder: Folder,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings count as errors.")] = False,
    json: options.Json = False,
    plugin: options.Plugins = None,
    config: options.Config = None,
) -> int:
    """Check a playbook: every problem of every file at once.

    Each is printed as `file:line:column: code message (path)`.
    """
    from detent.cli.output import clean, paint, say, say_json
    from detent.cli.workspace import Workspace
    from detent.flows.playbook.library import find_playbook, problems_of
    from detent.runtime.mcp import mcp_servers

    workspace = Workspace(None, config, plugin, looks=True)
    place = find_playbook(folder, workspace.settings.folder)
    servers = mcp_servers(workspace.settings) if workspace.settings.get("mcp") is not None else {}
    tools = [tool for server in servers.values() for tool in server.tools]
    found = problems_of(workspace.settings, place, tools=tools)
    errors = [problem for problem in found if strict or problem.severity == "error"]
    if json:
        say_json(
            {
                "playbook": folder,
                "ok": not errors,
                "problems": [problem.to_plain() for problem in found],
            }
        )
        return 2 if errors else 0
    for problem in found:
        said = clean(str(problem))
        say(paint(said, "yellow") if problem.severity == "warning" else said)
    if errors:
        return 2
    flow = _flow(workspace, folder)
    steps = len(flow.playbook.steps)
    warned = f", {len(found)} warning{'s' * (len(found) > 1)}" if found else ""
    say(f"{clean(flow.name)}: {paint('ok', 'green')}, {steps} step{'s' * (steps != 1)}{warned}")
    return 0


# -- diagram ------------------------------------------------------------------------------------------------


@playbook.command("diagram")
def diagram(
    folder: Folder,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write it there; .md with a frame.")
    ] = None,
    write: Annotated[
        bool, typer.Option("--write", help="Write it as WORKFLOW.md among the playbook's files.")
    ] = False,
    plugin: options.Plugins = None,
    config: options.Config = None,
) -> None:
    """Draw a playbook as a Mermaid diagram."""
    from detent.authoring.problem import DocumentError
    from detent.cli.flows import _write
    from detent.cli.workspace import Workspace
    from detent.flows.playbook.playbook import read_playbook
    from detent.insight.diagram.diagram import mermaid
    from detent.kernel.errors import ConfigurationError
    from detent.runtime.trust import trusted_as_made

    if write and output is not None:
        raise ConfigurationError("--write names the file itself; leave out --output.")
    try:
        playbook = _flow(Workspace(None, config, plugin, looks=True), folder).playbook
    except DocumentError as error:
        # What handlers and tools are there makes no difference to a drawing: an application brings its own.
        if any(problem.code not in ("P14", "P16") for problem in error.problems):
            raise
        playbook, _ = read_playbook(folder)
    drawn = mermaid(drawing_of(playbook))
    if write:
        output = playbook.loader.folder.root / "WORKFLOW.md"
        output = output.relative_to(Path.cwd()) if output.is_relative_to(Path.cwd()) else output
    with trusted_as_made(Path.cwd(), config):
        _write(page_of(playbook, drawn) if output is not None and output.suffix == ".md" else drawn, output)


def drawing_of(playbook: Playbook) -> dict[str, Any]:
    """The table of a playbook as its files say it: without the ends every step may be led to."""
    from detent.flows.playbook.table import machine_of

    manifest, edges = playbook.manifest, playbook.edges
    table = machine_of(manifest.name, manifest.version, playbook.start, edges).describe()
    table["moves"] = {
        state: [move for move in row if any(move["to"] == edge.to for edge in edges.get(state, ()))]
        for state, row in table["moves"].items()
    }
    reached = {move["to"] for row in table["moves"].values() for move in row}
    table["ends"] = {end: status for end, status in table["ends"].items() if end in reached}
    table["states"] = [state for state in table["states"] if state in table["moves"] or state in reached]
    return table


def page_of(playbook: Playbook, drawn: str) -> str:
    """A page with the drawing and what each step is for."""
    rows = [f"| `{step.id}` | {step.description} |" for step in playbook.steps.values()]
    return "\n".join(
        [
            f"# {playbook.manifest.name}",
            "",
            "Drawn from the step files by `detent playbook diagram`.",
            "",
            "```mermaid",
            drawn.rstrip("\n"),
            "```",
            "",
            "| Step | What it is for |",
            "|---|---|",
            *rows,
            "",
            "Every step may also be led to `graceful-degradation` and `FAILED`.",
            "",
        ]
    )


# -- step ---------------------------------------------------------------------------------------------------


@playbook.command("step")
def step(
    folder: Folder,
    step_id: Annotated[str, typer.Argument(metavar="ID", help="The step: id, alias, or how it begins.")],
    data: Annotated[
        str | None,
        typer.Option("--data", metavar="FILE", help="The data it finds: a JSON or YAML file, JSON, or -."),
    ] = None,
    set_: options.Set = None,
    deterministic: options.Deterministic = False,
    json: options.Json = False,
    plugin: options.Plugins = None,
    config: options.Config = None,
    verbose: options.Verbose = 0,
    log_level: options.LogLevel = None,
) -> int:
    """Try one step alone.

    Queries are asked, effects are shown and not performed, nothing is kept.
    """
    from detent.cli.output import say_json
    from detent.cli.values import read_object, read_sets
    from detent.cli.workspace import Workspace, run_async
    from detent.flows.playbook.trial import step_alone
    from detent.kernel.errors import ConfigurationError
    from detent.runtime.dispatch_settings import dispatch_settings

    workspace = Workspace(None, config, plugin)
    workspace.log(verbose, log_level)
    found = read_object(data, "--data") if data is not None else {}
    if not isinstance(found, dict):
        raise ConfigurationError("--data: a step works on a JSON object of names and values.")
    flow = _flow(workspace, folder)
    dispatch = dispatch_settings(workspace.settings, [flow], deterministic=deterministic, complete=False)
    trial = run_async(step_alone(flow, step_id, {**found, **read_sets(set_)}, dispatch=dispatch))
    if json:
        say_json(trial.to_plain())
    else:
        _tell(trial)
    return 1 if trial.error is not None else 0


def _tell(trial: StepTrial) -> None:
    from detent.cli.output import clean, fields, paint, say

    head = f"{paint(trial.step_name, bold=True)}   {trial.mode}"
    say(head + (f", the agent's answer was not used: {trial.fallback}" if trial.fallback else ""))
    why = f"   ({clean(trial.reason)})" if trial.reason else ""
    following = trial.next_step or ("waits" if trial.question else "not known before the effects are done")
    if trial.error is not None and trial.next_step is None:
        following = "none"
    fields(
        [
            ("next", f"{clean(following)}{why}"),
            ("error", clean(trial.error) if trial.error else ""),
            ("question", clean(trial.question) if trial.question else ""),
            ("missing", ", ".join(trial.missing)),
            *((f"set {clean(key)}", clean(_json(value))) for key, value in trial.changes.items()),
            *(
                (f"asked {one.function_name}", clean(f"{_json(one.arguments)} → {_answer(one)}"))
                for one in trial.queries
            ),
            *(
                (f"proposed {one.function_name}", clean(f"{_json(one.arguments)}   (not performed)"))
                for one in trial.effects
            ),
        ]
    )
    if trial.text:
        say()
        for line in trial.text.split("\n"):
            say(clean(line))


def _answer(one: Any) -> str:
    return _json(one.result) if one.success else f"failed: {one.error_message}"


def _json(value: Any) -> str:
    return json_text.dumps(value, ensure_ascii=False)


# -- what the others need -----------------------------------------------------------------------------------


def _flow(workspace: Workspace, folder: str) -> PlaybookFlow:
    """The flow of a folder, checked."""
    from detent.flows.playbook.flow import PlaybookFlow
    from detent.flows.playbook.kind import KIND

    flow = workspace.pick_definition(KIND, folder).flow
    assert isinstance(flow, PlaybookFlow)
    return flow
