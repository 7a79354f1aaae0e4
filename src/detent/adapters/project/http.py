"""Fetching from the web: one resource by GET, with limits on time, size, redirects and addresses.

Errors name the host, never the rest of a URL or a header: both may hold secrets.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import hashlib
import json
import os
import secrets
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urljoin, urlsplit

from detent.adapters.disk import PRIVATE_FILE
from detent.adapters.http_body import IDENTITY, BodyEncoded, BodyTooLarge, pieces
from detent.adapters.project.addresses import Reach, is_here, pinned
from detent.adapters.project.sandbox import Sandbox, quoted
from detent.adapters.tls import tls_context
from detent.engine.step_failures import Transient
from detent.engine.tools import Tool, ToolError
from detent.kernel.errors import IntegrationMissing

MOST_REDIRECTS = 5
LARGEST_DOWNLOAD = 1024 * 1024 * 1024
LARGEST_TEXT = 50 * 1024 * 1024
LONGEST_WAIT = 3600.0
"""The longest wait a server may ask for, in seconds."""
SPOOL_AGE = 7 * 24 * 3600.0
"""Seconds after which fetched bodies that were never used are deleted."""
_FORGOTTEN = frozenset({"set-cookie", "set-cookie2", "www-authenticate", "proxy-authenticate"})
"""Response headers that are not passed on."""
_NO_CHARSETS = frozenset({"idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape"})
"""Python encodings that no text on the web has; `punycode` takes hours over a few megabytes."""
_ANYWHERE = frozenset({"accept", "accept-language", "user-agent"})
"""Headers that may go along to another host after a redirect."""


class Web:
    """The part of the web that steps may fetch from."""

    def __init__(self, sandbox: Sandbox, largest: int = LARGEST_DOWNLOAD, reach: Reach | None = None) -> None:
        self._sandbox = sandbox
        self._largest = largest
        self._reach = reach or Reach()

    async def fetch(
        self,
        url: str,
        headers: dict[str, str] | None = None,
        timeout: float = 30,
        max_bytes: int = 5_000_000,
        spool: bool = False,
    ) -> dict[str, Any]:
        """A web resource: status, headers and body; with `spool` the body is kept for `files.write`."""
        if not 0 < timeout <= LONGEST_WAIT:
            raise ToolError("invalid", f"a timeout is more than 0 and at most {LONGEST_WAIT:g} seconds.")
        most = self._largest if spool else max(0, min(max_bytes, LARGEST_TEXT))
        host = _host(url)
        httpx2 = _httpx2()
        sink = _Sink(self._sandbox, self._spools() if spool else None)
        try:
            async with asyncio.timeout(timeout):
                status, received, charset = await self._followed(
                    url, dict(headers or {}), timeout, most, sink
                )
            body = sink.done() if 200 <= status < 300 or not spool else None
        except (TimeoutError, httpx2.TimeoutException):
            raise Transient(f"'{host}' did not answer within {timeout:g} seconds.") from None
        except (httpx2.ConnectError, httpx2.ProxyError):
            raise Transient(f"'{host}' cannot be reached.") from None
        except (httpx2.InvalidURL, httpx2.UnsupportedProtocol, httpx2.LocalProtocolError, UnicodeError):
            raise ToolError(
                "invalid", f"'{host}' cannot be asked like this: a bad address or header."
            ) from None
        except BodyEncoded:
            raise ToolError("bad_answer", f"'{host}' gave an answer that cannot be unpacked.") from None
        except httpx2.TransportError:
            raise Transient(f"'{host}' broke off the connection.") from None
        finally:
            sink.drop()
        if status in (429, 503):
            wait = _retry_after(received.get("retry-after"))
            raise Transient(f"'{host}' cannot answer now ({status}).", wait)
        size, sha256 = sink.size, sink.sha256
        result = {"status": status, "headers": received, "bytes": size, "sha256": sha256, "spool": None}
        if spool:
            return {**result, "text": "", "json": None, "spool": sha256 if body is not None else None}
        assert isinstance(body, bytes)
        return {**result, "text": _text(body, charset), "json": _json(body, received.get("content-type", ""))}

    async def _followed(
        self, url: str, headers: dict[str, str], timeout: float, most: int, sink: _Sink
    ) -> tuple[int, dict[str, str], str | None]:
        """The first response that is no redirect; every address on the way must be allowed."""
        httpx2 = _httpx2()
        asked_for = str(urlsplit(url).hostname)
        for _ in range(MOST_REDIRECTS + 1):
            addresses = await self._reach.addresses(url, asked_for)
            transport = None if addresses is None else pinned(addresses)
            async with (
                httpx2.AsyncClient(
                    timeout=timeout, follow_redirects=False, transport=transport, verify=tls_context()
                ) as client,
                client.stream("GET", url, headers={**IDENTITY, **headers}) as answer,
            ):
                location = answer.headers.get("location")
                if answer.status_code in (301, 302, 303, 307, 308) and location:
                    next_url = urljoin(url, location)
                    _host(next_url)
                    if urlsplit(url).scheme == "https" and urlsplit(next_url).scheme != "https":
                        raise ToolError("redirect", f"'{_host(url)}' leads from https to http; not followed.")
                    if urlsplit(next_url)[:2] != urlsplit(url)[:2]:
                        headers = {name: text for name, text in headers.items() if name.lower() in _ANYWHERE}
                    url = next_url
                    continue
                try:
                    async for piece in pieces(answer, most):
                        sink.take(piece)
                except BodyTooLarge:
                    raise ToolError("too_large", f"'{_host(url)}' gives more than {most:,} bytes.") from None
                received = {
                    name.lower(): value
                    for name, value in answer.headers.items()
                    if name.lower() not in _FORGOTTEN
                }
                return answer.status_code, received, answer.charset_encoding
        raise ToolError("redirect", f"'{_host(url)}' redirects more than {MOST_REDIRECTS} times.")

    def _spools(self) -> Path:
        """The folder where fetched bodies wait to be written; old unused ones are deleted."""
        folder = self._sandbox.state / "spools"
        with self._sandbox.folder_of(folder / "any", make=True):
            pass
        oldest = time.time() - SPOOL_AGE
        for spool in folder.iterdir():
            with contextlib.suppress(OSError):
                if spool.stat().st_mtime < oldest:
                    spool.unlink()
        return folder


class _Sink:
    """Collects a body, in memory or in a file."""

    def __init__(self, sandbox: Sandbox, folder: Path | None) -> None:
        self._sandbox = sandbox
        self._folder = folder
        self._path = folder / f"{secrets.token_hex(8)}.part" if folder is not None else None
        self._file = self._created(self._path) if self._path is not None else None
        self._pieces: list[bytes] = []
        self._digest, self.size = hashlib.sha256(), 0

    def take(self, piece: bytes) -> None:
        self._digest.update(piece)
        self.size += len(piece)
        if self._file is not None:
            self._file.write(piece)
        else:
            self._pieces.append(piece)

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    def done(self) -> bytes | Path:
        """The body, or the file that holds it under its SHA-256."""
        if self._file is None or self._path is None or self._folder is None:
            return b"".join(self._pieces)
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        place = self._folder / self.sha256
        with self._sandbox.folder_of(place) as folder:
            folder.move(self._path.name, folder, place.name)
        return place

    def _created(self, path: Path) -> BinaryIO:
        with self._sandbox.folder_of(path) as folder:
            return folder.create(path.name, PRIVATE_FILE)

    def drop(self) -> None:
        """Delete an unfinished file."""
        if self._file is not None and self._path is not None:
            self._file.close()
            with contextlib.suppress(OSError):
                self._sandbox.remove(self._path, missing_ok=True)


def _httpx2() -> Any:
    try:
        import httpx2
    except ImportError as error:
        raise IntegrationMissing("Fetching from the web needs httpx2: pip install 'detent[web]'.") from error
    return httpx2


def _host(url: str) -> str:
    """The host of a URL; a `ToolError` unless it is an http or https URL."""
    try:
        parts = urlsplit(url) if isinstance(url, str) else urlsplit("")
        host = parts.hostname
        _ = parts.port
    except ValueError:
        host, parts = None, urlsplit("")
    if parts.scheme.lower() not in ("http", "https") or not host:
        raise ToolError(
            "invalid",
            f"an address begins with http:// or https:// and names a host, not {quoted(parts.scheme)}.",
        )
    return host


def _retry_after(header: str | None) -> float | None:
    """Seconds a server asks us to wait, up to the longest wait."""
    if not header:
        return None
    if header.strip().isdigit():
        return min(float(header), LONGEST_WAIT)
    try:
        until = parsedate_to_datetime(header)
    except (TypeError, ValueError):
        return None
    until = until if until.tzinfo is not None else until.replace(tzinfo=UTC)
    return max(0.0, min((until - datetime.now(UTC)).total_seconds(), LONGEST_WAIT))


def _text(body: bytes, charset: str | None) -> str:
    """A body as text, in the charset its server names if that is one for texts."""
    try:
        if charset and codecs.lookup(charset).name not in _NO_CHARSETS:
            return body.decode(charset, "replace")
    except (LookupError, ValueError):
        pass
    return body.decode("utf-8", "replace")


def _json(body: bytes, kind: str) -> Any:
    """The value of a body that is declared as JSON and is JSON."""
    if "json" not in kind.lower():
        return None
    try:
        return json.loads(body, parse_constant=_refused)
    except (ValueError, RecursionError):
        return None


def _refused(_: str) -> Any:
    raise ValueError("no JSON value")


async def post(url: str, body: Mapping[str, Any], headers: Mapping[str, str], timeout: float) -> int:
    """Send JSON to a URL; returns the status. An exception leaves open whether it arrived."""
    host, httpx2 = _host(url), _httpx2()
    local = is_here(host)
    try:
        async with (
            asyncio.timeout(timeout),
            httpx2.AsyncClient(
                timeout=timeout, follow_redirects=False, trust_env=not local, verify=tls_context(not local)
            ) as client,
            client.stream("POST", url, json=dict(body), headers=dict(headers)) as answer,
        ):
            return int(answer.status_code)  # the body is not read
    except TimeoutError:
        raise ConnectionError(f"'{host}' did not answer within {timeout:g} seconds.") from None
    except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError):
        raise ToolError("unreachable", f"'{host}' cannot be reached.", transient=True) from None
    except httpx2.HTTPError as error:
        # Without the message of httpx2, which may contain the whole URL.
        raise ConnectionError(f"'{host}' did not answer ({type(error).__name__}).") from None


def http_tools(web: Web) -> list[Tool]:
    """The tools for the web."""
    return [
        Tool("http.fetch", web.fetch, "query",
             description="A web resource by GET: status, headers, text, json, bytes, sha256. With spool "
             "its bytes are kept, and `spool` in the answer is their name for files.write."),
    ]  # fmt: skip
