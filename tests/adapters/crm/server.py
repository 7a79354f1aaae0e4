"""A small CRM on a loopback port: devices, tickets, tokens, over real HTTP. It misbehaves when told to."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import parse_qs, unquote

USER, PASSWORD = "desk", "s3cret-pass"


@dataclass
class Asked:
    """A request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Crm:
    """The CRM; `async with Crm() as crm` listens at `crm.url`."""

    auth: str = "token"
    lifetime: Any = 3600
    honours_keys: bool = True
    devices: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By the serial they are asked for."""
    tickets: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By key."""
    faults: list[Any] = field(default_factory=list)
    """What happens to the next requests that are no token requests: a status, bytes, a function, or None."""
    token_faults: list[Any] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    """Every token given out; only the last is accepted."""
    context: ssl.SSLContext | None = None
    receipt: dict[str, Any] | None = None
    """An answer to give for a new ticket in place of the usual one."""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self.context)
        port = self._server.sockets[0].getsockname()[1]
        self._readers: dict[asyncio.StreamWriter, asyncio.StreamReader] = {}
        self.url = f"http{'s' if self.context else ''}://127.0.0.1:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def hung_up(self, writer: asyncio.StreamWriter) -> None:
        """Wait until the client has closed this connection."""
        with contextlib.suppress(ConnectionError):
            await self._readers[writer].read()

    def of(self, path: str) -> list[Asked]:
        """Requests to paths that begin so."""
        return [one for one in self.asked if one.path.startswith(path)]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            method, path, _ = head[0].split(" ", 2)
            headers = {
                name.strip().lower(): value.strip()
                for name, _, value in (line.partition(":") for line in head[1:])
            }
            asked = Asked(
                method, path, headers, await reader.readexactly(int(headers.get("content-length", 0)))
            )
            self.asked.append(asked)
            self._readers[writer] = reader
            await self._answer(asked, writer)
        with contextlib.suppress(ConnectionError):
            writer.close()

    async def _answer(self, asked: Asked, writer: asyncio.StreamWriter) -> None:
        faults = self.token_faults if asked.path == "/token" else self.faults
        fault = faults.pop(0) if faults else None
        if callable(fault):
            await fault(self, asked, writer)
            return
        if isinstance(fault, bytes):
            await reply(writer, 200, fault)
            return
        status, body = (fault, {"error": f"no, {PASSWORD}"}) if fault is not None else self.handle(asked)
        await reply(writer, status, json.dumps(body).encode())

    def handle(self, asked: Asked) -> tuple[int, Any]:
        """What a CRM in order answers."""
        if asked.path == "/token":
            form = parse_qs(asked.body.decode())
            if (form.get("username"), form.get("password")) != ([USER], [PASSWORD]):
                return 400, {"error": "invalid_grant"}
            self.tokens.append(f"token-{len(self.tokens) + 1}")
            lived = {} if self.lifetime is None else {"expires_in": self.lifetime}
            return 200, {"access_token": self.tokens[-1], **lived}
        if asked.headers.get("authorization") != self._wanted():
            return 401, {"error": "who are you"}
        if asked.method == "GET" and asked.path.startswith("/devices/"):
            device = self.devices.get(unquote(asked.path.removeprefix("/devices/")))
            return (200, device) if device is not None else (404, {"error": "no such device"})
        if asked.method == "GET" and asked.path.startswith("/tickets/by-key/"):
            ticket = self.tickets.get(unquote(asked.path.removeprefix("/tickets/by-key/")))
            return (200, ticket) if ticket is not None else (404, {})
        if asked.method == "POST" and asked.path == "/tickets":
            key = asked.headers["idempotency-key"]
            if self.honours_keys and key in self.tickets:
                return 200, self.tickets[key]
            number = f"TKT-{10001 + len(self.tickets)}"
            ticket = {**asked.json, "ticket_id": number, "created_at": "2026-03-10T08:15:00+00:00"}
            self.tickets[key] = ticket
            return 201, ticket if self.receipt is None else self.receipt
        return 404, {}

    def _wanted(self) -> str | None:
        if self.auth == "basic":
            return "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        if self.auth == "token":
            return f"Bearer {self.tokens[-1]}" if self.tokens else "Bearer"
        return None


Fault = Callable[[Crm, Asked, asyncio.StreamWriter], Awaitable[None]]


async def reply(writer: asyncio.StreamWriter, status: int, raw: bytes, extra: str = "") -> None:
    """Send an answer."""
    head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\nconnection: close\r\n{extra}"
    writer.write(f"{head}content-length: {len(raw)}\r\n\r\n".encode() + raw)
    with contextlib.suppress(ConnectionError):
        await writer.drain()


async def stall(crm: Crm, asked: Asked, writer: asyncio.StreamWriter) -> None:
    """Take the request and never answer; end when the client hangs up."""
    await crm.hung_up(writer)


async def drop(crm: Crm, asked: Asked, writer: asyncio.StreamWriter) -> None:
    """Take the request and drop the connection."""
    writer.transport.abort()


async def act_and_drop(crm: Crm, asked: Asked, writer: asyncio.StreamWriter) -> None:
    """Do what was asked, and drop the connection before saying so."""
    crm.handle(asked)
    writer.transport.abort()


async def redirect(crm: Crm, asked: Asked, writer: asyncio.StreamWriter) -> None:
    """Send the client elsewhere."""
    await reply(writer, 302, b"", "location: http://127.0.0.1:1/elsewhere\r\n")
