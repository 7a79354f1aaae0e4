"""The client that posts to one address, over real sockets."""

from __future__ import annotations

import asyncio
import base64
import ssl
from contextlib import asynccontextmanager
from typing import NamedTuple

import httpx2
import pytest
import trustme

from detent.adapters.http_body import whole
from detent.adapters.http_client import HttpClient, HttpFailure, proxy_of_environment

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi"

SLOW = b"HTTP/1.1 408 Too Slow\r\ncontent-length: 0\r\n\r\n"


class Request(NamedTuple):
    """A request as it came, and the number of its connection."""

    connection: int
    line: str
    headers: dict[str, str]
    body: bytes


class Peer:
    """A server, or a proxy, that sends what a test gives it."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = list(answers)
        self.requests: list[Request] = []
        self.connections: list[asyncio.StreamWriter] = []
        self.closed = asyncio.Queue[int]()
        """Connections that the client has closed."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.append(writer)
        number = len(self.connections)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                self.requests.append(Request(number, head[0], headers, body))
                writer.write(self.answers.pop(0) if self.answers else OK)
        except (asyncio.IncompleteReadError, ConnectionError):
            self.closed.put_nowait(number)
            writer.close()


@asynccontextmanager
async def listening(peer: Peer, tls: ssl.SSLContext | None = None):
    server = await asyncio.start_server(peer.serve, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        for connection in peer.connections:
            connection.transport.abort()
        server.close()


@asynccontextmanager
async def client(url: str, **options):
    made = HttpClient(url, **{"headers": {"x-always": "1"}, "connect_timeout": 5.0, **options})
    try:
        yield made
    finally:
        await made.aclose()


async def posted(made: HttpClient, body: bytes = b"hello", **headers: str) -> bytes:
    async with made.post(body, headers) as response:
        return await whole(response, 1000)


@pytest.fixture(autouse=True)
def no_proxy_of_this_machine(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


class TestConnections:
    async def test_one_connection_serves_one_request_after_another(self):
        peer = Peer()
        async with listening(peer) as port, client(f"http://127.0.0.1:{port}/v1/x?a=b") as made:
            assert await posted(made, b"one", authorization="Bearer k") == b"hi"
            assert await posted(made, b"two") == b"hi"
        first, second = peer.requests
        assert (first.connection, second.connection) == (1, 1)
        assert first.line == "POST /v1/x?a=b HTTP/1.1"
        assert (first.body, second.body) == (b"one", b"two")
        assert first.headers == {
            "host": f"127.0.0.1:{port}", "x-always": "1", "content-length": "3", "authorization": "bearer k",
        }  # fmt: skip
        assert "authorization" not in second.headers

    async def test_requests_side_by_side_have_a_connection_each(self):
        peer = Peer()
        async with listening(peer) as port, client(f"http://127.0.0.1:{port}/") as made:
            async with made.post(b"", {}) as first, made.post(b"", {}) as second:
                assert [await whole(first, 10), await whole(second, 10)] == [b"hi", b"hi"]
            assert [request.connection for request in peer.requests] == [1, 2]

    async def test_no_more_connections_are_open_than_allowed(self):
        peer = Peer()
        async with listening(peer) as port, client(f"http://127.0.0.1:{port}/", most_connections=1) as made:
            assert await asyncio.gather(*(posted(made) for _ in range(3))) == [b"hi"] * 3
        assert [request.connection for request in peer.requests] == [1, 1, 1]

    @pytest.mark.parametrize(("stray", "closing"), [(b"", True), (SLOW, False), (SLOW, True)])
    async def test_a_connection_that_the_server_ended_or_spoke_on_is_not_used_again(self, stray, closing):
        peer = Peer()
        async with listening(peer) as port, client(f"http://127.0.0.1:{port}/") as made:
            await posted(made)
            assert made.idle == 1
            peer.connections[0].write(stray)
            if closing:
                peer.connections[0].close()
            while made.idle:
                await asyncio.sleep(0)
            assert await posted(made) == b"hi"
        assert [request.connection for request in peer.requests] == [1, 2]

    async def test_a_connection_is_closed_with_the_block_that_left_its_response_unread(self):
        peer = Peer(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf")
        async with listening(peer) as port, client(f"http://127.0.0.1:{port}/") as made:
            async with made.post(b"", {}) as response:
                assert response.status_code == 200
            assert await peer.closed.get() == 1
            assert await posted(made) == b"hi"
        assert peer.requests[-1].connection == 2

    async def test_cancelling_closes_the_connection(self):
        peer = Peer(b"")
        async with listening(peer) as port, client(f"http://127.0.0.1:{port}/") as made:
            waiting = asyncio.ensure_future(posted(made))
            while not peer.requests:
                await asyncio.sleep(0)
            waiting.cancel()
            assert await peer.closed.get() == 1
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert await posted(made) == b"hi"

    async def test_a_connection_that_ended_while_others_were_used_is_closed(self):
        peer = Peer()
        async with listening(peer) as port, client(f"http://127.0.0.1:{port}/") as made:
            async with made.post(b"", {}) as first, made.post(b"", {}) as second:
                assert [await whole(first, 10), await whole(second, 10)] == [b"hi", b"hi"]
            peer.connections[1].write_eof()
            while made.idle > 1:
                await asyncio.sleep(0)
            await posted(made)
            assert peer.requests[-1].connection == 1
            assert await peer.closed.get() == 2

    async def test_closing_the_client_closes_its_connections(self):
        peer = Peer()
        async with listening(peer) as port:
            async with client(f"http://127.0.0.1:{port}/") as made:
                await posted(made)
            assert await peer.closed.get() == 1


class TestResponses:
    async def test_a_repeated_header_is_one_list(self):
        peer = Peer(b"HTTP/1.1 200 OK\r\nX-Two: a\r\nx-two: b\r\ncontent-length: 0\r\n\r\n")
        async with (
            listening(peer) as port,
            client(f"http://127.0.0.1:{port}/") as made,
            made.post(b"", {}) as response,
        ):
            assert response.headers["x-two"] == "a, b"

    async def test_a_large_request_and_a_large_response_pass(self):
        large = b"x" * 3_000_000
        peer = Peer(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(large), large))
        async with (
            listening(peer) as port,
            client(f"http://127.0.0.1:{port}/") as made,
            made.post(large, {}) as response,
        ):
            assert await whole(response, 4_000_000) == large
        assert peer.requests[0].body == large

    async def test_a_redirect_is_an_answer_and_a_cookie_is_not_kept(self):
        peer = Peer(b"HTTP/1.1 307 X\r\nlocation: /elsewhere\r\nset-cookie: a=b\r\ncontent-length: 0\r\n\r\n")
        async with listening(peer) as port, client(f"http://127.0.0.1:{port}/") as made:
            async with made.post(b"", {}) as response:
                assert response.status_code == 307
            await posted(made)
        assert len(peer.requests) == 2
        assert "cookie" not in peer.requests[1].headers

    @pytest.mark.parametrize(
        "garbage", [b"SMTP ready\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n"]
    )
    async def test_what_is_no_http_is_a_failure(self, garbage):
        async with listening(Peer(garbage)) as port, client(f"http://127.0.0.1:{port}/") as made:
            with pytest.raises(HttpFailure, match="RemoteProtocolError"):
                await posted(made)

    async def test_nobody_listening_is_a_failure(self):
        async with listening(Peer()) as port:
            pass
        async with client(f"http://127.0.0.1:{port}/") as made:
            with pytest.raises(HttpFailure, match="ConnectError"):
                await posted(made)


class TestCredentials:
    async def test_credentials_in_the_url_are_sent_as_basic_authentication(self):
        peer = Peer()
        async with listening(peer) as port, client(f"http://me:p%40ss@127.0.0.1:{port}/") as made:
            await posted(made, authorization="Bearer other")
        (request,) = peer.requests
        sent = request.headers["authorization"]
        assert sent == f"basic {base64.b64encode(b'me:p@ss').decode().lower()}"
        assert request.line == "POST / HTTP/1.1"
        assert "me" not in request.headers["host"]

    async def test_a_key_with_a_line_break_adds_no_header(self):
        peer = Peer()
        async with listening(peer) as port, client(f"http://127.0.0.1:{port}/") as made:
            with pytest.raises(HttpFailure, match="LocalProtocolError"):
                await posted(made, authorization="Bearer a\r\nx-evil: 1")
        assert peer.requests == []


class TestTls:
    @pytest.fixture
    def authority(self):
        return trustme.CA()

    @asynccontextmanager
    async def served(self, peer: Peer, authority: trustme.CA, name: str):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert(name).configure_cert(context)
        async with listening(peer, context) as port, client(f"https://localhost:{port}/") as made:
            yield made

    async def test_a_certificate_of_a_trusted_authority_is_accepted(self, authority, monkeypatch, tmp_path):
        authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        peer = Peer()
        async with self.served(peer, authority, "localhost") as made:
            assert [await posted(made), await posted(made)] == [b"hi", b"hi"]
        assert [request.connection for request in peer.requests] == [1, 1]

    async def test_an_unknown_authority_is_refused(self, authority):
        peer = Peer()
        async with self.served(peer, authority, "localhost") as made:
            with pytest.raises(HttpFailure, match="ConnectError"):
                await posted(made)
        assert peer.requests == []

    async def test_a_certificate_for_another_host_is_refused(self, authority, monkeypatch, tmp_path):
        authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        peer = Peer()
        async with self.served(peer, authority, "other.example") as made:
            with pytest.raises(HttpFailure, match="ConnectError"):
                await posted(made)
        assert peer.requests == []


class TestProxies:
    async def test_the_proxy_of_the_environment_is_asked_in_place_of_the_server(self, monkeypatch):
        proxy = Peer()
        async with listening(proxy) as port:
            monkeypatch.setenv("http_proxy", f"http://me:secret@127.0.0.1:{port}")
            async with client("http://models.example/v1") as made:
                assert await posted(made) == b"hi"
        (request,) = proxy.requests
        assert request.line == "POST http://models.example/v1 HTTP/1.1"
        assert request.headers["proxy-authorization"].startswith("basic ")

    async def test_a_proxy_only_tunnels_what_goes_over_tls(self, monkeypatch):
        proxy = Peer(b"HTTP/1.1 403 No\r\ncontent-length: 0\r\n\r\n")
        async with listening(proxy) as port:
            monkeypatch.setenv("https_proxy", f"127.0.0.1:{port}")
            async with client("https://models.example/v1") as made:
                with pytest.raises(HttpFailure, match="ProxyError"):
                    await posted(made, authorization="Bearer secret")
        (request,) = proxy.requests
        assert request.line == "CONNECT models.example:443 HTTP/1.1"
        assert "authorization" not in request.headers

    async def test_an_environment_that_is_not_trusted_names_no_proxy(self, monkeypatch):
        proxy, peer = Peer(), Peer()
        async with listening(proxy) as proxy_port, listening(peer) as port:
            monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy_port}")
            async with client(f"http://127.0.0.1:{port}/", trust_env=False) as made:
                await posted(made)
        assert (len(proxy.requests), len(peer.requests)) == (0, 1)

    @pytest.mark.parametrize(
        ("exempt", "used"),
        [
            ("models.example", False),
            (".example", False),
            ("models.example:80", True),
            ("models.example:8000", False),
            ("*", False),
            ("other.example, third.example", True),
        ],
    )
    def test_hosts_that_the_environment_exempts_have_no_proxy(self, monkeypatch, exempt, used):
        monkeypatch.setenv("all_proxy", "http://proxy.example:3128")
        monkeypatch.setenv("no_proxy", exempt)
        proxy = proxy_of_environment(httpx2.URL("http://models.example:8000/v1"))
        assert (proxy is not None) is used
