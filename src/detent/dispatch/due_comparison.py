"""Comparisons that are due: a mark, set with a step's commit and removed with the comparison's.

It is found by whoever drives the store next, should the process die in between; the run may have ended. The
journal says which visits are meant: those that were drawn and have no comparison.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from detent.engine.ports import MarkChange

if TYPE_CHECKING:
    from detent.engine.ports import Store
    from detent.engine.work import Work

DUE = "comparison-due/"
"""Prefix of the marks; the run's id follows. The value is the number of the last entry before the visit."""


async def set_due(driver: Work) -> None:
    """Note with the run's next commit that the visit under way is to be compared."""
    key = f"{DUE}{driver.run.id}"
    mark, version = await driver.engine.store.mark(key)
    if mark is None:
        driver.log.mark_with_next(MarkChange(key, driver.run.seq, version))


async def no_longer_due(driver: Work, since: int | None = None) -> tuple[MarkChange, ...]:
    """The change that goes with the commit of the last comparison that is due.

    With `since` none is due before that entry, or the mark stays: another visit is still to be compared.
    """
    key = f"{DUE}{driver.run.id}"
    mark, version = await driver.engine.store.mark(key)
    if mark is None or (since is not None and int(mark) < since):
        return ()
    return (MarkChange(key, None, version, remove=True),)


async def due_since(store: Store, run_id: str) -> int | None:
    """The number of the last entry before the first visit to be compared; None if none is."""
    mark, _ = await store.mark(f"{DUE}{run_id}")
    return None if mark is None else int(mark)


async def due_runs(store: Store) -> list[str]:
    """The runs with comparisons to be made."""
    return [key.removeprefix(DUE) for key, mark in (await store.marks(DUE)).items() if mark is not None]
