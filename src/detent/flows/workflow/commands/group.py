"""Commands about workflow files: `workflow list`, `show`, `validate`, `viz`, `new`, `actions`.

`show`, `validate`, `viz` and `new` are the general commands for one kind; `run` has a module of its own.
"""

from __future__ import annotations

import enum
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from detent.cli import definitions
from detent.cli.new import begin
from detent.cli.options import Options, Output, Strict, takes
from detent.flows.workflow.commands.run import run
from detent.flows.workflow.kind import KIND, workflows_of

if TYPE_CHECKING:
    from detent.flows.workflow.library import Workflows
    from detent.flows.workflow.search_path import Listed

workflow = typer.Typer(
    help="List, show, check, draw, start and run workflow files.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Source(str, enum.Enum):
    """A place that is searched for workflow files."""

    project = "project"
    user = "user"
    builtin = "builtin"


workflow.command("run")(run)

Target = Annotated[str, typer.Argument(metavar="NAME", help="A workflow's name, or its file.")]


# -- list ---------------------------------------------------------------------------------------------------


@workflow.command("list")
@takes("format", "json", "config")
def list_(
    options: Options,
    source: Annotated[
        Source | None, typer.Option("--source", help="Only those of the project, the user or Detent itself.")
    ] = None,
) -> None:
    """List the workflows there are, and where they are from."""
    from detent.cli.output import clean, paint, say, say_plain, table

    workflows = workflows_of(options.workspace(looks=True).catalog)
    selected = [listed for listed in workflows.shelf.all() if source is None or listed.source == source.value]
    if not options.as_table:
        say_plain(
            [
                {
                    "name": listed.name,
                    "description": listed.description,
                    "source": listed.source,
                    "file": workflows.shown(listed.file),
                    "hidden_by": None if listed.hidden_by is None else workflows.shown(listed.hidden_by),
                    "rivals": [workflows.shown(path) for path in listed.rivals],
                    "problems": [problem.to_plain() for problem in listed.problems],
                }
                for listed in selected
            ],
            options.format,
        )
        return
    if not selected:
        say("There are no workflows here. Start one: detent workflow new NAME")
        return
    table(
        ("WORKFLOW", "SOURCE", "FILE", "DESCRIPTION"),
        [
            (
                listed.name,
                listed.source,
                listed.file.name if listed.source == Source.builtin.value else workflows.shown(listed.file),
                _remark(workflows, listed) or listed.description,
            )
            for listed in selected
        ],
    )
    for listed in selected:
        if any(problem.severity == "error" for problem in listed.problems):
            command = f"detent workflow validate {quote(workflows.shown(listed.file))}"
            say(paint(f"{clean(listed.name)} cannot be used as it stands. See: {command}", "yellow"))
    for clash in dict.fromkeys(listed.clash for listed in selected if listed.rivals):
        say(paint(f"{clean(clash)} Until then, name them by their paths.", "yellow"))
    for note in workflows.stand_ins():
        say(paint(clean(note), "yellow"))


def _remark(workflows: Workflows, listed: Listed) -> str:
    """Why a file is not found by its name; empty if it is found."""
    if listed.hidden_by is not None:
        return f"(hidden by {workflows.shown(listed.hidden_by)})"
    if listed.rivals:
        return f"(same name as {', '.join(workflows.shown(path) for path in listed.rivals)})"
    return ""


# -- the general commands -----------------------------------------------------------------------------------


@workflow.command("show")
@takes("format", "json", "plugin", "config")
def show(options: Options, name: Target) -> None:
    """Show a workflow: its inputs, and who performs each step."""
    definitions.show_definition(options, options.workspace(looks=True), name, kind=KIND)


@workflow.command("validate")
@takes("format", "json", "plugin", "config")
def validate(
    options: Options,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME_OR_FILE...", help="Workflows' names, or files.")
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Check every workflow there is.")] = False,
    strict: Strict = False,
) -> int:
    """Check workflow files: every problem at once, with its place."""
    from detent.kernel.errors import ConfigurationError

    if all_ == bool(names):
        raise ConfigurationError("Name the workflows to check, or pass --all: detent workflow validate NAME")
    return definitions.check_all(options, names or None, strict=strict, kind=KIND)


@workflow.command("viz")
@takes("store", "config")
async def viz(
    options: Options,
    name: Target,
    format: definitions.Pictures = definitions.Picture.ascii,
    direction: definitions.Directions = definitions.Direction.TD,
    output: Output = None,
    run: definitions.MarkedRun = None,
) -> None:
    """Draw a workflow, or the path that a run of it took."""
    await definitions.draw(options, name, format, direction=direction, output=output, run=run, kind=KIND)


@workflow.command("new")
@takes("config")
def new(
    options: Options,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Small letters, digits and -.")],
    template: Annotated[
        str | None, typer.Option("--template", metavar="NAME", help="linear, loop or agent.")
    ] = None,
) -> None:
    """Start a workflow from a commented file, ready to run."""
    begin(KIND, name, template, options.config)


# -- actions ------------------------------------------------------------------------------------------------


@workflow.command("actions")
@takes("format", "json", "plugin", "config")
def actions(
    options: Options,
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="One of them, with everything about it.")
    ] = None,
) -> None:
    """List what files can name: actions, agents, generators…"""
    from detent.cli.output import say_page, say_plain, table
    from detent.flows.workflow.description import registered, registered_fields
    from detent.kernel.errors import ConfigurationError, nearest

    entries = registered(workflows_of(options.workspace(looks=True).catalog).registry)
    chosen = [entry for entry in entries if name in (None, entry["name"])]
    if not chosen and name is not None:
        hint = nearest(name, [str(entry["name"]) for entry in entries])
        raise ConfigurationError(f"Nothing registered is named '{name}'.{hint} See: detent workflow actions")
    if not options.as_table:
        say_plain(chosen, options.format)
    elif name is not None:
        for entry in chosen:
            say_page(f"{entry['name']}   {entry['kind']}", registered_fields(entry))
    else:
        table(
            ("NAME", "KIND", "EFFECTS", "ORIGIN", "INTENT"),
            [
                (
                    entry["name"],
                    entry["kind"],
                    ", ".join(entry.get("effects") or ()) or "-",
                    entry["origin"] or "-",
                    entry.get("intent") or "-",
                )
                for entry in chosen
            ],
        )
