"""A model server on a loopback port that does what a test tells it to: answers, stalls, lies, dies.

It speaks real HTTP over real sockets. Replies are given in order; what was asked is kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self


@dataclass
class Asked:
    """A request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any


@dataclass
class Line:
    """The connection a request came on."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def head(self, status: int, headers: Mapping[str, str]) -> None:
        """Send a status and headers."""
        lines = [f"HTTP/1.1 {status} X", *(f"{name}: {value}" for name, value in headers.items())]
        await self.send("\r\n".join([*lines, "connection: close", "", ""]).encode())

    async def send(self, raw: bytes) -> None:
        """Send bytes."""
        self.writer.write(raw)
        await self.writer.drain()

    async def chunk(self, raw: bytes) -> None:
        """Send one chunk of a body whose length nobody knows."""
        await self.send(f"{len(raw):x}\r\n".encode() + raw + b"\r\n")

    def die(self) -> None:
        """Drop the connection without a word."""
        self.writer.transport.abort()


Reply = Callable[[Line], Awaitable[None]]


class Server:
    """The server; `async with Server(reply, …) as server` listens at `server.url`."""

    def __init__(
        self,
        *replies: Reply,
        host: str = "127.0.0.1",
        refuses: Callable[[Any], Reply | None] | None = None,
    ) -> None:
        """Give these replies in turn; a request for which `refuses` gives one is answered with that."""
        self.replies = list(replies)
        self.refuses = refuses
        self.refused = 0
        self.host = host
        self.asked: list[Asked] = []
        self.asking = asyncio.Event()
        """A request has come in."""
        self.hung_up = asyncio.Event()
        """The client closed a connection on which it was still owed an answer."""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, self.host, 0)
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://{self.host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = Line(reader, writer)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            method, path, _ = head[0].split(" ", 2)
            headers = {
                name.strip().lower(): value.strip()
                for name, _, value in (one.partition(":") for one in head[1:])
            }
            raw = await reader.readexactly(int(headers.get("content-length", 0)))
            self.asked.append(Asked(method, path, headers, _read(raw)))
            self.asking.set()
            reply = None if self.refuses is None else self.refuses(self.asked[-1].body)
            if reply is not None:
                self.refused += 1
            elif self.replies:
                reply = self.replies.pop(0)
            else:
                reply = answer({"error": {"message": "no more"}}, 500)
            leaving = asyncio.ensure_future(reader.read())
            replying = asyncio.ensure_future(_quietly(reply(line)))
            await asyncio.wait({leaving, replying}, return_when=asyncio.FIRST_COMPLETED)
            if not replying.done():
                replying.cancel()
                self.hung_up.set()
            leaving.cancel()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


def _read(raw: bytes) -> Any:
    """A body as JSON where it is JSON."""
    try:
        return json.loads(raw) if raw else None
    except ValueError:
        return raw


async def _quietly(work: Awaitable[None]) -> None:
    with contextlib.suppress(ConnectionError):
        await work


def answer(body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Reply:
    """A JSON answer."""
    return raw(json.dumps(body).encode(), status, {"content-type": "application/json", **(headers or {})})


def raw(body: bytes, status: int = 200, headers: Mapping[str, str] | None = None, missing: int = 0) -> Reply:
    """Any bytes; of `missing` more the length speaks, but they never come."""

    async def reply(line: Line) -> None:
        length = {"content-length": str(len(body) + missing)}
        await line.head(status, {"content-type": "text/html", **(headers or {}), **length})
        await line.send(body)

    return reply


def stream(
    events: Iterable[bytes],
    *,
    gates: Mapping[int, asyncio.Event] | None = None,
    ending: str = "whole",
) -> Reply:
    """Server-sent events, each a chunk. Before event n the stream waits for `gates[n]`.

    `ending`: "whole" and "stops" end the body politely, whatever the last event was, as a proxy does whose
    server died; "dies" drops the connection after the last event; "stalls" says nothing more.
    """

    async def reply(line: Line) -> None:
        await line.head(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked"})
        for place, event in enumerate(events):
            if gates and place in gates:
                await gates[place].wait()
            await line.chunk(event)
        if ending == "dies":
            line.die()
        elif ending == "stalls":
            await asyncio.Event().wait()
        else:
            await line.chunk(b"")

    return reply


REDIRECTS = (301, 302, 303, 307, 308)


def elsewhere(other: Server, status: int, path: str = "") -> Reply:
    """Send the client to another server."""
    return raw(b"", status, {"location": f"{other.url}{path}"})


async def stall(line: Line) -> None:
    """Take the request and never answer."""
    await asyncio.Event().wait()


async def drop(line: Line) -> None:
    """Take the request and drop the connection."""
    line.die()


# -- OpenAI's tongue ----------------------------------------------------------------------------------------

USAGE = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}


def chat(
    text: str | None = None,
    calls: Iterable[tuple[str, str, Any]] = (),
    *,
    finish: str | None = None,
    usage: Any = USAGE,
    model: str = "served-1",
) -> Any:
    """A chat completion; `calls` are (id, name, arguments)."""
    message: dict[str, Any] = {"role": "assistant", "content": text}
    made = [
        {
            "id": id_,
            "type": "function",
            "function": {"name": name, "arguments": args if isinstance(args, str) else json.dumps(args)},
        }
        for id_, name, args in calls
    ]
    if made:
        message["tool_calls"] = made
    choice = {"index": 0, "message": message, "finish_reason": finish or ("tool_calls" if made else "stop")}
    return {
        "id": "c1", "object": "chat.completion", "model": model, "choices": [choice],
        **({"usage": usage} if usage else {}),
    }  # fmt: skip


def said(text: str, **options: Any) -> Reply:
    """A plain answer with this text."""
    return answer(chat(text, **options))


def event(body: Any) -> bytes:
    """One server-sent event."""
    return f"data: {body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)}\n\n".encode()


def delta(model: str = "served-1", finish: str | None = None, **parts: Any) -> bytes:
    """A piece of a streamed chat completion."""
    return event({"model": model, "choices": [{"index": 0, "delta": parts, "finish_reason": finish}]})


def pieces(*texts: str, finish: str = "stop", usage: Any = USAGE) -> list[bytes]:
    """A streamed chat completion, whole."""
    ending = [event({"model": "served-1", "choices": [], "usage": usage})] if usage else []
    return [*(delta(content=text) for text in texts), delta(finish=finish), *ending, event("[DONE]")]


class Endless:
    """A reply that goes on for ever, and counts the bytes it was able to send."""

    def __init__(
        self,
        piece: bytes,
        *,
        streaming: bool,
        status: int = 200,
        pause: float = 0.0,
        headers_only: bool = False,
        first: bytes = b"",
    ) -> None:
        self.sent = 0
        self._piece = piece
        self._kind = "text/event-stream" if streaming else "application/json"
        self._status = status
        self._pause = pause
        self._headers_only = headers_only
        self._first = first

    async def __call__(self, line: Line) -> None:
        if self._headers_only:
            await line.send(b"HTTP/1.1 200 X\r\n")
        else:
            await line.head(self._status, {"content-type": self._kind, "transfer-encoding": "chunked"})
        if self._first:
            await line.chunk(self._first)
        while True:
            await (line.send if self._headers_only else line.chunk)(self._piece)
            self.sent += len(self._piece)
            await asyncio.sleep(self._pause)
