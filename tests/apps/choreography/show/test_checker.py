"""Each rule of the checker has a file that breaks it, and only it."""

import re

import pytest

from detent.apps.choreography.domain.plan import AgentPlan
from detent.apps.choreography.show import xsq
from detent.apps.choreography.show.fixtures import Rig
from detent.apps.choreography.show.xsq_checker import check
from tests.apps.choreography.show.samples import MEDIA, planned, rendered, show_of, song


@pytest.fixture(scope="module")
def good() -> str:
    the_song, rig = song(4), Rig.of_heads(1)
    plan = AgentPlan(sections=(planned("A", 1, 4, "harbor_drift"),))
    implementation = show_of(plan, 4)
    rendering = rendered(the_song, plan, implementation, rig)
    return xsq.write(the_song, plan, implementation, rendering, rig, media=MEDIA).decode()


BAR_2 = 'name="DMX" startTime="2000" endTime="4000"'
RULES = [
    ("X01", "</xsequence>", ""),
    ("X01", "<xsequence", "<!DOCTYPE x><xsequence"),
    ("X02", ' FixedPointTiming="1"', ""),
    ("X02", 'FixedPointTiming="1"', 'FixedPointTiming="0"'),
    ("X03", "  <DataLayers/>\n", ""),
    ("X03", "  <TimingTags/>\n", "  <TimingTags/>\n  <DataLayers/>\n"),
    ("X04", '<Element collapsed="0" type="model" name="Dmx MH1" visible="1"/>', ""),
    ("X04", 'type="model" name="Dmx MH1">', 'type="submodel" name="Dmx MH1">'),
    ("X05", '<Element collapsed="0" type="model"',
     '<Element collapsed="0" type="model" name="Dmx MH1" visible="1"/><Element collapsed="0" type="model"'),
    ("X06", '<Element collapsed="0" type="model"',
     '<Element collapsed="0" type="timing" name="Dmx MH1" visible="1"/><Element collapsed="0" type="model"'),
    ("X07", BAR_2, 'name="DMX" startTime="2010" endTime="4000"'),
    ("X07", BAR_2, 'name="DMX" startTime="2.0" endTime="4000"'),
    ("X08", BAR_2, 'name="DMX" startTime="4000" endTime="4000"'),
    ("X09", BAR_2, 'name="DMX" startTime="1975" endTime="4000"'),
    ("X09", 'startTime="500" endTime="1000"', 'startTime="475" endTime="1000"'),
    ("X10", 'endTime="8000" palette', 'endTime="8025" palette'),
    ("X11", 'ref="1"', 'ref="99"'),
    ("X11", 'ref="1"', 'ref="-1"'),
    ("X11", 'ref="1" ', ""),
    ("X12", 'palette="0"', 'palette="1"'),
    ("X13", 'name="DMX"', 'name="DMXX"'),
    ("X14", "E_SLIDER_DMX1=0", "E_SLIDER_DMX1=1"),
    ("X15", "<version>2024.19</version>", ""),
    ("X15", f"<mediaFile>{MEDIA}</mediaFile>", "<mediaFile/>"),
    ("X15", "<sequenceTiming>25 ms</sequenceTiming>", "<sequenceTiming>0 ms</sequenceTiming>"),
    ("X16", "E_SLIDER_DMX7=255", "E_SLIDER_DMX7=256"),
]  # fmt: skip


@pytest.mark.parametrize(("code", "before", "after"), RULES)
def test_a_file_that_breaks_a_rule_is_reported_under_its_code_and_line(good, code, before, after):
    """R-50."""
    assert check(good.encode()) == []
    assert before in good
    problems = check(good.replace(before, after, 1).encode())
    assert {problem.code for problem in problems} == {code}
    assert all(problem.place.line > 0 for problem in problems)


def test_every_code_has_a_file_that_breaks_it():
    from detent.apps.choreography.show import xsq_checker

    assert {code for code, _, _ in RULES} == set(re.findall(r"X\d\d", str(xsq_checker.__doc__)))


def test_all_problems_are_reported_at_once(good):
    """R-50."""
    broken = good
    for _, before, after in RULES[2:3] + RULES[10:11] + RULES[16:17] + RULES[20:22]:
        broken = broken.replace(before, after, 1)
    assert {problem.code for problem in check(broken.encode())} == {"X02", "X07", "X11", "X13", "X14"}


def test_an_unknown_effect_is_reported_with_the_nearest(good):
    (problem,) = check(good.replace('name="DMX"', 'name="Shimer"', 1).encode())
    assert problem.suggestions[0] == "Shimmer"
