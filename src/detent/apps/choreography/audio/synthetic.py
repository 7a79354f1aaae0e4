"""Generated songs whose beats, bars, borders and labels are known: for tests, benchmarks and demos."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from detent.apps.choreography.audio.problem import library

Wave = NDArray[np.float64]

RATE = 22_050
LOUDNESS = {
    "intro": 0.16, "verse": 0.42, "build": 0.5, "drop": 1.0, "chorus": 0.85, "breakdown": 0.2, "bridge": 0.5,
    "outro": 0.14,
}  # fmt: skip
"""How loud the parts of a song are."""
FORM = (
    ("intro", 8), ("verse", 8), ("chorus", 8), ("verse", 8), ("build", 8), ("drop", 8), ("breakdown", 8),
    ("chorus", 8), ("outro", 8),
)  # fmt: skip
CHORDS: dict[str, tuple[int, ...]] = {
    "verse": (0, 9, 5, 7),
    "chorus": (5, 7, 0, 9),
    "bridge": (2, 4, 9, 7),
    "build": (5, 5, 7, 7),
    "drop": (9, 5, 0, 7),
    "breakdown": (9, 5),
    "intro": (0, 5),
    "outro": (5, 0),
}
"""Roots in semitones above the key, one for each bar, over and over."""
MINOR = frozenset({2, 4, 9})


@dataclass(frozen=True, slots=True)
class SongSpec:
    """What to generate."""

    name: str
    bpm: float
    beats_per_bar: int = 4
    swing: float = 0.5
    """Where in the beat its second half begins; 0.5 is even."""
    drift: float = 0.0
    """Share by which the tempo has risen at the end of the song."""
    form: tuple[tuple[str, int], ...] = FORM
    """Labels and bars of the parts."""
    key: int = 0
    """Semitones above C."""
    lead_in_s: float = 0.0
    """Silence before the first bar."""
    seed: int = 1
    rate: int = RATE
    channels: int = 2
    silent: bool = False
    seconds: float | None = None
    """Cut the song after so many seconds."""


@dataclass(frozen=True, slots=True)
class Truth:
    """What is known of a generated song."""

    duration_s: float
    bpm: float
    """Beats over time: of a drifting song, the mean."""
    beats_per_bar: int
    beats_s: tuple[float, ...]
    downbeats_s: tuple[float, ...]
    borders_s: tuple[float, ...]
    """Starts of the parts but the first."""
    labels: tuple[str, ...] = field(default=())


SUITE = (
    SongSpec("slow", 75, seed=2),
    SongSpec("ballad", 84, beats_per_bar=3, key=7, seed=3),
    SongSpec("walk", 96, lead_in_s=1.3, key=2, seed=4),
    SongSpec("swing", 104, swing=0.64, key=5, seed=5),
    SongSpec("drift", 112, drift=0.08, key=9, seed=6),
    SongSpec("house", 124, key=4, seed=7),
    SongSpec("waltz", 138, beats_per_bar=3, key=10, lead_in_s=0.4, seed=8),
    SongSpec("trance", 140, key=11, seed=9, form=(*FORM[:6], ("verse", 8), ("bridge", 8), ("chorus", 16))),
    SongSpec("rush", 174, key=6, seed=10),
)
"""The shipped songs: 75 to 174 BPM, 3/4 and 4/4, one with swing, one whose tempo drifts."""


def truth(spec: SongSpec) -> Truth:
    """What is known of a song, without generating it."""
    beats, downs, starts, end = _grid(spec)
    length = min(end, spec.seconds) if spec.seconds else end
    if spec.silent:
        return Truth(length, spec.bpm, spec.beats_per_bar, (), (), ())
    kept = beats[beats < length]
    labels = tuple(label for (label, _), start in zip(spec.form, starts, strict=True) if start < length)
    return Truth(
        length,
        float(60 / np.mean(np.diff(beats))),
        spec.beats_per_bar,
        tuple(float(beat) for beat in kept),
        tuple(float(beat) for beat in downs if beat < length),
        tuple(float(start) for start in starts[1:] if start < length),
        labels,
    )


def _grid(spec: SongSpec) -> tuple[Wave, Wave, Wave, float]:
    bars = [bars for _, bars in spec.form]
    count = sum(bars) * spec.beats_per_bar
    # The tempo rises evenly from beat to beat; the extra beat is the end.
    periods = 60 / (spec.bpm * (1 + spec.drift * np.arange(count) / count))
    beats = spec.lead_in_s + np.concatenate(([0.0], np.cumsum(periods)))
    downs = beats[: -1 : spec.beats_per_bar]
    starts = beats[np.concatenate(([0], np.cumsum(bars)[:-1])) * spec.beats_per_bar]
    return beats[:-1], downs, starts, float(beats[-1])


class Tape:
    """Samples that sounds are added to."""

    def __init__(self, spec: SongSpec, seconds: float) -> None:
        self.rate = spec.rate
        self.samples: Wave = np.zeros(int(seconds * spec.rate) + 1)
        self.chance = np.random.default_rng(spec.seed)
        self._tones: dict[tuple[float, ...], Wave] = {}

    def add(self, start_s: float, sound: Wave, gain: float) -> None:
        """Mix a sound in; what reaches past the end is cut."""
        first = round(start_s * self.rate)
        room = self.samples[first : first + len(sound)]
        room += gain * sound[: len(room)]

    def time(self, seconds: float) -> Wave:
        """Seconds of each sample of a sound."""
        return np.arange(int(seconds * self.rate)) / self.rate

    def kick(self) -> Wave:
        """A falling sine with a click."""
        t = self.time(0.22)
        return np.asarray(np.sin(2 * np.pi * (48 * t + 7 * (1 - np.exp(-t * 28)))) * np.exp(-t * 14))

    def snare(self) -> Wave:
        """Noise over a short tone."""
        t = self.time(0.18)
        noise = self.chance.standard_normal(len(t)) * 0.5
        return (noise + 0.4 * np.sin(2 * np.pi * 190 * t)) * np.exp(-t * 24)

    def hat(self) -> Wave:
        """High, short noise."""
        t = self.time(0.05)
        return np.diff(self.chance.standard_normal(len(t) + 1)) * 0.3 * np.exp(-t * 90)

    def tone(self, midi: float, seconds: float, harmonics: int, decay: float = 0.0) -> Wave:
        """A tone of some harmonics with soft ends."""
        key = (midi, round(seconds, 3), harmonics, decay)
        if key not in self._tones:
            self._tones[key] = self._tone(midi, seconds, harmonics, decay)
        return self._tones[key]

    def _tone(self, midi: float, seconds: float, harmonics: int, decay: float) -> Wave:
        t = self.time(seconds)
        hertz = 440 * 2 ** ((midi - 69) / 12)
        wave = sum(
            (np.sin(2 * np.pi * n * hertz * t + n) / n for n in range(1, harmonics + 1)), np.zeros(len(t))
        )
        ends = np.minimum(1, np.minimum(t / 0.008, (seconds - t) / 0.03))
        return np.asarray(wave * np.clip(ends, 0, 1) * np.exp(-t * decay))


def song(spec: SongSpec) -> tuple[NDArray[np.float32], Truth]:
    """Generate a song: samples (one column per channel) and what is known of it."""
    known = truth(spec)
    tape = Tape(spec, known.duration_s)
    if not spec.silent:
        _play(tape, spec)
    wave = tape.samples / max(1e-9, float(np.abs(tape.samples).max())) * 0.89
    if spec.silent:
        wave[:] = 0.0
    # The channels differ a little, as they do in a real mix.
    gains = 1 - 0.2 * np.arange(spec.channels) / max(1, spec.channels - 1)
    return (wave[:, None] * gains).astype(np.float32), known


def _play(tape: Tape, spec: SongSpec) -> None:
    beats, _, _, end = _grid(spec)
    beats = np.append(beats, end)
    meter, bar = spec.beats_per_bar, 0
    for label, bars in spec.form:
        chords = CHORDS[label]
        for index in range(bars):
            gain = LOUDNESS[label]
            if label == "build":
                gain *= 0.5 + 1.1 * index / bars
            places = beats[bar * meter : (bar + 1) * meter + 1]
            _bar(tape, spec, label, places, spec.key + chords[index % len(chords)], gain, index == bars - 1)
            bar += 1


def _bar(tape: Tape, spec: SongSpec, label: str, beats: Wave, root: int, gain: float, last: bool) -> None:
    meter, length = spec.beats_per_bar, float(beats[-1] - beats[0])
    third = 3 if (root - spec.key) % 12 in MINOR else 4
    for interval in (0, third, 7):
        tape.add(beats[0], tape.tone(60 + (root + interval) % 12, length, 5), 0.11 * gain)
    drums = label in ("verse", "chorus", "drop", "build", "bridge")
    for beat in range(meter):
        start, period = float(beats[beat]), float(beats[beat + 1] - beats[beat])
        half = start + spec.swing * period
        tape.add(start, tape.tone(36 + root % 12, period * 0.9, 3, 3.0), (0.4 if beat else 0.5) * gain)
        if not drums:
            tape.add(start, tape.tone(72 + (root + (0, 7, third)[beat % 3]) % 12, period, 3, 5.0), 0.3 * gain)
            continue
        four_on_floor = label in ("drop", "build")
        if four_on_floor or beat == 0 or (meter == 4 and beat == 2):
            tape.add(start, tape.kick(), (1.0 if beat == 0 else 0.85) * gain)
        if (meter == 4 and beat % 2) or (meter == 3 and beat):
            tape.add(start, tape.snare(), (0.7 if meter == 4 else 0.4) * gain)
        tape.add(start, tape.hat(), 0.3 * gain)
        tape.add(half, tape.hat(), 0.25 * gain)
        if label in ("chorus", "drop"):
            note = 72 + (root + (0, 7, third, 7)[beat % 4]) % 12
            tape.add(half, tape.tone(note, period * 0.5, 6, 4.0), 0.25 * gain)
        if last and beat == meter - 1:
            for sixteenth in (0.25, 0.5, 0.75):
                tape.add(start + sixteenth * period, tape.snare(), 0.4 * gain)


def write_song(spec: SongSpec, path: str | os.PathLike[str]) -> Truth:
    """Generate a song into a file, whose name's ending (wav, flac, ogg, mp3) says the format."""
    samples, known = song(spec)
    soundfile = library("soundfile")
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    # libsndfile overflows its stack when it is handed minutes of Vorbis at once.
    with soundfile.SoundFile(str(path), "w", spec.rate, spec.channels) as file:
        for first in range(0, len(samples), spec.rate):
            file.write(samples[first : first + spec.rate])
    return known
