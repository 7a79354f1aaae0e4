"""Which beats begin a bar, and where the bars of a song are.

No single cue finds the downbeat: the kick drum is as often on the third beat as on the first. So several are
weighed together, each averaged over all bars that begin on a candidate beat: low onsets, onsets as a whole,
the change of harmony and of bass from the beats before to the beats after, and the change of sound from the bars
before to the bars after (sections and phrases begin with a bar).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from detent.apps.choreography.audio.rhythm import Curve, onsets
from detent.apps.choreography.audio.spectra import FRAMES_PER_S, Spectra

METERS = (4, 3)
"""Beats per bar that are looked for, the usual one first."""
ADVANTAGE = 1.1
"""How much better the accents must fit three beats than four."""
CUES = ("low", "onset", "harmony", "bass", "phrase", "sound", "backbeat")
WEIGHTS = {4: np.ones(len(CUES)), 3: np.ones(len(CUES))}
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


def half_beats(beats_s: Curve, duration_s: float) -> Curve:
    """Beats and the middles between them, from the song's beginning to its end, at the local tempo.

    A tracker that slips onto the off-beat for a while leaves an interval of half a beat too much or too little;
    counted in half beats the chain has no slip.
    """
    period = float(np.median(np.diff(beats_s)))
    steps = np.maximum(1, np.rint(2 * np.diff(beats_s) / period)).astype(int)
    inner = [
        np.linspace(start, end, count, endpoint=False)
        for start, end, count in zip(beats_s[:-1], beats_s[1:], steps, strict=True)
    ]
    chain = np.concatenate((*inner, beats_s[-1:]))
    return extended(chain, duration_s)


def extended(marks: Curve, duration_s: float, around: int = 16) -> Curve:
    """Marks continued at the tempo of the nearest ones until they cover the song."""
    first = float(np.median(np.diff(marks[: around + 1])))
    last = float(np.median(np.diff(marks[-around - 1 :])))
    before = marks[0] - first * np.arange(int(marks[0] / first + 1e-6), 0, -1)
    after = marks[-1] + last * np.arange(1, max(0, int(np.ceil((duration_s - marks[-1]) / last - 1e-6))) + 1)
    chain = np.concatenate((before[before >= -1e-6], marks, after[after < duration_s - 1e-6]))
    return np.maximum(chain, 0.0)


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
    return np.where(norm > 1e-9, 1 - (past * future).sum(axis=1) / np.maximum(norm, 1e-9), 0.0)


def _between(rows: NDArray[np.float32], frames: NDArray[np.intp]) -> NDArray[np.float64]:
    """Mean row from each mark to the next."""
    total = np.vstack((np.zeros(rows.shape[1]), np.cumsum(rows, axis=0, dtype=np.float64)))
    ends = np.append(frames[1:], len(rows))
    return np.asarray((total[ends] - total[frames]) / np.maximum(ends - frames, 1)[:, None])


def cues(spectra: Spectra, marks_s: Curve, per_beat: int = 2) -> NDArray[np.float64]:
    """How much each half beat looks like the beginning of a bar: one row per mark, one column per cue."""
    frames = np.minimum(np.rint(marks_s * FRAMES_PER_S).astype(np.intp), spectra.frames - 1)
    chroma, bass = _between(spectra.chroma, frames), _between(spectra.bass, frames)
    timbre = spectra.mfcc
    timbre = (timbre - timbre.mean(axis=0)) / (timbre.std(axis=0) + 1e-6)
    sound = _between(timbre, frames)
    bands = spectra.mel_db.shape[1]
    high = onsets(spectra.mel_db[:, 3 * bands // 10 : 3 * bands // 4])
    return np.column_stack(
        (
            _near(onsets(spectra.low_db), frames),
            _near(onsets(spectra.mel_db), frames),
            _change(chroma, 2 * per_beat),
            _change(bass, per_beat),
            _change(chroma, 8 * per_beat) + _change(bass, 8 * per_beat),
            _change(sound, 8 * per_beat),
            # A snare drum sounds on the second beat and the last: high onsets speak against a downbeat.
            -_near(high, frames),
        )
    )


def _standard(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    # Beyond three deviations a moment is an accident, not a habit.
    spread = rows.std(axis=0)
    return np.clip((rows - rows.mean(axis=0)) / np.where(spread > 1e-9, spread, 1.0), -3, 3)


def phase_scores(rows: NDArray[np.float64], marks: int, weights: Curve) -> Curve:
    """Weighted mean of the cues over all bars that begin on each of the first `marks` marks."""
    evidence = _standard(rows) @ weights
    return np.array([evidence[phase::marks].mean() for phase in range(marks)])


def downbeats(
    spectra: Spectra, beats_s: Curve, beats_per_bar: int | None = None
) -> tuple[Curve, Meter]:
    """Settle the beats, and which of them begin a bar.

    Returns:
        The beats over the whole song, and their meter.
    """
    marks = half_beats(beats_s, spectra.duration_s)
    rows = cues(spectra, marks)
    tracked = np.isin(np.arange(len(marks)), np.searchsorted(marks, beats_s - 1e-3)).astype(np.float64)
    return _settled(marks, rows, tracked, beats_per_bar)


def _settled(
    marks: Curve, rows: NDArray[np.float64], tracked: Curve, beats_per_bar: int | None
) -> tuple[Curve, Meter]:
    votes = np.array([tracked[0::2].sum(), tracked[1::2].sum()]) / max(1.0, tracked.sum())
    onset = _standard(rows)[:, [0, 1]].sum(axis=1)
    parity = int(np.argmax([votes[p] + 0.5 * onset[p::2].mean() for p in (0, 1)]))
    beats, evidence = marks[parity::2], rows[parity::2]
    best: tuple[float, Meter] | None = None
    for meter in METERS if beats_per_bar is None else (beats_per_bar,):
        if len(beats) < 2 * meter:
            continue
        scores = phase_scores(evidence, meter, WEIGHTS.get(meter, WEIGHTS[4]))
        order = np.argsort(-scores, kind="stable")
        accent = float(scores[order[0]] - np.delete(scores, order[0]).mean())
        lead = float(scores[order[0]] - scores[order[1]])
        spread = float(np.ptp(scores))
        result = Meter(
            meter,
            int(order[0]),
            float(np.clip(lead / spread, 0, 1)) if spread > 0 else 0.0,
            "accent" if beats_per_bar is None else "config",
        )
        if best is None or accent > ADVANTAGE * best[0]:
            best = accent, result
    if best is None:
        return beats, Meter(beats_per_bar or 4, 0, 0.0, "config" if beats_per_bar else "assumed")
    return beats, best[1]


def bar_starts(downbeats_s: Curve, bar_s: float, duration_s: float) -> Curve:
    """Bars over the whole song: the first starts at 0.0, the last ends with the song.

    `bar_s` is the length of a bar where fewer than two downbeats say it. A first or last piece shorter than half
    a bar belongs to its neighbour.
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
