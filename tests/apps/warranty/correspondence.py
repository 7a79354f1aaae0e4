"""A mailbox at work: real registry, tickets and outbox in a folder, and mails that come in."""

from __future__ import annotations

import email
import email.policy
import os
import re
import shutil
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from email.message import EmailMessage as Parsed
from pathlib import Path
from typing import Any

from detent.adapters.mail.message import EmailMessage, read_message
from detent.adapters.mail.sink import message_id_of
from detent.adapters.models.scripted import ScriptedSource, ScriptedStepExecutor
from detent.adapters.stores.memory import MemoryStore
from detent.apps.warranty.domain.coverage import device_of
from detent.apps.warranty.flow import shipped
from detent.apps.warranty.processor import EmailProcessor, StepOrchestrator
from detent.apps.warranty.results import OrchestrationResult, ProcessingResult
from detent.apps.warranty.router import StepRouter
from detent.apps.warranty.settings import WarrantySettings, read
from detent.apps.warranty.tools.tickets import Ticket
from detent.apps.warranty.wiring import Components
from detent.dispatch.config import StepConfig
from detent.dispatch.dispatcher import DispatchSettings
from detent.engine.engine import Engine
from detent.engine.tools import UNKNOWN as NO_ANSWER
from detent.engine.tools import Tool
from detent.insight.visits import StepVisit, blobs_of, visits
from detent.kernel.entries import Entry

NOW = datetime(2026, 3, 10, 8, 15, tzinfo=UTC)
CUSTOMER = "maren@holt-bakery.example"
COVERED, LAPSED, UNKNOWN = "SN48213", "SN77120", "SN99999"
DEVICES = (
    {"serial": COVERED, "device_name": "Kestrel K200", "manufacturer_end": "2027-05-31"},
    {"serial": LAPSED, "device_name": "Kestrel K100", "manufacturer_end": "2024-11-30"},
    {"serial": "SN50001", "device_name": "Heron H7", "service_contract_end": "2026-12-31"},
)
CONTACTS = (
    {"topic": "default", "text": "office@northpine.example"},
    {"topic": "invoice", "text": "billing@northpine.example, +48 22 555 01 10"},
)
QUICK = {"min_s": 0.001, "max_s": 0.002}

STEPS = (
    "01-extract-serial",
    "02-check-warranty",
    "03a-valid-warranty",
    "03b-device-not-found",
    "03c-expired-warranty",
    "03d-request-serial",
    "04-out-of-scope",
    "05-send-confirmation",
)
FIRST, CHECK, TICKET, NOT_FOUND, EXPIRED, ASK, REDIRECT, CONFIRM = STEPS

PATHS: dict[str, tuple[str, ...]] = {
    "valid": (FIRST, CHECK, TICKET, CONFIRM),
    "expired": (FIRST, CHECK, EXPIRED),
    "not found": (FIRST, CHECK, NOT_FOUND),
    "no serial": (FIRST, ASK),
    "neither": (FIRST, ASK),
    "topic": (FIRST, REDIRECT),
    "spam": (FIRST, REDIRECT),
}
TEXTS: dict[tuple[str, str], tuple[str, str]] = {
    ("valid", "en"): (
        "Label printer",
        f"Hello, our printer S/N {COVERED} stopped working and feeds two labels.",
    ),
    ("valid", "pl"): (
        "Drukarka",
        f"Dzień dobry, drukarka o numerze seryjnym {COVERED} nie działa od wczoraj. Proszę o pomoc.",
    ),
    ("expired", "en"): ("Scanner", f"Hello, the scanner with serial number {LAPSED} is broken, please help."),
    ("expired", "pl"): (
        "Skaner",
        f"Dzień dobry, skaner nr seryjny {LAPSED} nie włącza się. Proszę o naprawę.",
    ),
    ("not found", "en"): (
        "Scale",
        f"Hello, the scale with serial number {UNKNOWN} shows an error, please help.",
    ),
    ("not found", "pl"): ("Waga", f"Dzień dobry, waga nr seryjny {UNKNOWN} zawyża wynik. Proszę o pomoc."),
    ("no serial", "en"): (
        "Printer",
        "Hello, the printer in our office has stopped and does not start any more.",
    ),
    ("no serial", "pl"): (
        "Drukarka",
        "Dzień dobry, nasza drukarka zacina się i nie wciąga papieru. Co robić?",
    ),
    ("neither", "en"): ("Hello", "Please help."),
    ("neither", "pl"): ("Witam", "Proszę o pomoc."),
    ("topic", "en"): (
        "Your invoice",
        "Hello, the invoice of last month is not in our mail. Could you send it?",
    ),
    ("topic", "pl"): (
        "Faktura",
        "Dzień dobry, proszę o przesłanie faktury za ostatni miesiąc, nie mamy jej.",
    ),
    ("spam", "en"): (
        "You have won",
        "You have won the lottery! This is the day on which you claim your prize.",
    ),
    ("spam", "pl"): ("Wygrałeś", "Wygrałeś! Proszę, odbierz nagrodę już dziś, to tylko dla Ciebie."),
}

_counted = iter(range(1, 10**9))


def raw(
    body: str = "",
    subject: str | None = "Printer",
    *,
    sender: str = f"Maren Holt <{CUSTOMER}>",
    ident: str | None = None,
    **headers: str,
) -> bytes:
    """A mail's bytes; headers by name with `_` for `-`."""
    said = {"From": sender, "To": "service@northpine.example"}
    if subject is not None:
        said["Subject"] = subject
    said["Message-ID"] = ident if ident is not None else f"<mail-{next(_counted)}@holt-bakery.example>"
    said |= {name.replace("_", "-"): value for name, value in headers.items()}
    said |= {"MIME-Version": "1.0", "Content-Type": "text/plain; charset=utf-8"}
    head = "".join(f"{name}: {value}\r\n" for name, value in said.items() if value)
    return f"{head}\r\n{body}\r\n".encode("utf-8", "surrogatepass")


def letter(body: str = "", subject: str | None = "Printer", **more: str) -> EmailMessage:
    """A mail, received on the usual day."""
    return read_message(raw(body, subject, **more), received=NOW)


def usual(kind: str, language: str = "en", **more: str) -> EmailMessage:
    """A mail that takes one of the paths."""
    subject, body = TEXTS[kind, language]
    return letter(body, subject, **more)


class Faults:
    """Errors raised by tools in turn, before they are really called."""

    def __init__(self, errors: Mapping[str, Sequence[BaseException | None]]) -> None:
        self.left = {name: list(said) for name, said in errors.items()}
        self.calls: list[str] = []

    def around(self, tool: Tool) -> Tool:
        perform = tool.perform

        async def performing(*call: Any, **args: Any) -> Any:
            self.calls.append(tool.name)
            waiting = self.left.get(tool.name)
            error = waiting.pop(0) if waiting else None
            if error is not None:
                raise error
            return await perform(*call, **args)

        return replace(tool, perform=performing)


class Mailbox:
    """One mailbox, open."""

    def __init__(
        self, components: Components, engine: Engine, processor: EmailProcessor, faults: Faults, folder: Path
    ) -> None:
        self.components = components
        self.engine = engine
        self.processor = processor
        self.orchestrator = processor.orchestrator
        self.faults = faults
        self.folder = folder
        self._seen: set[str] = set()

    @property
    def settings(self) -> WarrantySettings:
        return self.components.settings

    async def process(self, mail: EmailMessage, **options: Any) -> ProcessingResult:
        return await self.processor.process_email(mail, **options)

    async def orchestrate(self, mail: EmailMessage, **options: Any) -> OrchestrationResult:
        return await self.orchestrator.orchestrate(mail, **options)

    def sent(self) -> list[Parsed]:
        """What stands in the outbox."""
        return outbox(self.settings.path(self.settings.mail.outbox))

    def fresh(self) -> list[Parsed]:
        """What came to the outbox since this was asked last."""
        folder = self.settings.path(self.settings.mail.outbox)
        there = {path.name for path in folder.glob("*.eml")}
        new, self._seen = there - self._seen, there
        return [read_eml(folder / name) for name in sorted(new)]

    def reply(self) -> Parsed:
        """The one mail in the outbox."""
        (only,) = self.sent()
        return only

    async def tickets(self) -> list[Ticket]:
        found: list[Ticket] = await self.components.tickets.list()  # type: ignore[attr-defined]
        return found

    async def entries(self, run_id: str) -> list[Entry]:
        return await self.engine.store.entries(run_id, 0, 100_000)

    async def visits(self, run_id: str) -> list[StepVisit]:
        entries = await self.entries(run_id)
        blobs = await blobs_of(self.engine.store, entries)
        return visits(entries, needs=self.components.flow.playbook.needs, blobs=blobs)


def outbox(folder: Path) -> list[Parsed]:
    """The mails in a folder, by name."""
    return [read_eml(path) for path in sorted(folder.glob("*.eml"))]


def read_eml(path: Path) -> Parsed:
    mail = email.message_from_bytes(path.read_bytes(), policy=email.policy.default)
    assert isinstance(mail, Parsed)
    return mail


def text_of(mail: Parsed) -> str:
    """The body of a mail of ours."""
    content: str = mail.get_content()
    return content


def without_forms(folder: Path) -> Path:
    """Step files of the project's own that have no forms: agents name steps in lines, and call functions."""
    shutil.copytree(shipped(), folder / "instructions", dirs_exist_ok=True)
    for path in (folder / "instructions" / "steps").glob("*.md"):
        text, keep = [], True
        for line in path.read_text(encoding="utf-8").split("\n"):
            if re.match(r"\S", line):
                keep = not line.startswith(("form:", "examples:"))
            if keep or line == "---":
                text.append(line)
        path.write_text("\n".join(text), encoding="utf-8")
    return folder


def agents(
    replies: Mapping[str, Any], level: str = "approver", **fields: Any
) -> tuple[DispatchSettings, ScriptedStepExecutor]:
    """The named steps are an agent's, who answers from a script; texts stand for themselves."""
    told = {
        step: [one if isinstance(one, Mapping) else {"text": one} for one in said]
        for step, said in replies.items()
    }
    executor = ScriptedStepExecutor(told)
    if level == "approver" and "review" not in fields:
        fields = {"prose": "free", **fields}
    layers = {step: StepConfig.read({"mode": "agent", "autonomy": level, **fields}) for step in replies}
    return DispatchSettings(steps=layers, executors=ScriptedSource(executor)), executor


@asynccontextmanager
async def mailbox(
    folder: Path,
    said: Mapping[str, Any] | None = None,
    *,
    devices: Iterable[Mapping[str, Any]] = DEVICES,
    faults: Mapping[str, Sequence[BaseException | None]] | None = None,
    dispatch: DispatchSettings | None = None,
    store: Any = None,
    ask: Callable[..., Any] | None = None,
    **components: Any,
) -> AsyncIterator[Mailbox]:
    """A mailbox on a folder, with the usual devices and contacts unless told otherwise."""
    folder.mkdir(parents=True, exist_ok=True)
    values: dict[str, Any] = {**(said or {})}
    values["orchestration"] = {"retry": QUICK, **values.get("orchestration", {})}
    values["warranty"] = {"contacts": [dict(one) for one in CONTACTS], **values.get("warranty", {})}
    settings = read(values, folder)
    troubles = Faults(faults or {})
    made = Components.of(settings, wrap=troubles.around, now=lambda: NOW, environ={}, **components)
    await made.registry.add([device_of(dict(one)) for one in devices])  # type: ignore[attr-defined]
    async with Engine(
        store if store is not None else MemoryStore(), [made.flow], dispatch=dispatch
    ) as engine:
        router = StepRouter(made.handlers, settings.orchestration.router, ask)
        yield Mailbox(made, engine, EmailProcessor(StepOrchestrator(made, engine, router)), troubles, folder)


class Slot:
    """A sink that cannot tell afterwards: every mail is a line in a file, whoever sent it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.errors: list[BaseException] = []
        """Raised in turn, after the mail has gone."""

    async def open(self) -> None:
        self.path.touch()

    async def close(self) -> None:
        pass

    def describe(self) -> str:
        return "a slot in a wall"

    async def send(self, raw: bytes, envelope_from: str, to: Sequence[str]) -> Any:
        ident = message_id_of(raw)
        handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            os.write(handle, f"{ident} {','.join(to)}\n".encode())
            os.fsync(handle)
        finally:
            os.close(handle)
        if self.errors:
            raise self.errors.pop(0)
        return {"message_id": ident, "status": "sent"}

    async def probe(self, message_id: str) -> Any:
        return NO_ANSWER

    def sent(self) -> list[str]:
        """Everything that went through, in order."""
        return self.path.read_text().splitlines() if self.path.exists() else []
