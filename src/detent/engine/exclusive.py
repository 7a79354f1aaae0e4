"""One open run at a time for a key, such as a session that two terminals share.

The key is a mark in the store that names the run. It is free once that run has ended, or if it never came
into being because the process that took the key died.
"""

from __future__ import annotations

from detent.engine.ports import Store
from detent.kernel import checks
from detent.kernel.errors import KeyTaken, RunNotFound

EXCLUSIVE = "exclusive/"
"""Prefix of the marks that name the open run of a key."""
TRIES = 20


async def take(store: Store, key: str, run_id: str) -> None:
    """Have a run that does not exist yet, or has ended, be the one open run of a key.

    Whoever creates the run must call `check` before it does anything.

    Raises:
        KeyTaken: another run of the key is open.
    """
    mark = f"{EXCLUSIVE}{checks.name('exclusive', key)}"
    for _ in range(TRIES):
        holder, version = await store.mark(mark)
        if holder == run_id:
            return
        if holder is not None and await _is_open(store, holder):
            raise KeyTaken(key, holder)
        if not await store.set_mark(mark, run_id, version):
            continue
        if holder is None or not await _is_open(store, holder):
            return
        # It came into being after we looked, before we took the key: it was first.
        await store.set_mark(mark, holder, version + 1)
    holder, _ = await store.mark(mark)
    raise KeyTaken(key, str(holder))


async def check(store: Store, key: str, run_id: str) -> None:
    """Raise `KeyTaken` unless a run that exists now still has its key."""
    holder, _ = await store.mark(f"{EXCLUSIVE}{key}")
    if holder != run_id:
        raise KeyTaken(key, str(holder))


async def _is_open(store: Store, run_id: str) -> bool:
    try:
        return not (await store.row(run_id)).now.status.is_end
    except RunNotFound:
        return False
