"""A mail sink over SMTP: one connection for each mail, and three possible outcomes.

Sent: the server accepted the mail and said so. Not sent: a failure before the dot that ends the mail, or a
refusal after it; a `ToolError`. In doubt: the dot was sent and no answer came back; `MailInDoubt`. A doubt is
settled by a copy in the folder of sent mail, if there is one.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import re
import smtplib
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, Protocol

from detent.adapters.mail.server import MailServer, MailUnavailable, Trouble
from detent.adapters.mail.sink import Leaving, MailInDoubt, Receipt, message_id_of
from detent.engine import logger
from detent.engine.tools import NOT_DONE, UNKNOWN, ToolError

Copies = Literal["ours", "servers"]

PATIENCE = 3
"""Keeping a copy may take this many times the time limit of a single answer."""
SETTLE = 10.0
"""Seconds a server gets to file its own copy before a missing mail counts as not sent."""
MOST_AT_ONCE = 16
"""Mails on their way to one server at the same time."""
MOST_LEFT = 1000
"""Abandoned sendings whose outcomes are remembered."""

_KINDS: dict[str, Trouble] = {"auth": "login", "tls": "tls"}
"""Refusals on connecting, by code."""

_LINE_END = re.compile(rb"\r\n|\r|\n")
_LEADING_DOT = re.compile(rb"^\.", re.MULTILINE)


class SentFolder(Protocol):
    """The folder with copies of sent mail."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def find(self, message_id: str) -> bool: ...

    async def keep(self, raw: bytes) -> None: ...

    def describe(self) -> str: ...


class SmtpSender:
    """A sink over one SMTP server.

    `copies` says who makes the copies in the sent folder. The server's own exist if and only if it accepted
    the mail. Ours are made after sending: a copy proves that the mail went out, a missing one proves nothing.
    """

    tells_leaving = True

    def __init__(
        self,
        server: MailServer,
        *,
        sent: SentFolder | None = None,
        copies: Copies = "ours",
        settle: float = SETTLE,
    ) -> None:
        self.server = server
        self._sent = sent
        self._copies = copies
        self._settle = settle
        self._under_way: dict[str, _Sending] = {}
        """By Message-ID: sendings that are not finished, or whose caller was cancelled."""
        # Separate threads: sendings wait for the event loop, which may itself need a thread of its own pool.
        self._pool: ThreadPoolExecutor | None = None

    def describe(self) -> str:
        copies = f", copies in {self._sent.describe()}" if self._sent is not None else ""
        return f"{self.server.shown()}{copies}"

    async def open(self) -> None:
        """Connect, log in and disconnect; `MailUnavailable` says what to check."""
        try:
            await asyncio.to_thread(_try_connection, self.server)
        except _Refused as error:
            raise MailUnavailable(self.server, _KINDS[error.code], error.what) from error
        if self._sent is not None:
            await self._sent.open()

    async def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False)
            self._pool = None
        if self._sent is not None:
            await self._sent.close()

    async def send(
        self, raw: bytes, envelope_from: str, to: Sequence[str], *, leaving: Leaving | None = None
    ) -> Receipt:
        """Send one mail to all of `to`, or to nobody. Its Message-ID identifies it.

        `leaving` is awaited between the mail and the dot that ends it.
        """
        message_id = message_id_of(raw)
        if self._pool is None:
            self._pool = ThreadPoolExecutor(MOST_AT_ONCE, f"smtp {self.server.host}")
        sending = _Sending(self._pool, self.server, raw, envelope_from, tuple(to), leaving)
        while len(self._under_way) >= MOST_LEFT:
            self._under_way.pop(next(iter(self._under_way)))
        self._under_way[message_id] = sending
        try:
            await sending.end()
        except asyncio.CancelledError:
            sending.give_up()  # it stays known, so that a probe can learn its outcome
            raise
        except BaseException:
            self._forget(message_id, sending)
            raise
        self._forget(message_id, sending)
        await self._keep(message_id, raw)
        return _receipt(message_id)

    async def probe(self, message_id: str) -> Any:
        """Ask the abandoned sending, if there is one, then the sent folder."""
        if (sending := self._under_way.get(message_id)) is not None:
            try:
                await sending.end()
            except ToolError:
                self._forget(message_id, sending)
                return NOT_DONE
            except MailInDoubt:
                self._forget(message_id, sending)
            else:
                return _receipt(message_id)
        if self._sent is None:
            return UNKNOWN
        if await self._sent.find(message_id):
            return _receipt(message_id)
        if self._copies == "ours":
            return UNKNOWN
        await asyncio.sleep(self._settle)
        return _receipt(message_id) if await self._sent.find(message_id) else NOT_DONE

    def _forget(self, message_id: str, sending: _Sending) -> None:
        if self._under_way.get(message_id) is sending:
            del self._under_way[message_id]

    async def _keep(self, message_id: str, raw: bytes) -> None:
        """Put a copy where a probe will find it. The mail is sent, whatever happens to its copy."""
        if self._sent is None or self._copies != "ours":
            return
        try:
            async with asyncio.timeout(self.server.timeout * PATIENCE):
                await self._sent.keep(raw)
        except Exception as error:
            logger.warning("mail.copy_failed", error=type(error).__name__)
            logger.debug("mail.copy_failed", message_id=message_id)


class _Refused(ToolError):
    """The server refused, or cannot accept what it would be given: nothing was sent."""

    def __init__(
        self, server: MailServer, code: str, what: str, *, transient: bool = False, of_call: bool = False
    ) -> None:
        self.what = what
        super().__init__(code, f"{server.shown()}: {what}.", transient=transient, of_call=of_call)


class _Sending:
    """One mail on its way, in a thread. When its caller gives up, the mail stops where it is."""

    def __init__(
        self,
        pool: ThreadPoolExecutor,
        server: MailServer,
        raw: bytes,
        envelope_from: str,
        to: tuple[str, ...],
        leaving: Leaving | None = None,
    ) -> None:
        self._given_up = threading.Event()
        self._leaving = leaving
        self._patience = server.timeout
        self._loop = asyncio.get_running_loop()
        self._doing = self._loop.run_in_executor(pool, _send, server, raw, envelope_from, to, self._may_leave)
        # The exception is retrieved even if nothing awaits it.
        self._doing.add_done_callback(lambda future: future.cancelled() or future.exception())

    async def end(self) -> None:
        """Wait for its outcome: success, a `ToolError` or `MailInDoubt`."""
        await asyncio.shield(self._doing)

    def give_up(self) -> None:
        """Stop it before the dot, if that is not sent yet."""
        self._given_up.set()

    def _may_leave(self) -> bool:
        """Called in the thread when only the dot is missing; False when the caller has given up."""
        if self._leaving is not None and not self._given_up.is_set():
            asyncio.run_coroutine_threadsafe(_awaited(self._leaving), self._loop).result(self._patience)
        return not self._given_up.is_set()


async def _awaited(leaving: Leaving) -> None:
    await leaving()


def _receipt(message_id: str) -> Receipt:
    return {"message_id": message_id, "status": "sent"}


# -- in a thread ----------------------------------------------------------------------------------------


def _try_connection(server: MailServer) -> None:
    """Connect and disconnect."""
    try:
        client = _connect(server)
    except (OSError, smtplib.SMTPException) as error:
        raise _unreachable(server, error) from error
    _leave(client)


def _send(
    server: MailServer, raw: bytes, envelope_from: str, to: tuple[str, ...], may_leave: Callable[[], bool]
) -> None:
    content = _LEADING_DOT.sub(b"..", _LINE_END.sub(b"\r\n", raw))
    if not content.endswith(b"\r\n"):
        content += b"\r\n"
    _check_addresses(envelope_from, to)
    try:
        client = _connect(server)
    except (OSError, smtplib.SMTPException) as error:
        unavailable = _unreachable(server, error)
        untrusted = unavailable.kind == "tls"
        code = "tls" if untrusted else "connection"
        raise ToolError(code, str(unavailable), transient=not untrusted) from error
    try:
        try:
            _announce(server, client, envelope_from, to, content)
            if client.sock is not None:  # so that the dot is sent at once
                client.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            client.send(content)
        except (OSError, smtplib.SMTPException) as error:
            # Without the final dot a server must not deliver what it has received.
            lost = "the connection was lost before the mail was sent"
            raise _Refused(server, "connection", lost, transient=True) from error
        if not _cleared(client, may_leave):
            raise _Refused(server, "given_up", "sending took too long and was given up", transient=True)
        try:
            client.send(b".\r\n")
            status, text = client.getreply()
        except (OSError, smtplib.SMTPException) as error:
            raise MailInDoubt(
                f"{server.shown()}: the connection was lost after the mail was sent and before the server"
                f" said whether it took it."
            ) from error
        if not 200 <= status < 300 and not 400 <= status < 600:
            raise MailInDoubt(f"{server.shown()}: its answer to the whole mail means nothing ({status}).")
        _accepted(server, "message_refused", "the mail", status, text)
    finally:
        _leave(client)


def _cleared(client: smtplib.SMTP, may_leave: Callable[[], bool]) -> bool:
    """Whether the dot may follow; if not, or on an error, the connection is closed."""
    try:
        cleared = may_leave()
    except TimeoutError:
        cleared = False
    except BaseException:
        client.close()
        raise
    if not cleared:
        client.close()
    return cleared


def _connect(server: MailServer) -> smtplib.SMTP:
    """A connection on which mails can be announced; `ToolError` when the server refuses it."""
    if server.tls == "implicit":
        client: smtplib.SMTP = smtplib.SMTP_SSL(
            server.host, server.port, timeout=server.timeout, context=server.trust()
        )
    else:
        client = smtplib.SMTP(server.host, server.port, timeout=server.timeout)
    try:
        client.ehlo_or_helo_if_needed()
        if server.tls == "starttls":
            if not client.has_extn("starttls"):
                raise _Refused(server, "tls", "it offers no STARTTLS")
            code, text = client.starttls(context=server.trust())
            _accepted(server, "tls", "STARTTLS", code, text)
            client.ehlo_or_helo_if_needed()
        if server.user:
            _login(server, client)
    except BaseException:
        client.close()
        raise
    return client


def _login(server: MailServer, client: smtplib.SMTP) -> None:
    try:
        if server.user.isascii() and server.password.isascii():
            client.login(server.user, server.password)
        else:
            _login_in_utf8(server, client)
    except smtplib.SMTPAuthenticationError as error:
        raise _Refused(
            server,
            "auth",
            f"it refused the login ({error.smtp_code} {server.quoted(error.smtp_error)}):"
            f" check user name and password in the environment",
            transient=400 <= error.smtp_code < 500,
        ) from None
    except smtplib.SMTPServerDisconnected:
        raise
    except smtplib.SMTPException as error:  # no login method that both sides know
        raise _Refused(server, "auth", f"it supports no way to log in ({server.quoted(error)})") from None


def _login_in_utf8(server: MailServer, client: smtplib.SMTP) -> None:
    """PLAIN by hand: smtplib's own login supports only ASCII."""
    if "PLAIN" not in client.esmtp_features.get("auth", "").upper().split():
        raise smtplib.SMTPNotSupportedError("it takes only ASCII user names and passwords")
    token = base64.b64encode(f"\0{server.user}\0{server.password}".encode()).decode()
    status, text = client.docmd("AUTH", f"PLAIN {token}")
    if status not in (235, 503):
        raise smtplib.SMTPAuthenticationError(status, text)


def _announce(
    server: MailServer, client: smtplib.SMTP, envelope_from: str, to: tuple[str, ...], content: bytes
) -> None:
    """Send sender, recipients and the DATA command."""
    options = []
    if client.has_extn("size"):
        options.append(f"size={len(content)}")
        limit = client.esmtp_features.get("size", "")
        if limit.isdigit() and 0 < int(limit) < len(content):
            raise _Refused(server, "too_large", f"it takes at most {limit} bytes, not {len(content)}")
    for needed, extension, option in (
        (not content.isascii(), "8bitmime", "body=8bitmime"),
        (not all(address.isascii() for address in (envelope_from, *to)), "smtputf8", "smtputf8"),
    ):
        if needed and not client.has_extn(extension):
            raise _Refused(server, "not_supported", f"it lacks {extension.upper()}, which this mail needs")
        if needed:
            options.append(option)
    _accepted(server, "sender_refused", "the sender", *client.mail(envelope_from, options))
    for address in to:
        status, text = client.rcpt(address)
        if _is_of_recipient(status, text):
            _accepted(server, "recipient_refused", "a recipient", status, text, of_call=True)
        else:
            _accepted(server, "delivery_refused", "to deliver", status, text)
    code, text = client.docmd("DATA")
    if code != 354:
        _accepted(server, "message_refused", "the mail", code if code >= 400 else 500, text)


def _accepted(
    server: MailServer, code: str, refused: str, status: int, text: bytes, *, of_call: bool = False
) -> None:
    """Raise a refusal as `ToolError`; the server's text may contain an address and is left out."""
    if not 200 <= status < 300:
        raise _Refused(
            server, code, f"it refused {refused} ({_status(status, text)})", transient=status < 500,
            of_call=of_call,
        )  # fmt: skip


def _is_of_recipient(status: int, text: bytes) -> bool:
    """Whether a refusal is about this one recipient, not about us or the server.

    421 ends the connection whoever the recipient is, and policies (5.7.x) keep a sender out for good. 4.7.x
    is what greylisting says, recipient by recipient.
    """
    return status != 421 and re.match(rb"5\.[^12]\.", text) is None


def _status(status: int, text: bytes) -> str:
    """The status, with the enhanced status (RFC 3463) that some servers put first in their text."""
    enhanced = re.match(rb"[245]\.\d{1,3}\.\d{1,3}\b", text)
    return f"{status} {enhanced[0].decode()}" if enhanced else str(status)


def _check_addresses(envelope_from: str, to: tuple[str, ...]) -> None:
    # The empty sender is allowed: it is the one that bounces are never sent to.
    for address in (*filter(None, [envelope_from]), *to):
        if not address.isprintable() or set(address) & set(" <>") or "@" not in address:
            raise ToolError("bad_address", "An address on the envelope is not one.")
    if not to:
        raise ToolError("bad_address", "The mail has no recipient.")


def _unreachable(server: MailServer, error: Exception) -> MailUnavailable:
    if isinstance(error, smtplib.SMTPServerDisconnected):
        return MailUnavailable(
            server, "unreachable", "it ended the connection",
            f"Check host and port, and that tls '{server.tls}' fits the port.",
        )  # fmt: skip
    if isinstance(error, smtplib.SMTPResponseException):
        text = server.quoted(error.smtp_error)
        return MailUnavailable(server, "refused", f"it does not let us in ({error.smtp_code} {text})")
    if isinstance(error, ssl.SSLError) or not isinstance(error, smtplib.SMTPException):
        return server.not_connected(error)
    return MailUnavailable(
        server, "unreachable", f"it does not answer like an SMTP server ({type(error).__name__})"
    )


def _leave(client: smtplib.SMTP) -> None:
    """Send QUIT if the server still listens. The mail's outcome does not depend on it."""
    with contextlib.suppress(OSError, smtplib.SMTPException):
        if client.sock is not None:
            client.quit()
    with contextlib.suppress(OSError):
        client.close()
