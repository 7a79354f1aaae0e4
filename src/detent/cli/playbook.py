"""Commands about playbooks: `playbook new`, `check`, `diagram`, `step`; and what `run playbook` means."""

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
    from detent.runtime.playbook_step import StepTrial

NAME = "playbook"
"""As the FLOW of `detent run`: the playbook in the folder that follows."""

playbook = typer.Typer(
    help="Start, check, draw and try playbooks.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

made = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Start something of your own.")
"""The group `new`, for every kind of thing there is a beginning of."""

Folder = Annotated[
    str, typer.Argument(metavar="DIR", help="A playbook's folder, or its name under playbooks/.")
]


def add(app: typer.Typer) -> None:
    """Add the commands to the program."""
    app.add_typer(playbook, name=NAME, rich_help_panel="Look at flows")
    made.callback()(lambda: None)
    made.command(NAME)(new)
    app.add_typer(made, name="new", rich_help_panel="Start work")


# -- new ----------------------------------------------------------------------------------------------------

NEW = {
    "steps/01-sort-request.md": """\
---
name: 01-sort-request
description: Decide whether a request is answered now or put on the list.
version: 1.0.0
next:
  - {to: 02-answer-now, when: {urgent: true}, reason: urgent}
  - {to: 03-put-on-list, reason: can wait}
needs: [urgent]
call: []
---
You sort requests. Look at `urgent`, and at nothing else.

- It is true: the next step is 02-answer-now.
- Otherwise: the next step is 03-put-on-list.
""",
    "steps/02-answer-now.md": """\
---
name: 02-answer-now
description: Write a note that somebody is on the way.
version: 1.0.0
next: [DONE]
available_functions: [write_file]
needs: [id, name, wish]
outputs: [note]
effects:
  write_file:
    path: "out/{{id}}-now.txt"
    body: |
      Dear {{name}},

      we are on our way: {{wish}}.
    into: {note: path}
text_fields: {BODY: write_file.body}
---
You write to somebody whose request is urgent. Two sentences: that we are on our way, and what for.
""",
    "steps/03-put-on-list.md": """\
---
name: 03-put-on-list
description: Write a note that the request is on the list.
version: 1.0.0
next: [DONE]
available_functions: [write_file]
needs: [id, name, wish]
outputs: [note]
effects:
  write_file:
    path: "out/{{id}}-list.txt"
    body: |
      Dear {{name}},

      your request is on our list: {{wish}}.
    into: {note: path}
text_fields: {BODY: write_file.body}
---
You write to somebody whose request can wait. Two sentences: that it is on our list, and what it says.
""",
    "input.json": """\
{"id": "R-1", "name": "Ada", "wish": "the door does not close", "urgent": true}
""",
    "evals/urgent_001.yaml": """\
# path: 01 -> 02
scenario_id: urgent_001
description: An urgent request is answered now
category: sorting
input:
  data: {id: R-1, name: Ada, wish: the door does not close, urgent: true}
expected_output:
  expected_steps:
    - step_name: 01-sort-request
      next_step: 02-answer-now
    - {step_name: 02-answer-now, function_call: write_file, function_args: {path: out/R-1-now.txt}}
  status: succeeded
""",
}
"""A playbook to begin with, by file."""


@playbook.command("new")
def new(
    folder: Annotated[
        str, typer.Argument(metavar="DIR", help="The folder to make; it may not hold anything.")
    ],
) -> None:
    """Start a playbook of three small steps, ready to run.

    With a sample input and a case.
    """
    from detent.cli.output import clean, say
    from detent.kernel.errors import ConfigurationError
    from detent.runtime.trust import trusted_as_made

    place = Path(folder).expanduser()
    if place.exists() and not place.is_dir():
        raise ConfigurationError(f"{folder} is a file; name a folder that is new or empty.")
    try:
        if place.is_dir() and any(place.iterdir()):
            raise ConfigurationError(f"{folder} holds something already; name a folder that is new or empty.")
        with trusted_as_made(Path.cwd()):
            for name, text in NEW.items():
                file = place / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, encoding="utf-8")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is no usable path"
        raise ConfigurationError(f"{folder} cannot be written: {why}.") from None
    say(f"A playbook of three steps is in {clean(place)}. Try:")
    for line in (
        f"detent playbook check {_word(place)}",
        f"detent run playbook {_word(place)} --input {_word(place / 'input.json')}",
        f"detent eval {_word(place)}",
    ):
        say(f"  {line}")


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
    from detent.runtime.mcp import mcp_servers
    from detent.runtime.playbooks import find_playbook, problems_of

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
    from detent.insight.diagram import mermaid
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
    from detent.cli.values import read_sets
    from detent.cli.workspace import Workspace, run_async
    from detent.kernel.errors import ConfigurationError
    from detent.runtime.dispatching import dispatch_settings
    from detent.runtime.playbook_step import step_alone

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

    flow = workspace.catalog.pick(path_of(folder)).flow
    assert isinstance(flow, PlaybookFlow)
    return flow


def path_of(folder: str) -> str:
    """A playbook's folder in a form that every command takes for a path."""
    from detent.kernel.errors import ConfigurationError
    from detent.runtime.playbooks import find_playbook

    if ":" in folder:
        raise ConfigurationError(f"The path of a playbook has no colon: {folder}")
    here = Path.cwd()
    found = find_playbook(folder, here)
    shown = found.relative_to(here) if found.is_relative_to(here) else found
    return f"{shown.as_posix().rstrip('/')}/"


def started_from(folder: str | None, source: str | None, data: str | None) -> tuple[str, str | None]:
    """What `run playbook DIR` runs and starts from: the folder, and the input as JSON."""
    from detent.kernel.errors import ConfigurationError

    if folder is None:
        raise ConfigurationError("Say which playbook to run: detent run playbook DIR --input FILE")
    if source is not None and data is not None:
        raise ConfigurationError("--input and --data both say what to start from; say one of them.")
    path = path_of(folder)
    return path, data if source is None else _json(read_object(source, "--input"))


def read_object(said: str, option: str) -> Any:
    """The value of a JSON or YAML file; JSON itself, @file and - for standard input will do, too."""
    from detent.cli.values import read_json, read_text

    if said.lstrip().startswith(("{", "[")):
        return read_json(said, option)
    source = said.removeprefix("@")
    text = read_text(source, option)
    if Path(source).suffix.lower() not in (".yaml", ".yml"):
        return read_json(text, f"{option} {source}")
    from detent.authoring.document import read_value

    return read_value(text, f"{option} {source}")


def _word(path: Path) -> str:
    import shlex

    return shlex.quote(path.as_posix())
