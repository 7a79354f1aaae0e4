"""The address of a store: as the settings say it, as people read it, as its library takes it."""

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
    """A store's place for people to read: a password in it is not for them."""
    return re.sub(r"^([a-zA-Z+]+://[^/@:]*):[^/@]*@", r"\1:***@", url)


def postgres_address(url: str) -> tuple[str, dict[str, str]]:
    """The URL as the server's library takes it, and the options in it that are ours."""
    address, _, query = url.partition("?")
    said = dict(parse_qsl(query, keep_blank_values=True))
    if "schema" not in said:
        return url, {}
    own = {"schema": said.pop("schema")}
    return f"{address}?{urlencode(said)}" if said else address, own
