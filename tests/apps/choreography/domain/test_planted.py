"""The power of the judge: planted faults that it must catch, and random plans that it must not pass."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache

import pytest

from detent.apps.choreography.domain.implementer import implement
from detent.apps.choreography.domain.judge import judge
from detent.apps.choreography.domain.planner import plan_show
from detent.apps.choreography.domain.planted import FAULTS, Fault, Show, random_plan
from detent.apps.choreography.domain.song import Song
from detent.apps.choreography.domain.stage import Stage
from detent.apps.choreography.domain.validation import validate
from detent.flows.refine.evaluation import CATEGORY_PASS, Evaluation
from tests.apps.choreography.domain.songs import varied_song
from tests.examples import examples

STAGE = Stage(4)
SONGS = max(60, examples(200))


@cache
def planned(draw: Callable[[random.Random], Song]) -> list[tuple[Song, Show]]:
    """Drawn songs with the planner's shows."""
    songs = [draw(random.Random(seed)) for seed in range(SONGS)]
    plans = [plan_show(song, STAGE) for song in songs]
    return [(song, (plan, implement(song, plan, STAGE)[0])) for song, plan in zip(songs, plans, strict=True)]


def names(evaluation: Evaluation, expected: str) -> bool:
    failing = {row.category for row in evaluation.category_scores if row.score < CATEGORY_PASS}
    return expected in failing or expected in evaluation.automatic_failures


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.replace(" ", "_"))
def test_a_planted_fault_fails_with_its_category_named(fault: Fault) -> None:
    """R-46: in at least 95 % of songs of 5 to 12 sections, some below 40, some above 70."""
    caught = 0
    for song, (plan, made) in planned(varied_song):
        assert not names(judge(song, plan, made, STAGE), fault.expected), "the show is good without the fault"
        evaluation = judge(song, *fault.plant(song, plan, made, STAGE), STAGE)
        caught += not evaluation.passes() and names(evaluation, fault.expected)
    assert caught >= 0.95 * SONGS


def test_faults_pass_the_validator_which_is_no_check_by_itself() -> None:
    """2.1: plans with a fault of every category have no validation error."""
    song, (plan, made) = planned(varied_song)[0]
    passing = [
        fault.name
        for fault in FAULTS
        if validate(song, fault.plant(song, plan, made, STAGE)[0], STAGE).passed
    ]
    assert len(passing) == len(FAULTS)


def test_random_plans_pass_at_most_once_in_fifty() -> None:
    """3.8: valid plans whose choices are drawn."""
    passed = 0
    for number, (song, _) in enumerate(planned(varied_song)):
        plan = random_plan(song, STAGE, random.Random(number))
        assert validate(song, plan, STAGE).passed
        passed += judge(song, plan, implement(song, plan, STAGE)[0], STAGE).passes()
    assert passed <= SONGS / 50


def test_every_category_that_a_plan_can_fail_alone_has_a_fault() -> None:
    """3.8: the list of faults is the specification's."""
    assert [fault.expected for fault in FAULTS] == [
        "Musical Alignment", "Musical Alignment", "Energy Matching", "Energy Matching",
        "Template Variety & Layering", "Timing Coverage & Target Validity", "Shutter", "Shutter", "Color",
        "Gobo & Visual Impact", "target_conflict", "no_layering", "strobe_over_60_percent",
    ]  # fmt: skip
