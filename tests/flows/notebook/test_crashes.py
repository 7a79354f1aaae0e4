"""Runs whose engine or kernel is killed: they go on to the same notebook, and no model is asked twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from detent.adapters.stores.sqlite import SQLiteStore
from detent.flows.notebook.finished import finished_notebook
from detent.flows.notebook.history import transitions
from detent.flows.notebook.run_view import NotebookRun
from detent.flows.notebook.state.machine import NotebookState
from detent.testing.crash import CrashPoint
from tests.flows.notebook import driver
from tests.flows.notebook.driver import RUN
from tests.flows.notebook.samples import (
    DONE,
    PLAIN_PROBLEM,
    Model,
    actions,
    agents,
    answers,
    driven,
    history,
    running,
    written,
)

SAMPLE = ["kill-before-commit-9", "kill-after-commit-14"]
"""Crash points of the normal run: in the middle of the first behavior, and behind it."""
EVERY = [str(CrashPoint(number, when)) for number in range(2, 60) for when in ("before", "after")]


def process(folder: Path, point: str) -> int:
    """Drive the run in a process of its own; its exit code."""
    told = subprocess.run(
        [sys.executable, "-m", "tests.flows.notebook.driver", str(folder), point],
        cwd=Path(driver.__file__).parents[3], capture_output=True, text=True, timeout=150, check=False,
        env={**os.environ, "PYTHONPATH": str(Path(driver.__file__).parents[3])},
    )  # fmt: skip
    assert told.returncode in (0, -signal.SIGKILL), told.stderr[-3000:]
    return told.returncode


def requests(folder: Path) -> Counter[str]:
    """How often the model was asked, by role."""
    return Counter((folder / "requests.txt").read_text().split())


USUAL = Counter(
    stage_planner=1, step_planner=1, behavior_arranger=2, action_generator=5, behavior_reflector=2,
    stage_reflector=2,
)  # fmt: skip
"""Requests of a run that nobody disturbs: in the first step two rounds and an end."""
SOURCES = [*driver.COUNTING, driver.SCORED]


async def ended(folder: Path):
    """The run, its notebook and its transitions."""
    async with SQLiteStore(folder / "runs.db") as store:
        from detent.engine.journal_reader import read
        from detent.kernel.run import Run

        run = Run(RUN)
        async for entry in read(store, RUN):
            run.apply(entry)
        told = [transition async for transition in transitions(store, RUN)]
        return run, await finished_notebook(store, run), told


async def check_same(folder: Path, *, asked_again: str | None = None) -> None:
    """The notebook is the one of an undisturbed run, with the figures of cells executed once."""
    run, finished, told = await ended(folder)
    assert run.state == "WORKFLOW_COMPLETE"
    codes = [cell for cell in finished.cells if cell.cell_type == "code"]
    assert [cell.source for cell in codes] == SOURCES
    texts = ["".join(cell.outputs[0]["text"]) if cell.outputs else "" for cell in codes]
    assert texts == ["", "counted 2 ['a', 'b']\n", "2 ['a', 'b']\n"]
    assert len(NotebookRun(run.data).cells) == len(finished.cells)
    assert [t.name for t in told].count("COMPLETE_ACTION") == 2
    extra = Counter({asked_again: 1}) if asked_again else Counter()
    assert requests(folder) - USUAL <= extra
    assert not USUAL - requests(folder)


class TestAKilledEngine:
    """N-88, N-108."""

    async def test_in_a_cell(self, tmp_path):
        """The kernel is in doubt: a cell that counts would have counted twice on it."""
        assert process(tmp_path, "file:in_cell") == -signal.SIGKILL
        before = requests(tmp_path)
        (tmp_path / "go").touch()
        assert process(tmp_path, "none") == 0
        await check_same(tmp_path)
        assert before["action_generator"] == 2

    async def test_in_a_reflection(self, tmp_path):
        """The model had not answered yet, so it is asked again."""
        (tmp_path / "go").touch()
        assert process(tmp_path, "reply:behavior_reflector") == -signal.SIGKILL
        assert process(tmp_path, "none") == 0
        await check_same(tmp_path, asked_again="behavior_reflector")

    @pytest.mark.parametrize("point", SAMPLE)
    async def test_at_a_commit(self, tmp_path, point):
        await self.sweep(tmp_path, point)

    @pytest.mark.exhaustive
    @pytest.mark.timeout(600)
    @pytest.mark.parametrize("point", [point for point in EVERY if point not in SAMPLE])
    async def test_at_any_commit(self, tmp_path, point):
        await self.sweep(tmp_path, point)

    async def sweep(self, folder, point):
        (folder / "go").touch()
        killed = process(folder, point)
        if killed:
            assert process(folder, "none") == 0
        # What the model has answered and nobody has committed is lost with the process.
        run, finished, _ = await ended(folder)
        assert run.state == "WORKFLOW_COMPLETE"
        assert [cell.source for cell in finished.cells if cell.cell_type == "code"] == SOURCES
        assert sum((requests(folder) - USUAL).values()) <= 1


class TestAKilledKernel:
    """N-87: the process of the kernel dies in the middle of a cell."""

    async def test_the_iteration_fails_and_the_next_one_begins_on_a_new_kernel(self, tmp_path):
        die = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\nfinal_model = 2.0"
        turns = [actions(die)]

        def write(prompt: str) -> str:
            if turns and "effects.current\n" not in prompt:
                return turns.pop()
            return written(prompt)

        model = Model(answers(action_generator=write))
        async with running(tmp_path, dispatch=agents(model), code_policy="open") as engine:
            run = await driven(engine, tmp_path, PLAIN_PROBLEM)
            told = await history(engine, run.id)
        assert run.state == "WORKFLOW_COMPLETE"
        cells = [cell for cell in NotebookRun(run.data).cells if cell.is_code]
        assert [(cell.status, cell.iteration) for cell in cells] == [("died", 1), ("ok", 2), ("ok", 1)]
        retry = told[5].state["observation"]["location"]["progress"]["behaviors"]["current"]
        assert "KernelDied" in retry["whathappened"]["if_continuing_behavior"]

    async def test_a_second_death_in_a_behavior_uses_its_retries_up(self, tmp_path):
        die = actions("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
        model = Model(answers(action_generator=lambda prompt: die))
        async with running(tmp_path, dispatch=agents(model), code_policy="open") as engine:
            run = await driven(engine, tmp_path, PLAIN_PROBLEM)
        assert (run.state, run.data["why_failed"]) == ("FAILED", "acceptance_not_met")
        cells = [cell for cell in NotebookRun(run.data).cells if cell.is_code]
        assert [(cell.status, cell.iteration) for cell in cells] == [("died", 1), ("died", 2)]

    async def test_a_cell_that_takes_too_long_has_failed_and_the_run_goes_on(self, tmp_path):
        turns = [actions("import time\ntime.sleep(60)\nfinal_model = 2.0")]

        def write(prompt: str) -> str:
            if turns and "effects.current\n" not in prompt:
                return turns.pop()
            return DONE if "effects.current\n" in prompt else written(prompt)

        model = Model(answers(action_generator=write))
        async with running(tmp_path, dispatch=agents(model), cell_timeout=1.0) as engine:
            run = await driven(engine, tmp_path, PLAIN_PROBLEM, until=NotebookState.STEP_COMPLETED)
        cells = [cell for cell in NotebookRun(run.data).cells if cell.is_code]
        assert [cell.status for cell in cells] == ["timeout", "ok"]
        assert "Timeout" in str(cells[0].error)
