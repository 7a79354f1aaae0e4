"""Plays the cases of the suite: each with real tools in a folder of its own that is gone afterwards.

Registry, tickets and replies are the embedded ones on a new SQLite file, mail goes into a real outbox, the
time is that at which the mail was received. Nothing leaves the machine.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from email import message_from_bytes, policy
from pathlib import Path
from typing import Any

from detent.adapters.mail.arrivals import Arrival
from detent.adapters.mail.message import EmailMessage
from detent.adapters.stores.memory import MemoryStore
from detent.apps.warranty.craft.coverage import Device, device_of
from detent.apps.warranty.craft.words import WORDS
from detent.apps.warranty.evals import REGISTRY, shipped_cases
from detent.apps.warranty.evals.agents import Agents, Playback, Recording, scripted_agent
from detent.apps.warranty.evals.faults import answered, with_current_names
from detent.apps.warranty.evals.mails import CaseMail, mail_of
from detent.apps.warranty.flow import instructions, overlays
from detent.apps.warranty.handlers import Desk
from detent.apps.warranty.intake import Intake as Door
from detent.apps.warranty.intake_records import Records
from detent.apps.warranty.mail_data import pack
from detent.apps.warranty.office import Office
from detent.apps.warranty.processor import EmailProcessor, Legacy, Orchestrator, StepOrchestrator
from detent.apps.warranty.router import StepRouter
from detent.apps.warranty.settings import Arm, WarrantySettings, read
from detent.apps.warranty.tools.registry import Registry
from detent.apps.warranty.tools.tickets import Tickets
from detent.engine.dispatch_settings import DispatchSettings
from detent.engine.engine import Engine
from detent.engine.journals import read as entries_of
from detent.engine.ports import Store
from detent.engine.yaml_loader import safe_load
from detent.evals.case import LEGACY, STEP, EvalTestCase
from detent.evals.plans import Plans
from detent.evals.playing import (
    Contracts,
    Intake,
    Played,
    PlayedCall,
    PlayedStep,
    PlayFailed,
    PlayOptions,
    StepContract,
    StepEdge,
    UnknownStep,
)
from detent.flows.playbook.history import response_text
from detent.flows.playbook.instruction import DEGRADED, DONE, FAILED
from detent.flows.playbook.playbook import Playbook, read_playbook
from detent.flows.playbook.protocol import render
from detent.insight.visits import FunctionCall, StepVisit, blobs_of, visits
from detent.kernel.autonomy import StepMode
from detent.kernel.errors import ConfigurationError
from detent.kernel.plain import decode
from detent.kernel.run import Run
from detent.kernel.step_config import StepConfig

INPUT_KEYS = (
    "email", "earlier_emails", "registry", "mock_function_responses", "mock_responses", "failures",
    "start_step", "data", "steps", "agent_replies", "playbook", "overlays",
)  # fmt: skip
FLOW = "warranty"
WAIT = 0.001
"""Seconds between attempts: planned failures are not waited for."""


class WarrantyPlayer:
    """Plays mails through the step files, or in legacy mode."""

    input_keys = INPUT_KEYS
    orchestrators = (STEP, LEGACY)

    def __init__(
        self,
        settings: WarrantySettings,
        folder: Path,
        *,
        dispatch: DispatchSettings | None = None,
        check: bool = True,
    ) -> None:
        """`dispatch` says which steps the project gives to which agents. Without `check`, step files that
        do not add up are played all the same, to see what comes of it."""
        self.settings = settings
        self.folder = folder
        self.dispatch = dispatch or DispatchSettings()
        self._check = check
        self._playbooks: dict[tuple[str, ...], tuple[Playbook, Contracts]] = {}
        self._devices: list[Device] | None = None
        self._begun: set[Path] = set()
        """Recordings begun by this player; what stood there before is overwritten once."""

    @classmethod
    def of(cls, settings: Any, folder: Path) -> WarrantyPlayer:
        """The player a project's settings describe."""
        own = read(settings.values, settings.folder, lambda way: settings.place(*way))
        return cls(own, folder)

    def take_agents(self, dispatch: DispatchSettings) -> None:
        """Be told which steps the project gives to which agents; `ConfigurationError` for a model that may
        be another one tomorrow."""
        for name, step in dispatch.steps.items():
            asked = step.mode is StepMode.AGENT and dispatch.executors is not None
            provider = step.provider or dispatch.model.provider
            if asked and provider is not None and not (step.model_id or dispatch.model.model_id):
                raise ConfigurationError(
                    f"Step '{name}' asks a model of provider '{provider}', and nothing says which. Cases are "
                    f"played with a pinned one: say model.id, or steps.{name}.model_id."
                )
        self.dispatch = dispatch

    async def close(self) -> None:
        """Let go of the project's models."""
        if self.dispatch.executors is not None:
            await self.dispatch.executors.close()

    @property
    def model(self) -> str | None:
        """Id of the model that is asked; None when no step is given to one."""
        ids = [
            step.model_id or self.dispatch.model.model_id
            for step in self.dispatch.steps.values()
            if step.mode is StepMode.AGENT
        ]
        return ", ".join(dict.fromkeys(one for one in ids if one is not None)) or None

    @property
    def arms(self) -> tuple[str, ...]:
        """The arms of the experiment that is under way."""
        experiment = self.settings.orchestration.router.experiment
        return () if experiment is None else tuple(experiment.arms)

    # -- what steps may do ----------------------------------------------------------------------------------

    def contracts(self, case: EvalTestCase) -> Contracts:
        """How the step files of a case say that its steps may follow each other."""
        return self._playbook(case)[1]

    def _playbook(self, case: EvalTestCase) -> tuple[Playbook, Contracts]:
        folder, over = self._folder(case), self._overlays(case)
        key = (str(folder), *map(str, over))
        if key not in self._playbooks:
            source = folder if folder is not None else instructions(self.settings)
            playbook, _ = read_playbook(
                source, overlays=over, language=self.settings.warranty.default_language
            )
            most = self.settings.orchestration.max_steps
            given = frozenset(Desk(self.settings, WORDS).said())
            self._playbooks[key] = playbook, contracts_of(playbook, most, given)
        return self._playbooks[key]

    def _folder(self, case: EvalTestCase) -> Path | None:
        """The step files a case brings along."""
        said = case.input.get("playbook")
        if said is None:
            return None
        path = _beside(case) / str(said)
        if not path.is_dir():
            raise ConfigurationError(f"{case.file}: input.playbook: there is no folder {said}.")
        return path.absolute()

    def _overlays(self, case: EvalTestCase) -> list[Path]:
        """The overlays of the project and of a case: a folder beside it, or one that ships."""
        found = overlays(self.settings) if case.input.get("playbook") is None else []
        said = case.input.get("overlays") or ()
        for name in [said] if isinstance(said, str) else said:
            own = (_beside(case) / name).absolute()
            found += [own] if own.is_dir() else overlays(_bare(self.settings), [name])
        return list(dict.fromkeys(found))

    # -- playing --------------------------------------------------------------------------------------------

    async def play(self, case: EvalTestCase, *, orchestrator: str, options: PlayOptions) -> Played:
        """Play a case once."""
        return (await self._play(case, orchestrator, options))[0]

    async def transcript(self, case: EvalTestCase) -> str:
        """What legacy mode does about a case, as a text that is equal for equal behaviour."""
        return (await self._play(case, LEGACY, PlayOptions()))[1]

    async def _play(self, case: EvalTestCase, orchestrator: str, options: PlayOptions) -> tuple[Played, str]:
        if case.input.get("email") is None:
            raise PlayFailed("input.email is missing: every case of this suite begins with a mail.")
        mail = mail_of(case, case.input["email"])
        earlier = [
            mail_of(case, one, f"earlier_emails.{index}")
            for index, one in enumerate(case.input.get("earlier_emails") or ())
        ]
        tape = self._tape(case, options)
        how: Orchestrator = "legacy" if orchestrator == LEGACY else "step"
        with tempfile.TemporaryDirectory(prefix="detent-case-") as place:
            play = _Play(self, case, Path(place), how, self._arm(options), tape)
            played = await play.whole(earlier, mail)
        if isinstance(tape, Playback) and tape.misses:
            raise tape.misses[0]
        return played, play.transcript

    def _arm(self, options: PlayOptions) -> Arm | None:
        experiment = self.settings.orchestration.router.experiment
        if options.arm is None or experiment is None:
            return None
        return experiment.arms[options.arm]

    def _tape(self, case: EvalTestCase, options: PlayOptions) -> Recording | Playback | None:
        name = case.scenario_id if options.arm is None else f"{case.scenario_id}.{options.arm}"
        if options.replay is not None:
            return Playback(options.replay / f"{name}.jsonl", options.repeat)
        if options.record is None:
            return None
        path = options.record / f"{name}.jsonl"
        try:
            options.record.mkdir(parents=True, exist_ok=True)
            if path not in self._begun:
                self._begun.add(path)
                path.unlink(missing_ok=True)
        except OSError as error:
            raise PlayFailed(f"{options.record} cannot be written to: {error.strerror}.") from None
        return Recording(path, options.repeat)

    def devices(self) -> list[Device]:
        """The suite's registry: the one beside its cases, else the one that ships."""
        if self._devices is None:
            own = self.folder / REGISTRY
            self._devices = read_registry(own if own.is_file() else shipped_cases() / REGISTRY)
        return self._devices


@dataclass(slots=True)
class _Play:
    """One case being played."""

    player: WarrantyPlayer
    case: EvalTestCase
    place: Path
    how: Orchestrator
    arm: Arm | None
    tape: Recording | Playback | None
    transcript: str = ""
    """Of legacy mode: what it did."""

    async def whole(self, earlier: Sequence[CaseMail], mail: CaseMail) -> Played:
        """Deliver what came before, then the mail of the case."""
        case, player = self.case, self.player
        playbook, contracts = player._playbook(case)
        settings = self._settings()
        plans = Plans(with_current_names(case), answered)
        clock = _Received(mail.received)
        steps = self._steps(contracts)
        office = Office.of(
            settings,
            wrap=plans.around,
            now=clock,
            agents=[name.rpartition("/")[2] for name, one in steps.items() if one.mode is StepMode.AGENT],
            overlay=[str(path) for path in player._overlays(case)],
            folder=player._folder(case),
            check=player._check,
            environ={},
        )
        plans.check([tool.name for tool in office.tools])
        await _registry(office).add(self._registered())
        store = MemoryStore()
        async with Engine(store, [office.flow], dispatch=self._dispatch(steps, contracts)) as engine:
            desk = _Desk(office, engine, self)
            for one in earlier:
                clock.moment = one.received
                _, before = await desk.deliver(one, whole=True)
                if before is None:
                    raise PlayFailed("one of input.earlier_emails is not answered at all")
            clock.moment = mail.received
            begun = time.perf_counter()
            intake, run = await desk.deliver(mail)
            for _ in range(mail.deliver - 1):
                intake, again = await desk.deliver(mail)
                run = again if again is not None else run
            ms = (time.perf_counter() - begun) * 1000
            await desk.close()
            mails = await asyncio.to_thread(_outbox, settings.path(settings.mail.outbox))
            tickets = await _tickets(office).list()
            told = [asdict(ticket) for ticket in reversed(tickets)]
            if run is None:
                self.transcript = f"intake: {intake.decision} ({intake.reason})\n"
                return Played(intake=intake, emails_sent=tuple(mails), tickets=tuple(told), ms=ms)
            if self.how == LEGACY:
                from detent.apps.warranty.legacy.transcript import transcript

                self.transcript = await transcript(store, run.id)
            played = await self._told(store, run, playbook)
            return replace(
                played, intake=intake, emails_sent=_in_order(mails, played.calls), tickets=tuple(told), ms=ms
            )

    # -- what it is played with -----------------------------------------------------------------------------

    def _settings(self) -> WarrantySettings:
        """The project's settings, with everything that is written in the case's own folder."""
        own = self.player.settings
        retry = own.orchestration.retry.model_copy(update={"min_s": WAIT, "max_s": WAIT})
        folders = {
            name: str(own.path(getattr(own.playbook, name)))
            for name in ("steps_dir", "templates_dir", "scenarios_dir")
        }
        return replace(
            own,
            folder=self.place,
            orchestration=own.orchestration.model_copy(update={"retry": retry}),
            playbook=own.playbook.model_copy(update={**folders, "overlays": []}),
            mail=own.mail.model_copy(update={"sink": "outbox", "outbox": "outbox"}),
            tools=own.tools.model_copy(
                update={"registry": "sqlite", "tickets": "sqlite", "database": "case.db"}
            ),
        )

    def _steps(self, contracts: Contracts) -> dict[str, StepConfig]:
        """Who performs the steps: the project's word, then the arm's, then the case's."""
        said = dict(self.player.dispatch.steps)
        arm = self.arm.steps if self.arm is not None else {}
        # A case with step files of its own need not have the step that an arm is about.
        arm = {name: config for name, config in arm.items() if name in contracts.steps}
        for layer in (arm, self.case.input.get("steps") or {}):
            for name, config in layer.items():
                step = StepConfig.read(config, where=f"input.steps.{name}")
                said[f"{FLOW}/{_step(contracts, name)}"] = step
        return said

    def _dispatch(self, steps: Mapping[str, StepConfig], contracts: Contracts) -> DispatchSettings:
        usual = self.player.dispatch
        replies = self.case.input.get("agent_replies") or {}
        agents = Agents(
            scripted_agent(replies, lambda name: _step(contracts, name)), usual.executors, self.tape
        )
        return replace(usual, steps=steps, executors=agents)

    def _registered(self) -> Iterable[Device]:
        said = self.case.input.get("registry")
        if said is None:
            return self.player.devices()
        return [_device(record, f"input.registry.{index}") for index, record in enumerate(said)]

    # -- what happened --------------------------------------------------------------------------------------

    async def _told(self, store: Store, run: Run, playbook: Playbook) -> Played:
        entries = [entry async for entry in entries_of(store, run.id)]
        blobs = await blobs_of(store, entries)
        found = visits(entries, needs=playbook.needs, blobs=blobs)
        redirect = next(iter(playbook.manifest.redirect or {}), None)
        steps = tuple([await self._visited(store, visit, playbook, redirect) for visit in found])
        used = f"steps:{steps[-1].step_name}" if run.state == DONE and steps else "steps:error"
        if self.how == LEGACY:
            used = run.data.get("scenario") or DEGRADED
        return Played(
            steps=steps,
            calls=tuple(_call(call) for visit in found for call in visit.calls),
            status=run.status.value,
            end=run.state if run.state in (DONE, DEGRADED, FAILED) else None,
            reason=run.reason,
            flags=tuple(run.data.get("flags") or ()),
            context=await _unfolded(store, run.data),
            start_data=await _unfolded(store, _start(entries)),
            scenario_used=used,
            spend=run.total_spend,
            run_id=run.id,
        )

    async def _visited(
        self, store: Store, visit: StepVisit, playbook: Playbook, redirect: str | None
    ) -> PlayedStep:
        visit = replace(visit, changes=await _unfolded(store, visit.changes))
        ended = visit.next_step.startswith("(")  # where it stood, at no step's wish
        # The redirect of a degraded run is the engine's: no step has to declare it.
        own = [
            call
            for call in visit.calls
            if not (visit.next_step == DEGRADED and call.function_name == redirect and _redirects(call))
        ]
        text = response_text(visit, playbook) if self.how == STEP else _legacy_text(visit)
        return PlayedStep(
            visit.step_name,
            visit.input_data,
            text,
            await _unfolded(store, visit.data),
            None if ended else visit.next_step,
            visit.reason,
            visit.mode,
            visit.fallback,
            tuple(_call(call) for call in own),
        )


class _Desk:
    """Decides about mails as they come, and runs those that are to be."""

    def __init__(self, office: Office, engine: Engine, play: _Play) -> None:
        self.office = office
        self.engine = engine
        self.play = play
        settings = office.settings
        steps = StepOrchestrator(office, engine, StepRouter(office.desk, settings.orchestration.router))
        self.processor = EmailProcessor(steps, legacy=_legacy(office, engine) if play.how == LEGACY else None)
        self.records = Records(settings.path(settings.tools.database), lambda: office.now().timestamp())
        self.door = Door(office, self.records, self._choose)
        self.delivered = 0

    async def _choose(self) -> Orchestrator:
        return self.play.how

    async def close(self) -> None:
        """Let go of the records."""
        await self.records.close()

    async def deliver(self, mail: CaseMail, *, whole: bool = False) -> tuple[Intake, Run | None]:
        """What is decided about a mail, and its run. `whole` leaves out where the case wants to start."""
        self.delivered += 1
        arrival = Arrival(f"mail-{self.delivered}", len(mail.raw), mail.raw, mail.received)
        admitted = await self.door.admit(arrival, "case")
        intake = Intake(admitted.decision, admitted.reason)
        if admitted.decision != "run" or admitted.mail is None:
            return intake, None
        return intake, await self._run(admitted.mail, admitted.record.run_id, whole)

    async def _run(self, message: EmailMessage, run_id: str, whole: bool) -> Run:
        given, office = self.play.case.input, self.office
        packed = pack(message, office.settings.warranty.timezone, office.now())
        start = None if whole else given.get("start_step")
        data = None if whole else given.get("data")
        if start is None and not data and (given.get("playbook") is None or self.play.how == LEGACY):
            strategy = self.play.arm.strategy if self.play.arm is not None else None
            await self.processor.start(
                packed, how=self.play.how, run_id=run_id, tags=("eval",), strategy=strategy
            )
        else:
            at = _step(self.play.player.contracts(self.play.case), start) if start is not None else None
            await self.engine.start(
                office.flow, {**packed.data, **(data or {})}, run_id=run_id, beside=packed.beside, at=at,
                tags=("eval",),
            )  # fmt: skip
        return await self.engine.finish(run_id)


def _legacy(office: Office, engine: Engine) -> Legacy:
    from detent.apps.warranty.legacy.flow import legacy_for

    found = legacy_for(office, engine)
    if found is None:
        raise PlayFailed("Legacy mode is retired here (orchestration.legacy_available: false).")
    return found


@dataclass(slots=True)
class _Received:
    """A clock that shows when the mail was received."""

    moment: datetime

    def __call__(self) -> datetime:
        return self.moment


# -- step files ---------------------------------------------------------------------------------------------


def contracts_of(playbook: Playbook, max_steps: int, given: Collection[str] = ()) -> Contracts:
    """What the step files say about how steps may follow each other, for the harness to check.

    `given` are needs that the settings meet, whatever the data.
    """
    aliases: dict[str, list[str]] = {}
    for alias, name in playbook.aliases.items():
        aliases.setdefault(name, []).append(alias)
    return Contracts(
        {
            name: StepContract(
                name,
                tuple(StepEdge(edge.to, edge.when, edge.reason) for edge in playbook.edges[name]),
                tuple(key for key in step.needs if key not in given),
                tuple(one.name for one in step.available_functions),
                tuple(aliases.get(name, ())),
            )
            for name, step in playbook.steps.items()
        },
        frozenset({DONE}),
        frozenset({DEGRADED, FAILED}),
        max_steps,
    )


def _step(contracts: Contracts, name: str) -> str:
    try:
        return contracts.resolve(name)
    except UnknownStep as error:
        raise PlayFailed(str(error)) from None


def _beside(case: EvalTestCase) -> Path:
    """The folder a case's paths start from."""
    return case.source.parent if case.source is not None else Path()


def _bare(settings: WarrantySettings) -> WarrantySettings:
    """The settings without overlays of their own."""
    return replace(settings, playbook=settings.playbook.model_copy(update={"overlays": []}))


# -- registry -----------------------------------------------------------------------------------------------


def read_registry(path: Path) -> list[Device]:
    """The devices of a suite; a problem is told with the entry it is in."""
    import yaml

    try:
        said = safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise ConfigurationError(f"{path} cannot be read: {type(error).__name__}.") from error
    if not isinstance(said, list):
        raise ConfigurationError(f"{path}: a registry is a list of devices, each with its serial.")
    return [_device(record, f"{path.name}, entry {index}") for index, record in enumerate(said, 1)]


def _device(record: Any, where: str) -> Device:
    if not isinstance(record, Mapping):
        raise PlayFailed(f"{where}: a device has a serial, a name and dates.")
    try:
        return device_of(record)
    except ValueError as error:
        raise PlayFailed(f"{where}: {error}.") from None


def _registry(office: Office) -> Registry:
    assert isinstance(office.registry, Registry)
    return office.registry


def _tickets(office: Office) -> Tickets:
    assert isinstance(office.tickets, Tickets)
    return office.tickets


# -- what was left behind -----------------------------------------------------------------------------------


def _call(call: FunctionCall) -> PlayedCall:
    args = call.arguments if isinstance(call.arguments, Mapping) else {}
    return PlayedCall(
        call.function_name, args, call.result, call.success, call.error_message, call.step_name, call.kind
    )


def _legacy_text(visit: StepVisit) -> str:
    calls = [(one.function_name, one.arguments, one.result or one.error_message) for one in visit.calls]
    return render(next_step=visit.next_step, reason=visit.reason, calls=calls)


def _redirects(call: FunctionCall) -> bool:
    return isinstance(call.arguments, Mapping) and call.arguments.get("kind") == "redirect"


async def _unfolded(store: Store, data: Mapping[str, Any]) -> dict[str, Any]:
    """Data with what lies beside the journal in its place."""
    found: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, Mapping) and set(value) == {"$blob", "size"}:
            raw = await store.blob(value["$blob"])
            found[key] = None if raw is None else decode(raw)
        else:
            found[key] = value
    return found


def _start(entries: Sequence[Any]) -> Mapping[str, Any]:
    """The data the first step found."""
    run = Run("")
    run.apply(entries[0])
    return dict(run.data)


def _outbox(folder: Path) -> list[dict[str, Any]]:
    """The mails that were sent, as their reader would see them."""
    found: list[dict[str, Any]] = []
    for path in sorted(folder.glob("*.eml")):
        mail = message_from_bytes(path.read_bytes(), policy=policy.default)
        body = mail.get_body(("plain",))
        found.append(
            {
                "from": str(mail["From"]),
                "to": str(mail["To"]),
                "subject": str(mail["Subject"]),
                "body": body.get_content().replace("\r\n", "\n") if body is not None else "",
                "message_id": str(mail["Message-ID"]),
                "in_reply_to": str(mail["In-Reply-To"] or ""),
            }
        )
    return found


def _in_order(
    mails: Iterable[Mapping[str, Any]], calls: Iterable[PlayedCall]
) -> tuple[Mapping[str, Any], ...]:
    """Mails in the order in which this run sent them; those of earlier runs are not among them."""
    sent = {mail["message_id"]: mail for mail in mails}
    ids = [call.result.get("message_id") for call in calls if isinstance(call.result, Mapping)]
    return tuple(sent[one] for one in ids if one in sent)
