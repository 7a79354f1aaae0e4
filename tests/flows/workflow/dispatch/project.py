"""A project on disk: settings in a file, actions in a plugin, workflows as YAML; run as a user's would be."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml

from detent.adapters.models.scripted import ScriptedSource, ScriptedStepExecutor
from detent.adapters.stores.memory import MemoryStore
from detent.dispatch.dispatcher import DispatchSettings
from detent.dispatch.executor import DISPATCH_AGENT
from detent.dispatch.result import DispatchResult
from detent.engine.engine import Engine
from detent.engine.family import family_of
from detent.flows.workflow.kind import KIND
from detent.flows.workflow.library import Workflows
from detent.flows.workflow.results import WorkflowResult, workflow_result
from detent.flows.workflow.runs import WorkflowRuns
from detent.flows.workflow.spec import WorkflowSpec
from detent.kernel.entries import EffectDone, Moved
from detent.kernel.run import Run
from detent.runtime.catalog import Catalog
from detent.runtime.dispatch_settings import dispatch_settings
from detent.runtime.settings import Settings, read_settings
from tests.dispatch.samples import Heard, capture

HEAD = 'version: "1.0"\n'
ONCE = {"max_attempts": 1}
TWICE = {"max_attempts": 2, "wait_min": 0, "wait_max": 0}
"""Retries without waits."""


@dataclass
class Ran:
    """How a run went, and what was said meanwhile."""

    run: Run
    result: WorkflowResult
    heard: Heard
    moves: Mapping[str, Moved]
    """By step path: the move out of the step's state."""
    effects: list[tuple[str, str]]
    """Tool and way of each effect of the whole family, in order."""
    executor: ScriptedStepExecutor | None = None
    source: ScriptedSource | None = None
    engine: Engine | None = None

    def dispatch(self, path: str) -> DispatchResult:
        """What became of the dispatch of a step."""
        detail = self.moves[
            path
        ].detail  # nothing is kept of a step that its handler did as a matter of course
        return DispatchResult.from_plain(detail) if "mode_used" in detail else DispatchResult.plain()

    def output(self, step: str) -> Any:
        """What a step of the root gave."""
        return self.run.data[f"steps/{step}"]["output"]

    @property
    def asked(self) -> list[str]:
        """Steps the executor was asked to do."""
        return [call.step_name for call in self.executor.calls] if self.executor is not None else []


@dataclass
class Project:
    """One folder."""

    folder: Path
    said: dict[str, Any] = field(default_factory=dict)
    environ: dict[str, str] = field(default_factory=dict)
    store: Any = None
    engines: list[Engine] = field(default_factory=list)

    def settings(self, **said: Any) -> Path:
        """Write the project's settings."""
        self.said = {"plugins": [one.name for one in sorted(self.folder.glob("*.py"))], **said}
        file = self.folder / "detent.yaml"
        file.write_text(yaml.safe_dump(self.said, sort_keys=False))
        return file

    def plugin(self, text: str, name: str = "acts") -> None:
        """Put a plugin beside the settings."""
        (self.folder / f"{name}.py").write_text(text)

    def workflow(self, text: str) -> Path:
        """Put a workflow onto the project's shelf."""
        text = text if text.startswith("version") else HEAD + text
        name = yaml.safe_load(text)["name"]
        file = self.folder / ".detent" / "workflows" / f"{name}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    # -- running --------------------------------------------------------------------------------------------

    def open(self) -> Workflows:
        """Read everything from the disk, as a command does."""
        made: list[Catalog] = []

        def headings(settings: Settings) -> Any:
            made.append(Catalog(settings))
            return made[-1].headings()

        if not (self.folder / "detent.yaml").exists():
            self.settings()
        settings = read_settings(
            str(self.folder / "detent.yaml"), folder=self.folder, environ=self.environ, headings=headings
        )
        catalog = made[-1] if made else Catalog(settings)
        self.catalog = catalog
        return Workflows(KIND, catalog, {**os.environ, **self.environ})

    @property
    def acts(self) -> ModuleType:
        """The plugin with the actions, as loaded last."""
        return next(module for module in self.catalog.modules() if hasattr(module, "CALLS"))

    def dispatch(self, workflows: Workflows, spec: WorkflowSpec, source: Any, **options: Any) -> Any:
        """What the settings say about who performs the steps, with scripted executors."""
        read = dispatch_settings(
            workflows.settings, workflows.flows_of(spec), complete=False,
            agents=[DISPATCH_AGENT, *workflows.registry.agents.names], environ=self.environ, **options,
        )  # fmt: skip
        return replace(read, executors=source) if source is not None else read

    async def run(
        self,
        name: str,
        inputs: Mapping[str, Any] | None = None,
        *,
        script: Any = None,
        executor: ScriptedStepExecutor | None = None,
        run_id: str | None = None,
        deterministic: bool = False,
        forced: bool = False,
        **options: Any,
    ) -> Ran:
        """Run a workflow to its end. `forced` is the engine's switch, `deterministic` that of the call."""
        with capture() as heard:
            workflows = self.open()
            chosen = workflows.choose(name, forced=forced or deterministic)
            runs = WorkflowRuns(workflows, chosen.spec)
            prepared = runs.prepare(inputs or {})
            await runs.preflight()
            if executor is None and script is not None:
                executor = ScriptedStepExecutor(script)
            source = None if executor is None else ScriptedSource(executor)
            dispatch: DispatchSettings = self.dispatch(
                workflows, chosen.spec, source, deterministic=deterministic
            )
            self.store = self.store or MemoryStore()
            engine = Engine(self.store, workflows.flows_of(chosen.spec), dispatch=dispatch)
            self.engines.append(engine)
            self.catalog.store = engine.store
            await engine.open()
            started = await runs.start(engine, prepared, run_id=run_id, deterministic=forced, **options)
            run = await engine.finish(started)
        return await ran(engine, run, heard, executor, source)

    async def close(self) -> None:
        for engine in self.engines:
            await engine.stop(grace=0)


async def ran(
    engine: Engine, run: Run, heard: Heard, executor: Any = None, source: ScriptedSource | None = None
) -> Ran:
    """Gather what the journals of a family say."""
    moves: dict[str, Moved] = {}
    performed: list[tuple[float, tuple[str, str]]] = []
    async for past in family_of(engine.store, engine.flow, run.id):
        prefix = past.run.config.get("path")
        for entry in past.moves:
            assert isinstance(entry.body, Moved)
            frm = entry.body.frm
            moves[f"{prefix}/{frm}" if prefix else frm] = entry.body
        for entry in await engine.store.entries(past.run.id, 0, 100_000):
            if isinstance(entry.body, EffectDone):
                performed.append((entry.at, (entry.body.tool, entry.body.how)))
    effects = [one for _, one in sorted(performed, key=lambda pair: pair[0])]
    result = await workflow_result(engine, run.id)
    return Ran(run, result, heard, moves, effects, executor, source, engine)
