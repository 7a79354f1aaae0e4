"""The effect `send_email`: one answer, and at most one redirect, to each incoming mail, over all runs.

A mail to anybody but the customer is a notice: it is no answer, and a step sends one to an address.

Each attempt is recorded before the mail leaves, with the effect that made it. The same run may send the mail
again: it asks only when the mail certainly did not go out, or when a person says so. Another run has to wait
while the mail may still be under way; after that the sink is asked whether it went out. If the sink announces
that a mail is about to leave, a crash before that leaves no doubt: the mail is `ready`.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from detent.adapters.mail.send_email import PROSE, EmailSender, arguments
from detent.adapters.mail.sink import MailInDoubt, MailSink
from detent.apps.warranty.tools.database import BUSY_TIMEOUT, Database, DatabaseError
from detent.engine.context import StepContext
from detent.engine.tools import NOT_DONE, UNKNOWN, EffectCall, Tool, ToolError
from detent.kernel.policy import USUAL, BreakerPolicy, RetryPolicy

KINDS = ("answer", "redirect")
NOTICE = "notice"
APP = "warranty"
READY, BEGUN, SENT = "ready", "begun", "sent"
"""A mail that cannot have left yet; one that may have; one that has."""
UNDER_WAY = 120.0
"""Seconds for which a mail begun by another run is left alone; longer than any sink takes."""

_TAKE = """
UPDATE replies SET holder = :holder, at = :at, state = :state WHERE key = :key AND state <> 'sent'
"""
_LEAVE = "UPDATE replies SET state = 'begun', at = ? WHERE key = ? AND holder = ? AND state = 'ready'"

ARGUMENTS = arguments("The customer's address.", "The subject of the answer.", 20_000)
"""The arguments the tool publishes; the run provides the rest."""


class Replies:
    """Sends replies and records each of them."""

    def __init__(
        self,
        path: Path,
        sink: MailSink,
        sender: str,
        *,
        envelope_from: str | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        busy_timeout: float = BUSY_TIMEOUT,
    ) -> None:
        self.sink = sink
        self.email = EmailSender(sink, sender, app=APP, envelope_from=envelope_from, now=now)
        self._now = now
        self._database = Database(Path(path), "replies", busy_timeout)

    async def open(self) -> None:
        """Make the sink usable."""
        await self.sink.open()

    async def close(self) -> None:
        """Close sink and file."""
        await self.sink.close()
        await self._database.close()

    async def sent_to(self, address: str, since: float) -> int:
        """How many mails went to an address since a time."""
        sql = "SELECT count(*) FROM replies WHERE address_hash = ? AND at >= ?"
        ((number,),) = await self._database.rows(sql, (address_hash(address), since))
        return int(number)

    async def send(
        self,
        call: EffectCall,
        /,
        to: str,
        subject: str,
        body: str,
        kind: str = "answer",
        source: str = "",
        in_reply_to: str | None = None,
        references: Iterable[str] = (),
        language: str | None = None,
        customer: str | None = None,
        step: str = "",
    ) -> dict[str, Any]:
        """Send one mail, unless it has been sent before."""
        if kind not in KINDS:
            raise ToolError("invalid", f"send_email: kind must be one of {', '.join(KINDS)}")
        key = mail_key(source, kind, to, customer, step)
        if is_notice(to, customer):
            kind, in_reply_to, references = NOTICE, None, ()
        raw = self.email.message(key, to, subject, body, language, in_reply_to, references)
        message_id = self.email.message_id(key)
        own = call.idempotency_key
        tells = bool(getattr(self.sink, "tells_leaving", False))
        first = READY if tells else BEGUN
        earlier = await self._begin(key, kind, to, message_id, own, first)
        if earlier == "sent":
            return {"message_id": message_id, "status": "existing"}
        if earlier == "under way":
            raise ToolError("under_way", "another run is sending an answer to the same mail", transient=True)
        if earlier is not None:  # begun, with an unknown outcome
            probed = await self.sink.probe(message_id)
            await self._take(key, own)
            if probed is UNKNOWN and earlier == "left":
                raise MailInDoubt("An earlier attempt to send this mail has an unknown outcome.")
            if probed is not UNKNOWN and probed is not NOT_DONE:
                await self._mark(key)
                return dict(probed)
            await self._take(key, own, first)
        more: dict[str, Any] = {"leaving": lambda: self._leave(key, own)} if tells else {}
        try:
            receipt = await self.sink.send(raw, self.email.envelope_from, [to], **more)
        except ToolError:
            await self._forget(key)
            raise
        await self._mark(key)
        return dict(receipt)

    async def probe(self, **args: Any) -> Any:
        """The outcome of a mail that is in doubt."""
        key = mail_key(
            args.get("source", ""), args.get("kind", "answer"), args.get("to", ""), args.get("customer"),
            args.get("step", ""),
        )  # fmt: skip
        message_id = self.email.message_id(key)
        state = await self._state(key)
        if state == "sent":
            return {"message_id": message_id, "status": "existing"}
        if state in (None, READY):  # a mail that was never begun did not go out
            return NOT_DONE
        probed = await self.sink.probe(message_id)
        if probed is not UNKNOWN and probed is not NOT_DONE:
            await self._mark(key)
        return probed

    # -- records ------------------------------------------------------------------------------------------

    async def _begin(
        self, key: str, kind: str, to: str, message_id: str, own: str, first: str = BEGUN
    ) -> str | None:
        """Record that a mail is about to be sent; returns its earlier state.

        None if it is new or certainly never left; `sent`; `own` if this same effect began it before;
        otherwise `under way` while another run may be sending it, and `left` after that.
        """
        now = self._now().timestamp()

        def work(connection: sqlite3.Connection) -> str | None:
            row = connection.execute("SELECT state, holder, at FROM replies WHERE key = ?", (key,)).fetchone()
            if row is None:
                connection.execute(
                    "INSERT INTO replies VALUES (?, ?, ?, ?, ?, ?, ?)",
                    (key, kind, address_hash(to), message_id, first, own, now),
                )
                return None
            state, holder, at = row
            if state == SENT:
                return "sent"
            if holder != own and now - at < UNDER_WAY:
                return "under way"
            if state == READY:
                connection.execute(_TAKE, {"key": key, "holder": own, "at": now, "state": first})
                return None
            return "own" if holder == own else "left"

        try:
            return await self._database.write(work)
        except DatabaseError as error:
            raise ToolError(error.code, error.message, transient=error.transient) from error

    async def _state(self, key: str) -> str | None:
        rows = await self._database.rows("SELECT state FROM replies WHERE key = ?", (key,))
        return str(rows[0]["state"]) if rows else None

    async def _take(self, key: str, own: str, state: str = BEGUN) -> None:
        """Take over a mail that was begun."""
        values = {"key": key, "holder": own, "at": self._now().timestamp(), "state": state}
        await self._database.change(_TAKE, values)

    async def _leave(self, key: str, own: str) -> None:
        """Record that the mail leaves.

        Raises:
            MailInDoubt: another process has taken the mail over.
        """
        if await self._database.change(_LEAVE, (self._now().timestamp(), key, own)) != 1:
            raise MailInDoubt("Another process has taken this mail over in the meantime.")

    async def _mark(self, key: str) -> None:
        await self._database.change("UPDATE replies SET state = 'sent' WHERE key = ?", (key,))

    async def _forget(self, key: str) -> None:
        await self._database.change("DELETE FROM replies WHERE key = ? AND state <> 'sent'", (key,))


def reply_key(source: str, kind: str) -> str:
    """The key of an answer, from the mail it answers and its kind."""
    return hashlib.sha256(f"{source}\n{kind}".encode()).hexdigest()


def is_notice(to: str, customer: str | None) -> bool:
    """Whether a mail goes to somebody else than the customer whose mail is at hand."""
    return customer is not None and to.strip().casefold() != customer.strip().casefold()


def mail_key(source: str, kind: str, to: str, customer: str | None, step: str) -> str:
    """The key of a mail: of the answer, or of a notice by its step and address."""
    if not is_notice(to, customer):
        return reply_key(source, kind)
    return hashlib.sha256(f"{source}\n{NOTICE}\n{step}\n{to.strip().casefold()}".encode()).hexdigest()


def address_hash(address: str) -> str:
    """The hash of an address, under which its mails are counted."""
    return hashlib.sha256(address.strip().casefold().encode()).hexdigest()[:32]


def send_email_tool(
    replies: Replies,
    *,
    given: Callable[[StepContext], Mapping[str, Any]] | None = None,
    retry: RetryPolicy = USUAL,
    breaker: BreakerPolicy | None = None,
) -> Tool:
    """The effect `send_email`.

    The run provides the mail that is answered (`source`), its id, references and language; no agent can.
    """
    return Tool(
        "send_email",
        replies.send,
        "effect",
        probe=replies.probe,
        wants_call=True,
        retry=retry,
        breaker=breaker,
        private=True,
        given=given,
        description="Send one mail to the customer, in answer to the mail at hand.",
        arguments=ARGUMENTS,
        prose=PROSE,
    )
