"""Pictures among the outputs of cells."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from detent.kernel.plain import writable

_SIGNATURES = {
    "image/png": (b"\x89PNG\r\n\x1a\n", "png"),
    "image/jpeg": (b"\xff\xd8\xff", "jpg"),
    "image/gif": (b"GIF8", "gif"),
    "image/webp": (b"RIFF", "webp"),
}
SVG = "image/svg+xml"


@dataclass(frozen=True, slots=True)
class Figure:
    """A picture."""

    mime: str
    content: bytes

    @property
    def suffix(self) -> str:
        """The end of a file's name."""
        return "svg" if self.mime == SVG else _SIGNATURES[self.mime][1]

    @property
    def address(self) -> str:
        """The picture as an address that needs no network. A script inside an SVG does not run there."""
        return f"data:{self.mime};base64,{base64.b64encode(self.content).decode('ascii')}"


def figure_of(data: Mapping[str, Any]) -> Figure | None:
    """The picture of a result; None if it has none, or none that is what it says."""
    for mime in _SIGNATURES:
        figure = _bitmap(mime, data.get(mime))
        if figure is not None:
            return figure
    svg = _joined(data.get(SVG))
    return Figure(SVG, writable(svg).encode()) if svg and "<svg" in svg else None


def picture_file(name: str, content: bytes) -> Figure | None:
    """A file as a picture, None if it is none."""
    for mime, (signature, _) in _SIGNATURES.items():
        if content.startswith(signature) and (mime != "image/webp" or content[8:12] == b"WEBP"):
            return Figure(mime, content)
    return Figure(SVG, content) if name.lower().endswith(".svg") and b"<svg" in content else None


def _bitmap(mime: str, value: Any) -> Figure | None:
    text = _joined(value)
    if not text:
        return None
    try:
        content = base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        return None
    found = picture_file("", content)
    return found if found is not None and found.mime == mime else None


def _joined(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "".join(map(str, value))
    return value if isinstance(value, str) else ""
