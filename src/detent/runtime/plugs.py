"""Kinds of flows and applications as plugs: one object and one entry point each.

A plug imports what it needs of the program; the program never imports a plug. It loops over the objects that
installed packages offer under `detent.kinds` and `detent.apps`, and asks them. What is heavy in a plug is
named as `module:object` and loaded when it is called, so that the object itself costs next to nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from detent.kernel.errors import ConfigurationError, nearest
from detent.runtime.entry_points import offered, plugin_error, shown_point

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from importlib.metadata import EntryPoint
    from types import ModuleType

    from detent.authoring.problem import Problem
    from detent.dispatch.dispatcher import DispatchSettings
    from detent.engine.engine import Engine
    from detent.engine.flow import Flow
    from detent.engine.ports import Store
    from detent.engine.tools import Tool
    from detent.evals.suite import EvalSuite
    from detent.kernel.run import Run
    from detent.runtime.settings import Keys, Settings

KINDS = "detent.kinds"
"""Entry points whose value is a `Kind`."""
APPS = "detent.apps"
"""Entry points whose value is an `App`."""

T = TypeVar("T")


class KeyUse(NamedTuple):
    """A key that settings have sent to a host."""

    variable: str
    host: str
    where: str
    """The setting that sends it, for people."""
    project: bool
    """The project file says part of it; else it is the user's own choice."""


class Project(Protocol):
    """What a kind may ask of the project it is used in."""

    settings: Settings
    store: Store | None
    """The store of the engine at work, for tools that read what steps keep beside the journal."""

    @property
    def left_out(self) -> Sequence[str]:
        """Plugins that are not loaded because the project is not trusted."""

    @property
    def loaded(self) -> Sequence[ModuleType]:
        """Modules of the project loaded so far; nothing is loaded for it."""

    def modules(self) -> Sequence[ModuleType]:
        """The project's plugins and the files loaded so far."""

    def served(self) -> Sequence[Tool]:
        """Tools of the MCP servers in the settings."""

    def step_names(self, wanted: Iterable[str] = ()) -> list[str]:
        """What settings may call steps, of all flows there are."""

    def model_problems(self, flow: Flow) -> list[Problem]:
        """Steps of a flow that an agent should perform, though no model can be asked."""


class Plug:
    """What a kind and an application have in common. Everything but the name may be left as it is."""

    name: str
    """Its word on the command line (`detent run NAME …`, `detent NAME …`) and in settings."""
    commands: str | None = None
    """Commands of its own, a typer group as `module:object`: `detent NAME …`."""
    run: str | None = None
    """The command `detent run NAME …` where it takes options of its own: a function as `module:object`."""
    suite: str | None = None
    """How its runs are judged by `detent eval`: an `EvalSuite`, or a function that gives one, as
    `module:object`."""

    templates: Sequence[str] = ()
    """Beginnings that `detent new NAME …` knows, the usual one first; none: nothing can be begun."""

    def begin(self, name: str, template: str, settings: Settings) -> Beginning:
        """What something new begins with; raises `ConfigurationError` for a name that cannot be."""
        raise NotImplementedError

    def headings(self) -> Mapping[str, Keys]:
        """Headings of the project file that are its own, each with the keys allowed there (None: any)."""
        return {}

    def files(self, settings: Settings, root: Path) -> Iterable[Path]:
        """Files of the project in `root` that configure it or that it executes without their being named on a
        command line; also where one would be looked for that is not there."""
        return ()

    def passive(self, root: Path) -> Iterable[Path]:
        """Of these files, those that do nothing before a person names them."""
        return ()

    def folders(self) -> Sequence[str]:
        """Folders of a project whose every file is such a file, whether or not it is there today."""
        return ()

    def programs(self, settings: Settings) -> Mapping[str, Any]:
        """Commands that settings have it start, by the setting that names each."""
        return {}

    def keys(self, settings: Settings) -> Iterable[KeyUse]:
        """Keys of the user that settings have it send, and where to."""
        return ()

    def load(self, target: str) -> Any:
        """The object that `module:object` names."""
        module, _, name = target.partition(":")
        return getattr(import_module(module), name)

    def eval_suite(self) -> EvalSuite | None:
        """How its runs are judged; None where nothing judges them."""
        from detent.evals.suite import EvalSuite

        made = self.load(self.suite) if self.suite is not None else None
        return made if made is None or isinstance(made, EvalSuite) else made()


class Beginning(NamedTuple):
    """The files something new begins with, and what to do next."""

    files: Mapping[Path, str | bytes]
    message: str
    """One sentence about what was made."""
    commands: Sequence[str] = ()
    """Commands to try next."""
    note: str = ""
    """One sentence more, where there is something to know."""
    folders: Sequence[Path] = ()
    """Folders that begin empty and are the user's alone."""
    project: Path | None = None
    """The project folder that is made; None: the working folder is the project."""


class Purged(NamedTuple):
    """What a purge of files came to."""

    files: int = 0
    kept: tuple[str, ...] = ()
    """Runs whose files were asked for and are still needed, each with the run that needs them."""


class Kind(Plug):
    """A kind of flow: what people write in files or folders, and the flows that are made of it."""

    suffixes: Sequence[str] = ()
    """How the names of its files end, with the dot: what a command line takes for a path."""
    schema: str | None = None
    """What gives the JSON Schema of its files, for `detent schema NAME`: a function as `module:object`."""

    def definitions(self, project: Project) -> Definitions:
        """The definitions of this kind in one project."""
        raise NotImplementedError

    def lines(self, engine: Engine, flow: Flow) -> AbstractContextManager[Any] | None:
        """What shows a run as it goes, observing the engine; None: as runs are usually shown."""
        return None

    async def tell_ending(self, workspace: Any, engine: Engine, run: Run) -> bool:
        """Print how a run stands; False: as is usual."""
        return False

    async def purge(
        self, settings: Settings, store: Store, run_id: str | None, before: float | None
    ) -> Purged:
        """Drop the files it keeps for a run, or for runs that ended before a time."""
        return Purged()


class Checked(NamedTuple):
    """The result of checking a definition, or of what the settings say about definitions."""

    name: str
    problems: Sequence[Problem] = ()
    steps: int = 0
    place: str = ""
    """Its file or folder, for people."""
    notes: Sequence[str] = ()
    """Sentences about it that are no problems."""


class Description(NamedTuple):
    """What `detent show` prints of a definition."""

    plain: Mapping[str, Any]
    """All of it, for `--json`."""
    title: str
    fields: Sequence[tuple[str, str]] = ()
    tables: Sequence[tuple[Sequence[str], Sequence[Sequence[str]]]] = ()
    """Each with its heads and rows."""
    remarks: Sequence[str] = ()


class RunStart(NamedTuple):
    """What a run starts with."""

    data: Mapping[str, Any]
    tags: Sequence[str] = ()
    deterministic: bool = False
    """Whether the data switch agents off for the run."""


class Drawing(NamedTuple):
    """How a definition is drawn."""

    format: str = "mermaid"
    """mermaid, svg or ascii."""
    direction: str = "TD"
    """Which way a flowchart runs: TD, downwards, or LR, to the right."""
    width: int | None = None
    """Columns that text may take."""
    page: bool = False
    """As a Markdown page around the drawing."""
    taken: Any = None
    """The path to mark, as `Definitions.taken` gives it."""


class Definitions:
    """The definitions of one kind in one project. What cannot be used is a `ConfigurationError` that lists
    every problem."""

    def __init__(self, kind: Kind, project: Project) -> None:
        self.kind = kind
        self.project = project
        self.settings = project.settings

    code: bool = True
    """Loading a definition may execute code beside it, so that one found again must lie in the project."""

    def claims(self, path: Path) -> bool:
        """Whether a file or folder is a definition of this kind, right or wrong."""
        raise NotImplementedError

    def flows(self, path: Path, name: str | None = None) -> list[Flow]:
        """The flows of a definition, its own first, then those its runs start; with the one of a name, where
        that is one a run of it was begun under."""
        raise NotImplementedError

    def find(self, target: str) -> Path:
        """The definition that a command line means by a path or a name."""
        raise ConfigurationError(f"There is no {self.kind.name} '{target}'.")

    def named(self, name: str) -> list[Flow]:
        """The flows of the definition that a flow's name belongs to; empty where there is none."""
        return []

    def all(self, tell: Callable[[str], None]) -> Iterable[tuple[list[Flow], bool]]:
        """The flows of every definition that is found by name, and whether it ships; `tell` takes a sentence
        about each that cannot be used."""
        return ()

    def paths(self, *, shipped: bool = True) -> Iterable[Path]:
        """Every definition that is found by name, right or wrong; with those that ship, or without."""
        return ()

    def names(self) -> Iterable[str]:
        """The names by which definitions are found."""
        return [path.name if path.is_dir() else path.stem for path in self.paths()]

    def check(self, paths: Sequence[Path]) -> list[Checked]:
        """Check definitions: every problem of each."""
        from detent.authoring.problem import problems_of

        results: list[Checked] = []
        for path in paths:
            try:
                results.append(checked_flow(self.flows(path)[0], self.project))
            except ConfigurationError as error:
                results.append(Checked(path.name, problems_of(error)))
        return results

    def name_of(self, path: Path) -> str:
        """The name of a definition's flow."""
        return self.flows(path)[0].name

    def describe(self, path: Path) -> Description | None:
        """What `detent show` prints of a definition; None: its flow and steps."""
        return None

    def draw(self, path: Path, drawing: Drawing) -> str:
        """A drawing of a definition."""
        return draw_machine(self.flows(path)[0].machine.describe(), drawing)

    async def taken(self, path: Path, store: Store, run_id: str) -> Any:
        """The path that a run took, for its drawing."""
        return await path_taken(store, run_id)

    async def start(self, flow: Flow, given: Mapping[str, Any]) -> RunStart:
        """What a run of a definition's flow starts with, made of the data given.

        Raises:
            ConfigurationError: the data do not fit the definition, or something that a run needs is missing.
        """
        return RunStart(given)

    async def try_step(
        self, flow: Flow, step: str, data: Mapping[str, Any], dispatch: DispatchSettings
    ) -> Any:
        """Perform one step on the data given, without effects; see `detent.runtime.trial`."""
        from detent.runtime.trial import try_step

        return await try_step(flow, step, data, dispatch=dispatch)

    def step_names(self) -> Iterable[str]:
        """What settings may call the steps of these definitions."""
        return ()

    def agents(self) -> Iterable[str]:
        """The agents that these definitions may name, and settings speak of."""
        return ()


class App(Plug):
    """An application: flows that are made from the settings alone."""

    flows: Sequence[str] = ()
    """Names of the flows it makes."""

    def configured(self, settings: Settings) -> bool:
        """Whether the project is set up for it."""
        return self.name in settings.values

    def make(self, settings: Settings) -> Iterable[Flow]:
        """Its flows."""
        raise NotImplementedError


def checked_flow(flow: Flow, project: Project) -> Checked:
    """Check the table and the steps of a flow, and that there is a model for those that are an agent's."""
    from detent.authoring.problem import as_problem

    problems = [as_problem(problem) for problem in flow.problems()]
    return Checked(flow.name, problems or project.model_problems(flow), len(flow.steps))


async def path_taken(store: Store, run_id: str) -> Any:
    """The path that a run took through its table."""
    from detent.engine.journal_reader import read
    from detent.insight.diagram.diagram import path_of

    return path_of([entry async for entry in read(store, run_id)])


def draw_machine(table: Mapping[str, Any], drawing: Drawing) -> str:
    """A drawing of a table, as `Machine.describe` gives it."""
    from detent.insight.diagram import diagram

    if drawing.format == "ascii":
        raise ConfigurationError("This is not drawn as ascii; take --format mermaid or svg.")
    draw = diagram.svg if drawing.format == "svg" else diagram.mermaid
    drawn = draw(table, path=drawing.taken)
    return f"# {table['name']}\n\n```mermaid\n{drawn.rstrip()}\n```\n" if drawing.page else drawn


# -- finding ------------------------------------------------------------------------------------------------


def kinds() -> list[Kind]:
    """The kinds of flows there are."""
    return _plugs(KINDS, Kind)


def apps() -> list[App]:
    """The applications there are."""
    return _plugs(APPS, App)


def plugs() -> list[Plug]:
    """Every kind and application."""
    return [*kinds(), *apps()]


def plug_named(name: str) -> Plug | None:
    """The plug of a name, if there is one."""
    return next((plug for plug in plugs() if plug.name == name), None)


def suffixes() -> tuple[str, ...]:
    """How the names of definitions end, of all kinds."""
    return tuple(suffix for kind in kinds() for suffix in kind.suffixes)


def beginning_with(name: str) -> Plug:
    """The kind or application of a name that has something to begin with; an error names those there are."""
    known = {plug.name: plug for plug in plugs() if plug.templates}
    if name not in known:
        listed = ", ".join(known) or "none"
        raise ConfigurationError(
            f"There is nothing to begin a '{name}' with.{nearest(name, known)} Known: {listed}."
        )
    return known[name]


def _plugs(group: str, base: type[T]) -> list[T]:
    found: dict[str, T] = {}
    for point in sorted(offered(group), key=lambda point: (point.name, point.value)):
        made = _made(point, base)
        other = found.setdefault(point.name, made)
        if other is not made:
            raise ConfigurationError(f"Two installed packages offer '{point.name}' under {group}.")
    return list(found.values())


def _made(point: EntryPoint, base: type[T]) -> T:
    """The object of an entry point, checked."""
    try:
        made = point.load()
    except (Exception, SystemExit) as error:
        raise plugin_error(shown_point(point), error) from error
    if not isinstance(made, base):
        raise ConfigurationError(
            f"{shown_point(point)} is offered under {point.group}, but is no {base.__name__}."
        )
    if getattr(made, "name", None) != point.name:
        raise ConfigurationError(f"{shown_point(point)} is offered as '{point.name}', but has another name.")
    return made
