"""Writes a run's notebook and files where its user wants them."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from detent.flows.notebook.exports.html import notebook_page
from detent.flows.notebook.exports.ipynb import notebook_file
from detent.flows.notebook.exports.markdown import notebook_markdown
from detent.flows.notebook.finished import Finished, finished_notebook
from detent.flows.notebook.run_view import NotebookRun, RunOptions
from detent.flows.notebook.trace import STATES, write_trace
from detent.flows.notebook.work_folder import folder_name
from detent.kernel.errors import ConfigurationError, nearest
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


def places(out: Path) -> Places:
    """The notebook's file and the folder of all else, from what `--out` says.

    `x.ipynb` has everything else in `x_files`; a folder holds `notebook.ipynb` and all else.
    """
    if out.suffix == ".ipynb":
        return Places(out, out.with_name(f"{out.stem}_files"))
    return Places(out / "notebook.ipynb", out)


def check_places(out: Path) -> None:
    """Check, before a run begins, that its files can be written.

    Raises:
        ConfigurationError: they cannot.
    """
    notebook, files = places(out)
    if notebook.is_dir():
        raise ConfigurationError(f"{notebook} is a folder; a notebook cannot be written there.")
    for folder in (notebook.parent, files):
        there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
        if not there.is_dir():
            raise ConfigurationError(f"{there} is a file; no folder can be made there.")
        if not os.access(there, os.W_OK | os.X_OK):
            raise ConfigurationError(f"{there} cannot be written to.")


async def deliver(store: Store, run: Run, out: Path) -> Path:
    """Write the notebook, its pages and its files; gives the notebook's path. Repeatable from the journal.

    Raises:
        ConfigurationError: the place cannot be written to.
    """
    return _delivered(await finished_notebook(store, run), NotebookRun(run.data).work, places(out))


async def deliver_own(store: Store, run: Run) -> None:
    """Write a run's notebook to its own `--out` and its transitions to its own `--trace`, where it has them.

    Raises:
        ConfigurationError: a place cannot be written to.
    """
    options = NotebookRun(run.data).options
    if options.out is not None:
        await deliver(store, run, Path(options.out))
    if options.trace is not None:
        await write_trace(store, run.id, Path(options.trace))


def own_places(options: RunOptions, run_id: str) -> RunOptions:
    """The options of a fork: it writes beside what its original has written."""

    def beside(place: str | None) -> str | None:
        if place is None:
            return None
        path = Path(place)
        return str(path.with_name(f"{path.stem}-{folder_name(run_id)[:8]}{path.suffix}"))

    return replace(options, out=beside(options.out), trace=beside(options.trace))


def _delivered(finished: Finished, work: Path, there: Places) -> Path:
    notebook, files = there
    try:
        notebook.parent.mkdir(parents=True, exist_ok=True)
        files.mkdir(parents=True, exist_ok=True)
        _replace(notebook, notebook_file(finished.cells, finished.facts))
        for name in DELIVERED:
            if (work / name).is_dir():
                shutil.copytree(work / name, files / name, dirs_exist_ok=True)
        _write_pages(finished, work, files)
    except OSError as error:
        raise ConfigurationError(f"The notebook cannot be written to {notebook}: {error}.") from error
    return notebook


def _write_pages(finished: Finished, work: Path, folder: Path) -> None:
    page = notebook_page(finished.cells, finished.facts, folder=work)
    _replace(folder / "notebook.html", page.encode())
    notebook_markdown(finished.cells, finished.facts).write(folder / "notebook.md")


async def export(store: Store, run: Run, format: str, folder: Path) -> list[Path]:
    """Write one format of a run's notebook, or all of them and the trace, into a folder.

    Raises:
        ConfigurationError: there is no such format, or the folder cannot be written to.
    """
    if format not in FORMATS:
        known = ", ".join(FORMATS)
        raise ConfigurationError(
            f"There is no format '{format}'.{nearest(format, FORMATS)} Formats: {known}."
        )
    try:
        written = _exported(await finished_notebook(store, run), NotebookRun(run.data).work, format, folder)
        if format in ("json", "all"):
            await write_trace(store, run.id, folder)
            written.append(folder / STATES)
    except OSError as error:
        raise ConfigurationError(f"Nothing can be written to {folder}: {error}.") from error
    return written


def _exported(finished: Finished, work: Path, format: str, folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    if format in ("ipynb", "all"):
        body = notebook_file(finished.cells, finished.facts)
        written.append(_replace(folder / "notebook.ipynb", body))
    if format in ("html", "all"):
        page = notebook_page(finished.cells, finished.facts, folder=work)
        written.append(_replace(folder / "notebook.html", page.encode()))
    if format in ("md", "all"):
        notebook_markdown(finished.cells, finished.facts).write(folder / "notebook.md")
        written.append(folder / "notebook.md")
    return written


def _replace(file: Path, body: bytes) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f".{file.name}.part")
    part.write_bytes(body)
    part.replace(file)
    return file
