"""Begins a mail's runs: the first one, and those after a failure.

A run after the first goes on where the one before it failed, with its data and receipts. It begins at the
first step where that was asked for, where the one before ran in circles, where the files have changed since,
and where the texts are gone.
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
"""What a run starts from; everything else in its data it found out itself."""

Fetch = Callable[[Record], Awaitable[Packed | None]]
"""The mail of a record from where it lies; None when it is not there any more."""


class TextGone(DetentError):
    """A mail cannot be run again: neither its mailbox nor the store has its text any more."""

    def __init__(self, mail_key: str) -> None:
        self.mail_key = mail_key
        super().__init__(
            f"Mail {mail_key} cannot be run again: it is not in the mailbox any more, and its text is purged."
        )


class Starter:
    """Begins runs, each once, whoever else tries to."""

    def __init__(self, processor: EmailProcessor, fetch: Fetch) -> None:
        self.processor = processor
        self._fetch = fetch

    @property
    def engine(self) -> Engine:
        """Where the runs are."""
        return self.processor.orchestrator.engine

    async def begin(self, record: Record, packed: Packed | None = None) -> bool:
        """Begin the latest run of a record; False when another process has begun it."""
        try:
            if record.whole or not await self._forked(record):
                await self._started(record, packed)
        except RunExists:
            return False
        return True

    async def _started(self, record: Record, packed: Packed | None) -> None:
        packed = packed or await self._kept(record) or await self._fetch(record)
        if packed is None:
            raise TextGone(record.mail_key)
        await self.processor.start(
            packed, how=record.orchestrator, run_id=record.run_id, tags=(f"mail:{record.mail_key}",)
        )

    async def _forked(self, record: Record) -> bool:
        """Go on from the failing step of the run before; False when there is nothing to go on from."""
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
        """The entry with which a run came into the step it failed in."""
        came = 1
        async for entry in read(self.engine.store, run_id):
            if isinstance(entry.body, Moved) and entry.body.status is None:
                came = entry.seq
        return came

    async def _kept(self, record: Record) -> Packed | None:
        """The mail as the first run of the record has it, if its text is still kept."""
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
