"""The application as a subject of the eval player: mails are delivered to the case's own mailbox.

Registry, tickets and replies are the embedded ones on a new SQLite file, mail goes into a real outbox, the
clock shows the time at which the mail was received. Nothing leaves the machine.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from email import message_from_bytes, policy
from pathlib import Path
from typing import Any

from detent.adapters.mail.message import EmailMessage
from detent.adapters.mail.source import Arrival
from detent.apps.warranty.domain.coverage import Device, device_of
from detent.apps.warranty.domain.words import WORDS
from detent.apps.warranty.evals.cases import REGISTRY, shipped_cases
from detent.apps.warranty.evals.faults import answered, with_current_names
from detent.apps.warranty.evals.mails import CaseMail, mail_of
from detent.apps.warranty.flow import instructions, overlays
from detent.apps.warranty.handlers import Handlers
from detent.apps.warranty.intake import Intake as MailIntake
from detent.apps.warranty.intake_records import Records
from detent.apps.warranty.legacy.scenario_question import AskScenario
from detent.apps.warranty.mail_data import pack
from detent.apps.warranty.mailbox import warranty_settings
from detent.apps.warranty.processor import EmailProcessor, Legacy, Orchestrator, StepOrchestrator
from detent.apps.warranty.router import NO_EXECUTOR, AskModel, StepRouter
from detent.apps.warranty.settings import Arm, WarrantySettings
from detent.apps.warranty.tools.registry import Registry
from detent.apps.warranty.tools.tickets import Tickets
from detent.apps.warranty.wiring import Components
from detent.authoring.document import read_value
from detent.engine.engine import Engine
from detent.evals.answers import AnswerRecord, Fate
from detent.evals.artifacts import Artifacts
from detent.evals.case import STEP, EvalTestCase
from detent.evals.contracts import Contracts
from detent.evals.played import SKIPPED, Intake, Played, PlayedStep, PlayFailed
from detent.evals.player import Delivered, Session, Setup
from detent.flows.playbook.history import own_calls, response_text
from detent.flows.playbook.instruction import DEGRADED, DONE, FAILED
from detent.flows.playbook.playbook import Playbook, read_playbook
from detent.flows.playbook.protocol import render
from detent.insight.visits import FunctionCall, StepVisit
from detent.kernel.errors import ConfigurationError
from detent.kernel.run import Run

LEGACY: Orchestrator = "legacy"
WAIT = 0.001
"""Seconds between attempts: planned failures need no real wait."""
TRANSCRIPT = "transcript"
"""Kind of artifact that holds the transcript of legacy mode."""


class WarrantySubject:
    """A mailbox with the project's step files, or in legacy mode."""

    flow = "warranty"
    orchestrators = (LEGACY,)
    artifacts = (
        Artifacts(
            "emails", "mail", exists="email_sent", contains="response_body_contains",
            excludes="response_body_excludes",
        ),
        Artifacts("tickets", "ticket", exists="ticket_created", fields="ticket_fields"),
    )  # fmt: skip
    input_keys: Mapping[str, type] = {
        "email": dict, "earlier_emails": list, "registry": list, "mock_responses": dict, "playbook": str,
        "overlays": tuple,
    }  # fmt: skip
    planned = staticmethod(with_current_names)
    answered = staticmethod(answered)

    def __init__(self, settings: WarrantySettings, folder: Path, *, check: bool = True) -> None:
        """Without `check`, step files with problems are played anyway."""
        self.settings = settings
        self.folder = folder
        self.check = check
        self._playbooks: dict[tuple[str, ...], tuple[Playbook, Contracts]] = {}
        self._devices: list[Device] | None = None

    @classmethod
    def of(cls, settings: Any, folder: Path) -> WarrantySubject:
        """The subject a project's settings describe."""
        return cls(warranty_settings(settings), folder)

    @property
    def usual_orchestrator(self) -> str:
        """The mode the mailbox works in."""
        return "step" if self.settings.orchestration.use_step_orchestrator else LEGACY

    @property
    def arms(self) -> tuple[str, ...]:
        """The arms of the experiment that is under way."""
        experiment = self.settings.orchestration.router.experiment
        return () if experiment is None else tuple(experiment.arms)

    def arm(self, name: str | None) -> Arm | None:
        """An arm by its name."""
        experiment = self.settings.orchestration.router.experiment
        return None if name is None or experiment is None else experiment.arms[name]

    def arm_steps(self, name: str) -> Mapping[str, Any]:
        """Who performs which step in an arm."""
        arm = self.arm(name)
        return arm.steps if arm is not None else {}

    # -- step files -----------------------------------------------------------------------------------------

    def contracts(self, case: EvalTestCase) -> Contracts:
        """The contracts of a case's steps, from its step files."""
        return self._read(case)[1]

    def playbook(self, case: EvalTestCase) -> Playbook:
        """The step files of a case."""
        return self._read(case)[0]

    def _read(self, case: EvalTestCase) -> tuple[Playbook, Contracts]:
        folder, over = self.instructions(case), self.overlays(case)
        key = (str(folder), *map(str, over))
        if key not in self._playbooks:
            source = folder if folder is not None else instructions(self.settings)
            language = self.settings.warranty.default_language
            playbook, _ = read_playbook(source, overlays=over, language=language)
            from_settings = frozenset(Handlers(self.settings, WORDS).said())
            most = self.settings.orchestration.max_steps
            self._playbooks[key] = playbook, contracts_of(playbook, most, from_settings)
        return self._playbooks[key]

    def instructions(self, case: EvalTestCase) -> Path | None:
        """The step files in the case's own folder; None if it has none."""
        name = case.input.get("playbook")
        if name is None:
            return None
        path = _beside(case) / str(name)
        if not path.is_dir():
            raise ConfigurationError(f"{case.file}: input.playbook: there is no folder {name}.")
        return path.absolute()

    def overlays(self, case: EvalTestCase) -> list[Path]:
        """The overlays of the project and of a case: folders next to the case, or shipped ones."""
        folders = overlays(self.settings) if case.input.get("playbook") is None else []
        names = case.input.get("overlays") or ()
        bare = replace(self.settings, playbook=self.settings.playbook.model_copy(update={"overlays": []}))
        for name in [names] if isinstance(names, str) else names:
            own = (_beside(case) / name).absolute()
            folders += [own] if own.is_dir() else overlays(bare, [name])
        return list(dict.fromkeys(folders))

    # -- a case ---------------------------------------------------------------------------------------------

    def session(self, case: EvalTestCase, setup: Setup) -> MailSession:
        """Prepare a mailbox for a case."""
        if case.input.get("email") is None:
            raise PlayFailed("input.email is missing: every case of this suite begins with a mail.")
        return MailSession(self, case, setup)

    def case_settings(self, folder: Path) -> WarrantySettings:
        """The project's settings, with all output in the case's own folder."""
        own = self.settings
        retry = own.orchestration.retry.model_copy(update={"min_s": WAIT, "max_s": WAIT})
        folders = {
            name: str(own.path(getattr(own.playbook, name)))
            for name in ("steps_dir", "templates_dir", "scenarios_dir")
        }
        return replace(
            own,
            folder=folder,
            orchestration=own.orchestration.model_copy(update={"retry": retry}),
            playbook=own.playbook.model_copy(update={**folders, "overlays": []}),
            mail=own.mail.model_copy(update={"sink": "outbox", "outbox": "outbox"}),
            tools=own.tools.model_copy(
                update={"registry": "sqlite", "tickets": "sqlite", "database": "case.db"}
            ),
        )

    def devices(self, case: EvalTestCase) -> Iterable[Device]:
        """The registry of a case: its own, otherwise that of the suite, otherwise the shipped one."""
        records = case.input.get("registry")
        if records is not None:
            return [_device(record, f"input.registry.{index}") for index, record in enumerate(records)]
        if self._devices is None:
            own = self.folder / REGISTRY
            self._devices = read_registry(own if own.is_file() else shipped_cases() / REGISTRY)
        return self._devices


@dataclass(slots=True)
class _Received:
    """A clock set to the time at which the mail was received."""

    moment: datetime

    def __call__(self) -> datetime:
        return self.moment


class MailSession(Session):
    """The mailbox of one case: each mail goes through intake and is run if intake decides so."""

    def __init__(self, subject: WarrantySubject, case: EvalTestCase, setup: Setup) -> None:
        self.mail = mail_of(case, case.input["email"])
        self.earlier = [
            mail_of(case, earlier, f"earlier_emails.{index}")
            for index, earlier in enumerate(case.input.get("earlier_emails") or ())
        ]
        self.subject = subject
        self.mode: Orchestrator = LEGACY if setup.mode == LEGACY else "step"
        self.arm = subject.arm(setup.arm)
        self.clock = _Received(self.mail.received)
        self.components = Components.of(
            subject.case_settings(setup.folder),
            wrap=setup.wrap,
            now=self.clock,
            agents=setup.agents,
            overlay=[str(path) for path in subject.overlays(case)],
            folder=subject.instructions(case),
            check=subject.check,
            environ={},
        )
        self.delivered = 0
        super().__init__(self.components.flow, case, self.components.tools)

    # -- delivering -----------------------------------------------------------------------------------------

    async def deliver(self, engine: Engine) -> Delivered:
        """Deliver the earlier mails, then the mail of the case."""
        components, settings = self.components, self.components.settings
        assert isinstance(components.registry, Registry)
        await components.registry.add(self.subject.devices(self.case))
        steps = StepOrchestrator(
            components, engine, StepRouter(components.handlers, settings.orchestration.router)
        )
        processor = EmailProcessor(
            steps, legacy=_legacy(components, engine) if self.mode == LEGACY else None, choose=self._choose
        )
        records = Records(settings.path(settings.tools.database), lambda: components.now().timestamp())
        intake = MailIntake(components, records, self._choose)
        try:
            for mail in self.earlier:
                self.clock.moment = mail.received
                if (await self._deliver_mail(mail, intake, processor, engine, whole=True)).run is None:
                    raise PlayFailed("one of input.earlier_emails is not answered at all")
            self.clock.moment = self.mail.received
            began = time.perf_counter()
            run: Run | None = None
            for _ in range(self.mail.deliver):
                delivered = await self._deliver_mail(self.mail, intake, processor, engine)
                run = delivered.run if delivered.run is not None else run
            return Delivered(run, delivered.intake, (time.perf_counter() - began) * 1000)
        finally:
            await records.close()

    async def _choose(self) -> Orchestrator:
        return self.mode

    async def _deliver_mail(
        self,
        mail: CaseMail,
        intake: MailIntake,
        processor: EmailProcessor,
        engine: Engine,
        *,
        whole: bool = False,
    ) -> Delivered:
        """The intake decision about a mail, and its run. `whole` ignores the start step of the case."""
        self.delivered += 1
        arrival = Arrival(f"mail-{self.delivered}", len(mail.raw), mail.raw, mail.received)
        admitted = await intake.admit(arrival, "case")
        decided = Intake(admitted.decision, admitted.reason)
        if admitted.decision != "run" or admitted.mail is None:
            return Delivered(None, decided)
        run_id = admitted.record.run_id
        await self._start(admitted.mail, run_id, processor, engine, whole)
        return Delivered(await engine.finish(run_id), decided)

    async def _start(
        self, message: EmailMessage, run_id: str, processor: EmailProcessor, engine: Engine, whole: bool
    ) -> None:
        case_input, components = self.case.input, self.components
        packed = pack(message, components.settings.warranty.timezone, components.now())
        start = None if whole else case_input.get("start_step")
        data = None if whole else case_input.get("data")
        if start is None and not data and (case_input.get("playbook") is None or self.mode == LEGACY):
            strategy = self.arm.strategy if self.arm is not None else None
            if self._configures_first_step():
                strategy = "default"
            await processor.start(packed, how=self.mode, run_id=run_id, tags=("eval",), strategy=strategy)
            return
        at = self.subject.contracts(self.case).resolve(start) if start is not None else None
        await engine.start(
            components.flow, {**packed.data, **(data or {})}, run_id=run_id, beside=packed.beside, at=at,
            tags=("eval",),
        )  # fmt: skip

    def _configures_first_step(self) -> bool:
        """Whether the case says who performs the first step: it is about that step, which has to run."""
        contracts, first = self.subject.contracts(self.case), self.components.flow.playbook.start
        named = (*(self.case.input.get("steps") or ()), *(self.case.input.get("agent_replies") or ()))
        return any(contracts.resolve(name) == first for name in named)

    # -- what happened --------------------------------------------------------------------------------------

    def text(self, visit: StepVisit) -> str:
        """The output of a step, in the lines of the protocol."""
        if self.mode == STEP:
            return response_text(visit, self.subject.playbook(self.case))
        calls = [
            (call.function_name, call.arguments, call.result or call.error_message) for call in visit.calls
        ]
        return render(next_step=visit.next_step, reason=visit.reason, calls=calls)

    def own_calls(self, visit: StepVisit) -> list[FunctionCall]:
        """The calls of a step without the redirect of a degraded run."""
        return own_calls(visit, self.subject.playbook(self.case))

    async def finished(self, played: Played, engine: Engine, run: Run | None) -> Played:
        """The result with the mails and tickets of the run."""
        settings = self.components.settings
        mails = await asyncio.to_thread(_outbox, settings.path(settings.mail.outbox))
        assert isinstance(self.components.tickets, Tickets)
        tickets = tuple(asdict(ticket) for ticket in reversed(await self.components.tickets.list()))
        played = self._routed(played, run)
        sent = tuple(mails) if run is None else _in_order(mails, played.calls)
        artifacts: dict[str, tuple[Mapping[str, Any], ...]] = {"emails": sent, "tickets": tickets}
        if self.mode == LEGACY:
            artifacts[TRANSCRIPT] = ({"text": await self._transcript(played, engine, run)},)
            if run is not None:
                played = replace(played, scenario_used=run.data.get("scenario") or DEGRADED)
        return replace(played, artifacts=artifacts)

    def _routed(self, played: Played, run: Run | None) -> Played:
        """The result with the step that routing skipped, and the questions put to a model outside steps."""
        if run is None:
            return played
        if self.mode == LEGACY:
            return replace(played, questions=tuple(_detection(run)))
        routed = run.data.get("routed") or {}
        played = replace(played, questions=tuple(_routing(routed)))
        playbook, data = self.subject.playbook(self.case), played.start_data
        if routed.get("step", playbook.start) == playbook.start or data is None:
            return played
        step = playbook.steps[playbook.start]
        found = {key: data[key] for key in step.outputs if key in data}
        reason = f"routed by {routed['method']}"
        visit = StepVisit(playbook.start, routed["step"], {}, found, dict(data), reason)
        text = response_text(visit, playbook)
        skipped = PlayedStep(
            playbook.start, output_text=text, data_after=data, next_step=routed["step"], reason=reason,
            mode=SKIPPED,
        )  # fmt: skip
        return replace(played, skipped=(skipped,))

    async def _transcript(self, played: Played, engine: Engine, run: Run | None) -> str:
        """The transcript of legacy mode, the same for the same behaviour."""
        if run is None:
            assert played.intake is not None
            return f"intake: {played.intake.decision} ({played.intake.reason})\n"
        from detent.apps.warranty.legacy.transcript import transcript

        return await transcript(engine.store, run.id)


def _routing(routed: Mapping[str, Any]) -> Iterator[AnswerRecord]:
    """The model's answer about the first step."""
    if routed.get("method") == "llm":
        yield AnswerRecord(AskModel.name, Fate.KEPT)
    elif (reason := routed.get("unused")) is not None:
        fate = Fate.NOT_ASKED if reason == NO_EXECUTOR else Fate.REPLACED
        yield AnswerRecord(AskModel.name, fate, reason)


def _detection(run: Run) -> Iterator[AnswerRecord]:
    """The model's answer about the scenario, in legacy mode; without a usable one the run degrades."""
    detected = run.data.get("detected") or {}
    if detected.get("detection_method") == "llm":
        fate = Fate.FAILED if detected["scenario_name"] == DEGRADED else Fate.KEPT
        yield AnswerRecord(AskScenario.name, fate)


def _legacy(components: Components, engine: Engine) -> Legacy:
    from detent.apps.warranty.legacy.flow import legacy_for

    legacy = legacy_for(components, engine)
    if legacy is None:
        raise PlayFailed("Legacy mode is retired here (orchestration.legacy_available: false).")
    return legacy


def contracts_of(playbook: Playbook, max_steps: int, given: Iterable[str] = ()) -> Contracts:
    """The contracts of the steps in step files. `given` lists needs that settings meet."""
    return Contracts.declared(
        playbook.steps, playbook.edges, ends={DONE}, always={DEGRADED, FAILED}, max_steps=max_steps,
        given=frozenset(given),
    )  # fmt: skip


def _beside(case: EvalTestCase) -> Path:
    """The folder to which a case's paths are relative."""
    return case.source.parent if case.source is not None else Path()


# -- registry -----------------------------------------------------------------------------------------------


def read_registry(path: Path) -> list[Device]:
    """The devices of a suite.

    Raises:
        ConfigurationError: the file cannot be read, or is not a list.
        PlayFailed: an entry is wrong.
    """
    try:
        records = read_value(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {type(error).__name__}.") from error
    if not isinstance(records, list):
        raise ConfigurationError(f"{path}: a registry is a list of devices, each with its serial.")
    return [_device(record, f"{path.name}, entry {index}") for index, record in enumerate(records, 1)]


def _device(record: Any, where: str) -> Device:
    if not isinstance(record, Mapping):
        raise PlayFailed(f"{where}: a device has a serial, a name and dates.")
    try:
        return device_of(record)
    except ValueError as error:
        raise PlayFailed(f"{where}: {error}.") from None


# -- outbox -------------------------------------------------------------------------------------------------


def _outbox(folder: Path) -> list[dict[str, Any]]:
    """The mails that were sent, as their recipient sees them."""
    mails: list[dict[str, Any]] = []
    for path in sorted(folder.glob("*.eml")):
        mail = message_from_bytes(path.read_bytes(), policy=policy.default)
        body = mail.get_body(("plain",))
        mails.append(
            {
                "from": str(mail["From"]),
                "to": str(mail["To"]),
                "subject": str(mail["Subject"]),
                "body": body.get_content().replace("\r\n", "\n") if body is not None else "",
                "message_id": str(mail["Message-ID"]),
                "in_reply_to": str(mail["In-Reply-To"] or ""),
            }
        )
    return mails


def _in_order(
    mails: Iterable[Mapping[str, Any]], calls: Iterable[FunctionCall]
) -> tuple[Mapping[str, Any], ...]:
    """The mails of this run, in the order in which it sent them."""
    sent = {mail["message_id"]: mail for mail in mails}
    ids = [call.result.get("message_id") for call in calls if isinstance(call.result, Mapping)]
    return tuple(sent[message_id] for message_id in ids if message_id in sent)
