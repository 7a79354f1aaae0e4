"""Where a mail begins: usually at the first step; at the second when one serial number is beyond doubt."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

from detent.apps.warranty.craft.scope import scope_of
from detent.apps.warranty.handlers import CHECK, Desk
from detent.apps.warranty.mail_data import MailView
from detent.apps.warranty.results import StepRoutingResult
from detent.apps.warranty.settings import FIRST_STEP, Router

SHORT = 20
"""Characters below which a mail is called short."""
LLM_CONFIDENCE = 0.85

Ask = Callable[[MailView], Awaitable[tuple[str, str | None] | None]]
"""Asks a model where to begin: `(step, serial)`, or None when it cannot say."""


class StepRouter:
    """Decides the first step of a mail."""

    def __init__(self, desk: Desk, settings: Router, ask: Ask | None = None) -> None:
        self.desk = desk
        self.settings = settings
        self.ask = ask

    async def route_to_initial_step(self, mail: MailView, strategy: str | None = None) -> StepRoutingResult:
        """The first step, how sure that is, and by which method."""
        strategy = strategy or self.settings.strategy
        found, facts = self.desk.facts(mail)
        scope = scope_of(mail.subject, mail.parts, self.desk.words)
        newest = mail.newest.strip()
        signals: dict[str, Any] = {
            "spam": scope.kind == "spam",
            "short": len(newest) < SHORT,
            "warranty_words": len(scope.hits.get("warranty", ())),
            "serial_count": len(found.all_detected_serials),
        }
        usual = StepRoutingResult(FIRST_STEP, 1.0, "default", signals)
        if strategy == "heuristic":
            sure = (
                found.serial_number is not None
                and not found.ambiguous
                and len(found.all_detected_serials) == 1
                and found.confidence >= self.settings.min_confidence
            )
            if sure and not signals["short"] and scope.kind == "in_scope":
                return StepRoutingResult(CHECK, 0.95, "heuristic", signals, facts)
        elif strategy == "llm" and self.ask is not None:
            try:
                answer = await self.ask(mail)
            except Exception:
                return usual
            if answer is not None:
                step, serial = answer
                if step == FIRST_STEP:
                    return StepRoutingResult(FIRST_STEP, LLM_CONFIDENCE, "llm", signals)
                if step == CHECK and serial and _stands_in(mail, serial):
                    return StepRoutingResult(
                        CHECK, LLM_CONFIDENCE, "llm", signals, {**facts, "serial_number": serial}
                    )
        return usual


def _stands_in(mail: MailView, serial: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(serial)}(?!\w)", mail.text, re.IGNORECASE) is not None
