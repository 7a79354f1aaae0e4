"""Drives a scenario through the coding flow itself, on an engine and a store of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from detent.adapters.stores.memory import MemoryStore
from detent.dispatch.autonomy import AutonomyLevel, StepMode
from detent.dispatch.config import StepConfig
from detent.dispatch.dispatcher import DispatchSettings
from detent.dispatch.executor import StepExecutor
from detent.engine.engine import Engine
from detent.flows.coding.flow import CodingFlow
from detent.flows.coding.measure.watch import RuleRun, Watch, WatchedExecutor
from detent.flows.coding.options import RequestOptions
from detent.flows.coding.settings import CodingSettings

MakeFlow = Callable[[CodingSettings], CodingFlow]
PROVIDER: Final = "measured"


@dataclass(frozen=True, slots=True)
class MachineRule:
    """The flow's own rule of completion, with its options."""

    strict: bool = False
    """With `strict_completion`."""
    checks: bool = False
    """With each scenario's check as `done_when`."""
    make_flow: MakeFlow = CodingFlow
    model_id: str | None = None
    """The model to ask where the executor's own is not meant."""
    confined: bool = False
    """Commands run in a sandbox or not at all: a real model chooses them, and nobody is asked."""

    async def run(self, watch: Watch, executor: Any) -> RuleRun:
        """Play a scenario to its end."""
        scenario = watch.scenario
        options = RequestOptions(
            deny=scenario.deny, yes=True, on_confirm="deny", strict=self.strict,
            done_when=scenario.check if self.checks else None,
        )  # fmt: skip
        data = {
            "prompt": scenario.prompt, "workspace": str(watch.workspace), "options": options.to_plain(),
        }  # fmt: skip
        flow = self.make_flow(CodingSettings(sandbox=True if self.confined else None))
        config = StepConfig(mode=StepMode.AGENT, autonomy=AutonomyLevel.COLLABORATOR, model_id=self.model_id)
        dispatch = DispatchSettings(
            steps={f"{flow.name}/assistant": config}, executors=_One(WatchedExecutor(executor, watch))
        )
        async with Engine(MemoryStore(), [flow], dispatch=dispatch) as engine:
            run = await engine.run(flow, data)
        completed = run.data.get("outcome") == "completed"
        reason = run.data.get("outcome_reason") or run.error or run.reason
        return watch.result(completed, None if completed else str(reason))


@dataclass(frozen=True, slots=True)
class _One:
    """A source with one executor."""

    executor: Any
    default = PROVIDER

    def make(self, provider: str) -> StepExecutor:
        """The executor."""
        executor: StepExecutor = self.executor
        return executor

    async def close(self) -> None:
        """Whoever made the executor closes it."""
