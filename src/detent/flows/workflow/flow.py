"""Compiles a checked workflow file into flows: one for the file, one for each body that runs as a child run.

The file's machine has a state for each top-level step, between `ready` and the ends; a failed step leads to
`rolling_back`. Bodies of loops and of `on_failure` have flows of their own, named `<workflow>.<step>`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from detent.dispatch.dispatcher import DispatchSettings
from detent.engine.context import StepContext
from detent.engine.flow import Detour, Flow
from detent.engine.outcome import Hold, Outcome
from detent.engine.step import Step
from detent.engine.tools import Tool
from detent.flows.workflow.child_flows import Body, names_of, reads
from detent.flows.workflow.compile_context import CompileContext, Ports, Position
from detent.flows.workflow.expressions import Prepared, prepared
from detent.flows.workflow.registry import Action, Registry
from detent.flows.workflow.results import steps_of
from detent.flows.workflow.rollback import KWARGS, Rollback, rolled_back, rolling_back
from detent.flows.workflow.run_data import BESIDE, FAILURE, OK, RESULT, Results, scope_of
from detent.flows.workflow.secrets import hash_of, revealing
from detent.flows.workflow.spec import (
    CANCELLED,
    FAILED,
    ROLLING_BACK,
    START,
    SUCCEEDED,
    AgentStep,
    GenerateStep,
    LoopStep,
    PythonStep,
    StepSpec,
    SubworkflowStep,
    ValidateStep,
    WorkflowSpec,
    every,
)
from detent.flows.workflow.step_type import StepType
from detent.flows.workflow.steps.agent import agent_step, generate_step
from detent.flows.workflow.steps.branch import branch_step, chosen
from detent.flows.workflow.steps.checkpoint import checkpoint_step
from detent.flows.workflow.steps.loop import loop_step
from detent.flows.workflow.steps.python import action_step, bound, defaults, python_step
from detent.flows.workflow.steps.subworkflow import subworkflow_step
from detent.flows.workflow.steps.validate import validate_step
from detent.kernel.errors import ConfigurationError
from detent.kernel.machine import Machine, changes
from detent.kernel.plain import digest, to_plain
from detent.kernel.run import Run
from detent.kernel.status import Status

if TYPE_CHECKING:
    from detent.engine.flow import Past
    from detent.engine.ports import Store

Find = Callable[[str, WorkflowSpec], WorkflowSpec]
"""Finds another workflow by the name or path in the given one."""
ENDS = {SUCCEEDED: Status.SUCCEEDED, FAILED: Status.FAILED, CANCELLED: Status.CANCELLED}


class WorkflowFlow(Flow):
    """The flow of a workflow file, or of a body in one."""

    performed_by = DispatchSettings()

    beside = BESIDE
    specs: Mapping[str, StepSpec]
    """Steps of the file, by the state that performs them."""
    workflow: WorkflowSpec
    rollbacks: Mapping[str, Rollback]
    """Rollbacks of its steps, by step."""
    loop: LoopStep | None = None
    """The loop whose iterations its runs are."""

    def difference(self, old: Mapping[str, Any]) -> list[str]:
        """Differences between the files, one a line: they tell more than differences between the machines."""
        was, now = old.get("extra") or {}, self.definition["extra"]
        if not isinstance(was.get("file"), Mapping) or not isinstance(now["file"], Mapping):
            return super().difference(old)
        lines = changes(was["file"], now["file"])
        return [*lines, *changes(was.get("below") or {}, now["below"], "workflow")] or super().difference(old)

    async def undone_by(self, store: Store, run_id: str) -> frozenset[str]:
        """Paths of the steps whose work a run has rolled back."""
        return (await rolled_back(store, run_id)).undone

    async def partly_undone_by(self, store: Store, run_id: str) -> frozenset[str]:
        """Paths of the steps of which a run has rolled back only a part."""
        return (await rolled_back(store, run_id)).partly

    def done_by(self, past: Past) -> Iterable[str]:
        """Paths of the steps a run has left, with any result."""
        return [step.path for move in past.moves for step in steps_of(past, move)]


class Compiled:
    """Workflows of a project, compiled into flows on demand."""

    def __init__(
        self,
        registry: Registry,
        tools: Iterable[Tool],
        ports: Ports,
        find: Find,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.registry = registry
        self.ports = ports
        self._environ = os.environ if environ is None else environ
        self._tools = {tool.name: tool for tool in revealing(tools, self._environ)}
        self._find = find
        self._homes: dict[str, CompileContext] = {}

    def flow(self, spec: WorkflowSpec) -> Flow:
        """Return the flow of a file; `flows` returns the flows of its child runs too."""
        return self._context_of(spec).flows[spec.name]

    def flows(self, spec: WorkflowSpec) -> list[Flow]:
        """Return every flow that a run of this file may need, its own first.

        Raises:
            ConfigurationError: two of the workflows have the same name.
        """
        flows: dict[str, Flow] = {}
        homes: dict[str, CompileContext] = {}
        waiting = [self._context_of(spec)]
        while waiting:
            home = waiting.pop()
            if (other := homes.setdefault(home.spec.name, home)) is not home:
                raise ConfigurationError(
                    f"Workflow '{spec.name}' runs two workflows named '{home.spec.name}': "
                    f"{other.spec.place.file} and {home.spec.place.file}. Rename one of them."
                )
            if home.spec.name in flows:
                continue
            flows |= home.flows
            for step in home.spec.every_step():
                if isinstance(step, SubworkflowStep):
                    waiting.append(home.find(step.workflow))
        return list(flows.values())

    def _context_of(self, spec: WorkflowSpec) -> CompileContext:
        home = self._homes.get(spec.name)
        if home is None or home.spec is not spec:

            def find(name: str) -> CompileContext:
                return self._context_of(self._find(name, spec))

            home = self._homes[spec.name] = CompileContext(
                spec, self.registry, self._tools, self.ports, find,
                lambda inputs: hash_of(spec.inputs, inputs), self._environ,
            )  # fmt: skip
            _Making(home).whole()
        return home


class _Making:
    """Makes the flows of one file."""

    def __init__(self, home: CompileContext) -> None:
        self.home = home
        self.spec = home.spec
        self.undoing: dict[str, str] = {}
        """Name of the flow that performs a rollback action, by action."""

    # -- the file -------------------------------------------------------------------------------------------

    def whole(self) -> None:
        spec, home = self.spec, self.home
        names = [step.name for step in spec.steps]
        after = [*names[1:], SUCCEEDED]
        moves: dict[str, list[str]] = {START: [names[0], ROLLING_BACK, CANCELLED]}
        for name, following in zip(names, after, strict=True):
            moves[name] = [following, ROLLING_BACK, CANCELLED]
        moves[ROLLING_BACK] = [FAILED, CANCELLED]
        machine: Machine[str] = Machine(spec.name, start=START, moves=moves, ends=ENDS)
        steps: dict[str, Step] = {START: Step(START, _ready, metadata=self._metadata(START))}
        steps |= {step.name: self.step(Position(step), home) for step in spec.steps}
        steps[ROLLING_BACK] = Step(ROLLING_BACK, rolling_back, metadata=self._metadata(ROLLING_BACK))
        flow = WorkflowFlow(
            machine, steps, name=spec.name, description=spec.description, tools=home.tools.values(),
            extra={"file": to_plain(dict(spec.source)), "below": self._below()}, scope=home.scope,
            on_failure=_on_failure(ROLLING_BACK, spec.steps), undoing=ROLLING_BACK, closing=_closing(spec),
        )  # fmt: skip
        self._complete(flow, {step.name: step for step in spec.steps}, spec.steps)
        flow.ended = home.ports.ended
        flow.related = names_of(home.scope, spec.steps) | self._related()
        files = [step.workflow for step in spec.every_step() if isinstance(step, SubworkflowStep)]
        flow.starts = (*home.flows, *(home.find(name).spec.name for name in files))
        home.flows = {flow.name: flow, **home.flows}

    def _metadata(self, name: str) -> dict[str, Any]:
        return {"flow": "workflow", "definition": self.home.definition, "path": name, "action": name}

    def _below(self) -> dict[str, Any]:
        """The files of its subworkflows, by name: a run begun under others does not continue silently."""
        files: dict[str, Any] = {}
        for step in self.spec.every_step():
            if isinstance(step, SubworkflowStep):
                child = self.home.find(step.workflow)
                extra = child.flows[child.spec.name].definition["extra"]
                files |= {**extra["below"], extra["file"]["name"]: extra["file"]}
        return files

    def _related(self) -> frozenset[str]:
        """Names of the steps of its subworkflows."""
        names: frozenset[str] = frozenset()
        for step in self.spec.every_step():
            if isinstance(step, SubworkflowStep):
                child = self.home.find(step.workflow)
                flow = child.flows[child.spec.name]
                names |= flow.related
        return names

    def _complete(self, flow: WorkflowFlow, specs: Mapping[str, StepSpec], steps: Sequence[StepSpec]) -> None:
        flow.specs = dict(specs)
        flow.workflow = self.spec
        flow.tells = True
        flow.by_code = True
        named = {step.name: step for step in every(steps)}
        rollbacks: dict[str, Rollback] = {}
        for step in flow.every_step():
            action = step.metadata.get("rollback")
            if action is not None:
                rollback = self.home.registry.actions.get(action)
                arguments = self._arguments(named[step.name], rollback)
                rollbacks[step.name] = Rollback(self._undo(action), tuple(rollback.parameters), arguments)
        flow.rollbacks = rollbacks

    def _arguments(self, spec: StepSpec, rollback: Action) -> Prepared | None:
        """The arguments of a step, to be passed to its rollback; defaults of the action only if the rollback
        requires them."""
        if isinstance(spec, PythonStep):
            action = self.home.registry.actions.get(spec.action)
            needed = [
                name
                for name, parameter in rollback.parameters.items()
                if parameter.default is parameter.empty
            ]
            needed_defaults = {name: value for name, value in defaults(action).items() if name in needed}
            return prepared({**needed_defaults, **bound(action, spec.args, spec.kwargs)})
        if isinstance(spec, AgentStep | GenerateStep) and isinstance(spec.context, Mapping):
            return prepared(dict(spec.context))
        return None

    def _undo(self, name: str) -> str:
        """The flow that performs a rollback action."""
        if name not in self.undoing:
            action = self.home.registry.actions.get(name)
            flow_name = f"{self.spec.name}.{ROLLING_BACK}:{name}"  # no step can have this name
            machine: Machine[str] = Machine(
                flow_name, start="undo", moves={"undo": [SUCCEEDED, FAILED, CANCELLED]}, ends=ENDS
            )
            step = action_step(
                action, lambda ctx: dict(ctx.values[KWARGS]), name="undo",
                conclude=_rolled_back,
                metadata={**self._metadata("undo"), "action": name, "cwd": str(self.home.ports.root)},
            )  # fmt: skip
            flow = Flow(
                machine, {"undo": step}, name=flow_name, tools=self.home.tools.values(),
                scope=f"{self.home.scope}/rollback-{name}", on_failure=_on_failure(FAILED),
            )  # fmt: skip
            flow.by_code = True
            self.undoing[name] = flow_name
            self.home.flows[flow_name] = flow
        return self.undoing[name]

    # -- bodies ---------------------------------------------------------------------------------------------

    def body(self, body_name: str, steps: Sequence[StepSpec], loop: LoopStep | None = None) -> Body:
        """A flow for steps that run as a child run; `loop` if that run is an iteration."""
        home = self.home
        flow_name = f"{self.spec.name}.{body_name}"
        names = [step.name for step in steps]
        moves: dict[str, list[str]] = {}
        for name, following in zip(names, [*names[1:], SUCCEEDED], strict=True):
            moves[name] = [following, FAILED, CANCELLED]
        machine: Machine[str] = Machine(flow_name, start=names[0], moves=moves, ends=ENDS)
        flow = WorkflowFlow(
            machine, {step.name: self.step(Position(step), home) for step in steps}, name=flow_name,
            tools=home.tools.values(), scope=home.scope, on_failure=_on_failure(FAILED, steps),
            extra={"file": digest(to_plain(dict(self.spec.source)), 16)},
        )  # fmt: skip
        self._complete(flow, {step.name: step for step in steps}, steps)
        flow.loop = loop
        flow.related = names_of(home.scope, steps)
        home.flows[flow_name] = flow
        inputs, outer = reads(steps)
        return Body(flow_name, tuple(names), inputs, outer, flow.related)

    # -- steps ----------------------------------------------------------------------------------------------

    def step(self, position: Position, home: CompileContext) -> Step:
        """The flow's step for a step of the file."""
        spec = position.spec
        match spec.type:
            case StepType.PYTHON:
                return python_step(position, home)
            case StepType.AGENT:
                return agent_step(position, home)
            case StepType.GENERATE:
                return generate_step(position, home)
            case StepType.BRANCH:
                return branch_step(position, home, self.step)
            case StepType.CHECKPOINT:
                return checkpoint_step(position, home)
        if isinstance(spec, LoopStep):
            if spec.has_for_each or spec.until is not None:
                return loop_step(position, home, [self.body(spec.name, spec.steps, spec)])
            return loop_step(position, home, [self.body(inner.name, [inner]) for inner in spec.steps])
        if isinstance(spec, ValidateStep):
            mending = None if spec.on_failure is None else self.body(spec.name, [spec.on_failure])
            return validate_step(position, home, mending)
        assert isinstance(spec, SubworkflowStep)
        child = home.find(spec.workflow)
        return subworkflow_step(position, home, child.flows[child.spec.name].related)


def _rolled_back(ctx: StepContext, output: Any) -> Any:
    """The output of a rollback, or the hold it waits on."""
    return output if isinstance(output, Hold) else Outcome(set={RESULT: output})


async def _ready(ctx: StepContext) -> Outcome:
    return Outcome()


def _on_failure(state: str, steps: Sequence[StepSpec] = ()) -> Callable[[Run, str, str], Detour | None]:
    """Returns a function that leads a failed step to `state` and records the failure."""
    specs = {step.name: step for step in steps}

    def on_failure(run: Run, reason: str, error: str) -> Detour | None:
        if run.state == state:
            return None
        failure = {"step": run.state, "reason": reason, "error": error or reason}
        if (ran := chosen(specs.get(run.state), run.records)) is not None:
            failure["ran"] = ran
        return Detour(state, {FAILURE: failure})

    return on_failure


def _closing(spec: WorkflowSpec) -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
    """The result of a successful run: the outputs of the file, or the output of its last step."""
    if spec.outputs is not None:
        outputs = prepared(dict(spec.outputs))
        return lambda data: {RESULT: outputs.resolve(scope_of(data))}
    names = [step.name for step in reversed(spec.steps)]

    def last(data: Mapping[str, Any]) -> Mapping[str, Any]:
        results = Results(data)
        for name in names:
            result = results.get(name)
            if result is not None and result["status"] == OK:
                return {RESULT: result["output"]}
        return {RESULT: None}

    return last
