"""A mailbox whose process is to be killed at one exact place: a commit, an effect, a write to the outside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from detent.adapters.mail.outbox import Outbox
from detent.apps.warranty.settings import read
from detent.apps.warranty.tools.tickets import NewTicket, Tickets
from detent.apps.warranty.wiring import Components
from detent.testing.crash import CrashPoints
from detent.testing.workload import Planned, Workload
from detent.testing.world import World
from tests.apps.warranty.correspondence import NOW, QUICK, Slot

OUTBOX, SLOT = "outbox", "slot"


class Sink:
    """A sink that dies before or after a mail has left it."""

    def __init__(self, inner: Any, crash: CrashPoints) -> None:
        self.inner = inner
        self.crash = crash

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def send(self, raw: bytes, envelope_from: str, to: Sequence[str]) -> Any:
        self.crash.reached("sink", "before", 1)
        receipt = await self.inner.send(raw, envelope_from, to)
        self.crash.reached("sink", "after", 1)
        return receipt


class Handlers:
    """Tickets that die before or after one is in the file."""

    idempotent = True
    can_find = True

    def __init__(self, inner: Tickets, crash: CrashPoints) -> None:
        self.inner = inner
        self.crash = crash

    async def create(self, ticket: NewTicket) -> dict[str, Any]:
        self.crash.reached("desk", "before", 1)
        receipt = await self.inner.create(ticket)
        self.crash.reached("desk", "after", 1)
        return receipt

    async def find(self, ticket: NewTicket) -> dict[str, Any] | None:
        return await self.inner.find(ticket)

    async def close(self) -> None:
        await self.inner.close()


def components(world: World, crash: CrashPoints, sink: Any) -> Workload:
    folder = world.path.parent
    settings = read({"orchestration": {"retry": QUICK}}, folder)
    tickets = Handlers(Tickets(settings.path(settings.tools.database)), crash)
    made = Components.of(
        settings, tickets=tickets, sink=Sink(sink, crash), wrap=crash.tool, environ={}, now=lambda: NOW
    )
    return Workload([made.flow], lambda number: Planned(made.flow.name, {}))


def with_outbox(world: World, crash: CrashPoints) -> Workload:
    """Mails can be found again."""
    return components(world, crash, Outbox(world.path.parent / OUTBOX))


def with_slot(world: World, crash: CrashPoints) -> Workload:
    """Nobody can tell whether a mail went out."""
    return components(world, crash, Slot(world.path.parent / SLOT))
