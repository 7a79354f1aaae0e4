"""The even pulse below the beats, and where exactly it lies.

Most music divides its beats in two. Where it swings, or counts in triplets, the second of two notes comes on
the last third of the beat: half beats then fit either the first notes or the second, and beats go astray.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.ndimage import median_filter

from detent.apps.choreography.audio.rhythm import CENTRE, FINER, Curve, chain, onsets
from detent.apps.choreography.audio.spectra import ATTACKS_PER_S, FRAMES_PER_S, Floats, Spectra

EVENNESS = 300.0
"""Tightness of the chain of half beats: at that of beats, one song in twenty slips onto its quarter beats."""
NEAR_S = 0.029
"""How far from a mark an onset belongs to it."""
CLEARER = 0.15
"""How much more of the onsets must lie on thirds than on halves or quarters."""
FARTHEST_S = 0.03
"""How far the attacks of a song may lie from the marks."""
WANDERING_S = 0.02
"""How far those of a few bars may lie from the others: the chain of marks is stiff."""
STEP_S = 0.001
AROUND = 16
"""Beats that are moved alike."""
LIKE = 5
"""Neighbouring stretches of which the middle one decides."""


@dataclass(frozen=True, slots=True)
class Pulse:
    """The marks of a song's pulse."""

    marks_s: Curve
    per_beat: int
    """2 or 3."""
    firsts: tuple[int, ...]
    """Which of the first `per_beat` marks may be a beat."""


def pulse(spectra: Spectra, tempo_bpm: float, settled: bool) -> Pulse:
    """Find the pulse of a song whose tempo is known.

    Music in triplets is often heard at half its tempo, for the halves of that are beats. So thirds are tried
    of the double as well, where that is the more usual tempo and nobody has `settled` it.
    """
    envelope = onsets(spectra.mel_db)
    marks = {
        parts: extended(chain(envelope, parts * tempo_bpm, EVENNESS), spectra.duration_s) for parts in (2, 4)
    }
    even = max(share(envelope, found) for found in marks.values())
    tempi = [tempo_bpm]
    if not settled and 2 * tempo_bpm * tempo_bpm < CENTRE * CENTRE:
        tempi.append(2 * tempo_bpm)
    for tempo in tempi:
        thirds = extended(chain(envelope, 3 * tempo, EVENNESS), spectra.duration_s)
        if share(envelope, thirds) > even + CLEARER:
            return Pulse(thirds, 3, (_long_short(envelope, thirds),))
    return Pulse(marks[2], 2, (0, 1))


def extended(marks: Curve, duration_s: float, around: int = 16) -> Curve:
    """Marks continued at the tempo of the nearest ones until they cover the song; a single one as it is."""
    if len(marks) < 2:
        return marks
    first = float(np.median(np.diff(marks[: around + 1])))
    last = float(np.median(np.diff(marks[-around - 1 :])))
    before = marks[0] - first * np.arange(int(marks[0] / first + 1e-6), 0, -1)
    after = marks[-1] + last * np.arange(1, max(0, int(np.ceil((duration_s - marks[-1]) / last - 1e-6))) + 1)
    chain = np.concatenate((before[before >= -1e-6], marks, after[after < duration_s - 1e-6]))
    return np.asarray(np.maximum(chain, 0.0))


def share(envelope: Curve, marks_s: Curve) -> float:
    """How much of the onsets lies near marks: 0 is what chance would give, 1 all of them."""
    total = envelope.sum()
    fine = np.interp(np.arange(len(envelope) * FINER) / FINER, np.arange(len(envelope)), envelope)
    places = np.rint(marks_s * FRAMES_PER_S * FINER).astype(int)
    reach = round(NEAR_S * FRAMES_PER_S * FINER)
    around = (places[:, None] + np.arange(-reach, reach + 1)).ravel()
    near = np.zeros(len(fine), bool)
    near[around[(around >= 0) & (around < len(fine))]] = True
    chance = near.mean()
    if total <= 0 or chance > 0.95:  # marks everywhere say nothing
        return 0.0
    return float((fine[near].sum() / fine.sum() - chance) / (1 - chance))


def _long_short(envelope: Curve, thirds_s: Curve) -> int:
    """Which third is the beat: the one before the weakest, for what swings goes long, short."""
    places = np.rint(thirds_s * FRAMES_PER_S).astype(int)
    frames = np.arange(len(envelope))
    strength = np.maximum.reduce([np.interp(places + aside, frames, envelope) for aside in (-1, 0, 1)])
    return (int(np.argmin([strength[third::3].mean() for third in range(3)])) - 1) % 3


def aligned(attacks: Floats, marks_s: Curve, per_beat: int) -> Curve:
    """The marks, moved onto the attacks: all alike, then each with those of the beats around it.

    Marks are made from frames of 93 ms in decibels, whose rise begins when a frame's edge meets an attack: in
    silence that is up to 46 ms too early, in dense music hardly. `attacks` rise where the sound does.
    """
    if len(marks_s) < 2:
        return marks_s
    moved = marks_s + offset(attacks, marks_s, FARTHEST_S)
    half = AROUND * per_beat // 2
    places = np.arange(0, len(moved), half // 2)
    by = [offset(attacks, moved[max(0, place - half) : place + half + 1], WANDERING_S) for place in places]
    by = median_filter(by, LIKE, mode="nearest")  # a rest or an upbeat is no reason
    return np.asarray(np.maximum(moved + np.interp(np.arange(len(moved)), places, by), 0.0))


def offset(attacks: Floats, marks_s: Curve, farthest_s: float) -> float:
    """Seconds by which most attacks lie behind the marks; 0 where none are within reach."""
    tried = np.arange(-round(farthest_s / STEP_S), round(farthest_s / STEP_S) + 1) * STEP_S
    frames = np.arange(len(attacks))
    found = np.array([np.interp((marks_s + by) * ATTACKS_PER_S, frames, attacks).mean() for by in tried])
    bell = np.hanning(13)[1:-1]
    smooth = np.convolve(np.pad(found, 5, mode="edge"), bell / bell.sum(), mode="valid")
    best = int(smooth.argmax())
    return float(tried[best]) if 0 < best < len(tried) - 1 else 0.0  # at an edge it may still rise
