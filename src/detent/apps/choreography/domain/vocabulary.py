"""The closed vocabularies of a show: poses, intensities, speeds, shutters, colours, gobos.

Names and default values are fixed; a project may add poses, and a fixture has a map of its own for DMX.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Mood = Literal["warm", "cool", "neutral"]


class Pose(NamedTuple):
    """Where heads look: degrees."""

    pan: float
    tilt: float


class Shutter(NamedTuple):
    """What a shutter does: its energy from 1 to 10, and its usual DMX value."""

    energy: int
    dmx: int
    hertz: float = 0.0
    """Flashes per second, for pictures; 0: steady."""


class Colour(NamedTuple):
    """A colour: its mood, its look on a screen, its usual value on a colour wheel."""

    mood: Mood
    hex: str
    dmx: int


class Gobo(NamedTuple):
    """A pattern in the beam: its density from 1 to 10, its usual value on a gobo wheel."""

    density: int
    dmx: int


POSES: dict[str, Pose] = {
    "FORWARD": Pose(0, 0),
    "LEFT_45": Pose(-45, 0),
    "RIGHT_45": Pose(45, 0),
    "LEFT_90": Pose(-90, 0),
    "RIGHT_90": Pose(90, 0),
    "UP": Pose(0, 90),
    "DOWN": Pose(0, -20),
    "CEILING": Pose(0, 90),
    "AUDIENCE_CENTER": Pose(0, -15),
    "AUDIENCE_LEFT": Pose(-35, -15),
    "AUDIENCE_RIGHT": Pose(35, -15),
    "SOFT_HOME": Pose(0, 0),
}

INTENSITIES: dict[str, float] = {"SMOOTH": 0.6, "DRAMATIC": 1.0, "INTENSE": 1.3}
"""Factor on the width of movements."""

SPEEDS: dict[str, float] = {"SLOW": 2.0, "MODERATE": 1.0, "FAST": 0.5}
"""Factor on the length of a cycle."""

SHUTTERS: dict[str, Shutter] = {
    "open": Shutter(5, 255),
    "closed": Shutter(1, 0),
    "strobe_slow": Shutter(5, 150, 4.0),
    "strobe_medium": Shutter(7, 200, 8.0),
    "strobe_fast": Shutter(10, 250, 14.0),
    "pulse": Shutter(6, 120, 2.0),
}

STROBES = frozenset({"strobe_slow", "strobe_medium", "strobe_fast"})

COLOURS: dict[str, Colour] = {
    "red": Colour("warm", "#E5322D", 16),
    "orange": Colour("warm", "#F08A24", 32),
    "amber": Colour("warm", "#FFB000", 48),
    "yellow": Colour("warm", "#F6E05E", 64),
    "warm_white": Colour("warm", "#FFE8C7", 80),
    "blue": Colour("cool", "#2B6CB0", 96),
    "green": Colour("cool", "#2F9E44", 112),
    "magenta": Colour("cool", "#D53F8C", 128),
    "cyan": Colour("cool", "#22B8CF", 144),
    "purple": Colour("cool", "#7048E8", 160),
    "lime": Colour("cool", "#94D82D", 176),
    "cool_white": Colour("cool", "#E7F5FF", 192),
    "white": Colour("neutral", "#FFFFFF", 0),
    "uv": Colour("neutral", "#5F3DC4", 208),
}

GOBOS: dict[str, Gobo] = {
    "open": Gobo(1, 0),
    "circles": Gobo(5, 16),
    "triangles": Gobo(6, 32),
    "stars": Gobo(7, 48),
    "diamonds": Gobo(6, 64),
    "clouds": Gobo(4, 80),
    "prism": Gobo(8, 96),
    "shatter": Gobo(9, 112),
    "dots": Gobo(7, 128),
    "flame": Gobo(6, 144),
    "water": Gobo(5, 160),
    "foliage": Gobo(7, 176),
    "abstract": Gobo(8, 192),
}

SECTION_ROLES = (
    "intro", "verse", "chorus", "bridge", "build", "drop", "breakdown", "transition", "outro",
)  # fmt: skip

CHANNEL_DEFAULTS = {"shutter": "open", "color": "white", "gobo": "open"}
