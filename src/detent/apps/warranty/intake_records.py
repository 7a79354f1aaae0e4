"""Records of every mail the mailbox has read, so that none is run, answered or counted twice.

Several processes may write at once: a row is created once, and every later change is conditional on the state
before it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, NamedTuple

from detent.apps.warranty.tools.database import BUSY_TIMEOUT, Database

Decision = Literal["unreadable", "ignored", "duplicate", "held", "run"]
DAY = 86400.0


@dataclass(frozen=True, slots=True)
class Record:
    """The state of one mail."""

    id: str
    mail_key: str
    sha256: str
    source: str
    ref: str
    decision: Decision
    reason: str | None = None
    address_hash: str = ""
    reply_key: str = ""
    orchestrator: Literal["step", "legacy"] = "step"
    runs: int = 0
    whole: bool = True
    over: bool = False
    marked: bool = False
    gone: bool = False
    copies: int = 0
    seen_at: float = 0.0
    changed_at: float = 0.0

    @property
    def run_id(self) -> str:
        """Its latest run."""
        return run_id_of(self.mail_key, self.runs)

    @property
    def earlier(self) -> str:
        """The run before its latest."""
        return run_id_of(self.mail_key, self.runs - 1)


class Rate(NamedTuple):
    """How many answers an address may get since a time."""

    most: int
    since: float


def run_id_of(mail_key: str, number: int) -> str:
    """The id of a mail's run."""
    return f"w-{mail_key}-{number}"


def key_in(run_id: str) -> str | None:
    """The key of the mail a run is about; None for a run without a mail."""
    parts = run_id.split("-")
    return parts[1] if len(parts) == 3 and parts[0] == "w" else None


_FIELDS = tuple(field.name for field in fields(Record))
_FLAGS = ("whole", "over", "marked", "gone")
_INSERT = f"INSERT INTO intake ({', '.join(_FIELDS)}) VALUES ({', '.join(f':{name}' for name in _FIELDS)})"
# Answers sent, and runs that have not ended and not answered: each will answer once.
_ANSWERS = """
SELECT (SELECT count(*) FROM replies WHERE address_hash = :address AND at >= :since)
     + (SELECT count(*) FROM intake
        WHERE address_hash = :address AND seen_at >= :since AND decision = 'run' AND over = 0
          AND reply_key NOT IN (SELECT key FROM replies))
"""


class Records:
    """The intake records in the application's file."""

    def __init__(self, path: Path, now: Callable[[], float], busy_timeout: float = BUSY_TIMEOUT) -> None:
        self._database = Database(Path(path), "intake", busy_timeout)
        self._now = now

    async def close(self) -> None:
        """Close the file."""
        await self._database.close()

    # -- asking ---------------------------------------------------------------------------------------------

    async def by_id(self, id: str) -> Record | None:
        """The record of a mail."""
        records = await self._all("WHERE id = ?", (id,))
        return records[0] if records else None

    async def by_ref(self, source: str, ref: str) -> Record | None:
        """The record of the mail at this place."""
        records = await self._all("WHERE source = ? AND ref = ? ORDER BY changed_at DESC", (source, ref))
        return records[0] if records else None

    async def by_key(self, beginning: str) -> list[Record]:
        """Records of mails whose key has this prefix."""
        return await self._all("WHERE mail_key >= ? AND mail_key < ? LIMIT 20", (beginning, beginning + "g"))

    async def open(self, source: str | None = None) -> list[Record]:
        """Mails not yet processed, without those a person removed; the oldest first."""
        if source is None:
            return await self._all("WHERE marked = 0 AND gone = 0 ORDER BY seen_at", ())
        return await self._all("WHERE source = ? AND marked = 0 AND gone = 0 ORDER BY seen_at", (source,))

    async def _all(self, where: str, values: tuple[Any, ...]) -> list[Record]:
        rows = await self._database.rows(f"SELECT {', '.join(_FIELDS)} FROM intake {where}", values)
        return [_record(row) for row in rows]

    # -- writing --------------------------------------------------------------------------------------------

    async def add(self, record: Record, rate: Rate | None = None) -> tuple[Record, bool]:
        """Record a mail unless it is known; returns the valid record, and whether it is new.

        With a rate, a mail to be run whose sender would get too many answers is held instead; answers under
        way count, and no other process can come between counting and writing.
        """

        def work(connection: sqlite3.Connection) -> tuple[Record, bool]:
            row = connection.execute(
                f"SELECT {', '.join(_FIELDS)} FROM intake WHERE id = ?", (record.id,)
            ).fetchone()
            if row is not None:
                return _record(row), False
            values: dict[str, Any] = {name: getattr(record, name) for name in _FIELDS}
            values |= {"seen_at": self._now(), "changed_at": self._now()}
            if rate is not None and record.decision == "run":
                parameters = {"address": record.address_hash, "since": rate.since}
                (answers,) = connection.execute(_ANSWERS, parameters).fetchone()
                if answers >= rate.most:
                    values |= {"decision": "held", "reason": "rate", "runs": 0}
            connection.execute(_INSERT, values)
            return Record(**values), True

        return await self._database.write(work)

    async def again(self, record: Record, *, whole: bool, orchestrator: str) -> Record | None:
        """Record one more run of a mail; None when another process was first."""
        return await self._change(
            record,
            "runs = runs",
            decision="run",
            runs=record.runs + 1,
            whole=whole,
            over=False,
            orchestrator=orchestrator,
        )

    async def over(self, record: Record) -> Record | None:
        """Record that the end of its latest run has been handled."""
        return await self._change(record, "over = 0", over=True)

    async def mark(self, record: Record) -> Record | None:
        """Record that it is processed."""
        return await self._change(record, "marked = 0", marked=True, over=True, gone=False)

    async def gone(self, record: Record, gone: bool = True) -> Record | None:
        """Record that it is no longer in its place, or there again."""
        return await self._change(record, "marked = 0", gone=gone)

    async def moved(self, record: Record, source: str, ref: str) -> Record | None:
        """Record its new place."""
        return await self._change(record, "marked = 0", source=source, ref=ref, gone=False)

    async def came_again(self, record: Record) -> None:
        """Count one more arrival of a known mail."""
        await self._database.change("UPDATE intake SET copies = copies + 1 WHERE id = ?", (record.id,))

    async def _change(self, record: Record, condition: str, **changes: Any) -> Record | None:
        """Change a row if its latest run is still the same and the condition holds; None otherwise."""
        values = {**changes, "changed_at": self._now()}
        setting = ", ".join(f"{name} = :{name}" for name in values)
        sql = (
            f"UPDATE intake SET {setting} WHERE id = :id AND runs = :before AND {condition} "
            f"RETURNING {', '.join(_FIELDS)}"
        )

        def work(connection: sqlite3.Connection) -> Record | None:
            rows = connection.execute(sql, {**values, "id": record.id, "before": record.runs}).fetchall()
            return _record(rows[0]) if rows else None

        return await self._database.write(work)


def _record(row: Iterable[Any]) -> Record:
    values = dict(zip(_FIELDS, row, strict=True))
    for name in _FLAGS:
        values[name] = bool(values[name])
    return Record(**values)
