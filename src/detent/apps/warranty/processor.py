"""One mail, from its data to its result: the orchestrator of steps, and who chooses between it and legacy."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, Protocol

from detent.adapters.mail.message import EmailMessage
from detent.apps.warranty.experiment import Trial
from detent.apps.warranty.handlers import AMBIGUOUS
from detent.apps.warranty.mail_data import MailView, Packed, mail_of, pack
from detent.apps.warranty.results import OrchestrationResult, ProcessingResult, StepTuple
from detent.apps.warranty.router import StepRouter, usual_ask
from detent.apps.warranty.wiring import Components
from detent.engine import logger
from detent.engine.engine import Engine
from detent.engine.journal_reader import read
from detent.engine.offloaded import kept_beside
from detent.flows.playbook.history import response_text
from detent.flows.playbook.instruction import DONE
from detent.insight.visits import StepVisit, blobs_of, visits
from detent.kernel.plain import decode, encode
from detent.kernel.run import Run
from detent.kernel.status import Status

Orchestrator = Literal["step", "legacy"]
HASHED = ("email", "issue_description")
"""Data that histories tell by its hash alone."""


class StepOrchestrator:
    """Takes mails through the step files."""

    def __init__(
        self, components: Components, engine: Engine, router: StepRouter, trial: Trial | None = None
    ) -> None:
        self.components = components
        self.engine = engine
        self.router = router
        if router.ask is None:
            router.ask = usual_ask(engine, components.settings.orchestration.retry.attempt_timeout_s)
        self.trial = trial
        """The experiment mails take part in, if there is one."""
        self.history: list[StepTuple] = []
        """The steps of the mail that was taken through last."""
        if components.flow.name not in engine.flows:
            engine.add_flow(components.flow)

    async def start(
        self,
        packed: Packed,
        *,
        run_id: str | None = None,
        config: Mapping[str, Any] | None = None,
        tags: tuple[str, ...] = (),
        strategy: str | None = None,
    ) -> str:
        """Start the run about a mail; gives its id."""
        mail = view_of(packed)
        data, at, beside = dict(packed.data), None, list(packed.beside)
        arm = None
        if self.trial is not None:
            given = self.trial.assign(mail.thread_root or data["mail"]["key"], config)
            strategy, config, arm = strategy or given.strategy, given.config, given.arm
            data |= given.data
            tags = (*tags, given.tag)
        routed = await self.router.route_to_initial_step(mail, strategy)
        if routed.step_name != self.components.flow.playbook.start:
            at = routed.step_name
            facts = {**routed.data, "scope": {"kind": "in_scope", "topic": None}}
            if len(facts["serials"]) > 1:
                data["flags"] = [*data["flags"], AMBIGUOUS]
            words = encode(facts.pop("issue_description", "")).encode("utf-8", "surrogatepass")
            data |= {**facts, "issue_description": kept_beside(words)}
            beside.append(words)
        data["routed"] = {
            "step": routed.step_name, "confidence": routed.confidence, "method": routed.routing_method
        }  # fmt: skip
        logger.info(
            "router.decided", mail_key=packed.data["mail"]["key"], step=routed.step_name,
            method=routed.routing_method, confidence=routed.confidence, **({"arm": arm} if arm else {}),
        )  # fmt: skip
        return await self.engine.start(
            self.components.flow, data, run_id=run_id, config=dict(config or {}), tags=list(tags),
            beside=beside,
            at=at,
        )  # fmt: skip

    async def orchestrate(self, email: EmailMessage, **options: Any) -> OrchestrationResult:
        """Take a mail through the steps, to the end of its run or to where it waits."""
        packed = pack(email, self.components.settings.warranty.timezone, self.components.now())
        run_id = await self.start(packed, **options)
        result = await self.result(await self.engine.finish(run_id))
        self.history = result.step_history
        return result

    process = orchestrate

    async def result(self, run: Run) -> OrchestrationResult:
        """What a run came to, folded from its journal and what is still kept beside it."""
        entries = [entry async for entry in read(self.engine.store, run.id)]
        blobs = await blobs_of(self.engine.store, entries)
        done = visits(entries, needs=self.components.flow.playbook.needs, hashed=HASHED, blobs=blobs)
        last = done[-1] if done else None
        return OrchestrationResult(
            run.id,
            run.status,
            run.state,
            run.reason,
            [visit.as_tuple() for visit in done],
            last.step_name if last is not None else "",
            self.text(last) if last is not None else "",
            run.state == DONE,
            len(done),
            dict(run.data),
            tuple(run.data.get("flags") or ()),
            round(run.seconds * 1000, 3),
            tuple(call for visit in done for call in visit.calls),
            run.error,
        )

    def text(self, visit: StepVisit) -> str:
        """A step's canonical rendering."""
        return response_text(visit, self.components.flow.playbook)


class Legacy(Protocol):
    """The older way of processing a mail in one go."""

    async def start(self, packed: Packed, **options: Any) -> str:
        """Start the run about a mail."""

    async def result(self, run: Run) -> ProcessingResult:
        """What became of it."""


class EmailProcessor:
    """Processes mails, by steps or in legacy mode."""

    def __init__(
        self,
        orchestrator: StepOrchestrator,
        *,
        legacy: Legacy | None = None,
        choose: Callable[[], Awaitable[Orchestrator]] | None = None,
    ) -> None:
        self.orchestrator = orchestrator
        self.legacy = legacy
        self._choose = choose

    async def choose(self) -> Orchestrator:
        """Which way the next mail goes."""
        if self._choose is not None:
            return await self._choose()
        wanted = self.orchestrator.components.settings.orchestration.use_step_orchestrator
        return "step" if wanted or self.legacy is None else "legacy"

    async def process_email(self, email: EmailMessage, **options: Any) -> ProcessingResult:
        """Process one mail to its end."""
        packed = pack(
            email, self.orchestrator.components.settings.warranty.timezone, self.orchestrator.components.now()
        )
        how, run_id = await self.start(packed, **options)
        return await self.result(how, await self.orchestrator.engine.finish(run_id))

    async def start(
        self, packed: Packed, *, how: Orchestrator | None = None, **options: Any
    ) -> tuple[Orchestrator, str]:
        """Start the run about a mail, in the mode that is due."""
        how = how or await self.choose()
        if how == "legacy" and self.legacy is not None:
            return how, await self.legacy.start(packed, **options)
        return "step", await self.orchestrator.start(packed, **options)

    async def result(self, how: Orchestrator, run: Run) -> ProcessingResult:
        """What became of a mail."""
        if how == "legacy" and self.legacy is not None:
            return await self.legacy.result(run)
        return processing_result(await self.orchestrator.result(run))


def processing_result(done: OrchestrationResult) -> ProcessingResult:
    """A run by steps, as what became of its mail."""
    data = done.context
    sent = any(call.function_name == "send_email" and call.success for call in done.calls)
    failed = done.status.is_end and done.status is not Status.SUCCEEDED
    return ProcessingResult(
        success=done.completed,
        email_id=(data.get("mail") or {}).get("key", ""),
        run_id=done.run_id,
        orchestrator="step",
        scenario_used=f"steps:{done.final_step}" if done.completed else "steps:error",
        status=done.status,
        serial_number=data.get("serial_number"),
        warranty_status=(data.get("warranty_data") or {}).get("status"),
        response_sent=sent,
        ticket_created=bool(data.get("ticket_id")),
        ticket_id=data.get("ticket_id"),
        processing_time_ms=done.processing_time_ms,
        error_message=done.error or (done.reason if failed else None),
        failed_step=done.final_step if failed else None,
        step_sequence=done.path,
        function_calls=list(done.calls),
        flags=list(done.flags),
        end=done.end,
        reason=done.reason,
    )


def view_of(packed: Packed) -> MailView:
    """The mail in what a run would start from."""
    return mail_of({"email": decode(packed.beside[0])})
