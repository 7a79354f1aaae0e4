"""Finds flows: installed ones by entry point, the project's plugins, definitions of the installed kinds, and
files named on the command line.

What cannot be loaded is an error, never skipped; nothing is loaded before it is asked for.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from detent.authoring.source_imports import SourceLoader, import_from_source
from detent.kernel.errors import ConfigurationError, FlowNotFound, nearest
from detent.runtime.entry_points import EntryPoint, offered, plugin_error, shown_point
from detent.runtime.plugs import Definitions, apps, kinds, plugs, suffixes
from detent.runtime.settings import Keys, Settings

if TYPE_CHECKING:
    from detent.adapters.mcp.server import McpServer
    from detent.authoring.problem import Problem
    from detent.engine.flow import Flow
    from detent.engine.ports import Store
    from detent.engine.tools import Tool
    from detent.runtime.plugs import App, Kind
    from detent.runtime.trust import Trust

GROUP = "detent.flows"
"""Entry points whose value is a Flow, or a function that gives a Flow or several."""
_LONGEST, _LONGEST_PART = 4_000, 255
"""Length of a path, and bytes of each of its names, that file systems take."""
SETTINGS_NAME = "DETENT_SETTINGS"
"""Attribute of a plugin: headings of the project file with the keys allowed under each (None: any)."""


class Found(NamedTuple):
    """A flow and where it comes from."""

    flow: Flow
    place: str
    """For people, and for loading it again: a path, a module, or an entry point."""


class Catalog:
    """The flows that can be run here."""

    def __init__(self, settings: Settings, plugins: Sequence[str] = (), trust: Trust | None = None) -> None:
        value = settings.get("plugins", default=[])
        here = [value] if isinstance(value, str) else list(value)
        self.settings = settings
        self.trust = trust
        """The trust in the project, without which its code is left out; None if that is decided elsewhere."""
        self.left_out: tuple[str, ...] = ()
        """Plugins that are not loaded because the project is not trusted."""
        if not self.runs_code and settings.of_project("plugins"):
            self.left_out, here = tuple(map(str, here)), []
        self._plugins = [(name, settings.base("plugins")) for name in here]
        self._plugins += [(name, settings.folder) for name in plugins]
        self._found: dict[str, Found] = {}
        self._loaded: set[str] = set()
        self._modules: dict[str, ModuleType] = {}
        self._entry_points: list[EntryPoint] | None = None
        self._servers: dict[str, McpServer] | None = None
        self._definitions: dict[str, Definitions] = {}
        self._made: dict[tuple[Path, str | None], list[Flow]] = {}
        self._families: dict[str, tuple[str, ...]] = {}
        """By flow, the flows of the same definition."""
        self._origins: dict[str, Kind] = {}
        """By flow, the kind of its definition."""
        self.store: Store | None = None
        """The store of the engine at work, for tools that read what steps keep beside the journal."""

    @property
    def runs_code(self) -> bool:
        """Whether code of the project may be executed without being named on the command line."""
        return self.trust is None or self.trust.ok

    # -- asking ---------------------------------------------------------------------------------------------

    def all(self) -> dict[str, Found]:
        """Every flow there is, by name."""
        self._load_plugins()
        for point in self._points():
            self._load_point(point)
        return dict(sorted(self._found.items()))

    def get(self, name: str) -> Found:
        """The flow of a name; `FlowNotFound` lists the known flows."""
        source = self.look(name)
        if source is None:
            raise self.unknown(name)
        return source

    def unknown(self, name: str, *also: str, hint: str = "") -> FlowNotFound:
        """The error that a name means nothing: it tells what there is. `also` says what else it could have
        meant."""
        names: dict[str, Iterable[str]] = dict.fromkeys(also, ())
        names["flow"] = [flow for flow in self.all() if self.kind_of(flow) is None]
        names["application"] = [flow for app in apps() for flow in app.flows]
        names |= {definitions.kind.name: definitions.names() for definitions in self.every_definitions()}
        return FlowNotFound(name, names, f"{self._what_is(name)}{self.may_be_left_out}{hint}")

    def _what_is(self, name: str) -> str:
        """A sentence to append to "not found", if a folder, pipe or device has the name."""
        place = self.settings.folder / name
        if is_path(name) or len(name) > _LONGEST_PART or place.is_file() or not place.exists():
            return ""
        return f" {_no_definition(name, place)}"

    def find(self, target: str) -> Found | None:
        """The flow a command line names; None if no flow has that name."""
        return self.pick(target) if is_path(target.partition(":")[0]) else self.look(target)

    def sources(self, target: str) -> list[Found]:
        """The flows a command line means: a file without a flow's name stands for all in it.

        Raises:
            ConfigurationError: it means none.
        """
        if not is_path(target) or ":" in target:
            return [self.pick(target)]
        sources = list(self.add_file(target).values())
        if not sources:
            raise ConfigurationError(f"{target} defines no flow: no module-level value in it is a Flow.")
        return sources

    @property
    def may_be_left_out(self) -> str:
        """A sentence to append to "not found"; empty if every plugin is loaded."""
        names = ", ".join(self.left_out)
        return f" It may be in a plugin that is left out: {names}." if names else ""

    def look(self, name: str) -> Found | None:
        """The flow of a name, or None. Installed packages that do not offer it by name are loaded last."""
        if self.made_by_code(name) is None and not is_path(name):
            for definitions in self.every_definitions():
                self._add_family(
                    definitions, definitions.named(name), f"{definitions.kind.name} '{_root(name)}'"
                )
        return self._found.get(name)

    def made_by_code(self, name: str) -> Found | None:
        """The flow of a name that a plugin, an installed package or an application brings, or None."""
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
        return self._found.get(name)

    def family(self, name: str) -> dict[str, Found]:
        """The flow of a name with those its runs may start; empty when there is none."""
        if self.look(name) is None:
            return {}
        names = (*self._families.get(_root(name), ()), *self._families.get(name, (name,)))
        return {member: self._found[member] for member in dict.fromkeys(names)}

    def kind_of(self, name: str) -> Kind | None:
        """The kind of the definition that the flow of a name was made of; None where code made it."""
        return self._origins.get(name)

    def display_of(self, name: str) -> Kind | None:
        """The kind that shows runs of a flow; None: the usual display."""
        kind = self.kind_of(name)
        if kind is not None:
            return kind
        app = next((app for app in apps() if name in app.flows and app.display is not None), None)
        shown: Kind | None = None if app is None or app.display is None else app.load(app.display)
        return shown

    def definitions(self, kind: Kind) -> Definitions:
        """The definitions of a kind in this project."""
        definitions = self._definitions.get(kind.name)
        if definitions is None:
            definitions = self._definitions[kind.name] = kind.definitions(self)
        return definitions

    def every_definitions(self) -> list[Definitions]:
        """The definitions of every kind there is."""
        return [self.definitions(kind) for kind in kinds()]

    def defined_steps(self) -> list[str]:
        """Names that settings may use for steps of definitions, whether or not those are to be run."""
        return [name for definitions in self.every_definitions() for name in definitions.step_names()]

    def step_names(self, configured: Iterable[str] = ()) -> list[str]:
        """Names that settings may use for steps: those of known flows and of definitions, and those of
        applications if one of the `configured` names belongs to none of these."""
        names = dict.fromkeys(self.defined_steps())

        def gather(flows: Iterable[Flow]) -> None:
            for flow in flows:
                for step in flow.every_step():
                    names.update(dict.fromkeys((step.name, flow.qualified(step))))

        gather(source.flow for source in self.all().values())
        if any(name not in names for name in configured):
            gather(self.flows_of_apps())
        return list(names)

    def model_problems(self, flow: Flow) -> list[Problem]:
        """Steps of a flow that an agent should perform, though no model can be asked."""
        from detent.runtime.dispatch_settings import model_problems

        return model_problems(self.settings, flow)

    def agents(self) -> list[str] | None:
        """The agents that definitions and settings may name; None if plugins, which may add agents, are left
        out."""
        if self.left_out:
            return None
        return [name for definitions in self.every_definitions() for name in definitions.agents()]

    def pick(self, target: str) -> Found:
        """The flow a command line means: a name, `path.py`, `path.py:name`, or the path of a definition."""
        path, _, name = checked_name(target).partition(":")
        if not is_path(path):
            return self.get(target)
        sources = self.add_file(path)
        if name:
            if name not in sources:
                known = ", ".join(sorted(sources)) or "none"
                raise ConfigurationError(
                    f"{path} has no flow '{name}'.{nearest(name, sources)} Flows there: {known}."
                )
            return sources[name]
        first = next(iter(sources), None)
        if first is not None and (len(sources) == 1 or first in self._origins):  # its own first
            return sources[first]
        if not sources:
            raise ConfigurationError(f"{path} defines no flow: no module-level value in it is a Flow.")
        choices = ", ".join(f"{path}:{name}" for name in sorted(sources))
        raise ConfigurationError(f"{path} defines several flows; name one: {choices}.")

    def headings(self) -> dict[str, Keys]:
        """Headings of the project file that belong to flows and applications."""
        headings: dict[str, Keys] = {}
        for plug in plugs():
            headings |= {heading: _keys(keys) for heading, keys in plug.headings().items()}
        self._load_plugins()
        for module in self._modules.values():
            for heading, keys in getattr(module, SETTINGS_NAME, {}).items():
                headings[heading] = _keys(keys)
        if self.left_out:  # they may know any heading
            headings = dict.fromkeys(map(str, self.settings.values)) | headings
        return headings

    def modules(self) -> list[ModuleType]:
        """The project's plugins and the files loaded so far, for what they define besides flows."""
        self._load_plugins()
        return list(self._modules.values())

    @property
    def loaded(self) -> list[ModuleType]:
        """Modules loaded so far; this loads none."""
        return list(self._modules.values())

    # -- loading --------------------------------------------------------------------------------------------

    def add_file(self, path: str, name: str | None = None) -> dict[str, Found]:
        """Load a Python file, or a definition of any kind, and return its flows; `name` is the flow of a run
        to be resumed."""
        file = (self.settings.folder / path).resolve()
        if file.suffix != ".py" and file.exists():
            for definitions in self.every_definitions():
                if definitions.claims(file):
                    # Spelled as a path, even if only a name was given.
                    shown = path if is_path(path) else f"{path}/" if file.is_dir() else f"./{path}"
                    if (file, name) not in self._made:  # a second call returns the same flow
                        self._made[file, name] = definitions.flows(file, name)
                    return self._add_family(definitions, self._made[file, name], shown)
        if not file.is_file():
            raise ConfigurationError(_no_definition(path, file))
        module = self._file(file, path)
        return self._add_module(module, path)

    def is_definition(self, path: Path) -> bool:
        """Whether a file or folder is a definition of any kind, valid or not."""
        return any(definitions.claims(path) for definitions in self.every_definitions())

    def is_data(self, file: Path) -> bool:
        """Whether a file is a definition without code of its own, which may lie anywhere."""
        claiming = (definitions for definitions in self.every_definitions() if definitions.claims(file))
        return any(not definitions.code for definitions in claiming)

    def _add_family(self, definitions: Definitions, flows: Sequence[Flow], place: str) -> dict[str, Found]:
        """Register the flows of one definition."""
        sources = {flow.name: self._add(flow, place) for flow in flows}
        for name in sources:
            self._families[name] = tuple(sources)
            self._origins[name] = definitions.kind
        return sources

    def _load_plugins(self) -> None:
        for name, folder in self._plugins:
            if name in self._loaded:
                continue
            self._loaded.add(name)
            if is_path(name):
                self.add_file(name if folder == self.settings.folder else str(folder / name))
            else:
                self._add_module(self._module(name, folder), name)

    def _points(self) -> list[EntryPoint]:
        if self._entry_points is None:
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

    def flows_of_apps(self) -> Iterator[Flow]:
        """The flows of applications, as far as the settings suffice to make them."""
        for app in apps():
            with suppress(ConfigurationError):
                yield from self._made_by(app)

    def _load_app(self, name: str) -> None:
        for app in apps():
            if name in app.flows and app.name not in self._loaded:
                self._loaded.add(app.name)
                for flow in self._made_by(app):
                    self._add(flow, f"the application {app.name}")

    def _made_by(self, app: App) -> Iterable[Flow]:
        return _flows_of(lambda: app.make(self.settings), f"The application {app.name}")

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
                    f"{self.settings.place('plugins')}: there is no module '{name}'."
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
        other = self._found.get(flow.name)
        if other is not None and other.flow is not flow:
            raise ConfigurationError(
                f"Two flows are named '{flow.name}': one in {other.place}, one in {place}. "
                f"Rename one of them."
            )
        if other is None and self.settings.get("mcp") is not None:
            self._equip(flow)
        return self._found.setdefault(flow.name, Found(flow, place))

    def _equip(self, flow: Flow) -> None:
        """Give a flow the tools of MCP servers that its steps name."""
        from detent.runtime.mcp import attach

        attach(self.mcp(), [flow])

    def served(self) -> list[Tool]:
        """Tools of the MCP servers in the settings."""
        return [tool for server in self.mcp().values() for tool in server.tools]

    def mcp(self) -> dict[str, McpServer]:
        """The MCP servers of the settings."""
        if self._servers is None:
            if self.settings.get("mcp") is None:
                return {}
            from detent.runtime.mcp import mcp_servers

            self._servers = mcp_servers(self.settings)
        return self._servers


def _root(name: str) -> str:
    """The name of the definition that a flow's name begins with."""
    return name.partition(".")[0]


def checked_name(text: str) -> str:
    """A name or path from a command line.

    Raises:
        ConfigurationError: no file, flow or run can have it.
    """
    parts = (part.encode(errors="surrogatepass") for part in text.split("/"))
    if len(text) > _LONGEST or any(len(part) > _LONGEST_PART for part in parts):
        raise ConfigurationError(
            f"'{shortened(text)}' is too long for a name: it has {len(text)} characters."
        )
    return text


def shortened(text: str) -> str:
    """A name for messages, cut if no file could have it."""
    return text if len(text) <= _LONGEST_PART else f"{text[:40]}…"


def _no_definition(path: str, file: Path) -> str:
    if file.is_dir():
        with suppress(OSError):
            if not any(file.iterdir()):
                return f"{path} is an empty folder."
        return f"{path} is a folder that no kind of flow recognizes."
    return f"{path} is a pipe or a device, not a file." if file.exists() else f"There is no file {path}."


def is_path(text: str) -> bool:
    """Whether a text is a path rather than a name."""
    return text.endswith((".py", *suffixes())) or "/" in text or "\\" in text


_REACHABLE: list[str] = []
"""Folders of projects on the import path, the latest first."""


def _reachable(folder: Path) -> None:
    """Let a file import its neighbours. They come after installed packages, so that a project's file never
    replaces a module that Detent itself imports."""
    place = str(folder)
    import_from_source(folder)
    if place in sys.path:
        return
    first = next((path for path in _REACHABLE if path in sys.path), None)
    sys.path.insert(len(sys.path) if first is None else sys.path.index(first), place)
    _REACHABLE.insert(0, place)


def _flows_of(value: Any, place: str) -> Iterable[Flow]:
    """The flows of an entry point's value."""
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
