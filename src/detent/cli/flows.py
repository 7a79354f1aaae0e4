"""Commands about definitions: `flows`, `check`, `diagram`."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from detent.cli import options

if TYPE_CHECKING:
    from detent.authoring.problem import Problem
    from detent.cli.workspace import Workspace

SECTION = "Look at flows"


def add(app: typer.Typer) -> None:
    """Add the commands to the program."""
    for command in (flows, check, diagram):
        app.command(rich_help_panel=SECTION)(command)


def flows(
    json: options.Json = False,
    plugin: options.Plugins = None,
    config: options.Config = None,
) -> None:
    """List the flows that can be run here."""
    from detent.cli.output import say, say_json, table
    from detent.cli.workspace import Workspace

    sources = Workspace(None, config, plugin, looks=True).catalog.all().values()
    if json:
        say_json(
            [
                {
                    "name": flow.name,
                    "description": flow.description,
                    "version": flow.machine.version,
                    "fingerprint": flow.fingerprint,
                    "states": [flow.machine.named(state) for state in flow.machine.states],
                    "place": place,
                }
                for flow, place in sources
            ]
        )
    elif not sources:
        say("No flows are known here. Run one from a file (detent run file.py), or list it under `plugins:`.")
    else:
        table(
            ("FLOW", "VERSION", "STATES", "FROM", "DESCRIPTION"),
            [
                (flow.name, str(flow.machine.version), str(len(flow.machine.states)), place, flow.description)
                for flow, place in sources
            ],
            right=(1, 2),
        )


def check(
    targets: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FLOW|FILE]...", help="What to check; everything when left out."),
    ] = None,
    json: options.Json = False,
    plugin: options.Plugins = None,
    config: options.Config = None,
) -> int:
    """Check definitions: every problem at once."""
    from detent.authoring.problem import problems_of
    from detent.cli.output import clean, paint, say, say_json
    from detent.cli.workspace import Workspace
    from detent.kernel.errors import ConfigurationError

    workspace = Workspace(None, config, plugin, looks=True)
    results: list[dict[str, Any]] = []
    for target in targets or list(workspace.catalog.all()):
        try:
            results += _checked(workspace, target)
        except ConfigurationError as error:
            problems = problems_of(error)
            results.append(
                {"target": target, "flow": None, "problems": problems, "place": _place(error, problems)}
            )
    wrong = [result for result in results if result["problems"]]
    if json:
        say_json(
            [
                {
                    **result,
                    "problems": [problem.to_plain() for problem in result["problems"]],
                    "ok": not result["problems"],
                }
                for result in results
            ]
        )
        return 2 if wrong else 0
    if not results:
        say("There is nothing to check: no flow is known here.")
    for result in results:
        name = result["flow"] or result["target"]
        if not result["problems"]:
            say(f"{name}: {paint('ok', 'green')}, {result['states']} states, {result['steps']} steps")
            continue
        number = len(result["problems"])
        place = f" ({result['place']})" if result["place"] else ""
        say(f"{name}{place}: {paint(f'{number} problem' + 's' * (number > 1), 'red')}")
        for problem in result["problems"]:
            say(f"  {clean(str(problem))}")
    return 2 if wrong else 0


def _checked(workspace: Workspace, target: str) -> list[dict[str, Any]]:
    """Check one target; a file without a flow's name stands for all flows in it."""
    from detent.authoring.problem import as_problem
    from detent.kernel.errors import ConfigurationError
    from detent.runtime.catalog import is_path

    if is_path(target) and ":" not in target:
        sources = list(workspace.catalog.add_file(target).values())
        if not sources:
            raise ConfigurationError(f"{target} defines no flow: no module-level value in it is a Flow.")
    else:
        sources = [workspace.catalog.pick(target)]
    return [
        {
            "target": target,
            "flow": flow.name,
            "problems": [as_problem(problem) for problem in flow.problems()],
            "place": place,
            "states": len(flow.machine.states),
            "steps": len(flow.steps),
        }
        for flow, place in sources
    ]


def _place(error: Any, problems: list[Problem]) -> str | None:
    """Place at which an error was raised, unless its problems name their own places."""
    if any(problem.place.file for problem in problems):
        return None
    line = getattr(error, "line", None)
    return f"{error.file}, line {line}" if line else None


class Drawing(str, enum.Enum):
    """Format of a diagram."""

    mermaid = "mermaid"
    svg = "svg"


def diagram(
    target: Annotated[
        str, typer.Argument(metavar="FLOW|RUN", help="A flow, file.py, or a run, whose path is marked.")
    ],
    format: Annotated[
        Drawing, typer.Option("--format", help="mermaid (text) or svg (a picture).")
    ] = Drawing.mermaid,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write it there.")
    ] = None,
    plugin: options.Plugins = None,
    store: options.Store = None,
    config: options.Config = None,
) -> None:
    """Draw a flow, or the path of a run through it."""
    from detent.cli.workspace import Workspace, run_async
    from detent.insight.diagram import diagram as drawing
    from detent.runtime.catalog import is_path

    workspace = Workspace(store, config, plugin, looks=True)
    path: Any = None
    if is_path(target.partition(":")[0]):
        description = workspace.catalog.pick(target).flow.machine.describe()
    else:
        source = workspace.catalog.look(target)
        if source is not None:
            description = source.flow.machine.describe()
        else:
            description, path = run_async(_drawn_run(workspace, target))
    draw = drawing.svg if format is Drawing.svg else drawing.mermaid
    _write(draw(description, path=path), output)


async def _drawn_run(workspace: Workspace, target: str) -> tuple[dict[str, Any], Any]:
    """The table a run was started under, and the run's journal."""
    from detent.cli.runs import definition, journal
    from detent.insight.diagram.diagram import path_of
    from detent.kernel.errors import ConfigurationError, FlowNotFound, RunNotFound, StoreUnavailable

    try:
        async with workspace.store() as store:
            run_id = await workspace.run_id(store, target)
            return await definition(store, run_id), path_of(await journal(store, run_id))
    except (RunNotFound, StoreUnavailable) as error:
        flow = FlowNotFound(target, workspace.catalog.all(), workspace.catalog.may_be_left_out)
        why = "" if isinstance(error, RunNotFound) else f" {error}"
        raise ConfigurationError(f"{flow} There is no such run either.{why}") from None


def _write(text: str, output: Path | None) -> None:
    """Write text to a file, or to standard output."""
    from detent.cli.output import say, warn
    from detent.kernel.errors import ConfigurationError

    if output is None:
        say(text.rstrip("\n"))
        return
    try:
        output.write_text(text if text.endswith("\n") else text + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"{output} cannot be written: {error.strerror}.") from None
    warn(f"Written to {output}.")
