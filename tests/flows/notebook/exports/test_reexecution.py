"""The finished notebook runs again from nothing and gives the same. N-95, N-109."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from detent.adapters.jupyter.cell_result import VariableInfo
from detent.adapters.jupyter.kernel import JupyterKernel, KernelLimits
from detent.flows.notebook.exports.cell import NotebookCell, NotebookFacts
from detent.flows.notebook.exports.ipynb import notebook_file
from detent.flows.notebook.exports.reexecution import Check, Reexecution, file_size, reexecute
from detent.kernel.errors import InvalidValue
from tests.flows.notebook.exports.samples import code, text

LOAD = (
    "import json, os\nfrom pathlib import Path\nimport numpy as np\nimport pandas as pd\n"
    "raw_dataset = pd.read_csv('assets/houses.csv')\nraw_dataset.shape"
)
SPLIT = (
    "rows = raw_dataset.sample(frac=0.5, random_state=42)\n"
    "score = {'rmse': float(rows['price'].std()), 'n': 2}\nprint(score)"
)
SAVE = (
    "Path('outputs').mkdir()\nPath('outputs/metrics.json').write_text(json.dumps(score))\n"
    "open('outputs/model.pkl', 'wb').write(os.urandom(2000))"
)
CELLS = (
    text("# Houses", "title000"),
    code(LOAD, cell_id="load0000"),
    code(SPLIT, {"output_type": "stream", "name": "stdout", "text": "of the run"}, cell_id="split000"),
    text("## End", "end00000"),
    code(SAVE, cell_id="save0000"),
)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A file of the user's."""
    path = tmp_path / "given" / "houses.csv"
    path.parent.mkdir()
    path.write_text("price,area\n100.5,50\n200.25,80\n150.75,60\n300.125,120\n")
    return path


async def again(
    tmp_path: Path,
    data: Path,
    cells: Sequence[NotebookCell] = CELLS,
    checks: Sequence[Check] = (),
    **how: Any,
) -> Reexecution:
    """Execute cells in a new kernel and folder."""
    number = len(list(tmp_path.glob("work*")))
    return await reexecute(
        cells,
        kernel=JupyterKernel(tmp_path / f"run{number}", limits=KernelLimits(memory=3 << 30, grace=1.0)),
        work=tmp_path / f"work{number}",
        files={"houses.csv": data},
        env=os.environ,
        checks=checks,
        **how,
    )


async def measured(tmp_path: Path, data: Path, names: Sequence[str]) -> Mapping[str, VariableInfo]:
    """What the run had after its last cell."""
    work = tmp_path / "first"
    (work / "assets").mkdir(parents=True)
    (work / "assets" / "houses.csv").write_bytes(data.read_bytes())
    kernel = JupyterKernel(tmp_path / "first-run", limits=KernelLimits(memory=3 << 30))
    await kernel.start(cwd=work, env=os.environ)
    for cell in CELLS:
        if cell.cell_type == "code":
            await kernel.execute(cell.source, cell_id=cell.cell_id, timeout=60)
    found = dict(await kernel.inspect([name for name in names if "/" not in name]))
    await kernel.shutdown()
    files = {name: VariableInfo(True, "file", size=file_size(work / name)) for name in names if "/" in name}
    return found | files


class TestReexecution:
    async def test_equal_results_pass_and_the_new_outputs_are_given(self, tmp_path: Path, data: Path) -> None:
        names = ["raw_dataset", "rows", "score", "outputs/metrics.json", "outputs/model.pkl", "outputs/"]
        artifacts = await measured(tmp_path, data, names)
        before = hashlib.sha256(data.read_bytes()).hexdigest()
        checks = [
            Check("load0000", ["len(raw_dataset) == 4"]),
            Check("end00000", ["score['n'] == 2", "not Path('outputs').exists()"]),
            Check("save0000", ["Path('outputs/metrics.json').exists()"], artifacts),
        ]
        result = await again(tmp_path, data, checks=checks)
        assert result.passed, result.why
        assert (result.cell_id, result.why) == (None, "")
        assert [cell.execution_count for cell in result.cells] == [None, 1, 2, None, 3]
        assert result.cells[1].outputs[0]["data"]["text/plain"] == "(4, 2)"
        assert "of the run" not in str(result.cells)
        assert [cell.source for cell in result.cells] == [cell.source for cell in CELLS]
        assert hashlib.sha256(data.read_bytes()).hexdigest() == before
        assert list((tmp_path / "run0").glob("kernel-*")) == []

    async def test_a_cell_that_raises_is_named(self, tmp_path: Path, data: Path) -> None:
        cells = (*CELLS[:2], code("rows.head()", cell_id="early000"), *CELLS[2:])
        result = await again(tmp_path, data, cells)
        assert (result.passed, result.cell_id) == (False, "early000")
        assert "NameError" in result.why
        assert len(result.cells) == len(cells)
        assert result.cells[2].outputs[0]["ename"] == "NameError"
        assert result.cells[3].outputs == ()  # of the run, and not of this execution

    async def test_what_the_run_left_behind_is_not_there(self, tmp_path: Path, data: Path) -> None:
        """A cell that needed a file of a dropped attempt fails here."""
        cells = (code("open('outputs/leftover.csv')", cell_id="left0000"),)
        result = await again(tmp_path, data, cells)
        assert "FileNotFoundError" in result.why
        listing = code("import os; sorted(os.listdir('.')), os.listdir('assets')", cell_id="list0000")
        result = await again(tmp_path, data, [listing])
        assert result.cells[0].outputs[0]["data"]["text/plain"] == "(['assets'], ['houses.csv'])"

    async def test_a_criterion_is_evaluated_at_its_place(self, tmp_path: Path, data: Path) -> None:
        checks = [Check("split000", ["Path('outputs').exists()"]), Check("save0000", ["1 == 2"])]
        result = await again(tmp_path, data, checks=checks)
        assert (result.passed, result.cell_id) == (False, "split000")
        assert "`Path('outputs').exists()` gave False" in result.why

    async def test_a_criterion_that_raises_or_is_only_truthy_fails(self, tmp_path: Path, data: Path) -> None:
        result = await again(tmp_path, data, checks=[Check("load0000", ["nowhere > 1"])])
        assert "NameError" in result.why
        result = await again(
            tmp_path, data, CELLS[:2], checks=[Check("load0000", ["(len(raw_dataset) == 3, 1)"])]
        )
        assert not result.passed

    async def test_a_value_that_comes_out_otherwise_is_named_with_its_cell(
        self, tmp_path: Path, data: Path
    ) -> None:
        cells = (
            code("import random\nscore = {'rmse': random.random()}\ncount = 1", cell_id="rand0000"),
            text("x"),
        )
        run = VariableInfo(True, "dict", size=1, json={"rmse": 0.5}, sha256="0" * 64)
        result = await again(tmp_path, data, cells, [Check("rand0000", artifacts={"score": run})])
        assert (result.passed, result.cell_id) == (False, "rand0000")
        assert result.why.startswith("`score` ['rmse'] is 0.")

    @pytest.mark.parametrize(("size", "passed"), [(2000, True), (2090, True), (2200, False), (1800, False)])
    async def test_files_are_compared_by_size(
        self, tmp_path: Path, data: Path, size: int, passed: bool
    ) -> None:
        cells = (
            code("import os; os.mkdir('f'); open('f/x.png', 'wb').write(bytes(2000))", cell_id="file0000"),
        )
        check = Check("file0000", artifacts={"f/x.png": VariableInfo(True, size=size)})
        result = await again(tmp_path, data, cells, [check])
        assert result.passed is passed

    async def test_a_missing_file_is_a_difference(self, tmp_path: Path, data: Path) -> None:
        check = Check("load0000", artifacts={"outputs/eda/": VariableInfo(True)})
        result = await again(tmp_path, data, CELLS[:2], [check])
        assert result.why == "`outputs/eda/` does not exist"

    @pytest.mark.parametrize("source", ["while True: pass", "import os; os._exit(1)"])
    async def test_a_cell_that_hangs_or_kills_its_kernel_is_named(
        self, tmp_path: Path, data: Path, source: str
    ) -> None:
        result = await again(tmp_path, data, [code(source, cell_id="hang0000")], cell_timeout=0.5)
        assert (result.passed, result.cell_id) == (False, "hang0000")

    async def test_a_folder_that_is_not_empty_is_refused(self, tmp_path: Path, data: Path) -> None:
        (tmp_path / "work0").mkdir()
        (tmp_path / "work0" / "old.csv").touch()
        kernel = JupyterKernel(tmp_path / "run")
        with pytest.raises(InvalidValue):
            await reexecute(CELLS, kernel=kernel, work=tmp_path / "work0", files={}, env={})

    async def test_a_check_after_an_unknown_cell_is_refused(self, tmp_path: Path, data: Path) -> None:
        with pytest.raises(InvalidValue, match="nowhere0"):
            await again(tmp_path, data, checks=[Check("nowhere0", ["1 == 1"])])

    async def test_a_file_lands_in_assets_and_nowhere_else(self, tmp_path: Path, data: Path) -> None:
        kernel = JupyterKernel(tmp_path / "run")
        with pytest.raises(InvalidValue):
            await reexecute(CELLS, kernel=kernel, work=tmp_path / "w", files={"../x.csv": data}, env={})


class TestWithoutDetent:
    def test_the_exported_notebook_runs_where_detent_is_missing(self, tmp_path: Path, data: Path) -> None:
        exported = notebook_file(CELLS, NotebookFacts("Houses", "nb-1", "Predict price."))
        (tmp_path / "notebook.ipynb").write_bytes(exported)
        (tmp_path / "assets").mkdir()
        (tmp_path / "assets" / "houses.csv").write_bytes(data.read_bytes())
        program = (
            "import json, sys\nsys.modules['detent'] = None\n"
            "cells = json.load(open('notebook.ipynb', encoding='utf-8'))['cells']\n"
            "for cell in cells:\n    if cell['cell_type'] == 'code': exec(''.join(cell['source']))\n"
        )
        subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)
        assert json.loads((tmp_path / "outputs" / "metrics.json").read_text())["n"] == 2
