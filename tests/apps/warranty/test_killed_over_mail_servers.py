"""W-44, W-46: killed at any instant over real mail servers, each mail is handled and answered once.

`detent run warranty` runs in processes of its own against an IMAP and an SMTP server that live here. The
instants: before the n-th SQL statement (in whichever file), at the n-th piece of a conversation with either
server (sent and lost, sent and arrived, answered and not heard), and simply after some time. Of so many of
them one is tried (`STRIDE`); `make test-all` tries them all, which takes half an hour.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import shutil
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from email import message_from_bytes
from pathlib import Path
from typing import NamedTuple

import pytest

from detent.apps.warranty.domain.coverage import device_of
from detent.apps.warranty.intake_records import key_in
from detent.apps.warranty.tools.registry import Registry
from detent.apps.warranty.tools.tickets import Ticket, Tickets
from tests.adapters.mail.servers import (
    PASSWORD,
    USER,
    ImapServer,
    Relay,
    SmtpServer,
    imap_server,
    relay,
    smtp_server,
)
from tests.apps.warranty.forked_program import Forks
from tests.apps.warranty.mailroom import COVERED, DEVICES, NO_SERIAL, mail
from tests.apps.warranty.test_intake import BOUNCE
from tests.examples import ALL

STRIDE = 1 if ALL else 720
"""Of so many instants one is tried."""
LANES = 2

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(max(600, 12_000 // STRIDE)),  # half a minute, on a machine with nothing else to do
]
ENVIRON = {"WARRANTY_IMAP_USER": USER, "WARRANTY_IMAP_PASSWORD": PASSWORD, "NO_COLOR": "1"}
CONFIG = """
store: detent.db
orchestration: {{retry: {{min_s: 0.01, max_s: 0.05}}}}
mail:
  source: imap
  sink: smtp
  imap: {{host: 127.0.0.1, port: {imap}, tls: none, sent_folder: {sent}}}
  smtp: {{host: 127.0.0.1, port: {smtp}, tls: none}}
"""
SEALED = "-----BEGIN PGP MESSAGE-----\n\nabc\n-----END PGP MESSAGE-----"
ANSWERED = {
    "covered": COVERED,
    "polish": "Dzień dobry, skaner nie łączy się z kasą, nr seryjny LM-77-0412. Proszę o pomoc.",
    "lapsed": "Our kiosk, serial number PX2-55910, restarts by itself all the time.",
    "unknown": "Our scanner S/N QQ-00000-Z9 is broken.",
    "no-serial": NO_SERIAL,
    "elsewhere": "What are your opening hours?",
}
"""Mails that get an answer, by name."""
TICKETS = ["LM-77-0412", "SN48213"]
SILENT = {
    "machine": mail("machine", **{"Auto-Submitted": "auto-generated"}),
    "copy": mail("covered", COVERED),
    "bounce": BOUNCE,
}
"""Mails that are seen and not answered."""


class Instant(NamedTuple):
    """When a process is killed."""

    kind: str
    """statement, time; or a conversation: imap-lost, imap-sent, imap-heard, and the same of smtp."""
    number: float
    """The n-th of the kind; of the time, seconds."""


class World:
    """A mailbox on two servers, and processes that die over it."""

    def __init__(self, folder: Path, forks: Forks, imap: ImapServer, smtp: SmtpServer) -> None:
        self.folder = folder
        self.forks = forks
        self.imap = imap
        self.smtp = smtp
        self.lines: dict[str, Relay] = {}
        self.pieces: Counter[str] = Counter()
        self.strike: Instant | None = None
        self.uids: dict[str, int] = {}

    async def fill(self) -> None:
        """Put the mails into the mailbox."""
        for name, body in ANSWERED.items():
            self.uids[name] = await self.imap.deliver(mail(name, body))
        for name, raw in SILENT.items():
            self.uids[name] = await self.imap.deliver(raw)
        self.uids["sealed"] = await self.imap.deliver(mail("sealed", SEALED))

    def listen(self, server: str, line: Relay) -> None:
        """Hear what is said on a line, and strike there."""
        line.cut_up = lambda piece: self._said(f"{server}-lost", f"{server}-sent")
        line.cut_down = lambda piece: self._said(f"{server}-heard")
        self.lines[server] = line

    def _said(self, *kinds: str) -> bytes | None:
        for kind in kinds:
            self.pieces[kind] += 1
            if self.strike == (kind, self.pieces[kind]):
                self.strike = None
                self.forks.kill()
                # What is lost never came out of the process; what was sent arrives, whoever sent it is dead.
                return b"" if kind.endswith("-lost") else None
        return None

    async def work(self, strike: Instant | None = None, *args: str) -> int:
        """A process works at the mailbox, until it is struck or through; its exit code."""
        self.pieces.clear()
        self.strike = strike
        for server, line in self.lines.items():
            self.listen(server, line)
        at = int(strike.number) if strike is not None and strike.kind == "statement" else None
        run = args or ("run", "warranty", "--once")
        await self.forks.begin(self.folder, *run, environ=ENVIRON, dies_before=at)
        ending = asyncio.ensure_future(self.forks.end())
        if strike is not None and strike.kind == "time":
            await asyncio.wait({ending}, timeout=strike.number)
            self.forks.kill()
        code = await ending
        self.strike = None
        return code

    def statements(self) -> int:
        """How many SQL statements the last process came to."""
        return int((self.folder / "counted.txt").read_text())

    # -- what came of it ------------------------------------------------------------------------------------

    async def unseen(self) -> set[str]:
        """Mails not marked."""
        return {name for name, uid in self.uids.items() if b"\\Seen" not in await self.imap.flags(uid)}

    def sent(self) -> Counter[str]:
        """How often each mail was answered, as the SMTP server has it; every reply has an id of its own."""
        replies = [message_from_bytes(one.original_content or b"") for one in self.smtp.taken]
        answered = Counter(reply["In-Reply-To"].removeprefix("<m").partition("@")[0] for reply in replies)
        assert len({reply["Message-ID"] for reply in replies}) == len(answered)
        return answered

    async def tickets(self) -> list[Ticket]:
        there = Tickets(self.folder / "warranty.db")
        found = await there.list()
        await there.close()
        return found

    async def attention(self) -> list[dict[str, object]]:
        """The attention list, as the program gives it."""
        said = self.folder / "said.txt"
        said.unlink(missing_ok=True)
        assert await self.work(None, "warranty", "attention", "--json") == 0
        found: list[dict[str, object]] = json.loads(said.read_text())
        return found

    async def settle(self) -> int:
        """Be the person who answers for mails in doubt, looking at what the server took; gives how many."""
        matters = {str(one["mail"]): one for one in await self.attention()}
        (sealed,) = [key for key, one in matters.items() if one["what"] == "unreadable"]
        del matters[sealed]
        held = await self.unseen() - {"sealed"}
        assert len(matters) == len(held), (matters, held)
        for matter in matters.values():
            assert (matter["what"], matter["reason"]) == ("waiting", "attention: effect"), matter
            run = str(matter["run"])
            known = self._message_id_of(run)
            took = any(known in (one.original_content or b"") for one in self.smtp.taken)
            printed = [str(word) for word in matter["command"]]  # type: ignore[attr-defined]
            answer = "happened" if took else "again"
            code = await self.work(None, *(answer if word == "happened" else word for word in printed[1:]))
            assert code == 0, (self.folder / "said.txt").read_text()
        return len(matters)

    def _message_id_of(self, run: str) -> bytes:
        """The id the reply of a run has, or would have."""
        key = key_in(run)
        with contextlib.closing(sqlite3.connect(self.folder / "warranty.db")) as there:
            (found,) = there.execute(
                "SELECT message_id FROM replies JOIN intake ON reply_key = key WHERE mail_key = ?", (key,)
            ).fetchone()
        return str(found).encode()


@contextlib.asynccontextmanager
async def world(folder: Path, forks: Forks, devices: Path, sent: bool) -> AsyncIterator[World]:
    folder.mkdir()
    shutil.copy(devices, folder / "warranty.db")
    async with (
        imap_server() as imap, smtp_server() as smtp, relay(imap.port) as imap_line,
        relay(smtp.port) as smtp_line,
    ):  # fmt: skip
        here = World(folder, forks, imap, smtp)
        if sent:
            await imap.add_folder("Sent")
        here.listen("imap", imap_line)
        here.listen("smtp", smtp_line)
        config = CONFIG.format(imap=imap_line.port, smtp=smtp_line.port, sent="Sent" if sent else "null")
        (folder / "config.yaml").write_text(config)
        await here.fill()
        yield here
    shutil.rmtree(folder)


@pytest.fixture
async def devices(tmp_path) -> Path:
    """A registry to begin with."""
    registry = Registry(tmp_path / "devices.db")
    await registry.add([device_of(one) for one in DEVICES])
    await registry.close()
    return tmp_path / "devices.db"


@contextlib.asynccontextmanager
async def forking() -> AsyncIterator[Forks]:
    forks = await Forks.ready()
    try:
        yield forks
    finally:
        await forks.close()


async def through(here: World, where: object) -> int:
    """Everything is handled and nothing twice, once what is in doubt was settled; gives how much that was."""
    assert await here.work() == 0, (where, (here.folder / "said.txt").read_text())
    settled = 0
    if await here.unseen() != {"sealed"}:
        settled = await here.settle()
        assert await here.work() == 0, where
    assert await here.unseen() == {"sealed"}, where
    assert here.sent() == Counter(dict.fromkeys(ANSWERED, 1)), where
    assert sorted(one.serial_number for one in await here.tickets()) == TICKETS, where
    assert "Traceback" not in (here.folder / "said.txt").read_text(), where
    return settled


def instants(statements: int, pieces: Counter[str], seconds: float) -> Iterator[Instant]:
    """One of so many of every kind, never the same distance apart."""
    chance = random.Random(20260310)
    for kind, most in {"statement": statements, **pieces}.items():
        stride = STRIDE if kind == "statement" else max(1, STRIDE // 4)
        for first in range(1, most + 1, stride):
            yield Instant(kind, min(most, first + chance.randrange(stride)))
    for _ in range(max(5, 240 // STRIDE)):
        yield Instant("time", chance.uniform(0.05, seconds))


async def test_killed_at_any_instant_each_mail_is_handled_and_answered_once(tmp_path, devices):
    async with forking() as forks, world(tmp_path / "calm", forks, devices, sent=False) as here:
        began = asyncio.get_running_loop().time()
        assert await here.work() == 0
        seconds = asyncio.get_running_loop().time() - began
        statements, pieces = here.statements(), here.pieces.copy()
        assert await through(here, "nobody was killed") == 0
    waiting = list(enumerate(instants(statements, pieces, seconds)))
    random.Random(7).shuffle(waiting)
    killed: list[Instant] = []
    settled = 0

    async def lane() -> None:
        nonlocal settled
        async with forking() as forks:
            while waiting:
                number, instant = waiting.pop()
                async with world(tmp_path / str(number), forks, devices, sent=number % 2 == 0) as here:
                    once = () if instant.kind == "time" and number % 3 else ("run", "warranty", "--once")
                    code = await here.work(instant, *(once or ("run", "warranty")))
                    assert code in (0, -9), (instant, code, (here.folder / "said.txt").read_text())
                    if code == -9:
                        killed.append(instant)
                    if number % 3 == 0:  # and once more while it recovers
                        await here.work(Instant("statement", random.Random(number).randrange(1, statements)))
                    settled += await through(here, instant)

    every = len(waiting)
    async with asyncio.TaskGroup() as lanes:
        for _ in range(LANES):
            lanes.create_task(lane())
    assert len(killed) > every * 0.8
    assert settled < every  # a doubt is only what was about to leave, not whatever was under way
