"""From an implementation in bars to DMX values: for each head, what it does in every frame of the song.

Pan, tilt and dimmer are kept as unrounded values for each frame; shutter, wheels and all other channels hold
throughout a span and are kept once. An hour of 25 ms frames takes 1.7 MB for each head.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from detent.apps.choreography.domain.plan import (
    AgentImplementation,
    AgentPlan,
    Channels,
    ImplementationSection,
    SectionPlan,
)
from detent.apps.choreography.domain.song import Song
from detent.apps.choreography.domain.targets import heads_of
from detent.apps.choreography.domain.template import Template
from detent.apps.choreography.domain.vocabulary import Pose
from detent.apps.choreography.show.fixtures import Fixture, Missing, Rig
from detent.apps.choreography.show.movement import Clock, Head, glide, motion_of
from detent.apps.choreography.show.timing import Timing
from detent.kernel.errors import ConfigurationError, nearest

MOVED = ("pan", "tilt", "dimmer")
"""Roles whose values change from frame to frame."""


class ShowStage(Protocol):
    """What rendering needs to know of a stage."""

    @property
    def poses(self) -> Mapping[str, Pose]:
        """Poses by name."""
        ...

    @property
    def library(self) -> Mapping[str, Template]:
        """Templates by id."""
        ...

    def channels(self, section: SectionPlan) -> Channels:
        """The channels of a section, disabled and unknown ones replaced."""
        ...


@dataclass(frozen=True, slots=True)
class Span:
    """Bars in which one section, or none, rules a head."""

    start: int
    """First frame."""
    end: int
    """The frame behind it."""
    section: ImplementationSection | None
    """None: the head is dark and holds its pose."""
    constants: Mapping[int, int]
    """DMX values by channel; channels that are neither here nor moved are 0."""


@dataclass(frozen=True, slots=True, eq=False)
class HeadTrack:
    """One head throughout the song."""

    fixture: Fixture
    moved: NDArray[np.float32]
    """Unrounded DMX values of pan, tilt and dimmer, for each frame."""
    spans: tuple[Span, ...]

    def dmx(self) -> NDArray[np.uint8]:
        """The whole DMX values of every channel and frame."""
        values = np.zeros((self.fixture.written_channels, self.moved.shape[1]), dtype=np.uint8)
        for span in self.spans:
            for channel, value in span.constants.items():
                values[channel - 1, span.start : span.end] = value
        for row, role in enumerate(MOVED):
            values[self.fixture.dmx_mapping[role] - 1] = np.rint(self.moved[row])
        return values


@dataclass(frozen=True, slots=True, eq=False)
class Rendering:
    """A show as DMX values."""

    timing: Timing
    heads: tuple[HeadTrack, ...]
    warnings: tuple[str, ...]

    @property
    def frame_ms(self) -> int:
        """Milliseconds of a frame."""
        return self.timing.frame_ms

    @property
    def frames(self) -> int:
        """How many frames the song has."""
        return self.timing.frames

    def track(self, fixture_id: str) -> HeadTrack:
        """The track of a head."""
        return next(head for head in self.heads if head.fixture.fixture_id == fixture_id)


def render(
    song: Song,
    plan: AgentPlan,
    implementation: AgentImplementation,
    rig: Rig,
    stage: ShowStage,
    frame_ms: int = 25,
) -> Rendering:
    """Render a show.

    Raises:
        ConfigurationError: the implementation names a template or a plan section that does not exist.
    """
    _check_names(plan, implementation, stage)
    timing = Timing(song, frame_ms)
    warnings: dict[str, None] = {}  # a set that keeps its order
    rulers = _rulers(song, implementation, rig, warnings)
    extents = _extents(implementation)
    looks = {section.name: stage.channels(section) for section in plan.sections}
    missing: dict[Missing, dict[str, None]] = {}
    heads = tuple(
        _track(timing, implementation, rig, place, rulers[place], extents, looks, stage, missing)
        for place in range(len(rig))
    )
    lacks = (lack.warning(names) for lack, names in missing.items())
    return Rendering(timing, heads, (*warnings, *lacks))


def _check_names(plan: AgentPlan, implementation: AgentImplementation, stage: ShowStage) -> None:
    names = {section.name for section in plan.sections}
    for section in implementation.sections:
        where = f"Implementation section '{section.name}'"
        if section.template_id not in stage.library:
            hint = nearest(section.template_id, stage.library)
            raise ConfigurationError(f"{where}: there is no template '{section.template_id}'.{hint}")
        if section.plan_section_name not in names:
            hint = nearest(section.plan_section_name, names)
            raise ConfigurationError(f"{where}: the plan has no section '{section.plan_section_name}'.{hint}")


def ruling(
    song: Song, implementation: AgentImplementation, heads: int
) -> list[list[ImplementationSection | None]]:
    """For each head and bar, the section that rules it: the highest layer, then the later name."""
    return _rulers(song, implementation, Rig.of_heads(heads), {})


def _rulers(
    song: Song, implementation: AgentImplementation, rig: Rig, warnings: dict[str, None]
) -> list[list[ImplementationSection | None]]:
    rulers: list[list[ImplementationSection | None]] = [[None] * song.bars for _ in rig.fixtures]
    contests: dict[tuple[str, str], tuple[set[str], list[int]]] = {}
    for section in sorted(implementation.sections, key=lambda one: (one.layer_priority, one.name)):
        for place in sorted(heads_of(section.targets, len(rig))):
            for bar in range(section.start_bar, min(section.end_bar, song.bars) + 1):
                beaten = rulers[place][bar - 1]
                if beaten is not None:
                    fixtures, bars = contests.setdefault((section.name, beaten.name), (set(), []))
                    fixtures.add(rig.fixtures[place].fixture_id)
                    bars.append(bar)
                rulers[place][bar - 1] = section
    for (winner, beaten_name), (fixtures, bars) in contests.items():
        warnings[
            f"'{winner}' and '{beaten_name}' share {', '.join(sorted(fixtures))} in bars {min(bars)} to "
            f"{max(bars)}; '{winner}' is shown."
        ] = None
    return rulers


def _extents(implementation: AgentImplementation) -> dict[tuple[str, str], tuple[int, int]]:
    """First and last bar of each template of each plan section.

    A section divided by an overlap goes on where it was, so its cycles are counted from its first part.
    """
    extents: dict[tuple[str, str], tuple[int, int]] = {}
    for section in implementation.sections:
        key = (section.plan_section_name, section.template_id)
        first, last = extents.get(key, (section.start_bar, section.end_bar))
        extents[key] = min(first, section.start_bar), max(last, section.end_bar)
    return extents


def _track(
    timing: Timing,
    implementation: AgentImplementation,
    rig: Rig,
    place: int,
    rulers: Sequence[ImplementationSection | None],
    extents: Mapping[tuple[str, str], tuple[int, int]],
    looks: Mapping[str, Channels],
    stage: ShowStage,
    missing: dict[Missing, dict[str, None]],
) -> HeadTrack:
    """The track of a head; what its maps lack is added to `missing`, with the head's name."""
    fixture = rig.fixtures[place]
    # Degrees and light first: a glide starts from the degrees before it.
    pan, tilt, light = np.zeros((3, timing.frames))
    look = Channels()
    spans: list[Span] = []
    for first, last, section in _runs(rulers):
        start, end = timing.span(first, last)
        if start >= end:
            continue
        if section is not None:
            look = looks[section.plan_section_name]
            extent = extents[section.plan_section_name, section.template_id]
            motion = motion_of(
                stage.library[section.template_id],
                section.params,
                section.base_pose,
                Head(place, len(rig), tuple(sorted(heads_of(section.targets, len(rig))))),
                _clock(timing, start, end, extent),
                stage.poses,
            )
            pan[start:end], tilt[start:end], light[start:end] = motion
            _enter(timing, section, first, start, end, pan, tilt)
        elif start:
            pan[start:end], tilt[start:end] = pan[start - 1], tilt[start - 1]
        constants, lacks = fixture.constants(look)
        for lack in lacks:
            missing.setdefault(lack, {})[fixture.fixture_id] = None
        if "shutter" not in fixture.dmx_mapping and look.shutter == "closed":
            light[start:end] = 0  # a head without a shutter is closed by its dimmer
        spans.append(Span(start, end, section, constants))
    if spans and spans[0].section is None:
        # Nothing was before: the head waits, dark, where it will be needed.
        lit = spans[0].end
        pose = (pan[lit], tilt[lit]) if lit < timing.frames else stage.poses["SOFT_HOME"]
        pan[:lit], tilt[:lit] = pose
        if len(spans) > 1:
            spans[0] = Span(0, lit, None, spans[1].constants)
    moved = np.stack([fixture.axis_dmx("pan", pan), fixture.axis_dmx("tilt", tilt), 255 * light])
    return HeadTrack(fixture, moved.astype(np.float32), tuple(spans))


def _runs(
    rulers: Sequence[ImplementationSection | None],
) -> list[tuple[int, int, ImplementationSection | None]]:
    """Bars ruled by the same section, as first bar, last bar, section."""
    borders = [bar for bar in range(1, len(rulers)) if rulers[bar] is not rulers[bar - 1]]
    return [(first + 1, last, rulers[first]) for first, last in pairwise([0, *borders, len(rulers)])]


def _clock(timing: Timing, start: int, end: int, extent: tuple[int, int]) -> Clock:
    first, last = extent
    origin = timing.span(first, first)[0]
    # Sections begin on a beat; rounding to frames, or beats that are missing, must not shift the pulses.
    first_beat = round(float(timing.beat_positions[min(origin, timing.frames - 1)]))
    return Clock(
        timing.bar_positions[start:end] - (first - 1),
        timing.beat_positions[start:end] - first_beat,
        min(last, timing.song.bars) - first + 1,
        timing.song.beats_per_bar,
    )


def _enter(
    timing: Timing, section: ImplementationSection, bar: int, start: int, end: int, pan: Any, tilt: Any
) -> None:
    """Glide from the pose before a section into it. A return after another layer won some bars is a cut."""
    entry = section.entry_transition
    if entry.mode == "glide" and entry.duration_bars > 0 and start and bar == section.start_bar:
        share = (timing.bar_positions[start:end] - timing.bar_positions[start]) / entry.duration_bars
        for values in (pan, tilt):
            values[start:end] = glide(values[start:end], values[start - 1], share)
