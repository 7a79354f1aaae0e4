"""Starts a mail's runs: the first one, and those after a failure.

A later run continues where the one before it failed, with its data and receipts. It starts at the first step
if that was requested, if the run before exceeded the limit of steps, if the files have changed since, and if
the texts are gone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from detent.apps.warranty.intake_records import Record, run_id_of
from detent.apps.warranty.mail_data import Packed
from detent.apps.warranty.processor import EmailProcessor
from detent.engine import logger
from detent.engine.engine import Engine
from detent.engine.journal_reader import read
from detent.flows.playbook.flow import MAX_STEPS
from detent.kernel.entries import Moved, Started
from detent.kernel.errors import DefinitionChanged, DetentError, RunExists, RunNotFound

MAIL_DATA = ("email", "mail", "flags")
"""Data a run starts with; the steps add the rest."""

Fetch = Callable[[Record], Awaitable[Packed | None]]
"""Reads the mail of a record from its source; None when it is no longer there."""


class TextGone(DetentError):
    """A mail cannot be run again: neither its mailbox nor the store has its text any more."""

    def __init__(self, mail_key: str) -> None:
        self.mail_key = mail_key
        super().__init__(
            f"Mail {mail_key} cannot be run again: it is not in the mailbox any more, and its text is purged."
        )


class Starter:
    """Starts runs, each once, even if several processes try."""

    def __init__(self, processor: EmailProcessor, fetch: Fetch) -> None:
        self.processor = processor
        self._fetch = fetch

    @property
    def engine(self) -> Engine:
        """The engine of the runs."""
        return self.processor.orchestrator.engine

    async def begin(self, record: Record, packed: Packed | None = None) -> bool:
        """Start the latest run of a record; False when another process has started it."""
        try:
            if record.whole or not await self._fork(record):
                await self._start(record, packed)
        except RunExists:
            return False
        return True

    async def _start(self, record: Record, packed: Packed | None) -> None:
        packed = packed or await self._stored_mail(record) or await self._fetch(record)
        if packed is None:
            raise TextGone(record.mail_key)
        await self.processor.start(
            packed, how=record.orchestrator, run_id=record.run_id, tags=(f"mail:{record.mail_key}",)
        )

    async def _fork(self, record: Record) -> bool:
        """Fork the run before at its failing step; False when that is not possible."""
        try:
            before = await self.engine.get(record.earlier)
        except RunNotFound:
            return False
        if before.reason == MAX_STEPS or before.flow not in self.engine.flows:
            return False
        reference: Any = before.data.get("email") or {}
        if not reference.get("$blob") or await self.engine.store.blob(reference["$blob"]) is None:
            return False
        at = await self._entry_into(record.earlier)
        try:
            await self.engine.fork(record.earlier, at, new_id=record.run_id)
        except DefinitionChanged:
            logger.warning("mail.begun_anew", mail_key=record.mail_key, reason="definition_changed")
            return False
        return True

    async def _entry_into(self, run_id: str) -> int:
        """Sequence number of the entry that led into the step in which a run failed."""
        came = 1
        async for entry in read(self.engine.store, run_id):
            if isinstance(entry.body, Moved) and entry.body.status is None:
                came = entry.seq
        return came

    async def _stored_mail(self, record: Record) -> Packed | None:
        """The mail from an earlier run of the record, if its text is still stored."""
        for number in range(record.runs - 1, 0, -1):
            try:
                entries = await self.engine.store.entries(run_id_of(record.mail_key, number), limit=1)
            except RunNotFound:
                continue
            if not entries or not isinstance(entries[0].body, Started):
                continue
            data = {key: value for key, value in entries[0].body.data.items() if key in MAIL_DATA}
            raw = await self.engine.store.blob((data.get("email") or {}).get("$blob", ""))
            if raw is not None:
                return Packed(data, (raw,))
        return None
