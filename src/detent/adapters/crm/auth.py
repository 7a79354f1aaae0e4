"""Authentication with a CRM: none, by user and password, or by a token fetched with them."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, Protocol

from detent.adapters.crm.faults import CrmFault
from detent.adapters.crm.settings import CrmSettings

LIFETIME = 3600.0
"""Seconds a token is valid unless the CRM says otherwise."""

EARLY = 300.0
"""Seconds before its expiry at which a token is renewed."""

Fetch = Callable[[Mapping[str, str]], Awaitable[Any]]
"""Sends a form to the token path and returns the JSON of the answer."""


class Credentials(Protocol):
    """One kind of authentication, as a client uses it."""

    async def headers(self) -> dict[str, str]:
        """Headers for the next request."""

    async def refused(self, headers: Mapping[str, str]) -> bool:
        """Note that these headers were not accepted; whether others are available."""


def credentials(settings: CrmSettings, fetch: Fetch, clock: Callable[[], float]) -> Credentials:
    """The kind of authentication the settings name."""
    if settings.auth == "basic":
        return Basic(settings)
    if settings.auth == "token":
        return Token(settings, fetch, clock)
    return Nobody()


class Nobody:
    """No authentication."""

    async def headers(self) -> dict[str, str]:
        """None."""
        return {}

    async def refused(self, headers: Mapping[str, str]) -> bool:
        """No other headers are available."""
        return False


class Basic:
    """User and password with every request."""

    def __init__(self, settings: CrmSettings) -> None:
        self._settings = settings

    async def headers(self) -> dict[str, str]:
        """User and password."""
        user, password = _secrets(self._settings)
        both = base64.b64encode(f"{user}:{password}".encode()).decode()
        return {"authorization": f"Basic {both}"}

    async def refused(self, headers: Mapping[str, str]) -> bool:
        """No other headers are available."""
        return False


class _Fetched(NamedTuple):
    token: str
    until: float
    """When to fetch the next one."""


class Token:
    """A token, fetched with user and password and renewed before it expires; one renewal at a time."""

    def __init__(self, settings: CrmSettings, fetch: Fetch, clock: Callable[[], float]) -> None:
        self._settings = settings
        self._fetch = fetch
        self._clock = clock
        self._fetched: _Fetched | None = None
        self._lock = asyncio.Lock()

    async def headers(self) -> dict[str, str]:
        """The token, fetched if there is no valid one."""
        async with self._lock:
            if self._fetched is None or self._clock() >= self._fetched.until:
                self._fetched = None
                self._fetched = await self._fetch_one()
            return _bearer(self._fetched.token)

    async def refused(self, headers: Mapping[str, str]) -> bool:
        """Forget the token, unless it was renewed meanwhile."""
        async with self._lock:
            if self._fetched is not None and _bearer(self._fetched.token) == dict(headers):
                self._fetched = None
            return True

    async def _fetch_one(self) -> _Fetched:
        user, password = _secrets(self._settings)
        began = self._clock()
        answer = await self._fetch({"grant_type": "password", "username": user, "password": password})
        fields = answer if isinstance(answer, Mapping) else {}
        token = fields.get("access_token", fields.get("token"))
        if not isinstance(token, str) or not token or not token.isprintable() or not token.isascii():
            raise CrmFault("bad_response", f"{self._settings.host} gave no token")
        lifetime = fields.get("expires_in")
        if isinstance(lifetime, str) and lifetime.isdecimal():
            lifetime = int(lifetime)
        if isinstance(lifetime, bool) or not isinstance(lifetime, int | float) or lifetime <= 0:
            lifetime = LIFETIME
        # A token with a shorter life is renewed half-way.
        early = EARLY if lifetime > EARLY else lifetime / 2
        return _Fetched(token, began + lifetime - early)


def _bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def _secrets(settings: CrmSettings) -> tuple[str, str]:
    values = []
    for name in (settings.user_env, settings.password_env):
        value = os.environ.get(name)
        if not value:
            raise CrmFault("auth", f"the environment variable {name} is not set")
        values.append(value)
    return values[0], values[1]
