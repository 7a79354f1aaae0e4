"""The limits of what a cell may send: text and pictures beyond them are replaced by a marker.

The kernel applies them before it sends, so that one print of 100 MB is never a message of 100 MB; the engine
applies them again while it reads.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

MIB = 1024 * 1024
TEXT_LIMIT = MIB
"""Bytes of text of one cell, streams and results together."""
STREAM_LIMIT = TEXT_LIMIT - TEXT_LIMIT // 8
"""Of them for streams, so that a cell that prints too much still shows its result."""
FIGURE_LIMIT = 5 * MIB
"""Bytes of pictures of one cell."""
TRACEBACK_LIMIT = 64 * 1024
METADATA_LIMIT = 64 * 1024
MESSAGE_LIMIT = 4000
"""Characters of an exception's message."""

TEXT_MARKER = "\n[output cut: more than 1 MiB of text in one cell]\n"
FIGURE_MARKER = "[figure left out: more than 5 MiB of figures in one cell]"


def writable(text: str) -> str:
    """`text`, with what UTF-8 cannot hold spelled out."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def cut(text: str, limit: int) -> str:
    """The beginning of a text, at most `limit` bytes of UTF-8."""
    if len(text) * 4 <= limit:
        return text
    head = text[:limit].encode("utf-8", "backslashreplace")
    return text if len(text) <= limit and len(head) <= limit else head[:limit].decode("utf-8", "ignore")


def shortened(text: str, characters: int) -> str:
    """A text of at most so many characters, with a mark where it was cut."""
    return text if len(text) <= characters else text[: characters - 1] + "…"


def byte_length(text: str) -> int:
    """Bytes of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "backslashreplace"))


class OutputLimit:
    """What one cell has sent so far, and what it may still send."""

    def __init__(self, slack: int = 0) -> None:
        """`slack` bytes more are allowed: the engine lets the kernel's markers through."""
        self._slack = slack
        self._text = 0
        self._figures = 0
        self._streams_closed = False

    def limited(self, message_type: str, content: Mapping[str, Any]) -> dict[str, Any] | None:
        """The content of an output message within the limits; None if nothing of it is left."""
        match message_type:
            case "stream":
                return self._stream(content)
            case "execute_result" | "display_data" | "update_display_data":
                metadata = content.get("metadata") or {}
                kept = metadata if _size(metadata) <= METADATA_LIMIT else {}
                return {**content, "data": self._bundle(content.get("data") or {}), "metadata": kept}
            case "error":
                return _error(content)
            case _:
                return dict(content)

    def _stream(self, content: Mapping[str, Any]) -> dict[str, Any] | None:
        if self._streams_closed:
            return None
        text = str(content.get("text", ""))
        room = STREAM_LIMIT + self._slack - self._text
        kept = cut(text, max(room, 0))
        self._text += byte_length(kept)
        if len(kept) < len(text):
            self._streams_closed = True
            kept += TEXT_MARKER
        return {**content, "text": writable(kept)}

    def _bundle(self, data: Mapping[str, Any]) -> dict[str, Any]:
        kept: dict[str, Any] = {}
        figure_left_out = text_left_out = False
        for mime, value in data.items():
            if not _is_text(mime):
                size = _size(value)
                if mime.startswith("image/") and mime != "image/svg+xml":
                    size = size * 3 // 4  # base64
                if self._figures + size > FIGURE_LIMIT + self._slack:
                    figure_left_out = True
                else:
                    self._figures += size
                    kept[mime] = writable(value) if isinstance(value, str) else value
                continue
            text = value if isinstance(value, str) else str(value)
            room = max(TEXT_LIMIT + self._slack - self._text, 0)
            whole = byte_length(text) <= room
            if whole or mime == "text/plain":  # half a table in HTML is no table
                part = text if whole else cut(text, room)
                self._text += byte_length(part)
                kept[mime] = writable(part)
            text_left_out = text_left_out or not whole
        if text_left_out:
            kept["text/plain"] = str(kept.get("text/plain", "")) + TEXT_MARKER
        if figure_left_out:
            plain = kept.get("text/plain")
            kept["text/plain"] = f"{plain}\n{FIGURE_MARKER}" if plain else FIGURE_MARKER
        return kept


def _is_text(mime: str) -> bool:
    return mime.startswith("text/")


def _size(value: Any) -> int:
    if isinstance(value, str | bytes):
        return len(value)
    try:
        return len(json.dumps(value, default=str))
    except (TypeError, ValueError):
        return FIGURE_LIMIT + 1


def _error(content: Mapping[str, Any]) -> dict[str, Any]:
    """An exception with the end of its traceback: the last lines say where it was raised."""
    lines: list[str] = []
    room = TRACEBACK_LIMIT
    for line in reversed([str(line) for line in content.get("traceback") or []]):
        text = writable(line if len(line) <= room else "…" + line[-max(room - 1, 0) :])
        room -= len(text)
        lines.append(text)
        if room <= 0:
            break
    return {
        **content,
        "ename": shortened(writable(str(content.get("ename", ""))), 200),
        "evalue": shortened(writable(str(content.get("evalue", ""))), MESSAGE_LIMIT),
        "traceback": lines[::-1],
    }
