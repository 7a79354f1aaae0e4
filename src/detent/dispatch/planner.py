"""The planner: the one place where it is decided who performs a step, from a project's settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from detent.dispatch.agent_side import agent_side, highest_level, offered, own_config
from detent.dispatch.autonomy import AutonomyLevel, StepMode, StepType
from detent.dispatch.config import UNSAID, StepConfig, resolve
from detent.dispatch.executor import DISPATCH_AGENT, StepExecutor
from detent.dispatch.format import JSON
from detent.dispatch.layers import Layers
from detent.dispatch.plan import Plan, check_price, point_out
from detent.engine.performer import Below
from detent.engine.step import UNKNOWN_TOOLS
from detent.kernel.errors import ConfigurationError, nearest
from detent.kernel.plain import digest
from detent.kernel.run_config import FORCE, STEPS

if TYPE_CHECKING:
    from detent.engine.flow import Flow
    from detent.engine.step import Step
    from detent.kernel.budget import Budget
    from detent.kernel.run import Run


class Planner:
    """Plans for every step of an engine's flows, under one project's settings."""

    def __init__(self, settings: Layers | None = None) -> None:
        self.settings = settings or Layers()
        self._plans: dict[tuple[str, str, bool, str], Plan] = {}
        self._asks: dict[tuple[str, str], bool] = {}
        self._told: set[str] = set()
        """Flows whose doubtful settings have been pointed out."""
        self._settled: set[tuple[str, bool, str]] = set()
        """Flows, and what runs of them say, whose configuration is known to add up."""

    def check(self, flow: Flow, config: Mapping[str, Any], budget: Budget | None, below: Below) -> None:
        """Before a run begins: what could never work, whatever its data."""
        own = config.get(STEPS)
        asked = flow.name, bool(config.get(FORCE)), digest(own, 16) if own else ""
        # Of a budget only its money is looked at; whatever else it limits has been looked at before.
        if asked not in self._settled or (budget is not None and budget.cost_usd is not None):
            self._check(flow, config, budget, below(flow))
            self._settled.add(asked)

    def assign(self, flow: Flow, run: Run, step: Step | None = None) -> Plan:
        """Who performs the step of the run's state, or the one that is performed in its place."""
        state = run.state
        forced = self.settings.force_deterministic or bool(run.config and run.config.get(FORCE))
        own = run.config.get(STEPS) if run.config else None
        place = state if step is None else f"{state}/{step.name}"
        key = (flow.name, place, forced, digest(own, 16) if own else "")
        found = self._plans.get(key)
        if found is None or found.flow is not flow:
            found = self._plans[key] = self.plan_for(flow, step or flow.step_for(state), forced, own)
        return found

    def may_spend(self, flow: Flow, run: Run) -> bool:
        """Whether some step of the run is performed or shadowed by an agent."""
        own = run.config.get(STEPS) if run.config else None
        key = (flow.name, digest(own, 16) if own else "")
        asks = self._asks.get(key)
        if asks is None:
            plans = [self.plan_for(flow, step, own=own) for step in flow.every_step()]
            asks = self._asks[key] = any(plan.agent or plan.config.shadow for plan in plans)
        return asks

    def plan_for(
        self, flow: Flow, step: Step, forced: bool = False, own: Mapping[str, Any] | None = None
    ) -> Plan:
        """What the layers of configuration make of a step; `StepConfigError` when they do not add up.

        `own` is what a run says about its steps.
        """
        settings, side = self.settings, agent_side(step)
        said_by_run = _own(flow, step, own) if own else UNSAID
        agent_name = step.metadata.get("agent", DISPATCH_AGENT)
        resolved = resolve(
            step.name,
            flow=flow.scope,
            inline=_inline(step),
            steps=settings.steps,
            hint=side.hints or UNSAID,
            agent=settings.agents.get(agent_name),
            agent_name=agent_name,
            model=settings.model,
            forced=forced,
            max_autonomy=highest_level(step),
            tools=None
            if UNKNOWN_TOOLS in step.metadata
            else tuple(name for names in offered(step) for name in names or ()),
            natural=StepMode.AGENT if side.step_type is StepType.AGENT else StepMode.DETERMINISTIC,
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
            dialect=side.dialect or JSON,
            ignored=side.step_type.natural_mode is StepMode.AGENT
            and any(layer.mode is not None for layer in (said_by_run, *self._layers(flow, step))),
        )

    def _layers(self, flow: Flow, step: Step) -> list[StepConfig]:
        """What the step itself and the settings say about it."""
        there = (self.settings.steps.get(key) for key in (flow.qualified(step), step.name))
        return [one for one in (own_config(step), *there) if one is not None]

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

    def _check(
        self, flow: Flow, config: Mapping[str, Any], budget: Budget | None, below: Sequence[Flow]
    ) -> None:
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
                if plan.alone:
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


def _inline(step: Step) -> StepConfig:
    """A step's own layer. What generates is an agent's by nature, with a handler for when there is none."""
    said = own_config(step) or UNSAID
    if agent_side(step).step_type is not StepType.GENERATE:
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
