"""Registry and tickets in a CRM, over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any

from detent.adapters.crm.client import CrmClient
from detent.adapters.crm.faults import CrmFault
from detent.apps.warranty.domain.coverage import coverage, describes_device, device_of, normalised
from detent.apps.warranty.domain.serials import serial_key
from detent.apps.warranty.tools.registry import keys_to_try
from detent.apps.warranty.tools.tickets import NewTicket, receipt, stamp
from detent.engine.tools import ToolError


class CrmRegistry:
    """The registry in a CRM."""

    def __init__(self, client: CrmClient) -> None:
        self._client = client

    async def find(self, serial: str, on: date) -> dict[str, Any]:
        """The cover of a device on a day; looked up by its key, then as printed, then with or without SN.

        Raises:
            ToolError: the CRM failed, or its answer cannot be used.
        """
        key, others = keys_to_try(serial)
        if not key:
            return coverage(None, on, serial)
        try:
            printed = serial.strip()
            cover = await self._known(key, printed, on)
            if cover is None and printed != key:
                cover = await self._known(printed, printed, on)
            if cover is None:
                more = [
                    candidate
                    for other in others
                    if (candidate := await self._known(other, other, on)) is not None
                ]
                cover = more[0] if len(more) == 1 else None
        except CrmFault as fault:
            raise ToolError(fault.code, fault.message, transient=fault.transient) from fault
        return coverage(None, on, serial) if cover is None else cover

    async def _known(self, key: str, printed: str, on: date) -> dict[str, Any] | None:
        """The cover of a device the CRM knows; None for an unknown device."""
        record = await self._client.device(key)
        if record is None:
            return None
        names = record.get("serial_number") or record.get("serial")
        if describes_device(record):
            try:
                device = device_of(record if names else {**record, "serial_number": printed})
            except ValueError as error:
                raise ToolError(
                    "bad_response", f"the CRM's answer about a device is unreadable: {error}"
                ) from None
            result = coverage(device, on, key)
        else:
            result = normalised(record)
        if (failed := result.get("error")) is not None:
            # The CRM's own message may repeat the request.
            raise ToolError(failed["code"], "the CRM answered with an error", transient=failed["transient"])
        if result["status"] == "not_found" and not describes_device(record):
            return None
        if result["serial_number"] is None:
            result["serial_number"] = printed
        elif serial_key(result["serial_number"]) != serial_key(key):
            raise ToolError("bad_response", "the CRM answered with another device than it was asked for")
        return result


class CrmTickets:
    """The tickets in a CRM."""

    def __init__(self, client: CrmClient, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._client = client
        self._now = now
        self.idempotent = client.settings.idempotent
        self.can_find = client.settings.ticket_by_key_path is not None

    async def create(self, ticket: NewTicket) -> dict[str, Any]:
        """Open a ticket, or return the receipt of the one with the same key."""
        try:
            answer = await self._client.open_ticket(ticket.fields(), ticket.idempotency_key)
        except CrmFault as fault:
            if fault.sent:
                raise  # in doubt: the ticket may exist
            raise ToolError(fault.code, fault.message, transient=fault.transient) from fault
        status = answer.get("status")
        if status not in ("created", "existing"):
            status = "created" if answer["new"] else "existing"
        return receipt(answer["ticket_id"], status, self._created(answer))

    async def find(self, ticket: NewTicket) -> dict[str, Any] | None:
        """The receipt of the ticket with this key: `created` unless another mail opened it."""
        answer = await self._client.ticket_by_key(ticket.idempotency_key)
        if answer is None:
            return None
        source = answer.get("source_message_id")
        own = source is None or source == ticket.source_message_id
        return receipt(answer["ticket_id"], "created" if own else "existing", self._created(answer))

    def _created(self, answer: dict[str, Any]) -> str:
        """When the ticket was opened, by the CRM; now, if its answer has no readable time."""
        created_at = answer.get("created_at")
        if isinstance(created_at, str):
            try:
                moment = datetime.fromisoformat(created_at)
            except ValueError:
                return stamp(self._now())
            return stamp(moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC))
        return stamp(self._now())
