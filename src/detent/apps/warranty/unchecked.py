"""Mails that were answered without a check, because the registry did not answer: to look after them later."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from detent.apps.warranty.handlers import CHECK_FAILED
from detent.apps.warranty.intake_records import key_in
from detent.apps.warranty.legacy.flow import NAME as LEGACY
from detent.engine.journal_reader import read, rows_of
from detent.engine.ports import RunQuery, RunRow, Store
from detent.kernel.entries import Moved, Started

FLOW = "warranty"


@dataclass(frozen=True, slots=True)
class Unchecked:
    """One mail that was told that its warranty could not be checked."""

    mail_key: str | None
    """None for a run that was started without a mailbox."""
    run_id: str
    answered_at: float
    serial_number: str | None
    code: str | None
    """The registry's failure."""
    checked_in: str | None = None
    """A later run in which the same device was checked: the customer wrote again, say."""

    def to_plain(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "mail": self.mail_key, "run": self.run_id, "answered_at": self.answered_at,
            "serial_number": self.serial_number, "code": self.code, "checked_in": self.checked_in,
        }  # fmt: skip


async def unchecked(store: Store, since: float | None = None, until: float | None = None) -> list[Unchecked]:
    """The mails of runs created in this time that were answered without a check, the oldest first."""
    found: list[tuple[RunRow, Unchecked]] = []
    checks: defaultdict[str, list[RunRow]] = defaultdict(list)
    for flow in (FLOW, LEGACY):
        async for row in rows_of(store, RunQuery(flow=flow, since=since)):
            serial, answer, mail = await _read(store, row)
            if mail is not None and (until is None or row.created_at < until):
                found.append((row, mail))
            elif serial and answer.get("status"):
                checks[serial].append(row)
    mails = []
    for row, mail in found:
        later = [check for check in checks[mail.serial_number or ""] if check.number > row.number]
        first = min(later, key=lambda check: check.number, default=None)
        mails.append(replace(mail, checked_in=None if first is None else first.id))
    return sorted(mails, key=lambda mail: mail.answered_at)


async def _read(store: Store, row: RunRow) -> tuple[str | None, Mapping[str, Any], Unchecked | None]:
    """The serial number of a run, the registry's answer, and the mail if it was answered without a check."""
    serial: str | None = None
    answer: Mapping[str, Any] = {}
    answered_at: float | None = None
    async for entry in read(store, row.id):
        body = entry.body
        if isinstance(body, Started):
            serial = body.data.get("serial_number")
        elif isinstance(body, Moved):
            serial = body.set.get("serial_number", serial)
            answer = body.set.get("warranty_data") or answer
            if CHECK_FAILED in (body.append.get("flags") or ()):  # set with the reply, once that is sent
                answered_at = entry.at
    if answered_at is None:
        return serial, answer, None
    error = answer.get("error")
    code = error.get("code") if isinstance(error, Mapping) else None
    return serial, answer, Unchecked(key_in(row.id), row.id, answered_at, serial, code)
