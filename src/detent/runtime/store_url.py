"""The address of a store: from the settings, for display, and for its library."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import parse_qsl, urlencode

from detent.runtime.settings import Settings

DEFAULT_STORE = ".detent/detent.db"


def store_url(settings: Settings) -> str:
    """The store's address from the settings, or the default one."""
    url = settings.get("store")
    if isinstance(url, Mapping):
        url = url.get("url")
    return str(url or DEFAULT_STORE)


def shown_url(url: str) -> str:
    """A store's address for display, with its password masked."""
    return re.sub(r"^([a-zA-Z+]+://[^/@:]*):[^/@]*@", r"\1:***@", url)


def postgres_address(url: str) -> tuple[str, dict[str, str]]:
    """The URL for the server's library, without Detent's own options, and those options."""
    address, _, query = url.partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    if "schema" not in options:
        return url, {}
    own = {"schema": options.pop("schema")}
    return f"{address}?{urlencode(options)}" if options else address, own
