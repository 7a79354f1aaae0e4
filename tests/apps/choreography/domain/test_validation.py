"""Every rule of the validator, triggered and not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from detent.apps.choreography.domain.brief import parse_plan
from detent.apps.choreography.domain.library import Library, load_library
from detent.apps.choreography.domain.plan import AgentPlan
from detent.apps.choreography.domain.stage import Features, Stage
from detent.apps.choreography.domain.validation import validate
from detent.flows.refine.evaluation import Issue
from tests.apps.choreography.domain.shows import CLEAN_PLAN, plan_of
from tests.apps.choreography.domain.songs import WORKED, song_of

STAGE = Stage(4)


def changed(section: int, path: str, value: Any) -> AgentPlan:
    """The clean plan with one value changed."""
    plan = CLEAN_PLAN.to_plain()
    place: Any = plan["sections"][section]
    *above, last = path.split(".")
    for key in above:
        place = place[key]
    place[last] = value
    return parse_plan(plan)


def issues(plan: AgentPlan, stage: Stage = STAGE) -> list[Issue]:
    return list(validate(WORKED, plan, stage).issues)


def test_a_clean_plan_has_no_issue() -> None:
    """R-45: no rule triggers on it."""
    assert issues(CLEAN_PLAN) == []


@pytest.mark.parametrize(
    ("plan", "severity", "rule", "section", "words"),
    [
        (changed(0, "start_bar", 2), "error", "timing", "Intro", "starts at bar 2"),
        (changed(2, "end_bar", 16), "error", "timing", "Chorus 1", "end_bar 16 is before start_bar 17"),
        (changed(1, "start_bar", 11), "error", "timing", "Verse 1", "bars 9–10 after 'Intro'"),
        (changed(1, "name", "Intro"), "error", "timing", "Intro", "two sections are named 'Intro'"),
        (changed(1, "start_bar", 8), "info", "timing", "Verse 1", "bars 8–8 overlap 'Intro'"),
        (changed(0, "templates", ["harbor_drif"]), "error", "template", "Intro", "Nearest: 'harbor_drift'"),
        (changed(0, "templates", ["xyz"]), "error", "template", "Intro", "Valid: call_answer, "),
        (
            changed(1, "templates", ["call_answer", "call_answer"]),
            "error",
            "template",
            "Verse 1",
            "'call_answer' is listed twice",
        ),
        (changed(0, "base_pose", "HOME"), "error", "pose", "Intro", "Nearest: 'SOFT_HOME'"),
        (changed(0, "params.start_pose", "LEFT"), "error", "pose", "Intro", "unknown start_pose 'LEFT'"),
        (changed(0, "params.end_pose", "UPP"), "error", "pose", "Intro", "end_pose 'UPP'. Nearest: 'UP'"),
        (changed(0, "params.intensity", "SMOTH"), "error", "parameters", "Intro", "Nearest: 'SMOOTH'"),
        (changed(0, "params.speed", "QUICK"), "error", "parameters", "Intro", "Valid: SLOW, MODERATE, FAST"),
        (changed(2, "channels.shutter", "pulse"), "warning", "channels", "Chorus 1", "'pulse' is weak"),
        (changed(0, "channels.shutter", "strobe_medium"), "warning", "channels", "Intro", "is hard"),
        (changed(2, "channels.color", "cyan"), "warning", "channels", "Chorus 1", "'cyan' is cool"),
        (changed(2, "channels.gobo", "clouds"), "warning", "channels", "Chorus 1", "'clouds' is thin"),
        (changed(0, "channels.color", "blu"), "warning", "channels", "Intro", "used. Nearest: 'blue'"),
        (changed(0, "channels", {"shutter": "closed", "gobo": "dots"}), "warning", "channels", "Intro", ""),
        (changed(0, "templates", ["slow_fan"]), "none", "", "Intro", ""),
        (changed(0, "templates", ["ladder_rise"]), "warning", "energy", "Intro", "is for energy 40–82"),
        (changed(2, "end_bar", 23), "warning", "coverage", None, "ends at bar 23, but the song has 24"),
        (changed(2, "end_bar", 30), "warning", "coverage", "Chorus 1", "bar 30 is past the song's end"),
        (
            changed(2, "templates", ["hammer_hits", "pulse_steps"]),
            "warning",
            "variety",
            "Chorus 1",
            "in 'Verse 1', the section before",
        ),
    ],
)  # fmt: skip
def test_a_rule_triggers_on_its_fault(
    plan: AgentPlan, severity: str, rule: str, section: str | None, words: str
) -> None:
    """R-45: the issue names value, section and what would be valid; the clean plan has none of them."""
    matching = [
        issue
        for issue in issues(plan)
        if (issue.severity, issue.rule, issue.section_name) == (severity, rule, section)
    ]
    if severity == "none":
        assert not matching
        return
    assert len(matching) == 1
    assert words in matching[0].message
    assert validate(WORKED, plan, STAGE).passed == (severity != "error")


def test_no_sections_is_an_error_of_timing_and_of_coverage() -> None:
    """R-45."""
    assert [(issue.severity, issue.rule) for issue in issues(AgentPlan(sections=()))] == [
        ("error", "timing"),
        ("error", "coverage"),
    ]


def test_a_gap_is_measured_from_the_furthest_end_so_far() -> None:
    """R-45: 1–16, 5–8, 17–24 has no gap, in whatever order the sections are listed."""

    def gaps(*bars: tuple[int, int]) -> int:
        plan = plan_of(
            *(
                (f"P{start}", "verse", start, end, "slow_fan", "SMOOTH", "UP", "open red open")
                for start, end in bars
            )
        )
        return len(validate(WORKED, plan, STAGE).errors)

    assert gaps((1, 16), (5, 8), (17, 24)) == 0
    assert gaps((17, 24), (1, 16), (5, 8)) == 0
    assert gaps((1, 8), (5, 6), (10, 24)) == 1
    assert gaps((1, 8), (5, 10), (11, 24)) == 0


def test_templates_without_metadata_are_warned_of() -> None:
    """R-45: and their energy range counts as everything."""
    library = {**load_library()}
    library["harbor_drift"] = library["harbor_drift"].model_copy(update={"metadata": None})
    found = issues(CLEAN_PLAN, replace(STAGE, library=Library(library)))
    assert [(issue.severity, issue.rule, issue.section_name) for issue in found] == [
        ("warning", "template", "Intro")
    ]


def many(layers: int, names: list[str]) -> AgentPlan:
    """A plan of twelve sections of two bars, the first few with two templates."""
    return plan_of(
        *(
            (
                f"P{k}",
                "verse",
                2 * k + 1,
                2 * k + 2,
                f"{names[k % len(names)]} {names[(k + 2) % len(names)] if k < layers else ''}",
                "DRAMATIC",
                "UP",
                "open red open",
            )
            for k in range(12)
        )
    )


def test_few_layers_and_few_templates_are_warned_of() -> None:
    """R-45: none at all, fewer than a fifth, fewer than half of the templates different."""
    names = list(load_library())
    song = song_of(("verse", 24, 50))

    def whole(plan: AgentPlan, stage: Stage = STAGE) -> dict[str, str]:
        report = validate(song, plan, stage)
        return {issue.rule: issue.message for issue in report.issues if issue.section_name is None}

    assert whole(many(3, names)) == {}
    assert "no section is layered" in whole(many(0, names))["complexity"]
    assert "2 of 12 sections are layered; at least 3" in whole(many(2, names))["complexity"]
    assert "complexity" not in whole(many(0, names), Stage(1)), "one head cannot be shared"
    assert "6 different templates in 15 uses" in whole(many(3, names[:6]))["variety"]
    assert "variety" not in whole(many(3, names[:8]))


def test_energy_is_measured_over_the_sections_bars() -> None:
    """R-45: a claim does not count."""
    assert issues(changed(0, "energy_level", 99)) == []


def test_a_channel_that_is_off_is_not_checked() -> None:
    """3.11: its default is used whatever the plan says."""
    plan = changed(2, "channels", {"shutter": "nonsense", "color": "nonsense", "gobo": "nonsense"})
    assert len(issues(plan)) >= 3
    off = Features(enable_shutter=False, enable_color=False, enable_gobo=False)
    assert issues(plan, Stage(4, features=off)) == []


def test_all_problems_are_reported_at_once() -> None:
    """3.6: as many errors as faults."""
    plan = plan_of(
        ("A", "verse", 2, 4, "x", "LOUD", "NOWHERE", "open red open"),
        ("A", "verse", 9, 3, "y", "SMOOTH", "UP", "open red open"),
    )
    rules = [issue.rule for issue in validate(WORKED, plan, STAGE).errors]
    assert sorted(rules) == ["parameters", "pose", "template", "template", "timing", "timing", "timing"]


def test_a_plan_of_thousands_of_endless_sections_is_checked_at_once() -> None:
    """Bars are counted, not walked: an agent may answer anything."""
    rows = [(f"P{k}", "verse", 1, 10**5, "slow_fan", "SMOOTH", "UP", "open red open") for k in range(2000)]
    assert validate(WORKED, plan_of(*rows), STAGE).passed
