"""Writes session files when requests stop: a file is the fold of the journals, which are the truth.

A file is written whole, so it is not written at every request of a quick series: at most once in some
seconds, and on leaving.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from detent.engine import logger
from detent.engine.journal_reader import load
from detent.flows.coding.request_data import RequestData
from detent.flows.coding.sessions.fold import fold_runs
from detent.kernel.errors import DetentError, RunNotFound

if TYPE_CHECKING:
    from detent.engine.ports import Store
    from detent.flows.coding.sessions.folder import SessionFolder
    from detent.kernel.run import Run

EVERY = 5.0
"""Seconds between two writes of one session's file."""


class SessionWriter:
    """The session files that this program writes."""

    def __init__(self, folder: SessionFolder, every: float = EVERY) -> None:
        self.folder = folder
        self._every = every
        self._written: dict[str, float] = {}
        """When each session's file was written last, on the loop's clock."""
        self._due: dict[str, tuple[Store, str, asyncio.TimerHandle]] = {}
        """Sessions whose file is to be written, each with its latest request."""
        self._writing: set[asyncio.Task[None]] = set()

    async def stopped(self, store: Store, run: Run) -> None:
        """A request has ended, waits, or was interrupted: write its session's file, now or soon."""
        session = RequestData(run.data).session
        if session is None or run.parent is not None:
            return
        loop = asyncio.get_running_loop()
        wait = self._written.get(session, float("-inf")) + self._every - loop.time()
        if wait <= 0:
            await self._write(store, session, run.id)
            return
        if session in self._due:
            self._due.pop(session)[2].cancel()
        self._due[session] = store, run.id, loop.call_later(wait, self._write_due, session)

    async def flush(self) -> None:
        """Write what is still to be written: before the store is closed."""
        for session in [*self._due]:
            store, run_id, timer = self._due.pop(session)
            timer.cancel()
            await self._write(store, session, run_id)
        if self._writing:
            await asyncio.wait(self._writing)

    def _write_due(self, session: str) -> None:
        store, run_id, _ = self._due.pop(session)
        task = asyncio.ensure_future(self._write(store, session, run_id))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    async def _write(self, store: Store, session: str, run_id: str) -> None:
        self._written[session] = asyncio.get_running_loop().time()
        try:
            await write_session(store, session, run_id, self.folder)
        except (DetentError, OSError) as error:  # the journals have it all; a file must not fail a request
            logger.warning(
                "session.not_written", session=session, error=type(error).__name__, why=str(error)[:500]
            )


async def write_session(store: Store, session: str, run_id: str, folder: SessionFolder) -> None:
    """Write a session's file as its journals say, up to one of its requests."""
    known = folder.load(session)
    written = frozenset(known.run_ids[:-1]) if known is not None else frozenset()
    runs: list[Run] = []
    following: str | None = run_id
    while following is not None and following not in written:
        try:
            run = await load(store, following)
        except RunNotFound:
            break
        runs.append(run)
        following = RequestData(run.data).earlier
    folder.save(await fold_runs(store, runs[::-1], earlier=known))
