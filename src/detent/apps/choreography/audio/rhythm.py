"""Where a song's onsets, tempo and beats are, from numpy and scipy alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter1d, uniform_filter1d

from detent.apps.choreography.audio.spectra import FRAMES_PER_S, Spectra

Curve = NDArray[np.float64]

SLOWEST, FASTEST = 60.0, 200.0
"""Tempi that are looked for, in BPM."""
CENTRE, SPREAD = 120.0, 0.9
"""The usual tempo, and its standard deviation in octaves."""
TIGHTNESS = 100.0
"""What a beat out of place costs: this times the squared logarithm of the interval's ratio."""
FINER = 4
"""Parts of a frame in which beats are placed."""
RELATIONS = {"half": 0.5, "double": 2.0, "two_thirds": 2 / 3}
"""Tempi that a listener may find instead."""


@dataclass(frozen=True, slots=True)
class Rhythm:
    """Tempo and beats."""

    tempo_bpm: float
    beats_s: Curve
    confidence: float
    """0 to 1: how much stronger the onsets on the beats are than those between them."""
    candidates: tuple[tuple[str, float, float], ...]
    """Relation to the chosen tempo, BPM and score, the chosen one's score being 1."""


def onsets(decibel: NDArray[np.float32]) -> Curve:
    """How much begins in each frame: the mean rise over the bands, above its surroundings of a second."""
    rise = np.maximum(np.diff(decibel, axis=0, prepend=decibel[:1]), 0).mean(axis=1, dtype=np.float64)
    return np.asarray(np.maximum(rise - uniform_filter1d(rise, round(FRAMES_PER_S), mode="nearest"), 0.0))


def autocorrelation(envelope: Curve, longest: int) -> Curve:
    """Unbiased autocorrelation for lags 0 to `longest`."""
    from scipy import fft

    size = fft.next_fast_len(len(envelope) + longest, real=True)
    spectrum = np.abs(fft.rfft(envelope - envelope.mean(), size)) ** 2
    lags = np.arange(min(longest + 1, len(envelope)))
    return np.asarray(fft.irfft(spectrum, size)[lags] / (len(envelope) - lags))


def _prior(bpm: Curve) -> Curve:
    return np.asarray(np.exp(-0.5 * (np.log2(bpm / CENTRE) / SPREAD) ** 2))


def tempo(envelope: Curve) -> tuple[float, tuple[tuple[str, float, float], ...]] | None:
    """The likeliest tempo and its relatives; None where nothing repeats.

    A beat repeats after itself, after half of itself and after four. Two thirds of it, which it is
    mistaken for otherwise, do not.
    """
    longest = 60 * FRAMES_PER_S / SLOWEST
    curve = autocorrelation(envelope, 4 * int(longest) + 8)
    if len(curve) < 2 * longest or curve[0] <= 0:
        return None
    places = np.arange(len(curve))

    def score(bpm: Curve) -> Curve:
        lag = 60 * FRAMES_PER_S / bpm
        repeats = sum(
            (np.interp(lag * times, places, curve, right=0.0) for times in (0.5, 1, 4)), np.zeros(len(bpm))
        )
        return np.asarray(np.maximum(repeats, 0.0) * _prior(bpm) / curve[0])

    tempi = np.geomspace(SLOWEST, FASTEST, 1201)
    scores = score(tempi)
    best = int(scores.argmax())
    if scores[best] <= 0:
        return None
    bpm = float(tempi[best])
    if 0 < best < len(tempi) - 1:
        before, here, after = scores[best - 1 : best + 2]
        bend = before - 2 * here + after
        bpm *= float((tempi[1] / tempi[0]) ** (0.5 * (before - after) / bend if bend < 0 else 0.0))
    return bpm, tuple(
        (relation, bpm * factor, float(score(np.array([bpm * factor]))[0] / scores[best]))
        for relation, factor in RELATIONS.items()
    )


def chain(envelope: Curve, bpm: float, tightness: float = TIGHTNESS) -> Curve:
    """The seconds with the strongest onsets at the most even distance (dynamic programming).

    Frames are divided by `FINER`: a period that is no whole number of frames would else lose its place
    wherever the song pauses.
    """
    scale = envelope.std()
    period = 60 * FRAMES_PER_S * FINER / bpm
    if scale <= 0 or len(envelope) * FINER < 2 * period:
        return np.zeros(0)
    fine = np.interp(np.arange(len(envelope) * FINER) / FINER, np.arange(len(envelope)), envelope / scale)
    # An onset slightly off the grid still counts.
    strength = gaussian_filter1d(fine, period / 32, mode="constant")
    strength /= strength.std()
    back = np.arange(-round(2 * period), -round(period / 2) + 1)
    cost = -tightness * np.log(-back / period) ** 2
    lead = -int(back[0])
    total = np.zeros(lead + len(strength))
    link = np.full(len(strength), -1)
    threshold, started = 0.01 * strength.max(), False
    for frame, value in enumerate(strength.tolist()):
        options = total[frame : frame + len(back)] + cost
        best = int(options.argmax())
        total[frame + lead] = value + options[best]
        started = started or value >= threshold
        if started:
            link[frame] = frame + back[best]
    total = total[lead:]
    peaks = np.flatnonzero((total[1:-1] > total[:-2]) & (total[1:-1] >= total[2:])) + 1
    if not len(peaks):
        return np.zeros(0)
    strong = peaks[total[peaks] * 2 > np.median(total[peaks])]
    places = [int(strong[-1])]
    while (before := int(link[places[-1]])) >= 0:
        places.append(before)
    return np.array(places[::-1]) / (FRAMES_PER_S * FINER)


def line(beats_s: Curve) -> float:
    """Tempo of a straight line through the beats, in BPM."""
    return float(60 / np.polyfit(np.arange(len(beats_s)), beats_s, 1)[0])


def period_tempo(beats_s: Curve) -> float:
    """Tempo of the middle interval: unlike that of a line, no slip of the tracker moves it."""
    intervals = np.sort(np.diff(beats_s))
    quarter = len(intervals) // 4
    return float(60 / intervals[quarter : len(intervals) - quarter].mean())


def confidence(envelope: Curve, beats_s: Curve) -> float:
    """How much of the onsets lies on the beats rather than between them, 0 to 1."""
    if len(beats_s) < 2:
        return 0.0
    frames = np.arange(len(envelope))
    places = np.rint(beats_s * FRAMES_PER_S).astype(int)
    near = np.maximum.reduce([np.interp(places + d, frames, envelope) for d in (-1, 0, 1)])
    middles = (places[:-1] + places[1:]) // 2
    between = np.maximum.reduce([np.interp(middles + d, frames, envelope) for d in (-1, 0, 1)])
    total = near.mean() + between.mean()
    return float(np.clip((near.mean() - between.mean()) / total, 0, 1)) if total > 0 else 0.0


def track(spectra: Spectra, bpm: float | None = None) -> Rhythm | None:
    """Find tempo and beats; a tempo given by hand is kept to. None where nothing repeats."""
    envelope = onsets(spectra.mel_db)
    heard = tempo(envelope)
    if heard is None and bpm is None:
        return None
    candidates = heard[1] if heard else ()
    beats_s = chain(envelope, bpm or (heard[0] if heard else CENTRE))
    beats_s = beats_s[(beats_s >= 0) & (beats_s < spectra.duration_s)]
    if len(beats_s) < 2:
        return None
    return Rhythm(period_tempo(beats_s), beats_s, confidence(envelope, beats_s), candidates)
