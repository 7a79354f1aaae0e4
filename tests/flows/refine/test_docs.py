"""The page and the example: their code runs, and says what it is said to."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from detent.cli.main import run
from detent.flows.refine.loop import refine_loop
from detent.flows.refine.part import Part, Parts, show_progress
from detent.flows.refine.run_lines import LoopLines
from detent.refine import Evaluation, ValidationReport
from detent.refine import __all__ as public

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/refine.md").read_text(encoding="utf-8")


def test_the_code_of_the_page_runs():
    code = "\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "success 2 this is a very short text\n"


@pytest.mark.parametrize("name", public)
def test_every_public_name_opens(name):
    import detent.refine

    assert getattr(detent.refine, name) is not None


def test_the_public_door_is_light():
    """R-37: importing it loads no engine, store or adapter."""
    code = "import detent.refine, sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not [name for name in loaded.split() if name.startswith(("detent.engine", "detent.adapters"))]


@pytest.fixture
def example(tmp_path, monkeypatch):
    shutil.copytree(ROOT / "examples/refine", tmp_path / "refine")
    monkeypatch.chdir(tmp_path / "refine")
    return tmp_path / "refine"


def test_the_example_is_run_shown_and_explained_by_the_usual_commands(example, capsys):
    """R-67"""
    assert run(["run", "flow.py", "--input", "request.json", "--id", "r1"]) == 0
    assert "judging          → succeeded" in capsys.readouterr().out
    assert run(["show", "r1", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)["data"]
    assert data["implementation"] == "this is a very short text"
    assert run(["why", "r1"]) == 0
    assert "because      Hard failure, replanning" in capsys.readouterr().out
    assert run(["metrics"]) == 0
    assert "judging" in capsys.readouterr().out


def test_the_example_is_resumed_after_a_kill(example, capsys):
    """R-67: what was planned before is not planned again."""
    source = (example / "flow.py").read_text()
    dies = "import os; os._exit(9) if not os.path.exists('dead') and not open('dead', 'w').close() else None"
    head = "def check(request, plan, text):\n"
    (example / "flow.py").write_text(source.replace(head, f"{head}    {dies}\n"))
    command = [sys.executable, "-m", "detent", "run", "flow.py", "--input", "request.json", "--id", "r1"]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 9
    assert run(["resume", "r1"]) == 0
    capsys.readouterr()
    assert run(["show", "r1", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["status"], shown["data"]["made"][0]["part"]) == ("succeeded", "plan")
    assert sum(row["part"] == "plan" for row in shown["data"]["made"]) == 2


def test_nothing_below_names_the_flow():
    """R-67"""
    rooms = ("cli", "runtime", "evals", "engine", "dispatch", "kernel", "insight", "adapters")
    for room in rooms:
        for path in (ROOT / "src/detent" / room).rglob("*.py"):
            assert "flows.refine" not in path.read_text(encoding="utf-8"), path


def test_a_new_refinement_is_checked_and_run_with_one_line_for_each_state(tmp_path, monkeypatch, capsys):
    """The starter is whole; nothing is overwritten."""
    monkeypatch.chdir(tmp_path)
    assert run(["new", "refine", "essay"]) == 0
    assert run(["check", "essay/"]) == 0
    capsys.readouterr()
    assert run(["run", "essay/", "--input", "essay/request.json"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert re.fullmatch(
        r"  ✓ planning       deterministic +\d+\.\d\d s  12 words +attempt 1/5", lines[2]
    ), lines  # fmt: skip
    assert [line.split()[1] for line in lines[1:6]] == [
        "initialized", "planning", "validating", "implementing", "judging"
    ]  # fmt: skip
    assert "0 errors, 0 warnings" in lines[3]
    assert "50 / 100" in lines[5]
    assert lines[5].endswith("Hard failure, replanning")
    assert lines[-2].split()[0] == "succeeded"
    before = (tmp_path / "essay/refine.py").read_text()
    assert run(["new", "refine", "essay"]) != 0
    assert (tmp_path / "essay/refine.py").read_text() == before


def test_a_refinement_under_plugins_is_checked_without_its_name(tmp_path, monkeypatch, capsys):
    """Nothing else finds it, and it is checked once, right or wrong."""
    monkeypatch.chdir(tmp_path)
    assert run(["new", "refine", "essay"]) == 0
    Path("detent.yaml").write_text("plugins: [essay/]\n")
    capsys.readouterr()
    assert run(["check"]) == 0
    assert capsys.readouterr().out == "essay: ok, 5 steps\n"
    assert run(["check", "--json"]) == 0
    assert [(row["flow"], row["place"]) for row in json.loads(capsys.readouterr().out)] == [
        ("essay", "essay/")
    ]


def test_a_folder_without_a_flow_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "essay").mkdir()
    (tmp_path / "essay/refine.py").write_text("x = 1\n")
    assert run(["check", "essay/"]) != 0
    assert "makes no refinement" in "".join(capsys.readouterr())


def test_a_plain_loop_is_shown_state_by_state(capsys, monkeypatch):
    """As a run is: a line for each state, with the attempt it begins, and what a part tells on the way."""
    monkeypatch.setenv("NO_COLOR", "1")
    told = []

    def write(request, plan, feedback, previous):
        show_progress(1, 2, "half")
        return len(feedback)

    def judge(request, plan, written):
        return Evaluation(65 if not written else 60 if written == 1 else 50)

    def prepare(request):
        return request

    def note(request):
        raise ValueError("a note that fails decides nothing")

    def plan(request, feedback, previous):
        return {}

    parts = Parts(
        *map(Part, (plan, lambda request, plan: ValidationReport(), write, judge)), Part(prepare, note=note)
    )
    lines = LoopLines(parts, 3)
    result = asyncio.run(
        refine_loop(
            1, planner=parts.planner, validator=parts.validator, implementer=parts.implementer,
            judge=parts.judge, preparer=parts.preparer, observers=[lines],
            on_progress=lambda *facts: told.append(facts),
        )
    )  # fmt: skip
    assert result.status == "incomplete"
    shown = re.sub(r"\d+\.\d\d s", "0.00 s", capsys.readouterr().out)  # however busy the machine is
    assert [" ".join(line.split()) for line in shown.splitlines()] == [
        "✓ initialized deterministic 0.00 s",
        "✓ planning deterministic 0.00 s attempt 1/3",
        "✓ validating deterministic 0.00 s 0 errors, 0 warnings",
        "✓ implementing deterministic 0.00 s",
        "✓ judging deterministic 0.00 s 65 / 100 Soft failure, refining implementation",
        "✓ implementing deterministic 0.00 s attempt 2/3",
        "✓ judging deterministic 0.00 s 60 / 100 Hard failure, replanning",
        "✓ planning deterministic 0.00 s attempt 3/3",
        "✓ validating deterministic 0.00 s 0 errors, 0 warnings",
        "✓ implementing deterministic 0.00 s",
        "✗ judging deterministic 0.00 s 65 / 100 max_iterations",
    ]
    assert told == [("implementing", 1, 2, "half")] * 3
