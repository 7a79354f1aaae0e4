"""A whole run by code, on a real kernel: what it passes through, what it leaves, what a second one does."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
import pytest

from detent.flows.notebook.delivery import deliver
from detent.flows.notebook.domain.catalogue import closing_criteria, plan_stages, plan_steps
from detent.flows.notebook.exports.cell import NotebookCell
from detent.flows.notebook.finished import Finished, finished_notebook, metrics_of
from detent.flows.notebook.history import Transition
from detent.flows.notebook.measuring.expressions import assigned_names
from detent.flows.notebook.recipes.cookbook import CLOSING, recipe_for
from detent.flows.notebook.recipes.recipe import Kitchen, RecipeSettings
from detent.flows.notebook.result import result_of
from detent.flows.notebook.run_view import NotebookRun
from detent.flows.notebook.settings import NotebookSettings
from detent.flows.notebook.state.machine import ROWS
from detent.flows.notebook.state.state_checks import check_state
from detent.flows.notebook.state.state_json import json_schema, read_state
from detent.kernel.run import Run
from detent.kernel.status import Status
from tests.flows.notebook.samples import driven, history, log_lines, running

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
FIRST_STAGE = 30
"""Moves that cover the first stage and a little more."""


@dataclass(frozen=True)
class Whole:
    """A run that has ended, and what can be read of it."""

    run: Run
    transitions: list[Transition]
    lines: list[Mapping[str, Any]]
    finished: Finished
    notebook: Path
    table: bytes
    folder: Path

    @property
    def view(self) -> NotebookRun:
        return NotebookRun(self.run.data)

    def code(self) -> list[NotebookCell]:
        """The exported code cells."""
        return [cell for cell in self.finished.cells if cell.cell_type == "code"]


async def whole_run(folder: Path) -> Whole:
    async with running(folder) as engine:
        run = await driven(engine, folder, verify=True)
        told = await history(engine, run.id)
        return Whole(
            run, told, await log_lines(engine, run.id), await finished_notebook(engine.store, run),
            await deliver(engine.store, run, folder / "out" / "houses.ipynb"),
            (folder / "houses.csv").read_bytes(), folder,
        )  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    return asyncio.run(whole_run(tmp_path_factory.mktemp("whole")))


def rows(transitions: list[Transition]) -> list[str]:
    """The row of the table by which each transition was made."""
    listed = {(row.state.value, row.event.value, row.to.value): row.number for row in reversed(ROWS)}
    return [listed[t.before, t.name, t.to] for t in transitions[1:]]


def texts_of(cell: NotebookCell) -> list[str]:
    """The texts of a cell's outputs, as the notebook file has them."""
    told = [output.get("text") or output.get("data", {}).get("text/plain") for output in cell.outputs]
    return ["".join(text) for text in told if text]


class TestTheRun:
    """N-01 to N-13, N-23, N-32, N-52, N-92."""

    def test_it_ends_complete(self, whole):
        assert (whole.run.status, whole.run.state) == (Status.SUCCEEDED, "WORKFLOW_COMPLETE")
        result = result_of(whole.run)
        assert (result["target"], result["task"], result["verified"]) == ("price", "regression", True)
        assert set(result["locked"]) == {'cv_metrics["r2"] > 0.5', 'test_performance["r2"] > 0.5'}
        assert all(result["locked"].values())

    def test_stages_and_steps_are_passed_in_planned_order(self, whole):
        reading = whole.view.reading
        planned = [stage.id for stage in plan_stages(reading).stages]
        stages = whole.view.document.stages
        assert [stage.stage_id for stage in stages.completed] == planned
        assert len(planned) == 8
        entered = [t.state["observation"]["location"]["current"]["step_id"]
                   for t in whole.transitions if t.name == "START_STEP"]  # fmt: skip
        assert entered == [step.id for stage in planned for step in plan_steps(stage, reading).steps]
        assert len(entered) == 34

    def test_every_move_is_a_row_of_the_table(self, whole):
        """N-03, N-05, N-07, N-09, N-11, N-13: entered and left as listed, COMPLETE_ACTION once a behavior."""
        for earlier, later in zip(whole.transitions, whole.transitions[1:], strict=False):
            assert later.before == earlier.to
        names = [t.name for t in whole.transitions]
        assert names.count("COMPLETE_ACTION") == names.count("START_BEHAVIOR")
        assert rows(whole.transitions)[:2] == ["1", "2"]
        assert rows(whole.transitions)[-1] == "6c"

    def test_every_completed_step_has_measured_artifacts(self, whole):
        """N-01, N-12, N-35: each artifact was there after its step, and none but deprecated ones is gone."""
        for transition in whole.transitions:
            if transition.to == "STEP_COMPLETED":
                steps = transition.state["observation"]["location"]["progress"]["steps"]
                expected = [item["name"] for item in steps["current_outputs"]["expected"]]
                assert set(expected) <= set(steps["current_outputs"]["produced"])
                assert set(expected) <= set(transition.state["state"]["variables"])

    def test_a_behavior_is_closed_as_success_with_what_it_has_produced(self, whole):
        """N-65."""
        closed = [t for t in whole.transitions if t.name == "TRANSITION_TO_COMPLETE_STEP"]
        assert len(closed) == 34
        for transition in closed:
            last = transition.state["observation"]["location"]["progress"]["behaviors"]["completed"][-1]
            assert last["completion_status"] == "success"
            assert last["artifacts_produced"]

    def test_cells_carry_where_they_were_written(self, whole):
        """N-08."""
        for cell in whole.code():
            told = cell.metadata["detent"]
            assert told["behavior_id"].startswith(f"{told['step_id']}_b")
            assert (told["iteration"], told["mode"], told["role"]) == (1, "deterministic", "action_generator")

    def test_it_has_a_model_charts_and_a_card(self, whole):
        """N-92."""
        files = whole.notebook.with_name("houses_files")
        assert (files / "models" / "model.pkl").stat().st_size > 0
        charts = list((files / "outputs" / "eda").glob("*.png"))
        assert len(charts) >= 6
        assert "Limitations" in (files / "outputs" / "model_card.md").read_text(encoding="utf-8")
        assert json.loads((files / "outputs" / "metrics.json").read_text(encoding="utf-8"))

    def test_the_model_scores_rows_from_a_shell(self, whole):
        """N-92, N-110 in part: the script works where it is delivered, from another folder."""
        script = whole.notebook.with_name("houses_files") / "outputs" / "predict.py"
        new = whole.folder / "new.csv"
        new.write_text("rooms,area\n3,100\n,80\n", encoding="utf-8")
        told = subprocess.run(
            [sys.executable, str(script), str(new)], cwd=whole.folder, capture_output=True, text=True,
            check=True,
        )  # fmt: skip
        lines = told.stdout.split()
        assert lines[0] == "prediction"
        assert 70_000 < float(lines[1]) < 140_000
        assert len(lines) == 3

    def test_the_users_file_is_as_it_was(self, whole):
        """N-109 in part."""
        assert (whole.folder / "work" / "assets" / "houses.csv").read_bytes() == whole.table
        assert not any(re.search(r"^\s*(import|from) detent", cell.source, re.M) for cell in whole.code())


class TestTheStates:
    """N-02, N-04, N-06, N-08, N-10, N-55 to N-60."""

    def test_every_exported_state_fits_schema_and_row(self, whole):
        import jsonschema

        validator = jsonschema.Draft202012Validator(json_schema())
        for transition in whole.transitions:
            validator.validate(transition.state)
            assert check_state(read_state(transition.state)) == ()
            assert transition.state["state"]["FSM"]["state"] == transition.to

    def test_timestamps_have_a_zone_and_never_go_back(self, whole):
        stamps = [t.state["state"]["FSM"]["timestamp"] for t in whole.transitions[1:]]
        assert all(stamp.endswith("+00:00") for stamp in stamps)
        assert stamps == sorted(stamps)

    def test_a_new_run_knows_the_problem_and_nothing_else(self, whole):
        """N-02, N-18."""
        first = whole.transitions[0].state
        assert first["state"]["variables"] == {
            "user_problem": "Predict price; R2 > 0.5", "user_submit_files": ["assets/houses.csv"],
        }  # fmt: skip
        assert first["state"]["notebook"]["cell_count"] == 0
        assert set(first["observation"]["location"]["current"].values()) == {None}

    def test_outputs_are_current_in_their_iteration_and_history_afterwards_none_lost_or_doubled(self, whole):
        """N-34, N-58."""
        seen: list[str] = []
        for transition in whole.transitions:
            effects = transition.state["state"]["effects"]
            if transition.name == "COMPLETE_ACTION":
                seen += effects["current"]
            if transition.name == "START_BEHAVIOR":
                assert effects["current"] == []
            assert [*effects["history"], *effects["current"]] == seen
        printed = [text[:1900] for cell in whole.code() for text in texts_of(cell)]
        assert [text[:1900] for text in seen] == printed

    def test_the_notebook_is_summed_up_as_it_stands(self, whole):
        """N-59: counted against the cells themselves, after every transition."""
        cells = whole.finished.cells
        title = cells[0].source.removeprefix("# ")
        assert {t.state["state"]["notebook"]["title"] for t in whole.transitions[1:]} == {title}
        counts = [t.state["state"]["notebook"]["cell_count"] for t in whole.transitions]
        assert counts == sorted(counts)
        assert counts[-1] == len(cells)
        last = whole.transitions[-1].state["state"]["notebook"]
        assert last["last_cell_type"] == cells[-1].cell_type
        assert whole.view.document.state.notebook.last_output == "".join(texts_of(whole.code()[-1]))
        assert last["notebook_id"] == whole.run.id

    def test_variables_are_described_where_they_are_no_plain_values(self, whole):
        """N-57: a table in one line, a file by its path, plain values as they are."""
        variables = whole.transitions[-1].state["state"]["variables"]
        assert variables["models/model.pkl"] == "models/model.pkl"
        assert variables["test_performance"]["n"] == 12
        frames = [v for v in variables.values() if isinstance(v, str) and v.startswith("DataFrame ")]
        assert any(re.fullmatch(r"DataFrame \d+ x \d+", frame) for frame in frames)


class TestTheNotebook:
    """N-36, N-37, N-72, N-73, N-95."""

    def test_it_is_valid_and_has_outputs(self, whole):
        notebook = nbformat.read(whole.notebook, as_version=4)
        nbformat.validate(notebook)
        assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)
        assert notebook.metadata["detent"]["verified"] is True
        codes = [cell for cell in notebook.cells if cell.cell_type == "code"]
        assert all(cell.outputs for cell in codes)
        assert not [out for cell in codes for out in cell.outputs if out.output_type == "error"]

    def test_it_holds_no_attempt_that_failed_and_no_heading_or_import_twice(self, whole):
        headings = [cell.source for cell in whole.finished.cells if cell.source.startswith("#")
                    and cell.cell_type == "markdown"]  # fmt: skip
        assert len(headings) == len(set(headings))
        sources = [cell.source for cell in whole.code()]
        assert len(sources) == len(set(sources))
        only_imports = [
            source for source in sources
            if all(re.match(r"import |from |#|\s*$", line) for line in source.splitlines())
        ]  # fmt: skip
        assert len(only_imports) <= 1
        assert all(cell.status == "ok" for cell in whole.view.live if cell.is_code)

    def test_text_about_results_stands_behind_the_cell_that_printed_them(self, whole):
        """N-37: lead, code, result; and every figure of a result is a kernel value (N-72)."""
        by_behavior: dict[str, list[Any]] = {}
        for cell in whole.view.live:
            if cell.behavior is not None:
                by_behavior.setdefault(cell.behavior, []).append(cell)
        for cells in by_behavior.values():
            kinds = [cell.kind for cell in cells]
            assert kinds[:2] == ["text", "code"]
            assert kinds.count("code") == 1

    def test_figures_in_result_texts_are_kernel_values(self, whole):
        """N-72: the hold-out's score as the text gives it, digit by digit."""
        variables = whole.view.document.variables
        result = [cell.source for cell in whole.view.live if cell.step == "holdout_evaluation"][-1]
        score = variables["test_performance"]["r2"]
        figures = [float(f.replace(",", "")) for f in re.findall(r"\d[\d,]*\.\d+", result)]
        assert any(abs(figure - score) < 5e-4 for figure in figures), result
        stability = [cell.source for cell in whole.view.live if cell.step == "multi_variation_analysis"][-1]
        assert f"{variables['stability_metrics']['variation_coefficient']:.3f}" in stability

    def test_its_own_re_execution_has_passed(self, whole):
        assert dict(whole.run.data["verified"])["passed"] is True


class TestTheFigures:
    """N-82, N-83."""

    def test_they_follow_their_definitions(self, whole):
        metrics = metrics_of(whole.view)
        plain = metrics.to_plain()
        names = [t.name for t in whole.transitions]
        assert plain["retry_rate"] == pytest.approx(
            names.count("COMPLETE_ACTION") / names.count("START_STEP")
        )
        assert plain["acceptance_pass_rate"] == 1
        assert plain["artifact_completion"] == 1
        assert plain["variable_coverage"] == 1
        assert plain["overall_progress"] == 1

    def test_claims_of_code_equal_the_measurement(self, whole):
        """N-45: nothing that the deterministic reflectors write is overruled."""
        reports = [line["claims"] for line in whole.lines if "claims" in line]
        assert len(reports) >= 68
        assert [report["mismatches"] for report in reports if report["mismatches"]] == []
        assert sum(report["claims"] for report in reports) > 300


def test_every_cell_follows_from_the_problem_and_the_settings(whole):
    """N-16 beyond the first stage: written again without a kernel, each cell is the one of the run."""
    defined: set[str] = set()
    settings = NotebookSettings()
    kitchen = Kitchen(whole.view.reading, RecipeSettings(seed=settings.seed, jobs=settings.jobs))
    checked = 0
    for cell in whole.view.live:
        if not cell.is_code:
            continue
        closes = CLOSING in assigned_names(cell.source)
        criteria = list(closing_criteria(cell.step, whole.view.reading)) if closes else []
        recipe = recipe_for(cell.step, kitchen, [CLOSING] if closes else [], criteria, defined)
        assert recipe.code == cell.source, cell.step
        defined |= assigned_names(cell.source)
        checked += 1
    assert checked == 42


def test_a_second_execution_prints_and_scores_the_same(whole):
    """N-16: the re-execution in a fresh kernel and an empty folder, cell by cell, against the run itself."""
    effects = whole.transitions[-1].state["state"]["effects"]
    printed = [text[:1900] for cell in whole.code() for text in texts_of(cell)]
    assert [text[:1900] for text in (*effects["history"], *effects["current"])] == printed
    assert any("cross_validation" in str(cell.metadata) for cell in whole.code())


async def test_a_second_run_writes_the_same(whole, tmp_path):
    """N-16: transitions, cells and outputs of the first stage, from another folder."""
    async with running(tmp_path) as engine:
        run = await driven(engine, tmp_path, moves=FIRST_STAGE)
        again = await history(engine, run.id)
    assert [(t.name, t.to) for t in again] == [(t.name, t.to) for t in whole.transitions[: len(again)]]
    ours, theirs = NotebookRun(run.data).cells, whole.view.cells[: len(run.data["cells"])]
    assert [(cell.kind, cell.source, cell.count) for cell in ours] == [
        (cell.kind, cell.source, cell.count) for cell in theirs
    ]
    variables = again[-1].state["state"]["variables"]
    assert variables == whole.transitions[len(again) - 1].state["state"]["variables"]
