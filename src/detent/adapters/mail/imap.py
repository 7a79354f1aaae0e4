"""A mail source over a mailbox on an IMAP server, and the folder of sent mail.

The protocol runs in a thread of its own, one call after the other. A lost connection is made anew once for
every call. A ref consists of the folder's UIDVALIDITY and the mail's UID; a mail becomes seen only when it is
marked processed.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from detent.adapters.mail.imap_session import SEEN, ImapSession
from detent.adapters.mail.server import MailServer, MailUnavailable
from detent.adapters.mail.source import LARGEST_MAIL, Arrival, MailGone
from detent.engine import logger
from detent.kernel.errors import ConfigurationError

T = TypeVar("T")

PATIENCE = 30
"""A whole call may take this many times the time limit of a single answer."""
LONGEST_IDLE = 29 * 60.0
"""Seconds after which servers drop a silent client."""


class ImapMailbox:
    """A source over one folder of a mailbox."""

    def __init__(
        self, server: MailServer, *, folder: str = "INBOX", max_size: int = LARGEST_MAIL, pause: float = 5.0
    ) -> None:
        self.server = server
        self.folder = folder
        self.pause = pause
        """Seconds to wait before reconnecting to a server that dropped the connection during `wait`."""
        self._max_size = max_size
        self._line = _Line(server, folder)
        self._listed: set[str] = set()

    def describe(self) -> str:
        return described(self.server, self.folder)

    def where(self, ref: str) -> str:
        return where(self.server, self.folder, ref)

    async def open(self) -> None:
        """Connect, log in and open the folder; `MailUnavailable` says what to check."""
        self._line.open()
        try:
            await self._line.do(lambda session: session.unseen())
        except BaseException:
            await self._line.close()
            raise

    async def close(self) -> None:
        self._listed = set()
        await self._line.close()

    async def list(self) -> tuple[str, ...]:
        refs = await self._line.do(_refs)
        self._listed = set(refs)
        return refs

    async def fetch(self, ref: str) -> Arrival:
        validity, uid = _validity_and_uid(ref)
        most = self._max_size

        def take(session: ImapSession) -> Arrival | None:
            facts = session.facts(uid)
            if facts is None or session.validity != validity:
                return None
            size, received = facts
            raw = None
            if size <= most:
                # Servers count sizes in their own ways; the mail itself decides.
                raw = session.body(uid, most + 1)
                if raw is None:
                    return None
                size = len(raw)
            return Arrival(ref, size, raw if size <= most else None, received)

        arrival = await self._line.do(take)
        if arrival is None:
            raise MailGone(ref, self.describe())
        return arrival

    async def mark_processed(self, ref: str) -> bool:
        validity, uid = _validity_and_uid(ref)

        def mark(session: ImapSession) -> bool | None:
            flags = session.flags(uid)
            if flags is not None and session.validity != validity:
                return None
            if flags is None or SEEN in flags:
                return False
            session.see(uid)
            return True

        marked = await self._line.do(mark)
        if marked is None:
            # The same number may be another mail by now. The mail itself is listed again under its new ref.
            logger.warning("mail.renumbered", ref=ref, folder=self.folder, host=self.server.host)
        return bool(marked)

    async def wait(self, seconds: float) -> None:
        """Wait for the server's announcement (IDLE); without that, or without a connection, just wait."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        try:
            while self._line.can_idle and (remaining := end - loop.time()) > 0:
                if await self._line.idle(min(remaining, LONGEST_IDLE), self._listed):
                    return
        except MailUnavailable as error:
            # Mail may have arrived unnoticed. The next listing connects again and reports what is wrong;
            # returning at once would only hurry it.
            logger.warning("mail.connection_lost", host=self.server.host, kind=error.kind)
            end = min(end, loop.time() + self.pause)
        if (remaining := end - loop.time()) > 0:
            await asyncio.sleep(remaining)

    async def find_message_id(self, folder: str, message_id: str) -> bool:
        """Whether a folder of the same mailbox has a mail with this Message-ID."""
        return await self._line.do(lambda session: session.find(folder, message_id))


class ImapSent:
    """The folder of sent mail, where copies are kept and looked up."""

    def __init__(self, server: MailServer, folder: str) -> None:
        self.server = server
        self.folder = folder
        self._line = _Line(server, folder)

    def describe(self) -> str:
        return described(self.server, self.folder)

    async def open(self) -> None:
        """Connect, log in and open the folder; `MailUnavailable` says what to check."""
        self._line.open()
        try:
            await self._line.do(lambda session: None)
        except BaseException:
            await self._line.close()
            raise

    async def close(self) -> None:
        await self._line.close()

    async def find(self, message_id: str) -> bool:
        """Whether there is a copy of the mail with this Message-ID."""
        return await self._line.do(lambda session: session.find(self.folder, message_id))

    async def keep(self, raw: bytes) -> None:
        """Put a copy there. Never retried: a second copy is worse than none."""
        await self._line.do(lambda session: session.ping())  # it may have been idle for hours
        await self._line.do(lambda session: session.append(self.folder, raw), again=False)


class _Line:
    """A thread with a connection."""

    def __init__(self, server: MailServer, folder: str) -> None:
        if not server.user:
            raise ConfigurationError(f"{server.shown()} needs a user name and a password.")
        self._server = server
        self._folder = folder
        self._pool: ThreadPoolExecutor | None = None
        self._session: ImapSession | None = None
        """Created, used and dropped in the thread."""
        self._wake: tuple[socket.socket, socket.socket] | None = None
        """A byte written to the first ends an idle wait at the second."""
        self._idling = False

    @property
    def can_idle(self) -> bool:
        """Whether there is a connection whose server offers IDLE."""
        session = self._session
        return session is not None and session.can_idle

    def open(self) -> None:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, f"imap {self._server.host}")
            self._wake = socket.socketpair()
            for end in self._wake:
                end.setblocking(False)

    async def close(self) -> None:
        pool, wake = self._pool, self._wake
        if pool is None or wake is None:
            return
        self._pool = None
        self._interrupt()
        leaving = asyncio.get_running_loop().run_in_executor(pool, self._drop)
        pool.shutdown(wait=False)
        done, _ = await asyncio.wait({leaving}, timeout=self._server.timeout)
        if not done:
            self._abort()
            await asyncio.wait({leaving}, timeout=self._server.timeout)
        self._wake = None
        for end in wake:
            end.close()

    async def do(self, work: Callable[[ImapSession], T], *, again: bool = True) -> T:
        """Run it in the thread; again on a new connection if the present one proves lost."""
        return await self._submit(self._attempt, work, again, patience=self._server.timeout * PATIENCE)

    async def idle(self, seconds: float, known: set[str]) -> bool:
        """Wait for mails that are not known; True when some arrived. Other calls end the wait early."""
        self._idling = True
        patience = seconds + self._server.timeout * PATIENCE
        try:
            return await self._submit(self._idle, seconds, known, patience=patience)
        except asyncio.CancelledError:
            self._interrupt()  # the thread is still waiting
            raise
        finally:
            self._idling = False

    async def _submit(self, work: Callable[..., T], *args: Any, patience: float) -> T:
        if self._pool is None:
            raise MailUnavailable(self._server, "lost", "the mailbox was not opened, or is closed again")
        if work != self._idle:
            self._interrupt()
        future = asyncio.get_running_loop().run_in_executor(self._pool, work, *args)
        # The exception is retrieved even if nothing awaits it.
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            async with asyncio.timeout(patience):
                return await asyncio.shield(future)
        except TimeoutError:
            self._abort()
            raise MailUnavailable(
                self._server, "lost", f"it was not done after {patience:g} seconds"
            ) from None

    def _interrupt(self) -> None:
        if self._idling and self._wake is not None:
            try:
                self._wake[0].send(b"!")
            except OSError:  # full of such bytes already, or closed
                return

    def _abort(self) -> None:
        if (session := self._session) is not None:
            session.abort()

    # -- in the thread --------------------------------------------------------------------------------------

    def _attempt(self, work: Callable[[ImapSession], T], again: bool) -> T:
        fresh = self._session is None
        try:
            return work(self._connected())
        except MailUnavailable as error:
            if error.kind == "lost":
                self._drop(farewell=False)
            if error.kind != "lost" or fresh or not again:
                raise
        logger.info("mail.reconnecting", host=self._server.host)
        return self._attempt(work, again=False)

    def _idle(self, seconds: float, known: set[str]) -> bool:
        session, wake = self._session, self._wake
        if session is None or wake is None:
            return False
        try:
            # Between the search and IDLE the session may do nothing else, or mail could be missed.
            return bool(set(_refs(session)) - known) or session.idle(seconds, wake[1])
        except MailUnavailable:
            self._drop(farewell=False)
            raise
        finally:
            try:
                while wake[1].recv(64):
                    pass
            except OSError:  # nothing more to read
                pass

    def _connected(self) -> ImapSession:
        if self._session is None:
            session = ImapSession(self._server, self._folder)
            try:
                session.connect()
            except BaseException:
                session.close(farewell=False)
                raise
            self._session = session
        return self._session

    def _drop(self, farewell: bool = True) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close(farewell=farewell)


def described(server: MailServer, folder: str) -> str:
    """A folder of a mailbox, for messages."""
    return f"{server.shown()}, folder {folder}"


def where(server: MailServer, folder: str, ref: str) -> str:
    """Where a mail is, for people who want to look at it."""
    return f"UID {_validity_and_uid(ref)[1]} in {folder} on {server.host}"


def _refs(session: ImapSession) -> tuple[str, ...]:
    uids = session.unseen()
    return tuple(f"{session.validity}/{uid}" for uid in uids)


def _validity_and_uid(ref: str) -> tuple[int, int]:
    validity, _, uid = ref.partition("/")
    return int(validity), int(uid)
