"""Which process asks a person the question of a request, for the other terminals of its session."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from detent.flows.coding.request_data import RequestData

if TYPE_CHECKING:
    from detent.engine.engine import Engine
    from detent.kernel.run import Run


def _key(run: Run) -> str:
    return f"asked in session {RequestData(run.data).session}"


@contextlib.asynccontextmanager
async def asking(engine: Engine, run: Run) -> AsyncIterator[None]:
    """Let other processes know that a question of this request is being asked here."""
    await _note(engine, run, engine.active.leases.me.id)
    try:
        yield
    finally:
        await _note(engine, run, None)


async def _note(engine: Engine, run: Run, worker: str | None) -> None:
    _, version = await engine.store.mark(_key(run))
    await engine.store.set_mark(_key(run), worker, version)  # the one who asks last is as good


async def is_asked(engine: Engine, run: Run) -> bool:
    """Whether a process that is alive asks the question of this request."""
    worker, _ = await engine.store.mark(_key(run))
    if worker is None or any(dead.id == worker for dead in await engine.active.leases.dead()):
        return False
    return any(alive.id == worker for alive in await engine.store.workers())
