"""Starts that are refused, limits, and what is asked. N-18, N-99."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.flows.notebook.commands.conftest import PROBLEM

BLOCKED = """
import sys
sys.modules[{library!r}] = None
from detent.cli.main import main
main(["run", "notebook", "--problem", {problem!r}, "--file", "houses.csv"])
"""


@pytest.mark.parametrize(
    "args",
    [
        ("--target", "prize"),
        ("--keep", "nothing"),
        ("--split", "by:hand"),
        ("--split", "group:owner"),
        ("--profile", "complete"),
        ("--until", "DONE"),
        ("--out", "folder.ipynb"),
        ("--out", "houses.csv/below"),
        ("--trace", "houses.csv"),
        ("--file", "missing.csv"),
        ("--file", "houses.csv"),
        ("--problem-file", "problem.txt"),
        ("--mode", "generator"),
        ("--mode", "generator=agent"),
        ("--id", "-x"),
    ],
    ids=" ".join,
)
def test_a_start_that_cannot_be_is_refused_and_leaves_nothing(project, args):
    (project.folder / "folder.ipynb").mkdir()
    (project.folder / "problem.txt").write_text(PROBLEM)
    answer = project.notebook(*args)
    assert answer.code == 2, answer
    assert "Traceback" not in answer.err
    assert not (project.folder / ".detent" / "notebooks").exists()


@pytest.mark.parametrize(
    "problem", ["", "Predict price; R2 < 0.5", "Predict price; accuracy below 0.9", "Cluster the houses"]
)
def test_a_text_that_asks_for_nothing_that_can_be_done_is_refused(project, problem):
    answer = project.notebook(problem=problem)
    assert answer.code == 2, answer
    assert not (project.folder / ".detent" / "notebooks").exists()


def test_an_empty_table_is_refused(project):
    (project.folder / "houses.csv").write_bytes(b"")
    assert project.notebook().code == 2


def test_two_targets_that_are_equally_likely_are_named(project):
    (project.folder / "houses.csv").write_text("a,house_price,flat_price\n" + "1,2,3\n4,5,7\n6,7,9\n" * 5)
    answer = project.notebook(problem="price, RMSE < 5")
    assert answer.code == 2
    assert "house_price" in answer.err
    assert "flat_price" in answer.err
    assert "--target" in answer.err


@pytest.mark.parametrize("library", ["ipykernel", "sklearn"])
def test_a_library_that_is_missing_is_named_with_what_installs_it(project, library):
    code = BLOCKED.format(library=library, problem=PROBLEM)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=project.folder)
    assert done.returncode == 3, done.stderr
    assert library in done.stderr
    assert "detent[notebook]" in done.stderr
    assert not (project.folder / ".detent" / "notebooks").exists()


def test_the_problem_may_be_in_a_file(project):
    (project.folder / "problem.txt").write_text(PROBLEM)
    answer = project.detent(
        "notebook", "start", "--problem-file", "problem.txt", "--file", "houses.csv", "--out", "here"
    )
    assert answer.code == 0, answer
    assert "regression of price" in answer.out
    assert "\x1b" not in answer.out
    assert "Predictability" in answer.out  # the plan
    assert (project.folder / "here" / "notebook.ipynb").exists()


def test_a_limit_ends_the_run_and_a_higher_one_opens_it_again(project):
    answer = project.notebook("--max-transitions", "2", "--id", "few", "--json", "--out", "few.ipynb")
    result = json.loads(answer.out.splitlines()[-1])
    assert answer.code == 1
    assert (result["status"], result["state"]) == ("budget_exhausted", "FAILED")
    few = project.folder / "few.ipynb"
    assert "limit" in few.read_text()
    few.unlink()
    assert project.detent("reopen", "few", "--budget-steps", "3", "-q").code == 1
    assert few.exists()  # the run's own --out
    assert project.detent("notebook", "show", "few", "--json").json["location"]["behavior_id"] is not None


def test_a_run_of_another_flow_is_no_notebook(project):
    (project.folder / "flow.py").write_text(
        "from detent import Flow, Machine, Outcome, Status\n"
        "other = Flow(Machine('other', start='a', moves={'a': ['b']}, ends={'b': Status.SUCCEEDED}))\n"
        "@other.step('a')\nasync def a(ctx):\n    return Outcome('b')\n"
    )
    assert project.detent("run", "flow.py", "--id", "x", "-q").code == 0
    assert project.detent("notebook", "show", "x").code == 2


def test_help_loads_no_library_of_notebooks():
    code = (
        "import sys; from detent.cli.main import run; run(['notebook', '--help']); run(['--help']); "
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    tops = {name.partition(".")[0] for name in done.stderr.split()}
    assert not {"pandas", "numpy", "sklearn", "matplotlib", "jupyter_client", "nbformat", "zmq"} & tops
