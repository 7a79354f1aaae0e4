"""Builds the registry of a project: built-in items, entry points of installed packages, the project's
plugins, and the validation stages of the settings.

A plugin that cannot be loaded is an error, and the error for a duplicate name shows both places. Only the
project's own plugins may replace a built-in item, because they are listed on purpose; an installed package
may not.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from detent.authoring.document import below
from detent.authoring.names import Named
from detent.engine import logger
from detent.flows.workflow.registry import (
    Action,
    Agent,
    ContextBuilder,
    Generator,
    Prerequisite,
    Registry,
    ValidationStage,
    marked,
)
from detent.flows.workflow.settings import (
    LONGEST,
    SHORTEST,
    STAGES,
    WorkflowSettings,
    project_workflows,
    user_workflows,
)
from detent.kernel.errors import ConfigurationError
from detent.runtime.entry_points import offered, plugin_error, shown_point
from detent.runtime.settings import PREFIX, Settings, SettingsError, alike

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from detent.authoring.problem import Problem
    from detent.flows.workflow.shelf import WorkflowShelf
    from detent.flows.workflow.spec import WorkflowSpec
    from detent.runtime.plugs import Project

GROUPS: Mapping[str, type[Named]] = {
    "detent.actions": Action,
    "detent.agents": Agent,
    "detent.generators": Generator,
    "detent.context_builders": ContextBuilder,
    "detent.prerequisites": Prerequisite,
    "detent.validation_stages": ValidationStage,
}
"""Entry point groups. A value is a module, a decorated object, or a function that returns such objects."""
FLOW = "workflow"
"""First part of the qualified names of steps."""
OWN = "detent"
"""Origin of built-in items without a module of their own."""


def registry_for(
    settings: Settings, project: Project, *, environ: Mapping[str, str] | None = None
) -> Registry:
    """Return the registry of everything that workflow files of this project may name.

    Raises:
        ConfigurationError: a plugin or an entry point cannot be loaded.
    """
    from detent.flows.workflow.actions import SHIPPED

    workflow_settings = WorkflowSettings.read(settings)
    registry = Registry(*SHIPPED)
    for name in STAGES:
        registry.add(ValidationStage(name, OWN))
    for prerequisite in built_in_prerequisites(settings, environ):
        registry.add(prerequisite)
    gathering = _Gathering(registry, settings.folder)
    gathering.installed()
    for module in project.modules():
        gathering.module(module, own=True)
    registry = registry.replaced(stages=_stages(registry, workflow_settings))
    if project.left_out:
        registry.leave_out()
    return registry


def shelf_for(settings: Settings, environ: Mapping[str, str] | None = None) -> WorkflowShelf:
    """The workflow files of this project, the user's own and the shipped ones."""
    from detent.flows.workflow.shelf import WorkflowShelf

    return WorkflowShelf(project_workflows(settings), user_workflows(settings, environ))


# -- prerequisites ------------------------------------------------------------------------------------------


def built_in_prerequisites(
    settings: Settings, environ: Mapping[str, str] | None = None
) -> list[Prerequisite]:
    """The built-in prerequisites, set up for this project."""
    from detent.adapters.project import prerequisites as checks

    location: dict[str, Any] = {"root": settings.folder, "environ": environ}

    def built_in(
        name: str, check: Callable[..., Any], shown: str, remediation: str, argument: bool = False
    ) -> Prerequisite:
        return Prerequisite(name, OWN, check, remediation, shown, argument)

    return [
        built_in("git", partial(checks.git, **location), "git", "Install git and put it on PATH."),
        built_in(
            "git_repo",
            partial(checks.git_repo, **location),
            "a git repository",
            "Run `git init` in the project folder, or run the workflow inside a repository.",
        ),
        built_in(
            "git_identity",
            partial(checks.git_identity, **location),
            "a name to commit under",
            "Run `git config user.name NAME` and `git config user.email ADDRESS`.",
        ),
        built_in(
            "git_remote",
            partial(checks.git_remote, **location),
            "a remote to push to",
            "Run `git remote add origin URL`.",
        ),
        built_in(
            "executor",
            partial(_executor, settings),
            "a model for agent steps",
            "Configure one under `models` or `model` in the project file; `detent doctor` says more.",
        ),
        built_in(
            "command",
            partial(checks.command, **location),
            "command",
            "Install {argument} and put it on PATH.",
            True,
        ),
        built_in("env", partial(checks.env, environ=environ), "variable", "Set {argument}.", True),
        built_in("package", checks.package, "package", "Run `pip install {argument}`.", True),
        built_in("path", partial(checks.path, root=settings.folder), "path", "Make {argument}.", True),
    ]


def _executor(settings: Settings) -> Any:
    from detent.adapters.project.prerequisites import executor
    from detent.runtime.executors import ConfiguredExecutors

    executors = ConfiguredExecutors(settings)
    return executor(executors.default, executors.make)


# -- plugins ------------------------------------------------------------------------------------------------


class _Gathering:
    """Registers the items of plugins and installed packages."""

    def __init__(self, registry: Registry, folder: Path) -> None:
        self.registry = registry
        self.folder = folder
        self._loaded: dict[str, list[Named]] = {}
        self._shipped = {id(item): item for shelf in self._shelves() for item in shelf}

    def installed(self) -> None:
        """Register the entry points of installed packages."""
        for group, kind in GROUPS.items():
            for point in sorted(offered(group), key=lambda point: (point.name, point.value)):
                if point.value not in self._loaded:
                    self._loaded[point.value] = self._load(point, kind)
                if not any(isinstance(item, kind) for item in self._loaded[point.value]):
                    raise ConfigurationError(
                        f"{shown_point(point)} is offered as '{point.name}' under {group}, but holds none of "
                        f"those: decorate it with @{group.rpartition('.')[2].removesuffix('s')}."
                    )

    def module(self, module: ModuleType, *, own: bool = False) -> list[Named]:
        """Register every decorated item of a module; the project's `own` items may replace built-in ones."""
        items = [item for value in list(vars(module).values()) for item in marked(value)]
        for item in items:
            self._add(item, own=own)
        return items

    def _load(self, point: EntryPoint, kind: type[Named]) -> list[Named]:
        """Load one entry point and register its items."""
        try:
            value = point.load()
        except (Exception, SystemExit) as error:
            raise plugin_error(shown_point(point), error) from error
        if isinstance(value, ModuleType):
            return self.module(value)
        items = list(marked(value))
        if not items and kind is Action and _is_handler(value):
            # Usable by code only: without an intent, an agent cannot be told what the action is for.
            logger.warning(
                "action.no_intent", action=point.name, origin=shown_point(point), hint="decorate it: @action"
            )
            items = [Action(point.name, shown_point(point), value)]
        elif not items and callable(value):
            try:
                result = value()
            except (Exception, SystemExit) as error:
                raise plugin_error(shown_point(point), error) from error
            items = _items_in(result)
        for item in items:
            self._add(item)
        return items

    def _add(self, item: Named, *, own: bool = False) -> None:
        registered = next((other for other in self._same_kind(item) if other.name == item.name), None)
        if registered is not None and _defined_at(registered) == _defined_at(item):
            return  # the same definition, loaded once as a plugin and once by an import
        with_origin = self._with_origin(item)
        if registered is None or not own or id(registered) not in self._shipped:
            self.registry.add(with_origin)
        elif isinstance(registered, ValidationStage) and registered.command is None:
            self.registry.put(with_origin)  # giving a command to a stage without one replaces nothing
        else:
            self.registry.put(replace(with_origin, instead_of=registered.origin or OWN))

    def _shelves(self) -> tuple[Iterable[Named], ...]:
        """The registered items by kind, in the order of `GROUPS`."""
        return (
            self.registry.actions, self.registry.agents, self.registry.generators,
            self.registry.context_builders, self.registry.prerequisites, self.registry.stages,
        )  # fmt: skip

    def _same_kind(self, item: Named) -> Iterable[Named]:
        shelves = zip(GROUPS.values(), self._shelves(), strict=True)
        return next((shelf for kind, shelf in shelves if isinstance(item, kind)), ())

    def _with_origin(self, item: Named) -> Named:
        """The item with a readable origin: a file loaded by its path has a generated module name."""
        module, colon, line = item.origin.partition(":")
        file = _file_of(module) if module.startswith("_detent_") else None
        if file is None:
            return item
        path = file.relative_to(self.folder) if file.is_relative_to(self.folder) else file
        return replace(item, origin=f"{path.as_posix()}{colon}{line}")


def _is_handler(value: Any) -> bool:
    """Whether an undecorated function is a step's handler rather than a factory of items to register."""
    if not inspect.isroutine(value):
        return False
    parameters = inspect.signature(value).parameters.values()
    return any(
        parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD
        for parameter in parameters
    )


def _items_in(value: Any) -> list[Named]:
    """The items in the return value of a factory."""
    if isinstance(value, ModuleType | str | bytes | Mapping):
        return []
    listed = [value] if marked(value) or not isinstance(value, Iterable) else list(value)
    return [item for entry in listed for item in marked(entry)]


def _defined_at(item: Named) -> tuple[str, int] | Named:
    """File and line of an item's code; the item itself if it has none."""
    for name in ("handler", "prompt", "build", "check"):
        target = getattr(item, name, None)
        code = getattr(inspect.unwrap(target), "__code__", None) if callable(target) else None
        if code is not None:
            return code.co_filename, code.co_firstlineno
    return item


def _file_of(module: str) -> Path | None:
    file = getattr(sys.modules.get(module), "__file__", None)
    return Path(file) if file else None


# -- stages -------------------------------------------------------------------------------------------------


def _stages(registry: Registry, workflow_settings: WorkflowSettings) -> list[ValidationStage]:
    """Registered stages overridden by the settings, and stages defined only in the settings."""
    stages = {stage.name: stage for stage in registry.stages}
    problems = [
        f"{stage.origin}: the validation stage '{stage.name}' has a timeout of {stage.timeout:g} seconds; "
        f"it takes {SHORTEST:g} to {LONGEST:g}."
        for stage in stages.values()
        if not SHORTEST <= stage.timeout <= LONGEST
    ]
    if problems:
        raise SettingsError("The validation stages", problems)
    for name, configured in workflow_settings.stages.items():
        registered = stages.get(name, ValidationStage(name, configured.place))
        overrides = {
            part: value
            for part in ("command", "fix_command", "timeout")
            if (value := getattr(configured, part)) is not None
        }
        stages[name] = replace(registered, origin=configured.place, **overrides) if overrides else registered
    return list(stages.values())


# -- checking -----------------------------------------------------------------------------------------------


def problems_of(
    settings: Settings,
    registry: Registry,
    shelf: WorkflowShelf,
    file: Path,
    *,
    tools: Container[str] | None = None,
    forced: bool = False,
) -> tuple[WorkflowSpec | None, list[Problem]]:
    """Return a workflow file as far as it can be read, and its problems under these settings.

    `tools` are the callable tools, if they are known. With `forced`, agents are switched off.
    """
    from detent.flows.workflow.checks import check_read
    from detent.runtime.executors import ConfiguredExecutors

    read = shelf.load(file)
    problems = check_read(
        read,
        registry,
        find=shelf.finder(file.parent),
        tools=tools,
        steps=settings.section("steps"),
        agents=settings.section("agents"),
        executor=ConfiguredExecutors(settings).default is not None,
        forced=forced or settings.force_deterministic,
        workflows=shelf.names(),
    )
    return read.partial, problems


def settings_problems(
    settings: Settings, project: Project, shelf: WorkflowShelf, specs: Iterable[WorkflowSpec]
) -> list[Problem]:
    """Return a problem for each step that the settings configure and that does not exist.

    Settings for a step of a known workflow are checked with its file. Known steps are those of the given
    workflows and the workflows they run, of the workflows on the shelf and of files beside them, and of every
    other flow.
    """
    from detent.authoring.names import Nearest
    from detent.authoring.problem import Place, Problem

    section = [str(key) for key in settings.section("steps")]
    if not section:
        return []
    files = known_workflows(settings, shelf, specs)
    known: dict[str, None] = {}
    for spec in files:
        for step in spec.every_step():
            known |= dict.fromkeys((step.name, f"workflow/{spec.name}/{step.name}"))
    spelled = {alike(name) for name in known}
    unknown = [key for key in section if key not in known and not _set_by_variable(settings, key, spelled)]
    if unknown:
        known |= dict.fromkeys(project.step_names(unknown))
        spelled = {alike(name) for name in known}
    names = dict.fromkeys(spec.name for spec in files)
    problems: list[Problem] = []
    for key in unknown:
        parts = key.split("/")
        qualified = parts[1:] if len(parts) == 3 and parts[0] == FLOW else parts
        if (
            key in known
            or (len(qualified) == 2 and qualified[0] in names)
            or _set_by_variable(settings, key, spelled)
        ):
            continue
        if len(parts) == 3 and parts[0] == FLOW:
            meant = tuple(f"{FLOW}/{name}/{parts[2]}" for name in Nearest().of(parts[1], names))
            message = f"the settings configure the step '{key}', but there is no workflow '{parts[1]}'."
        else:
            if project.left_out:
                continue  # a plugin's flow may have it
            meant = Nearest().of(key, known)
            message = f"the settings configure the step '{key}', but no flow has a step of that name."
            if not meant:
                message += " Where its file lies elsewhere, list it under `plugins`."
        file, _, line = settings.place("steps", key).partition(", line ")
        place = Place(file, int(line) if line.isdigit() else 1)
        problems.append(Problem("E025", message, place, below("steps", key), meant))
    return problems


def known_workflows(
    settings: Settings, shelf: WorkflowShelf, specs: Iterable[WorkflowSpec] = ()
) -> list[WorkflowSpec]:
    """Return the given workflows, those on the shelf, those in files beside them or in the project's folder,
    and every workflow that one of them runs; broken files as far as they can be read."""
    from detent.flows.workflow.shelf import files_of
    from detent.flows.workflow.spec import SubworkflowStep

    waiting = list(specs)
    folders = dict.fromkeys([settings.folder, *(Path(spec.place.file).absolute().parent for spec in waiting)])
    files = [
        *(entry.file for entry in shelf.all()),
        *(file for folder in folders for file in files_of(folder)),
    ]
    waiting += [read for file in files if (read := shelf.load(file).partial) is not None]
    workflows: dict[str, WorkflowSpec] = {}
    while waiting:
        spec = waiting.pop()
        place = str(Path(spec.place.file).absolute())
        if place in workflows:
            continue
        workflows[place] = spec
        for step in spec.every_step():
            if isinstance(step, SubworkflowStep) and step.workflow:
                try:
                    file = shelf.find(step.workflow, Path(place).parent)
                except ConfigurationError:
                    continue  # reported with the file that names it
                if (read := shelf.load(file).partial) is not None:
                    waiting.append(read)
    return list(workflows.values())


def _set_by_variable(settings: Settings, key: str, spelled: Container[str]) -> bool:
    """Whether an environment variable configures the step, whose name variables may spell differently."""
    return settings.place("steps", key).startswith(PREFIX) and alike(key) in spelled
