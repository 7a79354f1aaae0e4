"""The notebook as a file of nbformat. N-95, N-99."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import nbformat
import pytest

from detent.adapters.jupyter.cell_result import Output
from detent.flows.notebook.exports.cell_outputs import notebook_output
from detent.flows.notebook.exports.ipynb import BANNER_ID, notebook_file
from detent.kernel.errors import InvalidValue
from tests.flows.notebook.exports.samples import CELLS, FACTS, code, text


def read(content: bytes) -> Any:
    """The notebook in a file, validated."""
    document = nbformat.reads(content.decode(), as_version=4)
    nbformat.validate(document)
    return document


class TestNotebookFile:
    def test_it_is_valid_and_holds_cells_and_outputs(self) -> None:
        document = read(notebook_file(CELLS, FACTS))
        assert (document.nbformat, document.nbformat_minor) == (4, 5)
        assert [cell.id for cell in document.cells] == [cell.cell_id for cell in CELLS]
        assert [cell.source for cell in document.cells] == [cell.source for cell in CELLS]
        assert [len(cell.outputs) for cell in document.cells if cell.cell_type == "code"] == [3, 2, 1]
        assert document.cells[4].execution_count == 1
        assert document.cells[4].metadata.detent.stage_id == "one"
        assert document.cells[4].outputs[0].text.startswith("a < b\n")

    def test_it_says_what_it_is_of(self) -> None:
        metadata = read(notebook_file(CELLS, FACTS)).metadata
        assert metadata.kernelspec == {"name": "python3", "display_name": "Python 3", "language": "python"}
        assert metadata.detent.run_id == "nb-7f3a"
        assert metadata.detent.verified is True
        assert metadata.detent.metrics.test_performance.n == 586
        assert metadata.detent.problem == FACTS.problem

    def test_a_number_that_json_cannot_hold_is_null(self) -> None:
        def refuse(name: str) -> None:
            raise AssertionError(name)

        content = json.loads(notebook_file(CELLS, FACTS), parse_constant=refuse)
        assert content["metadata"]["detent"]["metrics"]["gap"] is None

    def test_equal_input_gives_equal_bytes(self) -> None:
        assert notebook_file(CELLS, FACTS) == notebook_file(tuple(CELLS), replace(FACTS))

    def test_a_banner_is_the_first_cell(self) -> None:
        document = read(notebook_file(CELLS, replace(FACTS, banner="**Not achieved.**")))
        assert (document.cells[0].id, document.cells[0].source) == (BANNER_ID, "**Not achieved.**")
        assert len(document.cells) == len(CELLS) + 1

    def test_half_a_character_does_not_stop_the_export(self) -> None:
        document = read(notebook_file([text("a\ud800b"), code("'\udfff'")], FACTS))
        assert document.cells[0].source == "a\\ud800b"

    def test_cells_that_the_format_forbids_are_refused(self) -> None:
        with pytest.raises(nbformat.ValidationError):
            notebook_file([code("1", {"output_type": "stream", "text": "no name"})], FACTS)

    def test_two_cells_of_one_id_are_refused(self) -> None:
        with pytest.raises(InvalidValue, match="code0001"):
            notebook_file([code("1"), code("2")], FACTS)

    def test_an_empty_notebook_is_valid(self) -> None:
        assert read(notebook_file([], FACTS)).cells == []


class TestOutputs:
    """The kernel's outputs are written as the format wants them."""

    @pytest.mark.parametrize(
        ("output", "expected"),
        [
            (Output("stream", "数\n", "stdout"), {"output_type": "stream", "name": "stdout", "text": "数\n"}),
            (
                Output("execute_result", "2", data={"text/plain": "2"}, execution_count=3),
                {
                    "output_type": "execute_result",
                    "data": {"text/plain": "2"},
                    "metadata": {},
                    "execution_count": 3,
                },
            ),
            (
                Output("display_data", "x", data={"image/png": "AA"}, metadata={"width": 1}),
                {"output_type": "display_data", "data": {"image/png": "AA"}, "metadata": {"width": 1}},
            ),
            (
                Output("error", "t", ename="KeyError", evalue="'a'", traceback=("t",)),
                {"output_type": "error", "ename": "KeyError", "evalue": "'a'", "traceback": ["t"]},
            ),
        ],
    )
    def test_an_output(self, output: Output, expected: dict[str, Any]) -> None:
        assert notebook_output(output) == expected
        read(notebook_file([code("x", notebook_output(output))], FACTS))
