"""Everything one mailbox is made of, put together from its settings: registry, tickets, mail, the flow."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from detent.adapters.mail.arrivals import MailSource
from detent.adapters.mail.departures import MailSink
from detent.apps.warranty.craft.words import WORDS
from detent.apps.warranty.flow import tools, warranty_flow
from detent.apps.warranty.handlers import Desk
from detent.apps.warranty.settings import WarrantySettings
from detent.apps.warranty.tools.registry import Registry, WarrantySource
from detent.apps.warranty.tools.replies import Replies
from detent.apps.warranty.tools.tickets import TicketDesk, Tickets
from detent.engine.tools import Tool
from detent.flows.playbook.flow import PlaybookFlow
from detent.kernel.errors import ConfigurationError

Environment = Mapping[str, str]


@dataclass(slots=True)
class Office:
    """One mailbox, wired. Opened and closed by the engine, as a need of its flows."""

    settings: WarrantySettings
    registry: WarrantySource
    tickets: TicketDesk
    replies: Replies
    tools: list[Tool]
    flow: PlaybookFlow
    desk: Desk
    now: Callable[[], datetime]
    crm: Any = None
    """The client of the CRM, where one is used."""

    @classmethod
    def of(
        cls,
        settings: WarrantySettings,
        *,
        registry: WarrantySource | None = None,
        tickets: TicketDesk | None = None,
        sink: MailSink | None = None,
        wrap: Callable[[Tool], Tool] | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        agents: Iterable[str] = (),
        overlay: Sequence[str] = (),
        folder: str | Path | None = None,
        check: bool = True,
        environ: Environment | None = None,
    ) -> Office:
        """The office the settings describe; parts given here take the place of theirs.

        `wrap` may put something around each tool. `folder` takes the step files from elsewhere.
        """
        environ = os.environ if environ is None else environ
        database = settings.path(settings.tools.database)
        crm: Any = None
        wanted = [settings.tools.registry] * (registry is None) + [settings.tools.tickets] * (tickets is None)
        if "crm" in wanted:
            crm = _crm(settings)
        if registry is None:
            registry = _crm_registry(crm) if settings.tools.registry == "crm" else Registry(database)
        if tickets is None:
            tickets = _crm_tickets(crm, now) if settings.tools.tickets == "crm" else Tickets(database, now)
        out = Replies(
            database, sink if sink is not None else sink_for(settings, environ), settings.mail.from_,
            envelope_from=settings.mail.smtp.envelope_from, now=now,
        )  # fmt: skip
        made = tools(settings, registry, tickets, out)
        if wrap is not None:
            made = [wrap(tool) for tool in made]
        desk = Desk(settings, WORDS.extended(settings.warranty.words))
        flow = warranty_flow(
            settings, made, desk=desk, agents=agents, overlay=overlay, folder=folder, check=check
        )
        office = cls(settings, registry, tickets, out, made, flow, desk, now, crm)
        flow.needs.append(office)
        return office

    async def open(self) -> None:
        """Make sure that mail can go out."""
        await self.replies.open()

    async def close(self) -> None:
        """Let go of files and connections."""
        for part in (self.replies, self.tickets, self.registry):
            close = getattr(part, "close", None)
            if close is not None:
                await close()


def source_for(settings: WarrantySettings, environ: Environment | None = None) -> MailSource:
    """Where mail comes from."""
    environ = os.environ if environ is None else environ
    mail = settings.mail
    size = int(mail.max_size_mb * 1024 * 1024)
    if mail.source == "eml":
        from detent.adapters.mail.eml_folder import EmlFolder

        return EmlFolder(settings.path(mail.inbox), max_size=size)
    if mail.source == "maildir":
        from detent.adapters.mail.maildir import Maildir

        return Maildir(settings.path(mail.inbox), max_size=size)
    from detent.adapters.mail.imap import ImapMailbox

    return ImapMailbox(_imap_server(settings, environ), folder=mail.imap.folder, max_size=size)


def sink_for(settings: WarrantySettings, environ: Environment) -> MailSink:
    """Where mail goes to."""
    mail = settings.mail
    if mail.sink == "outbox":
        from detent.adapters.mail.outbox import Outbox

        return Outbox(settings.path(mail.outbox))
    from detent.adapters.mail.link import MailServer
    from detent.adapters.mail.smtp import SmtpSender

    server = MailServer(
        protocol="SMTP",
        host=mail.smtp.host or "",
        port=mail.smtp.port,
        tls=mail.smtp.tls,
        user=environ.get(mail.smtp.user_env) or "",
        password=environ.get(mail.smtp.password_env) or "",
        timeout=mail.smtp.timeout_s,
    )
    sent = None
    if mail.imap.sent_folder is not None and mail.imap.host:
        from detent.adapters.mail.imap import ImapSent

        sent = ImapSent(_imap_server(settings, environ), mail.imap.sent_folder)
    return SmtpSender(server, sent=sent)


def _imap_server(settings: WarrantySettings, environ: Environment) -> Any:
    from detent.adapters.mail.link import MailServer

    imap = settings.mail.imap
    user, password = environ.get(imap.user_env), environ.get(imap.password_env)
    if not user or not password:
        raise ConfigurationError(
            f"The mailbox on {imap.host} needs a user and a password in the environment: "
            f"{imap.user_env} and {imap.password_env}."
        )
    return MailServer(
        protocol="IMAP",
        host=imap.host or "",
        port=imap.port,
        tls=imap.tls,
        user=user,
        password=password,
        timeout=imap.timeout_s,
    )


def _crm(settings: WarrantySettings) -> Any:
    from detent.adapters.crm.client import CrmClient
    from detent.adapters.crm.settings import CrmSettings

    return CrmClient(CrmSettings.read(settings.tools.crm.model_dump()))


def _crm_registry(client: Any) -> WarrantySource:
    from detent.apps.warranty.tools.crm import CrmRegistry

    return CrmRegistry(client)


def _crm_tickets(client: Any, now: Callable[[], datetime]) -> TicketDesk:
    from detent.apps.warranty.tools.crm import CrmTickets

    return CrmTickets(client, now)
