"""The commands of the warranty mailbox: `warranty …`. Processing mails is in `run`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from detent.apps.warranty.commands import reports
from detent.apps.warranty.commands.run import mailbox_workspace
from detent.cli.options import Older, Options, Since, takes

if TYPE_CHECKING:
    from detent.adapters.mail.message import EmailMessage
    from detent.apps.warranty.attention import Matter
    from detent.apps.warranty.intake_records import Record, Records
    from detent.apps.warranty.settings import WarrantySettings
    from detent.cli.workspace import Workspace
    from detent.engine.ports import Tape

_CONTEXT: dict[str, Any] = {"help_option_names": ["-h", "--help"]}


def _group(help: str) -> typer.Typer:
    return typer.Typer(help=help, no_args_is_help=True, rich_markup_mode=None, context_settings=_CONTEXT)


group = _group("A service mailbox: check warranties, open tickets, answer.")
registry = _group("The registry of devices.")
tickets = _group("Service tickets.")
group.add_typer(registry, name="registry")
group.add_typer(tickets, name="tickets")
reports.add(group)

MailFile = Annotated[Path, typer.Argument(metavar="FILE", help="A mail, as an .eml file.")]


# -- projects -----------------------------------------------------------------------------------------------


@group.command("init")
def init(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="A new folder, or an empty one.")],
) -> None:
    """Make a project folder: step files, templates, settings, cases."""
    from detent.apps.warranty.app import APP
    from detent.cli.new import begin

    begin(APP, folder)


@group.command("demo")
def demo(
    keep: Annotated[
        Path | None, typer.Option("--folder", metavar="DIR", help="Play it here instead of in a new folder.")
    ] = None,
) -> int:
    """Show it at work on sample mails.

    In a temporary folder, with no model, key or network.
    """
    from detent.apps.warranty.commands.demo import play
    from detent.cli.workspace import run_async

    return run_async(play(keep))


# -- mails that need attention ------------------------------------------------------------------------------


@group.command("attention")
@takes("json", "store", "config")
async def attention(options: Options) -> None:
    """List mails a person must see, and the next command for each."""
    from detent.cli.output import brief, say
    from detent.insight.formatting import count

    workspace = mailbox_workspace(options, looks=True)
    matters = await _matters(workspace)
    options.print_rows(
        [matter.to_plain() for matter in matters],
        {
            "MAIL": lambda row: row["mail"] or "all",
            "SINCE": lambda row: brief(row["since"]),
            "WHAT": "what",
            "REASON": "reason",
            "NEXT": lambda row: _next(workspace, row),
        },
        empty="No mail needs attention.",
    )
    if not options.json and (drafts := await _drafts(workspace)):
        say(f"{count(drafts, 'draft')} to review: {workspace.command('review')}")
    run = next((matter.run_id for matter in matters if matter.run_id), None)
    if run is not None and not options.json:
        say(f"What happened to one of them: {workspace.command('why', run)}")


async def _drafts(workspace: Workspace) -> int:
    """How many drafts wait for a person, planted ones among them."""
    import time

    from detent.dispatch.draft_queue import queue
    from detent.kernel.errors import StoreMissing

    try:
        async with workspace.store() as store:
            return len(await queue(store, time.time()))
    except StoreMissing:
        return 0


@group.command("unchecked")
@takes("json", "store", "config")
async def unchecked(
    options: Options,
    since: Since = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="WHEN", help="Only what began before: 12h, 2026-01-31.")
    ] = None,
) -> None:
    """List mails that were told their warranty could not be checked.

    As in an outage of the registry. Look after them once it is back.
    """
    from detent.apps.warranty.unchecked import unchecked as gather
    from detent.cli.output import brief, say
    from detent.cli.values import read_time
    from detent.kernel.errors import StoreMissing

    after, before = read_time(since, "--since"), read_time(until, "--until")
    workspace = mailbox_workspace(options, looks=True)
    try:
        async with workspace.store() as store:
            mails = await gather(store, after, before)
    except StoreMissing:  # no mail has come in yet
        mails = []
    options.print_rows(
        [mail.to_plain() for mail in mails],
        {
            "MAIL": "mail",
            "ANSWERED": lambda row: brief(row["answered_at"]),
            "SERIAL": "serial_number",
            "WHY": "code",
            "RUN": "run",
            "CHECKED SINCE": lambda row: f"yes, in {row['checked_in']}" if row["checked_in"] else "no",
        },
        empty="No mail was answered without a check.",
    )
    left = next((mail for mail in mails if mail.checked_in is None), None)
    if left is not None and not options.json:
        say(f"The mail and what happened to it: {workspace.command('show', left.run_id)}")
        if left.serial_number is not None:
            look = workspace.command("warranty", "registry", "show", left.serial_number)
            say(f"What the registry says now: {look}")


async def _matters(workspace: Workspace) -> list[Matter]:
    from detent.apps.warranty.attention import attention as gather
    from detent.apps.warranty.desk_matters import desk_matters
    from detent.kernel.errors import StoreMissing

    settings = _settings(workspace)
    if not _database(workspace, settings).exists():
        return []
    records = _records(settings)
    try:
        async with workspace.store() as store:
            mails = await gather(records, store, settings, _fingerprints(workspace))
            return [*await desk_matters(store, settings), *mails]
    except StoreMissing:  # no mail has come in yet
        return []
    finally:
        await records.close()


def _fingerprints(workspace: Workspace) -> dict[str, str]:
    """Fingerprints of the flows; empty if their files cannot be read or are not trusted."""
    from detent.apps.warranty.mailbox import flows
    from detent.kernel.errors import DetentError

    if not workspace.trust.ok:
        return {}
    try:
        return {flow.name: flow.fingerprint for flow in flows(workspace.settings)}
    except DetentError:
        return {}


def _next(workspace: Workspace, matter: Mapping[str, Any]) -> str:
    from detent.cli.output import brief, clean

    if not matter["command"] and matter["mail"] is None:
        return f"tried again {brief(matter['again_at'])}"
    if not matter["command"]:
        place = matter["place"]
        return f"look at it: {clean(place)}" if place else "look at it in its mailbox"
    command = workspace.command(*matter["command"][1:])
    again_at = matter["again_at"]
    return f"{command}   (retried automatically: {brief(again_at)})" if again_at is not None else command


@group.command("retry")
@takes("deterministic", "record", "json", "store", "config", "log")
async def retry(
    options: Options,
    mail: Annotated[str, typer.Argument(metavar="MAIL", help="A mail's key, or one of its runs.")],
    whole: Annotated[bool, typer.Option("--whole", help="Begin at the first step again.")] = False,
) -> int:
    """Run a mail again, from where it failed or from the start."""
    from detent.apps.warranty.app import APP
    from detent.apps.warranty.commands.run import AGAIN
    from detent.cli.record import tape
    from detent.kernel.errors import ConfigurationError

    if options.record is not None and not whole:
        raise ConfigurationError("--record needs a run from its beginning: add --whole.")
    workspace = mailbox_workspace(options)
    with tape(options, workspace.settings, APP.flows, json=options.json, again=AGAIN) as recorder:
        return await _retried(workspace, options, mail, whole=whole, tape=recorder)


async def _retried(
    workspace: Workspace, options: Options, key_or_run: str, *, whole: bool, tape: Tape | None
) -> int:
    """Run a mail again and print its result; return the exit code."""
    from detent.apps.warranty.commands.lines import MailLines, told_plain
    from detent.apps.warranty.commands.run import BAD, configure_log, learn
    from detent.apps.warranty.mailbox import opened
    from detent.cli.output import say, say_json

    configure_log(workspace.settings, options.verbose, options.log_level, json=options.json)
    others = [definition.flow for definition in workspace.catalog.all().values()]
    lines = MailLines()
    async with opened(
        workspace.settings, others=others, observers=[] if options.json else [lines],
        deterministic=options.deterministic, tape=tape,
    ) as box:  # fmt: skip
        learn(lines, box)
        record = await _record(box.records, key_or_run)
        with lines:
            result = await box.service().retry(record, whole=whole)
        if result is None:
            return 130
        if options.json:
            say_json(told_plain(result))
        else:
            lines.told(result)
            if result.what in BAD and result.run_id:
                say(f"    {workspace.command('why', result.run_id)}")
            elif result.what == "waiting":
                say(f"    {workspace.command('warranty', 'attention')}")
        return 1 if result.what in BAD else 0


async def _record(records: Records, text: str) -> Record:
    """The mail of a key, a prefix of a key, or a run."""
    from detent.apps.warranty.intake_records import key_in
    from detent.kernel.errors import ConfigurationError

    key = (key_in(text) or text).strip().lower()
    matches = await records.by_key(key) if key else []
    if len(matches) == 1:
        return matches[0]
    if not matches:
        raise ConfigurationError(f"No mail '{text}' is known here. See: detent warranty attention")
    keys = ", ".join(record.mail_key for record in matches)
    raise ConfigurationError(f"'{text}' is the beginning of several mails: {keys}.")


@group.command("purge")
@takes("store", "config")
async def purge(options: Options, older: Older = None) -> None:
    """Drop the texts of mails that are done; what happened stays."""
    import time

    from detent.apps.warranty.events import LEGACY
    from detent.apps.warranty.purge import purge_texts
    from detent.cli.output import say
    from detent.cli.values import read_time
    from detent.insight.formatting import count

    workspace = mailbox_workspace(options)
    days = _settings(workspace).privacy.keep_bodies_days
    before = read_time(older, "--older") if older is not None else time.time() - days * 86400
    assert before is not None
    async with workspace.store() as store:
        dropped = await purge_texts(store, ("warranty", LEGACY), before, all_runs=True)
    say(f"{count(dropped, 'text')} dropped.")


# -- single-step runs ---------------------------------------------------------------------------------------


@group.command("step")
@takes("json", "config")
async def step(
    options: Options,
    name: Annotated[str, typer.Argument(metavar="ID", help="A step: its id, or the beginning of it.")],
    mail: Annotated[Path, typer.Option("--mail", metavar="FILE", help="The mail, as an .eml file.")],
    data: Annotated[
        Path | None, typer.Option("--data", metavar="FILE", help="What the step needs: JSON or YAML.")
    ] = None,
) -> None:
    """Have one step answer; nothing is performed."""
    from detent.apps.warranty.mailbox import response_generator
    from detent.cli.output import paint, say, say_json
    from detent.kernel.plain import to_plain

    workspace = mailbox_workspace(options)
    generator = response_generator(workspace.settings)
    message = _mail(mail, _settings(workspace))
    response = await generator.generate_step_response(name, message, _data(data))
    if options.json:
        plain = {
            "step": response.step_name, "next_step": response.next_step,
            "response_text": response.response_text, "metadata": response.metadata,
            "function_calls": [
                {"function": call.function_name, "kind": call.kind, "arguments": call.arguments}
                for call in response.function_calls
            ],
        }  # fmt: skip
        say_json(to_plain(plain))
        return
    say(f"{paint(response.step_name, bold=True)} → {response.next_step}   {response.metadata['mode']}")
    for line in response.response_text.splitlines():
        say(f"  {line}".rstrip())


@group.command("serial")
@takes("json", "config")
def serial(options: Options, mail: MailFile) -> None:
    """Find the serial number in a mail."""
    from dataclasses import asdict

    from detent.apps.warranty.domain.serials import extract
    from detent.apps.warranty.mail_data import MailView
    from detent.kernel.plain import to_plain

    read = MailView.of(_mail(mail, _settings(mailbox_workspace(options, looks=True))))
    extraction = extract(read.parts, read.subject)
    options.print_record(
        to_plain(asdict(extraction)),
        [
            ("serial number", extraction.serial_number or "none"),
            ("confidence", f"{extraction.confidence:g}"),
            ("found in", str(extraction.found_in or "")),
            ("method", extraction.extraction_method),
            ("all of them", ", ".join(extraction.all_detected_serials)),
            ("ambiguous", "yes" if extraction.ambiguous else ""),
        ],
    )


@group.command("route")
@takes("json", "config")
async def route(options: Options, mail: MailFile) -> None:
    """Say where a mail would begin, and why."""
    from detent.apps.warranty.mail_data import MailView
    from detent.apps.warranty.mailbox import office_for
    from detent.apps.warranty.router import StepRouter

    components = office_for(mailbox_workspace(options).settings)
    router = StepRouter(components.handlers, components.settings.orchestration.router)
    decision = await router.route_to_initial_step(MailView.of(_mail(mail, components.settings)))
    plain = {
        "step": decision.step_name, "confidence": decision.confidence, "method": decision.routing_method,
        "signals": decision.signals,
    }  # fmt: skip
    signals = ", ".join(f"{name} {value}" for name, value in decision.signals.items())
    shown = {**plain, "confidence": f"{decision.confidence:g}", "signals": signals}
    options.print_record(plain, [(name, str(value)) for name, value in shown.items()])


# -- registry and tickets -----------------------------------------------------------------------------------


@registry.command("import")
@takes("config")
async def import_(
    options: Options, file: Annotated[Path, typer.Argument(metavar="FILE.csv", help="Devices, one a line.")]
) -> None:
    """Put devices into the registry.

    Those of the same serial number are replaced.
    """
    from detent.cli.output import say

    async with _opened(options, "registry", create=True) as devices:
        done = await devices.import_csv(file)
    say(f"{done.added} added, {done.changed} changed, {done.unchanged} unchanged.")


@registry.command("show")
@takes("json", "config")
async def show_device(
    options: Options, serial_number: Annotated[str, typer.Argument(metavar="SERIAL", help="A serial number.")]
) -> None:
    """Show a device of the registry."""
    from dataclasses import asdict

    from detent.kernel.errors import ConfigurationError
    from detent.kernel.plain import to_plain

    async with _opened(options, "registry") as devices:
        device = None if devices is None else await devices.show(serial_number)
    if device is None:
        raise ConfigurationError(f"No device '{serial_number}' is registered.")
    options.print_record(to_plain(asdict(device)))


@tickets.command("list")
@takes("json", "config")
async def list_tickets(
    options: Options,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="The latest so many.")] = 20,
) -> None:
    """List tickets, the latest first."""
    from dataclasses import asdict

    async with _opened(options, "tickets") as opened:
        listed = [] if opened is None else await opened.list(limit)
    columns = {
        "TICKET": "ticket_id", "CREATED": "created_at", "PRIORITY": "priority", "STATUS": "status",
        "SUBJECT": "subject",
    }  # fmt: skip
    options.print_rows([asdict(ticket) for ticket in listed], columns, empty="There are no tickets.")


@tickets.command("show")
@takes("json", "config")
async def show_ticket(
    options: Options, ticket: Annotated[str, typer.Argument(metavar="ID", help="A ticket's id.")]
) -> None:
    """Show a ticket."""
    from dataclasses import asdict

    from detent.kernel.errors import ConfigurationError

    async with _opened(options, "tickets") as opened:
        record = None if opened is None else await opened.show(ticket)
    if record is None:
        raise ConfigurationError(f"There is no ticket '{ticket}'. See: detent warranty tickets list")
    options.print_record(asdict(record))


@asynccontextmanager
async def _opened(options: Options, part: str, *, create: bool = False) -> AsyncIterator[Any]:
    """The open registry or tickets of the project; None if its file does not exist and is not created."""
    from detent.apps.warranty.tools.registry import Registry
    from detent.apps.warranty.tools.tickets import Tickets
    from detent.kernel.errors import ConfigurationError

    workspace = mailbox_workspace(options, looks=not create)
    settings = _settings(workspace)
    if getattr(settings.tools, part) != "sqlite":
        raise ConfigurationError(f"The project keeps its {part} in a CRM (tools.{part}: crm); look there.")
    place = _database(workspace, settings)
    if not create and not place.exists():
        yield None
        return
    opened = Registry(place) if part == "registry" else Tickets(place)
    try:
        yield opened
    finally:
        await opened.close()


# -- helpers ------------------------------------------------------------------------------------------------


def _database(workspace: Workspace, settings: WarrantySettings) -> Path:
    """The application's file; an untrusted project may not name one outside its folder."""
    place = settings.path(settings.tools.database)
    workspace.require_within(place)
    return place


def _settings(workspace: Workspace) -> WarrantySettings:
    from detent.apps.warranty.mailbox import warranty_settings

    return warranty_settings(workspace.settings)


def _records(settings: WarrantySettings) -> Records:
    import time

    from detent.apps.warranty.intake_records import Records

    return Records(settings.path(settings.tools.database), time.time)


def _mail(file: Path, settings: WarrantySettings) -> EmailMessage:
    """A mail from a file."""
    from datetime import UTC, datetime

    from detent.adapters.mail.message import read_message
    from detent.kernel.errors import ConfigurationError

    try:
        raw, facts = file.read_bytes(), file.stat()
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {error.strerror}.") from None
    limit = int(settings.mail.max_size_mb * 1024 * 1024)
    return read_message(raw, fallback=datetime.fromtimestamp(facts.st_mtime, UTC), limit=limit)


def _data(file: Path | None) -> dict[str, Any]:
    """A step's data from a file."""
    if file is None:
        return {}
    from detent.authoring.document import read_value
    from detent.cli.values import read_text
    from detent.kernel.errors import ConfigurationError

    data = read_value(read_text(str(file), "--data"), f"--data {file}")
    if not isinstance(data, dict):
        raise ConfigurationError(f"--data: {file} holds no named values.")
    return data
