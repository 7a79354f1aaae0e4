"""Bodies of HTTP answers, read within a limit on bytes.

The server decides how much to send: a stream that never ends, a length that exceeds any memory, a few
kilobytes that unpack to gigabytes. Bodies are counted while they are read, and unpacked in small pieces.
"""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator
from typing import Any

PIECE = 64 * 1024
"""Bytes unpacked at a time."""
IDENTITY = {"accept-encoding": "identity"}
"""Header that asks for a body as it is: nothing sent to us is worth packing."""
_GZIP = ("gzip", "x-gzip")


class BodyTooLarge(Exception):
    """An answer has more bytes than it may have."""

    def __init__(self, most: int) -> None:
        self.most = most
        super().__init__(f"more than {most:,} bytes")


class BodyEncoded(Exception):
    """An answer is packed in a way that cannot be unpacked."""


async def pieces(response: Any, most: int) -> AsyncIterator[bytes]:
    """The body of a streamed httpx2 response, unpacked, `most` bytes of it at the most.

    Raises:
        BodyTooLarge: there is more; what came until then was yielded.
        BodyEncoded: it is packed in an unknown way, or damaged.
    """
    unpack = _opened(response, most)
    size = 0
    async for raw in response.aiter_raw():
        for piece in unpack(raw):
            size += len(piece)
            if size > most:
                raise BodyTooLarge(most)
            yield piece


async def whole(response: Any, most: int) -> bytes:
    """The body of a streamed httpx2 response, unpacked; raises what `pieces` raises."""
    unpack = _opened(response, most)
    body = bytearray()
    async for raw in response.aiter_raw():
        for piece in unpack(raw):
            body += piece
            if len(body) > most:
                raise BodyTooLarge(most)
    return bytes(body)


def _opened(response: Any, most: int) -> Any:
    """What unpacks the body of a response that may be read."""
    if _longer(response.headers, most):
        raise BodyTooLarge(most)
    return _unpacker(response.headers.get("content-encoding", ""))


def _unpacker(header: str) -> Any:
    parts = [part.strip().lower() for part in header.split(",")]
    encodings = [part for part in parts if part not in ("", "identity")]
    if not encodings:
        return lambda raw: (raw,)
    if len(encodings) > 1 or encodings[0] not in (*_GZIP, "deflate"):
        raise BodyEncoded(header[:60])
    return _Inflate(gzip=encodings[0] in _GZIP)


class _Inflate:
    """Unpacks gzip and deflate in small pieces, so that a small bomb stays small."""

    def __init__(self, *, gzip: bool) -> None:
        self._gzip = gzip
        self._inner = zlib.decompressobj(47 if gzip else zlib.MAX_WBITS)
        self._first = True

    def __call__(self, raw: bytes) -> Any:
        while raw:
            try:
                piece = self._inner.decompress(raw, PIECE)
            except zlib.error as error:
                if not (self._first and not self._gzip):
                    raise BodyEncoded("deflate") from error
                self._inner = zlib.decompressobj(-zlib.MAX_WBITS)  # some servers omit the zlib header
                self._first = False
                continue
            self._first = False
            yield piece
            if self._inner.eof:
                return
            raw = self._inner.unconsumed_tail


def limiting_hooks(httpx: Any, most: int, *, each_event: bool = False) -> dict[str, list[Any]]:
    """Event hooks for an `httpx` or `httpx2` client used by a library: no response exceeds `most` bytes.

    With `each_event`, the limit applies to each event of a stream, as the stream may last for days. Bodies
    are requested unpacked; a packed one is refused.
    """

    async def ask_plainly(request: Any) -> None:
        request.headers.update(IDENTITY)

    async def limit(response: Any) -> None:
        headers = response.headers
        if headers.get("content-encoding", "").strip().lower() not in ("identity", ""):
            raise httpx.DecodingError("It is packed, which was not asked for.", request=response.request)
        if _longer(headers, most):
            raise httpx.ReadError("", request=response.request) from BodyTooLarge(most)
        events = each_event and headers.get("content-type", "").startswith("text/event-stream")
        response.stream = Counted(response.stream, events)

    class Counted(httpx.AsyncByteStream):  # type: ignore[misc]
        def __init__(self, inner: Any, events: bool) -> None:
            self._inner = inner
            self._events = events

        def __getattr__(self, name: str) -> Any:
            return getattr(self._inner, name)

        async def __aiter__(self) -> AsyncIterator[bytes]:
            size = 0
            async for piece in self._inner:
                size += len(piece)
                if size > most:
                    raise httpx.ReadError("") from BodyTooLarge(most)
                if self._events and (b"\n\n" in piece or b"\n\r\n" in piece):
                    size = 0
                yield piece

        async def aclose(self) -> None:
            await self._inner.aclose()

    return {"request": [ask_plainly], "response": [limit]}


def too_large(error: BaseException) -> BodyTooLarge | None:
    """The limit an error of a library is about, if any."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, BodyTooLarge):
        cause = cause.__cause__ or cause.__context__
    return cause


def _longer(headers: Any, most: int) -> bool:
    declared = headers.get("content-length", "")
    return declared.isdigit() and (len(declared) > 18 or int(declared) > most)
