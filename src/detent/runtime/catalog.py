"""Finds flows: installed ones by entry point, the project's plugins, and files named on the command line.

Nothing that cannot be loaded is passed over, and nothing is loaded before somebody asks for it.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from detent.engine.source_imports import SourceLoader, import_from_source
from detent.kernel.errors import ConfigurationError, FlowNotFound, nearest
from detent.runtime.settings import Keys, Settings

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from detent.adapters.mcp.server import McpServer
    from detent.engine.flow import Flow
    from detent.engine.ports import Store
    from detent.runtime.trust import Trust
    from detent.runtime.workflows import Workflows

GROUP = "detent.flows"
"""Entry points whose value is a Flow, or a function that gives a Flow or several."""
APPS_GROUP = "detent.apps"
"""Entry points named after a flow that an application makes from the settings: the value is a function from
settings to flows. Called only when that flow is asked for by its name."""
ONLY = ".only-"
"""In the name of a flow: it performs one step of a workflow."""
SETTINGS_GROUP = "detent.settings"
"""Entry points named after a heading of the project file; the value is the keys allowed there (None: any)."""
SETTINGS_NAME = "DETENT_SETTINGS"
"""In a plugin: headings of the project file with the keys allowed under each (None: any)."""


class PluginError(ConfigurationError):
    """Code that should hold flows cannot be loaded."""

    def __init__(self, place: str, error: BaseException, file: str | None, line: int | None) -> None:
        self.place = place
        self.file = file
        self.line = line
        self.error = error
        what = str(error) if isinstance(error, ConfigurationError) else _said(error)
        where = f" ({file}, line {line})" if file and line else ""
        super().__init__(f"{place} cannot be loaded{where}: {what}")


class Found(NamedTuple):
    """A flow and where it comes from."""

    flow: Flow
    place: str
    """For people, and for loading it again: a path, a module, or an entry point."""


class Catalog:
    """The flows that can be run here."""

    def __init__(self, settings: Settings, plugins: Sequence[str] = (), trust: Trust | None = None) -> None:
        said = settings.get("plugins", default=[])
        here = [said] if isinstance(said, str) else list(said)
        self._settings = settings
        self.trust = trust
        """Without trust in the project its own code is left out; None where that is settled elsewhere."""
        self.left_out: tuple[str, ...] = ()
        """Plugins of the project that are not loaded, since nobody trusts it."""
        if not self.runs_code and settings.of_project("plugins"):
            self.left_out, here = tuple(map(str, here)), []
        self._plugins = [(name, settings.base("plugins")) for name in here]
        self._plugins += [(name, settings.folder) for name in plugins]
        self._found: dict[str, Found] = {}
        self._loaded: set[str] = set()
        self._modules: dict[str, ModuleType] = {}
        self._entry_points: list[EntryPoint] | None = None
        self._servers: dict[str, McpServer] | None = None
        self._playbooks: dict[Path, Flow] = {}
        self._workflows: Workflows | None = None
        self.store: Store | None = None
        """The store of the engine at work, for tools that read what steps keep beside the journal."""

    @property
    def runs_code(self) -> bool:
        """Whether code of the project that nobody named may be executed."""
        return self.trust is None or self.trust.ok

    # -- asking ---------------------------------------------------------------------------------------------

    def all(self) -> dict[str, Found]:
        """Every flow there is, by name."""
        self._load_plugins()
        for point in self._points():
            self._load_point(point)
        return dict(sorted(self._found.items()))

    def get(self, name: str) -> Found:
        """The flow of a name; `FlowNotFound` tells what there is."""
        found = self.look(name)
        if found is None:
            raise FlowNotFound(name, self.all(), self.may_be_left_out)
        return found

    @property
    def may_be_left_out(self) -> str:
        """A sentence to follow that something is not there; empty where every plugin is loaded."""
        names = ", ".join(self.left_out)
        return f" It may be in a plugin that is left out: {names}." if names else ""

    def look(self, name: str) -> Found | None:
        """The flow of a name, or None. Installed packages that do not offer it by name are loaded last."""
        self._load_plugins()
        points = self._points()
        for point in points:
            if point.name == name:
                self._load_point(point)
        if name not in self._found:
            for point in points:
                self._load_point(point)
        if name not in self._found:
            self._load_app(name)
        if name not in self._found:
            self._load_workflow(name)
        return self._found.get(name)

    def family(self, name: str) -> dict[str, Found]:
        """The flow of a name with those its runs may start; empty when there is none."""
        there = self.look(name)
        if there is None:
            return {}
        root = self._found.get(name.partition(".")[0])
        spec = getattr(root.flow, "workflow", None) if root is not None else None
        if spec is None:
            return {name: there}
        return {flow.name: self._found[flow.name] for flow in self.workflows.flows(spec)}

    def workflow_steps(self) -> list[str]:
        """What settings may call the steps of workflow files, whether or not one of them is to be run."""
        from detent.runtime.workflow_registry import known_workflows

        found: dict[str, None] = {}
        for spec in known_workflows(self._settings, self.workflows.shelf):
            for step in spec.every_step():
                found |= dict.fromkeys((step.name, f"workflow/{spec.name}/{step.name}"))
        return list(found)

    def step_names(self, said: Iterable[str] = ()) -> list[str]:
        """What settings may call steps: of the flows there are and of workflow files, and of applications
        where some name that is `said` belongs to none of those."""
        found = dict.fromkeys(self.workflow_steps())

        def gather(flows: Iterable[Flow]) -> None:
            for flow in flows:
                for step in flow.every_step():
                    found.update(dict.fromkeys((step.name, flow.qualified(step))))

        gather(there.flow for there in self.all().values())
        if any(name not in found for name in said):
            gather(self._of_apps())
        return list(found)

    def agents(self) -> list[str] | None:
        """The agents that workflow files may name, and settings speak of; None where plugins that may bring
        some are left out."""
        return None if self.left_out else list(self.workflows.registry.agents.names)

    @property
    def workflows(self) -> Workflows:
        """The workflow files of the project."""
        if self._workflows is None:
            from detent.runtime.workflows import Workflows

            self._workflows = Workflows(self._settings, self)
        return self._workflows

    def pick(self, target: str) -> Found:
        """The flow a command line means: a name, `path.py`, `path.py:name`, or the folder of a playbook."""
        path, _, name = target.partition(":")
        if not is_path(path):
            return self.get(target)
        there = self.add_file(path)
        if name:
            if name not in there:
                known = ", ".join(sorted(there)) or "none"
                raise ConfigurationError(
                    f"{path} has no flow '{name}'.{nearest(name, there)} Flows there: {known}."
                )
            return there[name]
        if len(there) == 1 or path.endswith((".yaml", ".yml")):  # a workflow's own flow stands first
            return next(iter(there.values()))
        if not there:
            raise ConfigurationError(f"{path} defines no flow: no module-level value in it is a Flow.")
        choices = ", ".join(f"{path}:{name}" for name in sorted(there))
        raise ConfigurationError(f"{path} defines several flows; name one: {choices}.")

    def headings(self) -> dict[str, Keys]:
        """Headings of the project file that belong to flows and applications."""
        from detent.runtime.installed import offered

        found: dict[str, Keys] = {}
        for point in offered(SETTINGS_GROUP):
            found[point.name] = _keys(self._value(point))
        self._load_plugins()
        for module in self._modules.values():
            for heading, keys in getattr(module, SETTINGS_NAME, {}).items():
                found[heading] = _keys(keys)
        if self.left_out:  # they may know any heading
            found = dict.fromkeys(map(str, self._settings.values)) | found
        return found

    def modules(self) -> list[ModuleType]:
        """The project's plugins and the files loaded so far, for what else than flows they may hold."""
        self._load_plugins()
        return list(self._modules.values())

    @property
    def loaded(self) -> list[ModuleType]:
        """Modules loaded so far; nothing is loaded for it."""
        return list(self._modules.values())

    # -- loading --------------------------------------------------------------------------------------------

    def add_file(self, path: str) -> dict[str, Found]:
        """Load a Python file, or the folder of a playbook, and give the flows in it."""
        file = (self._settings.folder / path).resolve()
        if file.is_dir():
            return self._add_playbook(file, path)
        if file.suffix in (".yaml", ".yml") and file.is_file():
            return self.add_workflow(str(file), path if is_path(path) else f"./{path}")
        if not file.is_file():
            raise ConfigurationError(f"There is no file {path}.")
        module = self._file(file, path)
        return self._add_module(module, path)

    def _add_playbook(self, folder: Path, path: str) -> dict[str, Found]:
        from detent.runtime.playbooks import is_playbook, playbook_of

        flow = self._playbooks.get(folder)
        if flow is None:
            if not is_playbook(folder):
                raise ConfigurationError(f"{path} is a folder without a playbook: it has no step files.")
            tools = [tool for server in self.mcp().values() for tool in server.tools]
            flow = self._playbooks[folder] = playbook_of(self._settings, folder, tools=tools)
        # A place that is seen to be a path, also when the folder's name alone was said.
        return {flow.name: self._add(flow, path if is_path(path) else f"{path}/")}

    def add_workflow(self, said: str, place: str | None = None) -> dict[str, Found]:
        """The flows of a workflow file, its own first; `DocumentError` lists everything wrong with it."""
        chosen = self.workflows.choose(said)
        where = place or f"workflow '{chosen.spec.name}'"
        return {flow.name: self._add(flow, where) for flow in self.workflows.flows(chosen.spec)}

    def _load_workflow(self, name: str) -> None:
        """Make the flows of the workflow that a flow's name belongs to, if there is one on the shelf."""
        root = name.partition(".")[0]
        if is_path(name) or root not in self.workflows.shelf.names():
            return
        self.add_workflow(root)
        if name not in self._found and ONLY in name:
            self.add_alone(root, name.partition(ONLY)[2].partition(".")[0])

    def add_alone(self, said: str, step: str) -> dict[str, Found]:
        """The flows of one step of a workflow."""
        from detent.flows.workflow.alone import only, step_named

        chosen = self.workflows.choose(said)
        spec = only(chosen.spec, step_named(chosen.spec, step))
        where = f"workflow '{chosen.spec.name}'"
        return {flow.name: self._add(flow, where) for flow in self.workflows.flows(spec)}

    def _load_plugins(self) -> None:
        for name, folder in self._plugins:
            if name in self._loaded:
                continue
            self._loaded.add(name)
            if is_path(name):
                self.add_file(name if folder == self._settings.folder else str(folder / name))
            else:
                self._add_module(self._module(name, folder), name)

    def _points(self) -> list[EntryPoint]:
        if self._entry_points is None:
            from detent.runtime.installed import offered

            self._entry_points = offered(GROUP)
            seen: dict[str, EntryPoint] = {}
            for point in self._entry_points:
                other = seen.setdefault(point.name, point)
                if other.value != point.value:
                    raise ConfigurationError(
                        f"Two installed packages offer a flow '{point.name}': "
                        f"{shown_point(other)} and {shown_point(point)}."
                    )
        return self._entry_points

    def _load_point(self, point: EntryPoint) -> None:
        key = f"{GROUP}:{point.name}={point.value}"
        if key not in self._loaded:
            self._loaded.add(key)
            for flow in _flows_of(self._value(point), shown_point(point)):
                self._add(flow, shown_point(point))

    def _of_apps(self) -> Iterator[Flow]:
        """The flows of applications, as far as the settings are enough to make them."""
        from detent.runtime.installed import offered

        makers: dict[str, EntryPoint] = {}  # one function may make several flows
        for point in offered(APPS_GROUP):
            makers.setdefault(point.value, point)
        for point in makers.values():
            with suppress(ConfigurationError):
                make = self._value(point)
                yield from _flows_of(lambda make=make: make(self._settings), shown_point(point))

    def _load_app(self, name: str) -> None:
        from detent.runtime.installed import offered

        for point in offered(APPS_GROUP, name):
            key = f"{APPS_GROUP}:{point.value}"
            if key in self._loaded:  # one function may make several flows
                continue
            self._loaded.add(key)
            make = self._value(point)
            for flow in _flows_of(lambda make=make: make(self._settings), shown_point(point)):
                self._add(flow, shown_point(point))

    def _value(self, point: EntryPoint) -> Any:
        try:
            return point.load()
        except (Exception, SystemExit) as error:
            raise plugin_error(shown_point(point), error) from error

    def _file(self, file: Path, shown: str) -> ModuleType:
        key = str(file)
        if key not in self._modules:
            name = f"_detent_{file.stem}_{sha256(key.encode()).hexdigest()[:8]}"
            loader = SourceLoader(name, str(file)) if file.suffix == ".py" else None
            spec = importlib.util.spec_from_file_location(name, file, loader=loader)
            if spec is None or spec.loader is None:
                raise ConfigurationError(f"{shown} is no Python file.")
            module = importlib.util.module_from_spec(spec)
            _reachable(file.parent)
            sys.modules[name] = module
            try:
                spec.loader.exec_module(module)
            except (Exception, SystemExit) as error:
                sys.modules.pop(name, None)
                raise plugin_error(shown, error, file) from error
            self._modules[key] = module
        return self._modules[key]

    def _module(self, name: str, folder: Path) -> ModuleType:
        _reachable(folder)
        try:
            module = importlib.import_module(name)
        except (Exception, SystemExit) as error:
            if isinstance(error, ModuleNotFoundError) and error.name == name:
                raise ConfigurationError(
                    f"{self._settings.place('plugins')}: there is no module '{name}'."
                ) from error
            raise plugin_error(f"Plugin {name}", error) from error
        self._modules[name] = module
        return module

    def _add_module(self, module: ModuleType, place: str) -> dict[str, Found]:
        from detent.engine.flow import Flow

        here: dict[str, Found] = {}
        for value in list(vars(module).values()):
            if isinstance(value, Flow) and value.name not in here:
                here[value.name] = self._add(value, place)
            elif isinstance(value, Flow) and here[value.name].flow is not value:
                raise ConfigurationError(f"{place} defines two flows named '{value.name}'.")
        return here

    def _add(self, flow: Flow, place: str) -> Found:
        there = self._found.get(flow.name)
        if there is not None and there.flow is not flow:
            raise ConfigurationError(
                f"Two flows are named '{flow.name}': one in {there.place}, one in {place}. "
                f"Rename one of them."
            )
        if there is None and self._settings.get("mcp") is not None:
            self._equip(flow)
        return self._found.setdefault(flow.name, Found(flow, place))

    def _equip(self, flow: Flow) -> None:
        """Give a flow the tools of MCP servers that its steps name."""
        from detent.runtime.mcp import attach

        attach(self.mcp(), [flow])

    def mcp(self) -> dict[str, McpServer]:
        """The MCP servers of the settings."""
        if self._servers is None:
            if self._settings.get("mcp") is None:
                return {}
            from detent.runtime.mcp import mcp_servers

            self._servers = mcp_servers(self._settings)
        return self._servers


def is_path(text: str) -> bool:
    """True when a text means a file or folder rather than a name."""
    return text.endswith((".py", ".yaml", ".yml")) or "/" in text or "\\" in text


_REACHABLE: list[str] = []
"""Folders of projects on the import path, the latest first."""


def _reachable(folder: Path) -> None:
    """Let a file import its neighbours. They come after what is installed, so that a file of a project never
    stands in for a module that Detent itself imports."""
    place = str(folder)
    import_from_source(folder)
    if place in sys.path:
        return
    first = next((one for one in _REACHABLE if one in sys.path), None)
    sys.path.insert(len(sys.path) if first is None else sys.path.index(first), place)
    _REACHABLE.insert(0, place)


def _flows_of(value: Any, place: str) -> Iterable[Flow]:
    """The flows an entry point's value stands for."""
    from detent.engine.flow import Flow

    if not isinstance(value, Flow) and callable(value):
        try:
            value = value()
        except (Exception, SystemExit) as error:
            raise plugin_error(place, error) from error
    flows = [value] if isinstance(value, Flow) else list(value) if isinstance(value, Iterable) else []
    if not flows or not all(isinstance(flow, Flow) for flow in flows):
        raise ConfigurationError(f"{place} gives no flow, but {type(value).__name__}.")
    return flows


def _keys(value: Any) -> Keys:
    """Allowed keys from a mapping, a list of names, a model class, or None for anything."""
    if callable(value) and not hasattr(value, "model_fields"):
        value = value()
    fields = getattr(value, "model_fields", value)
    if fields is None or isinstance(fields, Mapping):
        return None if fields is None else {key: _below(keys) for key, keys in fields.items()}
    return dict.fromkeys(fields)


def _below(keys: Any) -> Keys:
    return keys if isinstance(keys, Mapping) else None


def shown_point(point: EntryPoint) -> str:
    package = f" of {point.dist.name}" if point.dist is not None else ""
    return f"{point.value}{package}"


def _said(error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error.msg}"
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def plugin_error(place: str, error: BaseException, file: Path | None = None) -> PluginError:
    """The error with the line it happened in: the deepest in the plugin itself, else the deepest of all."""
    if isinstance(error, SyntaxError) and error.filename:
        return PluginError(place, error, _short(error.filename), error.lineno)
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<frozen ") and frame.filename != __file__
    ]
    own = [frame for frame in frames if file is not None and Path(frame.filename) == file]
    if not frames:
        return PluginError(place, error, None, None)
    chosen = (own or frames)[-1]
    return PluginError(place, error, _short(chosen.filename), chosen.lineno)


def _short(filename: str) -> str:
    path = Path(filename)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else filename
