"""A place to run workflow files in: own actions and tools that keep what they were asked; what is told.

    ran = await workshop.run(FILE, {"name": "x"})        # checked, compiled, run to its end
    ran.run, ran.result, ran.events, ran.effects, ran.journals

`workshop.under_way(text, inputs)` is for tests that meddle with a run before it ends.
"""

from __future__ import annotations

import asyncio
import textwrap
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from detent import Engine
from detent.adapters.project.checkpoints import Checkpoints
from detent.authoring.names import Named
from detent.engine.context import StepContext
from detent.engine.family import children
from detent.engine.journal_reader import read
from detent.engine.ports import Store
from detent.flows.workflow.checks import check_read
from detent.flows.workflow.compile_context import Ports
from detent.flows.workflow.events import Event, EventObserver
from detent.flows.workflow.flow import Compiled
from detent.flows.workflow.inputs import coerce
from detent.flows.workflow.reading import read_workflow
from detent.flows.workflow.registry import Action, Registry, ValidationStage
from detent.flows.workflow.results import StepResult, WorkflowResult, workflow_result
from detent.flows.workflow.run_data import HASH, INPUTS, SECRETS
from detent.flows.workflow.secrets import hash_of, marked, marks_for
from detent.flows.workflow.spec import WorkflowSpec
from detent.flows.workflow.step_modes import CheckSettings
from detent.kernel.run import Run
from detent.stores import MemoryStore
from detent.tools import Tool

INTENT = "Do the one thing that this action is there for."


def flow(steps: str, head: str = "", name: str = "flow") -> str:
    """A whole file around some steps."""
    return f'version: "1.0"\nname: {name}\n{textwrap.dedent(head)}\nsteps:\n{textwrap.dedent(steps)}\n'


class Ran(NamedTuple):
    """A run that has been taken as far as it could be."""

    run: Run
    result: WorkflowResult
    events: list[Event]
    effects: list[tuple[str, Any]]
    journals: dict[str, list[Any]]
    """Entries of the run and everything below it, by run id."""

    def step(self, path: str) -> StepResult:
        """How the step of a path went."""
        (found,) = [one for one in self.result.step_results if one.path == path]
        return found

    def told(self, *kinds: type[Event]) -> list[Any]:
        """Events of some kinds."""
        return [event for event in self.events if not kinds or isinstance(event, kinds)]


@dataclass
class Workshop:
    """Own actions, tools, stages and files; what they were asked, in order.

    Actions: `put(text)` (effect, undone by `unput`), `unput(text)`, `echo(value)` gives `{"value": value}`,
    `give(value)` gives the value itself, `boom(say)` raises, `refuse(error)` says `success: false`,
    `meet(name)` waits until the test opens `doors[name]`, `spend(token)` has `vault.send` send a token,
    `leak(token)` asks `vault.echo`, `stick(text)` puts what cannot be taken off again.
    """

    folder: Path
    files: dict[str, str] = field(default_factory=dict)
    """Other workflows, by name."""
    environ: dict[str, str] = field(default_factory=dict)
    more: list[Named] = field(default_factory=list)
    """Registered beside the workshop's own."""
    tools: list[Tool] = field(default_factory=list)
    """Beside the workshop's own."""
    max_parallel: int = 8
    stage_codes: dict[str, list[int]] = field(default_factory=dict)
    """Exit codes that a stage's runs give in turn; the last one stays. Unsaid: 0."""
    effects: list[tuple[str, Any]] = field(default_factory=list)
    called: list[tuple[str, Any]] = field(default_factory=list)
    """Actions performed, with what they were given."""
    stages_run: list[str] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    doors: dict[str, asyncio.Event] = field(default_factory=dict)
    inside: set[str] = field(default_factory=set)
    """Names of those who wait in `meet` just now."""
    most_inside: int = 0
    arrivals: list[str] = field(default_factory=list)
    arrived: asyncio.Condition = field(default_factory=asyncio.Condition)
    checkpoints: Any = None
    """Anything with a `save`; real files below `folder` unless said."""

    # -- what files name ------------------------------------------------------------------------------------

    def registry(self) -> Registry:
        def act(name: str, handler: Any, **options: Any) -> Action:
            return Action(name, handler=handler, intent=INTENT, **options)

        async def put(ctx: StepContext, text: str) -> dict[str, Any]:
            self.called.append(("put", text))
            receipt = ctx.propose("shelf.put", text=text)
            return {"text": text, "number": receipt.number}

        async def stick(ctx: StepContext, text: str) -> dict[str, Any]:
            ctx.propose("shelf.put", text=text)
            return {"text": text}

        async def unput(ctx: StepContext, text: str) -> dict[str, Any]:
            self.called.append(("unput", text))
            ctx.propose("shelf.take", text=text)
            return {}

        def unstick(text: str) -> dict[str, Any]:
            raise ValueError(f"{text} cannot be taken off")

        def echo(value: Any) -> dict[str, Any]:
            self.called.append(("echo", value))
            return {"value": value}

        def give(value: Any = None) -> Any:
            self.called.append(("give", value))
            return value

        def boom(say: str = "boom") -> dict[str, Any]:
            self.called.append(("boom", say))
            raise ValueError(say)

        def refuse(error: str = "") -> dict[str, Any]:
            return {"success": False, "error": error} if error else {"success": False}

        async def meet(ctx: StepContext, name: str, fail: bool = False) -> dict[str, Any]:
            self.inside.add(name)
            self.most_inside = max(self.most_inside, len(self.inside))
            self.arrivals.append(name)
            async with self.arrived:
                self.arrived.notify_all()
            try:
                await self.door(name).wait()
            finally:
                self.inside.discard(name)
            if fail:
                raise ValueError(f"{name} failed")
            return {"name": name}

        async def spend(ctx: StepContext, token: str) -> dict[str, Any]:
            receipt = ctx.propose("vault.send", token=token)
            return {"sent": token, "said": receipt.said}

        async def leak(ctx: StepContext, token: str) -> dict[str, Any]:
            return {"answer": await ctx.query("vault.echo", text=token)}

        def say(ctx: StepContext, message: str, level: str = "info", fail: bool = False) -> dict[str, Any]:
            ctx.emit(message, level, size=len(message))
            if fail:
                raise ValueError("after having said so")
            return {}

        return Registry(
            act("put", put, effects=("shelf.put",), rollback="unput"),
            act("unput", unput, effects=("shelf.take",)),
            act("stick", stick, effects=("shelf.put",), rollback="unstick"),
            act("unstick", unstick),
            act("echo", echo),
            act("give", give),
            act("boom", boom),
            act("refuse", refuse),
            act("meet", meet),
            act("spend", spend, effects=("vault.send",), rollback="respend"),
            act("respend", spend, effects=("vault.send",)),
            act("leak", leak, queries=("vault.echo",)),
            act("say", say),
            ValidationStage("good", command=("good",)),
            ValidationStage("bad", command=("bad",)),
            ValidationStage("flaky", command=("flaky",)),
            ValidationStage("idle"),
            *self.more,
        )

    def own_tools(self) -> list[Tool]:
        def shelf_put(text: str) -> dict[str, Any]:
            self.effects.append(("put", text))
            return {"number": len(self.effects)}

        def shelf_take(text: str) -> dict[str, Any]:
            self.effects.append(("take", text))
            return {}

        def vault_send(token: str) -> dict[str, Any]:
            self.effects.append(("send", token))
            return {"said": f"thanks for {token}"}

        def vault_echo(text: str) -> dict[str, Any]:
            self.effects.append(("echo", text))
            return {"text": text, text: [text, {"inside": f"<{text}>"}]}

        return [
            Tool("shelf.put", shelf_put),
            Tool("shelf.take", shelf_take),
            Tool("vault.send", vault_send),
            Tool("vault.echo", vault_echo, "query"),
            *self.tools,
        ]

    async def run_stage(self, stage: ValidationStage) -> dict[str, Any]:
        """Give the stage's next exit code."""
        self.stages_run.append(stage.name)
        codes = self.stage_codes.setdefault(stage.name, [1 if stage.name == "bad" else 0])
        code = codes.pop(0) if len(codes) > 1 else codes[0]
        return {"exit_code": code, "output": f"{stage.name} says {code}", "duration_ms": 1.0}

    # -- meeting --------------------------------------------------------------------------------------------

    def door(self, name: str) -> asyncio.Event:
        """What `meet(name)` waits for."""
        return self.doors.setdefault(name, asyncio.Event())

    async def until_inside(self, *names: str) -> None:
        """Wait until all of these wait in `meet`."""
        async with self.arrived:
            await self.arrived.wait_for(lambda: self.inside.issuperset(names))

    # -- running --------------------------------------------------------------------------------------------

    def spec(self, text: str) -> WorkflowSpec:
        """A file, read and checked; an assertion when anything is wrong with it."""
        found = read_workflow(text.encode(), str(self.folder / "flow.yaml"))
        registry = self.registry()
        tools = {tool.name for tool in self.own_tools()}
        problems = check_read(found, registry, self._others.get, CheckSettings(tools))
        wrong = [problem for problem in problems if problem.severity == "error"]
        assert found.spec is not None, wrong
        assert not wrong, wrong
        return found.spec

    @property
    def _others(self) -> dict[str, WorkflowSpec]:
        if not hasattr(self, "_read"):
            self._read: dict[str, WorkflowSpec] = {}
        for name, text in self.files.items():
            if name not in self._read:
                found = read_workflow(text.encode(), str(self.folder / f"{name}.yaml"))
                assert found.spec is not None, found.problems
                self._read[name] = found.spec
        return self._read

    def compiled(self) -> Compiled:
        """A fresh compiler, as a new process has one."""
        saving = self.checkpoints or Checkpoints(self.folder / "checkpoints")
        ports = Ports(self.folder, self.run_stage, saving.save, max_parallel=self.max_parallel)
        return Compiled(
            self.registry(), self.own_tools(), ports, lambda name, _: self._others[name], self.environ
        )

    def engine(self, spec: WorkflowSpec, store: Store | None = None, **options: Any) -> Engine:
        """An engine that knows a workflow and tells what happens to `events`."""
        flows = self.compiled().flows(spec)
        telling = EventObserver(self.events.append, {one.name: one for one in flows})
        return Engine(store or MemoryStore(), flows, observers=[telling], **options)

    def data(self, spec: WorkflowSpec, inputs: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """What a run of a workflow starts with."""
        given = coerce(spec.inputs, inputs or {}, environ=self.environ)
        marks = marks_for(spec.inputs)
        data = {INPUTS: marked(given, marks), HASH: hash_of(spec.inputs, given)}
        return {**data, SECRETS: marks} if marks else data

    @asynccontextmanager
    async def under_way(
        self,
        text: str | WorkflowSpec,
        inputs: Mapping[str, Any] | None = None,
        *,
        store: Store | None = None,
        run_id: str = "r",
        engine: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> AsyncIterator[Engine]:
        """An engine with a run of a workflow (`run_id`) under way in it."""
        spec = self.spec(text) if isinstance(text, str) else text
        async with self.engine(spec, store, **(engine or {})) as running:
            await running.start(spec.name, self.data(spec, inputs), run_id=run_id, **options)
            yield running

    async def run(
        self, text: str | WorkflowSpec, inputs: Mapping[str, Any] | None = None, **options: Any
    ) -> Ran:
        """Run a workflow as far as it goes. Options as in `under_way`."""
        async with self.under_way(text, inputs, **options) as engine:
            return await self.finished(engine, options.get("run_id", "r"))

    async def finished(self, engine: Engine, run_id: str = "r") -> Ran:
        """A run of an engine once it has ended or waits for somebody."""
        run = await engine.finish(run_id)
        result = await workflow_result(engine, run_id)
        journals: dict[str, list[Any]] = {}

        async def walk(one: str) -> None:
            journals[one] = [entry async for entry in read(engine.store, one)]
            async for child in children(engine.store, one):
                await walk(child.id)

        await walk(run_id)
        return Ran(run, result, list(self.events), list(self.effects), journals)
