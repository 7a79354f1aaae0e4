"""Fetching stays outside of what only this machine can reach, unless the settings allow it."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trustme

from detent.adapters.project.addresses import Lookup, Reach, is_private, looked_up
from detent.adapters.project.http import Web
from detent.adapters.project.sandbox import Sandbox
from detent.engine.step_failures import Transient
from detent.engine.tools import ToolError

Answer = Callable[[str, dict[str, str]], bytes]


def ok(text: str) -> bytes:
    return f"HTTP/1.1 200 OK\r\ncontent-length: {len(text)}\r\nconnection: close\r\n\r\n{text}".encode()


def to(url: str) -> bytes:
    return f"HTTP/1.1 302 Found\r\nlocation: {url}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".encode()


@asynccontextmanager
async def served(
    answer: Answer, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"
) -> AsyncIterator[int]:
    """A real server on this machine; its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.strip().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        writer.write(answer(first.split()[1], headers))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, host, 0, ssl=tls)
    async with server:
        yield server.sockets[0].getsockname()[1]


def web(tmp_path: Path, reach: Reach) -> Web:
    (tmp_path / "root").mkdir(exist_ok=True)
    return Web(Sandbox(tmp_path / "root", tmp_path / "state"), reach=reach)


def names(**known: str | list[str]) -> Lookup:
    """A directory of names, as a name server would answer."""

    async def lookup(host: str, port: int) -> list[str]:
        said = known.get(host.replace(".", "_"))
        if said is None:
            return await looked_up(host, port)
        return [said] if isinstance(said, str) else said

    return lookup


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.8.8.8", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254",
        "100.64.0.1", "100.100.100.200", "168.63.129.16", "224.0.0.1", "255.255.255.255", "192.0.2.1", "::",
        "::1", "fe80::1", "fd00:ec2::254", "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1",
        "64:ff9b::7f00:1", "2002:7f00:1::", "2002:a9fe:a9fe::",
    ],
)  # fmt: skip
def test_an_address_of_this_machine_its_network_or_its_cloud_is_private(address: str) -> None:
    assert is_private(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", ["8.8.8.8", "1.1.1.1", "2606:4700:4700::1111", "64:ff9b::808:808"])
def test_an_address_of_the_web_is_public(address: str) -> None:
    assert not is_private(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/", "http://localhost/", "http://LOCALHOST/", "http://[::1]/", "http://0.0.0.0/",
        "http://2130706433/", "http://0x7f.1/", "http://127.1/", "http://169.254.169.254/latest/meta-data/",
        "http://[::ffff:127.0.0.1]/", "http://10.0.0.1:8080/x?key=hunter2", "http://intranet.example/",
        "http://both.example/",
    ],
)  # fmt: skip
async def test_private_addresses_are_refused_however_they_are_written(tmp_path: Path, url: str) -> None:
    """A name is as good as what it stands for, and one private address among public ones is too many."""
    lookup = names(intranet_example="192.168.7.7", both_example=["93.184.215.14", "10.0.0.9"])
    with pytest.raises(ToolError) as caught:
        await web(tmp_path, Reach(False, lookup)).fetch(url)
    assert caught.value.code == "private"
    assert "workflow.allow_private: [" in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "allowed", [True, ["127.0.0.1"], ["127.0.0.0/8"], ["here.example"], ["HERE.example."]]
)
async def test_what_the_settings_allow_is_fetched(tmp_path: Path, allowed: bool | list[str]) -> None:
    """By the name, the address or the network; the server still hears the name."""
    heard: list[str] = []

    def answer(path: str, headers: dict[str, str]) -> bytes:
        heard.append(headers["host"])
        return ok("inside")

    async with served(answer) as port:
        there = web(tmp_path, Reach(allowed, names(here_example="127.0.0.1")))
        assert (await there.fetch(f"http://here.example:{port}/"))["text"] == "inside"
    assert heard == [f"here.example:{port}"]


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
async def test_this_machine_is_fetched_from_where_a_step_asks_for_it(tmp_path: Path, host: str) -> None:
    """Unless the settings say otherwise; it may lead to itself."""

    def answer(path: str, headers: dict[str, str]) -> bytes:
        return to("/home") if path == "/" else ok("inside")

    async with served(answer) as port:
        assert (await web(tmp_path, Reach()).fetch(f"http://{host}:{port}/"))["text"] == "inside"
        for allowed in (False, ["10.0.0.0/8"]):
            with pytest.raises(ToolError, match="private"):
                await web(tmp_path, Reach(allowed)).fetch(f"http://{host}:{port}/")


async def test_what_a_step_asks_for_does_not_lead_to_this_machine_by_itself(tmp_path: Path) -> None:
    """Neither by a redirect nor by a name that only looks like it."""
    async with served(lambda *_: ok("inside")) as port:
        moved = served(lambda *_: to(f"http://localhost:{port}/"))
        async with moved as first:
            with pytest.raises(ToolError, match="private"):
                await web(tmp_path, Reach()).fetch(f"http://127.0.0.1:{first}/")
        there = web(tmp_path, Reach(lookup=names(printer_localhost="10.0.0.7")))
        with pytest.raises(ToolError, match=r"at 10\.0\.0\.7"):
            await there.fetch("http://printer.localhost/")


async def test_a_redirect_to_a_private_address_is_not_followed(tmp_path: Path) -> None:
    """The first host is allowed; where it leads is judged for itself."""
    asked: list[str] = []

    def inside(path: str, headers: dict[str, str]) -> bytes:
        asked.append(path)
        return ok("keys")

    async with served(inside) as private, served(lambda *_: to(f"http://127.0.0.1:{private}/keys")) as port:
        there = web(tmp_path, Reach(["shop.example"], names(shop_example="127.0.0.1")))
        with pytest.raises(ToolError) as caught:
            await there.fetch(f"http://shop.example:{port}/")
    assert caught.value.code == "private"
    assert asked == []


async def test_a_name_is_looked_up_once_so_that_it_cannot_change_its_meaning(tmp_path: Path) -> None:
    """What was judged is what is connected to."""
    answers = [["127.0.0.1"], ["127.0.0.2"]]
    asked: list[str] = []

    async def lookup(host: str, port: int) -> list[str]:
        asked.append(host)
        return answers.pop(0)

    async with served(lambda *_: ok("first")) as port:
        there = web(tmp_path, Reach(["127.0.0.1"], lookup))
        assert (await there.fetch(f"http://moving.example:{port}/"))["text"] == "first"
    assert asked == ["moving.example"]


async def test_of_several_addresses_the_next_is_tried_when_one_does_not_answer(tmp_path: Path) -> None:
    async with served(lambda *_: ok("second")) as port:
        there = web(tmp_path, Reach(True, names(two_example=["127.0.0.2", "127.0.0.1"])))
        assert (await there.fetch(f"http://two.example:{port}/"))["text"] == "second"


async def test_certificates_are_still_those_of_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = trustme.CA()
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("shop.example").configure_cert(tls)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    async with served(lambda *_: ok("safe"), tls) as port:
        there = web(tmp_path, Reach(True, names(shop_example="127.0.0.1", other_example="127.0.0.1")))
        assert (await there.fetch(f"https://shop.example:{port}/"))["text"] == "safe"
        with pytest.raises(Transient):
            await there.fetch(f"https://other.example:{port}/")


def has_ipv6() -> bool:
    """Whether this machine can be reached at an address of the newer kind."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 address of its own")
async def test_an_address_of_the_newer_kind(tmp_path: Path) -> None:
    async with served(lambda *_: ok("six"), host="::1") as port:
        assert (await web(tmp_path, Reach(["::1"])).fetch(f"http://[::1]:{port}/"))["text"] == "six"


async def test_a_name_nobody_knows_is_a_passing_failure(tmp_path: Path) -> None:
    async def lookup(host: str, port: int) -> list[str]:
        raise socket.gaierror(socket.EAI_NONAME, "not known")

    with pytest.raises(Transient, match=r"'nobody\.example' cannot be reached: it has no address"):
        await web(tmp_path, Reach(lookup=lookup)).fetch("http://nobody.example/")


async def test_a_proxy_is_asked_by_name_but_never_for_a_private_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where only the proxy can look names up, it is left to; what is seen to be private here is refused."""
    asked: list[str] = []

    async def lookup(host: str, port: int) -> list[str]:
        if host == "public.example":
            raise socket.gaierror(socket.EAI_NONAME, "not known")
        return ["10.0.0.1"]

    def answer(path: str, headers: dict[str, str]) -> bytes:
        asked.append(path)
        return ok("through")

    async with served(answer) as port:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{port}")
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")
        there = web(tmp_path, Reach(lookup=lookup))
        assert (await there.fetch("http://public.example/a"))["text"] == "through"
        with pytest.raises(ToolError, match="private"):
            await there.fetch("http://inner.example/b")
    assert asked == ["http://public.example/a"]


NOT_PUBLIC = """
    0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.0.0/29
    192.0.0.8/32 192.0.0.9/32 192.0.0.10/32 192.0.0.170/32 192.0.0.171/32 192.0.0.192/32 192.0.2.0/24
    192.88.99.0/24 192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4
    255.255.255.255/32 168.63.129.16/32 169.254.169.254/32
    ::/128 ::1/128 ::/96 ::7f00:1/128 ::ffff:0:0:0/96 64:ff9b:1::/48 100::/64 100:0:0:1::/64 2001::/23
    2001:1::1/128 2001:2::/48 2001:3::/32 2001:4:112::/48 2001:10::/28 2001:20::/28 2001:30::/28 2001:db8::/32
    3fff::/20 4000::/2 5f00::/16 8000::/1 fc00::/7 fd00:ec2::254/128 fe80::/10 fec0::/10 ff00::/8
    ::ffff:10.0.0.0/104 ::ffff:127.0.0.0/104 ::ffff:192.0.0.192/128 ::ffff:169.254.169.254/128
    64:ff9b::10.0.0.0/104 64:ff9b::127.0.0.1/128 64:ff9b::192.0.0.0/120 64:ff9b::169.254.169.254/128
    2002:a00::/24 2002:7f00::/24 2002:c0a8::/32 2002:a9fe:a9fe::/48 2002:c000:c0::/48
    2600::5efe:10.0.0.1/128 2600::200:5efe:192.168.1.1/128
"""
"""IANA's special-purpose networks, and ways to write such an address inside another."""
PUBLIC = """
    1.1.1.1/32 8.8.8.8/32 9.255.255.255/32 11.0.0.0/32 100.63.255.255/32 100.128.0.0/32 126.255.255.255/32
    128.0.0.0/32 172.15.255.255/32 172.32.0.0/32 191.255.255.255/32 192.0.1.0/32 192.31.196.1/32
    192.175.48.1/32 198.17.255.255/32 198.20.0.0/32 223.255.255.255/32
    2001:200::/32 2001:4860:4860::8888/128 2400::/12 2606:4700::1111/128 2620:4f:8000::/48 2a00::/12
    ::ffff:1.1.1.1/128 64:ff9b::8.8.8.8/128 2002:808:808::/48
"""


@pytest.mark.parametrize("network", NOT_PUBLIC.split())
def test_no_address_of_a_special_network_is_public(network):
    there = ipaddress.ip_network(network)
    for one in (there[0], there[-1], there[there.num_addresses // 2]):
        assert is_private(one), one


@pytest.mark.parametrize("network", PUBLIC.split())
def test_other_addresses_are_public(network):
    there = ipaddress.ip_network(network)
    for one in (there[0], there[-1], there[there.num_addresses // 2]):
        assert not is_private(one), one
