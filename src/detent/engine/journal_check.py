"""Whether every journal of a store can be read, adds up, and says what the run's row says."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

from detent.engine.derived import row_of
from detent.engine.journal_reader import read
from detent.engine.ports import RunQuery, RunRow, Store
from detent.kernel.errors import RunDamaged, StoreError, name_of
from detent.kernel.run import Run

PAGE = 200
COMPARED = ("status", "state", "steps", "tokens", "version", "fingerprint", "wake_at")
"""What a row must say as its journal does."""


class Finding(NamedTuple):
    """What is wrong with one run."""

    run: str
    what: str


async def check_journals(
    store: Store, progress: Callable[[int], None] | None = None
) -> AsyncIterator[Finding]:
    """What is wrong with the journals of a store; `progress` is called with the number checked so far."""
    cursor: int | None = None
    number = 0
    while True:
        page = await store.rows(RunQuery(before=cursor, limit=PAGE, tolerant=True))
        for damaged in page.damaged:
            yield Finding(damaged.run_id, damaged.what)
        for row in page.rows:
            if (problem := await _wrong(store, row)) is not None:
                yield Finding(row.id, problem)
        number += len(page.rows) + len(page.damaged)
        if progress is not None:
            progress(number)
        if page.next is None:
            return
        cursor = page.next


async def _wrong(store: Store, row: RunRow) -> str | None:
    for _ in range(3):
        problem = await _compared(store, row)
        if problem is None:
            return None
        again = await store.row(row.id)
        if again.seq == row.seq:
            return problem
        row = again  # it went on while it was read
    return None


async def _compared(store: Store, row: RunRow) -> str | None:
    run = Run(row.id)
    try:
        async for entry in read(store, row.id):
            if entry.seq > row.seq:
                break
            if entry.seq != run.seq + 1:
                return f"its journal has no entry {run.seq + 1:,}"
            run.apply(entry)
        if run.seq != row.seq:
            return f"its journal ends at entry {run.seq:,} of {row.seq:,}"
        now = row_of(run)
    except RunDamaged as error:
        return error.what
    except StoreError:
        raise
    except Exception as error:
        return f"its journal cannot be read at entry {run.seq + 1:,}: {type(error).__name__}: {error}"
    for name in COMPARED:
        folded, listed = name_of(getattr(now, name)), name_of(getattr(row.now, name))
        if folded != listed:
            return f"its journal says {name} {folded}, its row says {listed}"
    return None
