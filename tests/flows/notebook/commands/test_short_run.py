"""The commands on one run that was stopped behind its first step. N-99, N-60, N-88, N-100."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
import pytest

from detent.engine.journal_reader import load
from detent.flows.notebook.commands.block import block_lines
from detent.flows.notebook.run_view import NotebookRun
from detent.stores import SQLiteStore
from tests.flows.notebook.commands.conftest import Answer, Project

ID = "short/one"


@pytest.fixture(scope="module")
def started(module_project: Project) -> Answer:
    """The run, as it was started: five transitions, then it was stopped."""
    before = (module_project.folder / "houses.csv").read_bytes()
    answer = module_project.notebook(
        "--id", ID, "--out", "res.ipynb", "--trace", "trace", "--transitions", "5", "--json", "--no-report"
    )
    assert (module_project.folder / "houses.csv").read_bytes() == before
    return answer


@pytest.fixture
def here(module_project: Project, started: Answer) -> Project:
    """The project with the run in it."""
    return module_project


def run_of(project: Project) -> Any:
    async def loaded() -> Any:
        store = SQLiteStore(str(project.folder / ".detent" / "detent.db"))
        await store.open()
        try:
            return await load(store, ID)
        finally:
            await store.close()

    return asyncio.run(loaded())


class TestRunning:
    def test_a_run_that_stops_as_asked_is_well(self, started):
        assert started.code == 0

    def test_each_transition_is_an_object_and_the_result_is_the_last(self, started):
        *moves, result = [json.loads(line) for line in started.out.splitlines()]
        assert [(move["transition"], move["event"]) for move in moves] == [
            (1, "START_WORKFLOW"), (2, "START_STEP"), (3, "START_BEHAVIOR"), (4, "COMPLETE_ACTION"),
            (5, "TRANSITION_TO_COMPLETE_STEP"),
        ]  # fmt: skip
        assert result["state"] == moves[-1]["state"] == "STEP_COMPLETED"
        assert (result["status"], result["target"], result["thresholds"]) == (
            "running",
            "price",
            ["R2 > 0.2"],
        )
        assert moves[-1]["artifacts"][0] == 2

    def test_the_trace_was_written_as_the_run_went(self, here):
        trace = here.folder / "trace"
        states = sorted(path.stem for path in (trace / "states").iterdir())
        assert [name[:5] for name in states] == ["0000_", "0001_", "0002_", "0003_", "0004_", "0005_"]
        assert states[0] == "0000_IDLE"
        for name in states[1:]:
            assert (trace / "payloads" / f"{name}.xml").read_text().startswith("<")
            assert (trace / "log" / f"{name}.log").exists()
        last = json.loads((trace / "states" / f"{states[-1]}.json").read_text())
        assert last["state"]["FSM"]["state"] == "STEP_COMPLETED"
        (printed,) = last["state"]["effects"]["current"]  # N-58: a text for each output
        assert "60" in printed

    def test_the_notebook_so_far_is_delivered_and_says_that_it_is_unfinished(self, here):
        notebook = nbformat.read(here.folder / "res.ipynb", as_version=4)
        nbformat.validate(notebook)
        assert "Not finished" in notebook.cells[0].source
        assert any(cell.cell_type == "code" and cell.outputs for cell in notebook.cells)
        assert "Not finished" in (here.folder / "res_files" / "notebook.html").read_text()

    def test_the_delivered_notebook_opens_its_data_in_another_folder(self, here, tmp_path):
        """N-109: `res.ipynb` and `res_files` are all that is copied."""
        shutil.copy(here.folder / "res.ipynb", tmp_path)
        shutil.copytree(here.folder / "res_files", tmp_path / "res_files")
        cells = nbformat.read(tmp_path / "res.ipynb", as_version=4).cells
        code = next(cell.source for cell in cells if cell.cell_type == "code")
        subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True)

    def test_its_work_folder_is_named_after_it(self, here):
        assert [path.name for path in (here.folder / ".detent/notebooks").iterdir()] == ["short%2Fone"]

    def test_an_id_is_taken_once_and_the_first_run_keeps_its_files(self, here):
        assets = here.folder / ".detent/notebooks/short%2Fone/assets/houses.csv"
        before = assets.stat().st_mtime_ns
        assert here.notebook("--id", ID).code == 2
        assert assets.stat().st_mtime_ns == before


class TestLooking:
    def test_it_is_listed(self, here):
        listed = here.detent("notebook", "list", "--json").json["runs"]
        assert ID in [row["id"] for row in listed]
        assert here.detent("runs", "--flow", "notebook", "--json").json["runs"] == listed

    @pytest.mark.parametrize("name", ["show", "status"])
    def test_it_is_shown_with_bars_counts_and_where_it_stands(self, here, name):
        shown = here.detent("notebook", name, "short")
        assert shown.code == 0
        assert "STEP_COMPLETED" in shown.out
        assert "data_collection_inventory" in shown.out
        assert re.search(r"stages +░+ +0/7 +artifacts 2/6", shown.out)

    def test_a_transition_is_shown_with_its_payload_and_the_state_after_it(self, here):
        shown = here.detent("notebook", "show", ID, "--transition", "3").json
        assert shown["transition"] == "START_BEHAVIOR"
        assert next(iter(shown["payloads"].values())).startswith("<behavior")
        assert shown["state"]["state"]["FSM"]["state"] == "BEHAVIOR_RUNNING"
        assert here.detent("notebook", "show", ID, "--transition", "99").code == 2

    def test_a_cell_is_shown_with_its_outputs(self, here):
        notebook = nbformat.read(here.folder / "res.ipynb", as_version=4)
        cell = next(cell for cell in notebook.cells if cell.cell_type == "code")
        shown = here.detent("notebook", "show", ID, "--cell", cell.id).json
        assert (shown["source"], len(shown["outputs"])) == (cell.source, len(cell.outputs))
        assert here.detent("notebook", "show", ID, "--cell", "nonesuch").code == 2

    def test_claims_are_shown_beside_the_measurement(self, here):
        (claim,) = here.detent("notebook", "show", ID, "--claims").json
        assert claim["role"] == "behavior_reflector"
        assert claim["mismatches"] == []

    def test_the_block_of_a_terminal_fits_its_width(self, here):
        run = run_of(here)
        wide = "\n".join(block_lines(NotebookRun(run.data), run.id, "cell 1", 200))
        for words in (
            "STAGE 1/7",
            "STEP_COMPLETED",
            "artifacts 2/6",
            "criteria 1/1 (first try 100%)",
            "▸ data_",
        ):
            assert words in wide
        assert all(len(line) <= 40 for line in block_lines(NotebookRun(run.data), run.id, "", 40))


class TestWritingAgain:
    def test_every_format_is_written_from_the_journal_and_equal_each_time(self, here, tmp_path):
        for name in ("a", "b"):
            assert (
                here.detent("notebook", "export", ID, "--format", "all", "-o", str(tmp_path / name)).code == 0
            )
        files = sorted(
            path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*") if path.is_file()
        )
        assert {"notebook.ipynb", "notebook.html", "notebook.md"} <= {str(file) for file in files}
        for file in files:
            assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes(), file

    def test_the_exported_trace_is_the_one_that_was_written_meanwhile(self, here, tmp_path):
        assert here.detent("notebook", "export", ID, "--format", "json", "-o", str(tmp_path)).code == 0
        for file in tmp_path.rglob("*"):
            if file.is_file() and file.name[:4] <= "0005":
                assert file.read_bytes() == (here.folder / "trace" / file.relative_to(tmp_path)).read_bytes()

    def test_an_unknown_format_and_a_place_that_is_none_are_refused(self, here, tmp_path):
        assert here.detent("notebook", "export", ID, "--format", "pdf").code == 2
        (tmp_path / "file").touch()
        assert here.detent("notebook", "export", ID, "-o", str(tmp_path / "file")).code == 2


@pytest.fixture(scope="module")
def forked(module_project: Project, started: Answer) -> Answer:
    """A fork of the run, not driven yet."""
    return module_project.detent("fork", ID, "--id", "fork", "--detach")


class TestAFork:
    def test_it_works_in_a_folder_of_its_own_with_the_data(self, here, forked):
        """Its cells are executed there once more, and the files of its original stay as they are."""
        assert forked.code == 0, forked.err
        folder = here.folder / ".detent/notebooks"
        before = {path: path.stat().st_mtime_ns for path in (folder / "short%2Fone").rglob("*")}
        resumed = here.detent("notebook", "resume", "fork", "--transitions", "3", "--json")
        assert resumed.code == 0, resumed.err
        result = json.loads(resumed.out.splitlines()[-1])
        assert result["work"] == str(folder / "fork")
        assert (result["state"], result["location"]["step_id"]) == (
            "BEHAVIOR_COMPLETED", "data_structure_discovery",
        )  # fmt: skip
        assert (folder / "fork/assets/houses.csv").read_bytes() == (here.folder / "houses.csv").read_bytes()
        assert before == {path: path.stat().st_mtime_ns for path in (folder / "short%2Fone").rglob("*")}

    def test_it_writes_beside_what_its_original_has_written(self, here, forked):
        shown = here.detent("notebook", "show", "fork", "--json").json
        assert shown["notebook"] == str(here.folder / "res-fork.ipynb")
        assert here.detent("notebook", "show", ID, "--json").json["notebook"].endswith("/res.ipynb")

    def test_an_original_without_its_folder_cannot_be_forked(self, here):
        folder = here.folder / ".detent/notebooks/short%2Fone"
        folder.rename(folder.with_name("away"))
        try:
            again = here.detent("fork", ID, "--id", "another", "--detach")
        finally:
            folder.with_name("away").rename(folder)
        assert (again.code, "another" in str(here.detent("runs", "--json").json)) == (2, False)


class TestAStateOfAnotherOrigin:
    """Section 12: a new run begins where a state JSON stands."""

    @pytest.fixture
    def state(self, here):
        """The run's own state behind its first step, with the cells that led to it."""
        plain = json.loads((here.folder / "trace/states/0005_TRANSITION_TO_COMPLETE_STEP.json").read_text())
        cells = nbformat.read(here.folder / "res.ipynb", as_version=4).cells[1:]
        plain["state"]["notebook"]["cells"] = [
            {"cell_type": cell.cell_type, "source": cell.source} for cell in cells
        ]
        return plain

    def resumed(self, here, state, *args):
        (here.folder / "foreign.json").write_text(json.dumps(state))
        return here.detent(
            "notebook", "resume", "--state-file", "foreign.json", "--file", "houses.csv", *args
        )  # fmt: skip

    def test_its_cells_are_executed_first_and_the_work_goes_on(self, here, state):
        answer = self.resumed(
            here, state, "--id", "foreign", "--out", "foreign.ipynb", "--transitions", "4", "--json"
        )
        assert answer.code == 0, answer.err
        moves = [json.loads(line) for line in answer.out.splitlines()][:-1]
        assert [move["event"] for move in moves] == [
            "START_STEP", "START_BEHAVIOR", "COMPLETE_ACTION", "TRANSITION_TO_COMPLETE_STEP",
        ]  # fmt: skip
        assert moves[-1]["location"]["step_id"] == "data_structure_discovery"
        sources = [cell.source for cell in nbformat.read(here.folder / "foreign.ipynb", as_version=4).cells]
        listed = [cell["source"] for cell in state["state"]["notebook"]["cells"]]
        assert sources[1 : 1 + len(listed)] == listed
        assert "raw_dataset" in sources[-2]  # a cell that needs what the listed ones have made

    def test_a_cell_that_cannot_be_executed_ends_the_run(self, here, state):
        state["state"]["notebook"]["cells"][-1] = {"cell_type": "code", "source": "1 / 0"}
        answer = self.resumed(here, state, "--id", "broken", "--transitions", "4", "--json")
        assert answer.code == 1
        assert "ZeroDivisionError" in json.loads(answer.out.splitlines()[-1])["reason"]

    @pytest.mark.parametrize(
        "spoil",
        [
            lambda plain: plain["state"]["FSM"].update(state="FAILED"),
            lambda plain: plain["observation"]["location"]["current"].update(step_id=None),
            lambda plain: plain["state"]["notebook"].update(cells=[{"cell_type": "raw", "source": ""}]),
        ],
        ids=["an end", "no step", "no cell"],
    )
    def test_a_state_that_no_run_can_begin_with_is_refused(self, here, state, spoil):
        spoil(state)
        assert self.resumed(here, state, "--id", "refused").code == 2
        assert not (here.folder / ".detent/notebooks/refused").exists()
        assert here.detent("notebook", "resume").code == 2
        assert here.detent("notebook", "resume", ID, "--out", "x.ipynb").code == 2


class TestExecutingAgain:
    def test_it_executes_equally_again_until_its_data_differ(self, here):
        assert here.detent("notebook", "verify", ID, "--json").json["passed"] is True
        data = here.folder / ".detent/notebooks/short%2Fone/assets/houses.csv"
        kept = data.read_bytes()
        data.write_bytes(kept.replace(b"\n1,", b"\n99,", 1))
        try:
            again = here.detent("notebook", "verify", ID, "--json")
        finally:
            data.write_bytes(kept)
        assert (again.code, again.json["passed"]) == (1, False)

    @pytest.mark.skipif(not Path("/proc/self/cwd").exists(), reason="shows no folders of processes")
    def test_one_that_is_stopped_closes_its_kernel(self, here):
        with tempfile.TemporaryDirectory() as place, subprocess.Popen(
            [sys.executable, "-m", "detent", "notebook", "verify", ID],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=here.folder,
            env={**os.environ, "TMPDIR": place, "PYTHONUNBUFFERED": "1"},
        ) as program:  # fmt: skip
            while not works_in(place):
                assert program.poll() is None, program.communicate()
            program.send_signal(signal.SIGTERM)
            printed, _ = program.communicate(timeout=60)
            assert not works_in(place)
        assert program.returncode == 130, printed
        assert "from top to bottom" in printed


def works_in(place: str) -> bool:
    """Whether a process, such as a kernel, works below a folder."""
    for folder in Path("/proc").glob("[0-9]*/cwd"):
        with contextlib.suppress(OSError):
            if str(folder.readlink()).startswith(place):
                return True
    return False


def test_a_run_is_resumed_cancelled_and_purged(project: Project):
    one = ("notebook", "show", "one")
    assert (
        project.notebook("--id", "one", "--out", "one.ipynb", "--trace", "trace", "--transitions", "1").code
        == 0
    )

    assert project.detent("notebook", "verify", "one").code == 2  # it is only planned

    resumed = project.detent("notebook", "resume", "one", "--until", "BEHAVIOR_RUNNING")
    assert resumed.code == 0
    assert "regression of price" in resumed.out
    assert "BEHAVIOR_RUNNING" in resumed.out
    states = sorted(path.name for path in (project.folder / "trace/states").iterdir())
    assert states[-1] == "0003_START_BEHAVIOR.json"
    assert project.detent(*one, "--json").json["state"] == "BEHAVIOR_RUNNING"

    work = project.folder / ".detent/notebooks/one"
    assert project.detent("purge", "one", "--json").json["files"] == 0
    assert work.is_dir()

    assert project.detent("cancel", "one", "-q").code == 0
    assert "cancelled" in (project.folder / "one.ipynb").read_text()
    assert project.detent(*one, "--json").json["state"] == "CANCELLED"
    last = project.detent(*one, "--transition", "4").json
    assert (last["transition"], last["to"]) == ("CANCEL", "CANCELLED")

    assert project.detent("purge", "one", "--json").json["files"] > 0
    assert not work.exists()
    assert (project.folder / "one.ipynb").exists()
