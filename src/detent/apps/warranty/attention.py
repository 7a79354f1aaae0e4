"""Mails a person must see: failed, degraded, waiting, held, unreadable; each with why and what to do."""

from __future__ import annotations

from dataclasses import dataclass

from detent.apps.warranty.intake_records import Record, Records
from detent.apps.warranty.settings import WarrantySettings
from detent.engine.ports import RunRow, Store
from detent.kernel.errors import RunNotFound
from detent.kernel.status import Status


@dataclass(frozen=True, slots=True)
class Matter:
    """One mail that needs somebody."""

    mail_key: str
    what: str
    """failed, degraded, cancelled, waiting, held, unreadable."""
    reason: str | None
    since: float
    run_id: str | None = None
    runs: int = 0
    again_at: float | None = None
    """When it is run again by itself, if it is."""
    command: tuple[str, ...] = ()
    """The next command, for a person to type; empty where the mailbox itself is the place to go to."""

    def to_plain(self) -> dict[str, object]:
        """As JSON values."""
        return {
            "mail": self.mail_key, "what": self.what, "reason": self.reason, "since": self.since,
            "run": self.run_id, "runs": self.runs, "again_at": self.again_at,
            "command": ["detent", *self.command] if self.command else None,
        }  # fmt: skip


async def attention(records: Records, store: Store, settings: WarrantySettings) -> list[Matter]:
    """Everything that needs somebody, the oldest first."""
    found: list[Matter] = []
    for record in await records.open():
        if record.decision in ("held", "unreadable"):
            command = ("warranty", "retry", record.mail_key) if record.decision == "held" else ()
            found.append(
                Matter(record.mail_key, record.decision, record.reason, record.seen_at, command=command)
            )
        elif record.decision == "run":
            try:
                row = await store.row(record.run_id)
            except RunNotFound:
                continue  # about to be begun
            if (matter := _matter(record, row, settings)) is not None:
                found.append(matter)
    return found


def _matter(record: Record, row: RunRow, settings: WarrantySettings) -> Matter | None:
    now, mail = row.now, settings.mail
    if now.status in (Status.RUNNING, Status.SUCCEEDED):
        return None
    again_at = None
    command: tuple[str, ...] = ("warranty", "retry", record.mail_key)
    reason = now.reason
    if now.status is Status.FAILED and record.runs < mail.max_runs_per_message:
        again_at = now.updated_at + mail.retry_after_minutes * 60
    if now.status is Status.WAITING:
        waits = [wait for wait in now.waits or () if wait["why"] not in ("timer", "breaker", "children")]
        if not waits:
            return None  # goes on by itself
        wait = waits[0]
        reason = f"{wait['why']}: {wait['name'].partition(':')[0]}"
        if wait["name"].startswith("effect:"):
            command = ("resolve", row.id, "happened")
        else:
            command = ("release", row.id, *(wait["choices"] or ["ANSWER"])[:1])
    return Matter(
        record.mail_key, now.status.value, reason, now.updated_at, row.id, record.runs, again_at, command
    )
