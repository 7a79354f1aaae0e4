"""HTTP requests to one address, over connections that stay open.

For a server that is asked again and again. HTTP itself is httpcore2's, on which httpx2 stands too, over the
event loop's own streams: httpx2's client takes more than twice as long for a request, for what one fixed
address does not need. A redirect is an answer like any other, and no cookie is kept.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any
from urllib.request import getproxies, proxy_bypass

import httpcore2
import httpx2

from detent.adapters.tls import tls_context

MOST_CONNECTIONS = 100
MOST_IDLE = 20
"""Connections that wait for the next request."""
LONGEST_IDLE = 5.0
"""Seconds for which a connection waits."""
EYEBALLS = 0.25
"""Seconds after which the next address of a host is tried beside the one before it."""

_FAILURES = (
    httpcore2.NetworkError,
    httpcore2.ProtocolError,
    httpcore2.ProxyError,
    httpcore2.TimeoutException,
    httpcore2.UnsupportedProtocol,
)


class HttpFailure(Exception):
    """The server could not be reached, or broke off. The text says how, and holds nothing that was sent."""


class HttpResponse:
    """A response whose body is still to be read."""

    __slots__ = ("_response", "headers", "status_code")

    def __init__(self, response: httpcore2.Response) -> None:
        self._response = response
        self.status_code = response.status
        self.headers: dict[str, str] = {}
        """By their names in lower case; the values of a repeated one are joined by commas."""
        for raw_name, raw_value in response.headers:
            name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
            self.headers[name] = f"{self.headers[name]}, {value}" if name in self.headers else value

    def aiter_raw(self) -> AsyncIterator[bytes]:
        """The body as it arrives."""
        stream = self._response.stream
        assert isinstance(stream, AsyncIterable)
        return aiter(stream)


class HttpClient:
    """Posts to one URL.

    With `trust_env`, the proxies and certificate authorities that the environment names are used. Credentials
    in the URL are sent as basic authentication.
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str],
        connect_timeout: float,
        trust_env: bool = True,
        most_connections: int = MOST_CONNECTIONS,
    ) -> None:
        parsed = httpx2.URL(url)
        self._url = _address(parsed)
        self._timeouts = {"connect": connect_timeout}
        self._headers = [(b"host", parsed.netloc), *_encoded(headers)]
        self._credentials: list[tuple[bytes, bytes]] = []
        if parsed.username or parsed.password:
            pair = base64.b64encode(f"{parsed.username}:{parsed.password}".encode())
            self._credentials = [(b"authorization", b"Basic " + pair)]
        self._factory = httpcore2.AsyncConnectionPool(
            ssl_context=tls_context(trust_env),
            proxy=proxy_of_environment(parsed) if trust_env else None,
            keepalive_expiry=LONGEST_IDLE,
            network_backend=_Network(),
        )
        """Makes connections, to the server or through a proxy. They are kept here, as all of them lead to one
        address: the pool would compare addresses and look through its queues at every request."""
        self._idle: list[httpcore2.AsyncConnectionInterface] = []
        """The one used last at the end, so that the others grow old and are closed."""
        self._free = asyncio.Semaphore(most_connections)

    @asynccontextmanager
    async def post(self, content: bytes, headers: Mapping[str, str]) -> AsyncIterator[HttpResponse]:
        """Send a request; its response can be read within the block.

        Raises:
            HttpFailure: the server could not be reached, or broke off, in or before the block.
        """
        request = httpcore2.Request(
            "POST",
            self._url,
            headers=[
                *self._headers,
                (b"content-length", b"%d" % len(content)),
                *(self._credentials or _encoded(headers)),
            ],
            content=content,
            extensions={"timeout": self._timeouts},
        )
        try:
            async with self._free:
                connection = await self._connection()
                try:
                    response = await connection.handle_async_request(request)
                    try:
                        yield HttpResponse(response)
                    finally:
                        await response.aclose()
                finally:
                    await self._keep(connection)
        except _FAILURES as error:
            raise HttpFailure(type(error).__name__) from error

    @property
    def idle(self) -> int:
        """Connections that could serve the next request."""
        return sum(not connection.has_expired() for connection in self._idle)

    async def _connection(self) -> httpcore2.AsyncConnectionInterface:
        """The connection that was used last, if it is still open; otherwise a new one."""
        while self._idle:
            connection = self._idle.pop()
            if not connection.has_expired():
                return connection
            await connection.aclose()
        return self._factory.create_connection(self._url.origin)

    async def _keep(self, connection: httpcore2.AsyncConnectionInterface) -> None:
        """Keep a connection for the next request. One that is still owed a part of a response has closed."""
        while self._idle and self._idle[0].has_expired():  # the oldest, to which no request may come any more
            await self._idle.pop(0).aclose()
        if connection.is_idle() and not connection.is_closed() and len(self._idle) < MOST_IDLE:
            self._idle.append(connection)
        else:
            await connection.aclose()

    async def aclose(self) -> None:
        """Close the connections."""
        while self._idle:
            await self._idle.pop().aclose()


def proxy_of_environment(url: httpx2.URL) -> httpcore2.Proxy | None:
    """The proxy that the environment names for an address; None where there is none."""
    proxies = getproxies()
    named = proxies.get(url.scheme) or proxies.get("all")
    if not named or proxy_bypass(url.host) or proxy_bypass(url.netloc.decode("ascii")):
        return None
    proxy = httpx2.Proxy(named if "://" in named else f"http://{named}")
    return httpcore2.Proxy(_address(proxy.url), auth=proxy.raw_auth, headers=proxy.headers.raw)


def _address(url: httpx2.URL) -> httpcore2.URL:
    return httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)


def _encoded(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("ascii"), value.encode("ascii")) for name, value in headers.items()]


# -- the network --------------------------------------------------------------------------------------------


class _Reader(asyncio.StreamReader):
    """A reader that knows what has come and was not read: on an idle connection nothing should."""

    unread = 0
    ended = False

    def feed_data(self, data: Any) -> None:
        self.unread += len(data)
        super().feed_data(data)

    def feed_eof(self) -> None:
        self.ended = True
        super().feed_eof()


class _Connection(httpcore2.AsyncNetworkStream):
    """A connection of asyncio, as httpcore2 wants it."""

    def __init__(self, reader: _Reader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        try:
            async with _limit(timeout):
                data = await self._reader.read(max_bytes)
        except TimeoutError as error:
            raise httpcore2.ReadTimeout from error
        except OSError as error:
            raise httpcore2.ReadError from error
        self._reader.unread -= len(data)
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        if not buffer:
            return
        try:
            async with _limit(timeout):
                self._writer.write(buffer)
                await self._writer.drain()
        except TimeoutError as error:
            raise httpcore2.WriteTimeout from error
        except OSError as error:
            raise httpcore2.WriteError from error

    async def aclose(self) -> None:
        # Nothing that matters is left to be sent, and a server that takes nothing must not hold it open.
        self._writer.transport.abort()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.AsyncNetworkStream:
        try:
            async with asyncio.timeout(timeout):
                await self._writer.start_tls(ssl_context, server_hostname=server_hostname)
        except BaseException as error:
            await self.aclose()
            raise _connecting(error) from error
        return self

    def get_extra_info(self, info: str) -> Any:
        if info == "is_readable":
            return bool(self._reader.unread or self._reader.ended or self._writer.is_closing())
        return self._writer.get_extra_info(info)


class _Network(httpcore2.AsyncNetworkBackend):
    """Connections of the running event loop."""

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        loop = asyncio.get_running_loop()
        reader = _Reader(loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        try:
            async with asyncio.timeout(timeout):
                transport, _ = await loop.create_connection(
                    lambda: protocol, host, port, happy_eyeballs_delay=EYEBALLS
                )
        except OSError as error:
            raise _connecting(error) from error
        return _Connection(reader, asyncio.StreamWriter(transport, protocol, reader, loop))


def _limit(seconds: float | None) -> AbstractAsyncContextManager[object]:
    return nullcontext() if seconds is None else asyncio.timeout(seconds)


def _connecting(error: BaseException) -> BaseException:
    """A failure to connect, as httpcore2 names it."""
    if isinstance(error, TimeoutError):
        return httpcore2.ConnectTimeout()
    return httpcore2.ConnectError() if isinstance(error, OSError) else error
