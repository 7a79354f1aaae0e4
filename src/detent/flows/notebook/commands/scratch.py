"""A file of actions, played into a notebook of its own."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from detent.flows.notebook.cells import HEADINGS, cell_id
from detent.flows.notebook.exports.cell import NotebookCell, NotebookFacts
from detent.flows.notebook.exports.cell_outputs import notebook_outputs
from detent.flows.notebook.exports.ipynb import notebook_document
from detent.flows.notebook.flow import jupyter_kernel
from detent.flows.notebook.payloads.payload_error import PayloadError
from detent.flows.notebook.payloads.reading import read_payload
from detent.flows.notebook.payloads.values import Actions
from detent.flows.notebook.roles.generation import KINDS
from detent.flows.notebook.settings import NotebookSettings
from detent.kernel.errors import ConfigurationError


def actions_of(file: Path) -> Actions:
    """The actions in a file.

    Raises:
        ConfigurationError: it cannot be read.
    """
    try:
        read = read_payload(file.read_bytes(), expected="T4")
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {error.strerror}.") from None
    except PayloadError as error:
        raise ConfigurationError(f"{file}: {error}") from None
    assert isinstance(read.value, Actions)
    return read.value


async def play(
    actions: Actions, title: str, settings: NotebookSettings, *, execute: bool
) -> tuple[dict[str, Any], bool]:
    """The notebook that actions make, and whether a cell raised."""
    cells: list[NotebookCell] = []
    raised = False
    with tempfile.TemporaryDirectory(prefix="detent-scratch-") as folder:
        kernel = jupyter_kernel(settings)(Path(folder), 1) if execute else None
        try:
            if kernel is not None:
                await kernel.start(cwd=Path(folder), env={})
            for number, action in enumerate(actions.actions):
                if action.kind not in KINDS or raised:
                    continue
                kind = KINDS[action.kind]
                name = cell_id("scratch", number, action.text)
                if kind != "code":
                    cells.append(NotebookCell(name, "markdown", HEADINGS.get(kind, "") + action.text))
                    continue
                if kernel is None:
                    cells.append(NotebookCell(name, "code", action.text))
                    continue
                result = await kernel.execute(action.text, cell_id=name, timeout=settings.cell_timeout)
                raised = result.status != "ok"
                outputs = notebook_outputs(result.outputs)
                cells.append(NotebookCell(name, "code", action.text, outputs, result.execution_count))
        finally:
            if kernel is not None:
                await kernel.shutdown()
    facts = NotebookFacts(title=title, run_id="scratch", problem="")
    return notebook_document(cells, facts), raised
