"""The workflow files of a project: found and checked, and flows made of them with the project's tools."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from detent.authoring.problem import DocumentError, Problem
from detent.engine.tools import Tool, ToolError, tools_of
from detent.flows.workflow.project_registry import known_workflows, problems_of, registry_for, shelf_for
from detent.flows.workflow.settings import WorkflowSettings
from detent.flows.workflow.single_step import ONLY, only, step_named
from detent.flows.workflow.spec import WorkflowSpec
from detent.runtime.key_hosts import KeyHosts, guarded_fetch
from detent.runtime.plugs import Definitions

if TYPE_CHECKING:
    from detent.adapters.guarded import Guarded
    from detent.adapters.project.checkpoints import Checkpoints
    from detent.engine.flow import Flow
    from detent.engine.ports import Store
    from detent.flows.workflow.flow import Compiled
    from detent.flows.workflow.registry import Registry, ValidationStage
    from detent.flows.workflow.shelf import WorkflowShelf
    from detent.runtime.plugs import Kind, Project

SUFFIXES = (".yaml", ".yml")
STATE = ".detent"
"""The folder of a project in which runs keep what is theirs."""
MIGRATIONS_NAME = "DETENT_MIGRATIONS"
"""In a plugin: by workflow, how runs are carried over that were begun under another file of it. The key is
the old fingerprint, as the refusal says it; the value a function from the run to a `Migration`."""
TIMED_OUT = 124
"""Exit code of a stage that took too long, as the program `timeout` has it."""
MOST_SAID = 20_000
"""Characters kept of what a stage's command said: its end."""


class Chosen(NamedTuple):
    """A workflow somebody asked for, fit to be run."""

    spec: WorkflowSpec
    file: Path
    warnings: tuple[Problem, ...]


class Workflows(Definitions):
    """Workflow files of one project and what they name."""

    code = False

    def __init__(self, kind: Kind, project: Project, environ: Mapping[str, str] | None = None) -> None:
        super().__init__(kind, project)
        self._environ = os.environ if environ is None else environ
        self._named_files: list[Path] = []
        """Workflow files that were chosen, wherever they lie."""

    @cached_property
    def registry(self) -> Registry:
        """What files can name."""
        return registry_for(self.settings, self.project, environ=self._environ)

    @cached_property
    def shelf(self) -> WorkflowShelf:
        """The files."""
        return shelf_for(self.settings, self._environ)

    @cached_property
    def tools(self) -> list[Tool]:
        """What actions can look up and have done: the project's tools, and those of plugins."""
        from detent.adapters.project import project_tools

        said = WorkflowSettings.read(self.settings)
        root, state = self.settings.folder, self.settings.folder / STATE
        webhook = self._environ.get(said.notify_webhook_env) if said.notify_webhook_env else None
        ours = project_tools(
            root, state, environ=self._environ, blobs=self._blob, webhook=webhook,
            notices=said.notify_folder, protected=self._protected(), allow_private=said.allow_private,
            guarded=self._guarded,
        )  # fmt: skip
        hosts = KeyHosts(self.settings, self._environ)
        ours = [
            guarded_fetch(tool, hosts, self._environ) if tool.name == "http.fetch" else tool for tool in ours
        ]
        ours.append(
            Tool(
                "validation.stages",
                self._stages,
                "query",
                description="Tell how the project's checks are run.",
            )
        )
        theirs = [tool for module in self.project.modules() for tool in tools_of(module)]
        return list({tool.name: tool for tool in [*ours, *self.project.served(), *theirs]}.values())

    @cached_property
    def _guarded(self) -> Guarded:
        """What configures this project, for no agent to write."""
        from detent.adapters.guarded import Guarded
        from detent.runtime.trust import Trust

        trust = Trust.of(self.settings, self._environ)

        def places() -> list[Path]:
            loaded = [Path(file) for one in self.project.loaded if (file := getattr(one, "__file__", None))]
            return [*trust.files.guarded, *self._named_files, *loaded]

        def told(program: str, changed: list[str]) -> None:
            trust.suspend(f"{program}, which an agent wanted, changed {', '.join(changed[:5])}")

        return Guarded(places, told)

    @cached_property
    def checkpoints(self) -> Checkpoints:
        """Where checkpoints are written."""
        from detent.adapters.project.checkpoints import Checkpoints

        return Checkpoints(self.settings.folder / STATE / "checkpoints")

    @cached_property
    def compiled(self) -> Compiled:
        """Flows made of files."""
        from detent.flows.workflow.cleanup import Keeping
        from detent.flows.workflow.compile_context import Ports
        from detent.flows.workflow.flow import Compiled

        said = WorkflowSettings.read(self.settings)
        ports = Ports(
            self.settings.folder, self._run_stage, self.checkpoints.save, max_parallel=said.max_parallel,
            ended=Keeping(self.settings.folder / STATE).ended,
        )  # fmt: skip
        return Compiled(self.registry, self.tools, ports, self._named, self._environ)

    # -- files ----------------------------------------------------------------------------------------------

    def choose(self, said: str, *, forced: bool = False) -> Chosen:
        """The workflow of a name or path, checked; `DocumentError` with everything wrong with it."""
        file = self.shelf.find(said, self.settings.folder)
        self._named_files.append(file.resolve())
        spec, problems = self.check(file, forced=forced)
        errors = [problem for problem in problems if problem.severity == "error"]
        if errors or spec is None:
            raise DocumentError(f"Workflow '{spec.name if spec and spec.name else said}'", errors)
        return Chosen(spec, file, tuple(problem for problem in problems if problem.severity == "warning"))

    def check(self, file: Path, *, forced: bool = False) -> tuple[WorkflowSpec | None, Sequence[Problem]]:
        """A file as far as it can be read, and everything wrong with it."""
        names = {tool.name for tool in self.tools}
        return problems_of(self.settings, self.registry, self.shelf, file, tools=names, forced=forced)

    # -- as definitions of a kind ---------------------------------------------------------------------------

    def claims(self, path: Path) -> bool:
        """Whether a path is a YAML file."""
        return path.suffix in SUFFIXES and path.is_file()

    def find(self, said: str) -> Path:
        """The file of a name or path."""
        return self.shelf.find(said, self.settings.folder)

    def flows(self, path: Path, name: str | None = None) -> list[Flow]:
        """The flows of a file, its own first; `DocumentError` lists everything wrong with it."""
        return self._with_step(self.choose(str(path)).spec, name or "")

    def named(self, name: str) -> list[Flow]:
        """The flows of the workflow that a flow's name belongs to, if there is one on the shelf."""
        root = name.partition(".")[0]
        return self._with_step(self.choose(root).spec, name) if root in self.shelf.names() else []

    def _with_step(self, spec: WorkflowSpec, name: str) -> list[Flow]:
        """The flows of a workflow, with those of the one step that a flow's name may stand for."""
        rest = name.partition(".")[2]
        if not rest.startswith(ONLY):
            return self.flows_of(spec)
        step = step_named(spec, rest.removeprefix(ONLY).partition(".")[0])
        return [*self.flows_of(spec), *self.flows_of(only(spec, step))]

    def all(self, tell: Callable[[str], None]) -> Iterator[tuple[list[Flow], bool]]:
        """The flows of the files on the shelf and in the project's folder; a broken file is pointed out."""
        from contextlib import suppress

        from detent.flows.workflow.shelf import files_of

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
                with suppress(DocumentError):  # nobody said that it is to be a workflow of the project
                    yield self.flows_of(self.choose(str(file)).spec), False
        for clash in clashes:
            tell(f"The steps of these workflows are left out. {clash}")

    def step_names(self) -> list[str]:
        """What settings may call the steps of workflow files, whether or not one of them is to be run."""
        found: dict[str, None] = {}
        for spec in known_workflows(self.settings, self.shelf):
            for step in spec.every_step():
                found |= dict.fromkeys((step.name, f"workflow/{spec.name}/{step.name}"))
        return list(found)

    def agents(self) -> list[str]:
        """The agents that workflow files may name, and settings speak of."""
        return list(self.registry.agents.names)

    # -- flows ----------------------------------------------------------------------------------------------

    def flows_of(self, spec: WorkflowSpec) -> list[Flow]:
        """Every flow that a run of a workflow may need, its own first."""
        flows = self.compiled.flows(spec)
        for module in self.project.modules():
            said = getattr(module, MIGRATIONS_NAME, {})
            for flow in flows:
                flow.migrations.update(said.get(flow.name) or {})
        return flows

    def base(self, spec: WorkflowSpec) -> Path:
        """The folder that paths in a file start from."""
        return Path(spec.place.file).absolute().parent

    def _named(self, name: str, of: WorkflowSpec) -> WorkflowSpec:
        return self.shelf.spec(name, self.base(of))

    def _protected(self) -> list[Path]:
        """The store's files, wherever in the project they lie: not for actions."""
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
        found = [self.registry.stages.get(name) for name in names]
        return [
            {
                "name": one.name, "command": None if one.command is None else list(one.command),
                "fix_command": None if one.fix_command is None else list(one.fix_command),
                "timeout": one.timeout,
            }
            for one in found
        ]  # fmt: skip

    async def _run_stage(self, stage: ValidationStage) -> dict[str, Any]:
        """Run a stage's command; what it says is kept, its end above all."""
        shell = next(tool for tool in self.tools if tool.name == "shell.read")
        assert stage.command is not None
        try:
            ran = await shell.perform(argv=list(stage.command), timeout=stage.timeout, check=False)
        except ToolError as error:
            code = TIMED_OUT if error.code == "timeout" else 127
            return {"exit_code": code, "output": error.message, "duration_ms": 0.0}
        said = (ran["stdout"] + ran["stderr"])[-MOST_SAID:]
        return {"exit_code": ran["exit_code"], "output": said, "duration_ms": ran["duration_ms"]}


async def path_taken(store: Store, run_id: str) -> dict[str, str]:
    """How the steps of a run went, by their paths: ok, skipped, failed, or under way; iterations included."""
    from detent.engine.family import children
    from detent.engine.journal_reader import read
    from detent.flows.workflow.scope import SKIPPED, key_of
    from detent.kernel.entries import Moved, Started

    found: dict[str, str] = {}

    async def walk(one: str) -> None:
        prefix, state, status = "", "", ""
        async for entry in read(store, one):
            body = entry.body
            if isinstance(body, Started):
                prefix = str(body.config.get("path") or "")
                state = body.state
            elif isinstance(body, Moved):
                said = body.set.get(key_of(body.frm))
                failed = body.to in ("rolling_back", "failed", "cancelled")
                status = "skipped" if said is not None and said["status"] == SKIPPED else "ok"
                path = f"{prefix}/{body.frm}" if prefix else body.frm
                if body.frm not in ("ready", "rolling_back", "undo"):
                    found[path] = "failed" if said is None and failed else status
                    if said is not None and said.get("ran"):
                        found[f"{path}/{said['ran']}"] = status
                state = "" if body.status is not None else body.to
        if state not in ("", "ready", "rolling_back", "undo"):
            found[f"{prefix}/{state}" if prefix else state] = "running"
        async for child in children(store, one):
            if ".rolling_back[" not in child.id:
                await walk(child.id)

    await walk(run_id)
    return found
