"""Sequences: written, read back as xLights evaluates them, merged into a base."""

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detent.apps.choreography.domain.implementer import implement
from detent.apps.choreography.domain.plan import AgentPlan
from detent.apps.choreography.domain.stage import Stage
from detent.apps.choreography.domain.vocabulary import COLOURS, GOBOS, SHUTTERS
from detent.apps.choreography.show import xsq
from detent.apps.choreography.show.fixtures import DEFAULT_RIG, Fixture, Rig
from detent.apps.choreography.show.xsq_checker import check
from detent.apps.choreography.show.xsq_reader import SequenceRefused, fingerprint, is_ours, read
from detent.kernel.errors import ConfigurationError
from tests.apps.choreography.show.samples import MEDIA, planned, rendered, show_of, song, three_sections
from tests.examples import examples


def written(the_song, plan, rig=DEFAULT_RIG, frame_ms=25, **options) -> bytes:
    implementation = show_of(plan, the_song.bars)
    rendering = rendered(the_song, plan, implementation, rig, frame_ms)
    return xsq.write(the_song, plan, implementation, rendering, rig, **{"media": MEDIA, **options})


@pytest.fixture(scope="module")
def ours() -> bytes:
    return written(song(24, drift=0.03), three_sections())


def compare(source: bytes, rendering) -> None:
    """R-51, frame by frame: within 1, except the frames of a jump."""
    sequence = read(source)
    for head in rendering.heads:
        seen = sequence.dmx(head.fixture.xlights_model_name).astype(int)
        meant = head.dmx().astype(int)
        assert seen.shape == meant.shape
        jump = np.abs(np.diff(meant, axis=1)) > 8
        edge = np.zeros((len(meant), 1), dtype=bool)
        near = np.hstack([edge, jump]) | np.hstack([jump, edge])
        assert np.abs(seen - meant)[~near].max() <= 1


# -- the file -----------------------------------------------------------------------------------------------


def test_the_file_has_the_elements_attributes_and_order_of_the_specification(ours):
    """R-50."""
    root = ET.fromstring(ours)
    assert root.attrib == {
        "BaseChannel": "0", "ChanCtrlBasic": "0", "ChanCtrlColor": "0", "FixedPointTiming": "1",
        "ModelBlending": "true",
    }  # fmt: skip
    assert [child.tag for child in root] == [
        "head", "ColorPalettes", "EffectDB", "DataLayers", "DisplayElements", "ElementEffects", "lastView",
        "TimingTags",
    ]  # fmt: skip
    head = {child.tag: child.text or "" for child in root[0]}
    assert list(head) == list(xsq.HEAD)
    assert head["sequenceTiming"] == "25 ms"
    assert head["mediaFile"] == MEDIA
    assert head["sequenceDuration"] == "48.720"
    assert re.fullmatch(r"Made with Detent \S+, [0-9a-f]{12}", head["comment"])
    assert [node.text for node in root[1]] == ["C_BUTTON_Palette1=#FFFFFF,C_CHECKBOX_Palette1=1"]
    texts = [node.text for node in root[2]]
    assert len(set(texts)) == len(texts)
    assert root[6].text == "0"
    declared = [list(node.attrib.items()) for node in root[4]]
    assert declared[0] == [("collapsed", "0"), ("type", "timing"), ("name", "Detent Sections"),
                           ("visible", "1"), ("views", ""), ("active", "1")]  # fmt: skip
    assert [dict(row).get("active") for row in declared] == ["1", "0", "0", "0", None, None, None, None]
    effects = root[5][-1][0]
    assert list(effects[0].attrib) == ["ref", "name", "startTime", "endTime", "palette"]
    assert all(len(element) == 1 for element in root[5])


def test_the_settings_string_has_its_parts_in_order(ours):
    """R-50."""
    for text in read(ours).effect_db:
        keys = [part.split("=")[0] for part in text.split(",")]
        curves = [key for key in keys if key.startswith("E_VALUECURVE")]
        assert keys == [
            "B_CHOICE_BufferStyle", *(f"E_CHECKBOX_INVDMX{n}" for n in range(1, 17)), "E_NOTEBOOK1",
            *(f"E_SLIDER_DMX{n}" for n in range(1, 17)), *curves,
        ]  # fmt: skip
        assert curves == sorted(curves, key=lambda key: int(key.rpartition("DMX")[2]))


def test_equal_input_gives_equal_bytes(ours):
    """R-50."""
    assert written(song(24, drift=0.03), three_sections()) == ours


def test_the_file_passes_the_checker(ours):
    """R-50."""
    assert check(ours) == []
    assert is_ours(ours)
    added = ours.replace(b'name="DMX"', b'name="Bars"', 1)
    assert added != ours
    assert not is_ours(added), "somebody has added to it in xLights"


def test_marks_name_sections_bars_and_beats(ours):
    tracks = read(ours).timing_tracks
    the_song = song(24, drift=0.03)
    assert [mark.label for mark in tracks["Detent Sections"]] == ["Intro", "Verse 1", "Chorus 1"]
    assert [mark.label for mark in tracks["Detent Bars"]] == [str(bar) for bar in range(1, 25)]
    assert [mark.label for mark in tracks["Detent Beats"]] == ["1", "2", "3", "4"] * 24
    assert tracks["Detent Notes"][2].label == '<Loud> & bright, "wide"'
    for mark, second in zip(tracks["Detent Bars"], the_song.bars_s, strict=True):
        assert abs(mark.start_ms - 1000 * second) <= 12.5
    assert "Detent Notes" not in read(written(the_song, three_sections(), notes=False)).timing_tracks


def test_sections_that_start_together_share_a_mark():
    plan = AgentPlan(
        sections=(planned("A", 1, 8, "harbor_drift"), planned("B", 1, 4, "spark_relay"),
                  planned("C", 6, 8, "slow_fan"))
    )  # fmt: skip
    marks = read(written(song(8), plan)).timing_tracks["Detent Sections"]
    assert [(mark.label, mark.start_ms, mark.end_ms) for mark in marks] == [
        ("A + B", 0, 10000), ("C", 10000, 16000),
    ]  # fmt: skip


def test_a_pickup_counts_towards_the_first_downbeat():
    pickup = song(4)
    beats = (0.05, 0.55, *(beat + 1.05 for beat in pickup.beats_s))
    bars = (0.0, *(bar + 1.05 for bar in pickup.bars_s[1:]))
    from dataclasses import replace

    late = replace(pickup, beats_s=beats, bars_s=bars, duration_s=9.05)
    labels = [mark.label for mark in read(written(late, AgentPlan(sections=(
        planned("A", 1, 4, "harbor_drift"),)))).timing_tracks["Detent Beats"]]  # fmt: skip
    assert labels == ["3", "4", *["1", "2", "3", "4"] * 4]


@pytest.mark.parametrize("bpm", [40, 75, 124, 174])
@pytest.mark.parametrize("frame_ms", [20, 25, 50])
def test_effects_start_and_end_on_bars_and_last_at_most_200_frames(bpm, frame_ms):
    """R-50: cut at bar lines; where a bar is longer, at its beats."""
    the_song = song(12, bpm=bpm, drift=0.05)
    plan = AgentPlan(sections=(planned("A", 1, 12, "hammer_hits"),))
    source = written(the_song, plan, frame_ms=frame_ms)
    assert check(source) == []
    grid = np.array(the_song.bars_s if 240 / bpm * 1.06 * 1000 / frame_ms < 200 else the_song.beats_s) * 1000
    for effect in read(source).models["Dmx MH1"][0]:
        assert np.abs(grid - effect.start_ms).min() <= frame_ms / 2
        assert 0 < (effect.end_ms - effect.start_ms) / frame_ms <= 200


def test_a_rig_of_many_channels_is_written_in_whole_pages():
    mapping = {"pan": 20, "tilt": 21, "dimmer": 33}
    head = Fixture.model_validate(
        {
            **DEFAULT_RIG.fixtures[0].to_plain(),
            "channel_count": 34,
            "dmx_mapping": mapping,
            "defaults": {40 - 6: 7},
        }
    )
    rig = Rig(fixtures=(head,))
    plan = AgentPlan(sections=(planned("A", 1, 8, "harbor_drift"),))
    source = written(song(8), plan, rig)
    values = read(source).dmx("Dmx MH1")
    assert values.shape[0] == 48
    assert np.all(values[33] == 7)
    compare(source, rendered(song(8), plan, rig=rig))


@pytest.mark.parametrize(
    ("options", "text"),
    [({"media": " "}, "media"), ({"head": {"athor": "x"}}, "author"), ({"frame_ms": 30}, "20, 25 or 50")],
)
def test_arguments_that_make_no_sequence_are_refused(options, text):
    with pytest.raises(ConfigurationError, match=text):
        written(song(4), AgentPlan(sections=(planned("A", 1, 4, "harbor_drift"),)), **options)


def test_texts_of_any_kind_survive():
    name = 'Ünder <"&"> \x07 the\nbridge 🎉'
    plan = AgentPlan(sections=(planned(name, 1, 4, "harbor_drift", reasoning=name),))
    source = written(song(4), plan, head={"artist": name}, media="C:\\Songs\\a & b.mp3")
    assert check(source) == []
    sequence = read(source)
    assert sequence.timing_tracks["Detent Sections"][0].label == name.replace("\x07", "")
    assert sequence.head["song"] == "a & b"


# -- reading back -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("frame_ms", [20, 25, 50])
@pytest.mark.parametrize("bpm", [60, 75, 120, 174])
def test_reading_back_gives_the_rendered_values(bpm, frame_ms):
    """R-51."""
    the_song = song(24, bpm=bpm, drift=0.04)
    compare(written(the_song, three_sections(), frame_ms=frame_ms),
            rendered(the_song, three_sections(), frame_ms=frame_ms))  # fmt: skip


@settings(max_examples=examples(60), deadline=None)
@given(
    bpm=st.floats(50, 190),
    drift=st.floats(-0.1, 0.1),
    beats=st.sampled_from([3, 4]),
    templates=st.lists(st.sampled_from(sorted(Stage().library)), min_size=1, max_size=4, unique=True),
    speed=st.sampled_from(["SLOW", "MODERATE", "FAST"]),
    intensity=st.sampled_from(["SMOOTH", "DRAMATIC", "INTENSE"]),
    heads=st.integers(1, 5),
)
def test_any_show_is_read_back_as_rendered(bpm, drift, beats, templates, speed, intensity, heads):
    """R-51: whatever the templates, tempo and rig."""
    the_song = song(5 * len(templates), bpm=bpm, drift=drift, beats_per_bar=beats)
    sections = tuple(
        planned(f"S{place}", 5 * place + 1, 5 * place + 5, template,
                params={"speed": speed, "intensity": intensity})
        for place, template in enumerate(templates)
    )  # fmt: skip
    rig = Rig.of_heads(heads)
    plan = AgentPlan(sections=sections)
    source = written(the_song, plan, rig)
    assert check(source) == []
    compare(source, rendered(the_song, plan, rig=rig))


@pytest.mark.parametrize("heads", [1, 2, 4, 8])
def test_the_show_can_be_seen(heads):
    """R-62: shutter, colour and gobo as planned; light; movement; also where the tempo drifts."""
    the_song = song(24, drift=0.06)
    rig, plan = Rig.of_heads(heads), three_sections()
    implementation, _ = implement(the_song, plan, Stage(heads=heads))
    rendering = rendered(the_song, plan, implementation, rig)
    sequence = read(xsq.write(the_song, plan, implementation, rendering, rig, media=MEDIA))
    values = np.stack([sequence.dmx(head.xlights_model_name) for head in rig.fixtures]).astype(int)
    for section in plan.sections:
        frames = slice(*rendering.timing.span(section.start_bar, section.end_bar))
        channels = section.channels
        here = values[:, :, frames]
        assert np.all(here[:, 6] == SHUTTERS[channels.shutter].dmx)
        assert np.all(here[:, 7] == COLOURS[channels.color].dmx)
        assert np.all(here[:, 8] == GOBOS[channels.gobo].dmx)
        assert (here[:, 5] > 0).any(axis=0).mean() >= 0.8
        assert np.ptp(here[:, [0, 2]], axis=2).max() > 1


# -- merging into a base ------------------------------------------------------------------------------------

FOREIGN = """\
<?xml version="1.0" encoding="UTF-8"?>
<xsequence BaseChannel="0" ChanCtrlBasic="0" ChanCtrlColor="0" FixedPointTiming="1" ModelBlending="true">
  <head><version>2023.20</version><author>Ann &amp; Bob</author><mediaFile>/home/ann/song.mp3</mediaFile>
    <sequenceTiming>{frame} ms</sequenceTiming><sequenceDuration>48.720</sequenceDuration></head>
  <nextid>7</nextid>
  <ColorPalettes><ColorPalette>C_BUTTON_Palette1=#FF0000</ColorPalette></ColorPalettes>
  <EffectDB>
    <Effect>E_SLIDER_Bars_BarCount=1</Effect><!-- kept -->
    <Effect>E_TEXTCTRL_On=&lt;1&gt;</Effect>
    <Effect>nothing refers to this</Effect>
  </EffectDB>
  <DisplayElements>
    <Element collapsed='0' type="timing" name="Lyrics" visible="1" views="" active="1"/>
    <Element collapsed="1" type="model" name="Mega Tree" visible="0"/>
    <Element collapsed="0" type="model" name="Dmx MH2" visible="1"/>
  </DisplayElements>
  <ElementEffects>
    <Element type="timing" name="Lyrics"><EffectLayer><Effect label="la" startTime="0" endTime="500"/></EffectLayer></Element>
    <Element type="model" name="Mega Tree">
      <EffectLayer><Effect ref="0" name="Bars" startTime="100" endTime="900" palette="0"/></EffectLayer>
      <SubModelEffectLayer layer="0" name="top"><Effect ref="1" name="On" startTime="0" endTime="100" palette="0"/></SubModelEffectLayer>
    </Element>
    <Element type="model" name="Dmx MH2"><EffectLayer><Effect ref="2" name="DMX" startTime="0" endTime="100" palette="0"/></EffectLayer></Element>
  </ElementEffects>
  <lastView>3</lastView>
  <TimingTags><Tag number="0" position="-1"/></TimingTags>
</xsequence>
"""  # noqa: E501


def foreign(frame: int = 25) -> bytes:
    return FOREIGN.replace("{frame}", str(frame)).encode()


def test_merging_into_our_own_output_changes_no_byte(ours):
    """R-52."""
    assert written(song(24, drift=0.03), three_sections(), base=xsq.Base(ours)) == ours


def test_merging_twice_is_merging_once():
    """R-52."""
    once = written(song(24, drift=0.03), three_sections(), base=xsq.Base(foreign()))
    assert written(song(24, drift=0.03), three_sections(), base=xsq.Base(once)) == once
    shorter = AgentPlan(sections=(planned("All", 1, 24, "tide_tilt"),))
    other = written(song(24, drift=0.03), shorter, base=xsq.Base(once), notes=False)
    assert written(song(24, drift=0.03), three_sections(), base=xsq.Base(other)) != other
    assert b"Detent Notes" not in other
    assert len(other) < len(once)  # what nothing refers to any more is gone


def test_a_base_keeps_every_foreign_byte():
    """R-52: elements, references, palettes and the head."""
    merged = written(song(24, drift=0.03), three_sections(), base=xsq.Base(foreign()))
    text = merged.decode()
    start, end = FOREIGN.index("  <head>"), FOREIGN.index("</ColorPalettes>")
    assert FOREIGN[start:end].replace("{frame}", "25") in text
    for begin, stop in (
        ("<Effect>E_SLIDER_Bars", "<Effect>nothing"),
        ("<Element collapsed='0'", '<Element collapsed="1"'),
        ('<Element collapsed="1"', "  </DisplayElements>"),
        ('<Element type="timing" name="Lyrics">', '\n    <Element type="model"'),
        ('<Element type="model" name="Mega Tree">', '<Element type="model" name="Dmx MH2">'),
        ("<lastView>3", "</xsequence>"),
    ):
        kept = FOREIGN[FOREIGN.index(begin) : FOREIGN.index(stop, FOREIGN.index(begin))].rstrip()
        assert kept in text, kept
    assert "nothing refers to this" not in text
    sequence = read(merged)
    assert sequence.models["Mega Tree"][0][0].settings == "E_SLIDER_Bars_BarCount=1"
    assert sequence.palettes == ("C_BUTTON_Palette1=#FF0000", xsq.PALETTE)
    assert {effect.palette for effect in sequence.models["Dmx MH2"][0]} == {1}
    assert text.count('active="1"') == 1
    assert list(sequence.timing_tracks)[:2] == ["Lyrics", "Detent Sections"]
    assert check(merged) == []
    compare(merged, rendered(song(24, drift=0.03), three_sections()))
    assert not is_ours(merged)


def test_the_frame_time_of_a_base_wins():
    """R-52: a show rendered in another one is refused; in its own it is read back."""
    base = xsq.Base(foreign(50))
    assert base.frame_ms == 50
    with pytest.raises(ConfigurationError, match="50 ms"):
        written(song(24, drift=0.03), three_sections(), base=base)
    merged = written(song(24, drift=0.03), three_sections(), frame_ms=50, base=base)
    compare(merged, rendered(song(24, drift=0.03), three_sections(), frame_ms=50))


def test_a_base_of_another_length_is_warned_of_and_never_overrun():
    base = xsq.Base(foreign().replace(b"48.720", b"20.010"))
    assert base.warnings(song(24))
    assert not xsq.Base(foreign()).warnings(song(24))
    merged = written(song(24, drift=0.03), three_sections(), base=base)
    assert check(merged) == []
    assert max(effect.end_ms for effect in read(merged).models["Dmx MH1"][0]) == 20000


def test_faults_of_a_base_are_told_and_left_as_they_were():
    """Wherever a merge moves them: lines of the base are named, and only what is still wrong."""
    source = foreign().replace(b'startTime="100" endTime="900"', b'startTime="110" endTime="900"')
    twice = b'<Effect ref="0" name="Bars" startTime="800" endTime="1000" palette="0"/>'
    source = source.replace(b"</EffectLayer>\n      <SubModel", twice + b"</EffectLayer>\n      <SubModel")
    source = source.replace(b'name="DMX" startTime="0"', b'name="DMX" startTime="7"')  # of a head: replaced
    base = xsq.Base(source)
    merged = written(song(24, drift=0.03), three_sections(), base=base)
    line = source[: source.index(b'startTime="110"')].count(b"\n") + 1
    assert [(fault.code, fault.place.line) for fault in base.faults(merged)] == [("X07", line), ("X09", line)]
    (warning,) = base.warnings(song(24), merged)
    assert f"line {line}: 'Mega Tree': 110 ms is not a multiple" in warning
    clean = xsq.Base(foreign())
    assert not clean.warnings(song(24), written(song(24, drift=0.03), three_sections(), base=clean))


@pytest.mark.parametrize("section", ["ColorPalettes", "EffectDB", "DisplayElements", "ElementEffects"])
@pytest.mark.parametrize("form", ["<{0}/>", "<{0}></{0}>", "<{0}>\n  </{0}>", ""])
def test_a_base_with_empty_or_missing_sections_is_filled(section, form, ours):
    emptied = re.sub(rf"<{section}>.*</{section}>", form.format(section), ours.decode(), flags=re.DOTALL)
    merged = written(song(24, drift=0.03), three_sections(), base=xsq.Base(emptied.encode()))
    again = written(song(24, drift=0.03), three_sections(), base=xsq.Base(merged))
    assert check(merged) == []
    assert again == merged
    assert read(merged).models == read(ours).models


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("<xsequence", "<!DOCTYPE x [<!ENTITY a 'aaaa'><!ENTITY b '&a;&a;'>]><xsequence"),
        ("<xsequence", "<!DOCTYPE x SYSTEM 'file:///etc/passwd'><xsequence"),
        ('encoding="UTF-8"', 'encoding="ISO-8859-1"'),
        ("<lastView>3</lastView>", "<lastView>&a;</lastView>"),
        ("<lastView>3</lastView>", "<CompressedData>eJw=</CompressedData><lastView>3</lastView>"),
        ("<version>2023.20</version>", ""),
        ("<mediaFile>/home/ann/song.mp3</mediaFile>", "<mediaFile/>"),
        ("<sequenceDuration>48.720</sequenceDuration>", "<sequenceDuration>long</sequenceDuration>"),
        ("<sequenceDuration>48.720</sequenceDuration>", "<sequenceDuration>0.020</sequenceDuration>"),
        ("<sequenceDuration>48.720</sequenceDuration>", "<sequenceDuration>٤٨.٧</sequenceDuration>"),
        ("<sequenceTiming>25 ms</sequenceTiming>", ""),
        ("<sequenceTiming>25 ms</sequenceTiming>", "<sequenceTiming>٢٥ ms</sequenceTiming>"),
        ("</xsequence>", ""),
        ("<lastView>3</lastView>", "<a>" * 100 + "</a>" * 100),
    ],
)
def test_an_unsafe_or_incomplete_base_is_refused(before, after):
    """R-52."""
    source = foreign().decode()
    assert before in source
    with pytest.raises(SequenceRefused):
        xsq.Base(source.replace(before, after).encode())


def test_a_timing_track_named_like_a_head_is_refused():
    source = foreign().replace(b'"Lyrics"', b'"Dmx MH1"')
    with pytest.raises(SequenceRefused, match="X06"):
        written(song(24, drift=0.03), three_sections(), base=xsq.Base(source))


def test_the_fingerprint_of_a_base_counts_what_is_in_it():
    """3.10."""
    facts = fingerprint(foreign(), "base.xsq")
    assert facts["xsq_path"] == "base.xsq"
    assert facts["xlights_version"] == "2023.20"
    assert facts["duration_s"] == 48.72
    assert facts["timing_tracks"] == ["Lyrics"]
    assert facts["timing_track_events"] == {"Lyrics": 1}
    assert facts["effect_type_histogram"] == {"Bars": 1, "DMX": 1}
    assert facts["activity_proxy"]["bin_s"] == 1.0
    assert facts["activity_proxy"]["bins"] == [2] + [0] * 48


@pytest.mark.parametrize("source", [b"", b"no xml", b"<show/>", b"\xff\xfe<\x00", b"<\x00x", b"<xsequence/>"])
def test_a_file_that_is_no_sequence_is_refused_and_not_ours(source):
    with pytest.raises(SequenceRefused):
        read(source)
    assert not is_ours(source)


def test_what_a_base_refers_to_in_vain_does_not_become_ours():
    """R-52: such an effect keeps having nothing, and is warned of; merging again changes nothing."""
    source = re.sub(
        r"<EffectDB>.*</EffectDB>|<ColorPalettes>.*</ColorPalettes>", "", FOREIGN, flags=re.DOTALL
    )
    source = source.replace("{frame}", "25").replace('palette="0"', 'palette="1"', 1)
    base = xsq.Base(source.encode())
    merged = written(song(24, drift=0.03), three_sections(), base=base)
    effect = read(merged).models["Mega Tree"][0][0]
    assert (effect.ref, effect.settings) == (0, "")
    assert read(merged).palettes[effect.palette] == ""
    assert xsq.PALETTE in read(merged).palettes
    assert {fault.code for fault in base.faults(merged)} == {"X11", "X12"}
    compare(merged, rendered(song(24, drift=0.03), three_sections()))
    assert written(song(24, drift=0.03), three_sections(), base=xsq.Base(merged)) == merged


@pytest.mark.parametrize(("key", "value"), [("ref", "NaN"), ("ref", "-3"), ("palette", "999999")])
def test_a_reference_that_is_wrong_anyway_is_no_reason_to_refuse_a_base(key, value):
    """Lists that have grown do not make it another fault."""
    base = xsq.Base(foreign().replace(f'{key}="0"'.encode(), f'{key}="{value}"'.encode(), 1))
    merged = written(song(24, drift=0.03), three_sections(), base=base)
    assert len(base.faults(merged)) == 1


def test_a_negative_reference_moves_no_list():
    """It is of no entry; with nothing else in use, the list of ours began before its first."""
    source = re.sub(r"<EffectDB>.*</EffectDB>", "<EffectDB/>", foreign().decode(), flags=re.DOTALL)
    base = xsq.Base(source.replace('ref="0"', 'ref="-5"').encode())
    merged = written(song(24, drift=0.03), three_sections(), base=base)
    compare(merged, rendered(song(24, drift=0.03), three_sections()))
    assert written(song(24, drift=0.03), three_sections(), base=xsq.Base(merged)) == merged


def test_faults_are_told_of_a_base_on_one_line():
    """What is replaced has the same line as what stays."""
    source = foreign().replace(b'ref="0" name="Bars"', b'ref="77" name="Bars"')
    base = xsq.Base(re.sub(rb">\s+<", b"><", source))
    merged = written(song(24, drift=0.03), three_sections(), base=base)
    assert [fault.code for fault in base.faults(merged)] == ["X11"]


def test_digits_of_other_scripts_are_no_numbers():
    """Python reads them, xLights does not."""
    source = foreign().replace(b'startTime="100"', 'startTime="١٠٠"'.encode())
    assert "X07" in {problem.code for problem in check(source)}


@pytest.mark.parametrize(
    ("kind", "name", "line"),
    [
        ("timing", "Dmx MH2", "timing track named 'Dmx MH2'"),
        ("model", "Detent Bars", "model named 'Detent Bars'"),
    ],
)
def test_names_that_cannot_stand_beside_a_show_are_refused_before_it_is_made(kind, name, line):
    row = f'<Element type="{kind}" name="{name}"/>'
    source = foreign().replace(b"</DisplayElements>", row.encode() + b"</DisplayElements>")
    if kind == "timing":
        source = source.replace(b'type="model" name="Dmx MH2"', b'type="model" name="Other"')
    with pytest.raises(SequenceRefused, match=line):
        xsq.Base(source).check_names(DEFAULT_RIG)
    xsq.Base(foreign()).check_names(DEFAULT_RIG)


def test_a_base_with_frames_of_two_seconds_is_refused():
    with pytest.raises(SequenceRefused, match="sequenceTiming"):
        xsq.Base(foreign(2000))
