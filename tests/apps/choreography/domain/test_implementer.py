"""The deterministic implementer: heads for templates, and repairs after feedback."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detent.apps.choreography.domain.arrangement import conflicts, uncovered
from detent.apps.choreography.domain.implementer import implement
from detent.apps.choreography.domain.judge import judge
from detent.apps.choreography.domain.library import load_library
from detent.apps.choreography.domain.plan import AgentImplementation, AgentPlan
from detent.apps.choreography.domain.planner import plan_show
from detent.apps.choreography.domain.planted import exchanged, late
from detent.apps.choreography.domain.rubric import ALIGNMENT, CATEGORIES, COVERAGE
from detent.apps.choreography.domain.stage import Stage
from detent.apps.choreography.domain.targets import heads_of
from detent.flows.refine.evaluation import CATEGORY_PASS, Evaluation
from detent.flows.refine.feedback import Feedback
from tests.apps.choreography.domain.shows import feedback_of, implementation_of, plan_of
from tests.apps.choreography.domain.songs import WORKED, song_of, varied_song
from tests.examples import examples

STAGE = Stage(4)
IDS = list(load_library())


def single(name: str, start: int, end: int, templates: str = "slow_fan", pose: str = "UP") -> AgentPlan:
    return plan_of((name, "verse", start, end, templates, "DRAMATIC", pose, "open red open"))


def both(*plans: AgentPlan) -> AgentPlan:
    return AgentPlan(sections=tuple(section for plan in plans for section in plan.sections))


def parts(implementation: AgentImplementation) -> list[tuple[str, int, int, tuple[str, ...]]]:
    return [(part.name, part.start_bar, part.end_bar, part.targets) for part in implementation.sections]


def soft(*categories: str, automatic: tuple[str, ...] = ()) -> Feedback:
    failing = [{"category": name, "score": 10.0, "weaknesses": []} for name in categories]
    metadata = {"failing": failing, "automatic_failures": list(automatic)}
    return Feedback("judge_soft_failure", "", 1, metadata=metadata)


@pytest.mark.parametrize("heads", [1, 2, 3, 4])
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_no_part_is_without_a_head_and_no_head_has_two(count: int, heads: int) -> None:
    """R-47: 1–4 templates on 1–4 heads; what has no head is left out with a warning."""
    plan = both(*(single(f"P{k}", 4 * k + 1, 4 * k + 4, " ".join(IDS[k : k + count])) for k in range(3)))
    made, warnings = implement(WORKED, plan, Stage(heads))
    assert all(heads_of(part.targets, heads) for part in made.sections)
    assert conflicts(made, heads) == []
    assert len(made.sections) == 3 * min(count, heads)
    assert len(warnings) == 3 * max(0, count - heads)
    assert all("is left out" in warning for warning in warnings)
    for bar in range(1, 13):
        playing = [part for part in made.sections if part.start_bar <= bar <= part.end_bar]
        used = frozenset[int]().union(*(heads_of(part.targets, heads) for part in playing))
        assert used == frozenset(range(heads)), "every head has something to do"


def test_two_templates_share_the_heads_in_turn_with_the_base_on_the_first() -> None:
    """3.7: LEFT/RIGHT, ODD/EVEN, CENTER/OUTER, by the number of the section."""
    plan = both(*(single(f"P{k}", 4 * k + 1, 4 * k + 4, "pulse_steps slow_fan") for k in range(4)))
    made, _ = implement(WORKED, plan, STAGE)
    assert [(part.template_id, part.targets, part.layer_priority) for part in made.sections] == [
        ("slow_fan", ("LEFT",), 0), ("pulse_steps", ("RIGHT",), 1),
        ("slow_fan", ("ODD",), 0), ("pulse_steps", ("EVEN",), 1),
        ("slow_fan", ("CENTER",), 0), ("pulse_steps", ("OUTER",), 1),
        ("slow_fan", ("LEFT",), 0), ("pulse_steps", ("RIGHT",), 1),
    ]  # fmt: skip
    few, _ = implement(WORKED, plan, Stage(3))
    assert [part.targets for part in few.sections[4:6]] == [("LEFT",), ("RIGHT",)]


def test_three_templates_take_every_third_head() -> None:
    """3.7: head k goes to template k mod m."""
    made, _ = implement(WORKED, single("P", 1, 24, "slow_fan tide_tilt pulse_steps"), Stage(8))
    assert [part.targets for part in made.sections] == [
        ("MH1", "MH4", "MH7"), ("MH2", "MH5", "MH8"), ("MH3", "MH6"),
    ]  # fmt: skip


def test_overlapping_sections_share_the_heads_where_they_overlap() -> None:
    """3.3 and 3.7: a part begins anew, with a number, where the overlap begins and ends."""
    plan = both(single("A", 1, 16), single("B", 5, 8, "tide_tilt"), single("C", 17, 24))
    made, _ = implement(WORKED, plan, STAGE)
    assert parts(made) == [
        ("A__slow_fan_ALL", 1, 4, ("ALL",)),
        ("A__slow_fan_LEFT_2", 5, 8, ("LEFT",)),
        ("B__tide_tilt_RIGHT", 5, 8, ("RIGHT",)),
        ("A__slow_fan_ALL_3", 9, 16, ("ALL",)),
        ("C__slow_fan_ALL", 17, 24, ("ALL",)),
    ]
    same = both(single("A", 1, 16), single("B", 5, 8))
    assert conflicts(implement(WORKED, same, STAGE)[0], 4) == []


@given(seed=st.integers(0, 10**9), heads=st.integers(1, 8))
@settings(max_examples=examples(120))
def test_plans_that_overlap_anyhow_never_share_a_head(seed: int, heads: int) -> None:
    """R-47: any sections, any templates; names differ, and every planned bar is implemented."""
    dice = random.Random(seed)
    plans = []
    for k in range(dice.randint(1, 6)):
        start = dice.randint(1, 20)
        templates = " ".join(dice.sample(IDS, dice.randint(1, 4)))
        plans.append(single(f"P{k}", start, start + dice.randint(-1, 10), templates))
    made, _ = implement(WORKED, both(*plans), Stage(heads))
    assert conflicts(made, heads) == []
    assert len({part.name for part in made.sections}) == len(made.sections)
    assert all(heads_of(part.targets, heads) for part in made.sections)
    planned = uncovered(both(*plans).sections, WORKED)
    assert uncovered(made.sections, WORKED) == planned


def test_heads_glide_where_the_pose_jumps_far_and_cut_elsewhere() -> None:
    """3.7: more than 60° in pan or tilt, half a bar."""
    plan = both(
        single("A", 1, 8, pose="AUDIENCE_CENTER"),
        single("B", 9, 16, pose="UP"),
        single("C", 17, 20, pose="CEILING"),
        single("D", 21, 24, pose="AUDIENCE_LEFT"),
    )
    made, _ = implement(WORKED, plan, STAGE)
    entries = [(part.entry_transition.mode, part.entry_transition.duration_bars) for part in made.sections]
    assert entries == [("cut", 0), ("glide", 0.5), ("cut", 0), ("glide", 0.5)]


def test_borders_stay_on_the_plans_bars_without_feedback() -> None:
    """3.7: even where they are past the song's end."""
    made, _ = implement(WORKED, both(single("A", 1, 11), single("B", 12, 30)), STAGE)
    assert [(part.start_bar, part.end_bar) for part in made.sections] == [(1, 11), (12, 30)]
    assert made.total_duration_bars == 30


def test_feedback_on_alignment_moves_borders_to_the_songs() -> None:
    """3.7: the nearest, none onto another, and what is left onto the song's 4-bar grid."""
    plan = both(single("A", 1, 10), single("B", 11, 14, "tide_tilt"), single("C", 15, 24))
    made, _ = implement(WORKED, plan, STAGE, [soft(ALIGNMENT)])
    assert [(part.start_bar, part.end_bar) for part in made.sections] == [(1, 8), (9, 16), (17, 24)]
    fine = both(single("A", 1, 8), single("B", 9, 10), single("C", 11, 13), single("D", 14, 24))
    made, _ = implement(WORKED, fine, STAGE, [soft(ALIGNMENT)])
    assert [(part.start_bar, part.end_bar) for part in made.sections] == [(1, 8), (9, 12), (13, 16), (17, 24)]


def test_feedback_on_coverage_fills_gaps_and_cuts_what_is_too_long() -> None:
    """3.7: the neighbour before a gap is extended; before the first section, the one after it."""
    plan = both(single("A", 3, 8), single("B", 12, 16, "slow_fan tide_tilt"), single("C", 17, 99))
    made, _ = implement(WORKED, plan, STAGE, [soft(COVERAGE)])
    assert [(part.start_bar, part.end_bar) for part in made.sections] == [
        (1, 11),
        (12, 16),
        (12, 16),
        (17, 24),
    ]
    short, _ = implement(WORKED, both(single("A", 1, 8), single("B", 30, 40)), STAGE, [soft(COVERAGE)])
    assert [(part.start_bar, part.end_bar) for part in short.sections] == [(1, 24)]


def test_the_previous_implementation_is_kept_but_for_what_feedback_names() -> None:
    """3.7: heads are dealt anew only where they conflict, do not exist, or a section is missing."""
    plan = both(single("A", 1, 8, "slow_fan pulse_steps"), single("B", 9, 24))
    own = implementation_of(
        plan,
        ("A", "slow_fan", "MH1", 1, 8, "cut"),
        ("A", "pulse_steps", "MH2 MH3 MH4", 1, 8, "cut"),
        ("B", "slow_fan", "ALL", 9, 22, "cut"),
    )
    kept, _ = implement(WORKED, plan, STAGE, [soft(COVERAGE)], own)
    assert [part.targets for part in kept.sections] == [("MH1",), ("MH2", "MH3", "MH4"), ("ALL",)]
    assert kept.sections[2].end_bar == 24
    clash = own.to_plain()
    clash["sections"][0]["targets"] = ["ALL"]
    missing = own.to_plain()
    del missing["sections"][2]
    unknown = own.to_plain()
    unknown["sections"][2]["targets"] = ["MH9"]
    fresh, _ = implement(WORKED, plan, STAGE)
    for bad in (clash, missing, unknown):
        previous = AgentImplementation.model_validate(bad)
        assert implement(WORKED, plan, STAGE, [soft()], previous)[0].sections == fresh.sections


def owners_of_failures(evaluation: Evaluation) -> set[str]:
    owners = {category.name: category.owner for category in CATEGORIES}
    return {owners[row.category] for row in evaluation.category_scores if row.score < CATEGORY_PASS}


def test_borders_two_bars_off_are_refined_into_a_pass() -> None:
    """R-61: real plans fail for their implementation alone, and pass refined, with the same plan.

    A plan two bars off spills energy over its borders; where that fails the plan too, it is planned anew.
    """
    refined = 0
    for seed in range(60):
        dice = random.Random(seed)
        song = song_of(*(("verse", 16, dice.uniform(0, 100)) for _ in range(dice.randint(4, 8))))
        good = plan_show(song, STAGE)
        plan, made = late(2)(song, good, implement(song, good, STAGE)[0], STAGE)
        first = judge(song, plan, made, STAGE)
        assert ALIGNMENT in {row.category for row in first.category_scores if row.score < CATEGORY_PASS}
        if owners_of_failures(first) == {"implementation"} and not first.automatic_failures:
            again, _ = implement(song, plan, STAGE, [feedback_of(first, "judge_soft_failure")], made)
            assert {part.start_bar for part in again.sections} >= set(song.borders)
            second = judge(song, plan, again, STAGE)
            assert second.passes(), second.summary
            refined += 1
    assert refined >= 54


@given(seed=st.integers(0, 10**9))
@settings(max_examples=examples(60))
def test_loud_templates_on_quiet_sections_are_replanned_into_a_pass(seed: int) -> None:
    """R-61: a real plan fails for the plan alone, and the next plan passes."""
    song = varied_song(random.Random(seed))
    good = plan_show(song, STAGE)
    plan, made = exchanged()(song, good, implement(song, good, STAGE)[0], STAGE)
    first = judge(song, plan, made, STAGE)
    assert owners_of_failures(first) == {"plan"}
    assert not first.automatic_failures
    again = plan_show(song, STAGE, [feedback_of(first, "judge_hard_failure")], iteration=2)
    assert judge(song, again, implement(song, again, STAGE)[0], STAGE).passes()


def test_a_song_of_one_bar_is_implemented() -> None:
    """The smallest song there is."""
    song = song_of(("full", 1, 0))
    plan = plan_show(song, STAGE)
    assert uncovered(implement(song, plan, STAGE)[0].sections, song) == []
