"""The template library: the starter templates, and folders with everything wrong in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from detent.apps.choreography.domain.library import STARTER, check_folder, load_library
from detent.authoring.problem import DocumentError

TABLE = {
    "lantern_hold": ("base", 0, 30, {"intro", "outro", "breakdown"}),
    "harbor_drift": ("base", 0, 38, {"intro", "outro", "breakdown", "verse"}),
    "ember_fade": ("base", 0, 40, {"outro", "breakdown"}),
    "quiet_counter": ("accent", 5, 50, {"intro", "verse", "breakdown", "bridge"}),
    "tide_tilt": ("base", 15, 52, {"verse", "bridge"}),
    "slow_fan": ("base", 20, 60, {"verse", "bridge", "build"}),
    "clockface": ("base", 25, 58, {"verse", "bridge"}),
    "ceiling_bloom": ("base", 20, 60, {"bridge", "breakdown", "outro"}),
    "call_answer": ("base", 35, 70, {"verse", "bridge"}),
    "pulse_steps": ("accent", 30, 78, {"verse", "build", "chorus", "bridge"}),
    "ladder_rise": ("base", 40, 82, {"build", "transition"}),
    "tightening_gate": ("base", 50, 92, {"build", "transition"}),
    "figure_loop": ("base", 50, 85, {"chorus", "verse"}),
    "crosswind": ("base", 55, 88, {"chorus"}),
    "chevron_sweep": ("base", 60, 96, {"chorus", "drop"}),
    "hammer_hits": ("base", 70, 100, {"drop", "chorus"}),
    "starburst_split": ("base", 75, 100, {"drop", "chorus"}),
    "spark_relay": ("accent", 55, 100, {"chorus", "drop", "build"}),
}
"""3.5's table."""


def good(**changes: Any) -> dict[str, Any]:
    """A template in which nothing is wrong."""
    return {
        "template_id": "my_sway",
        "name": "My sway",
        "category": "low_energy",
        "layer_role": "base",
        "timing": {"default_duration_bars": 4},
        "steps": [
            {
                "step_id": "one",
                "duration_bars": 4,
                "movement_id": "sway",
                "movement_params": {"amplitude": 20},
            }
        ],
        "metadata": {"energy_range": [0, 40], "recommended_sections": ["intro"]},
    } | changes


def step(**changes: Any) -> dict[str, Any]:
    """A template with one step changed."""
    return good(steps=[good()["steps"][0] | changes])


def moving(movement: str = "sway", **params: Any) -> dict[str, Any]:
    return step(movement_id=movement, movement_params=params)


def lit(dimmer: str, **params: Any) -> dict[str, Any]:
    return step(dimmer_id=dimmer, dimmer_params=params)


def write(folder: Path, template: dict[str, Any], name: str = "my_sway") -> Path:
    file = folder / f"{name}.json"
    file.write_text(json.dumps(template, indent=2))
    return file


def test_the_starter_library_is_the_table_of_the_specification() -> None:
    """R-49: all eighteen load, each with its role, range and sections."""
    library = load_library()
    assert set(library) == set(TABLE)
    for name, (role, low, high, roles) in TABLE.items():
        template = library[name]
        assert template.metadata is not None
        assert (template.layer_role, *template.metadata.energy_range) == (role, low, high), name
        assert set(template.metadata.recommended_sections) == roles, name
        assert template.metadata.description
    assert check_folder(STARTER) == []


def test_the_steps_of_every_starter_template_fill_its_cycle_on_every_head() -> None:
    """A head with nothing to do would stand dark or still where the design says otherwise."""
    for template in load_library().values():
        cycle = template.timing.default_duration_bars
        edges = sorted({0.0, cycle, *(s.start_offset_bars for s in template.steps)})
        for edge in edges[:-1]:
            active = [
                s
                for s in template.steps
                if s.start_offset_bars <= edge < s.start_offset_bars + s.duration_bars
            ]
            assert any(s.target == "ALL" for s in active), template.template_id


def test_a_folder_of_the_users_is_merged(tmp_path: Path) -> None:
    """3.5: the starter library and the user's templates are one library."""
    write(tmp_path, good())
    library = load_library(tmp_path)
    assert set(library) == {*TABLE, "my_sway"}
    assert check_folder(tmp_path) == []


def test_a_repeated_id_is_an_error_with_both_places(tmp_path: Path) -> None:
    """R-53: against the starter library, and between two folders."""
    write(tmp_path, good(template_id="slow_fan"), "slow_fan")
    with pytest.raises(DocumentError) as caught:
        load_library(tmp_path)
    (problem,) = caught.value.problems
    assert problem.place.file == str(tmp_path / "slow_fan.json")
    assert str(STARTER) in problem.message
    first, second = tmp_path / "a", tmp_path / "b"
    for folder in (first, second):
        folder.mkdir()
        write(folder, good())
    with pytest.raises(DocumentError):
        load_library(first, second)
    assert "my_sway" in load_library(first)


@pytest.mark.parametrize(
    ("template", "path", "words", "suggestion"),
    [
        (good(colour="red"), "colour", "not a key", ""),
        (good(categry="low_energy"), "categry", "not a key", "category"),
        (good(layer_role="accnt"), "layer_role", "must be", "accent"),
        (good(template_id="My Sway"), "template_id", "pattern", ""),
        (good(template_id="other"), "template_id", "in the file my_sway.json", ""),
        (good(steps=[]), "steps", "at least 1", ""),
        (good(timing={"default_duration_bars": 0}), "timing.default_duration_bars", "greater than 0", ""),
        (good(timing={"default_duration_bars": "4"}), "timing.default_duration_bars", "number", ""),
        (good(metadata={"energy_range": [60, 20]}), "metadata.energy_range", "must rise", ""),
        (good(metadata={"recommended_sections": ["vers"]}), "metadata.recommended_sections[0]", "", "verse"),
        (good(steps=good()["steps"] * 2), "steps[1].step_id", "Two steps", ""),
        (step(movement_id="swai"), "…movement_id", "must be", "sway"),
        (moving(ampltude=3), "…movement_params.ampltude", "no parameter", "amplitude"),
        (moving(), "…movement_params", "needs 'amplitude'", ""),
        (moving(amplitude=400), "…movement_params.amplitude", "-180 to 180", ""),
        (moving(amplitude=True), "…movement_params.amplitude", "number", ""),
        (moving(amplitude=9, cycle_bars=0), "…movement_params.cycle_bars", "above 0", ""),
        (moving("steps", poses=["UPP"]), "…movement_params.poses[0]", "no pose", "UP"),
        (moving("steps", poses=[]), "…movement_params.poses", "list of poses", ""),
        (moving("hold", amplitude=3), "…movement_params.amplitude", "takes none", ""),
        (step(geometry_id="fan"), "…geometry_params", "needs 'spread'", ""),
        (step(geometry_id="fan", geometry_params={"from": 3}), "…geometry_params", "'from' and 'to'", ""),
        (step(geometry_id="fann"), "…geometry_id", "must be", "fan"),
        (lit("breathe", lo=0.9, hi=0.1), "…dimmer_params.lo", "more light", ""),
        (lit("breathe", hi=40), "…dimmer_params.hi", "0 to 1", ""),
        (lit("chase", order="outwards"), "…dimmer_params.order", "must be", "outward"),
        (step(target="LEFTT"), "…target", "no target", "LEFT"),
        (step(duration_bars=9), "…duration_bars", "the cycle", ""),
    ],
)  # fmt: skip
def test_a_problem_has_file_line_and_the_nearest_name(
    tmp_path: Path, template: dict[str, Any], path: str, words: str, suggestion: str
) -> None:
    """R-53: each problem at the line of its key or item, alone."""
    file = write(tmp_path, template)
    (problem,) = check_folder(tmp_path)
    assert problem.path == path.replace("…", "steps[0].")
    assert words in problem.message
    assert suggestion in problem.suggestions if suggestion else True
    assert problem.place.file == str(file)
    path = path.removeprefix("…")
    key = path.rpartition("[")[2].rstrip("]") if path.endswith("]") else path.rpartition(".")[2]
    line = file.read_text().splitlines()[problem.place.line - 1]
    assert key.isdecimal() or f'"{key}"' in line or f'"{key}"' not in file.read_text()


def test_all_problems_of_all_files_are_reported_at_once(tmp_path: Path) -> None:
    """R-53."""
    write(tmp_path, step(target="LEFTT", movement_params={"amplitude": 400, "x": 1}), "my_sway")
    write(tmp_path, good(template_id="b", layer_role="bass", x=1), "b")
    (tmp_path / "c.json").write_text('{\n  "template_id": "c",\n  "name" "C"\n}')
    (tmp_path / "d.json").write_text('{\n  "template_id": "d",\n  "template_id": "d"\n}')
    (tmp_path / "e.json").write_bytes(b'{"name": "\xff"}')
    (tmp_path / "f.json").write_text("[]")
    by_file: dict[str, int] = {}
    for problem in check_folder(tmp_path):
        name = Path(problem.place.file).name
        by_file[name] = by_file.get(name, 0) + 1
        assert problem.place.line >= 1
    assert by_file == {"my_sway.json": 3, "b.json": 2, "c.json": 1, "d.json": 1, "e.json": 1, "f.json": 1}
    with pytest.raises(DocumentError) as caught:
        load_library(tmp_path)
    assert len(caught.value.problems) == 9


def test_a_wrong_shape_hides_no_wrong_meaning(tmp_path: Path) -> None:
    """R-53: what is wrong with the sound parts is told in the same round, once each."""
    broken = step(target="LEFTT", movement_id="swai", movement_params={"ampl": 1}, duration_bars=9)
    broken |= {"categry": "base", "metadata": {"energy_range": [60, 20], "tags": [1]}}
    broken["steps"] += [3, {"step_id": "second", "duration_bars": 1, "dimmer_params": {"level": 40}}]
    write(tmp_path, broken)
    assert {problem.path for problem in check_folder(tmp_path)} == {
        "categry", "metadata.energy_range", "metadata.tags[0]", "steps[0].target", "steps[0].movement_id",
        "steps[0].duration_bars", "steps[1]", "steps[2].dimmer_params.level",
    }  # fmt: skip
    write(tmp_path, {"template_id": "My", "steps": [{"target": "LEFTT"}], "timing": 4})
    assert [problem.path for problem in check_folder(tmp_path)].count("steps[0].target") == 1


def test_a_file_indented_with_tabs_is_json(tmp_path: Path) -> None:
    """Places stay right too."""
    text = json.dumps(step(target="LEFTT"), indent="\t")
    (tmp_path / "my_sway.json").write_text(text)
    (problem,) = check_folder(tmp_path)
    assert '"target"' in text.splitlines()[problem.place.line - 1]


def test_a_folder_that_does_not_exist_is_a_problem(tmp_path: Path) -> None:
    """R-53."""
    (problem,) = check_folder(tmp_path / "none")
    assert "no folder" in problem.message


def test_poses_of_the_project_may_be_used(tmp_path: Path) -> None:
    """3.4: config may add poses."""
    write(tmp_path, step(movement_id="steps", movement_params={"poses": ["BALCONY"]}))
    assert len(check_folder(tmp_path)) == 1
    assert check_folder(tmp_path, poses=["BALCONY", *_poses()]) == []


def _poses() -> list[str]:
    from detent.apps.choreography.domain.vocabulary import POSES

    return list(POSES)
