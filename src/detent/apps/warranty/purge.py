"""Purges the texts of mails: the offloaded values of ended runs."""

from __future__ import annotations

from collections.abc import Iterable

from detent.engine.journal_reader import rows_of
from detent.engine.ports import RunQuery, Store
from detent.kernel.errors import RunNotFound
from detent.kernel.status import ENDS

PURGED = "warranty/purged"
"""Mark: runs created before this time have been handled."""


async def purge_run(store: Store, run_id: str) -> int:
    """Purge the texts of one run, if it exists."""
    try:
        return await store.purge(run_id)
    except RunNotFound:
        return 0


async def purge_texts(store: Store, flows: Iterable[str], before: float, *, all_runs: bool = False) -> int:
    """Purge the texts of runs that ended before a time; returns how many were purged.

    Runs handled by an earlier call are skipped, unless they were still open then, or `all_runs` is set.
    """
    mark, version = await store.mark(PURGED)
    since = None if all_runs or not isinstance(mark, (int, float)) else float(mark)
    dropped, first_kept = 0, before
    for flow in flows:
        async for row in rows_of(store, RunQuery(flow=flow, since=since, until=before)):
            if row.now.status in ENDS and row.now.updated_at < before:
                dropped += await store.purge(row.id)
            else:
                first_kept = min(first_kept, row.created_at)
    if since is None or first_kept > since:
        await store.set_mark(PURGED, first_kept, version)
    return dropped
