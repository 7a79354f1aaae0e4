"""What is heard in generated songs, against what is known of them."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks.audio import fit
from detent.apps.choreography.audio.analysis import analyse
from detent.apps.choreography.audio.synthetic import SUITE
from detent.apps.choreography.domain.song import Song

pytestmark = pytest.mark.slow  # the first time, librosa compiles its loops

SAMPLED = ("drift", "waltz", "trance", "rush")
"""A tempo that drifts, 3/4 after silence, another form, and a song heard at half its tempo."""


def songs(sampled):
    """Every shipped song; `make test` tries those that are sampled."""
    return pytest.mark.parametrize(
        "name",
        [
            pytest.param(spec.name, marks=() if spec.name in sampled else pytest.mark.exhaustive)
            for spec in SUITE
        ],
    )


def check(truth, heard):
    beats = np.array(heard["beats_s"])
    relation, score = fit(np.array(truth.beats_s), beats)
    assert score >= 0.9, relation
    factor = {"right": 1, "half": 0.5, "double": 2}[relation]
    assert heard["tempo_bpm"] == pytest.approx(truth.bpm * factor, rel=0.02)
    bar = np.median(np.diff(truth.downbeats_s))
    borders = heard["structure"]["boundary_times_s"]
    hits = [min((abs(border - other) for other in borders), default=99) <= bar for border in truth.borders_s]
    assert np.mean(hits) >= 0.8
    assert len(borders) <= len(truth.borders_s) + 2, "a border everywhere hits all of them"
    assert fit(np.array(truth.downbeats_s), beats[heard["rhythm"]["downbeats"]])[1] >= 0.9


@songs(SAMPLED)
def test_tempo_beats_downbeats_and_borders_are_heard(name, hear):
    """R-44."""
    check(*hear(name))


@pytest.mark.exhaustive
@songs(("house",))
def test_librosa_hears_them_too(name, hear):
    """R-44: with novelty alone it heard bars 9 to 40 of `house` as one section."""
    pytest.importorskip("librosa")
    truth, heard = hear(name, "librosa")
    check(truth, heard)
    assert heard["analyser"] == "librosa"


@songs(SAMPLED)
def test_every_bar_is_half_to_one_and_a_half_of_its_neighbours(name, hear):
    """R-63."""
    _, heard = hear(name)
    lengths = np.diff([*heard["bars_s"], heard["duration_s"]])
    inner = lengths[1:-1]
    assert ((inner[1:] / inner[:-1] > 2 / 3) & (inner[1:] / inner[:-1] < 1.5)).all()
    assert 0.5 <= lengths[0] / lengths[1] <= 1.5
    assert 0.5 <= lengths[-1] / lengths[-2] <= 1.5


def test_the_bars_of_a_drifting_song_follow_it_to_the_end(hear):
    """R-63: a grid of the mean tempo would be a second off in the middle."""
    truth, heard = hear("drift")
    bars, true = np.array(heard["bars_s"]), np.array(truth.downbeats_s)
    assert max(np.abs(bars - start).min() for start in true[1:]) < 0.07
    for section in heard["structure"]["sections"]:
        assert section["start_s"] == heard["bars_s"][section["start_bar"] - 1]


def test_a_waltz_has_three_beats(hear):
    _, heard = hear("waltz")
    assert heard["time_signature"]["time_signature"] == "3/4"
    assert heard["time_signature"]["method"] == "accent"


def test_the_analysis_is_plain_json_and_the_same_twice(hear, song_file):
    again = analyse(song_file("waltz")[0])
    assert json.dumps(again, allow_nan=False) == json.dumps(hear("waltz")[1], allow_nan=False)


@songs(SAMPLED)
def test_a_song_can_be_made_of_it(name, hear):
    song = Song.of(hear(name)[1])
    assert len(song.energy_per_bar) == song.bars
    assert song.sections[0].start_bar == 1
    assert song.sections[-1].end_bar == song.bars
    assert [section.end_bar + 1 for section in song.sections[:-1]] == list(song.borders)


def test_quiet_ends_builds_and_drops_are_named(hear):
    _, heard = hear("drift")
    labels = [section["label"] for section in heard["structure"]["sections"]]
    assert labels[0] == "intro"
    assert labels[-1] == "outro"
    assert labels[4:7] == ["build", "drop", "breakdown"]
