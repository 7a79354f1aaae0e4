"""One connection to an IMAP server, as blocking calls for one thread at a time.

Every failure is raised as `MailUnavailable`: of kind `lost` when a new connection may help, otherwise what
the server refused. Only `see` and `append` change anything on the server.
"""

from __future__ import annotations

import contextlib
import imaplib
import selectors
import socket
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from detent.adapters.mail.server import MailServer, MailUnavailable
from detent.kernel.errors import DetentError, IntegrationMissing, nearest

SEEN = b"\\Seen"

SEARCHES = 3
"""How often to search again when more mails arrive during the search."""
MOST_FOLDERS = 10
"""Folders listed in the error about a folder that does not exist."""


class ImapSession:
    """Logged in after `connect`; `folder` is selected whenever its mails are accessed."""

    def __init__(self, server: MailServer, folder: str) -> None:
        self.server = server
        self.folder = folder
        self.can_idle = False
        self._selected: str | None = None
        self._validity = 0
        self._client: Any = None

    # -- life -----------------------------------------------------------------------------------------------

    def connect(self) -> None:
        """Connect, log in and make sure that the folder exists."""
        server = self.server
        try:
            from imapclient import IMAPClient
        except ImportError as error:
            raise IntegrationMissing(
                "Mailboxes on a server need IMAPClient. Install it: pip install 'detent[mail]'."
            ) from error
        trust = None if server.tls == "none" else server.trust()
        try:
            self._client = IMAPClient(
                server.host,
                server.port,
                ssl=server.tls == "implicit",
                ssl_context=trust,
                timeout=server.timeout,
            )
            self._client.normalise_times = False
            # Commands are sent in pieces; none of them should wait for the server's acknowledgement.
            self._client.socket().setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if server.tls == "starttls":
                if not self._client.has_capability("STARTTLS"):
                    raise MailUnavailable(
                        server, "tls", "it offers no STARTTLS", "Check that port and tls fit together."
                    )
                self._client.starttls(trust)
        except (OSError, EOFError) as error:
            self.abort()
            raise server.not_connected(error) from error
        except imaplib.IMAP4.error as error:
            self.abort()
            raise MailUnavailable(
                server, "unreachable", f"it does not answer like an IMAP server ({server.quoted(error)})",
                f"Check host and port, and that tls '{server.tls}' fits the port.",
            ) from error  # fmt: skip
        with self._translating():
            self._login()
            self.can_idle = bool(self._client.has_capability("IDLE"))
            self._select()

    def close(self, *, farewell: bool = True) -> None:
        """End the connection, with a logout if the server may still be listening."""
        client, self._client = self._client, None
        if client is None:
            return
        if farewell:
            with contextlib.suppress(Exception):
                client.logout()
        with contextlib.suppress(Exception):
            client.shutdown()

    def abort(self) -> None:
        """Cut the connection, from any thread: a thread that waits for an answer fails at once."""
        client = self._client
        if client is not None:
            with contextlib.suppress(Exception):
                # Not the TLS socket's own method, which is not thread-safe.
                socket.socket.shutdown(client.socket(), socket.SHUT_RDWR)

    def _login(self) -> None:
        server, client = self.server, self._client
        offers_plain = client.has_capability("AUTH=PLAIN")
        if client.has_capability("LOGINDISABLED") and not offers_plain:
            raise MailUnavailable(
                server,
                "login",
                "it takes no password on this connection",
                "Use tls 'implicit' or 'starttls'.",
            )
        # LOGIN is for ASCII only; PLAIN takes any password.
        by_plain = offers_plain and not (server.user.isascii() and server.password.isascii())
        try:
            if by_plain:
                client.plain_login(server.user, server.password)
            else:
                client.login(server.user, server.password)
        except UnicodeEncodeError:
            raise MailUnavailable(
                server, "login", "it takes only ASCII letters in user name and password",
                "Choose a password without other letters.",
            ) from None  # fmt: skip
        except imaplib.IMAP4.abort:
            raise
        except imaplib.IMAP4.error as error:
            raise MailUnavailable(
                server, "login", f"it refused the login ({server.quoted(error)})",
                "Check user name and password in the environment.",
            ) from None  # fmt: skip

    def _select(self) -> None:
        if self._selected == self.folder:
            return
        try:
            status = self._client.select_folder(self.folder)
        except imaplib.IMAP4.readonly:
            raise MailUnavailable(
                self.server, "folder", f"folder '{self.folder}' is read-only: mails cannot be marked there",
                "Give the account the right to change flags.",
            ) from None  # fmt: skip
        except imaplib.IMAP4.abort:
            raise
        except imaplib.IMAP4.error as error:
            raise self._no_folder(self.folder, error) from None
        self._selected = self.folder
        self._validity = int(status.get(b"UIDVALIDITY", 0))

    def _no_folder(self, folder: str, error: Exception) -> MailUnavailable:
        names: list[str] = []
        with contextlib.suppress(imaplib.IMAP4.error, OSError):
            names = sorted(str(name) for _, _, name in self._client.list_folders())
        hint = f" Folders there: {', '.join(names[:MOST_FOLDERS])}." if names else ""
        return MailUnavailable(
            self.server, "folder", f"folder '{folder}' cannot be opened ({self.server.quoted(error)})",
            f"Check its name.{nearest(folder, names)}{hint}",
        )  # fmt: skip

    @contextlib.contextmanager
    def _translating(self) -> Iterator[None]:
        """Turn a failure into `MailUnavailable`, without the answer itself: it may hold a customer's text."""
        server = self.server
        try:
            yield
        except DetentError:
            raise
        except TimeoutError as error:
            raise MailUnavailable(server, "lost", "it did not answer in time") from error
        except (OSError, EOFError) as error:
            raise MailUnavailable(server, "lost", "the connection was lost") from error
        except imaplib.IMAP4.abort:
            raise MailUnavailable(server, "lost", "the connection was lost") from None
        except Exception as error:
            from imapclient.exceptions import ProtocolError

            if isinstance(error, imaplib.IMAP4.error) and not isinstance(error, ProtocolError):
                message = f"it refused what was asked ({server.quoted(error)})"
                raise MailUnavailable(server, "refused", message) from None
            # The library failed on what it read, and may have stopped in the middle of it.
            message = f"its answer cannot be read ({type(error).__name__})"
            raise MailUnavailable(server, "lost", message) from None

    # -- the folder's mails ---------------------------------------------------------------------------------

    @property
    def validity(self) -> int:
        """The UIDVALIDITY under which the folder's UIDs were given."""
        return self._validity

    def unseen(self) -> list[int]:
        """UIDs of the mails that are neither seen nor deleted, in the order of their arrival.

        The list includes every mail the server has announced, so `idle` will report all others.
        """
        with self._translating():
            self._select()
            self._client.noop()  # some servers announce new mail only in answer to a command
            for _ in range(SEARCHES):
                self._came_meanwhile()
                uids = self._client.search(["UNSEEN", "UNDELETED"])
                if not self._came_meanwhile():
                    break
            return sorted(int(uid) for uid in uids)

    def _came_meanwhile(self) -> bool:
        """Whether the server has announced new mail along with the answer to a command. Resets that."""
        _, announced = self._client._imap.response("EXISTS")
        return any(count is not None for count in announced)

    def facts(self, uid: int) -> tuple[int, datetime | None] | None:
        """A mail's size and arrival time; None when it does not exist."""
        with self._translating():
            self._select()
            try:
                data = self._client.fetch([uid], ["RFC822.SIZE", "INTERNALDATE"])
            except ValueError:  # an unreadable date
                data = self._client.fetch([uid], ["RFC822.SIZE"])
            if uid not in data or b"RFC822.SIZE" not in data[uid]:
                return None
            received = data[uid].get(b"INTERNALDATE")
            if received is not None:
                received = received.astimezone(UTC)
            return int(data[uid][b"RFC822.SIZE"]), received

    def flags(self, uid: int) -> frozenset[bytes] | None:
        """A mail's flags; None when it does not exist."""
        with self._translating():
            self._select()
            data = self._client.fetch([uid], ["FLAGS"])
            return frozenset(map(bytes, data[uid].get(b"FLAGS", ()))) if uid in data else None

    def body(self, uid: int, most: int) -> bytes | None:
        """The mail, or its first `most` bytes; None when it does not exist. Does not mark it seen."""
        with self._translating():
            self._select()
            data = self._client.fetch([uid], [f"BODY.PEEK[]<0.{most}>"]).get(uid, {})
            body = data.get(b"BODY[]<0>", data.get(b"BODY[]"))
            return None if body is None else bytes(body)

    def see(self, uid: int) -> None:
        """Mark a mail seen; does nothing when it does not exist."""
        with self._translating():
            self._select()
            self._client.add_flags([uid], [SEEN], silent=True)

    def idle(self, seconds: float, wake: socket.socket) -> bool:
        """Wait until the server announces something, `wake` is readable or time is up.

        True when a mail arrived in the folder.
        """
        with self._translating():
            self._select()
            try:
                self._client.idle()
            except imaplib.IMAP4.abort:
                raise
            except imaplib.IMAP4.error as error:
                # The library cannot recover from this, but a new connection can.
                self.abort()
                if "EXISTS" in str(error):  # mail was announced before the go-ahead
                    return True
                raise MailUnavailable(self.server, "lost", "it does not keep to IDLE") from error
            lines = self._read_already()
            if not lines:
                with selectors.DefaultSelector() as waiting:
                    waiting.register(self._client.socket(), selectors.EVENT_READ)
                    waiting.register(wake, selectors.EVENT_READ)
                    waiting.select(seconds)
            _, responses = self._client.idle_done()
            return any(_is_news(line) for line in lines) or any(
                b"EXISTS" in response[1:2] for response in responses
            )

    def _read_already(self) -> list[bytes]:
        """Lines that came together with the go-ahead: they are in buffers, where no selector sees them."""
        wire, lines = self._client.socket(), []
        wire.setblocking(False)
        try:
            while True:
                lines.append(self._client._imap._get_line())
        except OSError:  # no more lines, over TLS
            return lines
        except imaplib.IMAP4.abort as error:
            if "EOF" not in str(error):  # without TLS, the sign that there are no more lines
                raise
            return lines
        finally:
            wire.settimeout(self.server.timeout)

    # -- other folders --------------------------------------------------------------------------------------

    def find(self, folder: str, message_id: str) -> bool:
        """Whether the folder has a mail with this Message-ID. Changes nothing there."""
        if not (message_id.isascii() and message_id.isprintable()):
            return False
        with self._translating():
            self._selected = None
            try:
                self._client.select_folder(folder, readonly=True)
            except imaplib.IMAP4.abort:
                raise
            except imaplib.IMAP4.error as error:
                raise self._no_folder(folder, error) from None
            # The search also matches parts of a header; the header itself decides.
            quoted_id = message_id.replace("\\", "\\\\").replace('"', '\\"')
            uids = self._client.search(f'HEADER Message-ID "{quoted_id}"')
            headers = self._client.fetch(uids, ["BODY.PEEK[HEADER.FIELDS (MESSAGE-ID)]"])
            return any(
                value.partition(b":")[2].strip() == message_id.encode()
                for parts in headers.values()
                for key, value in parts.items()
                if key.startswith(b"BODY[HEADER.FIELDS")
            )

    def ping(self) -> None:
        """Make sure that the connection still works."""
        with self._translating():
            self._client.noop()

    def append(self, folder: str, raw: bytes) -> None:
        """Put a mail into the folder, marked as seen."""
        with self._translating():
            self._client.append(folder, raw, [SEEN])


def _is_news(line: bytes) -> bool:
    return line.startswith(b"* ") and line.rstrip().upper().endswith(b" EXISTS")
