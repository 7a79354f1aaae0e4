"""A dry run: mails are decided with real queries, their effects are shown, and nothing is performed.

The runs are kept in memory. Effects are replaced by tools that only record their arguments.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from detent.adapters.mail.sink import Receipt
from detent.adapters.mail.source import MailGone, MailSource
from detent.apps.warranty.intake import Intake, source_id
from detent.apps.warranty.mail_data import pack
from detent.apps.warranty.processor import EmailProcessor
from detent.apps.warranty.service import MailResult, Tell
from detent.engine import logger
from detent.engine.tools import NOT_DONE, EffectCall, Tool

TICKET = "TKT-00000"
"""Id of a ticket that was not opened."""


@dataclass(slots=True)
class Rehearsal:
    """Wraps tools and records the effects that would have been performed."""

    shown: dict[str, list[tuple[str, dict[str, Any]]]] = field(default_factory=dict)
    """The proposed effects by run, in order."""

    def wrap(self, tool: Tool) -> Tool:
        """An effect that is only recorded; a query unchanged."""
        if tool.kind != "effect":
            return tool

        async def perform(call: EffectCall, **args: Any) -> dict[str, Any]:
            self.shown.setdefault(call.run_id, []).append((tool.name, args))
            if tool.name == "create_ticket":
                return {"ticket_id": TICKET, "status": "shown", "created_at": ""}
            return {"message_id": "<shown@localhost>", "status": "shown"}

        return replace(
            tool, perform=perform, probe=None, idempotent=True, wants_call=True, arguments=tool.schema
        )


class NoSink:
    """A sink that sends nothing."""

    def describe(self) -> str:
        return "nowhere"

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def send(self, raw: bytes, envelope_from: str, to: Any) -> Receipt:
        raise AssertionError("a rehearsal sends nothing")

    async def probe(self, message_id: str) -> Any:
        return NOT_DONE


async def rehearse(
    source: MailSource, intake: Intake, processor: EmailProcessor, tell: Tell
) -> list[MailResult]:
    """Decide about every mail in a mailbox; nothing is written down, performed or marked."""
    components = intake.components
    where = source_id(source.describe())
    results: list[MailResult] = []
    for ref in await source.list():
        try:
            arrival = await source.fetch(ref)
        except MailGone:
            continue
        seen = await intake.foresee(arrival, where)
        if seen.decision != "run" or seen.mail is None:
            mail_result = MailResult(seen.record.mail_key, seen.decision, seen.reason)
        else:
            packed = pack(seen.mail, components.settings.warranty.timezone, components.now())
            with logger.about(mail_key=seen.record.mail_key):
                how, run_id = await processor.start(packed)
                run = await processor.orchestrator.engine.finish(run_id)
            result = await processor.result(how, run)
            mail_result = MailResult(seen.record.mail_key, run.status.value, run.reason, result, run_id)
        results.append(mail_result)
        tell(mail_result)
    return results
