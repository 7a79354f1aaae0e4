"""Kinds of flows and applications as plugs: one object and one entry point each.

A plug imports what it needs of the program; the program never imports a plug. It loops over the objects that
installed packages offer under `detent.kinds` and `detent.apps`, and asks them. What is heavy in a plug is
named as `module:object` and loaded when it is called, so that the object itself costs next to nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from detent.kernel.errors import ConfigurationError, nearest
from detent.runtime.entry_points import EntryPoint, offered, plugin_error, shown_point

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
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
    """Whether the project file sets part of it; otherwise it is the user's own choice."""


class Project(Protocol):
    """The parts of a project that a kind may use."""

    settings: Settings
    store: Store | None
    """The store of the engine at work, for tools that read what steps keep beside the journal."""

    @property
    def left_out(self) -> Sequence[str]:
        """Plugins that are not loaded because the project is not trusted."""

    @property
    def loaded(self) -> Sequence[ModuleType]:
        """Modules of the project loaded so far; this loads none."""

    def modules(self) -> Sequence[ModuleType]:
        """The project's plugins and the files loaded so far."""

    def served(self) -> Sequence[Tool]:
        """Tools of the MCP servers in the settings."""

    def step_names(self, configured: Iterable[str] = ()) -> list[str]:
        """Names that settings may use for steps, of all known flows."""

    def model_problems(self, flow: Flow) -> list[Problem]:
        """Steps of a flow that an agent should perform, though no model can be asked."""


class Plug:
    """What a kind and an application have in common. Everything but the name may be left as it is."""

    name: str
    """Its name on the command line (`detent run NAME …`, `detent NAME …`) and in settings."""
    commands: str | None = None
    """Commands of its own, a typer group as `module:object`: `detent NAME …`."""
    top_commands: Mapping[str, str] = MappingProxyType({})
    """Further commands beside `detent NAME`, by name: functions or typer groups, as `module:object`."""
    run: str | None = None
    """The command `detent run NAME …` where it takes options of its own: a function as `module:object`."""
    suite: str | None = None
    """How its runs are judged by `detent eval`: an `EvalSuite`, or a function that gives one, as
    `module:object`."""

    templates: Sequence[str] = ()
    """Templates for `detent new NAME …`, the default first; empty: nothing can be created."""

    def begin(self, name: str, template: str, settings: Settings) -> Beginning:
        """The files of a new definition or project; `ConfigurationError` for a name that cannot be used."""
        raise NotImplementedError

    def headings(self) -> Mapping[str, Keys]:
        """Headings of the project file that are its own, each with the keys allowed there (None: any)."""
        return {}

    def files(self, settings: Settings, root: Path) -> Iterable[Path]:
        """Files of the project in `root` that configure it or that it executes without being named on a
        command line, whether or not they exist."""
        return ()

    def passive(self, root: Path) -> Iterable[Path]:
        """Those of these files that have no effect until a person names them."""
        return ()

    def folders(self) -> Sequence[str]:
        """Folders of a project in which every file, present or future, is such a file."""
        return ()

    def programs(self, settings: Settings) -> Mapping[str, Any]:
        """Commands that it starts because of a setting, by the name of the setting."""
        return {}

    def permissions(self, settings: Settings) -> Mapping[str, Any]:
        """What agents may do without a question because of a setting, by the name of the setting."""
        return {}

    def keys(self, settings: Settings) -> Iterable[KeyUse]:
        """Keys of the user that it sends because of a setting, with the host of each."""
        return ()

    def host_facts(self, settings: Settings) -> Mapping[str, str]:
        """What `detent doctor` tells about what it finds on this machine, by name."""
        return {}

    def load(self, target: str) -> Any:
        """The object that `module:object` names."""
        module, _, name = target.partition(":")
        return getattr(import_module(module), name)

    async def purge(
        self, settings: Settings, store: Store, run_id: str | None, before: float | None
    ) -> Purged:
        """Delete the files it keeps for a run, or for runs that ended before a time."""
        return Purged()

    def eval_suite(self) -> EvalSuite | None:
        """How its runs are judged; None if no suite exists."""
        from detent.evals.suite import EvalSuite

        suite = self.load(self.suite) if self.suite is not None else None
        return suite if suite is None or isinstance(suite, EvalSuite) else suite()


class Beginning(NamedTuple):
    """The files of a new definition or project, and the commands to try next."""

    files: Mapping[Path, str | bytes]
    message: str
    """One sentence about what was created."""
    commands: Sequence[str] = ()
    """Commands to try next."""
    note: str = ""
    """One more sentence, if there is something to know."""
    folders: Sequence[Path] = ()
    """Folders that are created empty and readable by the user alone."""
    project: Path | None = None
    """The project folder that is created; None: the working folder is the project."""


class Purged(NamedTuple):
    """The result of purging files."""

    files: int = 0
    kept: tuple[str, ...] = ()
    """Runs whose files are still needed and were not purged, each with the run that needs them."""


class Kind(Plug):
    """A kind of flow: definitions that people write in files or folders, and the flows made of them."""

    suffixes: Sequence[str] = ()
    """Suffixes of its files, with the dot; a command line treats such a word as a path."""
    schema: str | None = None
    """Function that returns the JSON Schema of its files, for `detent schema NAME`, as `module:object`."""

    def definitions(self, project: Project) -> Definitions:
        """The definitions of this kind in one project."""
        raise NotImplementedError

    def lines(self, engine: Engine, flow: Flow) -> AbstractContextManager[Any] | None:
        """An observer that shows a run in progress; None: the usual display."""
        return None

    async def tell_ending(self, workspace: Any, engine: Engine, run: Run, told: str | None = None) -> bool:
        """Print the status of a run; False: leave it to the usual display.

        `told` is the error that `lines` has shown last (their `failure`) and need not be repeated.
        """
        return False

    def ended_as_asked(self, run: Run) -> bool:
        """Whether a degraded run lacks only what its user did not want; a command then ends with 0."""
        return False

    async def deliver(self, engine: Engine, run: Run) -> None:
        """Write what a run has made where its user wants it; called when a command stops driving the run."""


class Checked(NamedTuple):
    """The result of checking a definition, or the settings about definitions."""

    name: str
    problems: Sequence[Problem] = ()
    steps: int = 0
    place: str = ""
    """Its file or folder, for people."""
    notes: Sequence[str] = ()
    """Remarks about it that are not problems."""


class Description(NamedTuple):
    """What `detent show` prints of a definition."""

    plain: Mapping[str, Any]
    """All of it, for `--json`."""
    title: str
    fields: Sequence[tuple[str, str]] = ()
    tables: Sequence[tuple[Sequence[str], Sequence[Sequence[str]]]] = ()
    """Column headings and rows of each table."""
    remarks: Sequence[str] = ()


class RunStart(NamedTuple):
    """What a run starts with."""

    data: Mapping[str, Any]
    tags: Sequence[str] = ()
    deterministic: bool = False
    """Whether the data switch agents off for the run."""


class Drawing(NamedTuple):
    """Options of a drawing."""

    format: str = "mermaid"
    """mermaid, svg or ascii."""
    direction: str = "TD"
    """Which way a flowchart runs: TD, downwards, or LR, to the right."""
    width: int | None = None
    """Widest line of an ASCII drawing, in columns."""
    page: bool = False
    """Whether to wrap the drawing in a Markdown page."""
    taken: Any = None
    """The path to mark, as `Definitions.taken` gives it."""


class Definitions:
    """The definitions of one kind in one project. An unusable definition raises a `ConfigurationError` that
    lists every problem."""

    def __init__(self, kind: Kind, project: Project) -> None:
        self.kind = kind
        self.project = project
        self.settings = project.settings

    code: bool = True
    """Loading a definition may execute code beside it, so that a recalled one must lie in the project."""

    def claims(self, path: Path) -> bool:
        """Whether a file or folder is a definition of this kind, valid or not."""
        raise NotImplementedError

    def flows(self, path: Path, name: str | None = None) -> list[Flow]:
        """The flows of a definition, its own first, then those its runs start. `name` adds the flow under
        which a run of it was started."""
        raise NotImplementedError

    def find(self, target: str) -> Path:
        """The definition that a command line names by its path or name."""
        raise ConfigurationError(f"There is no {self.kind.name} '{target}'.")

    def named(self, name: str) -> list[Flow]:
        """The flows of the definition that a flow's name belongs to; empty if no definition does."""
        return []

    def all(self, tell: Callable[[str], None]) -> Iterable[tuple[list[Flow], bool]]:
        """The flows of every definition found by name, and whether it ships with Detent; `tell` is called
        with a sentence about each unusable one."""
        return ()

    def paths(self, *, shipped: bool = True) -> Iterable[Path]:
        """Every definition found by name, valid or not; with those that ship, or without."""
        return ()

    def loose(self) -> Iterable[Path]:
        """Definitions in the project's folder that are found by their path alone, valid or not."""
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
        """Names that settings may use for the steps of these definitions."""
        return ()

    def agents(self) -> Iterable[str]:
        """The agents that these definitions and the settings may name."""
        return ()


class App(Plug):
    """An application: flows made from the settings alone."""

    flows: Sequence[str] = ()
    """Names of the flows it makes."""
    display: str | None = None
    """Kind that shows runs of its flows, as `module:object`; None: the usual display."""

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
        raise ConfigurationError("This cannot be drawn as ASCII; use --format mermaid or svg.")
    draw = diagram.svg if drawing.format == "svg" else diagram.mermaid
    drawn = draw(table, path=drawing.taken)
    return f"# {table['name']}\n\n```mermaid\n{drawn.rstrip()}\n```\n" if drawing.page else drawn


# -- finding ------------------------------------------------------------------------------------------------


def kinds() -> list[Kind]:
    """The installed kinds of flows."""
    return _plugs(KINDS, Kind)


def apps() -> list[App]:
    """The installed applications."""
    return _plugs(APPS, App)


def plugs() -> list[Plug]:
    """Every kind and application."""
    return [*kinds(), *apps()]


def plug_named(name: str) -> Plug | None:
    """The plug of a name, if there is one."""
    return next((plug for plug in plugs() if plug.name == name), None)


def suffixes() -> tuple[str, ...]:
    """Suffixes of definitions, of all kinds."""
    return tuple(suffix for kind in kinds() for suffix in kind.suffixes)


def beginning_with(name: str) -> Plug:
    """The kind or application of a name, if it has templates for `detent new`; an error lists those."""
    known = {plug.name: plug for plug in plugs() if plug.templates}
    if name not in known:
        listed = ", ".join(known) or "none"
        raise ConfigurationError(
            f"There are no starter files for '{name}'.{nearest(name, known)} Known: {listed}."
        )
    return known[name]


def _plugs(group: str, base: type[T]) -> list[T]:
    by_name: dict[str, T] = {}
    for point in sorted(offered(group), key=lambda point: (point.name, point.value)):
        plug = _load_plug(point, base)
        other = by_name.setdefault(point.name, plug)
        if other is not plug:
            raise ConfigurationError(f"Two installed packages offer '{point.name}' under {group}.")
    return list(by_name.values())


def _load_plug(point: EntryPoint, base: type[T]) -> T:
    """The object of an entry point, checked."""
    try:
        plug = point.load()
    except (Exception, SystemExit) as error:
        raise plugin_error(shown_point(point), error) from error
    if not isinstance(plug, base):
        raise ConfigurationError(
            f"{shown_point(point)} is offered under {point.group}, but is no {base.__name__}."
        )
    if getattr(plug, "name", None) != point.name:
        raise ConfigurationError(f"{shown_point(point)} is offered as '{point.name}', but has another name.")
    return plug
