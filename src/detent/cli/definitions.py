"""Commands about definitions of every kind: `flows`, `check`, `diagram`, `step`, and `show` of a definition.

The commands of a kind that mean the same call the functions here with that kind.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from detent.cli.options import Columns, Options, Output, Set, StepData, Strict, cells_of, takes

if TYPE_CHECKING:
    from detent.authoring.problem import Problem
    from detent.cli.workspace import Definition, Workspace
    from detent.kernel.errors import ConfigurationError
    from detent.runtime.catalog import Found
    from detent.runtime.plugs import Checked, Description, Drawing, Kind
    from detent.runtime.trial import Trial

SECTION = "Look at flows"
SETTINGS = "the settings"
"""Name under which problems of the settings are reported."""


def add(app: typer.Typer) -> None:
    """Add the commands to the program."""
    for command in (flows, check, diagram, step):
        app.command(rich_help_panel=SECTION)(command)


@takes("json", "plugin", "config")
def flows(options: Options) -> None:
    """List the flows that can be run here."""
    rows = [
        {
            "name": flow.name,
            "description": flow.description,
            "version": flow.machine.version,
            "fingerprint": flow.fingerprint,
            "states": [flow.machine.named(state) for state in flow.machine.states],
            "place": place,
        }
        for flow, place in _project_flows(options.workspace(looks=True))
    ]
    columns: Columns = {
        "FLOW": "name",
        "VERSION": "version",
        "STATES": lambda row: str(len(row["states"])),
        "FROM": "place",
        "DESCRIPTION": lambda row: row["description"],
    }
    empty = "No flows are known here. Run one from a file (detent run file.py), or list it under `plugins:`."
    options.print_rows(rows, columns, empty=empty, right=(1, 2))


def _project_flows(workspace: Workspace) -> list[Found]:
    """Flows made by code, the definitions of the project and the user, and the applications that the project
    is set up for; a definition that cannot be used is reported."""
    from detent.cli.output import warn
    from detent.runtime.catalog import Found
    from detent.runtime.plugs import apps

    catalog = workspace.catalog
    flows = catalog.all()
    for definitions in catalog.every_definitions():
        for family, shipped in definitions.all(warn):
            if not shipped:
                flows.setdefault(family[0].name, Found(family[0], f"{definitions.kind.name}s"))
    for app in apps():
        for name in app.flows if app.configured(workspace.settings) else ():
            flows[name] = catalog.get(name)
    return [flows[name] for name in sorted(flows)]


# -- check --------------------------------------------------------------------------------------------------


@takes("format", "json", "plugin", "config")
def check(
    options: Options,
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FLOW|FILE]...",
            help="What to check; when left out, everything in the project but Python files that are not "
            "under `plugins`.",
        ),
    ] = None,
    strict: Strict = False,
) -> int:
    """Check definitions: every problem at once."""
    return check_all(options, targets, strict=strict)


def check_all(
    options: Options, targets: Iterable[str] | None, *, strict: bool = False, kind: Kind | None = None
) -> int:
    """Check definitions and print the results; without targets everything of a kind, or every known flow."""
    from detent.cli.output import say, say_plain

    workspace = options.workspace(looks=True)
    results = list(_checked(workspace, targets, kind))
    if kind is None and not any(checked.name == SETTINGS for _, checked in results):
        results += _settings_checked(workspace)
    refused = [_refused(checked, strict) for _, checked in results]
    if not options.as_table:
        say_plain(
            [
                {
                    "target": target,
                    "flow": checked.name or None,
                    "place": checked.place or None,
                    "steps": checked.steps,
                    "ok": not bad,
                    "problems": [problem.to_plain() for problem in checked.problems],
                }
                for (target, checked), bad in zip(results, refused, strict=True)
            ],
            options.format,
        )
    elif not results:
        say("There is nothing to check: no flow or definition is known here.")
    else:
        for (_, checked), bad in zip(results, refused, strict=True):
            _print_checked(checked, bad)
    return 2 if any(refused) else 0


def _checked(
    workspace: Workspace, targets: Iterable[str] | None, kind: Kind | None
) -> Iterable[tuple[str, Checked]]:
    from detent.kernel.errors import ConfigurationError
    from detent.runtime.catalog import shortened
    from detent.runtime.plugs import Checked, checked_flow

    if targets is None:
        yield from _everything_checked(workspace, kind)
        return
    by_kind: dict[str, dict[Path, str]] = {}
    for target in targets:
        try:
            definition = workspace.definition(target, kind)
            if definition is not None:
                by_kind.setdefault(definition.definitions.kind.name, {}).setdefault(definition.path, target)
                continue
            sources = workspace.catalog.sources(target)
        except ConfigurationError as error:
            if kind is not None:
                raise
            yield target, Checked(shortened(target), _located(error))
        else:
            for flow, place in sources:
                yield target, checked_flow(flow, workspace.catalog)._replace(place=place)
    for definitions in workspace.catalog.every_definitions():
        meant = by_kind.get(definitions.kind.name, {})
        results: list[Checked] = definitions.check(list(meant)) if meant else []
        yield from zip([*meant.values(), *("" for _ in results)], results, strict=False)


def _everything_checked(workspace: Workspace, kind: Kind | None) -> Iterable[tuple[str, Checked]]:
    """Check every definition of a kind; or every definition of the project or the user, even if only its path
    or `plugins` find it, every flow made by code, and the applications that the project is set up for."""
    from detent.kernel.errors import ConfigurationError
    from detent.runtime.plugs import Checked, apps, checked_flow

    catalog, settings = workspace.catalog, workspace.settings
    seen: set[Path] = set()
    for definitions in catalog.every_definitions() if kind is None else [catalog.definitions(kind)]:
        paths = list(definitions.paths(shipped=kind is not None))
        paths += [path for path in definitions.loose() if path not in paths] if kind is None else []
        seen.update(path.resolve() for path in paths)
        for checked in definitions.check(paths) if paths or kind is not None else ():
            yield checked.place or checked.name, checked
    if kind is not None:
        return
    for name, (flow, place) in catalog.all().items():
        made_of = catalog.kind_of(name)
        if made_of is None:
            yield name, checked_flow(flow, catalog)._replace(place=place)
            continue
        definitions, path = catalog.definitions(made_of), (settings.folder / place).resolve()
        if path not in seen and definitions.claims(path):  # `plugins` names it, and nothing else finds it
            seen.add(path)
            for checked in definitions.check([path]):
                yield place, checked if checked.place else checked._replace(place=place)
    for app in apps():
        for name in app.flows if app.configured(settings) else ():
            try:
                flow, place = catalog.get(name)
                yield name, checked_flow(flow, catalog)._replace(place=place)
            except ConfigurationError as error:
                yield name, Checked(name, _located(error))


def _settings_checked(workspace: Workspace) -> Iterable[tuple[str, Checked]]:
    """What the settings say about steps, of every flow there is."""
    from detent.authoring.problem import problems_of
    from detent.runtime.plugs import Checked
    from detent.runtime.settings import SettingsError

    try:
        workspace.dispatch()
    except SettingsError as error:
        yield "", Checked(SETTINGS, problems_of(error))


def _located(error: ConfigurationError) -> list[Problem]:
    """The problems of an error; those of a table in a Python file at the line that makes it."""
    from detent.authoring.problem import NOWHERE, Place, problems_of

    file, line = getattr(error, "file", None), getattr(error, "line", None)
    place = Place(file, line) if file and line else NOWHERE
    return [
        problem._replace(place=place) if problem.code and problem.place == NOWHERE else problem
        for problem in problems_of(error)
    ]


def _refused(checked: Checked, strict: bool) -> bool:
    return any(strict or problem.severity == "error" for problem in checked.problems)


def _print_checked(checked: Checked, refused: bool) -> None:
    """Print the problems of a definition, then a summary."""
    from detent.cli.output import clean, paint, say
    from detent.insight.formatting import count

    for problem in checked.problems:
        text = clean(problem)
        say(text if problem.severity == "error" else paint(text, "yellow"))
    warnings = sum(problem.severity == "warning" for problem in checked.problems)
    errors = len(checked.problems) - warnings
    counts = [count(number, word) for number, word in ((errors, "error"), (warnings, "warning")) if number]
    if refused:
        say(f"{clean(checked.name)}: {paint(', '.join(counts), 'red')}")
    else:
        summary = [paint("ok", "green"), count(checked.steps, "step"), *counts]
        say(f"{clean(checked.name)}: {', '.join(summary)}")
    for note in checked.notes:
        say(paint(clean(note), "yellow"))


# -- show ---------------------------------------------------------------------------------------------------


def show_definition(options: Options, workspace: Workspace, target: str, *, kind: Kind | None = None) -> None:
    """Print the parts of a definition, or of a flow made by code."""
    from detent.cli.output import say_page, say_plain

    definition = workspace.definition(target, kind)
    description = None if definition is None else definition.definitions.describe(definition.path)
    if description is None:
        description = _described(workspace, target, definition)
    if options.as_table:
        say_page(description.title, description.fields, description.tables, description.remarks)
    else:
        say_plain(description.plain, options.format)


def _described(workspace: Workspace, target: str, definition: Definition | None) -> Description:
    """A flow and its steps."""
    from detent.cli.steps import COLUMNS, StepBook
    from detent.runtime.plugs import Description

    flow, place = workspace.pick(target, definition)
    machine = flow.machine
    book = StepBook(workspace, place if definition is not None else target)
    rows = [book.row(named) for named in book.steps if named.flow.name == flow.name]
    plain = {
        "flow": flow.name, "description": flow.description, "version": machine.version,
        "fingerprint": flow.fingerprint, "place": place,
        "states": [machine.named(state) for state in machine.states], "steps": rows,
    }  # fmt: skip
    fields = [("description", flow.description), ("version", str(machine.version)), ("from", place)]
    return Description(plain, flow.name, fields, [(list(COLUMNS), cells_of(rows, COLUMNS))])


# -- diagram ------------------------------------------------------------------------------------------------


class Picture(str, enum.Enum):
    """Format of a diagram."""

    mermaid = "mermaid"
    svg = "svg"
    ascii = "ascii"


class Direction(str, enum.Enum):
    """Direction of a flowchart."""

    TD = "TD"
    LR = "LR"


Pictures = Annotated[Picture, typer.Option("--format", help="mermaid (text), svg (a picture) or ascii.")]
Directions = Annotated[
    Direction, typer.Option("--direction", help="Of a flowchart: TD, downwards, or LR, to the right.")
]
MarkedRun = Annotated[
    str | None, typer.Option("--run", metavar="RUN", help="Mark the path a run of it took.")
]


@takes("project")
async def diagram(
    options: Options,
    target: Annotated[
        str, typer.Argument(metavar="FLOW|RUN", help="A flow, file.py, or a run, whose path is marked.")
    ],
    format: Pictures = Picture.mermaid,
    direction: Directions = Direction.TD,
    output: Output = None,
    run: MarkedRun = None,
) -> None:
    """Draw a flow, or the path of a run through it."""
    await draw(options, target, format, direction=direction, output=output, run=run)


async def draw(
    options: Options,
    target: str,
    format: Picture,
    *,
    direction: Direction = Direction.TD,
    output: Path | None = None,
    run: str | None = None,
    kind: Kind | None = None,
) -> None:
    """Draw a definition, a flow made by code, or the path of a run."""
    from detent.cli.output import columns, write
    from detent.runtime.plugs import Drawing, draw_machine

    workspace = options.workspace(looks=True)
    page = output is not None and output.suffix == ".md"
    drawing = Drawing(format.value, direction.value, columns() if output is None else None, page)
    definition = workspace.definition(target, kind)
    source = workspace.catalog.find(target) if definition is None else None
    if definition is not None:
        definitions, path = definition.definitions, definition.path
        if run is not None:
            taken = await _taken(workspace, definition, run, definitions.name_of(path))
            drawing = drawing._replace(taken=taken)
        write(definitions.draw(path, drawing), output)
    elif source is not None:
        if run is not None:
            drawing = drawing._replace(taken=await _taken(workspace, None, run, source.flow.name))
        write(draw_machine(source.flow.machine.describe(), drawing), output)
    else:
        write(await _drawn_run(workspace, target, drawing), output)


async def _taken(workspace: Workspace, definition: Definition | None, run: str, flow: str) -> Any:
    """The path that a run of a flow took."""
    from detent.kernel.errors import ConfigurationError
    from detent.runtime.plugs import path_taken

    async with workspace.store() as store:
        row = await store.row(await workspace.run_id(store, run))
        if row.flow != flow:
            raise ConfigurationError(
                f"Run {row.id} is a run of '{row.flow}', not of '{flow}'. "
                f"See: {workspace.command('runs', '--flow', flow)}"
            )
        if definition is None:
            return await path_taken(store, row.id)
        return await definition.definitions.taken(definition.path, store, row.id)


async def _drawn_run(workspace: Workspace, target: str, drawing: Drawing) -> str:
    """The table a run was started under, with the run's path."""
    from detent.cli.workspace import definition
    from detent.kernel.errors import RunNotFound, StoreUnavailable
    from detent.runtime.plugs import draw_machine, path_taken

    try:
        async with workspace.store() as store:
            run_id = await workspace.run_id(store, target)
            table, taken = await definition(store, run_id), await path_taken(store, run_id)
    except (RunNotFound, StoreUnavailable) as error:
        raise workspace.nothing_found(target, error) from None
    return draw_machine(table, drawing._replace(taken=taken))


# -- step ---------------------------------------------------------------------------------------------------


@takes("deterministic", "json", "plugin", "config", "log")
async def step(
    options: Options,
    flow: Annotated[str, typer.Argument(metavar="FLOW", help="A flow's name, file.py, or a definition.")],
    name: Annotated[str, typer.Argument(metavar="STEP", help="The step.")],
    data: StepData = None,
    set_: Set = None,
) -> int:
    """Try one step alone.

    Queries are asked, effects are shown and not performed, nothing is kept.
    """
    return await try_step(options, flow, name, data, set_)


async def try_step(
    options: Options,
    target: str,
    step: str,
    data: str | None,
    sets: list[str] | None,
    *,
    kind: Kind | None = None,
) -> int:
    """Perform one step of a definition, or of a flow made by code, and print what it would do."""
    from detent.cli.output import clean, say, say_json, say_page
    from detent.cli.values import read_object, read_sets
    from detent.kernel.errors import ConfigurationError
    from detent.runtime import trial as trials
    from detent.runtime.dispatch_settings import dispatch_settings

    workspace = options.workspace()
    base = read_object(data, "--data") if data is not None else {}
    if not isinstance(base, dict):
        raise ConfigurationError("--data: a step works on a JSON object of names and values.")
    values = {**base, **read_sets(sets)}
    definition = workspace.definition(target, kind)
    flow = workspace.pick(target, definition).flow
    dispatch = dispatch_settings(
        workspace.settings, [flow], deterministic=options.deterministic, complete=False
    )
    attempt = trials.try_step if definition is None else definition.definitions.try_step
    trial: Trial = await attempt(flow, step, values, dispatch=dispatch)
    if options.json:
        say_json(trial.to_plain())
    else:
        say_page(clean(trial.title), ((name, clean(value)) for name, value in trial.fields()))
        for line in trial.text.splitlines():
            say(clean(line))
    return 1 if trial.error is not None else 0
