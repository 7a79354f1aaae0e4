"""Writes session files when requests stop: a file is the fold of the journals, which are the truth.

A file is written whole, so it is not written at every request of a quick series: at most once in some
seconds, and on leaving.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from detent.engine import logger
from detent.flows.coding.request_data import RequestData
from detent.flows.coding.sessions.in_store import changes_outside, folded
from detent.kernel.errors import DetentError

if TYPE_CHECKING:
    from detent.engine.ports import Store
    from detent.flows.coding.sessions.folder import SessionFolder
    from detent.kernel.run import Run

NO_QUESTIONS = ("children", "timer", "breaker")
"""What a request waits for that is no answer of a person."""
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
        self.tell: Callable[[str], None] | None = None
        """Tells a person what is wrong with a file; each session's is told once."""
        self._told: set[str] = set()
        self._compared: set[str] = set()

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

    async def waits(self, store: Store, run: Run) -> None:
        """A request is left with a question for a person: write its session's file now.

        The program may be about to end, and nothing else would say that the session is there.
        """
        session = RequestData(run.data).session
        if session is None or all(hold.why in NO_QUESTIONS for hold in run.holds.values()):
            return
        if session in self._due:
            self._due.pop(session)[2].cancel()
        await self._write(store, session, run.id)

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
            changed = await self._changed_outside(store, session)
            await write_session(store, session, run_id, self.folder, anew=changed)
        except (DetentError, OSError) as error:  # the journals have it all; a file must not fail a request
            logger.warning(
                "session.not_written", session=session, error=type(error).__name__, why=str(error)[:500]
            )
            if self.tell is not None and session not in self._told:
                self._told.add(session)
                self.tell(
                    f"The session is not being written to its file. {error} Its requests are in the store."
                )

    async def _changed_outside(self, store: Store, session: str) -> bool:
        """Whether another program has changed a session's file; said before it is written over."""
        if self.tell is None or session in self._compared:
            return False
        self._compared.add(session)
        record = self.folder.load(session)
        changes = [] if record is None else await changes_outside(store, record, self.folder.redaction)
        if changes:
            lines = "\n  ".join(changes)
            self.tell(
                f"The file of session {session} was changed by another program. Its journals count, and it "
                f"is written anew:\n  {lines}"
            )
        return bool(changes)


async def write_session(
    store: Store, session: str, run_id: str, folder: SessionFolder, *, anew: bool = False
) -> None:
    """Write a session's file as its journals say, up to one of its requests.

    `anew`: nothing of earlier requests is taken over from the file that their journals have.
    """
    folder.save(await folded(store, run_id, folder.load(session), anew=anew))
