"""The reads that are the same in both SQL stores.

Statements are written once, with `?` for a value and `$.` before a table; a store puts them into its dialect.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from detent.adapters.stores import rows as shared
from detent.engine.ports import Cancellation, LedgerLine
from detent.kernel.status import Status

OWNED = "SELECT id, epoch FROM $.runs WHERE owner = ?"
ASKED = "SELECT id, asked FROM $.runs WHERE owner = ? AND asked IS NOT NULL ORDER BY number"
DUE = "SELECT id FROM $.runs WHERE wake_at <= ? AND status = 'waiting' ORDER BY wake_at, number LIMIT ?"
FIND = "SELECT id FROM $.runs WHERE id >= ? AND id < ? ORDER BY id LIMIT ?"
FOLD = "SELECT body FROM $.folds WHERE run = ?"
DEFINITION = "SELECT body FROM $.definitions WHERE fingerprint = ?"
EFFECT = "SELECT key, tool, state, seq FROM $.effects WHERE run = ? AND key = ?"
EFFECTS = "SELECT key, tool, state, seq FROM $.effects WHERE run = ? ORDER BY seq, key"
FLOWS = "SELECT flow, status, count(*) FROM $.runs GROUP BY flow, status ORDER BY flow, status"
BLOB = "SELECT body FROM $.blobs WHERE hash = ?"
MARK = "SELECT value, version FROM $.marks WHERE key = ?"
MARKS = "SELECT key, value FROM $.marks WHERE key >= ? AND key < ? ORDER BY key"


class SqlReads(ABC):
    """Reads for a store that can fetch the rows of a statement."""

    @abstractmethod
    async def _all(self, statement: str, *values: Any) -> list[Any]:
        """The rows of a statement."""

    @abstractmethod
    async def _of_run(self, run_id: str, statement: str, *values: Any) -> list[Any]:
        """The rows of a statement whose first value is the run's number; `RunNotFound` without that run."""

    async def _one(self, statement: str, *values: Any) -> Any:
        """A small row, found by its key; None without it."""
        rows = await self._all(statement, *values)
        return rows[0] if rows else None

    async def _one_of_run(self, run_id: str, statement: str, *values: Any) -> Any:
        """A small row of a run, found by its key; None without it, `RunNotFound` without that run."""
        rows = await self._of_run(run_id, statement, *values)
        return rows[0] if rows else None

    async def _ids(self, statement: str, *values: Any) -> list[str]:
        return [row[0] for row in await self._all(statement, *values)]

    async def owned(self, worker_id: str) -> list[tuple[str, int]]:
        """Runs a worker holds, with their epochs."""
        return await self._all(OWNED, worker_id)

    async def asked(self, worker_id: str) -> list[tuple[str, Cancellation]]:
        """Requests for this worker's runs."""
        return [(run_id, shared.request(text)) for run_id, text in await self._all(ASKED, worker_id)]

    async def due(self, now: float, limit: int = 100) -> list[str]:
        """Waiting runs whose time has come."""
        return await self._ids(DUE, now, limit)

    async def find(self, prefix: str, limit: int = 10) -> list[str]:
        """Ids that begin with a prefix."""
        return await self._ids(FIND, prefix, shared.after_prefix(prefix), limit)

    async def saved_fold(self, run_id: str) -> dict[str, Any] | None:
        """The latest saved fold."""
        rows = await self._of_run(run_id, FOLD)
        return shared.kept(f"The saved fold of run {run_id}", rows[0][0]) if rows else None

    async def definition(self, fingerprint: str) -> dict[str, Any] | None:
        """A definition some run was started under."""
        row = await self._one(DEFINITION, fingerprint)
        return shared.kept(f"The definition {fingerprint}", row[0]) if row is not None else None

    async def effect(self, run_id: str, key: str) -> LedgerLine | None:
        """The ledger line of one effect."""
        row = await self._one_of_run(run_id, EFFECT, key)
        return LedgerLine(*row) if row is not None else None

    async def effects(self, run_id: str) -> list[LedgerLine]:
        """The ledger lines of a run."""
        return [LedgerLine(*row) for row in await self._of_run(run_id, EFFECTS)]

    async def flows(self) -> list[tuple[str, Status, int]]:
        """Number of runs per flow and status."""
        return shared.counted(await self._all(FLOWS))

    async def blob(self, hash: str) -> bytes | None:
        """An offloaded value."""
        rows = await self._all(BLOB, hash)
        return bytes(rows[0][0]) if rows else None

    async def mark(self, key: str) -> tuple[Any, int]:
        """A small durable value and its version."""
        row = await self._one(MARK, key)
        return (shared.kept(f"The mark '{key}'", row[0]), row[1]) if row is not None else (None, 0)

    async def marks(self, prefix: str) -> dict[str, Any]:
        """Marks whose keys begin with a prefix."""
        rows = await self._all(MARKS, prefix, shared.after_prefix(prefix))
        return {key: shared.kept(f"The mark '{key}'", text) for key, text in rows}
