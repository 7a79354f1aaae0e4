"""The workflow files of a project: found, checked and compiled into flows with the project's tools."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from detent.authoring.document import MOST_BYTES, below, file_bytes
from detent.authoring.names import Nearest
from detent.authoring.problem import DocumentError, Place, Problem
from detent.authoring.step_settings import unknown_step
from detent.engine.tools import Tool, ToolError, tools_of
from detent.flows.workflow import events
from detent.flows.workflow.project_registry import registry_for
from detent.flows.workflow.run_data import INDEX, ITEM, OUTER
from detent.flows.workflow.search_path import WorkflowShelf, files_of
from detent.flows.workflow.settings import WorkflowSettings, project_workflows, user_workflows
from detent.flows.workflow.single_step import ONLY, only, step_named
from detent.flows.workflow.spec import SubworkflowStep, WorkflowSpec
from detent.kernel.errors import ConfigurationError
from detent.runtime.key_hosts import KeyHosts, guarded_fetch
from detent.runtime.plugs import Checked, Definitions, Description, Drawing, RunStart
from detent.runtime.settings import Settings, alike

if TYPE_CHECKING:
    from detent.adapters.guarded import Guarded
    from detent.adapters.project.checkpoints import Checkpoints
    from detent.dispatch.dispatcher import DispatchSettings
    from detent.engine.flow import Flow
    from detent.engine.ports import Store
    from detent.flows.workflow.events import Listener
    from detent.flows.workflow.flow import Compiled
    from detent.flows.workflow.registry import Registry, ValidationStage
    from detent.runtime.plugs import Kind, Project
    from detent.runtime.trial import Trial

STATE = ".detent"
"""Folder of a project in which runs keep their files."""
MIGRATIONS_NAME = "DETENT_MIGRATIONS"
"""Name in a plugin that holds migrations by workflow, for runs begun under an earlier version of its file. A
key is the old fingerprint, as shown in the refusal; the value a function from the run to a `Migration`."""
STEPS = "steps"
"""Key under which the data of a trial give results of other steps, as expressions read them."""
TIMED_OUT = 124
"""Exit code of a stage that timed out, as of the program `timeout`."""
MOST_SAID = 20_000
"""Characters kept from the end of a stage's output."""


_TELLING = (b"version", b"steps")
"""Keys by which a workflow file is told from other YAML files in a folder."""


class Chosen(NamedTuple):
    """A workflow chosen by name or path, without errors."""

    spec: WorkflowSpec
    file: Path
    warnings: tuple[Problem, ...]


class Workflows(Definitions):
    """Workflow files of one project, and the items they name."""

    code = False

    def __init__(self, kind: Kind, project: Project, environ: Mapping[str, str] | None = None) -> None:
        super().__init__(kind, project)
        self._environ = os.environ if environ is None else environ
        self._named_files: list[Path] = []
        """Workflow files that were chosen, in any folder."""

    @cached_property
    def registry(self) -> Registry:
        """The registry of everything the files may name."""
        return registry_for(self.settings, self.project, environ=self._environ)

    @cached_property
    def shelf(self) -> WorkflowShelf:
        """The shelf of workflow files."""
        return shelf_for(self.settings, self._environ)

    @cached_property
    def tools(self) -> list[Tool]:
        """Tools that actions and agents can use: the built-in ones, and those of servers and plugins."""
        from detent.adapters.project import project_tools
        from detent.flows.workflow.validation_tools import validation_tools

        options = WorkflowSettings.read(self.settings)
        root, state = self.settings.folder, self.settings.folder / STATE
        webhook = self._environ.get(options.notify_webhook_env) if options.notify_webhook_env else None
        built_in = project_tools(
            root, state, environ=self._environ, blobs=self._blob, webhook=webhook,
            notices=options.notify_folder, protected=self._protected(), allow_private=options.allow_private,
            guarded=self._guarded,
        )  # fmt: skip
        hosts = KeyHosts(self.settings, self._environ)
        built_in = [
            guarded_fetch(tool, hosts, self._environ) if tool.name == "http.fetch" else tool
            for tool in built_in
        ]
        shell = next(tool for tool in built_in if tool.name == "shell.run")
        built_in += validation_tools(self._stages, shell)
        plugin_tools = [tool for module in self.project.modules() for tool in tools_of(module)]
        return list({tool.name: tool for tool in [*built_in, *self.project.served(), *plugin_tools]}.values())

    @cached_property
    def _guarded(self) -> Guarded:
        """The files that configure this project, which no agent may write."""
        from detent.adapters.guarded import Guarded
        from detent.runtime.trust import Trust

        trust = Trust.of(self.settings, self._environ)

        def places() -> list[Path]:
            loaded = [
                Path(file) for module in self.project.loaded if (file := getattr(module, "__file__", None))
            ]
            return [*trust.files.guarded, *self._named_files, *loaded]

        def suspend(program: str, changed: list[str]) -> None:
            trust.suspend(f"{program}, which an agent wanted, changed {', '.join(changed[:5])}")

        return Guarded(places, suspend)

    @cached_property
    def checkpoints(self) -> Checkpoints:
        """The checkpoint files of the project."""
        from detent.adapters.project.checkpoints import Checkpoints

        return Checkpoints(self.settings.folder / STATE / "checkpoints")

    @cached_property
    def compiled(self) -> Compiled:
        """The compiler of workflow files into flows."""
        from detent.flows.workflow.cleanup import Keeping
        from detent.flows.workflow.compile_context import Ports
        from detent.flows.workflow.flow import Compiled

        options = WorkflowSettings.read(self.settings)
        ports = Ports(
            self.settings.folder, self._run_stage, self.checkpoints.save, max_parallel=options.max_parallel,
            ended=Keeping(self.settings.folder / STATE).ended,
        )  # fmt: skip
        return Compiled(self.registry, self.tools, ports, self._named, self._environ)

    # -- files ----------------------------------------------------------------------------------------------

    def choose(self, name: str, *, forced: bool = False, listener: Listener | None = None) -> Chosen:
        """Find a workflow by name or path, and check it; the listener hears how the check ends.

        Raises:
            WorkflowNotFound: there is no such workflow.
            DocumentError: the file has errors; it lists all of them.
        """
        file = self.shelf.find(name, self.settings.folder)
        self._named_files.append(file.resolve())
        events.tell(listener, events.ValidationStarted, workflow_name=name)
        spec, problems = self.problems(file, forced=forced)
        errors = [problem for problem in problems if problem.severity == "error"]
        if errors or spec is None:
            events.tell(listener, events.ValidationFailed, errors=tuple(errors))
            raise DocumentError(f"Workflow '{spec.name if spec and spec.name else name}'", errors)
        events.tell(listener, events.ValidationCompleted, warnings_count=len(problems))
        return Chosen(spec, file, tuple(problems))

    def problems(self, file: Path, *, forced: bool = False) -> tuple[WorkflowSpec | None, Sequence[Problem]]:
        """Return a file as far as it can be read, and its problems."""
        from detent.flows.workflow.checks import check_read
        from detent.flows.workflow.step_modes import CheckSettings
        from detent.runtime.executors import ConfiguredExecutors

        settings, shelf = self.settings, self.shelf
        read = shelf.load(file)
        check_settings = CheckSettings(
            {tool.name for tool in self.tools}, settings.section("steps"), settings.section("agents"),
            no_model=ConfiguredExecutors(settings).absent,
            forced=forced or settings.force_deterministic, workflows=tuple(shelf.names()),
        )  # fmt: skip
        return read.partial, check_read(read, self.registry, shelf.finder(file.parent), check_settings)

    def settings_problems(self, specs: Iterable[WorkflowSpec]) -> list[Problem]:
        """Return a problem for each step that the settings configure and that does not exist.

        Settings for a step of a known workflow are checked with its file. Known steps are those of `known`
        workflows and of every other flow.
        """
        settings = self.settings
        section = [str(key) for key in settings.section("steps")]
        if not section:
            return []
        workflows = self.known(specs)
        known = dict.fromkeys(_step_names(workflows))
        spelled = {alike(name) for name in known}

        def exists(key: str) -> bool:
            # An environment variable may spell the name of the step differently.
            return key in known or (settings.by_variable("steps", key) and alike(key) in spelled)

        unknown = [key for key in section if not exists(key)]
        if unknown:
            known |= dict.fromkeys(self.project.step_names(unknown))
            spelled = {alike(name) for name in known}
        names = dict.fromkeys(spec.name for spec in workflows)
        problems: list[Problem] = []
        for key in unknown:
            parts = key.split("/")
            of_workflow = len(parts) == 3 and parts[0] == self.kind.name
            qualified = parts[1:] if of_workflow else parts
            if exists(key) or (len(qualified) == 2 and qualified[0] in names):
                continue
            reason = ""
            if of_workflow:
                meant = tuple(f"{parts[0]}/{name}/{parts[2]}" for name in Nearest().of(parts[1], names))
                reason = f"there is no workflow '{parts[1]}'"
            elif self.project.left_out:
                continue  # a plugin's flow may have it
            else:
                meant = Nearest().of(key, known)
            place = settings.place("steps", key)
            problems.append(unknown_step(key, place, below("steps", key), meant, reason))
        return problems

    def known(self, specs: Iterable[WorkflowSpec] = ()) -> list[WorkflowSpec]:
        """Return the given workflows, those on the shelf, those in files beside them or in the project's
        folder, and every workflow that one of them runs; broken files as far as they can be read."""
        waiting = list(specs)
        folders = dict.fromkeys([self.settings.folder, *map(self.base, waiting)])
        files = [
            *(entry.file for entry in self.shelf.all()),
            *(file for folder in folders for file in files_of(folder)),
        ]
        waiting += [read for file in files if (read := self.shelf.load(file).partial) is not None]
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
                        file = self.shelf.find(step.workflow, self.base(spec))
                    except ConfigurationError:
                        continue  # reported with the file that names it
                    if (read := self.shelf.load(file).partial) is not None:
                        waiting.append(read)
        return list(workflows.values())

    # -- as definitions of a kind ---------------------------------------------------------------------------

    def claims(self, path: Path) -> bool:
        """Whether a path is a YAML file."""
        return path.suffix in self.kind.suffixes and path.is_file()

    def find(self, target: str) -> Path:
        """Return the file for a name or path."""
        return self.shelf.find(target, self.settings.folder)

    def flows(self, path: Path, name: str | None = None) -> list[Flow]:
        """Return the flows of a file, its own first.

        Raises:
            DocumentError: the file has errors; it lists all of them.
        """
        return self._with_step(self.choose(str(path)).spec, name or "")

    def named(self, name: str) -> list[Flow]:
        """Return the flows of the workflow that a flow's name belongs to; none if it is not on the shelf."""
        root = name.partition(".")[0]
        return self._with_step(self.choose(root).spec, name) if root in self.shelf.names() else []

    def _with_step(self, spec: WorkflowSpec, name: str) -> list[Flow]:
        """The flows of a workflow, with those of the single-step run that a flow's name may denote."""
        rest = name.partition(".")[2]
        if not rest.startswith(ONLY):
            return self.flows_of(spec)
        step = step_named(spec, rest.removeprefix(ONLY).partition(".")[0])
        return [*self.flows_of(spec), *self.flows_of(only(spec, step))]

    def all(self, tell: Callable[[str], None]) -> Iterator[tuple[list[Flow], bool]]:
        """Yield the flows of files on the shelf and in the project's folder; `tell` reports broken files."""
        from contextlib import suppress

        clashes: dict[str, None] = {}
        for listed in self.shelf.all():
            if listed.hidden_by is not None:
                continue
            if listed.rivals:
                clashes[listed.clash] = None
                continue
            try:
                chosen = self.choose(str(listed.file))
            except DocumentError as error:
                tell(f"The steps of this workflow are left out. {error}")
                continue
            yield self.flows_of(chosen.spec), listed.source == "builtin"
        for file in files_of(self.settings.folder):
            if self.shelf.load(file).spec is not None:
                with suppress(DocumentError):  # the file may not be meant as a workflow of the project
                    yield self.flows_of(self.choose(str(file)).spec), False
        for clash in clashes:
            tell(f"The steps of these workflows are left out. {clash}")

    def paths(self, *, shipped: bool = True) -> list[Path]:
        """Return the files on the shelf, right or wrong; with those that ship, or without."""
        listed = (entry for entry in self.shelf.all() if shipped or entry.source != "builtin")
        return list(dict.fromkeys(entry.file for entry in listed))

    def loose(self) -> list[Path]:
        """Return the workflow files that lie in the project's folder itself, right or wrong."""
        return [path for path in files_of(self.settings.folder) if _looks_like_a_workflow(path)]

    def names(self) -> list[str]:
        """Return the names of the workflows on the shelf."""
        return list(self.shelf.names())

    def check(self, paths: Sequence[Path]) -> list[Checked]:
        """Check files, and what the settings say about their steps."""
        clashes: dict[Path, str] = {listed.file: listed.clash for listed in self.shelf.all() if listed.rivals}
        results: list[Checked] = []
        specs: list[WorkflowSpec] = []
        for path in paths:
            spec, problems = self.problems(path)
            if path in clashes:
                place = spec.places.get("name", spec.place) if spec is not None else (str(path), 1)
                problems = [Problem("E005", clashes[path], Place(*place[:3]), "name"), *problems]
            steps = sum(1 for _ in spec.every_step()) if spec is not None else 0
            name = spec.name if spec is not None else ""
            results.append(Checked(name or self.shown(path), problems, steps, self.shown(path)))
            specs += [] if spec is None else [spec]
        if beside := self.settings_problems(specs):
            results.append(Checked("the settings", beside))
        if results:
            results[-1] = results[-1]._replace(notes=self.stand_ins(specs))
        return results

    def stand_ins(self, specs: Iterable[WorkflowSpec] | None = None) -> list[str]:
        """Return notes on items of the project that replace shipped ones, as far as the files name them."""
        from detent.flows.workflow.registry import named_by

        used = None if specs is None else {name for spec in specs for name in named_by(spec)}
        return [
            f"Note: the {kind} '{item.name}' is the project's own ({item.origin}), in place of the one that "
            f"ships."
            for kind, item in self.registry.stand_ins
            if used is None or (kind, item.name) in used
        ]

    def shown(self, file: Path) -> str:
        """Return a file for people: from the working folder or the home folder, if it is in one of them."""
        for folder, lead in ((self.settings.folder, ""), (Path.home(), "~/")):
            if file.is_relative_to(folder):
                return lead + file.relative_to(folder).as_posix()
        return str(file)

    def name_of(self, path: Path) -> str:
        """Return the name of a workflow whose file has the right shape."""
        return self.shelf.spec(str(path), self.settings.folder).name

    def describe(self, path: Path) -> Description:
        """Return the inputs of a workflow and who performs each step."""
        from detent.flows.workflow.description import described, description

        spec = self.shelf.spec(str(path), self.settings.folder)
        return description(described(spec, self.shown(path), self.settings, self.registry))

    def draw(self, path: Path, drawing: Drawing) -> str:
        """Draw a workflow whose file has the right shape."""
        from detent.flows.workflow import drawing as pictures

        if drawing.format == "svg":
            return super().draw(path, drawing)
        spec = self.shelf.spec(str(path), self.settings.folder)
        if drawing.format == "mermaid":
            return pictures.mermaid(spec, "LR" if drawing.direction == "LR" else "TD", drawing.taken)
        width = pictures.WIDTH if drawing.width is None else max(40, drawing.width)
        return pictures.ascii(spec, drawing.taken, width=width)

    async def taken(self, path: Path, store: Store, run_id: str) -> dict[str, str]:
        """Return the status of each step of a run."""
        from detent.flows.workflow.results import path_taken

        return await path_taken(store, self.shelf.spec(str(path), self.settings.folder), run_id)

    def step_names(self) -> list[str]:
        """Return the names by which settings may configure the steps of all known workflow files."""
        return list(dict.fromkeys(_step_names(self.known())))

    def agents(self) -> list[str]:
        """Return the names of the agents that workflow files may name and settings may configure."""
        return list(self.registry.agents.names)

    # -- runs -----------------------------------------------------------------------------------------------

    async def start(self, flow: Flow, given: Mapping[str, Any]) -> RunStart:
        """Return the data of a run with these inputs.

        Raises:
            InputsError: some inputs do not fit; it lists all of them.
            PrerequisitesMissing: some prerequisites are missing; it lists all of them.
        """
        from detent.flows.workflow.runs import WorkflowRuns

        runs = WorkflowRuns(self, _spec_of(flow))
        prepared = runs.prepare(given)
        await runs.preflight(inputs=prepared.inputs)
        return runs.run_start(prepared)

    async def try_step(
        self, flow: Flow, step: str, data: Mapping[str, Any], dispatch: DispatchSettings
    ) -> Trial:
        """Try one step on inputs, and on the `steps`, `item` and `index` that its expressions read.

        Raises:
            ConfigurationError: there is no such step, it consists of others, or the inputs do not fit.
        """
        from detent.flows.workflow.description import PERFORMED
        from detent.flows.workflow.runs import WorkflowRuns
        from detent.runtime.trial import try_step

        spec = _spec_of(flow)
        chosen = step_named(spec, step)
        if chosen.type not in PERFORMED:
            inner = ", ".join(inside.name for inside in chosen.inner)
            parts = f"try one of the steps in it: {inner}" if inner else "only a run can show what it does"
            raise ConfigurationError(
                f"Step '{chosen.name}' is a {chosen.type.value} step, performed as part of a run; {parts}."
            )
        runs = WorkflowRuns(self, spec)
        values = {
            name: data[name] for name in (STEPS, ITEM, INDEX) if name in data and name not in spec.inputs
        }
        prepared = runs.prepare({name: value for name, value in data.items() if name not in values})
        outputs = values.pop(STEPS, {})
        if chosen not in spec.steps or chosen.when is not None:
            flow = self.flows_of(only(spec, chosen))[0]
        data = {**runs.run_start(prepared).data, **values, OUTER: outputs}
        return await try_step(flow, chosen.name, data, dispatch=dispatch)

    # -- flows ----------------------------------------------------------------------------------------------

    def flows_of(self, spec: WorkflowSpec) -> list[Flow]:
        """Return every flow that a run of a workflow may need, its own first."""
        flows = self.compiled.flows(spec)
        for module in self.project.modules():
            migrations = getattr(module, MIGRATIONS_NAME, {})
            for flow in flows:
                flow.migrations.update(migrations.get(flow.name) or {})
        return flows

    def base(self, spec: WorkflowSpec) -> Path:
        """Return the folder from which paths in a file start."""
        return Path(spec.place.file).absolute().parent

    def _named(self, name: str, of: WorkflowSpec) -> WorkflowSpec:
        return self.shelf.spec(name, self.base(of))

    def _protected(self) -> list[Path]:
        """The store's files, which actions may not touch."""
        from detent.runtime.store_url import store_url

        url = store_url(self.settings)
        if "://" in url or url.startswith("memory:"):
            return []
        place = self.settings.base("store") / url.removeprefix("sqlite:").partition("?")[0]
        return [place, *(place.with_name(place.name + end) for end in ("-wal", "-shm", "-journal"))]

    # -- ports ----------------------------------------------------------------------------------------------

    async def _blob(self, hash: str) -> bytes | None:
        store: Store | None = self.project.store
        return None if store is None else await store.blob(hash)

    def _stages(self, names: list[str]) -> list[dict[str, Any]]:
        stages = [self.registry.stages.get(name) for name in names]
        return [
            {
                "name": stage.name, "command": None if stage.command is None else list(stage.command),
                "fix_command": None if stage.fix_command is None else list(stage.fix_command),
                "timeout": stage.timeout,
            }
            for stage in stages
        ]  # fmt: skip

    async def _run_stage(self, stage: ValidationStage) -> dict[str, Any]:
        """Run a stage's command and keep the end of its output."""
        shell = next(tool for tool in self.tools if tool.name == "shell.read")
        assert stage.command is not None
        try:
            ran = await shell.perform(argv=list(stage.command), timeout=stage.timeout, check=False)
        except ToolError as error:
            code = TIMED_OUT if error.code == "timeout" else 127
            return {"exit_code": code, "output": error.message, "duration_ms": 0.0}
        output = (ran["stdout"] + ran["stderr"])[-MOST_SAID:]
        return {"exit_code": ran["exit_code"], "output": output, "duration_ms": ran["duration_ms"]}


def _spec_of(flow: Flow) -> WorkflowSpec:
    """The workflow that a flow was compiled from."""
    spec = getattr(flow, "workflow", None)
    assert isinstance(spec, WorkflowSpec)
    return spec


def shelf_for(settings: Settings, environ: Mapping[str, str] | None = None) -> WorkflowShelf:
    """Return the shelf of the project's workflow files, the user's own and the shipped ones."""
    return WorkflowShelf(project_workflows(settings), user_workflows(settings, environ))


def _looks_like_a_workflow(path: Path) -> bool:
    """Whether a YAML file has the top-level keys of a workflow; it need not be readable otherwise."""
    try:
        raw = file_bytes(path, MOST_BYTES)
    except OSError:
        return False
    return all(re.search(rb"^[\"']?" + key + rb"[\"']?\s*:", raw, re.MULTILINE) for key in _TELLING)


def _step_names(specs: Iterable[WorkflowSpec]) -> Iterator[str]:
    """The names by which settings may configure the steps of workflows, bare and qualified."""
    for spec in specs:
        for step in spec.every_step():
            yield from (step.name, f"workflow/{spec.name}/{step.name}")
