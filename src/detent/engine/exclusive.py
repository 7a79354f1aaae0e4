"""One open run at a time for a key, such as a session that two terminals share.

The key is a mark in the store that names the run. A run is created, or reopened, in the same transaction that
sets the mark, by compare-and-set: there is no moment at which one has happened without the other, and of two
processes that find the key free one is refused by the store. The key is free once the run it names has ended.
"""

from __future__ import annotations

from detent.engine.ports import MarkChange, Store
from detent.kernel import checks
from detent.kernel.errors import KeyTaken, RunNotFound

EXCLUSIVE = "exclusive/"
"""Prefix of the marks that name the open run of a key."""


async def key_change(store: Store, key: str, run_id: str) -> MarkChange:
    """The change that gives a key to a run, to be made in the transaction that creates or reopens the run.

    That raises `MarkMoved` if the key was given to a run meanwhile; then ask again.

    Raises:
        KeyTaken: another run of the key is open.
    """
    mark = f"{EXCLUSIVE}{checks.name('exclusive', key)}"
    holder, version = await store.mark(mark)
    # The mark is read first: if its run is reopened after we look, the mark has another version.
    if holder is not None and holder != run_id and await _is_open(store, holder):
        raise KeyTaken(key, holder)
    return MarkChange(mark, run_id, version)


async def _is_open(store: Store, run_id: str) -> bool:
    try:
        return not (await store.row(run_id)).now.status.is_end
    except RunNotFound:
        return False
