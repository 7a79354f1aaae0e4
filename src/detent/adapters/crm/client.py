"""A client of a CRM: one request in, its answer in our names or a `CrmFault` out.

TLS is always verified and redirects are never followed, as both could leak secrets. A client belongs to one
event loop.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from detent.adapters.crm.auth import credentials
from detent.adapters.crm.faults import CrmFault
from detent.adapters.crm.settings import DEVICE, RECEIPT, TICKET, CrmSettings
from detent.adapters.hosts import on_this_machine
from detent.adapters.http_body import IDENTITY, BodyEncoded, BodyTooLarge, whole
from detent.adapters.tls import tls_context
from detent.kernel.errors import IntegrationMissing

if TYPE_CHECKING:
    import httpx2

LARGEST = 1_000_000
"""Bytes of an answer that are read."""

WAITING_HELPS = frozenset({408, 425, 429, 503})
"""The CRM did not accept the request now, but may later."""

UNDECIDED = frozenset({409, 500, 502, 504})
"""It is not known whether a request that changes something was carried out."""


class Answer(NamedTuple):
    """A CRM's answer."""

    status: int
    body: Any


class CrmClient:
    """The CRM the settings describe."""

    def __init__(self, settings: CrmSettings, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.settings = settings
        self._credentials = credentials(settings, self._fetch_token, clock)
        self._http: httpx2.AsyncClient | None = None

    async def close(self) -> None:
        """Close the connections."""
        if self._http is not None:
            await self._http.aclose()
            self._http = None

    async def device(self, serial: str) -> dict[str, Any] | None:
        """What the CRM knows about a device, in our names; None when it does not know it."""
        path = self.settings.device_path.replace("{serial}", quote(serial, safe=""))
        answer = await self._ask("GET", path)
        return None if answer is None else self._read(answer.body, DEVICE, "")

    async def open_ticket(self, ticket: Mapping[str, Any], key: str) -> dict[str, Any]:
        """Open a ticket; returns the CRM's record of it, in our names, with `new` for one just made.

        A fault with `sent` leaves open whether there is a ticket now.
        """
        body: dict[str, Any] = {}
        for name in TICKET:
            if ticket.get(name) is not None:
                _put(body, self.settings.fields.get(f"ticket.{name}", name), ticket[name])
        answer = await self._ask("POST", self.settings.ticket_path, body=body, key=key)
        if answer is None:
            raise self._fault("server", "has no such address (404)")
        return {**self._ticket(answer, sent=True), "new": answer.status == 201}

    async def ticket_by_key(self, key: str) -> dict[str, Any] | None:
        """The ticket with a key, in our names; None when there is none."""
        assert self.settings.ticket_by_key_path is not None
        path = self.settings.ticket_by_key_path.replace("{key}", quote(key, safe=""))
        answer = await self._ask("GET", path)
        return None if answer is None else self._ticket(answer, sent=False)

    # -- answers --------------------------------------------------------------------------------------------

    def _ticket(self, answer: Answer, *, sent: bool) -> dict[str, Any]:
        fields = self._read(answer.body, RECEIPT, "receipt.", sent=sent)
        number = fields.get("ticket_id")
        if isinstance(number, bool) or not isinstance(number, str | int) or not str(number).strip():
            raise self._fault("bad_response", "gave a ticket without an id", sent=sent)
        return {**fields, "ticket_id": str(number).strip()}

    def _read(self, body: Any, names: tuple[str, ...], prefix: str, *, sent: bool = False) -> dict[str, Any]:
        """The fields of an answer by our names; missing ones are left out."""
        if not isinstance(body, Mapping):
            raise self._fault("bad_response", "did not answer with an object", sent=sent)
        fields = {}
        # Fields that are not renamed are also kept under the names other systems use for them.
        if not prefix:
            fields.update({name: value for name, value in body.items() if isinstance(name, str)})
        for name in names:
            value = _dig(body, self.settings.fields.get(f"{prefix}{name}", name))
            if value is not _MISSING:
                fields[name] = value
            elif f"{prefix}{name}" in self.settings.fields:
                fields.pop(name, None)
        return fields

    # -- requests -------------------------------------------------------------------------------------------

    async def _ask(
        self, method: str, path: str, *, body: Mapping[str, Any] | None = None, key: str | None = None
    ) -> Answer | None:
        """The answer to a request; None for 404. Credentials are renewed once when they are not accepted."""
        extra = {} if key is None else {"idempotency-key": key}
        for last in (False, True):
            auth_headers = await self._credentials.headers()
            status, raw = await self._send(method, path, {**auth_headers, **extra}, body=body)
            if status == 401 and not last and await self._credentials.refused(auth_headers):
                continue
            return self._answer(status, raw, changes=method == "POST")
        raise AssertionError("the second answer is always given")

    def _answer(self, status: int, raw: bytes, *, changes: bool) -> Answer | None:
        if 200 <= status < 300:
            try:
                return Answer(status, json.loads(raw))
            except (ValueError, RecursionError):
                raise self._fault("bad_response", "did not answer in JSON", sent=changes) from None
        if status == 404:
            return None
        if status in (401, 403):
            raise self._fault("auth", f"refused the credentials ({status})")
        if status in WAITING_HELPS:
            raise self._fault("server", f"cannot answer now ({status})", transient=True)
        if status >= 500 or (changes and status in UNDECIDED):
            raise self._fault("server", f"failed ({status})", transient=True, sent=changes)
        if status >= 400:
            raise self._fault("server", f"refused the request ({status})")
        raise self._fault("bad_response", f"sent us elsewhere ({status})", sent=changes)

    async def _fetch_token(self, form: Mapping[str, str]) -> Any:
        status, raw = await self._send("POST", self.settings.token_path, {}, form=form, changes=False)
        if 400 <= status < 500 and status not in WAITING_HELPS:
            raise self._fault("auth", f"gave no token ({status})")
        answer = self._answer(status, raw, changes=False)
        return answer.body if answer is not None else None

    async def _send(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        *,
        body: Mapping[str, Any] | None = None,
        form: Mapping[str, str] | None = None,
        changes: bool | None = None,
    ) -> tuple[int, bytes]:
        """Status and body of one request."""
        client = self._connected()
        import httpx2

        sent = method == "POST" if changes is None else changes
        url = self.settings.base_url.rstrip("/") + path
        try:
            async with (
                asyncio.timeout(self.settings.timeout_s),
                client.stream(method, url, headers={**headers, **IDENTITY}, json=body, data=form) as response,
            ):
                return response.status_code, await whole(response, LARGEST)
        except BodyTooLarge as error:
            raise self._fault("bad_response", f"gave {error}", sent=sent) from None
        except (httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
            raise self._fault("timeout", "could not be reached in time", transient=True) from error
        except (TimeoutError, httpx2.TimeoutException) as error:
            raise self._fault("timeout", "did not answer in time", transient=True, sent=sent) from error
        except (httpx2.ConnectError, httpx2.ProxyError) as error:
            raise self._fault("connection", "could not be reached", transient=True) from error
        except BodyEncoded as error:
            raise self._fault("bad_response", "gave an answer that cannot be unpacked", sent=sent) from error
        except httpx2.TransportError as error:
            raise self._fault("connection", "broke off the connection", transient=True, sent=sent) from error
        except httpx2.InvalidURL as error:
            raise self._fault("bad_response", "cannot be asked at such an address") from error

    def _connected(self) -> httpx2.AsyncClient:
        if self._http is None:
            try:
                import httpx2
            except ImportError as error:
                raise IntegrationMissing("A CRM needs httpx2: pip install 'detent[crm]'.") from error
            trust_env = not on_this_machine(self.settings.base_url)
            self._http = httpx2.AsyncClient(
                timeout=self.settings.timeout_s,
                follow_redirects=False,
                trust_env=trust_env,
                verify=tls_context(trust_env),
                headers={"accept": "application/json"},
            )
        return self._http

    def _fault(self, code: Any, message: str, *, transient: bool = False, sent: bool = False) -> CrmFault:
        return CrmFault(code, f"the CRM at {self.settings.host} {message}", transient=transient, sent=sent)


_MISSING = object()


def _dig(body: Any, path: str) -> Any:
    """The value at a dotted path."""
    if isinstance(body, Mapping) and path in body:
        return body[path]
    value = body
    for name in path.split("."):
        if isinstance(value, Mapping) and name in value:
            value = value[name]
        else:
            return _MISSING
    return value


def _put(body: dict[str, Any], path: str, value: Any) -> None:
    """Put a value at a dotted path."""
    *parents, last = path.split(".")
    for name in parents:
        body = body.setdefault(name, {})
    body[last] = value
