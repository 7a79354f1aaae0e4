"""Wires the warranty mailbox: from a project's settings to its components, the engine and the service."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from detent.apps.warranty.own_heading import lifted
from detent.apps.warranty.settings import WarrantySettings, read, wrong_values
from detent.dispatch.autonomy import StepMode
from detent.engine import logger
from detent.runtime.key_uses import check_keys
from detent.runtime.settings import Settings, SettingsError

if TYPE_CHECKING:
    from detent.adapters.mail.source import MailSource
    from detent.apps.warranty.dry_run import Rehearsal
    from detent.apps.warranty.intake import Intake
    from detent.apps.warranty.intake_records import Records
    from detent.apps.warranty.processor import EmailProcessor
    from detent.apps.warranty.responses import ResponseGenerator
    from detent.apps.warranty.rollback import Rollback
    from detent.apps.warranty.service import Service, Tell
    from detent.apps.warranty.wiring import Components
    from detent.engine.engine import Engine
    from detent.engine.flow import Flow
    from detent.engine.ports import Tape


def project_folder(settings: Settings) -> Path:
    """The folder of the project: that of its settings file, otherwise the working folder."""
    return settings.file.parent if settings.file is not None else settings.folder


def warranty_settings(settings: Settings) -> WarrantySettings:
    """The settings of the mailbox.

    Raises:
        SettingsError: lists all problems at once.
    """
    settings = lifted(settings)
    return read(settings.values, project_folder(settings), lambda keys: settings.place(*keys))


def all_told(error: SettingsError) -> SettingsError:
    """The error with the problems of the mailbox's own headings added, so that all are reported at once."""
    if error.settings is None:
        return error
    settings = lifted(error.settings)
    own = wrong_values(settings.values, project_folder(settings), lambda keys: settings.place(*keys))
    problems = [*error.problems, *(problem for problem in own if problem not in error.problems)]
    return SettingsError("The settings", problems, settings)


def agent_steps(settings: Settings) -> tuple[str, ...]:
    """The steps that agents perform; these need no handler."""
    from detent.runtime.dispatch_settings import dispatch_settings

    dispatch = dispatch_settings(settings, [], complete=False)
    return tuple(
        name.rpartition("/")[2] for name, config in dispatch.steps.items() if config.mode is StepMode.AGENT
    )


def office_for(settings: Settings, *, deterministic: bool = False, **parts: Any) -> Components:
    """The components the settings describe; with `deterministic`, every step needs its handler."""
    from detent.apps.warranty.events import told
    from detent.apps.warranty.wiring import Components

    parts.setdefault("wrap", told)
    check_keys(settings, "mail", "tools", environ=parts.get("environ"))
    agents = () if deterministic else agent_steps(settings)
    return Components.of(warranty_settings(settings), agents=agents, **parts)


def flows(settings: Settings) -> list[Flow]:
    """The flows of the mailbox, for their runs in a store."""
    from detent.apps.warranty.legacy.flow import legacy_flow
    from detent.apps.warranty.legacy.handlers import LegacyHandlers
    from detent.apps.warranty.legacy.scenarios import Scenarios, scenarios_folder

    components = office_for(settings)
    mailbox_flows: list[Flow] = [components.flow]
    if components.settings.orchestration.legacy_available:
        scenarios = Scenarios(scenarios_folder(components.settings))
        mailbox_flows.append(
            legacy_flow(components, LegacyHandlers(components.settings, components.handlers), scenarios)
        )
    return mailbox_flows


def engine_of(
    settings: Settings,
    components: Components,
    *,
    others: Iterable[Flow] = (),
    observers: Iterable[Any] = (),
    deterministic: bool = False,
    tape: Tape | None = None,
) -> Engine:
    """The engine for a mailbox, not yet open, with its events logged."""
    from detent.apps.warranty.events import tell_events
    from detent.runtime.catalog import Catalog
    from detent.runtime.wiring import engine_for

    further = [flow for flow in others if flow.name != components.flow.name]
    known = Catalog(settings).defined_steps() if settings.section("steps") else ()
    engine = engine_for(
        settings, [components.flow, *further], observers=observers, complete=True,
        concurrency=components.settings.agent.max_concurrent_runs, known_steps=known,
        max_turns=components.settings.orchestration.retry.function_turns, deterministic=deterministic,
        tape=tape,
    )  # fmt: skip
    tell_events(engine, components.flow)
    return engine


def rollback_of(components: Components, engine: Engine) -> Rollback:
    """The rollback of a mailbox, which switches to legacy mode when step mode fails too often."""
    from detent.apps.warranty.rollback import Rollback

    return Rollback(engine.store, components.settings.orchestration, lambda: components.now().timestamp())


def processor_of(components: Components, engine: Engine, rollback: Rollback | None = None) -> EmailProcessor:
    """The processor of a mailbox."""
    from detent.apps.warranty.events import tell_events
    from detent.apps.warranty.experiment import trial_for
    from detent.apps.warranty.processor import EmailProcessor, StepOrchestrator
    from detent.apps.warranty.router import StepRouter

    orchestration = components.settings.orchestration
    router = StepRouter(components.handlers, orchestration.router)
    orchestrator = StepOrchestrator(components, engine, router, trial_for(components.settings))
    legacy = None
    if orchestration.legacy_available:
        from detent.apps.warranty.legacy.flow import Legacy

        legacy = Legacy(components, engine)
        tell_events(engine, legacy.flow)
    choose = (rollback or rollback_of(components, engine)).choose
    return EmailProcessor(orchestrator, legacy=legacy, choose=choose)


def records_of(components: Components) -> Records:
    """The intake records of a mailbox."""
    from detent.apps.warranty.intake_records import Records

    database = components.settings.path(components.settings.tools.database)
    return Records(database, lambda: components.now().timestamp())


@dataclass(slots=True)
class Mailbox:
    """An open mailbox: everything a command works with."""

    settings: WarrantySettings
    components: Components
    engine: Engine
    processor: EmailProcessor
    records: Records
    intake: Intake
    source: MailSource
    rollback: Rollback

    def service(self, tell: Tell | None = None) -> Service:
        """The service that works it."""
        from detent.apps.warranty.service import Service

        return Service(
            self.components, self.processor, self.source, self.intake, tell=tell,
            settled=self.rollback.settled, paused=self.rollback.paused,
        )  # fmt: skip


def _log_notice(line: str) -> None:
    logger.warning("model.unusable", notice=line)


@asynccontextmanager
async def opened(
    settings: Settings,
    *,
    others: Iterable[Flow] = (),
    observers: Iterable[Any] = (),
    source: MailSource | None = None,
    rehearsal: Rehearsal | None = None,
    deterministic: bool = False,
    tape: Tape | None = None,
    environ: Mapping[str, str] | None = None,
    notice: Callable[[str], None] | None = None,
    **parts: Any,
) -> AsyncIterator[Mailbox]:
    """The mailbox of a project, checked and open.

    With a rehearsal, effects are only recorded and runs are in memory; a missing database is not created.
    With a tape that plays, nothing of the project is opened: runs and database are temporary. `notice` is
    given a line for each model that cannot be asked; without it the log is. Further `parts` are passed to the
    components.

    Raises:
        IntegrationMissing: a server it needs cannot be used.
    """
    from detent.adapters.mail.settings import source_for
    from detent.apps.warranty.events import told
    from detent.apps.warranty.intake import Intake
    from detent.apps.warranty.start_checks import check_crm, model_uses
    from detent.dispatch.dispatcher import dispatcher_of
    from detent.runtime.model_check import check_models

    environ = os.environ if environ is None else environ
    async with AsyncExitStack() as stack:
        parts["environ"] = environ
        plays = tape is not None and tape.plays
        if rehearsal is not None or plays:
            from detent.apps.warranty.dry_run import NoSink

            settings = stack.enter_context(_RehearsalSettings(settings, empty=plays))
            parts["sink"] = NoSink()
        if rehearsal is not None:
            parts["wrap"] = lambda tool: rehearsal.wrap(told(tool))
        components = office_for(settings, deterministic=deterministic, **parts)
        engine = engine_of(
            settings, components, others=others, observers=observers, deterministic=deterministic, tape=tape
        )
        rollback = rollback_of(components, engine)
        processor = processor_of(components, engine, rollback)
        source = (
            source
            if source is not None
            else source_for(components.settings.mail, components.settings.path, environ)
        )
        if not plays:
            await check_crm(components)
            planner = dispatcher_of(engine)
            legacy = not components.settings.orchestration.use_step_orchestrator
            uses = model_uses(components, planner, legacy=legacy)
            needs_it = "legacy mode, which no code replaces where a model fails" if legacy else None
            for model in await check_models(settings, planner, uses, required_by=needs_it):
                (notice or _log_notice)(model.notice)
        await source.open()
        stack.push_async_callback(source.close)
        await stack.enter_async_context(engine)
        await engine.active.prepare(components.flow)
        records = records_of(components)
        stack.push_async_callback(records.close)
        intake = Intake(components, records, processor.choose)
        yield Mailbox(components.settings, components, engine, processor, records, intake, source, rollback)


class _RehearsalSettings:
    """Settings of a rehearsal: runs in memory, and a temporary database if the project has none.

    With `empty`, the database is temporary in any case.
    """

    def __init__(self, settings: Settings, *, empty: bool = False) -> None:
        self._settings = settings
        self._empty = empty
        self._folder: TemporaryDirectory[str] | None = None

    def __enter__(self) -> Settings:
        own = warranty_settings(self._settings)
        changes: dict[tuple[str, ...], Any] = {("store",): "memory:"}
        if self._empty or not own.path(own.tools.database).exists():
            self._folder = TemporaryDirectory(prefix="detent-warranty-")
            changes["tools", "database"] = str(Path(self._folder.name) / "warranty.db")
        return lifted(self._settings).over(changes)

    def __exit__(self, *_: object) -> None:
        if self._folder is not None:
            self._folder.cleanup()


def response_generator(settings: Settings) -> ResponseGenerator:
    """Runs single steps, performed as the settings say."""
    from detent.apps.warranty.responses import ResponseGenerator
    from detent.runtime.dispatch_settings import dispatch_settings

    own = warranty_settings(settings)
    turns = own.orchestration.retry.function_turns
    return ResponseGenerator(
        own,
        agents=agent_steps(settings),
        dispatch=lambda flow: dispatch_settings(settings, [flow], complete=False, max_turns=turns),
    )
