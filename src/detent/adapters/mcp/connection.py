"""One session with an MCP server, through the official SDK. Imported only when a server is really used.

The SDK's contexts must be entered and left by the same task, so every session has a task of its own that only
holds them open; calls are made from any task. A broken session is thrown away and replaced. Calls that may
have reached the server are told apart from those that certainly did not: the streams between SDK and
transport are watched, and HTTP failures become answers to the very request they hit.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextvars import Context, ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TextIO

import anyio
import httpx2
import mcp_types as types
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from pydantic import TypeAdapter, ValidationError

from detent.adapters.http_body import limiting_hooks
from detent.adapters.mcp.answers import Listed, cut, listed
from detent.adapters.mcp.faults import CallFault
from detent.adapters.mcp.stdio import LARGEST_MESSAGE, stdio_streams
from detent.engine import logger

GRACE = 10.0
"""Seconds a session gets to end by itself. A child process that does not end is killed within about six."""
FAREWELL = 2.0
"""Seconds for the HTTP request that ends a session."""
MOST_PAGES = 100
"""Pages of a tool list that are read."""
MOST_TOOLS = 10_000
"""Tools a server may list."""
MOST_UNASKED = 10_000
"""Messages a server may send between two answers."""
MOST_REQUESTS = 16
"""Requests of a server that may wait for our answer at the same time."""
LAST_WORDS = 400
"""Characters of a child's standard error shown when it does not start."""

_ANSWER: TypeAdapter[types.CallToolResult | types.InputRequiredResult] = TypeAdapter(
    types.CallToolResult | types.InputRequiredResult
)
_NOT_DONE = frozenset(
    {
        types.METHOD_NOT_FOUND,
        types.INVALID_PARAMS,
        types.HEADER_MISMATCH,
        types.MISSING_REQUIRED_CLIENT_CAPABILITY,
        types.UNSUPPORTED_PROTOCOL_VERSION,
        types.URL_ELICITATION_REQUIRED,
    }
)
"""Errors by which a server says that it did not even begin."""
_NEVER_LEFT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol)
"""Failures of a request before any of it was sent."""


@dataclass(frozen=True, slots=True)
class Target:
    """A server's address and how to start or enter it, secrets included: never shown."""

    name: str
    command: tuple[str, ...] = ()
    cwd: Path | None = None
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    patience: float = 30.0
    """Seconds the slowest of its tools may take."""

    def shown(self) -> str:
        """The server's name in messages, without arguments and secrets."""
        if self.command:
            return f"MCP server '{self.name}' ({self.command[0]})"
        url = httpx2.URL(self.url).copy_with(userinfo=b"", query=None, fragment=None)
        return f"MCP server '{self.name}' ({url})"


class _Posting:
    """How far a call got on its way to the server."""

    __slots__ = ("begun", "never_left", "status")

    def __init__(self) -> None:
        self.begun = False
        self.never_left = False
        self.status: int | None = None
        """The HTTP status of its answer."""


_posting: ContextVar[_Posting | None] = ContextVar("detent_mcp_posting", default=None)


class Connection:
    """A session: opened once, closed once. Any number of calls may be made at the same time."""

    def __init__(self, target: Target, wanted: Collection[str]) -> None:
        self.target = target
        self.alive = False
        """Whether it accepts calls."""
        self.names: frozenset[str] = frozenset()
        """All tools of the server."""
        self.tools: Mapping[str, Listed] = {}
        """The tools that are declared."""
        self._wanted = frozenset(wanted)
        self._client: Client | None = None
        self._calls = 0
        self._over = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._trouble = ""
        self._cut_off = ""
        """Why this side ended the session while calls were under way."""
        self._stderr: _Stderr | None = None

    @property
    def busy(self) -> bool:
        """Whether it has not ended yet."""
        return self._task is not None and not self._task.done()

    # -- life -----------------------------------------------------------------------------------------------

    async def open(self, timeout: float) -> None:
        """Connect and list the tools; raises `CallFault`."""
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # A context of its own, as it outlives the run whose call came first.
        self._task = asyncio.create_task(self._run(ready), name=f"mcp {self.target.name}", context=Context())
        try:
            async with asyncio.timeout(timeout):
                await asyncio.shield(ready)
        except TimeoutError:
            await self.close(now=True)
            raise self._unreachable(f"it did not answer within {timeout:g} seconds") from None
        except BaseException:
            await self.close(now=True)
            raise

    async def close(self, *, now: bool = False) -> None:
        """End the session and its child process. Never waits for ever."""
        self.alive = False
        self._over.set()
        task = self._task
        if task is None or task.done():
            return
        if now:
            task.cancel()
        await asyncio.wait({task}, timeout=GRACE)
        if not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=GRACE)
        if not task.done():
            logger.warning("mcp.not_closed", server=self.target.name)

    def retire(self) -> None:
        """Accept no more calls; end when those under way are done."""
        self.alive = False
        if self._calls == 0:
            self._over.set()

    async def _run(self, ready: asyncio.Future[None]) -> None:
        try:
            client = Client(
                self._streams(), cache=None, client_info=types.Implementation(name="detent", version="1")
            )
            async with client:
                await self._list(client)
                self._client = client
                self.alive = True
                ready.set_result(None)
                await self._over.wait()
        except Exception as error:
            if not ready.done():
                ready.set_exception(self._unreachable(self._why(_first_error(error))))
            elif not self._over.is_set():
                logger.warning(
                    "mcp.lost", server=self.target.name, error=_error_name(error), calls=self._calls
                )
        finally:
            self.alive = False
            self._over.set()
            if not ready.done():
                ready.set_exception(self._unreachable("connecting was given up"))
            ready.exception()  # retrieved, as the caller may have stopped waiting

    async def _list(self, client: Client) -> None:
        names: set[str] = set()
        declared: dict[str, Listed] = {}
        cursor: str | None = None
        for _ in range(MOST_PAGES):
            page = await client.list_tools(cursor=cursor)
            names.update(cut(tool.name) for tool in page.tools)
            declared.update((tool.name, listed(tool)) for tool in page.tools if tool.name in self._wanted)
            if len(names) > MOST_TOOLS:
                self._note_trouble(f"it lists more than {MOST_TOOLS:,} tools")
                raise ValueError(self._trouble)
            cursor = page.next_cursor
            if cursor is None:
                break
        self.names = frozenset(names)
        self.tools = declared

    def _ended(self) -> None:
        """Note that the server ended the connection."""
        if self.alive:
            logger.warning("mcp.lost", server=self.target.name, calls=self._calls)
        self.alive = False
        self._over.set()

    def _unreachable(self, why: str) -> CallFault:
        return CallFault("mcp_unreachable", f"{self.target.shown()} cannot be used: {why}.", sent=False)

    def _why(self, error: BaseException) -> str:
        """The reason connecting failed, in our own words."""
        if self._trouble:
            return self._trouble
        if isinstance(error, FileNotFoundError):
            return f"there is no program '{self.target.command[0]}', or no folder to start it in"
        if isinstance(error, OSError):
            return f"it cannot be started ({error.strerror})"
        if isinstance(error, MCPError) and error.code == types.CONNECTION_CLOSED:
            stderr = self._stderr.said(self.target.env.values()) if self._stderr is not None else ""
            return "it ended before it answered" + (f"; its last words: {stderr}" if stderr else "")
        if isinstance(error, MCPError):
            return f"it refused the connection (error {error.code})"
        return f"it does not speak the protocol ({_error_name(error)})"

    # -- calls ----------------------------------------------------------------------------------------------

    async def call(
        self, tool: str, args: Mapping[str, Any], *, meta: Mapping[str, Any] | None, timeout: float
    ) -> types.CallToolResult:
        """The server's answer; `CallFault` says whether the server may have acted."""
        posting = _Posting()
        token = _posting.set(posting)
        self._calls += 1
        try:
            async with asyncio.timeout(timeout):
                return await self._ask(tool, args, meta)
        except TimeoutError:
            raise CallFault(
                "mcp_timeout",
                f"{self.target.shown()} did not answer '{tool}' within {timeout:g} seconds.",
                sent=posting.begun,
            ) from None
        except MCPError as error:
            raise self._failed(tool, error, posting) from None
        except ValidationError:
            raise CallFault(
                "mcp_protocol",
                f"{self.target.shown()} answered '{tool}' with something that is no answer.",
                sent=True,
                transient=False,
            ) from None
        finally:
            _posting.reset(token)
            self._calls -= 1
            if not self.alive and self._calls == 0:
                self._over.set()

    async def _ask(
        self, tool: str, args: Mapping[str, Any], meta: Mapping[str, Any] | None
    ) -> types.CallToolResult:
        assert self._client is not None
        # Not `call_tool`: that discards an answer which breaks the server's own output schema, and then
        # nobody would know that the tool has run.
        request = types.CallToolRequest(
            params=types.CallToolRequestParams(
                name=tool, arguments=dict(args), _meta=dict(meta) if meta else None
            )
        )
        answer = await self._client.session.send_request(request, _ANSWER)
        if isinstance(answer, types.InputRequiredResult):
            raise CallFault(
                "mcp_input_required",
                f"'{tool}' of {self.target.shown()} needs a person's input first, which cannot be given.",
                sent=False,
                transient=False,
            )
        return answer

    def _failed(self, tool: str, error: MCPError, posting: _Posting) -> CallFault:
        """The fault for an error response."""
        subject = f"'{tool}' of {self.target.shown()}"
        if posting.never_left or not posting.begun:
            return CallFault("mcp_unreachable", f"{subject} was not called: no connection.", sent=False)
        status = posting.status
        if status is not None and 400 <= status < 500 and status != 408:
            if status == 404:  # the server forgot the session; a new one may work
                self.retire()
            again = status in (404, 425, 429)
            return CallFault(
                "mcp_refused", f"{subject} was refused: HTTP {status}.", sent=False, transient=again
            )
        if error.code in _NOT_DONE:
            if error.code == types.HEADER_MISMATCH:  # its list of tools changed
                self.retire()
            again = error.code == types.HEADER_MISMATCH
            return CallFault(
                "mcp_refused", f"{subject} was refused: error {error.code}.", sent=False, transient=again
            )
        if error.code == types.CONNECTION_CLOSED:
            why = f": {self._cut_off}" if self._cut_off else ""
            return CallFault(
                "mcp_lost", f"The connection was lost while {subject} was called{why}.", sent=True
            )
        description = f"HTTP {status}" if status is not None and status >= 500 else f"error {error.code}"
        return CallFault(
            "mcp_failed",
            f"{subject} failed: {description}.",
            sent=True,
            transient=status is not None and status >= 500,
        )

    async def answers(self, timeout: float) -> bool:
        """Whether the server still answers at all."""
        assert self._client is not None
        try:
            async with asyncio.timeout(timeout):
                await self._client.list_tools()
        except (TimeoutError, MCPError, ValidationError):
            return False
        return True

    # -- transports -----------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _streams(self) -> AsyncIterator[tuple[Any, Any]]:
        """The transport's streams, watched."""
        async with self._child() if self.target.command else self._web() as (read, write):
            traffic = _Traffic(self._give_up)
            yield _Reading(read, self._ended, traffic), _Writing(write, traffic)

    @contextlib.asynccontextmanager
    async def _child(self) -> AsyncIterator[tuple[Any, Any]]:
        self._stderr = _Stderr(self.target.name)
        child = stdio_streams(
            _own_python(self.target.command), env=self.target.env, cwd=self.target.cwd,
            stderr=self._stderr.file, give_up=self._give_up,
        )  # fmt: skip
        try:
            async with child as streams:
                self._stderr.file.close()  # the child has it; when the child ends, our reading ends
                yield streams
        finally:
            self._stderr.file.close()

    @contextlib.asynccontextmanager
    async def _web(self) -> AsyncIterator[tuple[Any, Any]]:
        # A call's own timeout comes first; a stream may be silent for as long as a tool takes.
        timeout = httpx2.Timeout(self.target.patience, read=max(300.0, self.target.patience + 60))
        async with (
            _HttpClient(
                self._note_trouble,
                headers=dict(self.target.headers),
                timeout=timeout,
                event_hooks=limiting_hooks(httpx2, LARGEST_MESSAGE, each_event=True),
            ) as client,
            streamable_http_client(self.target.url, http_client=client) as streams,
        ):
            yield streams

    def _note_trouble(self, why: str) -> None:
        if not self.alive:
            self._trouble = why

    def _give_up(self, why: str) -> None:
        """Note that the server sends too much, which ends the session."""
        self._note_trouble(why)
        self._cut_off = self._cut_off or why
        logger.warning("mcp.cut_off", server=self.target.name, why=why)


class _Traffic:
    """Open requests in both directions, and whether a server sends more than it was asked for.

    The SDK answers each request of a server in a task of its own, which waits while the server does not
    read: so their number is limited.
    """

    def __init__(self, give_up: Callable[[str], None]) -> None:
        self._give_up = give_up
        self._asked: set[Any] = set()
        self._requests = 0
        self._unasked = 0

    def sent(self, message: Any) -> None:
        """Note a message to the server."""
        if isinstance(message, types.JSONRPCRequest):
            self._asked.add(message.id)
        elif isinstance(message, types.JSONRPCResponse | types.JSONRPCError):
            self._requests -= 1

    def bearable(self, message: Any) -> bool:
        """Whether the session may go on after this message of the server."""
        if isinstance(message, types.JSONRPCRequest):
            self._requests += 1
        if isinstance(message, types.JSONRPCResponse | types.JSONRPCError) and message.id in self._asked:
            self._asked.discard(message.id)
            self._unasked = 0
        else:
            self._unasked += 1
        if self._requests > MOST_REQUESTS:
            self._give_up(f"it sent more than {MOST_REQUESTS} requests at a time")
        elif self._unasked > MOST_UNASKED:
            self._give_up(f"it sent more than {MOST_UNASKED:,} messages nobody asked for")
        else:
            return True
        return False


class _Stream:
    """One direction of a transport, watched."""

    def __init__(self, inner: Any, traffic: _Traffic) -> None:
        self._inner = inner
        self._traffic = traffic

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class _Reading(_Stream):
    """The stream of messages from a server; reports its end, and ends it when there are too many."""

    def __init__(self, inner: Any, ended: Callable[[], None], traffic: _Traffic) -> None:
        super().__init__(inner, traffic)
        self._on_end = ended

    @property
    def last_context(self) -> Context | None:
        """The SDK asks for it where the transport has one."""
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> Any:
        try:
            item = await self._inner.receive()
            if not self._traffic.bearable(getattr(item, "message", None)):
                raise anyio.EndOfStream
            return item
        except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
            self._on_end()
            raise

    def __aiter__(self) -> _Reading:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None


class _Writing(_Stream):
    """The stream of messages to a server; notes that a call is on its way."""

    async def send(self, item: Any, /) -> None:
        posting = _posting.get()
        if posting is not None:
            posting.begun = True
        asks = isinstance(item.message, types.JSONRPCRequest)
        if asks:  # before its answer can arrive
            self._traffic.sent(item.message)
        await self._inner.send(item)
        if not asks:
            self._traffic.sent(item.message)


class _HttpClient(httpx2.AsyncClient):
    """Sends requests; a failed one is answered with an error instead of ending the session for all calls."""

    def __init__(self, trouble: Callable[[str], None], **options: Any) -> None:
        super().__init__(**options)
        self._trouble = trouble

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        posting = _posting.get()  # the SDK sends a request in the context of its caller
        try:
            if request.method == "DELETE":
                async with asyncio.timeout(FAREWELL):
                    return await super().send(request, **options)
            response = await super().send(request, **options)
        except (httpx2.TransportError, TimeoutError) as error:
            if posting is not None and isinstance(error, _NEVER_LEFT):
                posting.never_left = True
            self._trouble(f"no connection ({_error_name(error)})")
            error_body = {"code": types.CONNECTION_CLOSED, "message": "no answer"}
            return httpx2.Response(
                503, json={"jsonrpc": "2.0", "id": None, "error": error_body}, request=request
            )
        if posting is not None:
            posting.status = response.status_code
        if response.status_code >= 400:
            self._trouble(f"HTTP {response.status_code}")
        return response


class _Stderr:
    """A child's standard error: logged at DEBUG, and its end kept in case the child does not start."""

    def __init__(self, server: str) -> None:
        reading, writing = os.pipe()
        self.file: TextIO = os.fdopen(writing, "w")
        self._server = server
        self._lines: deque[str] = deque(maxlen=20)
        self._thread = threading.Thread(target=self._read, args=(reading,), name=f"mcp {server}", daemon=True)
        self._thread.start()

    def _read(self, reading: int) -> None:
        with os.fdopen(reading, encoding="utf-8", errors="replace") as lines:
            while line := lines.readline(2000):
                self._lines.append(line)
                logger.debug("mcp.stderr", server=self._server, line=line.rstrip())

    def said(self, secrets: Collection[str]) -> str:
        """The end of it, on one line, without the secrets it was given."""
        self._thread.join(1.0)
        text = " ".join("".join(self._lines).split())
        for secret in secrets:
            if secret:
                text = text.replace(secret, "***")
        return text[-LAST_WORDS:]


def _own_python(command: Sequence[str]) -> tuple[str, ...]:
    """The command, with `python` replaced by the one Detent runs in, which has the server's packages."""
    program, *arguments = command
    return (sys.executable if program in ("python", "python3") and sys.executable else program, *arguments)


def _first_error(error: BaseException) -> BaseException:
    """An error, or the first one of a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _error_name(error: BaseException) -> str:
    return type(_first_error(error)).__name__


class _Discreet(logging.Filter):
    """The SDK's own log lines may contain what a server sent, so they appear at DEBUG only."""

    def filter(self, record: logging.LogRecord) -> bool:
        return logging.getLogger(record.name).isEnabledFor(logging.DEBUG)


for _name in (
    "client",
    "mcp.client.client",
    "mcp.client.session",
    "mcp.client.streamable_http",
    "mcp.shared.jsonrpc_dispatcher",
):
    logging.getLogger(_name).addFilter(_Discreet())
