"""Processes a mail, from its data to its result, in step mode or in legacy mode."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, Protocol

from detent.adapters.mail.message import EmailMessage
from detent.apps.warranty.events import mail_completed
from detent.apps.warranty.experiment import Trial
from detent.apps.warranty.handlers import AMBIGUOUS
from detent.apps.warranty.mail_data import MailView, Packed, mail_of, pack
from detent.apps.warranty.model_question import executors_of
from detent.apps.warranty.results import (
    OrchestrationResult,
    ProcessingResult,
    orchestration_result,
    processing_result,
)
from detent.apps.warranty.router import AskModel, StepRouter
from detent.apps.warranty.wiring import Components
from detent.engine import logger
from detent.engine.engine import Engine
from detent.engine.journal_reader import read
from detent.engine.offloaded import kept_beside
from detent.flows.playbook.history import response_text
from detent.insight.visits import StepTuple, StepVisit, blobs_of, visits
from detent.kernel.plain import decode, encode
from detent.kernel.run import Run

Orchestrator = Literal["step", "legacy"]
HASHED = ("email", "issue_description")
"""Data that histories show only as a hash."""


class StepOrchestrator:
    """Takes mails through the step files."""

    def __init__(
        self, components: Components, engine: Engine, router: StepRouter, trial: Trial | None = None
    ) -> None:
        self.components = components
        self.engine = engine
        self.router = router
        if router.ask is None and (executors := executors_of(engine)) is not None:
            timeout = components.settings.orchestration.retry.attempt_timeout_s
            router.ask = AskModel(executors, timeout, engine.active.tape)
        self.trial = trial
        """The experiment of the mails, if there is one."""
        self.history: list[StepTuple] = []
        """The steps of the last mail."""
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
        """Start the run about a mail; returns its id."""
        mail = view_of(packed)
        data, at, beside = dict(packed.data), None, list(packed.beside)
        arm = None
        if self.trial is not None:
            assigned = self.trial.assign(mail.thread_root or data["mail"]["key"], config)
            strategy, config, arm = strategy or assigned.strategy, assigned.config, assigned.arm
            data |= assigned.data
            tags = (*tags, assigned.tag)
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
        if routed.unused is not None:
            data["routed"]["unused"] = routed.unused
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
        with logger.about(mail_key=email.key, orchestrator="step"):
            run_id = await self.start(packed, **options)
            result = await self.result(await self.engine.finish(run_id))
            if result.status.is_end:
                mail_completed(_processing_result(result))
        self.history = result.step_history
        return result

    process = orchestrate

    async def result(self, run: Run) -> OrchestrationResult:
        """The result of a run, folded from its journal and the texts still stored outside it."""
        entries = [entry async for entry in read(self.engine.store, run.id)]
        blobs = await blobs_of(self.engine.store, entries)
        done = visits(entries, needs=self.components.flow.playbook.needs, hashed=HASHED, blobs=blobs)
        return orchestration_result(run, done, self.text(done[-1]) if done else "")

    def text(self, visit: StepVisit) -> str:
        """A step's canonical rendering."""
        return response_text(visit, self.components.flow.playbook)


class Legacy(Protocol):
    """Legacy mode, which processes a mail in one step."""

    async def start(self, packed: Packed, **options: Any) -> str:
        """Start the run about a mail."""

    async def result(self, run: Run) -> ProcessingResult:
        """The result of the run."""


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
        """The mode of the next mail."""
        if self._choose is not None:
            return await self._choose()
        step_mode = self.orchestrator.components.settings.orchestration.use_step_orchestrator
        return "step" if step_mode or self.legacy is None else "legacy"

    async def process_email(self, email: EmailMessage, **options: Any) -> ProcessingResult:
        """Process one mail to its end."""
        packed = pack(
            email, self.orchestrator.components.settings.warranty.timezone, self.orchestrator.components.now()
        )
        how = options.pop("how", None) or await self.choose()
        with logger.about(mail_key=email.key, orchestrator=how):
            how, run_id = await self.start(packed, how=how, **options)
            result = await self.result(how, await self.orchestrator.engine.finish(run_id))
            if result.status.is_end:
                mail_completed(result)
        return result

    async def start(
        self, packed: Packed, *, how: Orchestrator | None = None, **options: Any
    ) -> tuple[Orchestrator, str]:
        """Start the run about a mail, in the mode that is due."""
        how = how or await self.choose()
        if how == "legacy" and self.legacy is not None:
            return how, await self.legacy.start(packed, **options)
        return "step", await self.orchestrator.start(packed, **options)

    async def result(self, how: Orchestrator, run: Run) -> ProcessingResult:
        """The result of a mail."""
        if how == "legacy" and self.legacy is not None:
            return await self.legacy.result(run)
        return _processing_result(await self.orchestrator.result(run))


def _processing_result(done: OrchestrationResult) -> ProcessingResult:
    """The result of a mail in step mode."""
    scenario = f"steps:{done.final_step}" if done.completed else "steps:error"
    return processing_result(done, "step", scenario)


def view_of(packed: Packed) -> MailView:
    """The mail in the data of a run that has not started."""
    return mail_of({"email": decode(packed.beside[0])})
