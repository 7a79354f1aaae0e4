"""The pulse below the beats: halves or thirds, and where exactly."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from detent.apps.choreography.audio.bars import downbeats
from detent.apps.choreography.audio.decoding import RATE
from detent.apps.choreography.audio.pulse import aligned, offset, pulse
from detent.apps.choreography.audio.rhythm import chain, onsets
from detent.apps.choreography.audio.spectra import spectra

SECONDS = 24
STRAIGHT, QUARTERS = (0.0, 0.5), (0.0, 0.25, 0.5, 0.75)
SWINGING, TRIPLETS = (0.0, 2 / 3), (0.0, 1 / 3, 2 / 3)
FIRST_S = 0.31


def beats(bpm):
    return np.arange(FIRST_S, SECONDS - 0.5, 60 / bpm)


def played(bpm, parts):
    """Strokes on these parts of every beat: the first is no louder than the others."""
    return _played(bpm, tuple(parts))


@cache
def _played(bpm, parts):
    samples = np.zeros(SECONDS * RATE, np.float32)
    chance = np.random.default_rng(4)
    stroke = (chance.standard_normal(2000) * np.exp(-np.arange(2000) / 400)).astype(np.float32)
    for beat in beats(bpm):
        for part in parts:
            at = round((beat + part * 60 / bpm) * RATE)
            samples[at : at + len(stroke)] += 0.3 * stroke[: len(samples) - at]
    return spectra([samples])


def distances(marks, strokes):
    """How far each stroke is from the nearest mark, but for those at the ends."""
    return np.array([np.abs(marks - stroke).min() for stroke in strokes[2:-2]])


@pytest.mark.parametrize(
    ("parts", "per_beat"),
    [(STRAIGHT, 2), (QUARTERS, 2), ((0.0,), 2), (SWINGING, 3), (TRIPLETS, 3)],
)
def test_beats_are_divided_in_three_only_where_that_fits(parts, per_beat):
    assert pulse(played(120.0, parts), 120.0, False).per_beat == per_beat


def test_where_it_swings_the_beat_is_the_long_note():
    """Half beats fit neither the long notes nor the short ones, or only one of them."""
    heard = played(120.0, SWINGING)
    halves = chain(onsets(heard.mel_db), 240.0, 300.0)
    assert np.median(distances(aligned(heard.attacks, halves, 2), beats(120.0))) > 0.015
    found = pulse(heard, 120.0, False)
    (first,) = found.firsts
    marks = aligned(heard.attacks, found.marks_s, 3)
    assert distances(marks[first::3], beats(120.0)).max() < 0.01


def test_swing_that_is_heard_at_half_its_tempo_has_its_own():
    heard = played(150.0, SWINGING)
    found = pulse(heard, 75.0, False)
    assert 60 / np.median(np.diff(found.marks_s)) == pytest.approx(450, rel=0.02)


def test_a_tempo_given_by_hand_is_not_doubled():
    beats_s, _ = downbeats(played(150.0, SWINGING), 75.0, settled=True)
    assert 60 / np.median(np.diff(beats_s)) == pytest.approx(75, rel=0.02)


def test_attacks_are_heard_when_they_come():
    """Long frames see them come: their marks are early by more than half of a frame of a show."""
    heard, strokes = played(120.0, STRAIGHT), beats(240.0)
    marks = pulse(heard, 120.0, False).marks_s
    assert np.median(distances(marks, strokes)) > 0.0125
    assert distances(aligned(heard.attacks, marks, 2), strokes).max() < 0.01
    found, _ = downbeats(heard, 120.0)
    assert distances(strokes, found).max() < 0.01


def test_marks_without_attacks_stay_where_they_are():
    heard = played(120.0, STRAIGHT)
    assert offset(heard.attacks, beats(120.0) + 0.125, 0.03) == 0.0
    assert offset(np.zeros_like(heard.attacks), beats(120.0), 0.03) == 0.0


def test_marks_that_wander_are_moved_by_the_bar():
    """A stiff chain lags behind a player who hurries; one offset for the whole song leaves it there."""
    heard, strokes = played(120.0, STRAIGHT), beats(240.0)
    wandering = strokes + 0.015 * np.sin(np.arange(len(strokes)) / 30)
    assert distances(wandering + offset(heard.attacks, wandering, 0.03), strokes).max() > 0.012
    assert distances(aligned(heard.attacks, wandering, 2), strokes).max() < 0.01


def test_a_frame_of_a_song_has_no_pulse():
    noise = np.random.default_rng(1).standard_normal(600).astype(np.float32)
    assert len(pulse(spectra([noise]), 120.0, False).marks_s) < 3
