"""The finished notebook executed again from nothing, and its results compared with the run's."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from detent.adapters.jupyter.cell_result import VariableInfo
from detent.adapters.jupyter.comparison import difference
from detent.adapters.jupyter.errors import KernelDied
from detent.adapters.jupyter.port import NotebookKernel
from detent.flows.notebook.exports.cell import NotebookCell
from detent.flows.notebook.exports.cell_outputs import notebook_outputs
from detent.kernel.errors import InvalidValue

ASSETS = "assets"
FILE_TOLERANCE = 0.05
"""Share by which the size of a file may differ: pictures and models hold versions and dates."""


@dataclass(frozen=True, slots=True)
class Check:
    """What must hold once a cell has been executed."""

    cell_id: str
    criteria: Sequence[str] = ()
    """Expressions that must be True."""
    artifacts: Mapping[str, VariableInfo] = field(default_factory=dict)
    """What the run had after this cell, by name. A name with a `/` is a file or a folder in the work folder,
    of which `size` is the number of bytes."""


@dataclass(frozen=True, slots=True)
class Reexecution:
    """The result of executing a notebook again."""

    cells: tuple[NotebookCell, ...]
    """All cells; those that were executed with the outputs of this execution, the others with none."""
    passed: bool = True
    cell_id: str | None = None
    """The first cell that differs."""
    why: str = ""


async def reexecute(
    cells: Sequence[NotebookCell],
    *,
    kernel: NotebookKernel,
    work: Path,
    files: Mapping[str, Path],
    env: Mapping[str, str],
    checks: Sequence[Check] = (),
    cell_timeout: float = 300.0,
    criterion_timeout: float = 30.0,
) -> Reexecution:
    """Execute the cells from top to bottom until one differs from the run.

    `kernel` is a new one; it is started in the empty folder `work`, where `files` lie under `assets/` by the
    names they are given, and it is shut down at the end.

    Raises:
        InvalidValue: the work folder is not empty, or a check belongs to no cell.
        KernelNotStarted: the kernel cannot be started.
    """
    unknown = {check.cell_id for check in checks} - {cell.cell_id for cell in cells}
    if unknown:
        raise InvalidValue(
            f"There are checks after cells that the notebook does not have: {sorted(unknown)}."
        )
    await asyncio.to_thread(_prepare, work, files)
    try:
        await kernel.start(cwd=work, env=env)
        return await _execute(cells, kernel, work, checks, cell_timeout, criterion_timeout)
    finally:
        await kernel.shutdown()


def _prepare(work: Path, files: Mapping[str, Path]) -> None:
    work.mkdir(parents=True, exist_ok=True)
    if any(work.iterdir()):
        raise InvalidValue(f"A notebook is executed again in an empty folder, and {work} is not empty.")
    assets = work / ASSETS
    assets.mkdir()
    for name, path in files.items():
        if Path(name).name != name:
            raise InvalidValue(f"'{name}' is no name of a file in `{ASSETS}/`.")
        shutil.copyfile(path, assets / name)


async def _execute(
    cells: Sequence[NotebookCell],
    kernel: NotebookKernel,
    work: Path,
    checks: Sequence[Check],
    cell_timeout: float,
    criterion_timeout: float,
) -> Reexecution:
    done: list[NotebookCell] = []
    for place, cell in enumerate(cells):
        why = None
        if cell.cell_type == "code":
            result = await kernel.execute(cell.source, cell_id=cell.cell_id, timeout=cell_timeout)
            outputs = notebook_outputs(result.outputs)
            cell = replace(cell, outputs=outputs, execution_count=result.execution_count)
            if result.status != "ok":
                why = f"the cell ended with {result.error or result.status}"
        done.append(cell)
        for check in checks:
            if why is None and check.cell_id == cell.cell_id:
                why = await _failure(kernel, work, check, criterion_timeout)
        if why is not None:
            rest = [_without_outputs(other) for other in cells[place + 1 :]]
            return Reexecution((*done, *rest), passed=False, cell_id=cell.cell_id, why=why)
    return Reexecution(tuple(done))


def _without_outputs(cell: NotebookCell) -> NotebookCell:
    return replace(cell, outputs=(), execution_count=None)


async def _failure(kernel: NotebookKernel, work: Path, check: Check, timeout: float) -> str | None:
    """The first thing that does not hold."""
    expressions = {str(place): criterion for place, criterion in enumerate(check.criteria)}
    results = await kernel.evaluate(expressions, timeout=timeout)
    for key, criterion in expressions.items():
        if not results[key].truth:
            return f"the criterion `{criterion}` gave {results[key].error or results[key].value_repr}"
    variables = [name for name in check.artifacts if "/" not in name]
    try:
        found = await kernel.inspect(variables)
    except KernelDied:
        return "the kernel died while its variables were compared"
    for name, expected in check.artifacts.items():
        if "/" in name:
            other = await asyncio.to_thread(_file_difference, work, name, expected)
        else:
            other = difference(expected, found[name])
        if other is not None:
            return f"`{name}` {other}"
    return None


def _file_difference(work: Path, name: str, expected: VariableInfo) -> str | None:
    size = file_size(work / name)
    if size is None:
        return "does not exist"
    if expected.size is not None and abs(size - expected.size) > FILE_TOLERANCE * expected.size:
        return f"has {size} bytes, not {expected.size}"
    return None


def file_size(path: Path) -> int | None:
    """Bytes of a file, or of all files in a folder; None if there is neither."""
    if path.is_dir():
        return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    return path.stat().st_size if path.is_file() else None
