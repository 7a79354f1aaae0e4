"""A song measured: the content of `audio.json`."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from detent.apps.choreography.audio.problem import AudioProblem, library
from detent.kernel.errors import nearest

if TYPE_CHECKING:
    from detent.apps.choreography.audio.bars import Meter
    from detent.apps.choreography.audio.rhythm import Curve, Rhythm
    from detent.apps.choreography.audio.spectra import Spectra

__all__ = [
    "ANALYSERS", "ANALYSER_VERSION", "AudioProblem", "Progress", "analyse", "check_libraries", "check_wishes",
    "chosen", "fingerprint",
]  # fmt: skip

ANALYSER_VERSION = "5"
"""Raised with every change that can change a figure: what was measured before is then measured again."""
SCHEMA_VERSION = "1"
ANALYSERS = ("auto", "builtin", "librosa")
ASSUMED_BPM = 120.0
SHORT_S = 10.0
"""A shorter song is one section."""
FEWEST_BEATS = 8
"""Fewer beats of a short song say no tempo."""
BPM_LIMITS = (30.0, 300.0)
BAR_LIMITS = (2, 12)

Progress = Callable[[float, float, str], None]
"""Told the seconds that are done, those there are, and what is being done."""


def fingerprint(path: str | os.PathLike[str]) -> str:
    """SHA-256 of a song's bytes.

    Raises:
        AudioProblem: the file cannot be opened.
        IntegrationMissing: the libraries are not installed.
    """
    library("numpy")
    from detent.apps.choreography.audio.decoding import fingerprint

    return fingerprint(path)


def check_libraries() -> None:
    """Raise `IntegrationMissing` unless the libraries that read songs are installed."""
    for name in ("numpy", "scipy", "soundfile"):
        library(name)


def chosen(analyser: str = "auto") -> str:
    """The analyser in fact: `auto` is `builtin`, which hears no less and starts at once.

    Raises:
        AudioProblem: there is no such analyser.
        IntegrationMissing: librosa is asked for and not installed.
    """
    if analyser not in ANALYSERS:
        meant, names = nearest(analyser, ANALYSERS), ", ".join(ANALYSERS)
        raise AudioProblem("analyser", f"There is no analyser '{analyser}'.{meant} Use {names}.")
    if analyser == "librosa":
        library("librosa", "librosa")
    return "builtin" if analyser == "auto" else analyser


def analyse(
    path: str | os.PathLike[str],
    *,
    analyser: str = "auto",
    bpm: float | None = None,
    beats_per_bar: int | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Measure a song: tempo, beats, bars, sections, energy, harmony.

    Args:
        path: A wav, flac, ogg or mp3 file.
        analyser: Who finds the beats: `builtin`, `librosa`, or `auto`, which is `builtin`.
        bpm: Settles the tempo by hand, where half or double of it would be found.
        beats_per_bar: Settles the meter by hand.
        progress: Called now and then with what has been done.

    Returns:
        The content of `audio.json`: JSON values only, the same for the same song and libraries.

    Raises:
        AudioProblem: the song cannot be read or is beyond the limits, or a wish cannot be met.
        IntegrationMissing: the libraries are not installed.
    """
    check_wishes(bpm, beats_per_bar)
    check_libraries()
    name = chosen(analyser)
    from detent.apps.choreography.audio import decoding, energy, librosa_rhythm, rhythm, spectra

    report = progress or (lambda done, total, what: None)
    with decoding.SongFile(path) as file:  # refuses what is too large before it is read
        sha256 = fingerprint(path)
        total = file.promised_s
        banks = None
        if name == "librosa":
            if not librosa_rhythm.compiled():
                report(0.0, total, "compiling librosa, once")
            banks = librosa_rhythm.banks()
        blocks = file.blocks(lambda done: report(done, max(done, total), "listening"))
        heard = spectra.spectra(blocks, banks)
    length = heard.duration_s
    report(length, length, "finding beats and bars")
    silent = heard.peak < energy.SILENCE
    track = librosa_rhythm.track if name == "librosa" else rhythm.track
    found = None if silent else track(heard, bpm)
    body = _body(heard, found, silent, bpm, beats_per_bar, file.warnings)
    report(length, length, "done")
    content: dict[str, Any] = _plain(
        {
            "schema_version": SCHEMA_VERSION,
            "audio_path": str(path),
            "audio_sha256": sha256,
            "analyser": name,
            "sr": decoding.RATE,
            **body,
        }
    )
    return content


def check_wishes(bpm: float | None, beats_per_bar: int | None) -> None:
    """Raise `AudioProblem` if a song cannot have this tempo or meter."""
    if bpm is not None and not BPM_LIMITS[0] <= bpm <= BPM_LIMITS[1]:  # also refuses NaN
        raise AudioProblem("bpm", f"A tempo of {bpm} BPM is not possible; it must be 30 to 300.")
    if beats_per_bar is not None and not BAR_LIMITS[0] <= beats_per_bar <= BAR_LIMITS[1]:
        raise AudioProblem("beats_per_bar", f"A bar cannot have {beats_per_bar} beats; it must be 2 to 12.")


def _body(
    heard: Spectra,
    rhythm: Rhythm | None,
    silent: bool,
    bpm: float | None,
    beats_per_bar: int | None,
    warnings: list[str],
) -> dict[str, Any]:
    """Everything that is read from the frames."""
    import numpy as np

    from detent.apps.choreography.audio import bars, energy, harmony, sections
    from detent.apps.choreography.audio.rhythm import line

    length = heard.duration_s
    short = length < SHORT_S
    warnings = [*warnings]
    if silent:
        warnings.append("the song is silent: 120 BPM is assumed")
    elif short:
        warnings.append("the song is shorter than 10 s: it is taken as one section")
    beats_s: Curve
    meter: Meter
    if rhythm is None or (short and len(rhythm.beats_s) < FEWEST_BEATS):
        rhythm = None
        tempo = bpm or ASSUMED_BPM
        if not silent:
            warnings.append(f"no steady beat was found: {tempo:g} BPM is assumed")
        beats_s = np.arange(0.0, length, 60 / tempo)
        method = "config" if beats_per_bar else "assumed"
        meter = bars.Meter(beats_per_bar or 4, 0, 0.0, method)
    else:
        beats_s, meter = bars.downbeats(heard, rhythm.tempo_bpm, beats_per_bar, settled=bpm is not None)
        tempo = line(beats_s) if len(beats_s) > 1 else rhythm.tempo_bpm
    downs = np.arange(meter.phase, len(beats_s), meter.beats_per_bar)
    bars_s = bars.bar_starts(beats_s[downs], meter.beats_per_bar * 60 / tempo, length)
    curve = energy.loudness(heard)
    by_bar = 100 * energy.per_bar(curve, bars_s, length)
    if short or silent:
        cut = [sections.Part(0, len(bars_s), 0, 1.0)]
    else:
        cut = sections.parts(sections.bar_rows(heard, curve, bars_s), by_bar)
    chroma_mean = heard.chroma.mean(axis=0, dtype=np.float64)
    rows = sections.described(cut, by_bar, bars_s, length)
    times_s = energy.thinned(heard.times_s)
    return {
        "duration_s": length,
        "tempo_bpm": tempo,
        "tempo_candidates": [
            {"relation": relation, "bpm": candidate, "score": score}
            for relation, candidate, score in (rhythm.candidates if rhythm else ())
        ],
        "beats_s": beats_s,
        "bars_s": bars_s,
        "time_signature": {
            "time_signature": f"{meter.beats_per_bar}/4",
            "confidence": meter.confidence,
            "method": meter.method,
        },
        "assumptions": {"beats_per_bar": meter.beats_per_bar},
        "rhythm": {"beat_confidence": rhythm.confidence if rhythm else 0.0, "downbeats": downs},
        "energy": {
            "times_s": times_s,
            "rms_norm": energy.thinned(curve),
            "per_bar": by_bar,
            "builds": energy.slopes(by_bar, bars_s, length, rising=True),
            "drops": energy.slopes(by_bar, bars_s, length, rising=False),
        },
        "spectral": {
            "times_s": times_s,
            "brightness": energy.thinned(heard.brightness),
            "flatness": energy.thinned(heard.flatness),
        },
        "harmonic": {
            "chroma_mean": chroma_mean,
            "key": dict(harmony.UNKNOWN) if short or silent else harmony.key(chroma_mean),
        },
        "structure": {
            "sections": rows,
            "boundary_times_s": [row["start_s"] for row in rows[1:]],
            "meta": {"groups": len({part.group for part in cut}), "bars": len(bars_s)},
        },
        "warnings": warnings,
    }


def _plain(value: Any) -> Any:
    """JSON values with microseconds and six digits: what is beyond them differs between machines."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, str | bool | int) or value is None:
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError("the analysis of a song gave a number that is not finite")
        return round(float(value), 6)
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    return [_plain(item) for item in value]
