"""A kind and an application from outside the package, as the documentation has them, through every verb."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest

from tests.cli.conftest import Call
from tests.evals.lending import write_cases

PAGE = Path(__file__).parents[2] / "docs" / "extending.md"
SUITE = """
from pathlib import Path
from tests.evals.lending import make_suite

def suite():
    from dataclasses import replace
    return replace(make_suite(Path(__file__).parent / "shipped"), name="PLUG")
"""


@pytest.fixture
def installed(tmp_path_factory, monkeypatch) -> Path:
    """An installed package with the code and the entry points of the page."""
    text = PAGE.read_text(encoding="utf-8")
    place = tmp_path_factory.mktemp("site")
    modules = dict(re.findall(r"```python\n# (\w+)\.py\n(.*?)```", text, re.DOTALL))
    for name, code in modules.items():
        (place / f"{name}.py").write_text(code, encoding="utf-8")
        monkeypatch.delitem(sys.modules, name, raising=False)
    projects = [tomllib.loads(block) for block in re.findall(r"```toml\n(.*?)```", text, re.DOTALL)]
    assert [project["tool"]["setuptools"]["py-modules"] for project in projects] == [
        ["checklist"],
        ["lending"],
    ]
    points = [
        (group, name, at)
        for project in projects
        for group, names in project["project"]["entry-points"].items()
        for name, at in names.items()
    ]
    info = place / "plugs-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugs\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("\n".join(f"[{group}]\n{one} = {at}" for group, one, at in points))
    monkeypatch.syspath_prepend(str(place))
    assert sorted(modules) == ["checklist", "lending"]
    return place


def test_a_kind_from_outside_goes_through_every_verb(installed, detent: Call, folder: Path, token):
    made = detent("new", "checklist", "evening")
    assert made.code == 0, made.err
    assert made.lines == ["A checklist is in evening.todo. Try:", "  detent run checklist evening"]
    assert detent("new", "checklist", "evening").code == 2

    assert "evening: ok, 2 steps" in detent("check", "evening.todo").out
    (folder / "empty.todo").write_text("\n")
    assert detent("check", "empty.todo").code == 2
    assert "lock the door" in detent("diagram", "evening.todo").out
    assert detent("show", "evening", "--json").json["steps"][0]["step"] == "evening/lock the door"
    assert "evening/lights off?" in detent("show", "evening.todo").out
    assert detent("step", "evening.todo", "lock the door", "--json").json["next"] == "lights off?"
    rows = detent("steps", "list", "--flow", "evening.todo", "--json").json
    assert [row["step"] for row in rows] == ["evening/lock the door", "evening/lights off?"]

    begun = detent("run", "checklist", "evening", "--id", "r1", "--record", "tape.jsonl")
    assert begun.code == 0, begun.err
    assert detent("show", "r1", "--json").json["state"] == "lights off?"
    answered = detent("release", "r1", "yes", "--hold", token("r1"))
    assert answered.code == 0, answered.err
    assert detent("show", "r1", "--json").json["status"] == "succeeded"
    assert "lock the door is done" in detent("why", "r1").out
    assert detent("replay", "r1", "tape.jsonl").code == 0
    assert detent("run", "evening.todo", "--id", "r2").code == 0


def test_an_application_from_outside_has_settings_under_its_own_heading(
    installed, detent: Call, folder: Path
):
    assert "lending: ok" in detent("check", "lending").out
    ran = detent("run", "lending", "--id", "r1", "--json")
    assert ran.json["data"] == {"days": 14}
    (folder / "detent.yaml").write_text("lending: {days: 30}\n")
    assert detent("run", "lending", "--id", "r2", "--json").json["data"] == {"days": 30}
    assert detent("step", "lending", "lend", "--json").json["changes"] == {"days": 30}
    assert "lend" in detent("diagram", "lending").out
    (folder / "detent.yaml").write_text("lending: {dayz: 30}\n")
    wrong = detent("run", "lending")
    assert wrong.code == 2
    assert "Did you mean 'days'?" in wrong.err


def test_an_application_from_outside_begins_a_project_of_its_own(
    installed, detent: Call, folder: Path, monkeypatch
):
    made = detent("new", "lending", "desk")
    assert (made.code, made.err) == (0, "")
    assert made.lines == ["A lending desk is in desk. Try:", "  cd desk", "  detent run lending"]
    assert detent("new", "lending", "desk").code == 2
    assert detent("show", "lending", "--json").json["steps"][0]["step"] == "lending/lend"
    monkeypatch.chdir(folder / "desk")
    assert detent("run", "lending", "--json").json["data"] == {"days": 21}


@pytest.mark.parametrize("plug", ["checklist", "lending"])
def test_a_suite_that_a_plug_names_is_played(installed, detent: Call, folder: Path, plug, monkeypatch):
    monkeypatch.delitem(sys.modules, "judging", raising=False)
    write_cases(installed / "shipped")
    (installed / "judging.py").write_text(SUITE.replace("PLUG", plug))
    file = installed / f"{plug}.py"
    named = f'    name = "{plug}"\n'
    assert named in file.read_text()
    file.write_text(file.read_text().replace(named, f'{named}    suite = "judging:suite"\n'))
    result = detent("eval", plug)
    assert result.code == 0, result.err
    assert result.lines[0].startswith(f"eval {plug} ")


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (("new", "checklst", "x"), "Did you mean 'checklist'?"),
        (("new", "checklist", "x", "--template", "shrt"), "Did you mean 'short'?"),
        (("run", "checklist"), "Say which checklist to run"),
        (("run", "checklist", "nothing"), "There is no checklist 'nothing'."),
    ],
)
def test_what_cannot_be_meant_is_refused(installed, detent: Call, said, words):
    result = detent(*said)
    assert result.code == 2
    assert words in result.err


def test_an_entry_point_that_is_no_plug_is_told_with_its_package(installed, detent: Call):
    info = installed / "odd-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: odd\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[detent.kinds]\nodd = checklist:Checklists\n")
    result = detent("new", "odd", "x")
    assert result.code == 2
    assert "checklist:Checklists of odd is offered under detent.kinds, but is no Kind." in result.err
