"""Where bars lie."""

from __future__ import annotations

import numpy as np
import pytest

from detent.apps.choreography.audio.bars import bar_starts


@pytest.mark.parametrize(("first", "starts"), [(0.05, [0.0, 2.05]), (1.2, [0.0, 1.2, 3.2])])
def test_a_short_first_piece_is_joined(first, starts):
    """R-63: the two examples of 3.2."""
    found = bar_starts(np.arange(first, 20, 2.0), 2.0, 20.0)
    assert found[: len(starts)] == pytest.approx(starts)


def test_a_short_last_piece_is_joined():
    assert bar_starts(np.arange(0, 20, 2.0), 2.0, 20.9)[-1] == pytest.approx(18)
    assert bar_starts(np.arange(0, 20, 2.0), 2.0, 21.1)[-1] == pytest.approx(20)


def test_bars_are_continued_to_both_ends_of_the_song():
    found = bar_starts(np.array([8.0, 10.0, 12.0]), 2.0, 20.0)
    assert found == pytest.approx(np.arange(0, 20, 2.0))


def test_a_missed_downbeat_leaves_no_bar_of_double_length():
    """R-63."""
    found = bar_starts(np.array([0.0, 2, 4, 8, 10, 12, 14]), 2.0, 16.0)
    lengths = np.diff([*found, 16.0])
    assert (lengths[1:-1] / lengths[2:] <= 1.5 + 1e-3).all()


def test_a_song_shorter_than_a_bar_has_one():
    assert list(bar_starts(np.zeros(1), 2.0, 0.7)) == [0.0]
