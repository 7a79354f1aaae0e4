"""Decides when the files of runs in the project's folder are deleted: automatically if nothing can need them,
otherwise when a person purges; never while a rollback may still need them (decision 13).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from pathlib import Path
from typing import Any

from detent.adapters.project.cleanup import Cleanup
from detent.engine import logger
from detent.engine.journal_reader import load, rows_of
from detent.engine.ports import RunQuery, RunRow, Store
from detent.flows.workflow.run_data import ROLLBACK_ERRORS, ROLLED_BACK
from detent.flows.workflow.spec import FAILED
from detent.kernel.entries import Started
from detent.kernel.ids import ROOT, guessed_root
from detent.kernel.run import Run
from detent.kernel.run_config import ORIGIN
from detent.kernel.status import ENDS, OPEN, Status
from detent.runtime.plugs import Purged


class Keeping:
    """The files of a project's runs."""

    def __init__(self, state: Path) -> None:
        self._leftovers = Cleanup(state)

    async def ended(self, store: Store, run: Run) -> None:
        """Delete the effect notes of a run that succeeded: it never again asks whether an effect happened."""
        if run.status is not Status.SUCCEEDED or not _owns_folder(run.id, run.config):
            return
        if not self._leftovers.of(run.id):
            return
        if [row async for row in _roots(store, OPEN) if row.id.startswith(f"{run.id}.")]:
            return  # begun by an earlier version, which kept its files in this run's folder
        dropped = await asyncio.to_thread(self._leftovers.drop_notes, run.id)
        logger.debug("run.tidied", run_id=run.id, files=dropped)

    async def purge(self, store: Store, run_id: str) -> Purged:
        """Delete the files of a run that has ended, unless a run that has not may need them."""
        row = await store.row(run_id)
        if row.parent is not None or not _owns_folder(run_id, await _config(store, run_id)):
            return Purged(0)
        if not self._leftovers.of(run_id):
            return Purged(0)
        if not row.now.status.is_end:
            return Purged(0, (f"{run_id}: it has not ended",))
        needing = (await _needed(store, None)).get(run_id)
        if needing is not None:
            return Purged(0, (f"{run_id}: {needing} has not ended",))
        return Purged(await asyncio.to_thread(self._leftovers.drop_all, run_id))

    async def purge_older(self, store: Store, before: float) -> Purged:
        """Delete the files of runs that ended before a time and cannot be resumed."""
        needed = await _needed(store, before)
        files = 0
        async for row in _roots(store, ENDS):
            over = row.now.updated_at < before and row.id not in needed and self._leftovers.of(row.id)
            if over and _owns_folder(row.id, await _config(store, row.id)) and await _is_over(store, row):
                files += await asyncio.to_thread(self._leftovers.drop_all, row.id)
        return Purged(files + await asyncio.to_thread(self._leftovers.drop_strays, before))


async def _needed(store: Store, before: float | None) -> dict[str, str]:
    """Root runs whose files another run needs, with that run: one that has not ended, or not before a time.

    A fork restores files that its original run has changed.
    """
    needed: dict[str, str] = {}
    async for row in _roots(store, OPEN if before is None else ()):
        if row.now.status in OPEN or (before is not None and row.now.updated_at >= before):
            config = await _config(store, row.id)
            for root in (config.get(ORIGIN), config.get(ROOT) or guessed_root(row.id)):
                if root and root != row.id:
                    needed[str(root)] = row.id
    return needed


def _owns_folder(root: str, config: Mapping[str, Any]) -> bool:
    """Whether a root run has a folder of its own: earlier versions kept the files of `a.b` in that of `a`."""
    return bool((config.get(ROOT) or guessed_root(root)) == root)


async def _config(store: Store, run_id: str) -> Mapping[str, Any]:
    (first,) = await store.entries(run_id, 0, 1)
    return first.body.config if isinstance(first.body, Started) else {}


async def _is_over(store: Store, row: RunRow) -> bool:
    """Whether a run that has ended cannot be resumed, and all its rollbacks succeeded."""
    if row.now.status is Status.SUCCEEDED:
        return True
    run = await load(store, row.id)
    return not run.data.get(ROLLBACK_ERRORS) and (run.state == FAILED or ROLLED_BACK in run.data)


def _roots(store: Store, status: Collection[Status]) -> AsyncIterator[RunRow]:
    return rows_of(store, RunQuery(status=status, roots_only=True))
