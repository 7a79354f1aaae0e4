"""Which beats begin a bar, and where the bars of a song are.

No single cue finds the downbeat: the kick drum is as often on the third beat as on the first. So several are
weighed together, each averaged over all bars that would begin on a half beat: onsets by their height, and how
much harmony, bass and sound change there (chords change with the bar, sections begin with one).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from detent.apps.choreography.audio.rhythm import Curve, chain, onsets
from detent.apps.choreography.audio.spectra import FRAMES_PER_S, Spectra

METERS = (4, 3)
"""Beats per bar that are looked for, the usual one first."""
ADVANTAGE = 1.1
"""How much better the accents must fit three beats than four."""
WEIGHTS = {
    "low onset": 0.33,
    "onset": 0.24,
    "mid onset": 0.41,
    "high onset": 0.28,
    "harmony, one beat": 0.67,
    "harmony, two beats": 0.53,
    "harmony, four beats": 0.25,
    "bass, one beat": 0.69,
    "bass, two beats": 0.51,
    "bass, four beats": 0.32,
    "sound, four beats": 0.19,
}
"""How much each cue counts: fitted to every second song of the benchmark, and to rendered MIDI files."""
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


def extended(marks: Curve, duration_s: float, around: int = 16) -> Curve:
    """Marks continued at the tempo of the nearest ones until they cover the song."""
    first = float(np.median(np.diff(marks[: around + 1])))
    last = float(np.median(np.diff(marks[-around - 1 :])))
    before = marks[0] - first * np.arange(int(marks[0] / first + 1e-6), 0, -1)
    after = marks[-1] + last * np.arange(1, max(0, int(np.ceil((duration_s - marks[-1]) / last - 1e-6))) + 1)
    chain = np.concatenate((before[before >= -1e-6], marks, after[after < duration_s - 1e-6]))
    return np.asarray(np.maximum(chain, 0.0))


def _near(curve: Curve, frames: NDArray[np.intp]) -> Curve:
    """Largest value of a curve within two frames of some frames."""
    padded = np.pad(curve, 2)
    return np.asarray(np.max([padded[np.minimum(frames, len(curve) - 1) + d] for d in range(5)], axis=0))


def _change(rows: NDArray[np.float64], before: int) -> Curve:
    """Cosine distance of the mean of the rows after each mark from the mean of those before it."""
    total = np.vstack((np.zeros(rows.shape[1]), np.cumsum(rows, axis=0)))
    count = len(rows)
    here = np.arange(count)
    low, high = np.maximum(here - before, 0), np.minimum(here + before, count)
    past, future = total[here] - total[low], total[high] - total[here]
    norm = np.linalg.norm(past, axis=1) * np.linalg.norm(future, axis=1)
    return np.asarray(np.where(norm > 1e-9, 1 - (past * future).sum(axis=1) / np.maximum(norm, 1e-9), 0.0))


def _between(rows: NDArray[np.float32], frames: NDArray[np.intp]) -> NDArray[np.float64]:
    """Mean row from each mark to the next."""
    total = np.vstack((np.zeros(rows.shape[1]), np.cumsum(rows, axis=0, dtype=np.float64)))
    ends = np.append(frames[1:], len(rows))
    return np.asarray((total[ends] - total[frames]) / np.maximum(ends - frames, 1)[:, None])


def cues(spectra: Spectra, marks_s: Curve) -> NDArray[np.float64]:
    """How much each half beat looks like the beginning of a bar: one row per mark, one column per weight."""
    frames = np.minimum(np.rint(marks_s * FRAMES_PER_S).astype(np.intp), spectra.frames - 1)
    chroma, bass = _between(spectra.chroma, frames), _between(spectra.bass, frames)
    timbre = spectra.mfcc
    sound = _between((timbre - timbre.mean(axis=0)) / (timbre.std(axis=0) + np.float32(1e-6)), frames)
    low, high = (share * spectra.mel_db.shape[1] // 20 for share in (6, 15))
    return np.column_stack(
        (
            _near(onsets(spectra.low_db), frames),
            _near(onsets(spectra.mel_db), frames),
            _near(onsets(spectra.mel_db[:, low:high]), frames),
            _near(onsets(spectra.mel_db[:, high:]), frames),
            *(_change(chroma, 2 * beats) for beats in (1, 2, 4)),
            *(_change(bass, 2 * beats) for beats in (1, 2, 4)),
            _change(sound, 8),
        )
    )


def _evidence(rows: NDArray[np.float64]) -> Curve:
    """The weighted cues of each mark in standard deviations."""
    spread = rows.std(axis=0)
    standard = (rows - rows.mean(axis=0)) / np.where(spread > 1e-9, spread, 1.0)
    # Beyond three deviations a moment is an accident, not a habit.
    return np.asarray(np.clip(standard, -3, 3) @ np.array(list(WEIGHTS.values())))


def downbeats(spectra: Spectra, tempo_bpm: float, beats_per_bar: int | None = None) -> tuple[Curve, Meter]:
    """Settle the beats, and which of them begin a bar.

    A tracker that hears the off-beat for a while slips by half a beat, and its bars with it. So half beats
    are followed, which leaves nothing to slip to, and one choice for the whole song says which are downbeats.

    Returns:
        The beats over the whole song, and their meter.
    """
    marks = chain(onsets(spectra.mel_db), 2 * tempo_bpm)
    if len(marks) < 3:
        return marks, Meter(beats_per_bar or 4, 0, 0.0, "config" if beats_per_bar else "assumed")
    marks = extended(marks, spectra.duration_s)
    evidence = _evidence(cues(spectra, marks))
    best: tuple[float, int, Meter] | None = None
    for meter in METERS if beats_per_bar is None else (beats_per_bar,):
        size = 2 * meter
        if len(marks) < 2 * size:
            continue
        scores = np.array([evidence[phase::size].mean() for phase in range(size)])
        phase = int(scores.argmax())
        # The half beats between are no rivals: what counts is how far the downbeat leads the other beats.
        beats = scores[phase % 2 :: 2]
        accent = float(scores[phase] - np.delete(beats, phase // 2).mean())
        lead = float(scores[phase] - np.delete(scores, phase).max())
        sure = float(np.clip(lead / (np.ptp(scores) or 1.0), 0, 1))
        if best is None or accent > ADVANTAGE * best[0]:
            method = "accent" if beats_per_bar is None else "config"
            best = accent, phase % 2, Meter(meter, phase // 2, sure, method)
    if best is None:
        method = "config" if beats_per_bar else "assumed"
        return marks[::2], Meter(beats_per_bar or 4, 0, 0.0, method)
    return marks[best[1] :: 2], best[2]


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
