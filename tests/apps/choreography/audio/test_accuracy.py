"""What is heard in generated songs, against what is known of them."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks.audio import fit
from detent.apps.choreography.audio.analysis import analyse
from detent.apps.choreography.audio.synthetic import SUITE
from detent.apps.choreography.domain.song import Song

NAMES = [spec.name for spec in SUITE]


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
    assert fit(np.array(truth.downbeats_s), beats[heard["rhythm"]["downbeats"]])[1] >= 0.9


@pytest.mark.parametrize("name", NAMES)
def test_tempo_beats_downbeats_and_borders_are_found(name, suite):
    """R-44."""
    _, truth, heard = suite[name]
    check(truth, heard)


def test_librosa_finds_them_too(suite):
    """R-44."""
    path, truth, _ = suite["waltz"]
    heard = analyse(path, analyser="librosa")
    check(truth, heard)
    assert heard["analyser"] == "librosa"
    assert heard["time_signature"]["time_signature"] == "3/4"


@pytest.mark.parametrize("name", NAMES)
def test_every_bar_is_half_to_one_and_a_half_of_its_neighbours(name, suite):
    """R-63."""
    _, _, heard = suite[name]
    lengths = np.diff([*heard["bars_s"], heard["duration_s"]])
    inner = lengths[1:-1]
    assert ((inner[1:] / inner[:-1] > 2 / 3) & (inner[1:] / inner[:-1] < 1.5)).all()
    assert 0.5 <= lengths[0] / lengths[1] <= 1.5
    assert 0.5 <= lengths[-1] / lengths[-2] <= 1.5


def test_the_bars_of_a_drifting_song_follow_it_to_the_end(suite):
    """R-63: a grid of the mean tempo would be a second off in the middle."""
    _, truth, heard = suite["drift"]
    bars, true = np.array(heard["bars_s"]), np.array(truth.downbeats_s)
    assert max(np.abs(bars - start).min() for start in true[1:]) < 0.07
    for section in heard["structure"]["sections"]:
        assert section["start_s"] == heard["bars_s"][section["start_bar"] - 1]


def test_the_analysis_is_plain_json_and_the_same_twice(suite):
    path, _, heard = suite["waltz"]
    again = analyse(path, analyser="builtin")
    assert json.dumps(again, allow_nan=False) == json.dumps(heard, allow_nan=False)


@pytest.mark.parametrize("name", NAMES)
def test_a_song_can_be_made_of_it(name, suite):
    _, _, heard = suite[name]
    song = Song.of(heard)
    assert len(song.energy_per_bar) == song.bars
    assert song.sections[0].start_bar == 1
    assert song.sections[-1].end_bar == song.bars
    assert [a.end_bar + 1 for a in song.sections[:-1]] == list(song.borders)


def test_quiet_ends_and_loud_middles_are_named(suite):
    _, _, heard = suite["house"]
    labels = [section["label"] for section in heard["structure"]["sections"]]
    assert labels[0] == "intro"
    assert labels[-1] == "outro"
    assert "drop" in labels
    assert "breakdown" in labels
