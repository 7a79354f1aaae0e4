"""Writes verdicts about agents to the store: those of several visits share one write.

A verdict that can only favour an agent is written in the background, a moment later, together with those that
follow it; one against it is written before the run continues, because it may demote the step. A process that
is killed loses no more than what the last moment said in favour of its agents.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from detent.dispatch.agreement import StoredEvidence
from detent.dispatch.autonomy import AutonomyLevel
from detent.dispatch.evidence import (
    DEMOTED,
    DEMOTIONS,
    POWER,
    Demotion,
    EvidenceRules,
    Power,
    Verdict,
    below,
    recent,
)
from detent.dispatch.standing import Consequence, Observation, Standing
from detent.dispatch.watch import WATCHES, Watch, draw_key
from detent.engine import logger
from detent.kernel.entries import Noted
from detent.kernel.errors import Fenced, StoreError
from detent.kernel.plain import digest

if TYPE_CHECKING:
    from detent.engine.ports import Store
    from detent.engine.work import Work

EVIDENCE = "evidence/"
"""Prefix of the marks that hold the standing of a series."""
LINGER = 0.1
"""Seconds for which a verdict waits for others to share its write, unless somebody waits for it."""
TRIES = 100
"""Attempts at writing a mark that other processes write too."""


@dataclass(slots=True)
class Counted:
    """One verdict, and the run that is notified of its consequences."""

    seen: Observation
    step: str
    """Qualified name."""
    by_agent: bool
    """An agent performs the step and has a handler beside it, so that it can be demoted."""
    series: dict[str, Any]
    driver: Work
    log: Callable[..., None]
    """Logs an event about the step."""
    agent: str = ""
    """Fingerprint of the agent, as far as it is known before it answers."""
    share: float = 0.0
    """The share of the step's visits that is judged."""
    audit: bool = False
    """The answer was used before it was judged."""
    context: Context = field(default_factory=copy_context)
    """The run's own, because verdicts of several runs are written together: its facts are logged."""

    @property
    def concerns_watch(self) -> bool:
        """Whether it may change what the step's watch says about the next visit."""
        seen = self.seen
        return seen.verdict.judges and (bool(seen.kind) or seen.level >= AutonomyLevel.CONSULTANT)

    def tell(self, level: Callable[..., None], event: str, **facts: Any) -> None:
        """Log an event about the step, with the facts of its own run."""
        self.context.run(self.log, level, event, **facts)


class EvidenceLog:
    """The standings of every series under way in this process."""

    def __init__(self, rules: EvidenceRules) -> None:
        self.rules = rules
        self.linger = LINGER
        self._waiting: dict[str, list[Counted]] = {}
        self._writers: dict[str, asyncio.Task[None]] = {}
        self._urgent: dict[str, asyncio.Event] = {}
        """Set where pending verdicts are to be written now."""
        self._key: bytes | None = None

    async def count(self, counted: Counted) -> None:
        """Add a verdict to its standing."""
        key = mark_of(counted.step, counted.series)
        self._waiting.setdefault(key, []).append(counted)
        if key not in self._writers:
            self._urgent[key] = asyncio.Event()
            self._writers[key] = asyncio.create_task(self._write(key), context=Context())
        if counted.concerns_watch:
            self._urgent[key].set()
        if counted.seen.verdict in (Verdict.DIFFERED, Verdict.REFUSED):
            self._urgent[key].set()
            await asyncio.shield(self._writers[key])

    async def settle(self) -> None:
        """Write all verdicts so far."""
        for urgent in self._urgent.values():
            urgent.set()
        await asyncio.gather(*self._writers.values(), return_exceptions=True)

    async def draw_key(self, store: Store) -> bytes:
        """The secret of the store by which audits are drawn."""
        if self._key is None:
            self._key = await draw_key(store)
        return self._key

    async def _write(self, key: str) -> None:
        """Write the pending verdicts of one standing until there are none."""
        try:
            while key in self._waiting:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self.linger):
                        await self._urgent[key].wait()
                counted = self._waiting.pop(key)
                try:
                    await self._add(key, counted)
                except (Fenced, StoreError) as error:
                    logger.error("evidence.lost", key=key, verdicts=len(counted), error=type(error).__name__)
        finally:
            del self._writers[key], self._urgent[key]

    async def _add(self, key: str, several: list[Counted]) -> None:
        rules, store = self.rules, several[0].driver.engine.store
        power = await power_of(store, several[0].step, several[0].series)
        for attempt in range(TRIES):
            mark, version = await store.mark(key)
            standing = Standing.from_plain(mark)
            consequences: list[tuple[Counted, Consequence]] = []
            steps: list[tuple[Counted, Standing]] = []
            for counted in several:
                standing, consequence = standing.after(counted.seen, rules, power)
                steps.append((counted, standing))
                if consequence is not None:
                    consequences.append((counted, consequence))
            if await store.set_mark(key, standing.to_plain(), version):
                break
            await asyncio.sleep(random.uniform(0, 0.002 * (attempt + 1)))
        else:
            logger.error("evidence.lost", key=key, verdicts=len(several), error="contention")
            return
        await self._watch(steps, power)
        for counted, consequence in consequences:
            await self._follow(counted, consequence)

    async def _watch(self, steps: list[tuple[Counted, Standing]], power: Power | None) -> None:
        """Bring the step's watch up to date with several verdicts."""
        first = steps[0][0]
        if not any(each.concerns_watch for each, _ in steps):
            return
        key, store = f"{WATCHES}{first.step}", first.driver.engine.store
        for attempt in range(TRIES):
            mark, version = await store.mark(key)
            watch = before = Watch.from_plain(mark)
            began: list[tuple[Counted, int]] = []
            for counted, standing in steps:
                earlier = watch
                watch = watch.after(
                    counted.seen, standing, self.rules, power, share=counted.share, agent=counted.agent,
                    audit=counted.audit,
                )  # fmt: skip
                kind = counted.seen.kind
                if watch.of(kind).recheck and not earlier.of(kind).recheck:
                    began.append((counted, watch.of(kind).recheck))
            if watch == before:
                return
            if await store.set_mark(key, watch.to_plain(), version):
                for counted, left in began:
                    counted.tell(
                        logger.warning, "autonomy.recheck", autonomy=counted.seen.level.value, clean=left,
                        kind=counted.seen.kind or None,
                    )  # fmt: skip
                return
            await asyncio.sleep(random.uniform(0, 0.002 * (attempt + 1)))
        logger.error("evidence.lost", key=key, verdicts=len(steps), error="contention")

    async def _follow(self, counted: Counted, consequence: Consequence) -> None:
        """Do what follows from a verdict."""
        what, why = consequence
        facts = {"step": counted.step, "why": why}
        if what == "drift":
            counted.tell(logger.warning, "agreement.drift", why=why)
        elif what == "tolerance":
            counted.tell(logger.warning, "autonomy.restarted", why=why, by="settings")
            await counted.driver.commit_whole(Noted("autonomy.restarted", facts, aside=True))
        elif what == "kind":
            kind = counted.seen.kind
            counted.tell(logger.warning, "autonomy.kind_lowered", kind=kind, why=why)
            await _change(
                counted.driver.engine.store, f"{WATCHES}{counted.step}",
                lambda mark: Watch.from_plain(mark).without(kind).to_plain(),
            )  # fmt: skip
            await counted.driver.commit_whole(
                Noted("autonomy.kind_lowered", {**facts, "kind": kind}, aside=True)
            )
        elif counted.by_agent:
            await self._lower(counted, why)

    async def _lower(self, counted: Counted, why: str) -> None:
        """Demote the step by one level, and record it in the store, the log and the journal."""
        driver, name, was = counted.driver, counted.step, counted.seen.level
        store, now = driver.engine.store, driver.clock.now()
        lower = below(was, self.rules)
        if lower is None:
            return
        mark, version = await store.mark(f"{DEMOTIONS}{name}")
        present = Demotion.from_plain(mark)
        if present is not None and present.level <= lower:
            return
        demotion = Demotion(lower, was, why, now, "engine", counted.series)
        if not await store.set_mark(f"{DEMOTIONS}{name}", demotion.to_plain(), version):
            return  # another process has just changed it
        await _change(store, f"{DEMOTED}{name}", lambda times: [*recent(times, now), now])
        await begin_anew(store, name, now, but=mark_of(name, counted.series))
        counted.tell(
            logger.warning, "autonomy.demoted", autonomy=lower.value, was=was.value, why=why,
            hint=f"look at `detent autonomy report`; `detent autonomy restore {name}` puts it back",
        )  # fmt: skip
        note = {"step": name, "level": lower.value, "was": was.value, "why": why}
        await driver.commit_whole(Noted("autonomy.demoted", note, aside=True))


def mark_of(step: str, series: dict[str, Any]) -> str:
    """The mark that holds the standing of a series."""
    return f"{EVIDENCE}{step}/{digest(series, 12)}"


async def power_of(store: Store, step: str, series: dict[str, Any]) -> Power | None:
    """The measured power of the check that judges a series."""
    check = series.get("check")
    if not check:
        return None
    mark, _ = await store.mark(f"{POWER}{step}/{check}")
    return Power.from_plain(mark)


async def stored_evidence(store: Store, now: float) -> StoredEvidence:
    """What the store keeps about agents besides journals."""
    standings = await store.marks(EVIDENCE)
    powers = await store.marks(POWER)
    lowered = await store.marks(DEMOTED)
    return StoredEvidence(
        {key.removeprefix(EVIDENCE): Standing.from_plain(mark) for key, mark in standings.items()},
        {
            key.removeprefix(POWER): power
            for key, mark in powers.items()
            if (power := Power.from_plain(mark)) is not None
        },
        {key.removeprefix(DEMOTED): len(recent(times, now)) for key, times in lowered.items()},
    )


async def begin_anew(store: Store, step: str, now: float, *, but: str | None = None) -> None:
    """Empty the standings of a step, and its watch; `but` names a mark that has begun anew already."""
    prefix = f"{EVIDENCE}{step}/"
    for key, mark in (await store.marks(prefix)).items():
        if mark and key != but and "/" not in key.removeprefix(prefix):  # not of a step below its name
            await _change(store, key, lambda plain: Standing.from_plain(plain).anew(now).to_plain())
    await _change(store, f"{WATCHES}{step}", lambda _: None)


async def _change(store: Store, key: str, change: Callable[[Any], Any]) -> None:
    """Change a mark that others may change too."""
    while True:
        mark, version = await store.mark(key)
        new = change(mark)
        if new == mark or await store.set_mark(key, new, version):
            return
