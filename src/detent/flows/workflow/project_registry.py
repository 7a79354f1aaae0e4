"""Gathers what workflow files may name: what ships, what installed packages offer, the project's plugins,
and the validation stages of the settings.

Nothing that cannot be loaded is passed over, and a name that stands for two things names both places. Only
the project's own plugins may stand in for something that ships, since whoever lists them knows what they
hold; a package somebody installed may not.
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
from detent.kernel import log
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
"""Entry points whose value is a module, something decorated, or a function that gives such things."""
FLOW = "workflow"
"""What the qualified names of steps begin with."""
OWN = "detent"
"""Origin of what ships without a module of its own."""


def registry_for(
    settings: Settings, project: Project, *, environ: Mapping[str, str] | None = None
) -> Registry:
    """Everything workflow files of this project may name; `ConfigurationError` for what cannot be loaded."""
    from detent.flows.workflow.actions import SHIPPED

    said = WorkflowSettings.read(settings)
    registry = Registry(*SHIPPED)
    for name in STAGES:
        registry.add(ValidationStage(name, OWN))
    for prerequisite in built_in_prerequisites(settings, environ):
        registry.add(prerequisite)
    gathering = _Gathering(registry, settings.folder)
    gathering.installed()
    for module in project.modules():
        gathering.module(module, own=True)
    registry = registry.replaced(stages=_stages(registry, said))
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
    """The checks that ship, of this project."""
    from detent.adapters.project import prerequisites as checks

    here: dict[str, Any] = {"root": settings.folder, "environ": environ}

    def one(
        name: str, check: Callable[..., Any], shown: str, remediation: str, argument: bool = False
    ) -> Prerequisite:
        return Prerequisite(name, OWN, check, remediation, shown, argument)

    return [
        one("git", partial(checks.git, **here), "git", "Install git and put it on PATH."),
        one(
            "git_repo",
            partial(checks.git_repo, **here),
            "a git repository",
            "Run `git init` in the project folder, or run the workflow inside a repository.",
        ),
        one(
            "git_identity",
            partial(checks.git_identity, **here),
            "a name to commit under",
            "Run `git config user.name NAME` and `git config user.email ADDRESS`.",
        ),
        one(
            "git_remote",
            partial(checks.git_remote, **here),
            "a remote to push to",
            "Run `git remote add origin URL`.",
        ),
        one(
            "executor",
            partial(_executor, settings),
            "a model for agent steps",
            "Configure one under `models` or `model` in the project file; `detent doctor` says more.",
        ),
        one(
            "command",
            partial(checks.command, **here),
            "command",
            "Install {argument} and put it on PATH.",
            True,
        ),
        one("env", partial(checks.env, environ=environ), "variable", "Set {argument}.", True),
        one("package", checks.package, "package", "Run `pip install {argument}`.", True),
        one("path", partial(checks.path, root=settings.folder), "path", "Make {argument}.", True),
    ]


def _executor(settings: Settings) -> Any:
    from detent.adapters.project.prerequisites import executor
    from detent.runtime.executors import ConfiguredExecutors

    executors = ConfiguredExecutors(settings)
    return executor(executors.default, executors.make)


# -- plugins ------------------------------------------------------------------------------------------------


class _Gathering:
    """Registers what others bring."""

    def __init__(self, registry: Registry, folder: Path) -> None:
        self.registry = registry
        self.folder = folder
        self._loaded: dict[str, list[Named]] = {}
        self._shipped = {id(item): item for shelf in self._shelves() for item in shelf}

    def installed(self) -> None:
        """What installed packages offer through entry points."""
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
        """Everything a module has marked; what is the project's `own` may stand in for what ships."""
        items = [item for value in list(vars(module).values()) for item in marked(value)]
        for item in items:
            self._add(item, own=own)
        return items

    def _load(self, point: EntryPoint, kind: type[Named]) -> list[Named]:
        """What one entry point stands for, registered."""
        try:
            value = point.load()
        except (Exception, SystemExit) as error:
            raise plugin_error(shown_point(point), error) from error
        if isinstance(value, ModuleType):
            return self.module(value)
        items = list(marked(value))
        if not items and kind is Action and _is_handler(value):
            # Usable by code; an agent could not be told what it is for.
            log.warning(
                "action.no_intent", action=point.name, origin=shown_point(point), hint="decorate it: @action"
            )
            items = [Action(point.name, shown_point(point), value)]
        elif not items and callable(value):
            try:
                given = value()
            except (Exception, SystemExit) as error:
                raise plugin_error(shown_point(point), error) from error
            items = _named(given)
        for item in items:
            self._add(item)
        return items

    def _add(self, item: Named, *, own: bool = False) -> None:
        there = next((one for one in self._of_its_kind(item) if one.name == item.name), None)
        if there is not None and _made_at(there) == _made_at(item):
            return  # the same lines of a file, loaded once as a plugin and once by an import
        placed = self._placed(item)
        if there is None or not own or id(there) not in self._shipped:
            self.registry.add(placed)
        elif isinstance(there, ValidationStage) and there.command is None:
            self.registry.put(placed)  # a command for a stage that has none stands in for nothing
        else:
            self.registry.put(replace(placed, instead_of=there.origin or OWN))

    def _shelves(self) -> tuple[Iterable[Named], ...]:
        """By kind, as in `GROUPS`."""
        return (
            self.registry.actions, self.registry.agents, self.registry.generators,
            self.registry.context_builders, self.registry.prerequisites, self.registry.stages,
        )  # fmt: skip

    def _of_its_kind(self, item: Named) -> Iterable[Named]:
        shelves = zip(GROUPS.values(), self._shelves(), strict=True)
        return next((shelf for kind, shelf in shelves if isinstance(item, kind)), ())

    def _placed(self, item: Named) -> Named:
        """The thing with an origin people can find: a file loaded by its path has a made-up module name."""
        module, colon, line = item.origin.partition(":")
        file = _file_of(module) if module.startswith("_detent_") else None
        if file is None:
            return item
        shown = file.relative_to(self.folder) if file.is_relative_to(self.folder) else file
        return replace(item, origin=f"{shown.as_posix()}{colon}{line}")


def _is_handler(value: Any) -> bool:
    """Whether a function that nobody decorated does a step's work, rather than giving things to register."""
    if not inspect.isroutine(value):
        return False
    parameters = inspect.signature(value).parameters.values()
    return any(one.default is one.empty and one.kind is not one.VAR_KEYWORD for one in parameters)


def _named(given: Any) -> list[Named]:
    """The things in what a function gave."""
    if isinstance(given, ModuleType | str | bytes | Mapping):
        return []
    listed = [given] if marked(given) or not isinstance(given, Iterable) else list(given)
    return [item for one in listed for item in marked(one)]


def _made_at(item: Named) -> tuple[str, int] | Named:
    """File and line of the code behind a thing; the thing itself where there is none."""
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


def _stages(registry: Registry, said: WorkflowSettings) -> list[ValidationStage]:
    """Registered stages with what the settings say laid over them, and those only the settings know."""
    found = {stage.name: stage for stage in registry.stages}
    problems = [
        f"{stage.origin}: the validation stage '{stage.name}' has a timeout of {stage.timeout:g} seconds; "
        f"it takes {SHORTEST:g} to {LONGEST:g}."
        for stage in found.values()
        if not SHORTEST <= stage.timeout <= LONGEST
    ]
    if problems:
        raise SettingsError("The validation stages", problems)
    for name, one in said.stages.items():
        there = found.get(name, ValidationStage(name, one.place))
        laid = {
            part: value
            for part in ("command", "fix_command", "timeout")
            if (value := getattr(one, part)) is not None
        }
        found[name] = replace(there, origin=one.place, **laid) if laid else there
    return list(found.values())


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
    """A workflow file as far as it can be read, and everything wrong with it under these settings.

    `tools` are those that can be called, where that is known. With `forced`, agents are switched off.
    """
    from detent.flows.workflow.checks import check_read
    from detent.runtime.executors import ConfiguredExecutors

    read = shelf.load(file)
    found = check_read(
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
    return read.partial, found


def settings_problems(
    settings: Settings, project: Project, shelf: WorkflowShelf, specs: Iterable[WorkflowSpec]
) -> list[Problem]:
    """What the settings say about steps that are not there: of workflows that are not there, and of none.

    What is said about a step of one workflow is checked with its file. Known are the steps of these
    workflows and those they run, of the workflows on the shelf and of files beside them, and of all other
    flows there are.
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
    left = [key for key in section if key not in known and not _in_the_environment(settings, key, spelled)]
    if left:
        known |= dict.fromkeys(project.step_names(left))
        spelled = {alike(name) for name in known}
    names = dict.fromkeys(spec.name for spec in files)
    found: list[Problem] = []
    for key in left:
        way = key.split("/")
        own = way[1:] if len(way) == 3 and way[0] == FLOW else way
        if key in known or (len(own) == 2 and own[0] in names) or _in_the_environment(settings, key, spelled):
            continue
        if len(way) == 3 and way[0] == FLOW:
            meant = tuple(f"{FLOW}/{one}/{way[2]}" for one in Nearest().of(way[1], names))
            message = f"the settings configure the step '{key}', but there is no workflow '{way[1]}'."
        else:
            if project.left_out:
                continue  # a plugin's flow may have it
            meant = Nearest().of(key, known)
            message = f"the settings configure the step '{key}', but no flow has a step of that name."
            if not meant:
                message += " Where its file lies elsewhere, list it under `plugins`."
        file, _, line = settings.place("steps", key).partition(", line ")
        place = Place(file, int(line) if line.isdigit() else 1)
        found.append(Problem("E025", message, place, below("steps", key), meant))
    return found


def known_workflows(
    settings: Settings, shelf: WorkflowShelf, specs: Iterable[WorkflowSpec] = ()
) -> list[WorkflowSpec]:
    """These workflows, those on the shelf, those in files beside them or in the project's folder, and all
    that any of them runs; broken ones as far as they can be read."""
    from detent.flows.workflow.shelf import files_of
    from detent.flows.workflow.spec import SubworkflowStep

    waiting = list(specs)
    folders = dict.fromkeys([settings.folder, *(Path(spec.place.file).absolute().parent for spec in waiting)])
    files = [*(one.file for one in shelf.all()), *(file for folder in folders for file in files_of(folder))]
    waiting += [read for file in files if (read := shelf.load(file).partial) is not None]
    found: dict[str, WorkflowSpec] = {}
    while waiting:
        spec = waiting.pop()
        place = str(Path(spec.place.file).absolute())
        if place in found:
            continue
        found[place] = spec
        for step in spec.every_step():
            if isinstance(step, SubworkflowStep) and step.workflow:
                try:
                    file = shelf.find(step.workflow, Path(place).parent)
                except ConfigurationError:
                    continue  # told with the file that names it
                if (read := shelf.load(file).partial) is not None:
                    waiting.append(read)
    return list(found.values())


def _in_the_environment(settings: Settings, key: str, spelled: Container[str]) -> bool:
    """Whether a variable says it, which may spell a step's name as variables are spelled."""
    return settings.place("steps", key).startswith(PREFIX) and alike(key) in spelled
