"""A file of actions, played into a notebook of its own."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from keyword import iskeyword
from pathlib import Path
from typing import Any

from detent.flows.notebook.cells import HEADINGS, cell_id
from detent.flows.notebook.exports.cell import NotebookCell, NotebookFacts
from detent.flows.notebook.exports.cell_outputs import notebook_outputs
from detent.flows.notebook.exports.ipynb import notebook_document
from detent.flows.notebook.flow import jupyter_kernel
from detent.flows.notebook.payloads.payload_error import PayloadError
from detent.flows.notebook.payloads.reading import read_payload
from detent.flows.notebook.payloads.values import Action, Actions
from detent.flows.notebook.roles.generation import KINDS
from detent.flows.notebook.settings import NotebookSettings
from detent.flows.notebook.state.document import StateDocument
from detent.kernel.errors import ConfigurationError
from detent.kernel.plain import to_plain


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
    actions: Actions,
    title: str,
    settings: NotebookSettings,
    *,
    state: StateDocument | None = None,
    execute: bool,
) -> tuple[dict[str, Any], bool]:
    """The notebook that actions make, and whether a cell raised.

    With a state, its headings stand first, and a cell that assigns its variables that are plain values.
    """
    cells: list[NotebookCell] = []
    if state is not None:
        actions = Actions((*_of_state(state), *actions.actions))
        title = state.state.notebook.title or title
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


def _of_state(state: StateDocument) -> Iterator[Action]:
    """The actions that bring a scratch notebook to where a state stands."""
    if state.state.notebook.title:
        yield Action("update_title", state.state.notebook.title)
    if state.stages.current is not None:
        yield Action("update_section_title", state.stages.current.title)
    if state.steps.current is not None:
        yield Action("update_step_title", state.steps.current.title)
    lines = [
        f"{name} = {value!r}"
        for name, value in to_plain(state.variables).items()
        if name.isidentifier() and not iskeyword(name) and not _described(value)
    ]
    if lines:
        yield Action("add_code", "\n".join(lines))


def _described(value: Any) -> bool:
    """Whether a value may be the description of one that is only in a kernel, such as a table."""
    return isinstance(value, str) and value.startswith(("DataFrame ", "Series ", "ndarray ", "<"))
