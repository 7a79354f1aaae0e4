"""A run that begins where a state JSON of another origin stands; its listed cells are executed first."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from detent.flows.notebook.cells import ACCEPTED, CELLS, FOREIGN, Cell, attempt_name, cell_id
from detent.flows.notebook.start import ASSETS, prepared
from detent.flows.notebook.state.deltas import to_data
from detent.flows.notebook.state.ledger import RunState
from detent.flows.notebook.state.machine import ENDS
from detent.flows.notebook.state.state_checks import check_state
from detent.kernel.errors import ConfigurationError

if TYPE_CHECKING:
    from detent.flows.notebook.domain.problem import ProblemReading
    from detent.flows.notebook.start import Beginning
    from detent.flows.notebook.state.document import StateDocument


def check_beginning(document: StateDocument) -> None:
    """Check that a run can begin with a state.

    Raises:
        ConfigurationError: it has ended, or lacks what its state demands.
    """
    state = document.fsm.state
    if state in ENDS:
        raise ConfigurationError(f"The state file stands in {state.value}, and nothing follows that.")
    if problems := check_state(document):
        raise ConfigurationError(f"The state file is no {state.value}: {'; '.join(problems)}.")


def problem_of(document: StateDocument) -> str:
    """The problem that a state is about."""
    return str(document.variables.get("user_problem") or "")


def files_of(document: StateDocument, folder: Path) -> list[Path]:
    """The files that a state names; where they are relative, below the folder or the current one."""
    named = document.variables.get("user_submit_files") or ()
    names = [named] if isinstance(named, str) else [str(name) for name in named]
    return [folder / name if (folder / name).is_file() else Path(name) for name in names]


def cells_of(document: StateDocument) -> list[Cell]:
    """The cells that a state lists in `state.notebook.cells`, as those of an accepted attempt.

    Raises:
        ConfigurationError: one of them is no cell.
    """
    extra = document.state.notebook.model_extra or {}
    return [_cell(number, plain) for number, plain in enumerate(extra.get("cells") or (), 1)]


def _cell(number: int, plain: Any) -> Cell:
    kind = _of(plain, "cell_type", "type")
    source = _of(plain, "source", "content")
    if isinstance(source, list):
        source = "".join(map(str, source))
    if kind not in ("code", "markdown") or not isinstance(source, str):
        raise ConfigurationError(
            f"state.notebook.cells: cell {number} needs a cell_type, code or markdown, and a source."
        )
    return Cell(
        cell_id(FOREIGN, number, source), "code" if kind == "code" else "text", source, behavior=FOREIGN,
        iteration=1, role=FOREIGN, status="ok" if kind == "code" else None,
    )  # fmt: skip


def _of(plain: Any, *names: str) -> Any:
    return next((plain[name] for name in names if isinstance(plain, Mapping) and name in plain), None)


def prepared_from(beginning: Beginning, reading: ProblemReading, document: StateDocument) -> dict[str, Any]:
    """The data that a run starts with which begins with a state; the files are copied as for every run.

    Raises:
        ConfigurationError: a run cannot begin with it.
    """
    check_beginning(document)
    cells = cells_of(document)
    data = prepared(beginning, reading)
    paths = [f"{ASSETS}/{file.name}" for file in beginning.files]
    inputs = {"user_problem": beginning.problem, "user_submit_files": paths}
    document = document.changed(variables={**document.variables, **inputs})
    return {
        **data,
        **to_data(None, RunState.of_document(document)).set,
        CELLS: [cell.to_plain() for cell in cells],
        ACCEPTED: [attempt_name(FOREIGN, 1)] if cells else [],
    }
