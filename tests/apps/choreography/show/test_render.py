"""Rendering: who rules a head in which bar, and what it does there."""

import numpy as np
import pytest

from detent.apps.choreography.domain.plan import AgentPlan, Params
from detent.apps.choreography.domain.stage import Stage
from detent.apps.choreography.show.fixtures import DEFAULT_RIG, Fixture, Rig
from detent.apps.choreography.show.render import render
from detent.apps.choreography.show.timing import Timing
from detent.kernel.errors import ConfigurationError
from tests.apps.choreography.show.samples import (
    implemented,
    part,
    planned,
    rendered,
    song,
    three_sections,
)

PAN, TILT, DIMMER = 0, 1, 2


def plan_of(*sections):
    return AgentPlan(sections=sections)


def maxima(values) -> int:
    """How many separate highest places there are."""
    top = values >= values.max() - 0.3
    return int(np.count_nonzero(np.diff(top.astype(int)) == 1) + top[0])


def test_harbor_drift_has_one_pan_maximum_in_eight_bars():
    """R-51, R-62: a cycle goes on over the effects it is cut into."""
    plan = plan_of(planned("Intro", 1, 8, "harbor_drift"))
    show = rendered(song(8), plan)
    assert maxima(show.heads[0].moved[PAN]) == 1


def test_a_section_divided_by_an_overlap_goes_on_where_it_was():
    """R-62: no cycle begins anew at a cut."""
    section = planned("Intro", 1, 8, "harbor_drift")
    whole = rendered(song(8), plan_of(section), implemented(part(section, "harbor_drift", "ALL"), bars=8))
    first = part(section, "harbor_drift", "ALL", end_bar=3)
    second = part(section, "harbor_drift", "ALL", start_bar=4).model_copy(update={"name": "other"})
    divided = rendered(song(8), plan_of(section), implemented(first, second, bars=8))
    assert np.array_equal(whole.heads[0].moved, divided.heads[0].moved)


def test_what_several_heads_lack_is_told_once():
    """A fact, not a head, is a warning."""
    rig = Rig.of_heads(3)
    maps = {"color": {"white": 0, "red": 16}}
    fixtures = [{**fixture.to_plain(), "maps": maps} for fixture in rig.fixtures[:2]]
    plan = plan_of(planned("Intro", 1, 8, "harbor_drift", channels=("open", "amber", "open")))
    show = rendered(song(8), plan, rig=Rig.from_plain({"fixtures": [*fixtures, rig.fixtures[2].to_plain()]}))
    assert show.warnings == ("MH1, MH2 have no color 'amber': 'red' is used, the nearest there is.",)


def test_a_speed_stretches_a_cycle():
    for speed, expected in (("SLOW", 1), ("MODERATE", 2), ("FAST", 4)):
        section = planned("Verse", 1, 16, "harbor_drift", params=Params(speed=speed).model_dump())
        assert maxima(rendered(song(16), plan_of(section)).heads[0].moved[PAN]) == expected


def test_an_intensity_widens_a_movement():
    widths = []
    for intensity in ("SMOOTH", "DRAMATIC", "INTENSE"):
        section = planned("Verse", 1, 8, "harbor_drift", params=Params(intensity=intensity).model_dump())
        widths.append(np.ptp(rendered(song(8), plan_of(section)).heads[0].moved[PAN]))
    assert np.allclose(np.array(widths) / widths[1], [0.6, 1.0, 1.3], atol=0.01)


def test_the_higher_layer_wins_a_bar_then_the_later_name_and_both_are_warned_of():
    """3.10: one layer per fixture."""
    low = planned("B", 1, 8, "lantern_hold")
    high = planned("A", 3, 4, "crosswind")
    same = planned("C", 7, 8, "figure_loop")
    show = rendered(
        song(8),
        plan_of(low, high, same),
        implemented(
            part(high, "crosswind", "MH1", layer_priority=1), part(low, "lantern_hold", "ALL"),
            part(same, "figure_loop", "MH1"), bars=8,
        ),
    )  # fmt: skip
    names = [(span.section.plan_section_name, span.start // 80 + 1) for span in show.heads[0].spans]
    assert names == [("B", 1), ("A", 3), ("B", 5), ("C", 7)]
    assert [span.section.plan_section_name for span in show.heads[1].spans] == ["B"]
    assert len(show.warnings) == 2
    assert all("MH1" in warning for warning in show.warnings)


def test_a_head_without_a_section_is_dark_and_holds_its_pose():
    """3.10."""
    before, after = planned("A", 1, 3, "harbor_drift"), planned("B", 6, 8, "harbor_drift")
    head = rendered(song(8), plan_of(before, after)).heads[0]
    hold = slice(240, 400)
    assert not head.moved[DIMMER, hold].any()
    assert np.all(head.moved[PAN, hold] == head.moved[PAN, 239])
    assert head.moved[DIMMER, :240].all()


def test_a_head_that_begins_later_waits_dark_where_it_will_be_needed():
    late = planned("B", 5, 8, "lantern_hold", base_pose="CEILING")
    head = rendered(song(8), plan_of(late)).heads[0]
    assert np.ptp(head.moved[TILT]) == 0
    assert not head.moved[DIMMER, :320].any()


def test_a_glide_reaches_the_pose_gradually_and_a_cut_jumps():
    first = planned("A", 1, 4, "pulse_steps", base_pose="LEFT_45")
    second = planned("B", 5, 8, "pulse_steps", base_pose="RIGHT_45")
    steps = {}
    for glide in (0, 0.5):
        show = rendered(
            song(8),
            plan_of(first, second),
            implemented(part(first, "pulse_steps", "ALL"), part(second, "pulse_steps", "ALL", glide=glide)),
        )
        steps[glide] = np.abs(np.diff(show.heads[0].moved[PAN]))
    assert steps[0].max() > 40
    assert steps[0.5].max() < 3
    # Half a bar is 40 frames.
    assert np.flatnonzero(steps[0.5]).tolist() == pytest.approx(range(320, 360), abs=1)


def test_bars_start_on_the_nearest_frame_in_the_last_minute_of_a_drifting_song():
    """R-51: bar k at `bars_s[k - 1]`, never at bar number × tempo."""
    drifting = song(120, bpm=124, drift=0.06, downbeat=0.013)
    timing = Timing(drifting, 25)
    starts = np.array(drifting.bars_s)
    late = starts > drifting.duration_s - 60
    assert late.sum() > 25
    assert np.abs(timing.bars[:-1] * 0.025 - starts)[late].max() <= 0.0126
    even = np.arange(len(starts)) * 240 / drifting.tempo_bpm
    assert np.abs(even - starts)[late].min() > 1  # an even grid would be far off here


def test_a_movement_keeps_to_the_bars_of_a_drifting_song():
    drifting = song(64, drift=0.1)
    plan = plan_of(planned("A", 1, 64, "harbor_drift", base_pose="SOFT_HOME"))
    show = rendered(drifting, plan)
    # Sine waves of 8 bars cross the middle upwards at the start of bars 1, 9, 17, …
    pan = show.heads[0].moved[PAN] - 127.5
    upwards = np.flatnonzero((pan[:-1] <= 0) & (pan[1:] > 0))
    assert np.abs(upwards - show.timing.bars[:-1:8]).max() <= 1


def test_pulses_fall_on_the_beats_of_a_drifting_song():
    drifting = song(40, drift=0.08)
    show = rendered(drifting, plan_of(planned("A", 1, 40, "pulse_steps")))
    rises = np.flatnonzero(np.diff(show.heads[0].moved[DIMMER]) > 20) + 1
    beats = np.array([show.timing.frame_at(beat) for beat in drifting.beats_s[1:]])
    assert np.abs(rises - beats).max() <= 1


@pytest.mark.parametrize("beats_per_bar", [3, 4])
def test_poses_of_clockface_change_once_a_beat(beats_per_bar):
    show = rendered(song(8, beats_per_bar=beats_per_bar), plan_of(planned("A", 1, 8, "clockface")))
    changes = np.flatnonzero(np.abs(np.diff(show.heads[0].moved[:2], axis=1)).max(axis=0) > 1) + 1
    assert changes.tolist() == list(range(20, show.frames, 20))


def test_spark_relay_lights_one_head_at_a_time_outward():
    show = rendered(song(4), plan_of(planned("A", 1, 4, "spark_relay")))
    lit = np.stack([head.moved[DIMMER] > 0 for head in show.heads])
    assert np.all(lit.sum(axis=0) == 1)
    order = [int(head) for head in np.argmax(lit[:, 5::10], axis=0)[:4]]
    assert order == [1, 2, 0, 3]


def test_starburst_jumps_outward_whatever_the_pose():
    show = rendered(song(4), plan_of(planned("A", 1, 4, "starburst_split", base_pose="UP")))
    first = [float(head.moved[PAN, 0]) for head in show.heads]
    assert first[0] == first[1] < 127.5 < first[2] == first[3]
    assert float(show.heads[0].moved[PAN, 79]) == pytest.approx(127.5, abs=1)


def test_heads_never_leave_their_limits():
    """3.5: angles are clamped."""
    tight = [
        Fixture.model_validate({**fixture.to_plain(), "limits": {"pan": [-10, 10], "tilt": [-5, 5]}})
        for fixture in DEFAULT_RIG.fixtures
    ]
    show = rendered(song(24), three_sections(), rig=Rig(fixtures=tuple(tight)))
    for head in show.heads:
        low, high = tight[0].axis_dmx("pan", -10), tight[0].axis_dmx("pan", 10)
        assert low - 1e-3 <= head.moved[PAN].min() <= head.moved[PAN].max() <= high + 1e-3


def test_without_a_shutter_channel_closed_is_dark():
    mapping = {
        role: channel for role, channel in DEFAULT_RIG.fixtures[0].dmx_mapping.items() if role != "shutter"
    }
    blind = Fixture.model_validate({**DEFAULT_RIG.fixtures[0].to_plain(), "dmx_mapping": mapping})
    plan = plan_of(planned("A", 1, 4, "pulse_steps", channels=("closed", "red", "open")))
    assert not rendered(song(4), plan, rig=Rig(fixtures=(blind,))).heads[0].moved[DIMMER].any()


@pytest.mark.parametrize("heads", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("template", sorted(Stage().library))
def test_every_template_renders_within_dmx_on_any_rig(template, heads):
    """R-49: within limits, some head lit, and moving unless it holds."""
    rig = Rig.of_heads(heads)
    show = rendered(song(16, beats_per_bar=3), plan_of(planned("A", 1, 16, template)), rig=rig)
    moved = np.stack([head.moved for head in show.heads])
    assert np.isfinite(moved).all()
    assert moved.min() >= 0
    assert moved.max() <= 255
    assert (moved[:, DIMMER] > 0).any(axis=0).mean() >= 0.8
    still = {"lantern_hold", "pulse_steps", "spark_relay"}
    # A fan has no width on a single head.
    if template not in still and not (heads == 1 and template in {"slow_fan", "crosswind"}):
        assert np.ptp(moved[:, :2], axis=2).max() > 1


def test_unknown_names_are_refused_with_the_nearest():
    section = planned("Intro", 1, 4, "harbor_drift")
    wrong = part(section, "harbor_drift", "ALL").model_copy(update={"template_id": "harbour_drift"})
    with pytest.raises(ConfigurationError, match="harbor_drift"):
        rendered(song(4), plan_of(section), implemented(wrong))
    lost = part(section, "harbor_drift", "ALL").model_copy(update={"plan_section_name": "Intra"})
    with pytest.raises(ConfigurationError, match="'Intro'"):
        rendered(song(4), plan_of(section), implemented(lost))


def test_sections_beyond_the_song_and_empty_ones_render_to_nothing():
    section = planned("A", 1, 4, "harbor_drift")
    beyond, empty = planned("B", 9, 12, "harbor_drift"), planned("C", 4, 2, "harbor_drift")
    show = render(
        song(4), plan_of(section, beyond, empty),
        implemented(*(part(one, "harbor_drift", "ALL") for one in (section, beyond, empty))),
        DEFAULT_RIG, Stage(),
    )  # fmt: skip
    assert [len(head.spans) for head in show.heads] == [1, 1, 1, 1]
