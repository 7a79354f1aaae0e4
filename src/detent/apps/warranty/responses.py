"""Single-step runs: the answer of one step to a mail and some data. Nothing is performed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from detent.adapters.mail.message import EmailMessage
from detent.adapters.stores.memory import MemoryStore
from detent.apps.warranty.dry_run import NoSink, Rehearsal
from detent.apps.warranty.mail_data import pack
from detent.apps.warranty.results import StepExecutionResult
from detent.apps.warranty.settings import WarrantySettings
from detent.apps.warranty.wiring import Components
from detent.dispatch.dispatcher import DispatchSettings
from detent.engine.engine import Engine
from detent.engine.journal_reader import read
from detent.flows.playbook.flow import PlaybookFlow
from detent.flows.playbook.history import response_text
from detent.flows.playbook.trial import step_named
from detent.insight.visits import blobs_of, visits
from detent.kernel.entries import Entry, Moved

Dispatch = Callable[[PlaybookFlow], DispatchSettings]
"""Who performs the steps of a flow."""


@dataclass(slots=True)
class _StopAfterMove:
    """Stops an engine once a step is done."""

    engine: Engine | None = None

    def on_entry(self, run_id: str, flow: str, entry: Entry) -> None:
        """Stop after the first move."""
        if isinstance(entry.body, Moved) and self.engine is not None:
            self.engine.active.stopping = True


class ResponseGenerator:
    """Runs single steps. Queries are real; effects are only recorded."""

    def __init__(
        self, settings: WarrantySettings, *, agents: tuple[str, ...] = (), dispatch: Dispatch | None = None,
        **parts: Any,
    ) -> None:  # fmt: skip
        self.rehearsal = Rehearsal()
        self.components = Components.of(
            settings, wrap=self.rehearsal.wrap, sink=NoSink(), agents=agents, **parts
        )
        self._dispatch = dispatch

    async def generate_step_response(
        self, step_name: str, email_content: EmailMessage, context_data: Mapping[str, Any] | None = None
    ) -> StepExecutionResult:
        """The result of a step for a mail and the data it needs.

        Raises:
            ConfigurationError: there is no such step.
        """
        flow = self.components.flow
        step = step_named(flow, step_name)
        packed = pack(email_content, self.components.settings.warranty.timezone, self.components.now())
        data = {**packed.data, **(context_data or {})}
        stopper = _StopAfterMove()
        dispatch = self._dispatch(flow) if self._dispatch is not None else None
        engine = Engine(MemoryStore(), [flow], observers=[stopper], dispatch=dispatch)
        stopper.engine = engine
        async with engine:
            at = step if step != flow.playbook.start else None
            run_id = await engine.start(flow, data, beside=packed.beside, at=at)
            await engine.finish(run_id)
            entries = [entry async for entry in read(engine.store, run_id)]
            blobs = await blobs_of(engine.store, entries)
        (visit, *_) = visits(entries, needs=flow.playbook.needs, blobs=blobs)
        metadata = {
            "reason": visit.reason, "mode": visit.mode, "attempts": visit.attempts,
            "fallback": visit.fallback, "data": visit.changes, "duration_ms": visit.duration_ms,
        }  # fmt: skip
        return StepExecutionResult(
            visit.next_step, response_text(visit, flow.playbook), metadata, step, visit.calls
        )
