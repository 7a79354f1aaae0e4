"""Which addresses of the network a workflow may fetch from: public ones, this machine when it is asked for by
name, and others the settings allow.

A workflow's file, its inputs or a server that redirects could otherwise have this machine read what only it
can reach: its own services, the neighbours in its network, the keys a cloud gives to its machines. Names are
looked up here, once, and the connection is made to what was found, so that a name cannot mean one thing when
it is judged and another when it is used.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Iterable
from typing import Any
from urllib.parse import SplitResult, urlsplit

from detent.engine.step_failures import Transient
from detent.engine.tools import ToolError

SETTING = "workflow.allow_private"
"""Where a project says which private addresses may be fetched from."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Lookup = Callable[[str, int], Awaitable[list[str]]]
"""From a host and a port to its addresses."""

_SPECIAL: tuple[Network, ...] = tuple(
    ipaddress.ip_network(one)
    for one in (
        # IANA's special-purpose registries, as far as an address in them is not reached over the internet.
        # Written out, as what Python takes for public differs between its versions.
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
        "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15",
        "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
        "2001::/23", "2001:db8::/32", "3fff::/20",
        # Public by number, but answered by the cloud a machine stands in.
        "168.63.129.16/32",
    )
)  # fmt: skip
_UNICAST = ipaddress.ip_network("2000::/3")
"""The only IPv6 addresses given out to the public."""
_ISATAP = (0x00005EFE, 0x02005EFE)
"""What stands before an IPv4 address in the IPv6 address of a tunnel within a site."""
_TRANSLATED = ipaddress.ip_network("64:ff9b::/96")
"""IPv6 addresses whose end is the IPv4 address that is reached."""


async def looked_up(host: str, port: int) -> list[str]:
    """The addresses of a host, as the system finds them."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(one[4][0]) for one in found))


class Reach:
    """What may be fetched from."""

    def __init__(self, allowed: bool | Iterable[str] | None = None, lookup: Lookup = looked_up) -> None:
        """`allowed` names private hosts, addresses and networks, or is true for all of them, false for none.

        Nothing said allows this machine where a step itself asks for it, and nothing else.
        """
        self._all = allowed is True
        self._asked_for = allowed is None
        said = () if allowed is None or isinstance(allowed, bool) else tuple(allowed)
        networks = [(one, network_of(one)) for one in said]
        self._networks = [network for _, network in networks if network is not None]
        self._hosts = {one.lower().rstrip(".") for one, network in networks if network is None}
        self._lookup = lookup

    async def addresses(self, url: str, asked_for: str) -> list[str] | None:
        """The addresses to connect to; None where a proxy is asked, which finds them itself.

        `asked_for` is the host a step has named, where that has led here. `ToolError` for a private address
        that is not allowed.
        """
        parts = urlsplit(url)
        host = str(parts.hostname)
        proxied = not is_here(host) and _has_proxy(parts)
        try:
            found = await self._lookup(host, parts.port or (443 if parts.scheme == "https" else 80))
        except (OSError, UnicodeError):
            if proxied:
                return None
            raise Transient(f"'{host}' cannot be reached: it has no address.") from None
        here = self._asked_for and host == asked_for and is_here(host)
        for one in found:
            if not (here and _address(one).is_loopback):
                self._judge(host, one)
        return None if proxied else found

    def _judge(self, host: str, said: str) -> None:
        address = _address(said)
        if self._all or not is_private(address) or host.lower().rstrip(".") in self._hosts:
            return
        if any(one in network for network in self._networks for one in _meant(address)):
            return
        at = f"'{host}' is" if host.strip("[]") == said else f"'{host}' is at {said},"
        raise ToolError(
            "private",
            f"{at} a private address, which workflows do not fetch from by themselves. To allow it, list it "
            f"in the project's settings: `{SETTING}: [{host}]`.",
        )


def is_private(address: Address) -> bool:
    """Whether an address is one of this machine, its network or the cloud it stands in, or of nobody."""
    return any(
        any(one in network for network in _SPECIAL) or (one.version == 6 and one not in _UNICAST)
        for one in _meant(address)
    )


def network_of(said: str) -> Network | None:
    """The network a text means; None when it is the name of a host."""
    try:
        return ipaddress.ip_network(said.strip("[]"), strict=False)
    except ValueError:
        return None


def _address(said: str) -> Address:
    return ipaddress.ip_address(said.partition("%")[0])  # without the interface it is reached by


def _meant(address: Address) -> list[Address]:
    """The addresses that one stands for: itself, and those of the older kind that are inside it."""
    if isinstance(address, ipaddress.IPv4Address):
        return [address]
    if address.ipv4_mapped is not None:
        return [address.ipv4_mapped]  # another way to write it
    if address in _TRANSLATED:
        return [ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)]
    inside = [address.sixtofour, *(address.teredo or ())]
    if int(address) >> 32 & 0xFFFFFFFF in _ISATAP:
        inside.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return [address, *(one for one in inside if one is not None)]


def is_here(host: str) -> bool:
    """Whether a host is this machine by its name or number, for which no proxy is asked."""
    try:
        return _address(host).is_loopback
    except ValueError:
        return host.lower().rstrip(".").rpartition(".")[2] == "localhost"


def _has_proxy(parts: SplitResult) -> bool:
    """Whether the environment names a proxy for an address."""
    from urllib.request import getproxies, proxy_bypass

    there = getproxies()
    asked = parts.netloc.rpartition("@")[2]
    return bool(there.get(parts.scheme) or there.get("all")) and not proxy_bypass(asked)


def pinned(addresses: list[str]) -> Any:
    """A transport for httpx2 that connects to these addresses, in turn; certificates are of the name."""
    import httpx2

    class Pinned(httpx2.AsyncHTTPTransport):
        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            url = request.url
            named = {**request.extensions, "sni_hostname": url.raw_host.decode("ascii")}
            for left, address in zip(range(len(addresses) - 1, -1, -1), addresses, strict=True):
                there = httpx2.Request(
                    request.method, url.copy_with(host=address), headers=request.headers,
                    stream=request.stream, extensions=named,
                )  # fmt: skip
                try:
                    return await super().handle_async_request(there)
                except (httpx2.ConnectError, httpx2.ConnectTimeout):
                    if not left:
                        raise
            raise httpx2.ConnectError("It has no address.")

    return Pinned()
