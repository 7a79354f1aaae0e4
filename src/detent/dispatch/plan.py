"""The step dispatcher: who performs each step of each flow. The one place where that is decided.

A `Plan` is what configuration makes of a step, worked out once and remembered. Most plans are plain: the
handler, called straight. `execution` carries out the others.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from detent.dispatch import prompt
from detent.dispatch.autonomy import AutonomyLevel, StepMode, StepType
from detent.dispatch.config import UNSAID, Resolved, StepConfig, resolve
from detent.dispatch.executor import DISPATCH_AGENT
from detent.dispatch.format import JSON, Dialect
from detent.dispatch.settings import DispatchSettings
from detent.engine.step import UNKNOWN_TOOLS, Example
from detent.kernel import log
from detent.kernel.errors import ConfigurationError, nearest
from detent.kernel.plain import digest
from detent.kernel.policy import RetryPolicy

if TYPE_CHECKING:
    from detent.dispatch.contract import Contract
    from detent.dispatch.executor import StepExecutor
    from detent.engine.flow import Flow
    from detent.engine.step import Step
    from detent.kernel.budget import Budget
    from detent.kernel.run import Run

FORCE = "force_deterministic"
"""Key of a run's own configuration that switches agents off, for its children too."""
STEPS = "steps"
"""Key of a run's own configuration that says how its steps are performed, by name as the settings say it;
stronger than they are, and not for its children."""
CONTROL = frozenset(
    {StepType.VALIDATE, StepType.SUBWORKFLOW, StepType.BRANCH, StepType.LOOP, StepType.CHECKPOINT}
)
"""Kinds of steps that have no intent, so none an agent could be told."""
PATH = "path"
"""Key of a child run's own configuration: where in its root it stands, as `load/[0]`."""


@dataclass(frozen=True)
class Plan:
    """What configuration makes of one step."""

    flow: Flow
    step: Step
    resolved: Resolved
    plain: bool
    """The handler performs it and nothing else is asked for."""
    retry: RetryPolicy
    """Attempts at transient failures of the handler."""
    timeout: float | None
    """Seconds for one call of the handler."""
    ignored: bool = False
    """A mode is said for a step that is an agent's by nature, where it means nothing."""

    @property
    def config(self) -> StepConfig:
        """The resolved configuration."""
        return self.resolved.config

    @property
    def agent(self) -> bool:
        """An agent performs it, where it may; a step that only agents can perform is another matter."""
        return self.resolved.config.mode is StepMode.AGENT and not self.alone

    @property
    def control(self) -> bool:
        """It is a step of control flow: code alone, whatever its mode."""
        return self.step.step_type in CONTROL

    @property
    def alone(self) -> bool:
        """Only an agent can perform it: there is no handler."""
        return self.step.step_type is StepType.AGENT

    @property
    def agent_name(self) -> str:
        """Who performs it when an agent does: the general one, or the one the step names."""
        name: str = self.step.metadata.get("agent", DISPATCH_AGENT)
        return name

    @cached_property
    def qualified(self) -> str:
        """The name settings and reports know the step by."""
        return self.flow.qualified(self.step)

    @cached_property
    def contract(self) -> Contract:
        """What an agent's answer must look like."""
        from detent.dispatch.agent_tools import declared_tools
        from detent.dispatch.contract import Contract  # reading answers is for those who ask agents

        return Contract.of(self.step, self.flow, declared_tools(self.step, self.flow.tools, self.allowed))

    @property
    def allowed(self) -> tuple[str, ...] | None:
        """Tools an agent may use, of those the step declares."""
        return self.resolved.config.allowed_tools

    @cached_property
    def instructions(self) -> str:
        """What an agent is told whatever the inputs are."""
        return prompt.instructions(
            self.step.intent, self.config.prompt_extra, [Example(*one) for one in self.step.examples]
        )

    @cached_property
    def prompt_fingerprint(self) -> str:
        """Changes with anything an agent is told, inputs aside."""
        return self.dialect.fingerprint(self)

    @property
    def dialect(self) -> Dialect:
        """How an agent is asked and understood."""
        return self.step.dialect or JSON

    @cached_property
    def handler_fingerprint(self) -> str:
        """Changes with the handler's code."""
        handler = inspect.unwrap(self.step.handler)
        try:
            return digest(inspect.getsource(handler), 12)
        except (OSError, TypeError):
            return digest(f"{type(handler).__module__}.{getattr(handler, '__qualname__', handler)}", 12)

    @cached_property
    def facts(self) -> dict[str, Any]:
        """What every event about this step says, in a run that is nobody's child."""
        metadata = self.step.metadata
        return {
            "flow": metadata.get("flow", self.flow.name),
            "definition": metadata.get("definition", self.flow.machine.name),
            "step_name": self.step.name,
            "step_path": metadata.get("path", self.step.name),
            "action": metadata.get("action", getattr(self.step.handler, "__name__", self.step.name)),
        }


def facts_of(plan: Plan, run: Run) -> dict[str, Any]:
    """What every event about a step of a run says."""
    facts = {"run_id": run.id, **plan.facts}
    if run.config and (path := run.config.get(PATH)):
        facts["step_path"] = f"{path}/{facts['step_path']}"
    return facts


def no_agent_side(plan: Plan, run: Run, now: float) -> None:
    """Warn that a step of control flow is told to be an agent's, which it cannot be: it runs as usual."""
    kind = plan.step.step_type.value
    log.warning(
        "dispatch.no_intent", **facts_of(plan, run), timestamp=now,
        autonomy=(plan.config.autonomy or AutonomyLevel.OPERATOR).value, step_type=kind,
        hint=f"a {kind} step has no agent side",
    )  # fmt: skip


class Dispatcher:
    """Plans for every step of an engine's flows, under one project's settings."""

    def __init__(self, settings: DispatchSettings | None = None) -> None:
        self.settings = settings or DispatchSettings()
        self._plans: dict[tuple[str, str, bool, str], Plan] = {}
        self._asks: dict[tuple[str, str], bool] = {}
        self._told: set[str] = set()
        """Flows whose doubtful settings have been pointed out."""

    def plan(self, flow: Flow, state: str, run: Run, step: Step | None = None) -> Plan:
        """Who performs the step of a state in this run, or the one that is performed in its place."""
        forced = self.settings.force_deterministic or bool(run.config and run.config.get(FORCE))
        own = run.config.get(STEPS) if run.config else None
        place = state if step is None else f"{state}/{step.name}"
        key = (flow.name, place, forced, digest(own, 16) if own else "")
        found = self._plans.get(key)
        if found is None or found.flow is not flow:
            found = self._plans[key] = self.plan_for(flow, step or flow.step_for(state), forced, own)
        return found

    def plan_for(
        self, flow: Flow, step: Step, forced: bool = False, own: Mapping[str, Any] | None = None
    ) -> Plan:
        """What the layers of configuration make of a step; `StepConfigError` when they do not add up.

        `own` is what a run says about its steps.
        """
        settings = self.settings
        said_by_run = _own(flow, step, own) if own else UNSAID
        agent_name = step.metadata.get("agent", DISPATCH_AGENT)
        resolved = resolve(
            step.name,
            flow=flow.scope,
            inline=_inline(step),
            steps=settings.steps,
            hint=step.hints or UNSAID,
            agent=settings.agents.get(agent_name),
            agent_name=agent_name,
            model=settings.model,
            forced=forced,
            max_autonomy=step.cap,
            tools=None if UNKNOWN_TOOLS in step.metadata else (*(step.queries or ()), *(step.effects or ())),
            natural=StepMode.AGENT if step.step_type is StepType.AGENT else StepMode.DETERMINISTIC,
            run=said_by_run,
        )
        config = resolved.config
        said = resolved.sources.get("max_retries", "default") != "default" or config.retry_policy is not None
        handler = config.mode is StepMode.DETERMINISTIC
        return Plan(
            flow,
            step,
            resolved,
            plain=handler and not step.opaque and not config.shadow and not forced and not resolved.warnings,
            retry=resolved.retry if handler and said else step.retry,
            timeout=config.timeout if handler and config.timeout is not None else step.timeout,
            ignored=step.step_type.natural_mode is StepMode.AGENT
            and any(layer.mode is not None for layer in (said_by_run, *self._layers(flow, step))),
        )

    def _layers(self, flow: Flow, step: Step) -> list[StepConfig]:
        """What the step itself and the settings say about it."""
        there = (self.settings.steps.get(key) for key in (flow.qualified(step), step.name))
        return [one for one in (step.config, *there) if one is not None]

    def asks_agents(self, flow: Flow, run: Run | None = None) -> bool:
        """Whether some step of a flow, in this run, is performed or shadowed by an agent."""
        own = run.config.get(STEPS) if run is not None and run.config else None
        key = (flow.name, digest(own, 16) if own else "")
        found = self._asks.get(key)
        if found is None:
            plans = [self.plan_for(flow, step, own=own) for step in flow.every_step()]
            found = self._asks[key] = any(plan.agent or plan.config.shadow for plan in plans)
        return found

    def executor(self, provider: str | None, made: dict[str, StepExecutor]) -> StepExecutor | str:
        """The executor of a provider, made once per run (`made` remembers); or why there is none."""
        source = self.settings.executors
        name = provider or (source.default if source is not None else None)
        if source is None or name is None:
            return "no executor is configured"
        if name not in made:
            try:
                made[name] = source.make(name)
            except Exception as error:
                return f"{type(error).__name__}: {error}"
        return made[name]

    def key(self, flow: Flow, config: Mapping[str, Any]) -> tuple[str, bool, str]:
        """What decides whether a flow's steps can be performed as configured, beside money."""
        own = config.get(STEPS)
        return flow.name, bool(config.get(FORCE)), digest(own, 16) if own else ""

    def check(
        self, flow: Flow, config: Mapping[str, Any], budget: Budget | None, below: Sequence[Flow] = ()
    ) -> None:
        """Before a run begins: what could never work, whatever its data. `below` are flows it may start."""
        forced = self.settings.force_deterministic or bool(config.get(FORCE))
        own = config.get(STEPS)
        if own:
            _check_own(flow, own)
        plans = [self.plan_for(one, step, forced, own) for one in (flow, *below) for step in one.every_step()]
        for one in (flow, *below) if not self.settings.pointed_out else ():
            if one.name not in self._told:
                self._told.add(one.name)
                for plan in plans:
                    if plan.flow is one:
                        point_out(plan)
        if forced:
            for plan in plans:
                if plan.step.step_type is StepType.AGENT:
                    raise ConfigurationError(
                        f"Step '{plan.qualified}' is performed by an agent only; it has no handler, so the "
                        f"run cannot be forced to be deterministic (E022)."
                    )
        for plan in plans:
            limit = budget.cost_usd if budget is not None else None
            limit = limit or (plan.config.budget.cost_usd if plan.config.budget is not None else None)
            if limit is None or not (plan.agent or plan.alone or plan.config.shadow):
                continue
            if plan.agent and plan.config.autonomy is AutonomyLevel.OPERATOR and not plan.config.shadow:
                continue
            executor = self.executor(plan.config.provider, {})
            if not isinstance(executor, str):
                check_price(plan, executor)


def point_out(plan: Plan) -> None:
    """Say what is doubtful about a step's configuration."""
    doubts = list(plan.resolved.warnings)
    level = plan.config.autonomy or AutonomyLevel.OPERATOR
    if plan.agent and level > AutonomyLevel.COLLABORATOR and plan.step.straight and not plan.contract.output:
        doubts.append(
            ("W007", "the step declares no output, so an agent may set any key; give it an output_schema")
        )
    for code, hint in doubts:
        log.warning("config.doubtful", flow=plan.flow.name, step_name=plan.step.name, code=code, hint=hint)


def _inline(step: Step) -> StepConfig:
    """A step's own layer. What generates is an agent's by nature, with a handler for when there is none."""
    said = step.config or UNSAID
    if step.step_type is not StepType.GENERATE:
        return said
    return replace(said, mode=StepMode.AGENT, autonomy=AutonomyLevel.APPROVER)


def _own(flow: Flow, step: Step, said: Mapping[str, Any]) -> StepConfig:
    """What a run says about one of its steps."""
    for key in (flow.qualified(step), step.name):
        if key in said:
            where = f"the run's own configuration of '{key}'"
            config = StepConfig.read(said[key], where=where)
            if config.prompt_file is not None:
                raise ConfigurationError(
                    f"{where}: prompt_file belongs into the settings; say prompt_suffix."
                )
            return config
    return UNSAID


def _check_own(flow: Flow, said: Any) -> None:
    """Raise unless what a run says about its steps is about steps it has."""
    if not isinstance(said, Mapping):
        raise ConfigurationError(f"`{STEPS}` of a run's configuration maps steps to how they are performed.")
    known = [step.name for step in flow.every_step()]
    known += [flow.qualified(step) for step in flow.every_step()]
    for name in said:
        if name not in known and name not in flow.related:
            raise ConfigurationError(
                f"The run is told how to perform '{name}', but flow '{flow.name}' has no such step."
                f"{nearest(str(name), known)}"
            )


def check_price(plan: Plan, executor: StepExecutor) -> None:
    """Raise when money is limited and nobody knows what asking costs."""
    model_id = plan.config.model_id
    priced = getattr(executor, "priced", None)
    if priced is None or not priced(model_id):
        name = f"model '{model_id}'" if model_id else "the default model"
        raise ConfigurationError(
            f"Step '{plan.qualified}' has a money budget, but the price of {name} is not known. "
            f"Give it under `prices` in the settings, or leave out cost_usd."
        )
