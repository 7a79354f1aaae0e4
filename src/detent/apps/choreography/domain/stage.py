"""What a show is made on and with: heads, templates, poses, and which channels are in use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from detent.apps.choreography.domain.library import Library, load_library
from detent.apps.choreography.domain.plan import Channels, SectionPlan
from detent.apps.choreography.domain.targets import target_sets
from detent.apps.choreography.domain.vocabulary import (
    CHANNEL_DEFAULTS,
    COLOURS,
    GOBOS,
    POSES,
    SHUTTERS,
    Pose,
)
from detent.kernel.errors import ConfigurationError, nearest

CHANNEL_NAMES: dict[str, Mapping[str, object]] = {"shutter": SHUTTERS, "color": COLOURS, "gobo": GOBOS}
"""The names each channel knows."""


@dataclass(frozen=True, slots=True)
class Features:
    """Which channels the planner chooses; one that is off has its default everywhere and scores 100."""

    enable_shutter: bool = True
    enable_color: bool = True
    enable_gobo: bool = True

    def enabled(self, channel: str) -> bool:
        """Whether a channel is chosen."""
        return {"shutter": self.enable_shutter, "color": self.enable_color, "gobo": self.enable_gobo}[channel]


@dataclass(frozen=True, slots=True)
class Stage:
    """Heads from left to right, the library, and the project's poses and channels."""

    heads: int = 4
    library: Library = field(default_factory=load_library)
    poses: Mapping[str, Pose] = field(default_factory=lambda: POSES)
    """The fixed poses and the project's."""
    features: Features = Features()
    channel_defaults: Mapping[str, str] = field(default_factory=lambda: CHANNEL_DEFAULTS)
    wheels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The names that the heads have on a wheel, by channel; a channel that is not in it has all of them."""

    def __post_init__(self) -> None:
        if self.heads < 1:
            raise ConfigurationError("A stage needs at least one head.")
        if missing := POSES.keys() - self.poses.keys():
            raise ConfigurationError(f"The stage lacks the pose '{min(missing)}'.")
        for channel, name in self.channel_defaults.items():
            known = CHANNEL_NAMES.get(channel)
            if known is None:
                channels = ", ".join(CHANNEL_NAMES)
                raise ConfigurationError(f"'{channel}' is no channel; there are {channels}.")
            if name not in known:
                hint = nearest(name, known) or f" Known: {', '.join(known)}."
                raise ConfigurationError(f"The default {channel} '{name}' is unknown.{hint}")

    @property
    def targets(self) -> Mapping[str, frozenset[int]]:
        """The target sets that exist here."""
        return target_sets(self.heads)

    def names(self, channel: str) -> tuple[str, ...]:
        """The names of a channel that can be shown here."""
        return self.wheels.get(channel) or tuple(CHANNEL_NAMES[channel])

    def default(self, channel: str) -> str:
        """The default of a channel; the first that there is, where the heads do not have it."""
        name, names = self.channel_defaults.get(channel, CHANNEL_DEFAULTS[channel]), self.names(channel)
        return name if name in names else names[0]

    def channels(self, section: SectionPlan) -> Channels:
        """The channels of a section as they are shown: the default where one is off or its name unknown."""
        shown = {
            channel: name
            if self.features.enabled(channel) and (name := getattr(section.channels, channel)) in known
            else self.default(channel)
            for channel, known in CHANNEL_NAMES.items()
        }
        return Channels(**shown)

    def jump(self, before: str, after: str) -> float:
        """Degrees between two poses, in pan or in tilt; unknown poses count as the default."""
        default = self.poses["AUDIENCE_CENTER"]
        start, end = self.poses.get(before, default), self.poses.get(after, default)
        return max(abs(start.pan - end.pan), abs(start.tilt - end.tilt))
