"""Builds the registry of a project: built-in items, entry points of installed packages, the project's
plugins, and the validation stages of the settings.

A plugin that cannot be loaded is an error, and the error for a duplicate name shows both places. Only the
project's own plugins may replace a built-in item, because they are listed on purpose; an installed package
may not.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from detent.authoring.names import Named
from detent.authoring.problem import Problem
from detent.engine import logger
from detent.flows.workflow.registry import (
    STAGES,
    Action,
    Agent,
    ContextBuilder,
    Generator,
    Prerequisite,
    Registry,
    ValidationStage,
    marked,
    marked_in,
)
from detent.flows.workflow.settings import (
    LONGEST,
    SHORTEST,
    WorkflowSettings,
)
from detent.kernel.errors import ConfigurationError
from detent.runtime.entry_points import EntryPoint, offered, plugin_error, shown_point
from detent.runtime.settings import Settings, SettingsError

if TYPE_CHECKING:
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
    for stage in _stages(registry, workflow_settings):
        registry.put(stage)
    if project.left_out:
        registry.leave_out()
    return registry


# -- prerequisites ------------------------------------------------------------------------------------------


def built_in_prerequisites(
    settings: Settings, environ: Mapping[str, str] | None = None
) -> list[Prerequisite]:
    """The built-in prerequisites, set up for this project."""
    from detent.adapters.project import prerequisites as checks

    root = settings.folder
    on_path: dict[str, Any] = {"root": root, "environ": environ}
    plain: Mapping[str, tuple[Callable[..., Any], str, str]] = {
        "git": (partial(checks.git, **on_path), "git", "Install git and put it on PATH."),
        "git_repo": (
            partial(checks.git_repo, **on_path), "a git repository",
            "Run `git init` in the project folder, or run the workflow inside a repository.",
        ),
        "git_identity": (
            partial(checks.git_identity, **on_path), "a name to commit under",
            "Run `git config user.name NAME` and `git config user.email ADDRESS`.",
        ),
        "git_remote": (
            partial(checks.git_remote, **on_path), "a remote to push to", "Run `git remote add origin URL`."
        ),
        "executor": (
            partial(_executor, settings), "a model for agent steps",
            "Configure one under `models` or `model` in the project file; `detent doctor` says more.",
        ),
    }  # fmt: skip
    with_argument: Mapping[str, tuple[Callable[..., Any], str, str]] = {
        "command": (partial(checks.command, **on_path), "command", "Install {argument} and put it on PATH."),
        "env": (partial(checks.env, environ=environ), "variable", "Set {argument}."),
        "package": (checks.package, "package", "Run `pip install {argument}`."),
        "path": (partial(checks.path, root=root), "path", "Make {argument}."),
    }
    return [
        Prerequisite(name, OWN, check, remediation, shown, table is with_argument)
        for table in (plain, with_argument)
        for name, (check, shown, remediation) in table.items()
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
        self._shipped = {id(item): item for shelf in registry.shelves.values() for item in shelf}

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
        items = marked_in(module)
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
        registered = self.registry.shelf_of(item).find(item.name)
        if registered is not None and _defined_at(registered) == _defined_at(item):
            return  # the same definition, loaded once as a plugin and once by an import
        with_origin = self._with_origin(item)
        if registered is None or not own or id(registered) not in self._shipped:
            self.registry.add(with_origin)
        elif isinstance(registered, ValidationStage) and registered.command is None:
            self.registry.put(with_origin)  # giving a command to a stage without one replaces nothing
        else:
            self.registry.put(replace(with_origin, instead_of=registered.origin or OWN))

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
        Problem(
            "",
            f"{stage.origin}: the validation stage '{stage.name}' has a timeout of {stage.timeout:g} "
            f"seconds; it takes {SHORTEST:g} to {LONGEST:g}.",
        )
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
