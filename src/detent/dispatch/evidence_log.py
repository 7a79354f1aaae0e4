"""Writes verdicts about agents to the store: concurrent verdicts share one write, and none is lost.

A verdict that can only favour an agent is written in the background; one against it is written before the run
continues, because it may demote the step.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from detent.dispatch.autonomy import AutonomyLevel
from detent.dispatch.evidence import DEMOTIONS, Demotion, EvidenceRules, Tally, Verdict, below
from detent.engine import logger
from detent.kernel.entries import Noted
from detent.kernel.errors import Fenced, StoreError
from detent.kernel.plain import digest

if TYPE_CHECKING:
    from detent.engine.work import Work

EVIDENCE = "evidence/"
"""Prefix of the marks that hold a step's tally."""
TRIES = 100
"""Attempts at writing a mark that other processes write too."""


@dataclass(slots=True)
class Counted:
    """One verdict, and the run that is notified of its consequences."""

    verdict: Verdict
    step: str
    """Qualified name."""
    level: AutonomyLevel
    by_agent: bool
    """An agent performs the step, which can therefore be demoted."""
    series: dict[str, Any]
    driver: Work
    log: Callable[..., None]
    """Logs an event about the step."""
    context: Context = field(default_factory=copy_context)
    """The run's own, because verdicts of several runs are written together: its facts are logged."""

    def tell(self, level: Callable[..., None], event: str, **facts: Any) -> None:
        """Log an event about the step, with the facts of its own run."""
        self.context.run(self.log, level, event, **facts)


class EvidenceLog:
    """The tallies of every series under way in this process."""

    def __init__(self, rules: EvidenceRules) -> None:
        self._rules = rules
        self._waiting: dict[str, list[Counted]] = {}
        self._writers: dict[str, asyncio.Task[None]] = {}
        self._clean: set[str] = set()
        """Tallies without any evidence against the agent when last written."""

    async def count(self, counted: Counted) -> None:
        """Add a verdict to its tally."""
        key = f"{EVIDENCE}{counted.step}/{digest(counted.series, 12)}"
        self._waiting.setdefault(key, []).append(counted)
        if key not in self._writers:
            self._writers[key] = asyncio.create_task(self._write(key), context=Context())
        # An agreement may complete a window whose share of agreement is too low.
        speaks_for = counted.verdict is Verdict.AGREED and key in self._clean
        if not speaks_for and counted.verdict is not Verdict.UNCHECKED:
            await asyncio.shield(self._writers[key])

    async def settle(self) -> None:
        """Wait until all verdicts so far are written."""
        await asyncio.gather(*self._writers.values(), return_exceptions=True)

    async def _write(self, key: str) -> None:
        """Write the pending verdicts of one tally until there are none."""
        try:
            while counted := self._waiting.pop(key, None):
                try:
                    await self._add(key, counted)
                except (Fenced, StoreError) as error:
                    logger.error("evidence.lost", key=key, verdicts=len(counted), error=type(error).__name__)
        finally:
            del self._writers[key]

    async def _add(self, key: str, several: list[Counted]) -> None:
        rules, store = self._rules, several[0].driver.engine.store
        for attempt in range(TRIES):
            mark, version = await store.mark(key)
            tally = before = Tally.from_plain(mark)
            lowered: list[tuple[Counted, str]] = []
            drifted: list[tuple[Counted, Tally]] = []
            for counted in several:
                earlier, tally = tally, tally.after(counted.verdict, rules.keep)
                if tally.drifts(rules) and not earlier.drifts(rules):
                    drifted.append((counted, tally))
                why = tally.demotion(rules) if counted.by_agent else None
                if why is not None and below(counted.level, rules) is not None:
                    lowered.append((counted, why))
                    tally = Tally()
            if tally == before and not lowered:
                return
            if await store.set_mark(key, tally.to_plain(), version):
                break
            await asyncio.sleep(random.uniform(0, 0.002 * (attempt + 1)))
        else:
            logger.error("evidence.lost", key=key, verdicts=len(several), error="contention")
            return
        (self._clean.discard if {"d", "h"} & set(tally.recent) else self._clean.add)(key)
        for counted, tally_then in drifted:
            counted.tell(logger.warning, "agreement.drift", n=tally_then.n, agreed=tally_then.agreed)
        for counted, why in lowered:
            await self._lower(counted, why)

    async def _lower(self, counted: Counted, why: str) -> None:
        """Demote the step by one level, and record it in the store, the log and the journal."""
        driver, name = counted.driver, counted.step
        rules, store = self._rules, driver.engine.store
        lower = below(counted.level, rules)
        if lower is None:
            return
        mark, version = await store.mark(f"{DEMOTIONS}{name}")
        present = Demotion.from_plain(mark)
        if present is not None and present.level <= lower:
            return
        demotion = Demotion(lower, counted.level, why, driver.clock.now(), "engine", counted.series)
        if not await store.set_mark(f"{DEMOTIONS}{name}", demotion.to_plain(), version):
            return  # another process has just changed it
        counted.tell(
            logger.warning, "autonomy.demoted", autonomy=lower.value, was=counted.level.value, why=why,
            hint=f"look at `detent autonomy report`; `detent autonomy restore {name}` puts it back",
        )  # fmt: skip
        note = {"step": name, "level": lower.value, "was": counted.level.value, "why": why}
        await driver.commit_whole(Noted("autonomy.demoted", note, aside=True))
