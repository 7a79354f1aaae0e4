"""A run and its descendants: what each of them has done, for whoever has to undo or retell it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING, NamedTuple

from detent.engine.journals import read
from detent.engine.ports import RunQuery, RunRow, Store
from detent.kernel.entries import Entry, Moved
from detent.kernel.errors import RunNotFound
from detent.kernel.run import Run

if TYPE_CHECKING:
    from detent.engine.engine import Engine
    from detent.engine.flow import Flow


class Past(NamedTuple):
    """One run of a family, as its journal tells it."""

    run: Run
    flow: Flow
    moves: tuple[Entry, ...]


async def family_of(engine: Engine, run_id: str) -> AsyncIterator[Past]:
    """A run and everything below it, parents before their children."""
    row = await engine.store.row(run_id)
    run, moves = Run(run_id), []
    async for entry in read(engine.store, run_id):
        run.apply(entry)
        if type(entry.body) is Moved:
            moves.append(entry)
    yield Past(run, engine.flow(row.flow), tuple(moves))
    async for child in children(engine.store, run_id):
        async for past in family_of(engine, child.id):
            yield past


async def children(store: Store, run_id: str) -> AsyncIterator[RunRow]:
    """The children of a run, newest first."""
    cursor: int | None = None
    while True:
        page = await store.rows(RunQuery(parent=run_id, before=cursor, limit=200))
        for row in page.rows:
            yield row
        if page.next is None:
            return
        cursor = page.next


async def child_of(store: Store, run_id: str, ids: Iterable[str]) -> str | None:
    """Which of some ids is that of a child of a run; None where none of them is."""
    for child_id in ids:
        try:
            if (await store.row(child_id)).parent == run_id:
                return child_id
        except RunNotFound:
            continue
    return None


async def ancestors(store: Store, run_id: str) -> list[str]:
    """The runs that a run is part of, its parent first."""
    found: list[str] = []
    parent = (await store.row(run_id)).parent
    while parent is not None:
        found.append(parent)
        parent = (await store.row(parent)).parent
    return found
