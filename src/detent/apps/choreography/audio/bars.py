"""Which beats begin a bar, and where the bars of a song are.

No single cue finds the downbeat: the kick drum is as often on the third beat as on the first. Chords and bass
notes change with the bar, and the parts of a song, which differ in loudness, begin with one. How much each of
these changes on a half beat, or a third of one, is averaged over all bars that would begin there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import maximum_filter1d

from detent.apps.choreography.audio.energy import STEP, loudness
from detent.apps.choreography.audio.pulse import Pulse, aligned, extended, pulse
from detent.apps.choreography.audio.rhythm import Curve
from detent.apps.choreography.audio.spectra import FRAMES_PER_S, Spectra

Rows = NDArray[np.float64]

METERS = (4, 3)
"""Beats per bar that are looked for, the usual one first."""
ADVANTAGE = 1.1
"""How much better the accents must fit three beats than four."""
LONGEST, SHORTEST = 1.5, 0.5
"""A bar's length, in that of its neighbours."""


@dataclass(frozen=True, slots=True)
class Meter:
    """How a song's beats make bars."""

    beats_per_bar: int
    phase: int
    """Index of the first downbeat."""
    confidence: float
    """0 to 1: the lead of the chosen beat over the next best."""
    method: str


def _sides(rows: Rows, width: int) -> tuple[Rows, Rows]:
    """Means of the rows before each mark and of those from it on, of as many as there are at the ends."""
    total = np.vstack((np.zeros(rows.shape[1]), np.cumsum(rows, axis=0)))
    here = np.arange(len(rows))
    low, high = np.maximum(here - width, 0), np.minimum(here + width, len(rows))
    before = (total[here] - total[low]) / np.maximum(here - low, 1)[:, None]
    return before, (total[high] - total[here]) / (high - here)[:, None]


def _change(rows: Rows, width: int) -> Curve:
    """Cosine distance of the rows on both sides of each mark."""
    before, after = _sides(rows, width)
    norm = np.linalg.norm(before, axis=1) * np.linalg.norm(after, axis=1)
    return np.asarray(np.where(norm > 1e-9, 1 - (before * after).sum(axis=1) / np.maximum(norm, 1e-9), 0.0))


def _steps(level: Rows, width: int) -> Curve:
    """Jumps of the level: how far it differs on both sides, where that is most and enough for a new part."""
    before, after = _sides(level, width)
    jump = np.abs(after - before)[:, 0]
    jump[0] = 0.0  # it has one side
    return np.where((jump >= STEP / 100) & (jump == maximum_filter1d(jump, width + 1)), jump, 0.0)


def _between(rows: NDArray[np.floating[Any]], frames: NDArray[np.intp]) -> Rows:
    """Mean row from each mark to the next."""
    total = np.vstack((np.zeros(rows.shape[1]), np.cumsum(rows, axis=0, dtype=np.float64)))
    ends = np.append(frames[1:], len(rows))
    return np.asarray((total[ends] - total[frames]) / np.maximum(ends - frames, 1)[:, None])


def _evidence(spectra: Spectra, heard: Pulse) -> Curve:
    """How much each mark looks like the beginning of a bar."""
    frames = np.minimum(np.rint(heard.marks_s * FRAMES_PER_S).astype(np.intp), spectra.frames - 1)
    beat = heard.per_beat
    level = _between(loudness(spectra)[:, None], frames)
    harmony = _change(_between(spectra.chroma, frames), beat)  # one beat before, one after
    bass = _change(_between(spectra.bass, frames), beat)
    # The cues count alike: weights fitted to half of the songs did no better on the other half. Of harmony
    # and bass, what is beyond three deviations is an accident, not a habit; jumps are rare by nature.
    return np.asarray(
        np.clip(_standard(harmony), -3, 3)
        + np.clip(_standard(bass), -3, 3)
        + _standard(_steps(level, 4 * beat))
    )


def _standard(cue: Curve) -> Curve:
    spread = cue.std()
    return np.asarray((cue - cue.mean()) / (spread if spread > 1e-9 else 1.0))


def downbeats(
    spectra: Spectra, tempo_bpm: float, beats_per_bar: int | None = None, settled: bool = False
) -> tuple[Curve, Meter]:
    """Settle the beats, and which of them begin a bar.

    A tracker that hears the off-beat for a while slips by half a beat, and its bars with it. So half beats
    are followed, or thirds where these fit, which leaves nothing to slip to, and one choice for the whole
    song says which are downbeats. A tempo that is `settled` is never doubled.

    Returns:
        The beats over the whole song, and their meter.
    """
    heard = pulse(spectra, tempo_bpm, settled)
    marks, beat = heard.marks_s, heard.per_beat
    if len(marks) < 3:
        return marks, Meter(beats_per_bar or 4, 0, 0.0, "config" if beats_per_bar else "assumed")
    evidence = _evidence(spectra, heard)
    best: tuple[float, int, Meter] | None = None
    for meter in METERS if beats_per_bar is None else (beats_per_bar,):
        size = beat * meter
        if len(marks) < 2 * size:
            continue
        scores = np.array([evidence[phase::size].mean() for phase in range(size)])
        allowed = np.array([phase for phase in range(size) if phase % beat in heard.firsts])
        phase = int(allowed[scores[allowed].argmax()])
        # The marks between are no rivals: what counts is how far the downbeat leads the other beats.
        beats = scores[phase % beat :: beat]
        accent = float(scores[phase] - np.delete(beats, phase // beat).mean())
        lead = float(scores[phase] - scores[allowed[allowed != phase]].max())
        sure = float(np.clip(lead / (np.ptp(scores) or 1.0), 0, 1))
        if best is None or accent > ADVANTAGE * best[0]:
            method = "accent" if beats_per_bar is None else "config"
            best = accent, phase % beat, Meter(meter, phase // beat, sure, method)
    marks = aligned(spectra.attacks, marks, beat)
    if best is None:
        method = "config" if beats_per_bar else "assumed"
        return marks[heard.firsts[0] :: beat], Meter(beats_per_bar or 4, 0, 0.0, method)
    return marks[best[1] :: beat], best[2]


def bar_starts(downbeats_s: Curve, bar_s: float, duration_s: float) -> Curve:
    """Bars over the whole song: the first starts at 0.0, the last ends with the song.

    `bar_s` is the length of a bar where fewer than two downbeats say it. A first or last piece shorter than
    half a bar belongs to its neighbour.
    """
    lines = downbeats_s[(downbeats_s >= 0) & (downbeats_s < duration_s)]
    if len(lines) < 2:
        lines = np.arange(lines[0] if len(lines) else 0.0, duration_s, bar_s)
    if len(lines) >= 2:
        lines = extended(lines, duration_s, 4)
    starts = np.concatenate(([0.0], lines[lines > 1e-6]))
    if len(starts) > 2 and starts[1] < SHORTEST * (starts[2] - starts[1]):
        starts = np.delete(starts, 1)
    if len(starts) > 2 and duration_s - starts[-1] < SHORTEST * (starts[-1] - starts[-2]):
        starts = starts[:-1]
    if len(starts) == 2 and min(starts[1], duration_s - starts[1]) < SHORTEST * bar_s:
        starts = starts[:1]
    return evened(starts, duration_s)


def evened(starts: Curve, duration_s: float) -> Curve:
    """Bars of which each is 0.5 to 1.5 of its neighbours, moved as little as that takes.

    A first or last piece is measured by the bar beside it, which may be twice as long.
    """
    edges = np.append(starts, duration_s)
    inner = range(1, len(edges) - 1)
    for _ in range(100):
        moved = False
        for edge in inner:
            before, after = edges[edge] - edges[edge - 1], edges[edge + 1] - edges[edge]
            shortest = 1 / (1 + LONGEST)  # of the two together
            low = SHORTEST / (1 + SHORTEST) if edge == 1 else shortest
            high = 1 - (SHORTEST / (1 + SHORTEST) if edge == len(edges) - 2 else shortest)
            share = before / (before + after)
            if not low - 1e-9 <= share <= high + 1e-9:
                wanted = float(np.clip(share, low + 1e-4, high - 1e-4))
                edges[edge] = edges[edge - 1] + wanted * (before + after)
                moved = True
        if not moved:
            break
    return edges[:-1]
