"""Decides about incoming mail: unreadable, ignored, a duplicate, held, or run.

Nothing is started or marked here. Reasons are single words and never text of the mail.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from email.utils import parseaddr
from typing import Any, Literal

from detent.adapters.mail.automatic_mail import ignore_reason
from detent.adapters.mail.message import EmailMessage, Unreadable, read_message
from detent.adapters.mail.source import Arrival
from detent.apps.warranty.intake_records import DAY, Decision, Rate, Record, Records
from detent.apps.warranty.tools.replies import address_hash, reply_key
from detent.apps.warranty.wiring import Components
from detent.engine import logger

Orchestrator = Literal["step", "legacy"]
CHANGED = "changed"
"""Reason of a duplicate whose bytes differ from those of the first mail."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """The decision about an arrival."""

    decision: Decision
    record: Record
    reason: str | None = None
    mail: EmailMessage | None = None
    new: bool = True
    """Whether this process recorded the mail; False if it was known before."""


def source_id(described: str) -> str:
    """The id of a mailbox in records."""
    return hashlib.sha256(described.encode()).hexdigest()[:16]


class Intake:
    """The intake of one mailbox."""

    def __init__(
        self,
        components: Components,
        records: Records,
        choose: Callable[[], Awaitable[Orchestrator]],
    ) -> None:
        self.components = components
        self.records = records
        self._choose = choose
        mail = components.settings.mail
        self._own = [mail.from_, *mail.own_addresses]
        self._limit = int(mail.max_size_mb * 1024 * 1024)

    def read(self, arrival: Arrival) -> EmailMessage:
        """The mail of an arrival.

        Raises:
            Unreadable: it is too large, or not a mail.
        """
        if arrival.raw is None:
            raise Unreadable("too_large", arrival.size)
        return read_message(
            arrival.raw, received=arrival.received, fallback=arrival.file_time, limit=self._limit
        )

    async def admit(self, arrival: Arrival, source: str) -> Admitted:
        """Decide about a new arrival and record the decision."""
        new = self._first_decision(arrival, source)
        if new.decision != "run":
            # Holds for this arrival, whatever is recorded under its id.
            record, fresh = await self.records.add(new.record)
            return replace(new, record=record, new=fresh)
        assert new.mail is not None
        known = await self.records.by_id(new.record.id)
        if known is None:
            planned = replace(new.record, runs=1, orchestrator=await self._choose())
            known, fresh = await self.records.add(planned, await self._rate(new.mail))
            if fresh:
                return Admitted(known.decision, known, known.reason, new.mail)
        if (known.source, known.ref) == (source, arrival.ref):  # another process was first; not a copy
            return Admitted(known.decision, known, known.reason, new.mail, new=False)
        return Admitted("duplicate", known, _difference(known, new.record), new.mail, new=False)

    async def foresee(self, arrival: Arrival, source: str) -> Admitted:
        """The decision about an arrival, without recording it."""
        new = self._first_decision(arrival, source)
        if new.decision != "run" or new.mail is None:
            return new
        known = await self.records.by_id(new.record.id)
        if known is not None and (known.marked or (known.source, known.ref) != (source, arrival.ref)):
            return replace(new, decision="duplicate", reason=_difference(known, new.record), new=False)
        since = self.components.now().timestamp() - DAY
        sent = await self.components.replies.sent_to(new.mail.reply_address or "", since)
        if sent >= self.components.settings.mail.max_replies_per_sender_per_day:
            return replace(new, decision="held", reason="rate")
        return new

    def _first_decision(self, arrival: Arrival, source: str) -> Admitted:
        """The decision that follows from the mail alone: unreadable, ignored, or run."""
        try:
            mail = self.read(arrival)
        except Unreadable as error:
            sha256 = hashlib.sha256(arrival.raw).hexdigest() if arrival.raw is not None else ""
            # Identified by its place: each is left there for a person, even if another has the same bytes.
            id = hashlib.sha256(f"{source}\n{arrival.ref}\n{sha256}".encode()).hexdigest()
            record = Record(id, id[:12], sha256, source, arrival.ref, "unreadable", error.reason)
            return Admitted("unreadable", record, error.reason)
        id = hashlib.sha256(mail.message_id.encode()).hexdigest() if mail.message_id else mail.sha256
        own_domain = parseaddr(self.components.settings.mail.from_)[1].rpartition("@")[2] or None
        reason = ignore_reason(mail, self._own, own_domain, self.components.settings.mail.own_lists)
        decision: Decision = "ignored" if reason is not None else "run"
        record = Record(
            id, mail.key, mail.sha256, source, arrival.ref, decision, reason,
            address_hash(mail.reply_address or ""), reply_key(mail.message_id or mail.key, "answer"),
        )  # fmt: skip
        return Admitted(decision, record, reason, mail)

    async def _rate(self, mail: EmailMessage) -> Rate:
        since = self.components.now().timestamp() - DAY
        await self.components.replies.sent_to(mail.reply_address or "", since)  # creates the table of replies
        return Rate(self.components.settings.mail.max_replies_per_sender_per_day, since)


def _difference(known: Record, new: Record) -> str | None:
    return CHANGED if known.sha256 and new.sha256 and known.sha256 != new.sha256 else None


def tell(admitted: Admitted) -> None:
    """Log a decision other than `run`; the events of runs are logged by their observer."""
    facts: dict[str, Any] = {
        "mail_key": admitted.record.mail_key,
        "decision": admitted.decision,
        "reason": admitted.reason,
    }
    if admitted.decision == "ignored":
        logger.info("mail.ignored", **facts)
    elif admitted.decision == "duplicate":
        (logger.warning if admitted.reason == CHANGED else logger.info)("mail.duplicate", **facts)
    elif admitted.decision in ("held", "unreadable"):
        logger.warning(f"mail.{admitted.decision}", **facts)
