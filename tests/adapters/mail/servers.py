"""Real mail servers on loopback ports, started by the tests: IMAP is pymap, SMTP is aiosmtpd.

Between client and server may stand a `Relay`, which passes bytes on until it is told to cut the line.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from argparse import Namespace
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import trustme
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session
from proxyprotocol.reader import ProxyProtocolReader
from pymap.backend.dict import Config, DictBackend, Login
from pymap.backend.dict.mailbox import MailboxData, MailboxSet
from pymap.config import BackendCapability
from pymap.imap import IMAPServer
from pymap.parsing.message import AppendMessage
from pymap.parsing.specials.flag import Flag
from pysasl.hashing import BuiltinHash

HOST = "127.0.0.1"
USER, PASSWORD = "service", "correct horse battery"
RECEIVED = datetime(2026, 3, 10, 8, 15, tzinfo=UTC)


def mail(number: int | str = 1, body: str = "The pump is dead.", **headers: str) -> bytes:
    """A mail as it lies on a server."""
    lines = {
        "From": "Maren Holt <maren@holt-bakery.example>",
        "To": "service@northpine.example",
        "Subject": f"Mail {number}",
        "Message-ID": f"<m{number}@holt-bakery.example>",
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"{head}\r\n{body}\r\n".encode()


# -- certificates ---------------------------------------------------------------------------------------


@cache
def authority() -> trustme.CA:
    return trustme.CA()


@cache
def own_certificate(*names: str) -> ssl.SSLContext:
    """A server's side of TLS, for these names, signed by the tests' own authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority().issue_cert(*(names or (HOST,))).configure_cert(context)
    return context


def authority_file(folder: Path) -> Path:
    """What a client must trust to get in."""
    path = folder / "authority.pem"
    authority().cert_pem.write_to_path(str(path))
    return path


# -- IMAP -----------------------------------------------------------------------------------------------


@dataclass
class ImapServer:
    """A running pymap with one account."""

    config: Config
    login: Login
    port: int = 0
    _server: asyncio.Server | None = None
    _lines: set[asyncio.StreamWriter] = field(default_factory=set)
    logins: int = 0
    """Connections made so far."""

    async def folders(self) -> MailboxSet:
        if USER not in self.config.set_cache:
            async with self.login.demo_user_identity.new_session():
                pass
        return self.config.set_cache[USER][0]

    async def folder(self, name: str = "INBOX") -> MailboxData:
        return await (await self.folders()).get_mailbox(name)

    async def add_folder(self, name: str) -> MailboxData:
        await (await self.folders()).add_mailbox(name)
        return await self.folder(name)

    async def deliver(
        self, raw: bytes, folder: str = "INBOX", *, when: datetime = RECEIVED, flags: Sequence[bytes] = ()
    ) -> int:
        """Put a mail into the account; its UID."""
        there = await self.folder(folder)
        message = await there.append(AppendMessage(raw, when, frozenset(Flag(flag) for flag in flags)))
        return message.uid

    async def flags(self, uid: int, folder: str = "INBOX") -> set[bytes]:
        there = await self.folder(folder)
        return {bytes(flag) for flag in there._messages[uid].permanent_flags}

    async def bodies(self, folder: str) -> list[bytes]:
        there = await self.folder(folder)
        return [bytes(message._content or b"") for message in there._messages.values()]

    def hang_up(self) -> None:
        """Cut all connections, without a word."""
        for writer in self._lines:
            writer.transport.abort()
        self._lines.clear()

    async def stop(self) -> None:
        """Be gone, as a killed server is."""
        assert self._server is not None
        self._server.close()
        self.hang_up()
        await self._server.wait_closed()

    async def start(self, tls: ssl.SSLContext | None, port: int = 0) -> None:
        answer = ProxyProtocolReader(self.config.proxy_protocol).get_callback(
            IMAPServer(self.login, self.config)
        )

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.logins += 1
            self._lines.add(writer)  # it is answered in a task of its own
            await answer(reader, writer)

        self._server = await asyncio.start_server(serve, HOST, port, ssl=tls)
        self.port = self._server.sockets[0].getsockname()[1]


@contextlib.asynccontextmanager
async def imap_server(
    *,
    tls: str = "none",
    names: Sequence[str] = (HOST,),
    idle: bool = True,
    password: str = PASSWORD,
) -> AsyncIterator[ImapServer]:
    """pymap in memory; `tls` as clients name it."""
    context = own_certificate(*names) if tls != "none" else None

    class Chosen(Config):
        @property
        def backend_capability(self) -> BackendCapability:
            return BackendCapability(idle=idle, object_id=True, multi_append=True)

    args = Namespace(
        host=HOST, port=0, debug=False, cert=None, key=None, tls=tls == "starttls", passlib_cfg=None,
        proxy_protocol=None, demo_data=False, demo_user=USER, demo_password=password,
    )  # fmt: skip
    config = Chosen.from_args(
        args, invalid_user_sleep=0.0, ssl_context=context, hash_context=BuiltinHash(rounds=1)
    )
    login = Login(config)
    await DictBackend._add_demo_user(config, login)
    config.apply_context()
    server = ImapServer(config, login)
    await server.start(context if tls == "implicit" else None)
    reminding = asyncio.create_task(_remind(config))
    try:
        yield server
    finally:
        reminding.cancel()
        await server.stop()


async def _remind(config: Config) -> None:
    """Make up for a gap of pymap's: what came just before IDLE it tells only when something else happens."""
    while True:
        await asyncio.sleep(0.01)
        for mailboxes, _ in config.set_cache.values():
            for mailbox in [mailboxes._inbox, *mailboxes._set.values()]:
                mailbox._updated.set()


# -- SMTP -----------------------------------------------------------------------------------------------


@dataclass
class SmtpServer:
    """A running aiosmtpd: what it took, and what it is to say."""

    port: int = 0
    taken: list[Envelope] = field(default_factory=list)
    deliver: Callable[[bytes], Awaitable[object]] | None = None
    """Where mails go once they are taken."""
    answers: dict[str, str] = field(default_factory=dict)
    """What it says at MAIL, RCPT and DATA instead of yes."""
    vanish_after_taking: bool = False
    """Take the mail, then be gone without saying so."""
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a whole mail has come."""
    released: asyncio.Event | None = None
    """While not set, it does not answer to a whole mail."""
    logins: list[str] = field(default_factory=list)

    async def handle_MAIL(self, server, session: Session, envelope: Envelope, address: str, options):
        if "MAIL" in self.answers:
            return self.answers["MAIL"]
        envelope.mail_from = address
        envelope.mail_options.extend(options)
        return "250 OK"

    async def handle_RCPT(self, server, session: Session, envelope: Envelope, address: str, options):
        if "RCPT" in self.answers and not address.startswith("good"):
            return self.answers["RCPT"]
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        self.reached.set()
        if self.released is not None:
            await self.released.wait()
        if "DATA" in self.answers:
            return self.answers["DATA"]
        self.taken.append(envelope)
        if self.deliver is not None:
            await self.deliver(envelope.original_content or b"")
        if self.vanish_after_taking:
            assert isinstance(server.transport, asyncio.Transport)
            server.transport.abort()
        return "250 2.0.0 taken"

    def authenticate(self, server, session, envelope, mechanism, data):
        right = isinstance(data, LoginPassword) and data.password.decode() == PASSWORD_AT[self.port]
        if right:
            self.logins.append(data.login.decode())
        return AuthResult(success=right, handled=False)


PASSWORD_AT: dict[int, str] = {}


@contextlib.asynccontextmanager
async def smtp_server(
    *, tls: str = "none", names: Sequence[str] = (HOST,), login: bool = False, password: str = PASSWORD,
    size: int = 33_554_432, utf8: bool = True, offers_starttls: bool | None = None,
) -> AsyncIterator[SmtpServer]:  # fmt: skip
    """aiosmtpd; `tls` as clients name it."""
    context = own_certificate(*names) if tls != "none" else None
    said = SmtpServer()

    def serve() -> SMTP:
        return SMTP(
            said, hostname="mx.northpine.example", data_size_limit=size, enable_SMTPUTF8=utf8, timeout=30,
            tls_context=context if tls == "starttls" else None, require_starttls=tls == "starttls",
            authenticator=said.authenticate, auth_required=login, auth_require_tls=False,
        )  # fmt: skip

    loop = asyncio.get_running_loop()
    server = await loop.create_server(serve, HOST, 0, ssl=context if tls == "implicit" else None)
    said.port = server.sockets[0].getsockname()[1]
    PASSWORD_AT[said.port] = password
    try:
        yield said
    finally:
        server.close()
        await server.wait_closed()


# -- lines that break -----------------------------------------------------------------------------------


@dataclass
class Relay:
    """Passes bytes between client and server, and counts them."""

    port: int = 0
    cut_down: Callable[[bytes], bytes | None] | None = None
    """Given each piece from the server: what of it still comes through before the line is cut, or None."""
    cut_up: Callable[[bytes], bytes | None] | None = None
    """The same for pieces from the client."""
    rewrite: Callable[[bytes], bytes] | None = None
    """What comes through of each piece from the server: more, less, or later."""
    hold: asyncio.Event | None = None
    """While it is there and not set, nothing comes from the server."""
    cuts: int = 0
    """How often the line was cut."""
    connections: int = 0


@contextlib.asynccontextmanager
async def relay(to: int) -> AsyncIterator[Relay]:
    """A line to a port of this machine that can be cut at any byte."""
    said = Relay()
    open_lines: set[asyncio.StreamWriter] = set()

    async def passing(reader, writer, other, which: str) -> None:
        with contextlib.suppress(ConnectionError):
            while piece := await reader.read(65536):
                if said.hold is not None and which == "cut_down":
                    await said.hold.wait()
                decide = getattr(said, which)
                last = decide(piece) if decide is not None else None
                if last is not None:
                    setattr(said, which, None)
                    said.cuts += 1
                    writer.write(last)
                    await writer.drain()
                    writer.close()
                    other.close()
                    return
                if said.rewrite is not None and which == "cut_down":
                    piece = said.rewrite(piece)
                writer.write(piece)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        said.connections += 1
        try:
            server_reader, server_writer = await asyncio.open_connection(HOST, to)
        except ConnectionError:
            writer.close()
            return
        open_lines.update((writer, server_writer))
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(
                passing(reader, server_writer, writer, "cut_up"),
                passing(server_reader, writer, server_writer, "cut_down"),
            )

    server = await asyncio.start_server(serve, HOST, 0)
    said.port = server.sockets[0].getsockname()[1]
    try:
        yield said
    finally:
        server.close()
        for writer in open_lines:
            writer.close()
        await server.wait_closed()
