"""Reading runs back from a store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

from detent.engine.ports import PAGE, RunQuery, RunRow, Store, Taken
from detent.kernel.entries import Entry
from detent.kernel.errors import RunDamaged, RunNotFound
from detent.kernel.run import Run

ROWS = 200
"""Rows of one page."""


async def load(store: Store, run_id: str) -> Run:
    """The run as its journal says: the saved fold, then the entries after it."""
    return await _added_up(store, run_id, await store.saved_fold(run_id), ())


async def load_taken(store: Store, claim: Taken) -> Run:
    """The run that was claimed with others, from what came with the claim."""
    run_id = claim.lease.run_id
    if claim.entries is None:
        return await load(store, run_id)
    return await _added_up(store, run_id, claim.fold, claim.entries)


async def _added_up(store: Store, run_id: str, saved: dict[str, Any] | None, first: Sequence[Entry]) -> Run:
    """A run from its saved fold, the entries after that which are at hand, and those still to be read."""
    if saved is not None and saved["holds"] and "held_at" not in saved:
        saved, first = None, ()  # saved by version 0.1, which did not number its holds; the journal does
    seq = 0
    try:
        run = Run.from_plain(saved) if saved is not None else Run(run_id)
        for entry in first:
            seq = entry.seq
            run.apply(entry)
        if len(first) % PAGE == 0:  # none, or a whole page of them
            async for entry in read(store, run_id, run.seq):
                seq = entry.seq
                run.apply(entry)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        part = f"journal does not add up at entry {seq:,}" if seq else "saved fold cannot be read"
        raise RunDamaged(run_id, f"its {part}: {type(error).__name__}") from error
    if run.seq == 0:
        raise RunNotFound(run_id)
    return run


async def read(store: Store, run_id: str, after: int = 0) -> AsyncIterator[Entry]:
    """A whole journal, page by page."""
    while True:
        page = await store.entries(run_id, after, PAGE)
        for entry in page:
            yield entry
        if len(page) < PAGE:
            return
        after = page[-1].seq


async def rows_of(store: Store, query: RunQuery) -> AsyncIterator[RunRow]:
    """All rows of a listing, newest first, page by page."""
    query = replace(query, limit=ROWS)
    while True:
        page = await store.rows(query)
        for row in page.rows:
            yield row
        if page.next is None:
            return
        query = replace(query, before=page.next)
