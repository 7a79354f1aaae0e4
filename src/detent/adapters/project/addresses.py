"""Which network addresses a workflow may fetch from: public ones, this machine when a step names it, and
others the settings allow.

Otherwise a workflow's file, its inputs or a redirecting server could make this machine read what only it can
reach: its own services, its neighbours in the network, the keys a cloud gives to its machines. Names are
resolved here, once, and the connection is made to the result, so that a name cannot mean one address when it
is judged and another when it is used.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Iterable
from typing import Any
from urllib.parse import SplitResult, urlsplit

from detent.adapters.tls import tls_context
from detent.engine.step_failures import Transient
from detent.engine.tools import ToolError

SETTING = "workflow.allow_private"
"""The setting that lists the private addresses workflows may fetch from."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Lookup = Callable[[str, int], Awaitable[list[str]]]
"""Resolves a host and a port to addresses."""

_SPECIAL: tuple[Network, ...] = tuple(
    ipaddress.ip_network(one)
    for one in (
        # IANA's special-purpose registries, for addresses not reached over the internet. Written out because
        # Python's versions differ in which addresses they call public.
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
        "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15",
        "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
        "2001::/23", "2001:db8::/32", "3fff::/20",
        # A public number, but answered by the cloud a machine runs in.
        "168.63.129.16/32",
    )
)  # fmt: skip
_UNICAST = ipaddress.ip_network("2000::/3")
"""The only IPv6 addresses assigned to the public."""
_ISATAP = (0x00005EFE, 0x02005EFE)
"""Precedes an IPv4 address within the IPv6 address of a site-internal tunnel."""
_TRANSLATED = ipaddress.ip_network("64:ff9b::/96")
"""IPv6 addresses that end in the IPv4 address actually reached."""


async def looked_up(host: str, port: int) -> list[str]:
    """The addresses of a host, as the system resolves them."""
    results = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(result[4][0]) for result in results))


class Reach:
    """Decides which addresses may be fetched from."""

    def __init__(self, allowed: bool | Iterable[str] | None = None, lookup: Lookup = looked_up) -> None:
        """`allowed` names private hosts, addresses and networks, or is true for all of them, false for none.

        None allows only this machine, and only where a step itself names it.
        """
        self._all = allowed is True
        self._asked_for = allowed is None
        names = () if allowed is None or isinstance(allowed, bool) else tuple(allowed)
        networks = [(name, network_of(name)) for name in names]
        self._networks = [network for _, network in networks if network is not None]
        self._hosts = {name.lower().rstrip(".") for name, network in networks if network is None}
        self._lookup = lookup

    async def addresses(self, url: str, asked_for: str) -> list[str] | None:
        """The addresses to connect to; None when a proxy resolves the name itself.

        `asked_for` is the host named by the step, which may have redirected here. `ToolError` for a private
        address that is not allowed.
        """
        parts = urlsplit(url)
        host = str(parts.hostname)
        proxied = not is_here(host) and _has_proxy(parts)
        try:
            addresses = await self._lookup(host, parts.port or (443 if parts.scheme == "https" else 80))
        except (OSError, UnicodeError):
            if proxied:
                return None
            raise Transient(f"'{host}' cannot be reached: it has no address.") from None
        named_here = self._asked_for and host == asked_for and is_here(host)
        for address in addresses:
            if not (named_here and _address(address).is_loopback):
                self._judge(host, address)
        return None if proxied else addresses

    def _judge(self, host: str, text: str) -> None:
        address = _address(text)
        if self._all or not is_private(address) or host.lower().rstrip(".") in self._hosts:
            return
        if any(embedded in network for network in self._networks for embedded in _embedded(address)):
            return
        subject = f"'{host}' is" if host.strip("[]") == text else f"'{host}' is at {text},"
        raise ToolError(
            "private",
            f"{subject} a private address, which workflows do not fetch from by themselves. To allow it, "
            f"list it in the project's settings: `{SETTING}: [{host}]`.",
        )


def is_private(address: Address) -> bool:
    """Whether an address belongs to this machine, its network or its cloud, or is not assigned."""
    return any(
        any(candidate in network for network in _SPECIAL)
        or (candidate.version == 6 and candidate not in _UNICAST)
        for candidate in _embedded(address)
    )


def network_of(text: str) -> Network | None:
    """The network a text stands for; None when it is a host name."""
    try:
        return ipaddress.ip_network(text.strip("[]"), strict=False)
    except ValueError:
        return None


def _address(text: str) -> Address:
    return ipaddress.ip_address(text.partition("%")[0])  # without the interface


def _embedded(address: Address) -> list[Address]:
    """The addresses an address stands for: itself, and any IPv4 address embedded in it."""
    if isinstance(address, ipaddress.IPv4Address):
        return [address]
    if address.ipv4_mapped is not None:
        return [address.ipv4_mapped]  # another notation for it
    if address in _TRANSLATED:
        return [ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)]
    inside = [address.sixtofour, *(address.teredo or ())]
    if int(address) >> 32 & 0xFFFFFFFF in _ISATAP:
        inside.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return [address, *(ipv4 for ipv4 in inside if ipv4 is not None)]


def is_here(host: str) -> bool:
    """Whether a host is this machine by name or number, which needs no proxy."""
    try:
        return _address(host).is_loopback
    except ValueError:
        return host.lower().rstrip(".").rpartition(".")[2] == "localhost"


def _has_proxy(parts: SplitResult) -> bool:
    """Whether the environment names a proxy for a URL."""
    from urllib.request import getproxies, proxy_bypass

    proxies = getproxies()
    host = parts.netloc.rpartition("@")[2]
    return bool(proxies.get(parts.scheme) or proxies.get("all")) and not proxy_bypass(host)


def pinned(addresses: list[str]) -> Any:
    """A transport for httpx2 that tries these addresses in turn; certificates must be for the host name."""
    import httpx2

    class Pinned(httpx2.AsyncHTTPTransport):
        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            url = request.url
            extensions = {**request.extensions, "sni_hostname": url.raw_host.decode("ascii")}
            for remaining, address in zip(range(len(addresses) - 1, -1, -1), addresses, strict=True):
                pinned_request = httpx2.Request(
                    request.method, url.copy_with(host=address), headers=request.headers,
                    stream=request.stream, extensions=extensions,
                )  # fmt: skip
                try:
                    return await super().handle_async_request(pinned_request)
                except (httpx2.ConnectError, httpx2.ConnectTimeout):
                    if not remaining:
                        raise
            raise httpx2.ConnectError("It has no address.")

    return Pinned(verify=tls_context())
