"""A drawing of rectangles, lines, areas and texts, independent of the format it is written in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

Point = tuple[float, float]
Anchor = Literal["start", "middle", "end"]


@dataclass(frozen=True, slots=True)
class Rectangle:
    """A rectangle; without a fill only its outline is drawn."""

    x: float
    y: float
    width: float
    height: float
    fill: str | None = None
    stroke: str | None = None
    stroke_width: float = 1.0


@dataclass(frozen=True, slots=True)
class Lines:
    """Separate straight lines of one style."""

    segments: tuple[tuple[Point, Point], ...]
    stroke: str
    width: float = 1.0


@dataclass(frozen=True, slots=True)
class Area:
    """A filled polygon."""

    points: tuple[Point, ...]
    fill: str


@dataclass(frozen=True, slots=True)
class Text:
    """A line of text on its baseline."""

    x: float
    y: float
    text: str
    size: float = 12.0
    fill: str = "#1B1F24"
    anchor: Anchor = "start"
    bold: bool = False

    @property
    def box(self) -> tuple[float, float, float, float]:
        """Left, top, right and bottom, estimated."""
        width = text_width(self.text, self.size, self.bold)
        left = self.x - {"start": 0.0, "middle": width / 2, "end": width}[self.anchor]
        return left, self.y - 0.8 * self.size, left + width, self.y + 0.25 * self.size


Shape = Rectangle | Lines | Area | Text


@dataclass(slots=True)
class Drawing:
    """Shapes in the order in which they are drawn."""

    width: int
    height: int
    title: str
    description: str
    shapes: list[Shape] = field(default_factory=list)

    def add(self, *shapes: Shape) -> None:
        """Draw more."""
        self.shapes += shapes

    def polyline(self, points: Sequence[Point], stroke: str, width: float = 1.0) -> None:
        """Connected straight lines."""
        self.add(Lines(tuple(pairwise(points)), stroke, width))

    def hatch(self, box: Rectangle, stroke: str, gap: float = 7.0) -> None:
        """Diagonal lines inside a rectangle."""
        segments: list[tuple[Point, Point]] = []
        offset = gap / 2
        while offset < box.width + box.height:
            # From the left or lower edge up to the upper or right edge.
            start = (box.x + max(0.0, offset - box.height), box.y + min(offset, box.height))
            end = (box.x + min(offset, box.width), box.y + max(0.0, offset - box.width))
            segments.append((start, end))
            offset += gap
        self.add(Lines(tuple(segments), stroke, 1.2))


_NARROW, _WIDE = frozenset("ijl.,:;'|!()[]ftr I-–·"), frozenset("mwMW@%")


def text_width(text: str, size: float, bold: bool = False) -> float:
    """An upper estimate of a text's width in an ordinary font without serifs."""
    widths = (
        0.39 if character in _NARROW
        else 0.92 if character in _WIDE
        else 0.6 if character.islower() or character.isdigit() or character == "_"
        else 0.72 if character.isascii()
        else 1.05
        for character in text
    )  # fmt: skip
    return size * sum(widths) * (1.06 if bold else 1) + (1 if bold else 0)


def fitting(text: str, width: float, size: float, least: int = 3, bold: bool = False) -> str:
    """The text, shortened to a width; empty if fewer letters than the least would be left."""
    if text_width(text, size, bold) <= width:
        return text
    for length in range(len(text) - 1, least - 1, -1):
        shorter = text[:length].rstrip(" _-") + ".."
        if text_width(shorter, size, bold) <= width:
            return shorter
    return ""


def ink_on(fill: str) -> str:
    """Black or white, whichever can be read on a colour."""
    red, green, blue = (int(fill[at : at + 2], 16) for at in (1, 3, 5))
    return "#000000" if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else "#FFFFFF"
