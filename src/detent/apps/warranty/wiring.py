"""The components of one mailbox, built from its settings: registry, tickets, mail, the flow."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from detent.adapters.mail.settings import sink_for
from detent.adapters.mail.sink import MailSink
from detent.apps.warranty.domain.words import WORDS
from detent.apps.warranty.flow import tools, warranty_flow
from detent.apps.warranty.handlers import Handlers
from detent.apps.warranty.settings import WarrantySettings
from detent.apps.warranty.tools.registry import Registry, WarrantySource
from detent.apps.warranty.tools.replies import Replies
from detent.apps.warranty.tools.tickets import TicketDesk, Tickets
from detent.engine.tools import Tool
from detent.flows.playbook.flow import PlaybookFlow

Environment = Mapping[str, str]


@dataclass(slots=True)
class Components:
    """The components of a mailbox. The engine opens and closes them, as a need of its flows."""

    settings: WarrantySettings
    registry: WarrantySource
    tickets: TicketDesk
    replies: Replies
    tools: list[Tool]
    flow: PlaybookFlow
    handlers: Handlers
    now: Callable[[], datetime]
    crm: Any = None
    """The client of the CRM, if one is used."""

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
    ) -> Components:
        """The components the settings describe; arguments replace single components.

        `wrap` may wrap each tool. `folder` is another folder of step files.
        """
        environ = os.environ if environ is None else environ
        database = settings.path(settings.tools.database)
        crm: Any = None
        backends = [settings.tools.registry] * (registry is None) + [settings.tools.tickets] * (
            tickets is None
        )
        if "crm" in backends:
            crm = _crm(settings)
        if registry is None:
            registry = _crm_registry(crm) if settings.tools.registry == "crm" else Registry(database)
        if tickets is None:
            tickets = _crm_tickets(crm, now) if settings.tools.tickets == "crm" else Tickets(database, now)
        out = Replies(
            database, sink if sink is not None else sink_for(settings.mail, settings.path, environ),
            settings.mail.from_,
            envelope_from=settings.mail.smtp.envelope_from, now=now,
        )  # fmt: skip
        built_tools = tools(settings, registry, tickets, out)
        if wrap is not None:
            built_tools = [wrap(tool) for tool in built_tools]
        handlers = Handlers(settings, WORDS.extended(settings.warranty.words))
        flow = warranty_flow(
            settings,
            built_tools,
            handlers=handlers,
            agents=agents,
            overlay=overlay,
            folder=folder,
            check=check,
        )
        components = cls(settings, registry, tickets, out, built_tools, flow, handlers, now, crm)
        flow.needs.append(components)
        return components

    async def open(self) -> None:
        """Make sure that mail can go out."""
        await self.replies.open()

    async def close(self) -> None:
        """Close files and connections."""
        for part in (self.replies, self.tickets, self.registry):
            close = getattr(part, "close", None)
            if close is not None:
                await close()


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
