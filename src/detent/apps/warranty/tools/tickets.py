"""Service tickets, and the effect that opens them: `create_ticket`.

A ticket's key is made of the mail's thread, the customer and the device, so a second request gets the same
ticket, and after a crash the tool can find out what happened.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from detent.adapters.mail.headers import usable_address
from detent.apps.warranty.domain.scope import issue_description as described
from detent.apps.warranty.domain.serials import serial_key
from detent.apps.warranty.tools.database import BUSY_TIMEOUT, Database, DatabaseError
from detent.apps.warranty.tools.registry import BREAKER, Given
from detent.engine.tools import NOT_DONE, Tool, ToolError
from detent.kernel.plain import digest
from detent.kernel.policy import USUAL, BreakerPolicy, RetryPolicy

PRIORITIES = ("low", "normal", "high", "urgent")
LONGEST_SUBJECT = 200

_NEXT = "UPDATE ticket_numbers SET last = last + 1 RETURNING last"
_BY_KEY = "SELECT * FROM tickets WHERE idempotency_key = ?"


def ticket_key(thread_root: str, customer_email: str, serial_number: str) -> str:
    """The idempotency key of a ticket: the same for every mail of a thread about one device."""
    return digest([thread_root.strip(), customer_email.strip().lower(), serial_key(serial_number)], 32)


@dataclass(frozen=True, slots=True)
class NewTicket:
    """A ticket to be opened."""

    idempotency_key: str
    serial_number: str
    customer_email: str
    issue_description: str
    priority: str
    category: str
    warranty_status: str | None
    subject: str
    source_message_id: str | None

    def fields(self) -> dict[str, Any]:
        """Its arguments, without the key."""
        facts = asdict(self)
        del facts["idempotency_key"]
        return facts


@dataclass(frozen=True, slots=True)
class Ticket:
    """A ticket that was opened."""

    ticket_id: str
    idempotency_key: str
    serial_number: str
    customer_email: str
    issue_description: str
    priority: str
    category: str
    warranty_status: str | None
    subject: str
    source_message_id: str | None
    status: str
    created_at: str
    """ISO 8601, UTC."""


class TicketDesk(Protocol):
    """A system that opens tickets."""

    @property
    def idempotent(self) -> bool:
        """Whether a second request with the same key opens no second ticket."""

    @property
    def can_find(self) -> bool:
        """Whether it can look a ticket up by its key."""

    async def create(self, ticket: NewTicket) -> dict[str, Any]:
        """Open a ticket, or find the one with the same key; returns the receipt."""

    async def find(self, ticket: NewTicket) -> dict[str, Any] | None:
        """The receipt of the ticket with the same key; None if there is none."""


def _now() -> datetime:
    return datetime.now(UTC)


class Tickets:
    """The embedded tickets."""

    idempotent = True
    can_find = True

    def __init__(
        self, path: Path, now: Callable[[], datetime] = _now, busy_timeout: float = BUSY_TIMEOUT
    ) -> None:
        self.path = Path(path)
        self._database = Database(self.path, "tickets", busy_timeout)
        self._now = now

    async def close(self) -> None:
        """Close the file."""
        await self._database.close()

    async def create(self, ticket: NewTicket) -> dict[str, Any]:
        """Open a ticket, or return the receipt of the one with the same key."""
        created_at = stamp(self._now())

        def work(connection: sqlite3.Connection) -> dict[str, Any]:
            existing = connection.execute(_BY_KEY, (ticket.idempotency_key,)).fetchone()
            if existing is not None:
                return receipt(existing["ticket_id"], "existing", existing["created_at"])
            (number,) = connection.execute(_NEXT).fetchone()
            row = {"number": number, "ticket_id": f"TKT-{number}", **asdict(ticket), "created_at": created_at}
            names = ", ".join(row)
            connection.execute(
                f"INSERT INTO tickets ({names}) VALUES ({', '.join('?' * len(row))})", tuple(row.values())
            )
            return receipt(row["ticket_id"], "created", created_at)

        try:
            return await self._database.write(work)
        except DatabaseError as error:
            if not error.sure:
                raise  # in doubt: the probe settles it
            raise ToolError(error.code, error.message, transient=error.transient) from error

    async def find(self, ticket: NewTicket) -> dict[str, Any] | None:
        """The receipt of the ticket with this key: `created` when it was opened for this very mail."""
        existing = await self.by_key(ticket.idempotency_key)
        if existing is None:
            return None
        own = existing.source_message_id == ticket.source_message_id
        return receipt(existing.ticket_id, "created" if own else "existing", existing.created_at)

    async def by_key(self, key: str) -> Ticket | None:
        """The ticket with a key."""
        return await self._first_ticket(_BY_KEY, key)

    async def show(self, ticket_id: str) -> Ticket | None:
        """The ticket with an id."""
        return await self._first_ticket(
            "SELECT * FROM tickets WHERE ticket_id = ?", ticket_id.strip().upper()
        )

    async def list(self, limit: int = 100) -> list[Ticket]:
        """Tickets, the latest first."""
        rows = await self._database.rows("SELECT * FROM tickets ORDER BY number DESC LIMIT ?", (limit,))
        return [_ticket(row) for row in rows]

    async def _first_ticket(self, sql: str, value: str) -> Ticket | None:
        rows = await self._database.rows(sql, (value,))
        return _ticket(rows[0]) if rows else None


def _ticket(row: sqlite3.Row) -> Ticket:
    return Ticket(**{item.name: row[item.name] for item in fields(Ticket)})


def receipt(ticket_id: str, status: str, created_at: str) -> dict[str, Any]:
    """The result of `create_ticket`."""
    return {"ticket_id": ticket_id, "status": status, "created_at": created_at}


def stamp(moment: datetime) -> str:
    """A moment as ISO 8601 in UTC."""
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


# -- the tool -----------------------------------------------------------------------------------------------


def _text(most: int, description: str, least: int = 0) -> dict[str, Any]:
    return {"type": "string", "minLength": least, "maxLength": most, "description": description}


ARGUMENTS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "serial_number": _text(100, "The device's serial number.", 1),
        "customer_email": _text(320, "The customer's address.", 3),
        "issue_description": _text(20_000, "What is wrong, in the customer's words."),
        "priority": {"enum": list(PRIORITIES), "description": "`high` where there is danger."},
        "category": _text(60, "`warranty-repair` unless told otherwise.", 1),
        "warranty_status": {**_text(60, "What the registry said."), "type": ["string", "null"]},
        "subject": _text(400, "The device and its serial number."),
        "source_message_id": {**_text(998, "Id of the customer's mail."), "type": ["string", "null"]},
    },
    "required": ["serial_number", "customer_email", "issue_description"],
    "additionalProperties": False,
}
"""The arguments the tool publishes."""


def create_ticket_tool(
    handlers: TicketDesk,
    *,
    given: Given | None = None,
    retry: RetryPolicy = USUAL,
    breaker: BreakerPolicy | None = BREAKER,
) -> Tool:
    """The effect `create_ticket`.

    `given` reads two more arguments from the run. The tool does not publish them, so no agent can set them:
    `thread_root`, the id of the first mail of the thread (without it the mail's own id stands for it), and
    `language`, for the text of a ticket without a description. It may give published ones too, such as
    `source_message_id`; what the run gives wins.
    """

    def new_ticket(
        serial_number: str,
        customer_email: str,
        issue_description: str,
        priority: str = "normal",
        category: str = "warranty-repair",
        warranty_status: str | None = None,
        subject: str = "",
        source_message_id: str | None = None,
        thread_root: str | None = None,
        language: str = "en",
    ) -> NewTicket:
        thread = thread_root or source_message_id
        wrong = [
            text
            for text, bad in (
                ("serial_number has neither letters nor digits", not serial_key(serial_number)),
                ("customer_email is no address", not _address(customer_email)),
                (f"priority is none of {', '.join(PRIORITIES)}", priority not in PRIORITIES),
                ("neither thread_root nor source_message_id says which mail it is for", not thread),
            )
            if bad
        ]
        if wrong:
            raise ToolError("invalid", f"create_ticket: {'; '.join(wrong)}")
        assert thread is not None
        return NewTicket(
            ticket_key(thread, customer_email, serial_number),
            serial_number.strip(),
            customer_email.strip(),
            described(issue_description, language),
            priority,
            category,
            warranty_status,
            " ".join(subject.split())[:LONGEST_SUBJECT],
            source_message_id,
        )

    async def create_ticket(
        serial_number: str,
        customer_email: str,
        issue_description: str,
        priority: str = "normal",
        category: str = "warranty-repair",
        warranty_status: str | None = None,
        subject: str = "",
        source_message_id: str | None = None,
        thread_root: str | None = None,
        language: str = "en",
    ) -> dict[str, Any]:
        return await handlers.create(
            new_ticket(
                serial_number, customer_email, issue_description, priority, category, warranty_status,
                subject, source_message_id, thread_root, language,
            )
        )  # fmt: skip

    async def find_ticket(**args: Any) -> Any:
        existing = await handlers.find(new_ticket(**args))
        return NOT_DONE if existing is None else existing

    return Tool(
        "create_ticket",
        create_ticket,
        "effect",
        probe=find_ticket if handlers.can_find else None,
        idempotent=handlers.idempotent,
        given=given,
        retry=retry,
        breaker=breaker,
        private=True,
        description="Open one service ticket for a device; the same thread and device give the same ticket.",
        arguments=ARGUMENTS,
    )


def _address(text: str) -> bool:
    """Whether mail can be sent to this address, by the same rule as for reading and writing mails."""
    return usable_address(text.strip()) is not None
