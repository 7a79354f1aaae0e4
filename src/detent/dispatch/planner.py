"""The planner: decides from a project's settings who performs each step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from detent.dispatch.agent_side import agent_side, highest_level, offered, own_config
from detent.dispatch.autonomy import AgentRole, AutonomyLevel, StepMode
from detent.dispatch.config import UNSAID, StepConfig, resolve
from detent.dispatch.executor import DISPATCH_AGENT, NO_MODEL, NO_MODEL_ID, StepExecutor
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
        self._warned: set[str] = set()
        """Flows whose configuration warnings have been logged."""
        self._settled: set[tuple[str, bool, str]] = set()
        """Flows and run configurations that have been checked."""

    def check(self, flow: Flow, config: Mapping[str, Any], budget: Budget | None, below: Below) -> None:
        """Check a run's configuration before it starts.

        Raises:
            ConfigurationError: the run could never work, whatever its data.
        """
        own = config.get(STEPS)
        key = flow.name, bool(config.get(FORCE)), digest(own, 16) if own else ""
        # Only the money limit of a budget matters to this check.
        if key not in self._settled or (budget is not None and budget.cost_usd is not None):
            self._check(flow, config, budget, below(flow))
            self._settled.add(key)

    def assign(self, flow: Flow, run: Run, step: Step | None = None) -> Plan:
        """The plan for the step of the run's state, or for the step performed instead."""
        state = run.state
        forced = self.settings.force_deterministic or bool(run.config and run.config.get(FORCE))
        own = run.config.get(STEPS) if run.config else None
        place = state if step is None else f"{state}/{step.name}"
        key = (flow.name, place, forced, digest(own, 16) if own else "")
        plan = self._plans.get(key)
        if plan is None or plan.flow is not flow:
            plan = self._plans[key] = self.plan_for(flow, step or flow.step_for(state), forced, own)
        return plan

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
        """The plan for a step, resolved from the layers of configuration.

        `own` is the run's configuration of its steps.

        Raises:
            StepConfigError: the layers conflict.
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
            natural=StepMode.AGENT if side.role is AgentRole.REQUIRED else StepMode.DETERMINISTIC,
            run=said_by_run,
        )
        config = resolved.config
        retries_set = (
            resolved.sources.get("max_retries", "default") != "default" or config.retry_policy is not None
        )
        handler = config.mode is StepMode.DETERMINISTIC
        return Plan(
            flow,
            step,
            resolved,
            plain=handler and not step.opaque and not config.shadow and not forced and not resolved.warnings,
            retry=resolved.retry if handler and retries_set else step.retry,
            timeout=config.timeout if handler and config.timeout is not None else step.timeout,
            dialect=side.dialect or JSON,
            ignored=side.role in (AgentRole.PREFERRED, AgentRole.REQUIRED)
            and any(layer.mode is not None for layer in (said_by_run, *self._layers(flow, step))),
        )

    def _layers(self, flow: Flow, step: Step) -> list[StepConfig]:
        """The layers of the step itself and of the settings."""
        from_settings = (self.settings.steps.get(key) for key in (flow.qualified(step), step.name))
        return [layer for layer in (own_config(step), *from_settings) if layer is not None]

    def executor(self, provider: str | None, made: dict[str, StepExecutor]) -> StepExecutor | str:
        """The executor of a provider, made once per run and kept in `made`; or the reason there is none."""
        source = self.settings.executors
        name = provider or (source.default if source is not None else None)
        if source is None or name is None:
            return NO_MODEL
        if name not in made:
            try:
                made[name] = source.make(name)
            except Exception as error:
                return f"{type(error).__name__}: {error}"
        return made[name]

    def usable_executor(
        self, provider: str | None, model_id: str | None, made: dict[str, StepExecutor]
    ) -> StepExecutor | str:
        """The executor of a provider; or why it cannot be used, as far as can be told without asking it."""
        executor = self.executor(provider, made)
        if isinstance(executor, str):
            return executor
        try:
            available = executor.available()
        except Exception as error:
            return f"it cannot say whether it is available ({type(error).__name__})"
        if not available.ok:
            return available.why_not or "it says it is not available"
        if model_id is None and getattr(executor, "needs_model_id", False):
            return NO_MODEL_ID
        return executor

    def _check(
        self, flow: Flow, config: Mapping[str, Any], budget: Budget | None, below: Sequence[Flow]
    ) -> None:
        forced = self.settings.force_deterministic or bool(config.get(FORCE))
        own = config.get(STEPS)
        if own:
            _check_own(flow, own)
        plans = [
            self.plan_for(each, step, forced, own) for each in (flow, *below) for step in each.every_step()
        ]
        for each in (flow, *below) if not self.settings.pointed_out else ():
            if each.name not in self._warned:
                self._warned.add(each.name)
                for plan in plans:
                    if plan.flow is each:
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
    """A step's own layer. A step that prefers an agent is always in agent mode."""
    config = own_config(step) or UNSAID
    if agent_side(step).role is not AgentRole.PREFERRED:
        return config
    return replace(config, mode=StepMode.AGENT, autonomy=AutonomyLevel.APPROVER)


def _own(flow: Flow, step: Step, configs: Mapping[str, Any]) -> StepConfig:
    """A run's configuration of one of its steps."""
    for key in (flow.qualified(step), step.name):
        if key in configs:
            place = f"the run's own configuration of '{key}'"
            config = StepConfig.read(configs[key], where=place)
            if config.prompt_file is not None:
                raise ConfigurationError(
                    f"{place}: prompt_file belongs into the settings; say prompt_suffix."
                )
            return config
    return UNSAID


def _check_own(flow: Flow, configs: Any) -> None:
    """Raise unless a run's configuration names only steps it has."""
    if not isinstance(configs, Mapping):
        raise ConfigurationError(f"`{STEPS}` of a run's configuration maps steps to how they are performed.")
    known = [step.name for step in flow.every_step()]
    known += [flow.qualified(step) for step in flow.every_step()]
    for name in configs:
        if name not in known and name not in flow.related:
            raise ConfigurationError(
                f"The run's configuration names the step '{name}', but flow '{flow.name}' has no such step."
                f"{nearest(str(name), known)}"
            )
