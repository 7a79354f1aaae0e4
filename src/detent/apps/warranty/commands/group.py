"""The commands about the warranty mailbox: `warranty …`. Working it is in `warranty_run`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from detent.apps.warranty.commands import reports
from detent.apps.warranty.commands.run import mailbox_workspace
from detent.cli.options import Older, Options, takes

if TYPE_CHECKING:
    from detent.adapters.mail.message import EmailMessage
    from detent.apps.warranty.attention import Matter
    from detent.apps.warranty.intake_records import Record, Records
    from detent.apps.warranty.settings import WarrantySettings
    from detent.cli.workspace import Workspace

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


# -- mails a person must see --------------------------------------------------------------------------------


@group.command("attention")
@takes("json", "store", "config")
def attention(options: Options) -> None:
    """List mails a person must see, and the next command for each."""
    from detent.cli.output import brief, say, say_json, table
    from detent.cli.workspace import run_async

    workspace = mailbox_workspace(options, looks=True)
    matters = run_async(_attention(workspace))
    if options.json:
        say_json([matter.to_plain() for matter in matters])
        return
    if not matters:
        say("Nobody has to look at anything.")
        return
    table(
        ("MAIL", "SINCE", "WHAT", "REASON", "NEXT"),
        [
            (one.mail_key, brief(one.since), one.what, one.reason or "-", _next(workspace, one))
            for one in matters
        ],
    )
    if (run := next((one.run_id for one in matters if one.run_id), None)) is not None:
        say(f"What happened to one of them: {workspace.command('why', run)}")


async def _attention(workspace: Workspace) -> list[Matter]:
    from detent.apps.warranty.attention import attention as gather

    settings = _settings(workspace)
    if not _database(workspace, settings).exists():
        return []
    records = _records(settings)
    try:
        async with workspace.store() as store:
            return await gather(records, store, settings, _fingerprints(workspace))
    finally:
        await records.close()


def _fingerprints(workspace: Workspace) -> dict[str, str]:
    """Those of the flows at hand; of none where the files cannot be read just now, or nobody trusts them."""
    from detent.apps.warranty.mailbox import flows
    from detent.kernel.errors import DetentError

    if not workspace.trust.ok:
        return {}
    try:
        return {flow.name: flow.fingerprint for flow in flows(workspace.settings)}
    except DetentError:
        return {}


def _next(workspace: Workspace, matter: Matter) -> str:
    from detent.cli.output import brief, clean

    if not matter.command:
        return f"look at it: {clean(matter.place)}" if matter.place else "look at it in its mailbox"
    said = workspace.command(*matter.command)
    return f"{said}   (by itself: {brief(matter.again_at)})" if matter.again_at is not None else said


@group.command("retry")
@takes("json", "store", "config", "log")
async def retry(
    options: Options,
    mail: Annotated[str, typer.Argument(metavar="MAIL", help="A mail's key, or one of its runs.")],
    whole: Annotated[bool, typer.Option("--whole", help="Begin at the first step again.")] = False,
) -> int:
    """Run a mail again, from where it failed or from the start."""
    from detent.apps.warranty.commands.lines import MailLines, told_plain
    from detent.apps.warranty.commands.run import BAD, configure_log, learn
    from detent.apps.warranty.mailbox import opened
    from detent.cli.output import say, say_json

    workspace = mailbox_workspace(options)
    configure_log(workspace.settings, options.verbose, options.log_level, json=options.json)
    said = mail
    others = [found.flow for found in workspace.catalog.all().values()]
    lines = MailLines()
    async with opened(workspace.settings, others=others, observers=[] if options.json else [lines]) as box:
        learn(lines, box)
        record = await _record(box.records, said)
        with lines:
            told = await box.service().retry(record, whole=whole)
        if told is None:
            return 130
        if options.json:
            say_json(told_plain(told))
        else:
            lines.told(told)
            if told.what in BAD and told.run_id:
                say(f"    {workspace.command('why', told.run_id)}")
            elif told.what == "waiting":
                say(f"    {workspace.command('warranty', 'attention')}")
        return 1 if told.what in BAD else 0


async def _record(records: Records, said: str) -> Record:
    """The mail somebody means."""
    from detent.apps.warranty.intake_records import key_in
    from detent.kernel.errors import ConfigurationError

    key = (key_in(said) or said).strip().lower()
    found = await records.by_key(key) if key else []
    if len(found) == 1:
        return found[0]
    if not found:
        raise ConfigurationError(f"No mail '{said}' is known here. See: detent warranty attention")
    keys = ", ".join(one.mail_key for one in found)
    raise ConfigurationError(f"'{said}' is the beginning of several mails: {keys}.")


@group.command("purge")
@takes("store", "config")
def purge(options: Options, older: Older = None) -> None:
    """Drop the texts of mails that are done; what happened stays."""
    import time

    from detent.cli.output import say
    from detent.cli.values import read_time
    from detent.cli.workspace import run_async

    workspace = mailbox_workspace(options)
    days = _settings(workspace).privacy.keep_bodies_days
    before = read_time(older, "--older") if older is not None else time.time() - days * 86400
    assert before is not None
    dropped = run_async(_purge(workspace, before))
    say(f"{dropped} text{'s' if dropped != 1 else ''} dropped.")


async def _purge(workspace: Workspace, before: float) -> int:
    from detent.apps.warranty.events import LEGACY
    from detent.apps.warranty.purge import purge_texts

    async with workspace.store() as store:
        return await purge_texts(store, ("warranty", LEGACY), before, all_runs=True)


# -- one thing alone ----------------------------------------------------------------------------------------


@group.command("step")
@takes("json", "config")
def step(
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
    from detent.cli.workspace import run_async
    from detent.kernel.plain import to_plain

    workspace = mailbox_workspace(options)
    generator = response_generator(workspace.settings)
    found = run_async(generator.generate_step_response(name, _mail(mail, _settings(workspace)), _data(data)))
    if options.json:
        plain = {
            "step": found.step_name, "next_step": found.next_step, "response_text": found.response_text,
            "metadata": found.metadata,
            "function_calls": [
                {"function": call.function_name, "kind": call.kind, "arguments": call.arguments}
                for call in found.function_calls
            ],
        }  # fmt: skip
        say_json(to_plain(plain))
        return
    say(f"{paint(found.step_name, bold=True)} → {found.next_step}   {found.metadata['mode']}")
    for line in found.response_text.splitlines():
        say(f"  {line}".rstrip())


@group.command("serial")
@takes("json", "config")
def serial(options: Options, mail: MailFile) -> None:
    """Find the serial number in a mail."""
    from dataclasses import asdict

    from detent.apps.warranty.domain.serials import extract
    from detent.apps.warranty.mail_data import MailView
    from detent.cli.output import fields, say_json

    read = MailView.of(_mail(mail, _settings(mailbox_workspace(options, looks=True))))
    found = extract(read.parts, read.subject)
    if options.json:
        say_json(
            {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(found).items()}
        )
        return
    fields(
        [
            ("serial number", found.serial_number or "none"),
            ("confidence", f"{found.confidence:g}"),
            ("found in", str(found.found_in or "")),
            ("method", found.extraction_method),
            ("all of them", ", ".join(found.all_detected_serials)),
            ("ambiguous", "yes" if found.ambiguous else ""),
        ]
    )


@group.command("route")
@takes("json", "config")
def route(options: Options, mail: MailFile) -> None:
    """Say where a mail would begin, and why."""
    from detent.apps.warranty.mail_data import MailView
    from detent.apps.warranty.mailbox import office_for
    from detent.apps.warranty.router import StepRouter
    from detent.cli.output import fields, say_json
    from detent.cli.workspace import run_async

    workspace = mailbox_workspace(options)
    components = office_for(workspace.settings)
    router = StepRouter(components.handlers, components.settings.orchestration.router)
    found = run_async(router.route_to_initial_step(MailView.of(_mail(mail, components.settings))))
    if options.json:
        say_json(
            {"step": found.step_name, "confidence": found.confidence, "method": found.routing_method,
             "signals": found.signals}
        )  # fmt: skip
        return
    signals = ", ".join(f"{name} {value}" for name, value in found.signals.items())
    fields(
        [
            ("step", found.step_name),
            ("confidence", f"{found.confidence:g}"),
            ("method", found.routing_method),
            ("signals", signals),
        ]
    )


# -- registry and tickets -----------------------------------------------------------------------------------


@registry.command("import")
@takes("config")
def import_(
    options: Options, file: Annotated[Path, typer.Argument(metavar="FILE.csv", help="Devices, one a line.")]
) -> None:
    """Put devices into the registry.

    Those of the same serial number are replaced.
    """
    from detent.cli.output import say
    from detent.cli.workspace import run_async

    done = run_async(_with_registry(mailbox_workspace(options), lambda there: there.import_csv(file)))
    say(f"{done.added} added, {done.changed} changed, {done.unchanged} unchanged.")


@registry.command("show")
@takes("json", "config")
def show_device(
    options: Options, serial_number: Annotated[str, typer.Argument(metavar="SERIAL", help="A serial number.")]
) -> None:
    """Show a device of the registry."""
    from dataclasses import asdict

    from detent.cli.output import fields, say_json
    from detent.cli.workspace import run_async
    from detent.kernel.errors import ConfigurationError
    from detent.kernel.plain import to_plain

    workspace = mailbox_workspace(options, looks=True)
    device = run_async(_with_registry(workspace, lambda there: there.show(serial_number), missing=None))
    if device is None:
        raise ConfigurationError(f"No device '{serial_number}' is registered.")
    plain = to_plain(asdict(device))
    if options.json:
        say_json(plain)
    else:
        fields([(name.replace("_", " "), str(value or "")) for name, value in plain.items()])


_MADE = object()
"""Stands for a file that is made when it is not there."""


async def _with_registry(workspace: Workspace, work: Any, missing: Any = _MADE) -> Any:
    """What `work` finds in the registry, or `missing` where there is no file."""
    from detent.apps.warranty.tools.registry import Registry
    from detent.kernel.errors import ConfigurationError

    settings = _settings(workspace)
    if settings.tools.registry != "sqlite":
        raise ConfigurationError("The registry is a CRM (tools.registry: crm); look there.")
    place = _database(workspace, settings)
    if missing is not _MADE and not place.exists():
        return missing
    there = Registry(place)
    try:
        return await work(there)
    finally:
        await there.close()


@tickets.command("list")
@takes("json", "config")
def list_tickets(
    options: Options,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="The latest so many.")] = 20,
) -> None:
    """List tickets, the latest first."""
    from dataclasses import asdict

    from detent.cli.output import say, say_json, table
    from detent.cli.workspace import run_async

    workspace = mailbox_workspace(options, looks=True)
    found = run_async(_with_tickets(workspace, lambda there: there.list(limit), missing=[]))
    if options.json:
        say_json([asdict(one) for one in found])
    elif not found:
        say("There are no tickets.")
    else:
        table(
            ("TICKET", "CREATED", "PRIORITY", "STATUS", "SUBJECT"),
            [(one.ticket_id, one.created_at, one.priority, one.status, one.subject) for one in found],
        )


@tickets.command("show")
@takes("json", "config")
def show_ticket(
    options: Options, ticket: Annotated[str, typer.Argument(metavar="ID", help="A ticket's id.")]
) -> None:
    """Show a ticket."""
    from dataclasses import asdict

    from detent.cli.output import clean, fields, say_json
    from detent.cli.workspace import run_async
    from detent.kernel.errors import ConfigurationError

    workspace = mailbox_workspace(options, looks=True)
    found = run_async(_with_tickets(workspace, lambda there: there.show(ticket), missing=None))
    if found is None:
        raise ConfigurationError(f"There is no ticket '{ticket}'. See: detent warranty tickets list")
    if options.json:
        say_json(asdict(found))
    else:
        fields([(name.replace("_", " "), clean(value or "")) for name, value in asdict(found).items()])


async def _with_tickets(workspace: Workspace, work: Any, missing: Any) -> Any:
    """What `work` finds among the tickets, or `missing` where there is no file."""
    from detent.apps.warranty.tools.tickets import Tickets
    from detent.kernel.errors import ConfigurationError

    settings = _settings(workspace)
    if settings.tools.tickets != "sqlite":
        raise ConfigurationError("Tickets are kept in a CRM (tools.tickets: crm); look there.")
    place = _database(workspace, settings)
    if not place.exists():
        return missing
    there = Tickets(place)
    try:
        return await work(there)
    finally:
        await there.close()


# -- helpers ------------------------------------------------------------------------------------------------


def _database(workspace: Workspace, settings: WarrantySettings) -> Path:
    """The application's file, which a project nobody trusts does not name outside its folder."""
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
