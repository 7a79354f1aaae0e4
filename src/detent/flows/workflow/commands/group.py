"""Commands about workflow files: `workflow list`, `show`, `validate`, `viz`, `new`, `actions`.

Running one is in `workflow_run`.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand

from detent.cli import options
from detent.cli.options import Format

if TYPE_CHECKING:
    from detent.authoring.problem import Problem
    from detent.cli.workspace import Workspace
    from detent.flows.workflow.library import Workflows
    from detent.flows.workflow.shelf import Listed
    from detent.flows.workflow.spec import WorkflowSpec

RUNNING = "detent.flows.workflow.commands.run"
"""The module whose `run` is the command `workflow run`; loaded when it is asked for."""

workflow = typer.Typer(
    help="List, show, check, draw, start and run workflow files.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Source(str, enum.Enum):
    """Where workflow files are looked for."""

    project = "project"
    user = "user"
    builtin = "builtin"


class Drawing(str, enum.Enum):
    """How a workflow is drawn."""

    ascii = "ascii"
    mermaid = "mermaid"


class Direction(str, enum.Enum):
    """Which way a flowchart runs."""

    TD = "TD"
    LR = "LR"


class Starter(str, enum.Enum):
    """What to start from."""

    linear = "linear"
    loop = "loop"
    agent = "agent"


class Later(TyperCommand):
    """A command whose options and body are in a module of its own, loaded when it is called."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Read the command line."""
        from importlib import import_module

        from typer.main import get_command

        own = typer.Typer(add_completion=False, rich_markup_mode=None)
        own.command(context_settings={"help_option_names": ["-h", "--help"]})(import_module(RUNNING).run)
        return get_command(own).make_context(info_name, args, parent, **extra)


@workflow.command("run", cls=Later)
def run() -> None:
    """Run a workflow, or go on with an unfinished run of it."""


class _Desk:
    """What these commands look at."""

    def __init__(
        self, config: str | None, plugins: list[str] | None = None, store: str | None = None
    ) -> None:
        from detent.cli.workspace import Workspace
        from detent.flows.workflow.kind import workflows_of

        self.workspace = Workspace(store, config, plugins, looks=True)
        self.settings = self.workspace.settings
        self.workflows = workflows_of(self.workspace.catalog)
        self.shelf = self.workflows.shelf

    def find(self, name: str) -> Path:
        """The file of a name or path."""
        return self.shelf.find(name, self.settings.folder)

    def spec(self, name: str) -> tuple[Path, WorkflowSpec]:
        """A workflow as its file says it; `DocumentError` with all problems of its shape."""
        file = self.find(name)
        return file, self.shelf.spec(str(file), self.settings.folder)

    def shown(self, file: Path) -> str:
        """A file for people: from the working folder, or from the home folder, where it is in one of them."""
        for folder, lead in ((self.settings.folder, ""), (Path.home(), "~/")):
            if file.is_relative_to(folder):
                return lead + file.relative_to(folder).as_posix()
        return str(file)


Target = Annotated[str, typer.Argument(metavar="NAME", help="A workflow's name, or its file.")]


# -- list ---------------------------------------------------------------------------------------------------


@workflow.command("list")
def list_(
    source: Annotated[
        Source | None, typer.Option("--source", help="Only those of the project, the user or Detent itself.")
    ] = None,
    format: options.Formats = Format.table,
    json: options.Json = False,
    config: options.Config = None,
) -> None:
    """List the workflows there are, and where they are from."""
    from detent.cli.output import clean, paint, say, say_plain, table

    desk = _Desk(config)
    found = [one for one in desk.shelf.all() if source is None or one.source == source.value]
    if json or format is not Format.table:
        say_plain(
            [
                {
                    "name": one.name,
                    "description": one.description,
                    "source": one.source,
                    "file": desk.shown(one.file),
                    "hidden_by": None if one.hidden_by is None else desk.shown(one.hidden_by),
                    "rivals": [desk.shown(path) for path in one.rivals],
                    "problems": [problem.to_plain() for problem in one.problems],
                }
                for one in found
            ],
            format,
        )
        return
    if not found:
        say("There are no workflows here. Start one: detent workflow new NAME")
        return
    table(
        ("WORKFLOW", "SOURCE", "FILE", "DESCRIPTION"),
        [
            (
                one.name,
                one.source,
                one.file.name if one.source == Source.builtin.value else desk.shown(one.file),
                _remark(desk, one) or one.description,
            )
            for one in found
        ],
    )
    for one in found:
        if any(problem.severity == "error" for problem in one.problems):
            command = f"detent workflow validate {_word(desk.shown(one.file))}"
            say(paint(f"{clean(one.name)} cannot be used as it stands. See: {command}", "yellow"))
    for clash in dict.fromkeys(one.clash for one in found if one.rivals):
        say(paint(f"{clean(clash)} Until then they go by their paths.", "yellow"))
    for note in _notes(desk):
        say(paint(clean(note), "yellow"))


def _notes(desk: _Desk, specs: Iterable[WorkflowSpec] | None = None) -> list[str]:
    return stand_ins(desk.workflows, specs)


def stand_ins(workflows: Workflows, specs: Iterable[WorkflowSpec] | None = None) -> list[str]:
    """Which of the project's own things stand in for shipped ones, as far as these workflows name them."""
    from detent.flows.workflow.registry import named_by

    used = None if specs is None else {name for spec in specs for name in named_by(spec)}
    return [
        f"Note: the {kind} '{one.name}' is the project's own ({one.origin}), in place of the one that ships."
        for kind, one in workflows.registry.stand_ins
        if used is None or (kind, one.name) in used
    ]


def _remark(desk: _Desk, one: Listed) -> str:
    """Why a file is not found by its name; empty when it is."""
    if one.hidden_by is not None:
        return f"(hidden by {desk.shown(one.hidden_by)})"
    if one.rivals:
        return f"(same name as {', '.join(desk.shown(path) for path in one.rivals)})"
    return ""


# -- show ---------------------------------------------------------------------------------------------------


@workflow.command("show")
def show(
    name: Target,
    format: options.Formats = Format.table,
    json: options.Json = False,
    plugin: options.Plugins = None,
    config: options.Config = None,
) -> None:
    """Show a workflow: its inputs, and who performs each step."""
    from detent.cli.output import say_plain
    from detent.flows.workflow.commands.show import described, tell

    desk = _Desk(config, plugin)
    file, spec = desk.spec(name)
    found = described(spec, desk.shown(file), desk.settings, desk.workflows.registry)
    if not json and format is Format.table:
        tell(found)
    else:
        say_plain(found, format)


# -- validate -----------------------------------------------------------------------------------------------


@workflow.command("validate")
def validate(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME_OR_FILE...", help="Workflows' names, or files.")
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Check every workflow there is.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings count as errors.")] = False,
    format: options.Formats = Format.table,
    json: options.Json = False,
    plugin: options.Plugins = None,
    config: options.Config = None,
) -> int:
    """Check workflow files: every problem at once, with its place."""
    from detent.cli.output import clean, paint, say, say_plain
    from detent.kernel.errors import ConfigurationError

    if all_ == bool(names):
        raise ConfigurationError("Say which workflows to check, or --all: detent workflow validate NAME")
    desk = _Desk(config, plugin)
    shelf = desk.shelf.all()
    files = [one.file for one in shelf] if all_ else [desk.find(name) for name in names or ()]
    results: list[_Result] = []
    for file in dict.fromkeys(files):
        spec, problems = desk.workflows.check(file)
        clashes = [_clash(one, spec) for one in shelf if one.file == file and one.rivals]
        results.append(_Result(spec, desk.shown(file), [*clashes, *problems], strict))
    specs = [result.spec for result in results if result.spec is not None]
    beside = desk.workflows.settings_problems(specs)
    if beside:
        results.append(_Result(None, "the settings", beside, strict))
    if not json and format is Format.table:
        _tell(results)
        for note in _notes(desk, specs):
            say(paint(clean(note), "yellow"))
    else:
        say_plain([result.plain for result in results], format)
    return 2 if any(result.refused for result in results) else 0


def _clash(one: Listed, spec: WorkflowSpec | None) -> Problem:
    """That a file cannot be found by its name, since another has the same."""
    from detent.authoring.problem import Place, Problem

    place = spec.places.get("name", spec.place) if spec is not None else Place(str(one.file), 1)
    return Problem("E005", one.clash, Place(*place[:3]), "name")


class _Result(NamedTuple):
    """What checking one file gave."""

    spec: WorkflowSpec | None
    file: str
    problems: Sequence[Problem]
    strict: bool

    @property
    def refused(self) -> bool:
        return any(problem.severity == "error" or self.strict for problem in self.problems)

    @property
    def plain(self) -> dict[str, Any]:
        return {
            "workflow": self.spec.name or None if self.spec is not None else None,
            "file": self.file,
            "ok": not self.refused,
            "problems": [problem.to_plain() for problem in self.problems],
        }


def _tell(results: Sequence[_Result]) -> None:
    """Print what checking gave: problems first, then what they come to."""
    from detent.cli.output import clean, paint, say

    for result in results:
        for problem in result.problems:
            said = clean(problem)
            say(said if problem.severity == "error" else paint(said, "yellow"))
        shown = clean((result.spec.name if result.spec is not None else "") or result.file)
        warnings = sum(problem.severity == "warning" for problem in result.problems)
        errors = len(result.problems) - warnings
        counts = [
            f"{many} {word}{'s' * (many != 1)}"
            for many, word in ((errors, "error"), (warnings, "warning"))
            if many
        ]
        if result.refused:
            say(f"{shown}: {paint(', '.join(counts), 'red')}")
        else:
            steps = sum(1 for _ in result.spec.every_step()) if result.spec is not None else 0
            say(", ".join([f"{shown}: {paint('ok', 'green')}", f"{steps} step{'s' * (steps != 1)}", *counts]))
    if not results:
        say("There is nothing to check. Start a workflow: detent workflow new NAME")


# -- viz ----------------------------------------------------------------------------------------------------


@workflow.command("viz")
def viz(
    name: Target,
    format: Annotated[Drawing, typer.Option("--format", help="ascii (text) or mermaid.")] = Drawing.ascii,
    direction: Annotated[
        Direction, typer.Option("--direction", help="Of a flowchart: TD, downwards, or LR, to the right.")
    ] = Direction.TD,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write it there.")
    ] = None,
    run: Annotated[
        str | None, typer.Option("--run", metavar="RUN", help="Mark the path a run of it took.")
    ] = None,
    store: options.Store = None,
    config: options.Config = None,
) -> None:
    """Draw a workflow, or the path that a run of it took."""
    from detent.cli.flows import _write
    from detent.cli.output import columns
    from detent.cli.workspace import run_async
    from detent.flows.workflow import drawing

    desk = _Desk(config, store=store)
    _, spec = desk.spec(name)
    path = None if run is None else run_async(_taken(desk.workspace, run, spec))
    if format is Drawing.mermaid:
        text = drawing.mermaid(spec, direction.value, path)
    else:
        room = columns() if output is None else None
        text = drawing.ascii(spec, path, width=max(40, room) if room is not None else drawing.WIDTH)
    _write(text, output)


async def _taken(workspace: Workspace, said: str, spec: WorkflowSpec) -> dict[str, str]:
    """What became of each step in a run."""
    from detent.flows.workflow.results import path_taken
    from detent.kernel.errors import ConfigurationError

    async with workspace.store() as store:
        row = await store.row(await workspace.run_id(store, said))
        if row.flow != spec.name:
            raise ConfigurationError(
                f"Run {row.id} is a run of '{row.flow}', not of '{spec.name}'. "
                f"See: {workspace.command('runs', '--flow', spec.name)}"
            )
        return await path_taken(store, spec, row.id)


# -- new ----------------------------------------------------------------------------------------------------


@workflow.command("new")
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Small letters, digits and -.")],
    template: Annotated[Starter, typer.Option("--template", help="linear, loop or agent.")] = Starter.linear,
    config: options.Config = None,
) -> None:
    """Start a workflow from a commented file, ready to run."""
    from detent.cli.new import begin
    from detent.flows.workflow.kind import KIND

    begin(KIND, name, template.value, config)


# -- actions ------------------------------------------------------------------------------------------------


@workflow.command("actions")
def actions(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="One of them, with everything about it.")
    ] = None,
    format: options.Formats = Format.table,
    json: options.Json = False,
    plugin: options.Plugins = None,
    config: options.Config = None,
) -> None:
    """List what files can name: actions, agents, generators…"""
    from detent.cli.output import say_plain, table
    from detent.flows.workflow.commands.show import registered, tell_registered
    from detent.kernel.errors import ConfigurationError, nearest

    found = registered(_Desk(config, plugin).workflows.registry)
    if name is not None:
        chosen = [one for one in found if one["name"] == name]
        if not chosen:
            hint = nearest(name, [str(one["name"]) for one in found])
            raise ConfigurationError(
                f"Nothing registered is named '{name}'.{hint} See: detent workflow actions"
            )
        if not json and format is Format.table:
            tell_registered(chosen)
        else:
            say_plain(chosen, format)
    elif json or format is not Format.table:
        say_plain(found, format)
    else:
        table(
            ("NAME", "KIND", "EFFECTS", "ORIGIN", "INTENT"),
            [
                (
                    one["name"],
                    one["kind"],
                    ", ".join(one.get("effects") or ()) or "-",
                    one["origin"] or "-",
                    one.get("intent") or "-",
                )
                for one in found
            ],
        )


# -- what the others need -----------------------------------------------------------------------------------


def _word(text: str) -> str:
    import shlex

    return shlex.quote(text)
