"""Files of every sort: formats, lengths, damage."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys

import numpy as np
import pytest
import soundfile

from detent.apps.choreography.audio import decoding
from detent.apps.choreography.audio.analysis import AudioProblem, analyse, fingerprint
from detent.apps.choreography.audio.synthetic import SUITE, SongSpec, write_song
from detent.apps.choreography.domain.song import Song

SHORT = SongSpec("short", 120, form=(("verse", 4), ("chorus", 4)), rate=44_100)


@pytest.mark.parametrize("ending", ["flac", "ogg", "mp3"])
def test_every_format_of_a_song_is_heard_alike(ending, tmp_path):
    """R-43."""
    write_song(SHORT, tmp_path / "song.wav")
    write_song(SHORT, tmp_path / f"song.{ending}")
    wav = analyse(tmp_path / "song.wav", analyser="builtin")
    other = analyse(tmp_path / f"song.{ending}", analyser="builtin")
    assert other["tempo_bpm"] == pytest.approx(wav["tempo_bpm"], abs=0.5)
    assert abs(len(other["bars_s"]) - len(wav["bars_s"])) <= 1
    beats = np.array(other["beats_s"])
    assert max(np.abs(beats - beat).min() for beat in wav["beats_s"]) <= 0.025


def test_the_content_decides_not_the_name(tmp_path):
    write_song(SHORT, tmp_path / "song.flac")
    (tmp_path / "song.flac").rename(tmp_path / "song.raw")
    assert analyse(tmp_path / "song.raw", analyser="builtin")["tempo_bpm"] == pytest.approx(120, rel=0.02)


@pytest.mark.parametrize(("rate", "channels"), [(48_000, 1), (22_050, 1), (8_000, 2)])
def test_rates_and_channels_do_not_matter(rate, channels, tmp_path):
    write_song(dataclasses.replace(SHORT, rate=rate, channels=channels), tmp_path / "song.wav")
    heard = analyse(tmp_path / "song.wav", analyser="builtin")
    assert heard["tempo_bpm"] == pytest.approx(120, rel=0.02)
    assert heard["duration_s"] == pytest.approx(16, abs=0.01)


@pytest.mark.parametrize("rate", [8_000, 44_100, 48_000, 96_000])
def test_resampling_by_blocks_leaves_no_seam(rate):
    from scipy.signal import resample_poly

    samples = np.random.default_rng(1).standard_normal(rate * 2 + 123).astype(np.float32)
    pieces = iter(np.split(samples, [1, 700, 701, rate // 3, rate]))
    common = np.gcd(rate, decoding.RATE)
    whole = resample_poly(samples, decoding.RATE // common, rate // common)
    assert np.concatenate(list(decoding.resampled(pieces, rate))) == pytest.approx(whole, abs=1e-4)


def test_a_song_that_is_cut_off_is_warned_of(tmp_path):
    """Half a download is half a show: in no format silently, and nothing is said of whole files."""
    write_song(SHORT, tmp_path / "song.wav")
    samples, rate = soundfile.read(tmp_path / "song.wav")
    for ending in ("wav", "mp3", "ogg"):
        soundfile.write(tmp_path / f"song.{ending}", samples, rate)
        whole = (tmp_path / f"song.{ending}").read_bytes()
        assert heard_of(tmp_path / f"song.{ending}") == []
        (tmp_path / "half").write_bytes(whole[: len(whole) // 2])
        assert [line for line in heard_of(tmp_path / "half") if "is it cut off?" in line], ending
    streamed = bytearray((tmp_path / "song.wav").read_bytes())
    streamed[4:8] = streamed[40:44] = b"\xff" * 4  # as a program writes it that does not know the length
    (tmp_path / "streamed").write_bytes(streamed)
    assert heard_of(tmp_path / "streamed") == []
    damaged = bytearray((tmp_path / "song.ogg").read_bytes())
    damaged[len(damaged) // 2 :: 500] = bytes(len(damaged[len(damaged) // 2 :: 500]))
    (tmp_path / "damaged").write_bytes(damaged)
    (warning,) = heard_of(tmp_path / "damaged")
    assert "is it damaged?" in warning


def heard_of(path):
    """The warnings about the file of a song that is decoded to its end."""
    with decoding.SongFile(path) as file:
        for _ in file.blocks():
            pass
        return file.warnings


def test_samples_beyond_all_loudness_are_damage(tmp_path):
    """Their squares would be no numbers."""
    samples = np.full(44_100, 1e30, np.float32)
    soundfile.write(tmp_path / "huge.wav", samples, 44_100, subtype="FLOAT")
    with pytest.raises(AudioProblem, match="beyond all loudness"):
        analyse(tmp_path / "huge.wav", analyser="builtin")


@pytest.mark.parametrize(
    "make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")], ids=["pipe", "device"]
)
def test_what_is_no_file_is_refused_at_once(make, tmp_path):
    """A pipe would be waited for, and a device never ends."""
    make(tmp_path / "song.wav")
    for read in (fingerprint, analyse):
        with pytest.raises(AudioProblem, match="pipe, socket or device"):
            read(tmp_path / "song.wav")


def test_three_seconds_are_one_section(tmp_path):
    """R-44."""
    write_song(dataclasses.replace(SHORT, seconds=3.0), tmp_path / "song.wav")
    heard = analyse(tmp_path / "song.wav", analyser="builtin")
    assert [section["label"] for section in heard["structure"]["sections"]] == ["full"]
    assert heard["harmonic"]["key"] == {"key": "C", "mode": "major", "confidence": 0.0}
    assert heard["tempo_bpm"] == 120
    assert heard["warnings"]
    assert Song.of(heard).bars >= 1


@pytest.mark.parametrize("seconds", [0.01, 1.0, 30.0])
def test_silence_is_calm(seconds, tmp_path):
    """R-44: it comes before the rule that makes an even song half loud."""
    write_song(dataclasses.replace(SHORT, silent=True, seconds=seconds), tmp_path / "song.wav")
    heard = analyse(tmp_path / "song.wav", analyser="builtin")
    assert heard["tempo_bpm"] == 120
    assert set(heard["energy"]["per_bar"]) == {0.0}
    assert heard["rhythm"]["beat_confidence"] == 0
    assert any("silent" in warning for warning in heard["warnings"])


def test_noise_and_single_samples_are_heard_without_error(tmp_path):
    noise = np.random.default_rng(1).standard_normal(22_050 * 20) * 0.1
    for samples in (noise, noise[:1], np.ones(22_050 * 15) * 0.5):
        soundfile.write(tmp_path / "song.wav", samples, 22_050)
        heard = analyse(tmp_path / "song.wav", analyser="builtin")
        assert heard["bars_s"][0] == 0.0


def refused(path, **wishes):
    with pytest.raises(AudioProblem) as caught:
        analyse(path, analyser=wishes.pop("analyser", "builtin"), **wishes)
    return caught.value


def test_what_is_no_song_is_refused(tmp_path):
    """R-44."""
    (tmp_path / "text.mp3").write_text("not a song\n" * 100)
    (tmp_path / "empty.wav").touch()
    soundfile.write(tmp_path / "none.wav", np.zeros((0, 2)), 44_100)
    soundfile.write(tmp_path / "song.aiff", np.zeros(100), 44_100)
    soundfile.write(tmp_path / "nan.wav", np.full(100, np.nan), 44_100, subtype="FLOAT")
    codes = {
        name: refused(tmp_path / name).code
        for name in ("text.mp3", "empty.wav", "none.wav", "song.aiff", "nan.wav", "absent.wav")
    }
    assert codes == {
        "text.mp3": "format",
        "empty.wav": "empty",
        "none.wav": "empty",
        "song.aiff": "format",
        "nan.wav": "unreadable",
        "absent.wav": "missing",
    }
    assert "wav, flac, ogg or mp3" in str(refused(tmp_path / "text.mp3"))


def test_a_song_beyond_the_limits_is_refused(tmp_path):
    soundfile.write(tmp_path / "long.flac", np.zeros(91 * 60 * 2_000, np.int16), 2_000)
    assert refused(tmp_path / "long.flac").code == "too_long"
    with (tmp_path / "large.wav").open("wb") as file:
        file.truncate(2 * 1024**3 + 1)
    assert refused(tmp_path / "large.wav").code == "too_large"


def test_impossible_wishes_are_refused(tmp_path):
    write_song(dataclasses.replace(SHORT, seconds=3.0), tmp_path / "song.wav")
    assert refused(tmp_path / "song.wav", bpm=float("nan")).code == "bpm"
    assert refused(tmp_path / "song.wav", beats_per_bar=1).code == "beats_per_bar"
    problem = refused(tmp_path / "song.wav", analyser="libroza")
    assert problem.code == "analyser"
    assert "Did you mean 'librosa'?" in str(problem)


def test_tempo_and_meter_can_be_settled_by_hand(tmp_path):
    write_song(SHORT, tmp_path / "song.wav")
    heard = analyse(tmp_path / "song.wav", analyser="builtin", bpm=60, beats_per_bar=2)
    assert heard["tempo_bpm"] == pytest.approx(60, rel=0.02)
    assert heard["time_signature"] == {**heard["time_signature"], "time_signature": "2/4", "method": "config"}


def test_the_fingerprint_is_that_of_the_bytes(tmp_path):
    (tmp_path / "song").write_bytes(b"abc")
    assert fingerprint(tmp_path / "song").startswith("ba7816bf")


def test_progress_reaches_the_end(tmp_path):
    write_song(SHORT, tmp_path / "song.wav")
    reports: list[tuple[float, float, str]] = []
    analyse(tmp_path / "song.wav", analyser="builtin", progress=lambda *report: reports.append(report))
    assert reports[-1][0] == reports[-1][1]
    assert [done for done, _, _ in reports] == sorted(done for done, _, _ in reports)


@pytest.mark.parametrize("minutes", [(1, 4), pytest.param((2, 10), marks=pytest.mark.exhaustive)])
def test_memory_hardly_grows_with_the_song(minutes, tmp_path):
    """R-44: an hour stays under 1 GB."""
    spec = dataclasses.replace(SUITE[0], channels=1, form=(("verse", 8),))
    write_song(spec, tmp_path / "part.wav")
    part, rate = soundfile.read(tmp_path / "part.wav", dtype="int16")
    program = (
        "import sys, resource\nfrom pathlib import Path\n"
        "from detent.apps.choreography.audio.analysis import analyse\n"
        "analyse(sys.argv[1], analyser='builtin')\n"
        # On Linux the peak of the calling process outlives exec; the one of the program itself stands here.
        "status = Path('/proc/self/status')\n"
        "lines = status.read_text().splitlines() if status.exists() else []\n"
        "peak = [int(line.split()[1]) for line in lines if line.startswith('VmHWM')]\n"
        "print(peak[0] if peak else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )

    def peak(minutes: float) -> float:
        samples = np.resize(part, int(minutes * 60 * rate))
        soundfile.write(tmp_path / "song.wav", samples, rate)
        done = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path / "song.wav")],
            capture_output=True,
            text=True,
            check=True,
        )
        return int(done.stdout) / (1024**2 if sys.platform == "darwin" else 1024)

    few, many = minutes
    growth = (peak(many) - (base := peak(few))) / (many - few)
    assert base + growth * (60 - few) < 1024
    assert growth < 5, "the samples of a minute alone are 5 MB"
