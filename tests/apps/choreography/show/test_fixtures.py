"""Rigs: degrees as DMX values, wheels, and fixtures files with all their problems."""

from pathlib import Path

import pytest

from detent.apps.choreography.domain.plan import Channels
from detent.apps.choreography.show.fixtures import DEFAULT_RIG, Fixture, Rig, check_layout, read_fixtures
from detent.authoring.problem import DocumentError
from detent.kernel.errors import ConfigurationError

MH1 = DEFAULT_RIG.fixtures[0]
GOOD = """\
group_id: MOVING_HEADS
fixtures:
  - fixture_id: MH1
    xlights_model_name: "Dmx MH1"
    config:
      channel_count: 16
      dmx_mapping: {pan: 1, pan_fine: 2, tilt: 3, tilt_fine: 4, dimmer: 6, shutter: 7, color: 8, gobo: 9}
      maps: {color: {white: 0, red: 16}, gobo: {open: 0}, shutter: {open: 255}}
      pan_range: [-270, 270]
      tilt_range: [-135, 135]
      orientation: {pan_offset: 0, tilt_offset: 0, pan_invert: false, tilt_invert: false}
      limits: {pan: [-120, 120], tilt: [-30, 100]}
      defaults: {5: 0}
"""


def problems_of(folder: Path, text: str) -> list:
    file = folder / "rig.yaml"
    file.write_text(text)
    with pytest.raises(DocumentError) as refused:
        read_fixtures(file)
    return list(refused.value.problems)


@pytest.mark.parametrize(
    ("axis", "degrees", "value"),
    [("pan", 0, 128), ("pan", -35, 111), ("pan", 90, 170), ("tilt", -15, 113), ("tilt", 90, 212)],
)
def test_degrees_become_the_dmx_values_of_the_specification(axis, degrees, value):
    """R-51: the figures of 3.9."""
    assert MH1.dmx(axis, degrees) == value


def test_an_inverted_head_with_an_offset_turns_to_the_specified_value():
    """R-51: pan 35 inverted with offset 10 is 116."""
    head = Fixture.model_validate({**MH1.to_plain(), "orientation": {"pan_offset": 10, "pan_invert": True}})
    assert head.dmx("pan", 35) == 116


def test_degrees_beyond_the_limits_stay_at_them():
    assert MH1.dmx("pan", 500) == MH1.dmx("pan", 120)
    assert MH1.dmx("tilt", -90) == MH1.dmx("tilt", -30)


def test_the_file_of_the_specification_is_read(tmp_path):
    (tmp_path / "rig.yaml").write_text(GOOD)
    rig = read_fixtures(tmp_path / "rig.yaml")
    assert [fixture.fixture_id for fixture in rig.fixtures] == ["MH1"]
    assert rig.fixtures[0].defaults == {5: 0}
    assert Rig.from_plain(rig.to_plain()) == rig


def test_every_problem_of_a_rig_is_reported_at_once_with_its_line_and_nearest_name(tmp_path):
    """R-53: duplicates, channels above the count, two roles on one channel, unknown keys and names."""
    text = (
        GOOD.replace("pan_fine: 2", "pan_fine: 1")
        .replace("gobo: 9", "gobbo: 19")
        .replace("red: 16", "redd: 300")
        .replace("pan_offset: 0", "pan_offst: 0")
        .replace("{5: 0}", "{1: 0, 99: 4}")
        .replace("[-30, 100]", "[100, -30]")
        + "  - {fixture_id: MH1, xlights_model_name: Dmx MH1, config: {channel_count: 99}}\n"
        + "  - 5\n"
    )
    problems = problems_of(tmp_path, text)
    lines = [problem.place.line for problem in problems]
    # Both the unknown role and its channel, both the unknown colour and its value, both names of the copy.
    assert lines == [7, 7, 7, 8, 8, 11, 12, 13, 13, 14, 14, 14, 15]
    suggestions = [problem.suggestions[0] for problem in problems if problem.suggestions]
    assert suggestions == ["gobo", "red", "pan_offset"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("fixtures:", "fixturs:"),
        ("pan: 1,", "pan: 17,"),
        ("pan: 1,", ""),
        ("channel_count: 16", "channel_count: 0"),
        ("channel_count: 16", "channel_count: sixteen"),
        ("[-270, 270]", "[-270]"),
        ("pan_invert: false", "pan_invert: 1"),
        ("{white: 0,", "{white: -1,"),
        ("fixture_id: MH1", 'fixture_id: ""'),
        ('xlights_model_name: "Dmx MH1"', r'xlights_model_name: "Dmx\x01MH1"'),
        ('xlights_model_name: "Dmx MH1"', 'xlights_model_name: "Detent Beats"'),
        ("pan_offset: 0", "pan_offset: 1e308"),
        ("[-270, 270]", "[-1e300, 270]"),
        ("dmx_mapping: {pan: 1, ", "dmx_mapping: {}\n      # {pan: 1, "),
    ],
)
def test_a_single_mistake_is_a_problem_with_a_line(tmp_path, before, after):
    """R-53."""
    assert before in GOOD
    assert all(problem.place.line > 0 for problem in problems_of(tmp_path, GOOD.replace(before, after)))


@pytest.mark.parametrize("text", ["", "- 1\n", "fixtures: []\n", "a: [\n", "fixtures: [{}, {}]\n"])
def test_a_file_without_heads_is_refused(tmp_path, text):
    assert problems_of(tmp_path, text)


def test_a_missing_file_is_a_configuration_error(tmp_path):
    with pytest.raises(ConfigurationError, match=r"absent\.yaml"):
        read_fixtures(tmp_path / "absent.yaml")


def test_a_colour_the_wheel_lacks_becomes_the_nearest_of_its_mood():
    head = Fixture.model_validate({**MH1.to_plain(), "maps": {"color": {"red": 7, "cyan": 9, "white": 0}}})
    assert head.channel_value("color", "red") == (7, None)
    value, missing = head.channel_value("color", "blue")
    assert value == 9
    assert missing is not None
    assert missing.warning(["MH1"]) == "MH1 has no color 'blue': 'cyan' is used, the nearest there is."
    assert missing.warning(["MH1", "MH2"]).startswith("MH1, MH2 have no color 'blue'")
    assert head.channel_value("color", "amber")[0] == 7


def test_a_gobo_the_wheel_lacks_becomes_the_nearest_in_density():
    head = Fixture.model_validate({**MH1.to_plain(), "maps": {"gobo": {"open": 3, "shatter": 5}}})
    assert head.channel_value("gobo", "prism")[0] == 5
    assert head.channel_value("gobo", "clouds")[0] == 3


def test_closing_a_head_whose_map_lacks_closed_never_opens_it():
    head = Fixture.model_validate({**MH1.to_plain(), "maps": {"shutter": {"open": 255}}})
    value, warning = head.channel_value("shutter", "closed")
    assert value == 0
    assert warning


def test_fine_channels_are_zero_and_defaults_are_sent():
    head = Fixture.model_validate({**MH1.to_plain(), "defaults": {5: 42}})
    values, warnings = head.constants(Channels(shutter="strobe_slow", color="red", gobo="stars"))
    assert values == {2: 0, 4: 0, 5: 42, 7: 150, 8: 16, 9: 48}
    assert not warnings


def test_a_model_missing_from_the_layout_is_an_error_with_the_nearest(tmp_path):
    """R-53: xLights drops effects of models it does not know."""
    layout = tmp_path / "xlights_rgbeffects.xml"
    models = "".join(f'<model name="Dmx MH{number}"/>' for number in (1, 2, 3))
    layout.write_text(f"<xrgb><models>{models}<model name='Dmx MH 4'/></models></xrgb>")
    with pytest.raises(DocumentError) as refused:
        check_layout(DEFAULT_RIG, layout)
    (problem,) = refused.value.problems
    assert problem.suggestions[0] == "Dmx MH 4"
    check_layout(Rig.of_heads(3), layout)


@pytest.mark.parametrize("text", ["not xml", "<!DOCTYPE x [<!ENTITY a 'b'>]><x>&a;</x>"])
def test_an_unsafe_layout_is_refused(tmp_path, text):
    layout = tmp_path / "layout.xml"
    layout.write_text(text)
    with pytest.raises(ConfigurationError):
        check_layout(DEFAULT_RIG, layout)
