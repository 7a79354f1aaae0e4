"""How cells ran."""

import pytest

from detent.adapters.jupyter.cell_result import CellResult, Output
from detent.flows.notebook.measuring.execution import LAST_LINES, measure_execution, output_texts

FINE = CellResult("ok", (Output("stream", "1\n", name="stdout"),))
RAISED = CellResult(
    "error",
    (
        Output("stream", "before\n", name="stdout"),
        Output(
            "error",
            ename="KeyError",
            evalue="'price'",
            traceback=("\x1b[0;31mKeyError\x1b[0m  Traceback", *(f"line {number}" for number in range(30))),
        ),
    ),
    error="KeyError: 'price'",
)
WARNED = CellResult(
    "ok",
    (
        Output("stream", "x.py:1: FutureWarning: old\n  x = 1\nConvergenceWarning: slow\n", name="stderr"),
        Output("stream", "UserWarning: printed, not warned\n", name="stdout"),
    ),
)


class TestExecution:
    """N-41."""

    @pytest.mark.parametrize(
        ("results", "execution", "errors"),
        [
            ([], "success", 0),
            ([FINE, FINE], "success", 0),
            ([FINE, RAISED], "partial", 1),
            ([RAISED], "failed", 1),
            ([FINE, CellResult("timeout", error="TimeoutError")], "partial", 1),
            ([CellResult("died", error="KernelDied")], "failed", 1),
        ],
    )
    def test_cells_that_did_not_end_well_are_counted(self, results, execution, errors):
        quality = measure_execution(results)
        assert quality.code_execution == execution
        assert len(quality.errors) == errors

    def test_warnings_are_lines_of_the_standard_error(self):
        quality = measure_execution([WARNED, FINE])
        assert quality.warnings == ("x.py:1: FutureWarning: old", "ConvergenceWarning: slow")
        assert quality.warnings_found.startswith("2: ")
        assert quality.errors_found == ""

    def test_the_last_lines_of_the_traceback_are_kept_without_colours(self):
        quality = measure_execution([RAISED])
        assert len(quality.traceback) == LAST_LINES
        assert quality.traceback[-1] == "line 29"
        short = CellResult(
            "error", (Output("error", traceback=("\x1b[0;31mKeyError\x1b[0m",)),), error="KeyError"
        )
        assert measure_execution([short]).traceback == ("KeyError",)
        assert measure_execution([RAISED]).errors_found == "1: KeyError: 'price'"


class TestTexts:
    """N-58: effects hold the text of every output in order, and nothing else."""

    def test_streams_results_and_the_summary_of_an_error(self):
        result = CellResult(
            "error",
            (
                Output("stream", "one\n", name="stdout"),
                Output("execute_result", "two"),
                Output("display_data", "", data={"image/png": "…"}),
                Output("stream", "three\n", name="stderr"),
                Output("error", ename="ValueError", evalue="no", traceback=("long",)),
            ),
            error="ValueError: no",
        )
        assert output_texts(result) == ("one\n", "two", "three\n", "ValueError: no")

    def test_a_cell_that_timed_out_says_so(self):
        assert output_texts(CellResult("timeout", error="TimeoutError")) == ("TimeoutError",)
