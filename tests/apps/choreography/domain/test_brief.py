"""Briefs, schemas and answers: who has only the prompt can write a plan that passes."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest
from jsonschema import Draft202012Validator

from detent.apps.choreography.domain.brief import (
    MOST_BYTES,
    implementation_schema,
    implementer_brief,
    judge_brief,
    parse_implementation,
    parse_plan,
    plan_schema,
    planner_brief,
    size_of,
)
from detent.apps.choreography.domain.implementer import implement
from detent.apps.choreography.domain.judge import judge
from detent.apps.choreography.domain.planner import plan_show
from detent.apps.choreography.domain.planted import random_plan
from detent.apps.choreography.domain.rubric import CATEGORIES
from detent.apps.choreography.domain.stage import Features, Stage
from detent.apps.choreography.domain.validation import validate
from detent.apps.choreography.domain.violations import SchemaViolation
from detent.apps.choreography.domain.vocabulary import COLOURS, POSES
from tests.apps.choreography.domain.shows import WORKED_IMPLEMENTATION, WORKED_PLAN, feedback_of
from tests.apps.choreography.domain.songs import WORKED, drawn_song, song_of, varied_song

STAGE = Stage(4)
FORBIDDEN = re.compile(r"\bDMX\b|\bseconds?\b|milliseconds?|\bms\b|\b\d+\.\d+ ?s\b|next state|effects", re.I)


class Entry(NamedTuple):
    """A template as the prompt tells of it."""

    name: str
    role: str
    low: int
    high: int
    labels: list[str]

    def cost(self, label: str, energy: int, role: str, uses: Counter[str], before: list[str]) -> float:
        outside = 4 * max(self.low - energy, 0, energy - self.high)
        repeated = 8 * uses[self.name] + 40 * (self.name in before)
        return outside + repeated + 15 * (self.role != role) + 9 * (label not in self.labels)


def matched(pattern: str, line: str) -> tuple[str, ...]:
    match = re.match(pattern, line)
    assert match is not None, line
    return match.groups()


def filled(rows: list[tuple[str, int, int, int]], most: float) -> set[int]:
    """First bars of as many of the first rows as last no more than so many bars."""
    starts: set[int] = set()
    for _, start, end, _ in rows:
        if end - start + 1 <= most:
            most -= end - start + 1
            starts.add(start)
    return starts


def reader_of_the_prompt(prompt: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """A plan by somebody who knows a brief, as text, and a schema: no song, no library, no code of ours."""
    brief = json.loads(prompt)
    section = schema["$defs"]["SectionPlan"]["properties"]
    library = [
        Entry(name, role, int(low), int(high), labels.split(", "))
        for name, role, low, high, labels in (
            matched(r"(\w+) \((\w+), energy (\d+)-(\d+), for ([^)]*)\)", line) for line in brief["templates"]
        )
    ]
    moods = dict(row.split(": ") for row in brief["colors"].split("; "))
    rows = [
        (label, int(start), int(end), int(energy))
        for label, start, end, energy in (
            matched(r"[^(]+ \((\w+)\), bars (\d+)-(\d+), energy (\d+)", line)
            for line in brief["song sections"]
        )
    ]
    by_energy = sorted(rows, key=lambda row: -row[3])
    strobed = filled([row for row in by_energy if row[3] > 70], 0.3 * brief["bars"])
    dense = filled(by_energy, 0.5 * brief["bars"]) | {row[1] for row in rows if row[3] > 80}
    uses, chosen = Counter[str](), list[str]()
    sections = []
    for number, (label, start, end, energy) in enumerate(rows):
        layers = (
            ("base", "accent")
            if (label, start, end, energy) in by_energy[: (len(rows) + 1) // 2]
            else ("base",)
        )
        before, chosen = chosen, []
        for role in layers:
            costs = {
                e.name: e.cost(label, energy, role, uses, before) for e in library if e.name not in chosen
            }
            chosen.append(min(costs, key=costs.__getitem__))
        uses.update(chosen)
        group = rows[len(rows) * (4 * number // len(rows)) // 4 :][: len(rows) // 4 + 1]
        mood = "warm" if any(row[3] > 70 for row in group) or energy > 70 else "cool"
        sections.append(
            {
                "name": f"{label} from bar {start}",
                "start_bar": start,
                "end_bar": end,
                "section_role": label if label in section["section_role"]["enum"] else "verse",
                "energy_level": energy,
                "templates": chosen,
                "params": {
                    "intensity": "SMOOTH" if energy < 40 else "DRAMATIC" if energy <= 75 else "INTENSE"
                },
                "base_pose": section["base_pose"]["enum"][0],
                "channels": {
                    "shutter": "strobe_medium" if start in strobed else "pulse" if energy > 55 else "open",
                    "color": moods[mood].split(", ")[4 * number // len(rows)],
                    "gobo": "prism" if start in dense else "open",
                },
            }
        )
    return {"sections": sections}


def test_the_sections_of_a_song_have_names_that_a_plan_may_take() -> None:
    """3.6: a reader who copies labels would name two sections alike, which is an error."""
    song = song_of(("intro", 4, 20), ("drop", 8, 80), ("drop", 8, 90), ("verse", 4, 40))
    shown = planner_brief(song, STAGE)["song sections"]
    assert [line.split(" (")[0] for line in shown] == ["Intro", "Drop 1", "Drop 2", "Verse 1"]
    schema = plan_schema(STAGE)["properties"]["sections"]
    assert (schema["minItems"], schema["maxItems"]) == (1, 24), "a small model might never stop"


@pytest.mark.parametrize("seed", range(15))
def test_a_plan_written_from_the_prompt_alone_passes(seed: int) -> None:
    """R-60: it fits the schema, has no validation error, and the judge passes it."""
    song = varied_song(random.Random(seed))
    schema = plan_schema(STAGE)
    answer = reader_of_the_prompt(json.dumps(planner_brief(song, STAGE)), schema)
    assert list(Draft202012Validator(schema).iter_errors(answer)) == []
    plan = parse_plan(answer)
    assert validate(song, plan, STAGE).passed
    evaluation = judge(song, plan, implement(song, plan, STAGE)[0], STAGE)
    assert evaluation.passes(), evaluation.summary


def test_briefs_of_twelve_sections_fit_and_count_in_bars_alone() -> None:
    """3.12: at most 12 KiB, no seconds, no DMX, no next state, no effects."""
    song = drawn_song(random.Random(3), fewest=12)
    plan = random_plan(song, STAGE, random.Random(1))
    thick = plan.model_copy(
        update={
            "sections": tuple(
                section.model_copy(update={"templates": tuple(list(STAGE.library)[k : k + 4])})
                for k, section in enumerate(plan.sections)
            )
        }
    )
    made = implement(song, thick, STAGE)[0]
    feedback = feedback_of(judge(song, thick, made, STAGE), "judge_soft_failure").content
    briefs = {
        "planner": planner_brief(song, STAGE, feedback),
        "implementer": implementer_brief(song, thick, STAGE, feedback, made),
        "judge": judge_brief(song, thick, made, STAGE),
    }
    for name, brief in briefs.items():
        text = json.dumps(brief, ensure_ascii=False)
        assert size_of(brief) <= MOST_BYTES, name
        assert "…[cut]" not in text, "nothing is left out of a song of twelve sections"
        assert not FORBIDDEN.search(text), FORBIDDEN.search(text)
    for schema in (plan_schema(STAGE), implementation_schema(STAGE)):
        Draft202012Validator.check_schema(schema)
        assert not FORBIDDEN.search(json.dumps(schema))
    energies = str(briefs["planner"]["energy per bar"]).split()
    assert energies == [f"{energy:.0f}" for energy in song.energy_per_bar]


def test_brief_of_ninety_minutes_and_endless_feedback_still_fits() -> None:
    """3.12: fewer numbers; the oldest feedback is cut, the newest stays."""
    song = song_of(*(("verse", 300, 10 * k) for k in range(1, 10)))
    feedback = "\n".join(f"line {k} ü" for k in range(9000))
    brief = planner_brief(song, STAGE, feedback)
    assert size_of(brief) <= MOST_BYTES
    assert size_of(brief) > 0.9 * MOST_BYTES, "the room is used"
    assert brief["feedback"].startswith("…[cut]")
    assert brief["feedback"].endswith("line 8999 ü")
    assert brief["energy per bar"].startswith("(mean of every 8 bars) 10 10")
    assert len(brief["templates"]) == len(STAGE.library)


def test_the_planner_is_told_what_is_not_in_use() -> None:
    """3.11: a feature that is off."""
    brief = planner_brief(WORKED, Stage(2, features=Features(enable_color=False)))
    assert brief["colors"] == "not in use: always white"
    assert "CENTER" not in brief["targets"]


def test_the_judge_reads_the_rubric_the_plan_and_its_implementation() -> None:
    """R-42: its categories are those of the rubric."""
    brief = judge_brief(WORKED, WORKED_PLAN, WORKED_IMPLEMENTATION, STAGE)
    assert list(brief["categories"]) == [category.name for category in CATEGORIES]
    assert len(brief["plan"]) == 3
    assert "Verse 1: pulse_steps on EVEN, bars 9-16, cut" in brief["implementation"]
    assert brief["template energies"]["tide_tilt"] == "15-52"


def test_schemas_close_the_vocabularies_of_their_stage() -> None:
    """R-60: the project's poses, the library's templates, the targets that exist."""
    poses = {**POSES, "BALCONY": POSES["UP"]}
    schema = plan_schema(Stage(3, poses=poses))
    valid = Draft202012Validator(schema)
    plan = WORKED_PLAN.to_plain()
    plan["sections"][0]["base_pose"] = "BALCONY"
    assert valid.is_valid(plan)
    for path, value in (
        ("base_pose", "HOME"), ("templates", ["nothing"]), ("templates", ["slow_fan", "slow_fan"]),
        ("templates", ["slow_fan", "tide_tilt", "clockface", "call_answer"]), ("section_role", "solo"),
        ("params", {"speed": "QUICK"}), ("channels", {"color": "pink"}), ("start_bar", 0), ("colour", "red"),
    ):  # fmt: skip
        bad = json.loads(json.dumps(plan))
        bad["sections"][0][path] = value
        assert not valid.is_valid(bad), path
    assert set(schema["$defs"]["Channels"]["properties"]["color"]["enum"]) == set(COLOURS)
    made = Draft202012Validator(implementation_schema(Stage(3)))
    plain = WORKED_IMPLEMENTATION.to_plain()
    assert made.is_valid(plain)
    plain["sections"][0]["targets"] = ["CENTER"]
    assert not made.is_valid(plain), "three heads have no CENTER"


def test_the_planners_and_implementers_answers_fit_their_schemas() -> None:
    """What code writes, an agent may write too, and the other way round."""
    song = varied_song(random.Random(5))
    plan = plan_show(song, STAGE)
    made = implement(song, plan, STAGE)[0]
    assert Draft202012Validator(plan_schema(STAGE)).is_valid(plan.to_plain())
    assert Draft202012Validator(implementation_schema(STAGE)).is_valid(made.to_plain())
    assert parse_plan(plan.to_plain()) == plan
    assert parse_implementation(json.loads(json.dumps(made.to_plain()))) == made


@pytest.mark.parametrize(
    ("path", "value", "place", "words"),
    [
        ("colour", "red", "sections[0].colour", "not a key"),
        ("start_bar", "1", "sections[0].start_bar", "integer"),
        ("start_bar", 1.5, "sections[0].start_bar", "integer"),
        ("start_bar", 0, "sections[0].start_bar", "greater than or equal to 1"),
        ("energy_level", 101, "sections[0].energy_level", "less than or equal to 100"),
        ("energy_level", float("nan"), "sections[0].energy_level", "finite"),
        ("energy_level", True, "sections[0].energy_level", "number"),
        ("section_role", "vers", "sections[0].section_role", "Nearest: 'verse'"),
        ("templates", [], "sections[0].templates", "at least 1"),
        ("templates", ["a", 2], "sections[0].templates[1]", "string"),
        ("templates", ["a"] * 5, "sections[0].templates", "at most 4"),
        ("channels", {"colour": "red"}, "sections[0].channels.colour", "Nearest: 'color'"),
        ("params", {"start_pos": "UP"}, "sections[0].params.start_pos", "Nearest: 'start_pose'"),
        ("name", "", "sections[0].name", "at least 1"),
    ],
)
def test_a_wrong_plan_is_refused_with_the_place(path: str, value: Any, place: str, words: str) -> None:
    """3.3: unknown keys and wrong types are schema violations."""
    plan = WORKED_PLAN.to_plain()
    plan["sections"][0][path] = value
    with pytest.raises(SchemaViolation) as caught:
        parse_plan(plan)
    (violation,) = caught.value.violations
    assert violation.path == place
    assert words in str(violation)
    assert str(violation) in str(caught.value)


@pytest.mark.parametrize("value", [None, [], "plan", 3, {"sections": None}, {"sections": object()}, {}])
def test_what_is_no_plan_at_all_is_refused(value: Any) -> None:
    """3.3: never a Python error."""
    with pytest.raises(SchemaViolation):
        parse_plan(value)
