"""How loud a song is, moment by moment and bar by bar."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from detent.apps.choreography.audio.rhythm import Curve
from detent.apps.choreography.audio.spectra import FRAMES_PER_S, Spectra

STORED = 768
"""Points of a stored curve at most."""
EVEN_DB = 1.0
"""A song whose loudness varies by less is equally loud throughout."""
SILENCE = 10 ** (-60 / 20)
"""Largest sample of a song that counts as silent."""
SLOPE = 25.0
"""Rise or fall of a build or a drop, of 100."""
STEP = 12.0
"""Jump of the mean energy, of 100, with which a new part of a song begins."""
SMOOTHED_BARS = 8


def loudness(spectra: Spectra) -> Curve:
    """0 to 1 for each frame: from the song's quiet moments to its loud ones."""
    if spectra.peak < SILENCE:
        return np.zeros(spectra.frames)
    low, high = np.percentile(spectra.rms_db, (5, 95))
    if high - low < EVEN_DB:
        return np.full(spectra.frames, 0.5)
    return np.asarray(np.clip((spectra.rms_db.astype(np.float64) - low) / (high - low), 0, 1))


def per_bar(curve: Curve, bars_s: Curve, duration_s: float) -> Curve:
    """Mean of a curve over each bar."""
    frames = np.minimum(np.rint(np.append(bars_s, duration_s) * FRAMES_PER_S).astype(int), len(curve))
    # A bar at the very end may be shorter than a frame.
    starts = np.minimum(frames[:-1], len(curve) - 1)
    ends = np.maximum(frames[1:], starts + 1)
    total = np.concatenate(([0.0], np.cumsum(curve)))
    return np.asarray((total[ends] - total[starts]) / (ends - starts))


def thinned(curve: NDArray[Any]) -> Curve:
    """The means of at most `STORED` stretches of a curve."""
    edges = np.linspace(0, len(curve), min(STORED, len(curve)) + 1).astype(int)
    return np.asarray(np.add.reduceat(curve, edges[:-1]) / np.diff(edges))


def smoothed(bars: Curve) -> Curve:
    """Mean of the eight bars around each bar, of as many as there are at the ends."""
    total = np.concatenate(([0.0], np.cumsum(bars)))
    here = np.arange(len(bars))
    low = np.maximum(here - SMOOTHED_BARS // 2, 0)
    high = np.minimum(here + SMOOTHED_BARS // 2, len(bars))
    return np.asarray((total[high] - total[low]) / (high - low))


def slopes(bars: Curve, bars_s: Curve, duration_s: float, rising: bool) -> list[dict[str, Any]]:
    """Stretches over which the smoothed energy rises, or falls, without turning, by `SLOPE` or more."""
    curve = smoothed(bars) * (1 if rising else -1)
    ends = np.append(bars_s, duration_s)
    climbs = np.diff(curve) > 0
    edges = np.flatnonzero(np.diff(np.concatenate(([False], climbs, [False])).astype(int)))
    return [
        {
            "start_s": float(ends[start]),
            "end_s": float(ends[end + 1]),
            "delta": float(curve[end] - curve[start]) * (1 if rising else -1),
        }
        for start, end in zip(edges[::2], edges[1::2], strict=True)
        if curve[end] - curve[start] >= SLOPE
    ]
