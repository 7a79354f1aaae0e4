"""Where sections begin, by energy and by sound."""

from __future__ import annotations

import numpy as np

from detent.apps.choreography.audio.sections import APART, MOST, borders, jumps, parts

EVEN = np.zeros(72)
FORM = np.repeat([13.0, 53, 85, 53, 0, 92, 22, 85, 8], 8)
FORM[32:40] = np.linspace(33, 75, 8)
"""Mean energy of the bars of a song with a build in bars 33 to 40."""


def test_a_jump_of_energy_begins_a_section_where_nothing_sounds_new():
    """R-44: the first and the last bar of a build, too, not its middle."""
    assert borders(EVEN, FORM) == [8, 16, 24, 32, 40, 48, 56, 64]


def test_a_steady_rise_has_no_jump():
    assert jumps(np.linspace(0, 100, 30)).max() < 1e-9


def test_bars_that_differ_by_chance_have_no_borders():
    for seed in range(20):
        noise = np.random.default_rng(seed).normal(60, 8, 100)
        assert len(borders(np.zeros(100), noise)) <= 2


def test_a_jump_is_heard_through_bars_that_differ_a_little():
    hits = []
    for seed in range(20):
        noisy = FORM + np.random.default_rng(seed).normal(0, 2, len(FORM))
        hits.append(len({8, 16, 24, 32, 40, 48, 56, 64} & set(borders(EVEN, noisy))))
    assert np.mean(hits) >= 7


def test_equally_loud_parts_that_sound_unlike_are_cut():
    """The energy alone would make them one."""
    chance = np.random.default_rng(3)
    rows = np.repeat(chance.standard_normal((3, 27)), 16, axis=0) + 0.1 * chance.standard_normal((48, 27))
    assert [part.start for part in parts(rows, np.full(48, 60.0))] == [0, 16, 32]


def test_novelty_yields_to_a_jump_beside_it():
    """Novelty is blurred over eight bars, a jump is exact."""
    energies, novel = np.repeat([40.0, 80.0], 16), np.zeros(32)
    novel[14] = 1.0
    assert borders(novel, energies) == [16]


def test_there_are_twelve_sections_at_most_and_none_is_shorter_than_four_bars():
    edges = [0, *borders(np.zeros(200), np.tile(np.repeat([20.0, 80.0], 6), 17)[:200]), 200]
    assert len(edges) - 1 == MOST
    assert np.diff(edges).min() >= APART
