"""The clean re-execution: the finished notebook once more, in a fresh kernel and an empty folder."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from detent.adapters.jupyter.cell_result import VariableInfo
from detent.engine import logger
from detent.engine.tools import Tool
from detent.flows.notebook.cells import Cell
from detent.flows.notebook.exports.cell import NotebookCell
from detent.flows.notebook.exports.reexecution import Check, file_size, reexecute
from detent.flows.notebook.run_view import CHECKS, NotebookRun
from detent.flows.notebook.settings import NotebookSettings
from detent.kernel.run import Run

if TYPE_CHECKING:
    from detent.adapters.jupyter.port import NotebookKernel

VERIFY = "notebook.verify"
"""The query that executes a run's notebook again."""
EXECUTING_AGAIN = "executing the notebook again from top to bottom"
"""What is shown meanwhile; it takes as long as all cells together."""
FOLDER = ".detent/verified"
"""Folder below the work folder in which outputs wait until the journal has taken them."""

MakeKernel = Callable[[Path, int], "NotebookKernel"]


async def verified(
    view: NotebookRun, settings: NotebookSettings, make: MakeKernel
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Whether the notebook gives the same again, and the outputs of its cells by id."""
    cells = [_exported(cell) for cell in view.live]
    kept = {cell.cell_id for cell in cells}
    checks = [
        check for plain in view.values.get(CHECKS, ()) if (check := _check(plain, view.work)).cell_id in kept
    ]
    assets = view.work / "assets"
    files = {path.name: path for path in assets.iterdir() if path.is_file()} if assets.is_dir() else {}
    with tempfile.TemporaryDirectory(prefix="detent-verify-") as place:
        own = Path(place)
        kernel = make(own / "kernel", 1)
        try:
            again = await reexecute(
                cells, kernel=kernel, work=own / "work", files=files, env=dict(os.environ), checks=checks,
                cell_timeout=settings.cell_timeout * 2, criterion_timeout=settings.criterion_timeout,
            )  # fmt: skip
        finally:
            await kernel.shutdown()
    outputs = {
        cell.cell_id: {"outputs": [*map(dict, cell.outputs)], "execution_count": cell.execution_count}
        for cell in again.cells if cell.cell_type == "code"
    }  # fmt: skip
    logger.info("notebook.verified", passed=again.passed, cell=again.cell_id)
    return {"passed": again.passed, "why": again.why, "cell": again.cell_id}, outputs


async def verify_run(run: Run, settings: NotebookSettings, make: MakeKernel) -> dict[str, Any]:
    """Whether the notebook of a run gives the same again."""
    told, _ = await verified(NotebookRun(run.data), settings, make)
    return told


def verification_tool(settings: NotebookSettings, make: MakeKernel) -> Tool:
    """The query by which a run has its notebook executed again before it ends well."""

    async def verify(cells: int, *, data: Mapping[str, Any]) -> dict[str, Any]:
        """Execute the notebook again, from top to bottom."""
        view = NotebookRun(data)
        told, outputs = await verified(view, settings, make)
        folder = view.work / FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{told['cell'] or 'all'}-{cells}.json"
        (folder / name).write_text(json.dumps(outputs, ensure_ascii=False), encoding="utf-8")
        return {**told, "outputs": name}

    def given(ctx: Any) -> dict[str, Any]:
        names = ("work", "cells", "accepted", "superseded", CHECKS)
        return {"data": {name: ctx.values[name] for name in names if name in ctx.values}}

    return Tool(
        VERIFY, verify, "query", given=given, private=True, for_agents=False, timeout=None,
        description="Execute the notebook again, from top to bottom.",
    )  # fmt: skip


def outputs_of(work: Path, name: str) -> bytes | None:
    """The outputs that a verification has left; None if they are gone."""
    try:
        return (work / FOLDER / name).read_bytes()
    except OSError:
        return None


def check_of(
    cells: Sequence[Cell], criteria: Sequence[str], variables: Mapping[str, Any], files: Sequence[str]
) -> dict[str, Any] | None:
    """What must hold after the last cell of an attempt, as the journal keeps it."""
    codes = [cell for cell in cells if cell.is_code]
    if not codes:
        return None
    return {
        "cell": codes[-1].id, "criteria": list(criteria), "variables": dict(variables), "files": list(files),
    }  # fmt: skip


def _check(plain: Mapping[str, Any], work: Path) -> Check:
    artifacts = {
        name: VariableInfo(
            **{**facts, "shape": None if facts.get("shape") is None else tuple(facts["shape"])}
        )
        for name, facts in plain["variables"].items()
    }
    for name in plain["files"]:
        size = file_size(work / name)
        if size is not None:
            artifacts[name] = VariableInfo(True, size=size)
    return Check(plain["cell"], tuple(plain["criteria"]), artifacts)


def _exported(cell: Cell) -> NotebookCell:
    if cell.is_code:
        return NotebookCell(cell.id, "code", cell.source)
    return NotebookCell(cell.id, "markdown", cell.text)
