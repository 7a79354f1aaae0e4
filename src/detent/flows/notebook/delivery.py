"""Writes a run's notebook and files where its user wants them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from detent.flows.notebook.exports.html import notebook_page
from detent.flows.notebook.exports.ipynb import notebook_file
from detent.flows.notebook.exports.markdown import notebook_markdown
from detent.flows.notebook.finished import finished_notebook
from detent.flows.notebook.run_view import NotebookRun
from detent.flows.notebook.trace import write_trace
from detent.kernel.errors import ConfigurationError
from detent.kernel.run import Run

if TYPE_CHECKING:
    from detent.engine.ports import Store

FORMATS = ("ipynb", "html", "md", "json", "all")
DELIVERED = ("outputs", "models", "assets")
"""Folders of the work folder that are delivered with the notebook."""


class Places(NamedTuple):
    """Where a notebook and what belongs to it are written."""

    notebook: Path
    files: Path


def places(out: Path | None, run_id: str) -> Places:
    """The notebook's file and the folder of all else, from what `--out` says.

    `x.ipynb` has everything else in `x_files`; a folder holds `notebook.ipynb` and all else.
    """
    if out is not None and out.suffix == ".ipynb":
        return Places(out, out.with_name(f"{out.stem}_files"))
    folder = out if out is not None else Path(f"notebook_{run_id[:8]}")
    return Places(folder / "notebook.ipynb", folder)


async def deliver(store: Store, run: Run, out: Path | None) -> Path:
    """Write the notebook, its pages and its files; gives the notebook's path. Repeatable from the journal.

    Raises:
        ConfigurationError: the place cannot be written to.
    """
    notebook, files = places(out, run.id)
    finished = await finished_notebook(store, run)
    try:
        notebook.parent.mkdir(parents=True, exist_ok=True)
        files.mkdir(parents=True, exist_ok=True)
        _replace(notebook, notebook_file(finished.cells, finished.facts))
        work = NotebookRun(run.data).work
        for name in DELIVERED:
            if (work / name).is_dir():
                shutil.copytree(work / name, files / name, dirs_exist_ok=True)
        page = notebook_page(finished.cells, finished.facts, folder=work)
        _replace(files / "notebook.html", page.encode())
        notebook_markdown(finished.cells, finished.facts).write(files / "notebook.md")
    except OSError as error:
        raise ConfigurationError(f"The notebook cannot be written to {notebook}: {error}.") from error
    return notebook


async def export(store: Store, run: Run, format: str, folder: Path) -> list[Path]:
    """Write one format of a run's notebook, or all of them and the trace, into a folder."""
    if format not in FORMATS:
        raise ConfigurationError(f"There is no format '{format}'. Formats: {', '.join(FORMATS)}.")
    folder.mkdir(parents=True, exist_ok=True)
    finished = await finished_notebook(store, run)
    written: list[Path] = []
    if format in ("ipynb", "all"):
        written.append(_replace(folder / "notebook.ipynb", notebook_file(finished.cells, finished.facts)))
    if format in ("html", "all"):
        page = notebook_page(finished.cells, finished.facts, folder=NotebookRun(run.data).work)
        written.append(_replace(folder / "notebook.html", page.encode()))
    if format in ("md", "all"):
        notebook_markdown(finished.cells, finished.facts).write(folder / "notebook.md")
        written.append(folder / "notebook.md")
    if format in ("json", "all"):
        await write_trace(store, run.id, folder)
        written.append(folder / "states")
    return written


def _replace(file: Path, body: bytes) -> Path:
    part = file.with_name(f".{file.name}.part")
    part.write_bytes(body)
    part.replace(file)
    return file
