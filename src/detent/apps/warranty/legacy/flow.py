"""Legacy mode as a separate flow, with the same tools, the same ledger and the same rules about mail."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from detent.apps.warranty.legacy.detect_scenario import Ask
from detent.apps.warranty.legacy.handlers import DETECT, PROCESS, LegacyHandlers
from detent.apps.warranty.legacy.scenario_question import AskScenario
from detent.apps.warranty.legacy.scenarios import Scenarios, scenarios_folder
from detent.apps.warranty.mail_data import Packed
from detent.apps.warranty.model_question import executors_of
from detent.apps.warranty.results import ProcessingResult, orchestration_result, processing_result
from detent.apps.warranty.wiring import Components
from detent.dispatch.agent_side import AgentSide
from detent.engine.engine import Engine
from detent.engine.flow import Flow
from detent.engine.journal_reader import read
from detent.engine.step import Step
from detent.flows.playbook.instruction import DEGRADED, DONE, FAILED
from detent.flows.playbook.table import STATUS
from detent.insight.visits import visits
from detent.kernel.machine import Machine
from detent.kernel.policy import RetryPolicy
from detent.kernel.run import Run

NAME = "warranty-legacy"

MACHINE: Machine[str] = Machine(
    NAME,
    start=DETECT,
    moves={DETECT: [PROCESS, FAILED], PROCESS: [DONE, DEGRADED, FAILED]},
    ends=dict(STATUS),
)


def legacy_flow(components: Components, legacy_handlers: LegacyHandlers, scenarios: Scenarios) -> Flow:
    """The flow of legacy mode."""
    limits = components.settings.orchestration
    retry = RetryPolicy(limits.max_attempts, limits.retry.min_s, limits.retry.max_s)
    return Flow(
        MACHINE,
        {
            DETECT: Step(
                DETECT, legacy_handlers.detect, "Decide which scenario the mail is.", retry=retry, effects=(),
                queries=(), agent=AgentSide(private=True),
            ),
            PROCESS: Step(
                PROCESS, legacy_handlers.process, "Do everything the scenario asks for, in one go.",
                retry=retry,
                timeout=limits.retry.attempt_timeout_s, queries=("check_warranty",),
                effects=("create_ticket", "send_email"), agent=AgentSide(private=True),
            ),
        },
        name=NAME,
        tools=components.tools,
        extra=scenarios.fingerprint_parts(),
        needs=[components],
    )  # fmt: skip


class Legacy:
    """Takes mails through legacy mode."""

    def __init__(self, components: Components, engine: Engine, ask: Ask | None = None) -> None:
        """`ask` decides mails the rules are unsure about; by default the executor of the settings does.

        Raises:
            DocumentError: lists scenario files that are missing.
        """
        self.components = components
        self.engine = engine
        self.scenarios = Scenarios(scenarios_folder(components.settings))
        timeout = components.settings.orchestration.retry.attempt_timeout_s
        if ask is None and (executors := executors_of(engine)) is not None:
            ask = AskScenario(executors, self.scenarios, timeout, engine.active.tape)
        self.legacy_handlers = LegacyHandlers(components.settings, components.handlers, ask)
        self.flow = legacy_flow(components, self.legacy_handlers, self.scenarios)
        # The flow may be registered already, by components that only read its runs; this one processes mails.
        engine.active.flows.pop(NAME, None)
        engine.add_flow(self.flow)

    async def start(
        self,
        packed: Packed,
        *,
        run_id: str | None = None,
        config: Mapping[str, Any] | None = None,
        tags: tuple[str, ...] = (),
        **_: Any,
    ) -> str:
        """Start the run about a mail; returns its id. Options of step mode (a strategy) are ignored."""
        return await self.engine.start(
            self.flow, packed.data, run_id=run_id, config=dict(config or {}), tags=list(tags),
            beside=packed.beside,
        )  # fmt: skip

    async def result(self, run: Run) -> ProcessingResult:
        """The result of a mail, folded from its run's journal."""
        entries = [entry async for entry in read(self.engine.store, run.id)]
        done = orchestration_result(run, visits(entries))
        return processing_result(done, "legacy", run.data.get("scenario") or DEGRADED)


def legacy_for(components: Components, engine: Engine, ask: Ask | None = None) -> Legacy | None:
    """Legacy mode if the settings keep it; None once it is retired, and no scenario file is read."""
    return Legacy(components, engine, ask) if components.settings.orchestration.legacy_available else None
