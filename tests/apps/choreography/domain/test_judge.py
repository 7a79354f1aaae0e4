"""The judge: its formulas against figures computed by hand, and its verdicts."""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle
from typing import Any

import pytest

from detent.apps.choreography.domain.brief import parse_implementation, parse_plan
from detent.apps.choreography.domain.implementer import implement
from detent.apps.choreography.domain.judge import judge
from detent.apps.choreography.domain.plan import AgentPlan
from detent.apps.choreography.domain.planner import plan_show
from detent.apps.choreography.domain.rubric import AUTOMATIC, CATEGORIES, rubric
from detent.apps.choreography.domain.stage import Features, Stage
from detent.flows.refine.evaluation import CATEGORY_PASS, CategoryScore, Evaluation
from tests.apps.choreography.domain.shows import (
    CLEAN_PLAN,
    WORKED_IMPLEMENTATION,
    WORKED_PLAN,
    implementation_of,
    plan_of,
)
from tests.apps.choreography.domain.songs import WORKED, song_of

STAGE = Stage(4)


def scores(evaluation: Evaluation) -> list[float]:
    return [score.score for score in evaluation.category_scores]


def test_the_worked_example_scores_as_the_specification_says() -> None:
    """R-46: the eight scores, the overall score, no pass, and Energy Matching lowest."""
    evaluation = judge(WORKED, WORKED_PLAN, WORKED_IMPLEMENTATION, STAGE)
    assert (
        " ".join(str(score) for score in scores(evaluation)) == "100.0 22.7 91.7 100.0 93.3 80.0 100.0 80.6"
    )
    assert str(evaluation.overall_score) == "83.5"
    assert not evaluation.passes()
    assert not evaluation.automatic_failures
    assert min(evaluation.category_scores, key=lambda score: score.score).category == "Energy Matching"


def test_the_worked_example_is_what_the_implementer_makes_but_for_the_cuts() -> None:
    """3.7 and 3.8: the targets of the example are those of the rule."""
    made, warnings = implement(WORKED, WORKED_PLAN, STAGE)
    assert not warnings
    assert [(part.name, part.targets) for part in made.sections] == [
        (part.name, part.targets) for part in WORKED_IMPLEMENTATION.sections
    ]


def test_one_section_on_one_head_scores_as_computed_by_hand() -> None:
    """R-46: 0.4·(100/1.5) + 30 + 30 = 86.7 for Complexity, 100 elsewhere; (700 + 86.7)/8 = 98.3."""
    song = song_of(("full", 10, 50))
    plan = plan_of(("Verse 1", "verse", 1, 10, "call_answer", "DRAMATIC", "UP", "open white open"))
    made = implementation_of(plan, ("Verse 1", "call_answer", "ALL", 1, 10, "cut"))
    evaluation = judge(song, plan, made, Stage(1))
    assert scores(evaluation) == [100, 100, 100, 100, 100, 100, 100, 86.7]
    assert evaluation.overall_score == 98.3
    assert evaluation.passes()
    several = judge(song, plan, made, Stage(2))
    assert scores(several)[2] == 50, "one section without a second template, although heads could share it"
    assert several.automatic_failures == ("no_layering",)


def test_a_show_with_many_faults_scores_as_computed_by_hand() -> None:
    """R-46: every term of every formula, on two heads and 30 bars of energy 30, 85, 30, 75.

    Musical Alignment: borders 1, 1, ½; parts 3 of 5: 60·(2.5/3) + 40·0.6 = 74.
    Energy Matching: DRAMATIC at 30 for 8 of 30 bars: 100 − 80·8/30 = 78.7.
    Variety: harbor_drift in 16 of 30 bars: 100 − 2·(53.3 − 40) = 73.3; 1 of 4 layered: 62.5; mean 67.9.
    Coverage: a pair, an unknown target, two bars past the end, a head dark in 1 of its 60 bars:
    100 − 25 − 10 − 10 − 3·1.67 = 50.
    Shutter: fits 1, 1, 0, 0.3: 100·15/30; strobe 40 %: − 20; 30.
    Color: 2 scenes of 3, cool at 75 for 10 of 30 bars, red in 20: 100 − 20 − 20 − 2·(66.7 − 50) = 26.7.
    Gobo: 86.7 % open: G = 100 − 2.5·26.7 = 33.3; H = 100; 0.6·33.3 + 40 = 60.
    Complexity: 0.4·(34/30)/1.5·100 = 30.2; 3 of 6 changes smooth: 15; 3 of 4 movements: 22.5; 67.7.
    """
    song = song_of(("verse", 8, 30), ("chorus", 4, 85), ("verse", 8, 30), ("chorus", 10, 75))
    plan = plan_of(
        ("A", "verse", 1, 8, "harbor_drift", "SMOOTH", "AUDIENCE_CENTER", "open red open"),
        ("B", "chorus", 9, 12, "hammer_hits spark_relay", "INTENSE", "UP", "strobe_medium red circles"),
        ("C", "verse", 13, 20, "harbor_drift", "DRAMATIC", "AUDIENCE_CENTER", "strobe_medium red open"),
        ("D", "chorus", 21, 32, "hammer_hits", "DRAMATIC", "AUDIENCE_CENTER", "open cyan open"),
    )
    made = implementation_of(
        plan,
        ("A", "harbor_drift", "ALL", 1, 8, "cut"),
        ("B", "hammer_hits", "LEFT", 9, 12, "glide"),
        ("B", "spark_relay", "RIGHT", 10, 12, "cut"),
        ("C", "harbor_drift", "ALL MH9", 13, 20, "cut"),
        ("D", "hammer_hits", "ALL", 20, 32, "cut"),
    )
    evaluation = judge(song, plan, made, Stage(2))
    assert scores(evaluation) == [74.0, 78.7, 67.9, 50.0, 30.0, 26.7, 60.0, 67.7]
    assert evaluation.overall_score == 56.9
    assert evaluation.automatic_failures == ("target_conflict",)
    worst = {score.category: score.weaknesses[0] for score in evaluation.category_scores}
    assert worst["Energy Matching"].section == "C"
    assert worst["Shutter"].section == "C"
    assert worst["Color"].text == "red lasts 67 % of the bars"
    assert worst["Template Variety & Layering"].text.startswith("1 of 4")
    assert {score.category for score in evaluation.category_scores if not score.weaknesses} == set()


def _changed(change: dict[str, object]) -> CategoryScore:
    """Coverage of the planner's show of the worked example's song, its parts changed."""
    plan = plan_show(WORKED, STAGE)
    made, _ = implement(WORKED, plan, STAGE)
    parts = tuple(part.model_copy(update=change) for part in made.sections)
    evaluation = judge(WORKED, plan, made.model_copy(update={"sections": parts}), STAGE)
    return next(
        score for score in evaluation.category_scores if score.category == "Timing Coverage & Target Validity"
    )


def test_what_was_not_planned_covers_no_bar() -> None:
    """R-58: parts of no section of the plan, or of templates that their section does not have."""
    for key, name in (("plan_section_name", "Nothing"), ("template_id", "lantern_hold")):
        score = _changed({key: name})
        assert score.score < CATEGORY_PASS
        assert any("is not what was planned" in weakness.text for weakness in score.weaknesses)
    assert _changed({}).score == 100


def test_heads_that_are_left_dark_cost_as_bars_do() -> None:
    """R-58: half of the heads for the whole song are half of the bars."""
    score = _changed({"targets": ("LEFT",)})
    assert score.score == 0
    assert any("of their bars" in weakness.text for weakness in score.weaknesses)


def test_every_weakness_is_one_line_of_feedback() -> None:
    """3.8: as many lines as weaknesses, and a weakness of templates names section and template."""
    evaluation = judge(WORKED, WORKED_PLAN, WORKED_IMPLEMENTATION, STAGE)
    weaknesses = [item for score in evaluation.category_scores for item in score.weaknesses]
    assert len(evaluation.actionable_feedback) == len(weaknesses) > 0
    assert ("Chorus 1", "tide_tilt") in {(item.section, item.template) for item in weaknesses}
    assert any(
        line.startswith("Chorus 1: ") and "tide_tilt" in line for line in evaluation.actionable_feedback
    )


def test_channels_are_scored_from_one_to_ten() -> None:
    """3.8: a tenth of the category's score, at least 1."""
    dark = plan_of(
        ("Intro", "intro", 1, 24, "harbor_drift", "SMOOTH", "UP", "closed blue prism"),
    )
    channels = judge(WORKED, dark, implement(WORKED, dark, STAGE)[0], STAGE).channel_scoring
    assert channels is not None
    assert set(channels) == {"shutter", "color", "gobo", "visual_impact"}
    assert channels["shutter"]["score"] == 1
    assert channels["shutter"]["issues"] == ["shutter closed at energy 58"]
    assert all(1 <= row["score"] <= 10 for row in channels.values())


@pytest.mark.parametrize(
    ("category", "channel", "bad"),
    [(4, "enable_shutter", "closed"), (5, "enable_color", "blue"), (6, "enable_gobo", "open")],
)
def test_a_channel_that_is_off_scores_100_whatever_the_plan_says(
    category: int, channel: str, bad: str
) -> None:
    """3.11: a disabled feature uses its default everywhere and its category scores 100."""
    words = {"enable_shutter": f"{bad} red prism", "enable_color": f"strobe_fast {bad} prism",
             "enable_gobo": f"strobe_fast red {bad}"}[channel]  # fmt: skip
    plan = plan_of(
        *(
            (f"Part {k}", "chorus", 4 * k + 1, 4 * k + 4, "hammer_hits spark_relay", "INTENSE", "UP", words)
            for k in range(6)
        )
    )
    song = song_of(*[("chorus", 4, 90)] * 6)
    made = implement(song, plan, STAGE)[0]
    assert scores(judge(song, plan, made, STAGE))[category] < 100
    off = Stage(4, features=Features(**{channel: False}))
    assert scores(judge(song, plan, made, off))[category] == 100


def test_each_automatic_failure_triggers_on_its_fault_alone_and_on_json_values() -> None:
    """R-46: the rubric's checks take plans and implementations as the flow keeps them."""
    checked = rubric(STAGE)
    made = implement(WORKED, CLEAN_PLAN, STAGE)[0]
    assert checked.failures_of(None, CLEAN_PLAN.to_plain(), made.to_plain()) == ()
    shared = made.to_plain()
    for part in shared["sections"]:
        part["targets"] = ["ALL"]
    assert checked.failures_of(None, CLEAN_PLAN.to_plain(), shared) == ("target_conflict",)
    single = CLEAN_PLAN.to_plain()
    for section in single["sections"]:
        section["templates"] = section["templates"][:1]
    assert checked.failures_of(None, single, made.to_plain()) == ("no_layering",)
    assert rubric(Stage(1)).failures_of(None, single, made.to_plain()) == ()
    strobed = CLEAN_PLAN.to_plain()
    for section in strobed["sections"][1:]:
        section["channels"]["shutter"] = "strobe_slow"
    assert checked.failures_of(None, strobed, made.to_plain()) == ("strobe_over_60_percent",)
    strobed["sections"][1]["channels"]["shutter"] = "pulse"
    assert checked.failures_of(None, strobed, made.to_plain()) == ()

    def scenes(count: int) -> tuple[str, ...]:
        rows = [
            (f"P{k}", "verse", k, k, "call_answer pulse_steps", "SMOOTH", "UP", f"open {colour} open")
            for k, colour in zip(range(1, count + 1), cycle(("red", "blue")), strict=False)
        ]
        return checked.failures_of(None, plan_of(*rows).to_plain(), made.to_plain())

    assert scenes(15) == ()
    assert scenes(16) == ("more_than_15_colour_scenes",)


def test_the_rubric_names_the_eight_categories_with_their_owners() -> None:
    """R-42: names and owners as in 3.8's table."""
    assert [(category.name, category.owner) for category in CATEGORIES] == [
        ("Musical Alignment", "implementation"),
        ("Energy Matching", "plan"),
        ("Template Variety & Layering", "plan"),
        ("Timing Coverage & Target Validity", "implementation"),
        ("Shutter", "plan"),
        ("Color", "plan"),
        ("Gobo & Visual Impact", "plan"),
        ("Choreography Complexity", "plan"),
    ]
    checked = rubric(STAGE)
    assert [failure.code for failure in checked.automatic] == list(AUTOMATIC)
    assert [checked.owner_of(code) for code in AUTOMATIC] == ["implementation", "plan", "plan", "plan"]
    evaluation = judge(WORKED, WORKED_PLAN, WORKED_IMPLEMENTATION, STAGE)
    assert [score.category for score in evaluation.category_scores] == [one.name for one in CATEGORIES]


def test_measured_energy_counts_and_not_the_plans_claim() -> None:
    """3.6: a plan that claims other energies scores the same."""
    claimed = WORKED_PLAN.to_plain()
    for section in claimed["sections"]:
        section["energy_level"] = 100 - section["energy_level"] / 2
    before = judge(WORKED, WORKED_PLAN, WORKED_IMPLEMENTATION, STAGE)
    assert judge(WORKED, parse_plan(claimed), WORKED_IMPLEMENTATION, STAGE) == before


@pytest.mark.parametrize("sections", [[], [("X", "verse", 9, 3, "nonsense", "LOUD", "NOWHERE", "a b c")]])
def test_a_plan_that_is_no_show_fails_without_an_error(
    sections: list[tuple[str, str, int, int, str, str, str, str]],
) -> None:
    """The command `judge` takes any plan that can be read."""
    plan = plan_of(*sections)
    empty = parse_implementation({"sections": [], "total_duration_bars": 1})
    evaluation = judge(WORKED, plan, empty, STAGE)
    assert not evaluation.passes()
    assert scores(evaluation)[0] == 0
    assert scores(evaluation)[3] == 0


def test_a_template_that_does_not_exist_is_as_far_from_the_energy_as_can_be() -> None:
    """A judge that skipped it would reward it."""
    plan = plan_of(("A", "verse", 1, 24, "nonsense", "DRAMATIC", "UP", "open red open"))
    assert scores(judge(WORKED, plan, implement(WORKED, plan, STAGE)[0], STAGE))[1] == 0


def test_judging_is_deterministic() -> None:
    """3.8: two judgements of one show are equal."""
    plan = plan_show(WORKED, STAGE)
    made = implement(WORKED, plan, STAGE)[0]
    assert judge(WORKED, plan, made, STAGE) == judge(WORKED, plan, made, STAGE)


def one_score(category: int, *sections: dict[str, Any]) -> float:
    """One score of the clean plan with some values of its sections changed."""
    plan = CLEAN_PLAN.to_plain()
    for section, change in zip(plan["sections"], sections, strict=True):
        section.update({name: value for name, value in change.items() if name in section})
        section["channels"].update({name: value for name, value in change.items() if name not in section})
    parsed = parse_plan(plan)
    return scores(judge(WORKED, parsed, implement(WORKED, parsed, STAGE)[0], STAGE))[category]


def test_single_terms_of_the_formulas_are_as_computed_by_hand() -> None:
    """R-46: 3.8, term by term, in the song of the worked example."""
    assert one_score(2, {}, {}, {}) == 96.7, "2 of 3 layered: (100 + 100 − 6.7)/2"
    again = {"templates": ["hammer_hits", "pulse_steps"]}
    assert one_score(2, {}, {}, again) == 91.7, (
        "pulse_steps again: (90 + 93.3)/2, and no share of three sections"
    )
    assert one_score(6, {}, {}, {"shutter": "closed"}) == 90, "prism behind a closed shutter"
    assert one_score(4, {}, {"shutter": "strobe_fast"}, {"shutter": "pulse"}) == 60, (
        "(1 + 0.3 + 0.7)/3, − 2·3.3"
    )


def test_parts_may_end_after_an_even_number_of_bars_inside_a_section() -> None:
    """R-46: 3.8, Q: bars 1–4 and 5–12 of one section of 12 bars are clean, 1–5 and 6–12 are not."""
    song = song_of(("full", 12, 50))

    def alignment(border: int) -> float:
        channels = "open white open"
        plan = plan_of(
            ("A", "verse", 1, border, "call_answer", "DRAMATIC", "UP", channels),
            ("B", "verse", border + 1, 12, "slow_fan", "DRAMATIC", "UP", channels),
        )
        return scores(judge(song, plan, implement(song, plan, STAGE)[0], STAGE))[0]

    assert alignment(4) == 100
    assert alignment(5) == 60


def test_every_colour_scene_above_five_costs_15() -> None:
    """R-46: six scenes score 85."""
    song = song_of(*[("verse", 4, 50)] * 6)
    plan = plan_of(
        *(
            (f"P{k}", "verse", 4 * k + 1, 4 * k + 4, "slow_fan", "DRAMATIC", "UP", f"open {colour} open")
            for k, colour in enumerate(("red", "amber") * 3)
        )
    )
    assert scores(judge(song, plan, implement(song, plan, STAGE)[0], STAGE))[5] == 85


def coloured(*colours: str) -> AgentPlan:
    """One section of 4 bars for each colour."""
    return plan_of(
        *(
            (f"P{k}", "verse", 4 * k + 1, 4 * k + 4, "slow_fan", "DRAMATIC", "UP", f"open {colour} open")
            for k, colour in enumerate(colours)
        )
    )


def test_a_colour_is_weighed_by_the_time_it_lasts() -> None:
    """Scenes alone say nothing of it: every point above half of the bars costs two."""
    song = song_of(*[("verse", 4, 50)] * 10)

    def color(*colours: str, wheels: tuple[str, ...] = ()) -> float:
        stage = replace(STAGE, wheels={"color": wheels} if wheels else {})
        plan = coloured(*colours)
        return scores(judge(song, plan, implement(song, plan, stage)[0], stage))[5]

    assert color(*["red"] * 5, *["blue"] * 3, *["lime"] * 2) == 100
    assert color("blue", *["red"] * 8, "lime") == 40
    assert color("red", *["blue"] * 2, *["red"] * 6, "lime") == 60, "also in two scenes"
    assert color("red", *["white"] * 8, "red", wheels=("white", "red")) == 100, "with two there is no choice"
    longest = song_of(("verse", 28, 50), *[("verse", 4, 50)] * 3)
    plan = plan_of(
        *(
            (name, "verse", start, end, "slow_fan", "DRAMATIC", "UP", f"open {colour} open")
            for name, start, end, colour in (
                ("A", 1, 28, "red"), ("B", 29, 32, "blue"), ("C", 33, 36, "lime"), ("D", 37, 40, "cyan")
            )
        )
    )  # fmt: skip
    assert scores(judge(longest, plan, implement(longest, plan, STAGE)[0], STAGE))[5] == 100


@pytest.mark.parametrize(
    ("quiet", "loud", "energies", "costs"),
    [
        ("hammer_hits", "harbor_drift", (20, 80), 25),
        ("harbor_drift", "hammer_hits", (20, 80), 0),
        ("hammer_hits", "harbor_drift", (50, 80), 0),
        ("slow_fan", "tide_tilt", (20, 80), 0),
    ],
    ids=["exchanged", "in_order", "not_louder_by_more_than_30", "ranges_that_overlap"],
)
def test_a_section_calmer_than_a_much_quieter_one_costs_25(
    quiet: str, loud: str, energies: tuple[int, int], costs: int
) -> None:
    """However little both weigh: among twelve sections two exchanged ones stayed above 60."""
    rows = [("verse", 8, float(energy)) for energy in energies]
    song = song_of(*rows, *[("verse", 200, 50.0)] * 2)
    plan = plan_of(
        ("A", "verse", 1, 8, quiet, "SMOOTH" if energies[0] < 40 else "DRAMATIC", "UP", "open red open"),
        ("B", "verse", 9, 16, loud, "INTENSE", "UP", "open red open"),
        ("C", "verse", 17, 216, "clockface", "DRAMATIC", "UP", "open blue open"),
        ("D", "verse", 217, 416, "clockface", "DRAMATIC", "UP", "open lime open"),
    )
    library = STAGE.library
    distance = sum(
        library[name].fits(energy) * 8 / 416 for name, energy in zip((quiet, loud), energies, strict=True)
    )
    (score, *_) = judge(song, plan, implement(song, plan, STAGE)[0], STAGE).category_scores[1:]
    assert score.score == pytest.approx(100 - 4 * distance - costs, abs=0.06)
    assert ("calmer templates than A" in str(score.weaknesses)) == bool(costs)
