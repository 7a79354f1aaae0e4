"""How well songs are heard: beats, downbeats, tempo and borders against the truth, and the time it takes.

Real songs are those of the Debian packages in `PACKAGES`, whose charts hold the tempo; they were heard while
the analysers were made, so other songs may be heard less well. A tempo of half or double is not counted as
wrong but named: beats are scored against the true ones, every second of them, and twice as many.
"""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

CHARTS = Path("/usr/share/games/fretsonfire/data/songs")
PACKAGES = ("fretsonfire-songs-muldjord", "fretsonfire-songs-sectoid")
WINDOW_S = 0.07
RIGHT = 0.7
"""F-measure from which beats or downbeats count as right."""
RATIO = 0.1
"""Time of an analysis over the song's length: the aim for `builtin` on two cores."""


class Known(NamedTuple):
    """A song and what is known of it."""

    name: str
    path: Path
    beats_s: Any
    downbeats_s: Any
    borders_s: Sequence[float] = ()


class Score(NamedTuple):
    """How well one song was heard."""

    relation: str
    beats: float
    downbeats: float
    tempo_off: float
    """Share by which the tempo misses the true one, its half or its double."""
    borders: float | None
    ratio: float


def related(true: Any) -> dict[str, list[Any]]:
    """The true beats, and those that a listener at half or double the tempo would tap."""
    import numpy as np

    middles = (true[:-1] + true[1:]) / 2
    return {
        "right": [true],
        "half": [true[::2], true[1::2]],
        "double": [np.sort(np.concatenate((true, middles)))],
    }


def fit(true: Any, heard: Any) -> tuple[str, float]:
    """The relation to the truth that fits best, and its F-measure."""
    from mir_eval.beat import f_measure

    scores = {
        name: max(float(f_measure(reference, heard, WINDOW_S)) for reference in references)
        for name, references in related(true).items()
    }
    best = max(scores, key=scores.__getitem__)
    return best, scores[best]


def generated(folder: Path, quick: bool) -> Iterator[Known]:
    """The shipped synthetic songs."""
    import numpy as np

    from detent.apps.choreography.audio.synthetic import SUITE, write_song

    for spec in SUITE[::3] if quick else SUITE:
        path = folder / f"{spec.name}.wav"
        truth = write_song(spec, path)
        yield Known(
            f"generated {spec.name}",
            path,
            np.array(truth.beats_s),
            np.array(truth.downbeats_s),
            truth.borders_s,
        )


def charted(folder: Path, quick: bool) -> Iterator[Known]:
    """Real songs: their tracks mixed, their beats counted from the start at the charted tempo."""
    import mido
    import numpy as np
    import soundfile

    for number, chart in enumerate(sorted(CHARTS.glob("*/*/notes.mid"))):
        if quick and number > 1:
            return
        tempi = {
            event.tempo
            for track in mido.MidiFile(chart).tracks
            for event in track
            if event.type == "set_tempo"
        }
        if len(tempi) != 1:
            print(f"  left out: {chart.parent.name}: its chart has {len(tempi)} tempi")
            continue
        tracks = [
            soundfile.read(chart.parent / name, always_2d=True)
            for name in ("song.ogg", "guitar.ogg")
            if (chart.parent / name).exists()
        ]
        mix = np.zeros((max(len(track) for track, _ in tracks), 2))
        for track, _ in tracks:
            mix[: len(track)] += track
        path = folder / f"{chart.parent.name}.wav"
        soundfile.write(path, mix / max(1.0, np.abs(mix).max()), tracks[0][1])
        beats = np.arange(0, len(mix) / tracks[0][1], tempi.pop() / 1e6)
        yield Known(chart.parent.name, path, beats, beats[::4])


def peer(path: Path) -> tuple[Any, Any, float]:
    """Librosa's beat tracker as it comes; its bars, which it does not tell, are every fourth beat."""
    import librosa
    import numpy as np

    samples, rate = librosa.load(path)
    tempo, beats = librosa.beat.beat_track(y=samples, sr=rate, units="time")
    return beats, beats[::4], float(np.squeeze(tempo))


def ours(path: Path, analyser: str) -> tuple[Any, Any, float, list[float]]:
    """What an analyser of ours hears."""
    import numpy as np

    from detent.apps.choreography.audio.analysis import analyse

    heard = analyse(path, analyser=analyser)
    beats = np.array(heard["beats_s"])
    return (
        beats,
        beats[heard["rhythm"]["downbeats"]],
        heard["tempo_bpm"],
        heard["structure"]["boundary_times_s"],
    )


def score(song: Known, contestant: str) -> Score:
    """Let a contestant hear a song."""
    import numpy as np
    import soundfile

    begin = time.perf_counter()
    borders: list[float] | None = None
    if contestant == "plain librosa":
        beats, downs, tempo = peer(song.path)
    else:
        beats, downs, tempo, borders = ours(song.path, contestant)
    seconds = time.perf_counter() - begin
    relation, beats_f = fit(song.beats_s, beats)
    true = 60 / float(np.median(np.diff(song.beats_s)))
    if borders is not None and song.borders_s:
        bar = float(np.median(np.diff(song.downbeats_s)))
        hits = [any(abs(border - other) <= bar for other in borders) for border in song.borders_s]
        share: float | None = mean(hits)
    else:
        share = None
    return Score(
        relation,
        beats_f,
        fit(song.downbeats_s, downs)[1],
        min(abs(tempo / (true * factor) - 1) for factor in (0.5, 1, 2)),
        share,
        seconds / soundfile.info(song.path).duration,
    )


def summary(title: str, scores: Sequence[Score]) -> str:
    """One line for some songs."""
    octave = sum(each.beats >= RIGHT for each in scores)
    return (
        f"  {title:10} beats F {mean(each.beats for each in scores):.3f}, right or octave "
        f"{octave}/{len(scores)}; "
        f"downbeats F {mean(each.downbeats for each in scores):.3f}, "
        f"right {sum(each.downbeats >= RIGHT for each in scores)}/{len(scores)}; "
        f"time {mean(each.ratio for each in scores):.3f} of the song"
    )


def main(quick: bool = False) -> None:
    """Print the figures, or why there are none."""
    warnings.filterwarnings("ignore", module="mir_eval|librosa")
    print("audio: songs whose beats are known, scored with mir_eval at ±70 ms")
    try:
        import mido  # noqa: F401
        import mir_eval  # noqa: F401
        import scipy  # noqa: F401
        import soundfile  # noqa: F401
    except ImportError as error:
        print(f"  not measured: {error}. Get it with: pip install 'detent[dev]'")
        return
    contestants = ["builtin"]
    try:
        import librosa

        # Its first use compiles, which is no song's fault.
        librosa.beat.beat_track(y=librosa.clicks(times=[0.5, 1, 1.5, 2], length=66_150), sr=22_050)
        contestants += ["librosa", "plain librosa"]
    except ImportError as error:
        print(f"  without librosa: {error}. Get it with: pip install 'detent[librosa]'")
    if not CHARTS.is_dir():
        print(
            f"  without real songs: {CHARTS} is missing. Get them with: apt-get install {' '.join(PACKAGES)}"
        )
    with tempfile.TemporaryDirectory() as name:
        songs = [*generated(Path(name), quick), *(charted(Path(name), quick) if CHARTS.is_dir() else ())]
        for contestant in contestants:
            print(f"\n{contestant}")
            results = [(song, score(song, contestant)) for song in songs]
            for song, result in results:
                borders = "" if result.borders is None else f"  borders {result.borders:.0%}"
                print(
                    f"  {song.name[:24]:24} {result.relation:6} "
                    f"beats {result.beats:.2f}  downbeats {result.downbeats:.2f}  "
                    f"tempo off {result.tempo_off:.1%}{borders}  time {result.ratio:.3f}"
                )
            kinds = {
                "generated": [each for song, each in results if song.borders_s],
                "real": [each for song, each in results if not song.borders_s],
            }
            for title, scores in kinds.items():
                if scores:
                    print(summary(title, scores))
            if contestant == "builtin":
                slowest = max(each.ratio for _, each in results)
                met = "met" if slowest <= RATIO else "MISSED"
                print(f"  target: under {RATIO} of the song's length: {met}, at most {slowest:.3f}")
