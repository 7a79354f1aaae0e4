"""Where a song's onsets, tempo and beats are, from numpy and scipy alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import uniform_filter1d

from detent.apps.choreography.audio.spectra import FRAMES_PER_S, Spectra

Curve = NDArray[np.float64]

SLOWEST, FASTEST = 60.0, 200.0
"""Tempi that are looked for, in BPM."""
CENTRE, SPREAD = 120.0, 0.9
"""The usual tempo, and its standard deviation in octaves."""
TIGHTNESS = 100.0
"""What a beat away from the expected place costs: this times the squared logarithm of the interval's ratio."""
RELATIONS = {"half": 0.5, "double": 2.0, "two_thirds": 2 / 3}
"""Tempi that a listener may find instead."""
ATTACK_S = 0.0
"""By how much the envelope rises before the onset is heard: a frame hears what lies ahead of its centre."""


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
    return np.maximum(rise - uniform_filter1d(rise, round(FRAMES_PER_S), mode="nearest"), 0.0)


def autocorrelation(envelope: Curve, longest: int) -> Curve:
    """Unbiased autocorrelation for lags 0 to `longest`."""
    from scipy import fft

    size = fft.next_fast_len(len(envelope) + longest, real=True)
    spectrum = np.abs(fft.rfft(envelope - envelope.mean(), size)) ** 2
    lags = np.arange(min(longest + 1, len(envelope)))
    return np.asarray(fft.irfft(spectrum, size)[lags] / (len(envelope) - lags))


def _prior(bpm: Curve) -> Curve:
    return np.exp(-0.5 * (np.log2(bpm / CENTRE) / SPREAD) ** 2)


def _value(curve: Curve, place: float) -> float:
    return float(np.interp(place, np.arange(len(curve)), curve))


def tempo(envelope: Curve) -> tuple[float, tuple[tuple[str, float, float], ...]] | None:
    """The likeliest tempo and its relatives; None where nothing repeats."""
    longest = int(np.ceil(60 * FRAMES_PER_S / SLOWEST))
    curve = autocorrelation(envelope, 2 * longest + 2)
    if len(curve) < longest + 2 or curve[0] <= 0:
        return None
    lags = np.arange(int(60 * FRAMES_PER_S / FASTEST), longest + 1)
    weighted = np.maximum(curve[lags], 0) * _prior(60 * FRAMES_PER_S / lags)
    best = int(lags[weighted.argmax()])
    if weighted.max() <= 0:
        return None
    before, here, after = curve[best - 1], curve[best], curve[best + 1]
    bend = before - 2 * here + after
    lag = best + (0.5 * (before - after) / bend if bend < 0 and abs(before - after) < -bend else 0.0)
    bpm = 60 * FRAMES_PER_S / lag

    def score(factor: float) -> float:
        relative = np.asarray(bpm * factor)
        return max(0.0, _value(curve, lag / factor)) * float(_prior(relative))

    chosen = score(1.0)
    return bpm, tuple(
        (name, bpm * factor, score(factor) / chosen if chosen > 0 else 0.0)
        for name, factor in RELATIONS.items()
    )


def beat_frames(envelope: Curve, bpm: float) -> NDArray[np.intp]:
    """The chain of frames with the strongest onsets at the most even distance (dynamic programming)."""
    period = 60 * FRAMES_PER_S / bpm
    # Onsets are smoothed over a part of the beat: a beat slightly off the grid still counts.
    spread = np.arange(-round(period), round(period) + 1)
    bell = np.exp(-0.5 * (spread * 32 / period) ** 2)
    scale = envelope.std()
    if scale <= 0:
        return np.zeros(0, np.intp)
    strength = np.convolve(envelope / scale, bell, "same")[: len(envelope)]
    # `same` is as long as the longer of the two.
    if len(strength) > len(envelope) or len(envelope) < len(bell):
        strength = np.convolve(envelope / scale, bell)[round(period) : round(period) + len(envelope)]
    back = np.arange(-round(2 * period), -round(period / 2) + 1)
    cost = -TIGHTNESS * np.log(-back / period) ** 2
    total = np.zeros(len(strength))
    link = np.full(len(strength), -1)
    threshold, started = 0.01 * strength.max(), False
    padded = np.concatenate((np.zeros(-back[0]), total))
    for frame, value in enumerate(strength):
        options = padded[frame : frame + len(back)] + cost
        best = int(options.argmax())
        padded[frame - back[0]] = value + options[best]
        if started or value >= threshold:
            started = True
            link[frame] = frame + back[best]
    total = padded[-back[0] :]
    inner = np.flatnonzero((total[1:-1] > total[:-2]) & (total[1:-1] >= total[2:])) + 1
    if not len(inner):
        return np.zeros(0, np.intp)
    strong = inner[total[inner] * 2 > np.median(total[inner])]
    chain = [int(strong[-1])]
    while (before := int(link[chain[-1]])) >= 0:
        chain.append(before)
    return np.array(chain[::-1], np.intp)


def refined(envelope: Curve, frames: NDArray[np.intp]) -> Curve:
    """Beats in seconds, each between its frames where a parabola through the onset has its top."""
    frames = frames[(frames > 0) & (frames < len(envelope) - 1)]
    before, here, after = envelope[frames - 1], envelope[frames], envelope[frames + 1]
    bend = before - 2 * here + after
    top = (bend < 0) & (here >= before) & (here >= after)
    shift = np.where(top, 0.5 * (before - after) / np.where(top, bend, 1.0), 0.0)
    return (frames + shift) / FRAMES_PER_S


def line(beats_s: Curve) -> float:
    """Tempo of a straight line through the beats, in BPM."""
    return float(60 / np.polyfit(np.arange(len(beats_s)), beats_s, 1)[0])


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
    frames = beat_frames(envelope, bpm or (heard[0] if heard else CENTRE))
    beats_s = refined(envelope, frames) + ATTACK_S
    beats_s = beats_s[(beats_s >= 0) & (beats_s < spectra.duration_s)]
    if len(beats_s) < 2:
        return None
    return Rhythm(line(beats_s), beats_s, confidence(envelope, beats_s), candidates)
