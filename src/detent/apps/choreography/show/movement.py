"""What a template makes one head do: degrees of pan and tilt, and light from 0 to 1, frame by frame.

Places are in bars of the template since its section began: a speed stretches them, a cut does not start them
anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from detent.apps.choreography.domain.plan import Params
from detent.apps.choreography.domain.targets import target_sets
from detent.apps.choreography.domain.template import Template, TemplateStep
from detent.apps.choreography.domain.vocabulary import INTENSITIES, SPEEDS, Pose

Values = NDArray[np.float64]
FASTEST_PULSE = 4
"""Pulses a beat at which `doubling` stops."""
DOUBLING_BARS = 2
SLOWEST_PULSE = 0.5
"""Pulses a beat with which `doubling` begins."""


class Head(NamedTuple):
    """A head's place in the rig and among the heads of a template."""

    place: int
    rig: int
    """How many heads the rig has."""
    given: tuple[int, ...]
    """Places of the heads the template is given."""

    @property
    def x(self) -> float:
        """-1 at the left end of the rig, 1 at the right."""
        return 2 * self.place / (self.rig - 1) - 1 if self.rig > 1 else 0.0

    def hit(self, target: str) -> bool:
        """Whether a target set, counted among the given heads, holds this one."""
        places = target_sets(len(self.given)).get(target, frozenset())
        return any(self.given[place] == self.place for place in places)


class Clock(NamedTuple):
    """Where the frames of a section are."""

    bars: Values
    """Bars since the section began."""
    beats: Values
    """Beats since the section began."""
    length: float
    """Bars of the whole section."""
    beats_per_bar: int


class Motion(NamedTuple):
    """Degrees and light of a head, for some frames."""

    pan: Values
    tilt: Values
    light: Values


def motion_of(
    template: Template,
    params: Params,
    base_pose: str,
    head: Head,
    clock: Clock,
    poses: Mapping[str, Pose],
) -> Motion:
    """What a head does in a section."""
    steps = [step for step in template.steps if head.hit(step.target)]
    shape = clock.bars.shape
    base = poses.get(base_pose, poses["AUDIENCE_CENTER"])
    if not steps:
        return Motion(np.full(shape, base.pan), np.full(shape, base.tilt), np.zeros(shape))
    speed = SPEEDS.get(params.speed, 1.0)
    bars = _template_bars(template, steps, clock, speed)
    active, turns = _active(template, steps, bars)
    motion = Motion(np.empty(shape), np.empty(shape), np.empty(shape))
    for number, step in enumerate(steps):
        where = np.flatnonzero(active == number)
        if len(where):
            frames = Clock(clock.bars[where], clock.beats[where], clock.length, clock.beats_per_bar)
            local = bars[where] - turns[where] - step.start_offset_bars
            pan, tilt = _angles(step, params, base, head, local, frames, speed, poses)
            motion.pan[where], motion.tilt[where] = pan, tilt
            motion.light[where] = _light(step, head, local, frames)
    _glide_between(steps, active, turns, bars, motion)
    return motion


def glide(values: Values, start: float, share: Values) -> Values:
    """Values reached from another one, gently, as a share goes from 0 to 1."""
    eased = np.clip(share, 0, 1)
    eased = eased * eased * (3 - 2 * eased)
    return start + (values - start) * eased


def _template_bars(template: Template, steps: Sequence[TemplateStep], clock: Clock, speed: float) -> Values:
    """Places in the template: its own bars, or stretched over the section if nothing in it loops."""
    if any(step.loop for step in steps):
        return clock.bars / speed
    return clock.bars * _ends(template, steps) / max(clock.length, 1e-9)


def _ends(template: Template, steps: Sequence[TemplateStep]) -> float:
    ends = [step.start_offset_bars + step.duration_bars for step in steps]
    return max(template.timing.default_duration_bars, *ends)


def _active(
    template: Template, steps: Sequence[TemplateStep], bars: Values
) -> tuple[NDArray[np.int64], Values]:
    """For each frame, the step that rules it, and the bar at which its turn began.

    The last one listed wins. Where none is due, the one that ended last begins anew.
    """
    period = _ends(template, steps) if any(step.loop for step in steps) else np.inf
    # Rounding must not put a frame on a border into the turn before.
    turns = np.floor(bars / period + 1e-9) * period if np.isfinite(period) else np.zeros_like(bars)
    local = np.maximum(bars - turns, 0)
    active = np.full(bars.shape, -1)
    for number, step in enumerate(steps):
        begun = local >= step.start_offset_bars - 1e-9
        active[begun & (local < step.start_offset_bars + step.duration_bars - 1e-9)] = number
    idle = active < 0
    if idle.any():
        order = sorted(range(len(steps)), key=lambda number: steps[number].start_offset_bars)
        active[idle] = order[0]
        for number in order:
            step = steps[number]
            over = idle & (local >= step.start_offset_bars + step.duration_bars - 1e-9)
            active[over] = number
            if step.loop:
                rounds = np.floor((local[over] - step.start_offset_bars) / step.duration_bars + 1e-9)
                turns[over] = np.floor(bars[over] / period + 1e-9) * period + rounds * step.duration_bars
    return active, turns


def _cycles(
    params: Mapping[str, Any], step: TemplateStep, local: Values, frames: Clock, speed: float
) -> Values:
    """Cycles done, for each frame."""
    if "cycle_beats" in params:
        return frames.beats / (float(params["cycle_beats"]) * speed)
    return local / float(params.get("cycle_bars", step.duration_bars))


def _angles(
    step: TemplateStep,
    params: Params,
    base: Pose,
    head: Head,
    local: Values,
    frames: Clock,
    speed: float,
    poses: Mapping[str, Pose],
) -> tuple[Values, Values]:
    """Pose + geometry + movement."""
    given = step.movement_params
    progress = np.clip(local / step.duration_bars, 0, 1)
    cycles = _cycles(given, step, local, frames, speed) + step.phase_offset * head.place
    wave = 2 * np.pi * cycles
    widest = float(given.get("amplitude", 0.0))
    width = widest + (float(given.get("amplitude_to", widest)) - widest) * progress
    width = width * INTENSITIES.get(params.intensity, 1.0)
    still = np.zeros_like(local)
    centre_pan, centre_tilt, pan, tilt = base.pan + still, base.tilt + still, still, still
    match step.movement_id:
        case "sway":
            pan = width * np.sin(wave)
        case "tilt_wave":
            tilt = width * np.sin(wave)
        case "circle":
            pan, tilt = width * np.cos(wave), width * np.sin(wave)
        case "figure8":
            pan, tilt = width * np.sin(wave), width / 2 * np.sin(2 * wave)
        case "snap":
            pan = width * np.clip(1 - 2 * (cycles % 1), 0, 1)
        case "steps" if given.get("poses"):
            held = [poses.get(name, base) for name in given["poses"]]
            at = np.floor(cycles * len(held) + 1e-6).astype(int) % len(held)
            # Poses are absolute: mirrored, they change sides.
            pan, centre_pan = np.array([pose.pan for pose in held], dtype=float)[at], still
            centre_tilt = np.array([pose.tilt for pose in held], dtype=float)[at]
        case "ramp":
            start, end = _ramp_ends(given.get("poses") or (), params, base, poses)
            share = progress
            if "rung_beats" in given:
                rungs = max(step.duration_bars * speed * frames.beats_per_bar / given["rung_beats"], 2)
                share = np.clip(np.floor(progress * rungs + 1e-6) / (np.ceil(rungs) - 1), 0, 1)
            pan, centre_pan = start.pan + (end.pan - start.pan) * share, still
            centre_tilt = start.tilt + (end.tilt - start.tilt) * share
    spread = _spread(step.geometry_params, progress)
    match step.geometry_id:
        case "fan":
            centre_pan = centre_pan + spread * head.x
        case "cross":
            centre_pan = centre_pan - spread * head.x
        case "chevron":
            centre_tilt = centre_tilt + spread * abs(head.x)
        case "mirror" if head.x > 0:
            pan = -pan
        case "alternate" if head.place % 2:
            pan, tilt = -pan, -tilt
    return centre_pan + pan, centre_tilt + tilt


def _ramp_ends(
    names: Sequence[str], params: Params, base: Pose, poses: Mapping[str, Pose]
) -> tuple[Pose, Pose]:
    """First and last pose of a ramp: the section's own, then the template's, then the base pose."""
    start = params.start_pose or (names[0] if len(names) > 1 else None)
    end = params.end_pose or (names[-1] if names else None)
    return (poses.get(start, base) if start else base), (poses.get(end, base) if end else base)


def _spread(params: Mapping[str, Any], progress: Values) -> Values | float:
    if "from" in params or "to" in params:
        start, end = float(params.get("from", 0.0)), float(params.get("to", 0.0))
        return start + (end - start) * progress
    return float(params.get("spread", 0.0))


def _light(step: TemplateStep, head: Head, local: Values, frames: Clock) -> Values:
    """Light, from 0 to 1. Pulses and chases keep to the beats of the song, whatever the speed."""
    given = step.dimmer_params
    low, high = float(given.get("lo", 0.0)), float(given.get("hi", 1.0))
    progress = np.clip(local / step.duration_bars, 0, 1)
    match step.dimmer_id:
        case "level":
            light = np.full_like(local, float(given.get("level", 1.0)))
        case "breathe":
            light = low + (high - low) * (0.5 - 0.5 * np.cos(2 * np.pi * local / step.duration_bars))
        case "beat_pulse":
            light = high - (high - low) * _phase(frames.beats)
        case "fade_in":
            light = low + (high - low) * progress
        case "fade_out":
            light = high - (high - low) * progress
        case "chase":
            order = _chase_order(head, str(given.get("order", "left")))
            turn = np.floor(frames.beats * 2 + 1e-6).astype(int) % len(order)
            light = np.where(turn == order.index(head.place), high, low)
        case "doubling":
            stages = np.floor(np.maximum(local, 0) / DOUBLING_BARS + 1e-9)
            rate = np.minimum(SLOWEST_PULSE * 2.0**stages, FASTEST_PULSE)
            light = high - (high - low) * _phase(frames.beats * rate)
    return np.clip(light, 0, 1)


def _phase(turns: Values) -> Values:
    """How far into a turn; a beat that rounding put just before itself counts as begun."""
    turns = turns + 1e-6
    return np.asarray(turns - np.floor(turns))


def _chase_order(head: Head, order: str) -> list[int]:
    """The given heads in the order in which they are lit."""
    if order == "left":
        return sorted(head.given)
    middle = (head.given[0] + head.given[-1]) / 2
    return sorted(head.given, key=lambda place: (abs(place - middle), place))


def _glide_between(
    steps: Sequence[TemplateStep], active: NDArray[np.int64], turns: Values, bars: Values, motion: Motion
) -> None:
    """Blend the poses where a step is entered, or the one before left, by a glide."""
    if all(
        transition.mode == "cut"
        for step in steps
        for transition in (step.entry_transition, step.exit_transition)
    ):
        return
    borders = np.flatnonzero((np.diff(active) != 0) | (np.diff(turns) != 0)) + 1
    edges = [*borders.tolist(), len(active)]
    for start, end in pairwise(edges):
        transitions = (steps[active[start]].entry_transition, steps[active[start - 1]].exit_transition)
        length = max(change.duration_bars if change.mode == "glide" else 0 for change in transitions)
        if length > 0:
            share = (bars[start:end] - bars[start]) / length
            for values in (motion.pan, motion.tilt):
                values[start:end] = glide(values[start:end], values[start - 1], share)
