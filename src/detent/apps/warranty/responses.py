"""The answer of one step, or of one scenario, to a mail and some data. Nothing is performed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from detent.adapters.mail.message import EmailMessage
from detent.adapters.stores.memory import MemoryStore
from detent.apps.warranty.dry_run import NoSink, Rehearsal
from detent.apps.warranty.legacy.detect_scenario import SCENARIOS
from detent.apps.warranty.legacy.flow import legacy_flow
from detent.apps.warranty.legacy.handlers import PROCESS, LegacyHandlers
from detent.apps.warranty.legacy.scenarios import Scenarios, scenarios_folder
from detent.apps.warranty.mail_data import MailView, pack
from detent.apps.warranty.results import StepExecutionResult
from detent.apps.warranty.settings import WarrantySettings
from detent.apps.warranty.wiring import Components
from detent.dispatch.dispatcher import DispatchSettings
from detent.engine.engine import Engine
from detent.engine.flow import Flow
from detent.engine.journal_reader import read
from detent.flows.playbook.history import response_text
from detent.flows.playbook.trial import step_named
from detent.insight.visits import StepVisit, blobs_of, visits
from detent.kernel.entries import Entry, Moved
from detent.kernel.errors import ConfigurationError, nearest
from detent.kernel.run import Run

Dispatch = Callable[[Flow], DispatchSettings]
"""Who performs the steps of a flow."""


@dataclass(slots=True)
class _StopAfterMove:
    """Stops an engine once a step is done."""

    engine: Engine | None = None

    def on_entry(self, run_id: str, flow: str, entry: Entry) -> None:
        """Stop after the first move."""
        if isinstance(entry.body, Moved) and self.engine is not None:
            self.engine.active.stopping = True


class _Single(NamedTuple):
    """A single-step run."""

    visit: StepVisit
    run: Run

    def metadata(self) -> dict[str, Any]:
        visit = self.visit
        return {
            "reason": visit.reason, "mode": visit.mode, "attempts": visit.attempts,
            "fallback": visit.fallback, "data": visit.changes, "duration_ms": visit.duration_ms,
        }  # fmt: skip


class ResponseGenerator:
    """Runs single steps and single scenarios. Queries are real; effects are only recorded."""

    def __init__(
        self, settings: WarrantySettings, *, agents: tuple[str, ...] = (), dispatch: Dispatch | None = None,
        **parts: Any,
    ) -> None:  # fmt: skip
        self.rehearsal = Rehearsal()
        self.components = Components.of(
            settings, wrap=self.rehearsal.wrap, sink=NoSink(), agents=agents, **parts
        )
        self._dispatch = dispatch
        self._legacy: tuple[Flow, LegacyHandlers] | None = None

    async def generate_step_response(
        self, step_name: str, email_content: EmailMessage, context_data: Mapping[str, Any] | None = None
    ) -> StepExecutionResult:
        """The result of a step for a mail and the data it needs.

        Raises:
            ConfigurationError: there is no such step.
        """
        flow = self.components.flow
        step = step_named(flow, step_name)
        at = step if step != flow.playbook.start else None
        single = await self._single(flow, at, email_content, context_data or {}, flow.playbook.needs)
        visit = single.visit
        text = response_text(visit, flow.playbook)
        return StepExecutionResult(visit.next_step, text, single.metadata(), step, visit.calls)

    async def generate_response(
        self, scenario: str, email_content: EmailMessage, context_data: Mapping[str, Any] | None = None
    ) -> StepExecutionResult:
        """The result of a scenario of legacy mode for a mail; `response_text` is the mail it would send.

        Code finds in the mail what `context_data` leaves out (`serial_number`, `language`, …); without
        `warranty_data` the registry is asked, and its answer may lead to another scenario, which is in the
        metadata.

        Raises:
            ConfigurationError: there is no such scenario, or legacy mode is retired.
        """
        if scenario not in SCENARIOS:
            raise ConfigurationError(
                f"There is no scenario '{scenario}'.{nearest(scenario, SCENARIOS)} "
                f"Scenarios: {', '.join(SCENARIOS)}."
            )
        flow, handlers = self._legacy_mode()
        _, facts = handlers.handlers.facts(MailView.of(email_content))
        data = {**facts, **(context_data or {}), "scenario": scenario}
        visit, run = single = await self._single(flow, PROCESS, email_content, data)
        sent = [call for call in visit.calls if call.function_name == "send_email"]
        text = str(sent[-1].arguments["body"]) if sent else ""
        metadata = {
            **single.metadata(), "scenario": run.data["scenario"], "flags": list(run.data.get("flags") or ())
        }  # fmt: skip
        return StepExecutionResult(visit.next_step, text, metadata, PROCESS, visit.calls)

    def _legacy_mode(self) -> tuple[Flow, LegacyHandlers]:
        """The flow and the handlers of legacy mode, made when first used."""
        settings = self.components.settings
        if not settings.orchestration.legacy_available:
            raise ConfigurationError(
                "There are no scenarios: legacy mode is retired (orchestration.legacy_available: false)."
            )
        if self._legacy is None:
            handlers = LegacyHandlers(settings, self.components.handlers)
            scenarios = Scenarios(scenarios_folder(settings))
            self._legacy = legacy_flow(self.components, handlers, scenarios), handlers
        return self._legacy

    async def _single(
        self,
        flow: Flow,
        at: str | None,
        mail: EmailMessage,
        data: Mapping[str, Any],
        needs: Any = None,
    ) -> _Single:
        """Run one step of a flow in memory."""
        packed = pack(mail, self.components.settings.warranty.timezone, self.components.now())
        stopper = _StopAfterMove()
        dispatch = self._dispatch(flow) if self._dispatch is not None else None
        engine = Engine(MemoryStore(), [flow], observers=[stopper], dispatch=dispatch)
        stopper.engine = engine
        async with engine:
            run_id = await engine.start(flow, {**packed.data, **data}, beside=packed.beside, at=at)
            run = await engine.finish(run_id)
            entries = [entry async for entry in read(engine.store, run_id)]
            blobs = await blobs_of(engine.store, entries)
        (visit, *_) = visits(entries, needs=needs, blobs=blobs)
        return _Single(visit, run)
