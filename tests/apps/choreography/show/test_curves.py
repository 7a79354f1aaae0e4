"""Curves: what xLights evaluates is what was rendered."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from detent.apps.choreography.show.curves import described, evaluated, jumps
from tests.examples import examples


def seen(values) -> np.ndarray:
    """The values after writing and evaluating."""
    slider, curve = described(np.asarray(values, dtype=float), 1)
    assert not (slider and curve)
    return evaluated(curve, len(values)) if curve else np.full(len(values), float(slider))


def apart_from_jumps(values: np.ndarray) -> np.ndarray:
    """Which frames have no jump on either side."""
    jumping = jumps(values)
    return ~(np.append(jumping, False) | np.insert(jumping, 0, False))


def test_a_ramp_over_four_frames_ends_on_its_last_frame():
    """R-51: 0 → 255 over 4 frames is 0, 85, 170, 255; with j / N it would be 0, 64, 128, 191."""
    slider, curve = described(np.array([0.0, 85, 170, 255]), 3)
    assert slider == 0
    assert (
        curve == "Active=TRUE|Id=ID_VALUECURVE_DMX3|Type=Ramp|Min=0.00|Max=255.00|P1=0.00|P2=255.00|RV=TRUE|"
    )
    assert evaluated(curve, 4).tolist() == [0, 85, 170, 255]
    assert evaluated(curve, 1).tolist() == [0]


def test_a_constant_is_a_slider():
    assert described(np.full(80, 127.5), 1) == (128, "")
    assert described(np.array([9.0]), 1) == (9, "")


def test_a_curve_has_points_on_the_grid_and_no_comma():
    _, curve = described(127 + 60 * np.sin(np.arange(80) / 9), 2)
    assert "," not in curve
    points = [point.split(":") for point in curve.split("Values=")[1].rstrip("|").split(";")]
    assert points[0][0] == "0.000"
    assert points[-1][0] == "1.000"
    assert all(round(float(x) * 200, 6) % 1 == 0 for x, _ in points)
    assert all(len(y.partition(".")[2]) == 4 for _, y in points)


@pytest.mark.parametrize("frames", [2, 3, 20, 79, 80, 81, 101])
@pytest.mark.parametrize("period", [3.4, 7.0, 13.8, 40.0])
def test_pulses_of_short_effects_are_met_on_every_frame(frames, period):
    """R-51: where the grid has two points for each frame, jumps are met too."""
    place = np.arange(frames) % period / period
    for values in (255 - 179 * place, np.where(place < 0.5, 255.0, 0.0)):
        assert np.abs(seen(values) - values).max() <= 0.5


@pytest.mark.parametrize("frames", [128, 150, 180, 200])
def test_at_a_jump_of_a_long_effect_only_the_frame_behind_it_may_be_off(frames):
    """R-51: jumps apart, no frame is off by more than 1."""
    values = 255 - 179 * (np.arange(frames) % 14 / 14)
    off = np.flatnonzero(np.abs(seen(values) - values) > 1)
    assert set(off) <= set(np.flatnonzero(jumps(values)) + 1)


def test_a_jump_takes_one_step_of_the_grid():
    _, curve = described(np.repeat([0.0, 255.0], 40), 1)
    assert curve.endswith("Values=0.000:0.0000;0.495:0.0000;0.500:1.0000;1.000:1.0000|")


@settings(max_examples=examples(200), deadline=None)
@given(
    frames=st.integers(1, 200),
    centre=st.floats(0, 255),
    width=st.floats(0, 127),
    period=st.floats(24, 4000),
    phase=st.floats(0, 6.3),
    slope=st.floats(-3, 3),
)
def test_thinning_keeps_movements_within_one(frames, centre, width, period, phase, slope):
    """R-51: whatever the movement, and whether xLights rounds the value or cuts it."""
    place = np.arange(frames)
    free = centre + width * np.sin(phase + 2 * np.pi * place / period) + slope * place
    # A corner at 0 or 255 cannot be overshot to be met; a long effect has no points to spare there.
    assume(frames <= 101 or (free.min() >= 2 and free.max() <= 253))
    values = np.clip(free, 0, 255)
    values = values.astype(np.float32).astype(float)
    calm = apart_from_jumps(values)
    written = seen(values)
    for whole in (np.rint(written), np.floor(written + 1e-9)):
        assert np.abs(whole - np.rint(values))[calm].max(initial=0) <= 1


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.floats(0, 255, width=32), min_size=1, max_size=101))
def test_any_values_of_a_short_effect_are_met(values):
    """R-51: no assumption about movements."""
    assert np.abs(np.rint(seen(values)) - np.rint(np.array(values))).max() <= 1


@pytest.mark.parametrize(
    "curve",
    [
        "", "Active=TRUE|", "Active=TRUE|Type=Sine|Min=0.00|Max=255.00|RV=TRUE|",
        "Active=TRUE|Type=Ramp|Min=0.00|Max=255.00|P1=0|P2=9|RV=FALSE|",
        "Active=TRUE|Type=Custom|Min=0.00|Max=255.00|RV=TRUE|Values=0.000:0.1;0.000:0.2;1.000:0.3|",
        "Active=TRUE|Type=Custom|Min=0.00|Max=255.00|RV=TRUE|Values=0.000:0.1;0.900:0.3|",
        "Active=TRUE|Type=Custom|Min=0.00|Max=255.00|RV=TRUE|Values=0.000:0.1;1.000:2|",
    ],
)  # fmt: skip
def test_a_curve_that_we_do_not_write_is_refused(curve):
    with pytest.raises(ValueError):
        evaluated(curve, 4)
