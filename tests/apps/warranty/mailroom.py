"""A project folder with a mailbox at work in it: real files, a real registry, a clock that can be put on."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage as Composed
from pathlib import Path
from typing import Any

from detent.adapters.mail.message import read_message
from detent.apps.warranty.attention import Matter, attention
from detent.apps.warranty.domain.coverage import device_of
from detent.apps.warranty.mailbox import Mailbox, opened
from detent.apps.warranty.service import MailResult, Service
from detent.apps.warranty.tools.registry import Registry
from detent.apps.warranty.tools.tickets import Ticket, Tickets
from detent.runtime.settings import Settings

DEVICES = [
    {"serial": "SN48213", "device_name": "Kestrel K200", "manufacturer_end": "2027-05-31"},
    {"serial": "LM-77-0412", "device_name": "Otus S3", "service_contract_end": "2026-11-15"},
    {"serial": "PX2-55910", "device_name": "Merlin PX2", "manufacturer_end": "2024-09-30"},
]
RECEIVED = "from mx.example by mail.northpine.example; Tue, 10 Mar 2026 08:15:00 +0000"
COVERED = "Hello, our printer SN48213 stopped working and feeds two labels at once."
NO_SERIAL = "Hello, our till screen stays blank since the power cut of last night."
QUICKLY = {"retry": {"min_s": 0.001, "max_s": 0.001}}


def mail(number: int | str = 1, body: str = COVERED, **headers: str) -> bytes:
    """A mail from a customer."""
    message = Composed()
    said = {
        "Received": RECEIVED,
        "From": f"Maren Holt <maren{number}@holt-bakery.example>",
        "To": "service@northpine.example",
        "Subject": "Label printer",
        "Message-ID": f"<m{number}@holt-bakery.example>",
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    for name, value in said.items():
        if value:
            message[name] = value
    message.set_content(body)
    return message.as_bytes()


class Room:
    """One project."""

    def __init__(self, folder: Path, **values: Any) -> None:
        self.folder = folder
        orchestration = {**QUICKLY, **values.pop("orchestration", {})}
        self.values: dict[str, Any] = {"orchestration": orchestration, **values}
        self.later = timedelta()
        self.told: list[MailResult] = []
        self.inbox = folder / "mail/inbox"
        self.outbox = folder / "mail/outbox"
        self.inbox.mkdir(parents=True, exist_ok=True)

    def now(self) -> datetime:
        return datetime.now(UTC) + self.later

    def put(self, raw: bytes, name: str | None = None) -> Path:
        """Put a mail into the inbox, as one that has lain there for a while."""
        file = self.inbox / (name or f"{len(list(self.inbox.iterdir())):03}.eml")
        file.write_bytes(raw)
        long_ago = time.time() - 600 + len(list(self.inbox.iterdir()))
        os.utime(file, (long_ago, long_ago))
        return file

    @asynccontextmanager
    async def open(self, **parts: Any) -> AsyncIterator[Service]:
        """The mailbox at work; the folder's own settings, whatever the environment says."""
        registry = Registry(self.folder / "warranty.db")
        await registry.add([device_of(one) for one in DEVICES])
        await registry.close()
        settings = Settings(self.folder, values={"store": "detent.db", **self.values})
        parts.setdefault("environ", {})
        async with opened(settings, now=self.now, **parts) as box:
            self.box: Mailbox = box
            yield box.service(self.told.append)

    async def once(self, **parts: Any) -> list[MailResult]:
        """One look at the mailbox, in a process of its own as far as the files can tell."""
        self.told = []
        async with self.open(**parts) as service:
            await service.once()
        return self.told

    async def attention(self) -> list[Matter]:
        async with self.open():
            return await attention(self.box.records, self.box.engine.store, self.box.settings)

    async def tickets(self) -> list[Ticket]:
        tickets = Tickets(self.folder / "warranty.db")
        found = await tickets.list()
        await tickets.close()
        return found

    def replies(self) -> list[Any]:
        """Mails in the outbox, read."""
        return [read_message(file.read_bytes()) for file in sorted(self.outbox.glob("*.eml"))]

    def processed(self) -> set[str]:
        return {file.name for file in (self.inbox / "processed").glob("*.eml")}

    def waiting(self) -> set[str]:
        return {file.name for file in self.inbox.glob("*.eml")}


def whats(told: list[MailResult]) -> list[tuple[str, str | None]]:
    """What was done and why, without order."""
    return sorted((one.what, one.reason) for one in told)
