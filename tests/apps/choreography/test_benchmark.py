"""The benchmark of light shows runs: it is not part of the tests, and so would break unseen."""

from __future__ import annotations

from benchmarks.show import STATES, _show
from detent.apps.choreography.audio.synthetic import SongSpec, write_song
from tests.apps.choreography.conftest import FORM


def test_it_times_each_state_and_finds_effects_on_planned_beats(tmp_path):
    """R-57: the figures themselves are printed by `make bench ARGS="--only show"`."""
    song = tmp_path / "song.wav"
    known = write_song(SongSpec("small", bpm=150, form=FORM, channels=1), song)
    times, planned, true = _show(song, [float(beat) for beat in known.beats_s])
    assert set(times) == set(STATES)
    assert planned == 1
    assert 0 < true <= 1
