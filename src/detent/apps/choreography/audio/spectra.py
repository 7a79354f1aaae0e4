"""What every moment of a song sounds like: one row for each frame, made in one pass over its samples.

Only these rows stay in memory (about 500 bytes a frame, 80 MB for an hour), never the samples.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from detent.apps.choreography.audio.decoding import RATE, Samples

Floats = NDArray[np.float32]

FRAME = 2048
HOP = 512
FRAMES_PER_S = RATE / HOP
ATTACK_FRAME, ATTACK_HOP = 512, 128
ATTACK_HZ = (80.0, 250.0, 500.0, 1000.0, 2000.0, 4000.0, 8000.0, RATE / 2)
"""Borders of the bands, with what is below the first."""
ATTACKS_PER_S = RATE / ATTACK_HOP
BATCH = 1024
"""Frames that are transformed at once."""
MELS = 40
LOW_HZ = 200.0
"""Below lie kick drum and bass."""
FLOOR = 1e-10
RANGE_DB = 80.0
"""What is further below the loudest moment counts as silence."""


@dataclass(frozen=True, slots=True)
class Spectra:
    """The frames of a song, one row each; frame k is centred on second k / `FRAMES_PER_S`."""

    rms_db: Floats
    peak: float
    """Largest absolute sample."""
    duration_s: float
    mel_db: Floats
    """Power in bands, in dB, cut off `RANGE_DB` below the loudest."""
    low_db: Floats
    """Power in each bin below `LOW_HZ`, in the same manner."""
    chroma: Floats
    """Strength of the twelve pitch classes from C, each frame's largest 1; 0 in silence."""
    bass: Floats
    """The same for the lowest two octaves, not normalised."""
    brightness: Floats
    """Spectral centroid in Hz."""
    flatness: Floats
    """0 for a tone, 1 for noise."""
    attacks: Floats
    """How much the sound swells, `ATTACKS_PER_S` values a second, exact to a few milliseconds."""

    @property
    def frames(self) -> int:
        """How many frames there are."""
        return len(self.rms_db)

    @property
    def times_s(self) -> NDArray[np.float64]:
        """Second on which each frame is centred."""
        return np.arange(self.frames) / FRAMES_PER_S

    @property
    def mfcc(self) -> Floats:
        """Thirteen cepstral coefficients: the timbre, without its loudness details."""
        return np.asarray(fft.dct(self.mel_db, axis=1, norm="ortho")[:, :13], np.float32)


def mel_filters(bands: int = MELS, low_hz: float = 30.0, high_hz: float = RATE / 2) -> Floats:
    """Triangles, evenly spaced on the mel scale, each of area 1; one column per band."""
    lowest, highest = (2595 * float(np.log10(1 + hertz / 700)) for hertz in (low_hz, high_hz))
    mels = np.linspace(lowest, highest, bands + 2)
    edges = 700 * (10 ** (mels / 2595) - 1)
    hertz = fft.rfftfreq(FRAME, 1 / RATE)[:, None]
    rising = (hertz - edges[:-2]) / np.diff(edges)[:-1]
    falling = (edges[2:] - hertz) / np.diff(edges)[1:]
    triangles = np.maximum(0.0, np.minimum(rising, falling))
    # The lowest triangles are narrower than a bin and may hold none: each has at least its nearest.
    nearest = np.abs(hertz - edges[1:-1]).argmin(axis=0)
    triangles[nearest, np.arange(bands)] = np.maximum(triangles[nearest, np.arange(bands)], 0.5)
    return np.asarray(triangles / triangles.sum(axis=0), np.float32)


def pitch_filters(low_hz: float, high_hz: float, size: int = FRAME) -> Floats:
    """Share of each bin in the twelve pitch classes: a bell one semitone wide around each pitch."""
    hertz = fft.rfftfreq(size, 1 / RATE)
    with np.errstate(divide="ignore"):
        pitch = 69 + 12 * np.log2(hertz / 440)
    pitch[0] = 0
    distance = (pitch[:, None] - np.arange(12) + 6) % 12 - 6
    inside = (hertz >= low_hz) & (hertz <= high_hz)
    return np.asarray(np.exp(-0.5 * (distance / 0.4) ** 2) * inside[:, None], np.float32)


class Frames:
    """Cuts a stream into frames, `BATCH` at a time; the first is centred on the first sample."""

    def __init__(self, size: int, hop: int) -> None:
        self.size = size
        self.hop = hop
        self._kept = np.zeros(size // 2, np.float32)

    def add(self, samples: Samples) -> Iterator[Samples]:
        """The frames that are complete with these samples."""
        self._kept = np.concatenate((self._kept, samples))
        while len(self._kept) >= self.size:
            count = min(BATCH, (len(self._kept) - self.size) // self.hop + 1)
            yield np.lib.stride_tricks.sliding_window_view(self._kept, self.size)[
                : count * self.hop : self.hop
            ]
            self._kept = self._kept[count * self.hop :]

    def rest(self) -> Iterator[Samples]:
        """The frames that are left when the stream has ended."""
        return self.add(np.zeros(self.size // 2, np.float32))


def framed(blocks: Iterable[Samples]) -> Iterator[Samples]:
    """The frames of a whole song."""
    frames, empty = Frames(FRAME, HOP), True
    for block in blocks:
        empty = False
        yield from frames.add(block)
    if not empty:
        yield from frames.rest()


class Attacks:
    """Gathers where a sound swells, by frames so short that they say when.

    The amplitude in a frame rises fastest when its middle passes an attack; its decibels, and those of longer
    frames, rise earlier, as soon as its edge does.
    """

    def __init__(self) -> None:
        hertz = fft.rfftfreq(ATTACK_FRAME, 1 / RATE)
        self._starts = np.searchsorted(hertz, (0.0, *ATTACK_HZ[:-1]))
        self._frames = Frames(ATTACK_FRAME, ATTACK_HOP)
        self._window = np.hanning(ATTACK_FRAME + 1)[:-1].astype(np.float32)
        self._rows: list[Floats] = []

    def add(self, samples: Samples) -> None:
        """Hear more of the song."""
        self._rows += map(self._bands, self._frames.add(samples))

    def curve(self) -> Floats:
        """The swell at each `1 / ATTACKS_PER_S` seconds; each band counts alike, however loud it is."""
        self._rows += map(self._bands, self._frames.rest())
        bands = np.concatenate(self._rows)
        bands /= np.maximum(bands.mean(axis=0, dtype=np.float64), FLOOR).astype(np.float32)
        rise = np.maximum(bands[1:] - bands[:-1], 0).mean(axis=1)
        # What lies between two frames is shared by them.
        return np.asarray((np.append(rise, 0) + np.append(0, rise)) / 2, np.float32)

    def _bands(self, frames: Samples) -> Floats:
        power = np.abs(fft.rfft(frames * self._window, axis=1)) ** 2
        return np.asarray(np.sqrt(np.add.reduceat(power, self._starts, axis=1)), np.float32)


@dataclass(frozen=True, slots=True)
class Banks:
    """How bins are gathered, one column each."""

    mels: Floats
    pitches: Floats

    @classmethod
    def builtin(cls) -> Banks:
        """Our own."""
        return cls(mel_filters(), pitch_filters(100, 4000))


def spectra(blocks: Iterable[Samples], banks: Banks | None = None) -> Spectra:
    """Read a whole song."""
    banks = banks or Banks.builtin()
    window = np.hanning(FRAME + 1)[:-1].astype(np.float32)
    hertz = fft.rfftfreq(FRAME, 1 / RATE).astype(np.float32)
    low = slice(1, int(np.searchsorted(hertz, LOW_HZ)))
    basses = pitch_filters(40, 250)
    rows: list[tuple[Floats, ...]] = []
    attacks = Attacks()
    samples, peak = 0, 0.0

    def counted() -> Iterator[Samples]:
        nonlocal samples, peak
        for block in blocks:
            samples += len(block)
            peak = max(peak, float(np.abs(block).max(initial=0.0)))
            attacks.add(block)
            yield block

    for frames in framed(counted()):
        magnitude = np.abs(fft.rfft(frames * window, axis=1))
        power = magnitude**2
        total = np.maximum(magnitude.sum(axis=1), FLOOR)
        pitched = magnitude @ banks.pitches
        rows.append(
            (
                _decibel(np.mean(frames * frames, axis=1)),
                _decibel(power @ banks.mels),
                _decibel(power[:, low]),
                pitched / np.maximum(pitched.max(axis=1, keepdims=True), 1e-3),
                magnitude @ basses,
                magnitude @ hertz / total,
                np.exp(np.log(power[:, 1:] + FLOOR).mean(axis=1)) / (power[:, 1:].mean(axis=1) + FLOOR),
            )
        )
    rms_db, mel_db, low_db, chroma, bass, brightness, flatness = (
        np.concatenate(column) for column in zip(*rows, strict=True)
    )
    return Spectra(
        rms_db,
        peak,
        samples / RATE,
        _cut(mel_db),
        _cut(low_db),
        chroma,
        bass,
        brightness,
        flatness,
        attacks.curve(),
    )


def _decibel(power: Floats) -> Floats:
    return np.asarray(10 * np.log10(np.maximum(power, FLOOR)), np.float32)


def _cut(decibel: Floats) -> Floats:
    return np.asarray(np.maximum(decibel, decibel.max() - np.float32(RANGE_DB)))
