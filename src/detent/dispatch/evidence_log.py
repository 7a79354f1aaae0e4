"""Verdicts about agents on their way into the store: many at once become one write, and none is lost.

A verdict that can only speak for an agent is written in passing; one that speaks against it is written before
the run goes on, because a step may have to go down a level.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from detent.dispatch.autonomy import AutonomyLevel
from detent.dispatch.evidence import DEMOTIONS, Demotion, EvidenceRules, Tally, Verdict, below
from detent.kernel import log
from detent.kernel.entries import Noted
from detent.kernel.errors import Fenced, StoreError
from detent.kernel.plain import digest

if TYPE_CHECKING:
    from detent.engine.work import Work

EVIDENCE = "evidence/"
"""Prefix of the marks that hold a step's tally."""
TRIES = 100
"""At writing a mark that other processes write too."""


@dataclass(slots=True)
class Counted:
    """One verdict, and whom to tell what follows from it."""

    verdict: Verdict
    step: str
    """Qualified name."""
    level: AutonomyLevel
    by_agent: bool
    """An agent performs the step, so that it may go down a level."""
    series: dict[str, Any]
    driver: Work
    log: Callable[..., None]
    """Logs an event about the step."""


class EvidenceLog:
    """The tallies of every series under way in this process."""

    def __init__(self, rules: EvidenceRules) -> None:
        self._rules = rules
        self._waiting: dict[str, list[Counted]] = {}
        self._writers: dict[str, asyncio.Task[None]] = {}
        self._clean: set[str] = set()
        """Tallies that held nothing against the agent when they were last written."""

    async def count(self, counted: Counted) -> None:
        """Add a verdict to its tally."""
        key = f"{EVIDENCE}{counted.step}/{digest(counted.series, 12)}"
        self._waiting.setdefault(key, []).append(counted)
        if key not in self._writers:
            self._writers[key] = asyncio.create_task(self._write(key))
        # Agreement may complete a window in which there was too little of it.
        speaks_for = counted.verdict is Verdict.AGREED and key in self._clean
        if not speaks_for and counted.verdict is not Verdict.UNCHECKED:
            await asyncio.shield(self._writers[key])

    async def settle(self) -> None:
        """Wait until everything said so far is written."""
        await asyncio.gather(*self._writers.values(), return_exceptions=True)

    async def _write(self, key: str) -> None:
        """Write what waits for one tally, until nothing does."""
        try:
            while counted := self._waiting.pop(key, None):
                try:
                    await self._add(key, counted)
                except (Fenced, StoreError) as error:
                    log.error("evidence.lost", key=key, verdicts=len(counted), error=type(error).__name__)
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
            log.error("evidence.lost", key=key, verdicts=len(several), error="contention")
            return
        (self._clean.discard if {"d", "h"} & set(tally.recent) else self._clean.add)(key)
        for counted, tally_then in drifted:
            counted.log(log.warning, "agreement.drift", n=tally_then.n, agreed=tally_then.agreed)
        for counted, why in lowered:
            await self._lower(counted, why)

    async def _lower(self, counted: Counted, why: str) -> None:
        """Hold the step at the next level down, and say so: to the store, the log and the journal."""
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
            return  # somebody else has just said something about it
        counted.log(
            log.warning, "autonomy.demoted", autonomy=lower.value, was=counted.level.value, why=why,
            hint=f"look at `detent autonomy report`; `detent autonomy restore {name}` puts it back",
        )  # fmt: skip
        note = {"step": name, "level": lower.value, "was": counted.level.value, "why": why}
        await driver.commit_whole(Noted("autonomy.demoted", note, aside=True))
