"""Hosts in URLs: how a message names one, and whether it is this machine."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit


def host_of(url: str) -> str:
    """Host and port of a URL, without any credentials, path or query in it."""
    parts = urlsplit(url)
    return f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)


def on_this_machine(url: str) -> bool:
    """Whether a URL leads to this machine, where no proxy is involved and plain HTTP is safe."""
    return is_loopback(urlsplit(url).hostname or "")


def is_loopback(host: str) -> bool:
    """Whether a name or address stands for this machine."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"
