"""The shapes of a drawing, with their positions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Box:
    """A state. `x` and `y` are its upper left corner."""

    name: str
    x: float
    y: float
    w: float
    h: float
    lines: tuple[str, ...]
    """The lines of its name."""

    @property
    def right(self) -> float:
        """Right side."""
        return self.x + self.w

    @property
    def bottom(self) -> float:
        """Lower side."""
        return self.y + self.h

    @property
    def cx(self) -> float:
        """Horizontal centre."""
        return self.x + self.w / 2

    @property
    def cy(self) -> float:
        """Vertical centre."""
        return self.y + self.h / 2


@dataclass(frozen=True, slots=True)
class Label:
    """Lines of text beside or on a wire. `x` and `y` are the upper left corner."""

    x: float
    y: float
    w: float
    h: float
    lines: tuple[str, ...]
    anchor: Literal["middle", "start"] = "middle"


@dataclass(frozen=True, slots=True)
class Wire:
    """A move, from the border of one box to the border of another, or of the same."""

    frm: str
    to: str
    kind: Literal["forward", "back", "hub", "self"]
    points: tuple[Point, ...]
    """Forward: straight where x stays, a curve between where it changes. Back and hub: straight, with round
    corners. Self: start, two control points, end."""
    label: Label | None = None


@dataclass(frozen=True, slots=True)
class Layout:
    """A whole drawing."""

    width: float
    height: float
    boxes: tuple[Box, ...]
    wires: tuple[Wire, ...]
    mark: Point
    """Position of the start mark."""
