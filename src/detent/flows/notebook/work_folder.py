"""The folders in which the kernels of runs work: one for each run, below the project's `.detent`."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from detent.engine.journal_reader import rows_of
from detent.engine.ports import RunQuery, RunRow
from detent.kernel.errors import ConfigurationError
from detent.kernel.status import ENDS
from detent.runtime.plugs import Purged

if TYPE_CHECKING:
    from detent.engine.ports import Store

PLACE = Path(".detent") / "notebooks"
COPIED = ("assets", ".detent/outputs", ".detent/verified")
"""Folders that a fork needs of the folder of its original."""
LONGEST_NAME = 120
"""Bytes of a folder's name; the id of a run may be longer."""


def work_folder(project: Path, run_id: str) -> Path:
    """The folder of one run in a project; whether or not it exists."""
    return project / PLACE / folder_name(run_id)


def folder_name(run_id: str) -> str:
    """The name of a run's folder."""
    name = quote(run_id, safe="")
    if len(name) > LONGEST_NAME:
        name = f"{name[: LONGEST_NAME - 17]}-{sha256(run_id.encode()).hexdigest()[:16]}"
    return name


def copy_folder(work: Path, new_id: str) -> Path:
    """A folder beside another run's, for a fork of that run: with its data, and outputs not journaled yet.

    What its cells have written is written again when the fork's kernel executes them.

    Raises:
        ConfigurationError: the other folder is gone, or this one is there already.
    """
    own = work.parent / folder_name(new_id)
    if not work.is_dir():
        raise ConfigurationError(f"{work} is gone, so its run cannot be forked.")
    if own.exists():
        raise ConfigurationError(f"{own} is there already. Choose another --id.")
    for name in COPIED:
        if (work / name).is_dir():
            shutil.copytree(work / name, own / name)
    own.mkdir(parents=True, exist_ok=True)
    return own


async def purge_folders(
    project: Path, store: Store, flow: str, run_id: str | None, before: float | None
) -> Purged:
    """Delete the work folder of a run that has ended, or of all that ended before a time."""
    if run_id is not None:
        row = await store.row(run_id)
        if row.flow != flow or not work_folder(project, run_id).exists():
            return Purged()
        if not row.now.status.is_end:
            return Purged(0, (f"{run_id}: it has not ended",))
        return Purged(delete_folder(work_folder(project, run_id)))
    number = 0
    async for row in _ended(store, flow):
        if before is not None and row.now.updated_at < before:
            number += delete_folder(work_folder(project, row.id))
    return Purged(number)


def _ended(store: Store, flow: str) -> AsyncIterator[RunRow]:
    return rows_of(store, RunQuery(flow, status=ENDS))


def delete_folder(folder: Path) -> int:
    """Delete a folder with all it holds; the number of its files."""
    number = sum(1 for path in folder.rglob("*") if path.is_file())
    shutil.rmtree(folder, ignore_errors=True)
    return number
