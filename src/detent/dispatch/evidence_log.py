"""Writes verdicts about agents to the store: those of several visits share one write.

A wrong or refused answer is written before the run continues: it may lower the step. Nobody waits for other
verdicts, right answers and outages among them: they are written in the background, a moment later, together
with those that follow. A process that is killed loses no more than these, of its last moment.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import Context, copy_context
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from detent.dispatch.agreement import StoredEvidence
from detent.dispatch.autonomy import AutonomyLevel
from detent.dispatch.draft_plants import PLANTS, DraftPlants, power_behind
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
from detent.dispatch.mark_set import MarkSet
from detent.dispatch.plan import work_fingerprint
from detent.dispatch.standing import Consequence, Observation, Standing
from detent.dispatch.watch import WATCHES, Watch, draw_key
from detent.engine import logger
from detent.kernel.entries import Noted
from detent.kernel.errors import Fenced, MarkMoved, StoreError, StoreUnavailable
from detent.kernel.plain import digest

if TYPE_CHECKING:
    from detent.engine.ports import MarkChange, Store
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
        self.own_names: set[str] = set()
        """Steps known not to be another one renamed or copied, or held as that one is."""

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
        """Add verdicts to a standing by themselves; with those that have consequences, a journal is told."""
        for attempt in range(TRIES):
            changes = await self._changes(key, several)
            try:
                if changes.notes:
                    await changes.of.commit_whole(*changes.notes, marks=changes.marks.changes)
                    break
            except MarkMoved:
                await _wait(attempt)
                continue
            except Fenced:  # another worker has the run; the evidence is about the agent all the same
                pass
            if await changes.marks.write():
                break
            await _wait(attempt)
        else:
            logger.error("evidence.lost", key=key, verdicts=len(several), error="contention")
            return
        if changes.marks.moved and not changes.notes:
            await self._watch_again(changes)
        changes.tell()

    async def _watch_again(self, changes: _Changes) -> None:
        """Bring the watch up to date with verdicts whose standing is written already."""
        for attempt in range(TRIES):
            again = _Changes(MarkSet(changes.marks.store), changes.of)
            for judged in changes.judged:
                await self._watch(again, *judged)
            if await again.marks.write():
                return
            await _wait(attempt)
        logger.error("evidence.lost", key=WATCHES, verdicts=len(changes.judged), error="contention")

    async def commit(self, several: Sequence[Counted], note: Noted, *marks: MarkChange) -> None:
        """Commit a note together with the verdicts it gives rise to: a crash keeps both or neither.

        The verdicts belong to one series and one run.
        """
        driver = several[0].driver
        key = mark_of(several[0].step, several[0].series)
        for attempt in range(TRIES):
            changes = await self._changes(key, several)
            try:
                await driver.commit_whole(note, *changes.notes, marks=(*marks, *changes.marks.changes))
            except MarkMoved as moved:
                if any(moved.key == mark.key for mark in marks):
                    raise
                await _wait(attempt)
                continue
            changes.tell()
            return
        raise StoreUnavailable(f"The evidence '{key}' is written by too many at once.")

    async def _changes(self, key: str, several: Sequence[Counted]) -> _Changes:
        """All that follows from verdicts of one series."""
        first, rules = several[0], self.rules
        store = first.driver.engine.store
        check = await power_of(store, first.step, first.series)
        plants = await plants_of(store, first.step, first.series)
        changes = _Changes(MarkSet(store), first.driver)
        for counted in several:
            standing = Standing.from_plain(await changes.marks.get(key))
            power = power_behind(standing.judges, check, plants)
            standing, consequence = standing.after(counted.seen, rules, power)
            changes.marks.put(key, standing.to_plain())
            if counted.concerns_watch:
                changes.judged.append((counted, standing, power))
                await self._watch(changes, *changes.judged[-1])
            if consequence is not None:
                await self._follow(changes, counted, consequence)
        return changes

    async def _watch(
        self, changes: _Changes, counted: Counted, standing: Standing, power: Power | None
    ) -> None:
        """Bring the step's watch up to date with a verdict."""
        kind, key = counted.seen.kind, f"{WATCHES}{counted.step}"
        before = Watch.from_plain(await changes.marks.get(key))
        watch = before.after(
            counted.seen, standing, self.rules, power, share=counted.share, agent=counted.agent,
            audit=counted.audit,
        )  # fmt: skip
        if watch == before:
            return
        changes.marks.put(key, watch.to_plain())
        if (left := watch.of(kind).recheck) and not before.of(kind).recheck:
            changes.say(
                counted, "autonomy.recheck", autonomy=counted.seen.level.value, clean=left, kind=kind or None
            )

    async def _follow(self, changes: _Changes, counted: Counted, consequence: Consequence) -> None:
        """Add what follows from a verdict beyond its standing."""
        what, why = consequence
        facts = {"step": counted.step, "why": why}
        if what == "drift":
            changes.say(counted, "agreement.drift", why=why)
        elif what == "tolerance":
            changes.say(counted, "autonomy.restarted", why=why, by="settings")
            changes.note(counted, "autonomy.restarted", facts)
        elif what == "kind":
            kind, key = counted.seen.kind, f"{WATCHES}{counted.step}"
            changes.say(counted, "autonomy.kind_lowered", kind=kind, why=why)
            changes.marks.put(key, Watch.from_plain(await changes.marks.get(key)).without(kind).to_plain())
            changes.note(counted, "autonomy.kind_lowered", {**facts, "kind": kind})
        elif counted.by_agent:
            await self._lower(changes, counted, why)

    async def _lower(self, changes: _Changes, counted: Counted, why: str) -> None:
        """Demote the step by one level; the store, the log and the journal say so."""
        name, was, marks = counted.step, counted.seen.level, changes.marks
        now = counted.driver.clock.now()
        lower = below(was, self.rules)
        if lower is None:
            return
        present = Demotion.from_plain(await marks.get(f"{DEMOTIONS}{name}"))
        if present is not None and present.level <= lower:
            return
        flow = counted.driver.flow
        steps = {flow.qualified(step): step for step in flow.every_step()}
        work = work_fingerprint(steps[name]) if name in steps else ""
        demotion = Demotion(lower, was, why, now, "engine", counted.series, work)
        marks.put(f"{DEMOTIONS}{name}", demotion.to_plain())
        marks.put(f"{DEMOTED}{name}", [*recent(await marks.get(f"{DEMOTED}{name}"), now), now])
        for key in await _kept_about(marks.store, name):
            if key != mark_of(name, counted.series):  # which has begun anew already
                await _empty(marks, key, now)
        changes.say(
            counted, "autonomy.demoted", autonomy=lower.value, was=was.value, why=why,
            hint=f"look at `detent autonomy report`; `detent autonomy restore {name}` puts it back",
        )  # fmt: skip
        note = {"step": name, "level": lower.value, "was": was.value, "why": why}
        changes.note(counted, "autonomy.demoted", note)


@dataclass(slots=True)
class _Changes:
    """What verdicts change: marks, a journal, the log."""

    marks: MarkSet
    of: Work
    """The run whose journal is told of consequences."""
    notes: list[Noted] = field(default_factory=list)
    judged: list[tuple[Counted, Standing, Power | None]] = field(default_factory=list)
    """The verdicts that the step's watch is told of, each with its standing and the power of its check."""
    events: list[Callable[[], None]] = field(default_factory=list)

    def note(self, counted: Counted, topic: str, facts: dict[str, Any]) -> None:
        """Have the journal told."""
        if not self.notes:
            self.of = counted.driver
        self.notes.append(Noted(topic, facts, aside=True))

    def say(self, counted: Counted, event: str, **facts: Any) -> None:
        """Have it logged once it is written."""
        self.events.append(lambda: counted.tell(logger.warning, event, **facts))

    def tell(self) -> None:
        """Log it."""
        for event in self.events:
            event()


async def _wait(attempt: int) -> None:
    """Wait a moment before a mark that others write too is tried again."""
    await asyncio.sleep(random.uniform(0, 0.002 * (attempt + 1)))


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


async def plants_of(store: Store, step: str, series: dict[str, Any]) -> DraftPlants | None:
    """The planted drafts that persons who judge a series were shown; None without any."""
    mark, _ = await store.mark(f"{PLANTS}{step}/{series.get('check')}")
    return None if mark is None else DraftPlants.from_plain(mark)


async def stored_evidence(store: Store, now: float) -> StoredEvidence:
    """What the store keeps about agents besides journals."""
    standings = await store.marks(EVIDENCE)
    powers = await store.marks(POWER)
    lowered = await store.marks(DEMOTED)
    planted = await store.marks(PLANTS)
    return StoredEvidence(
        {key.removeprefix(EVIDENCE): Standing.from_plain(mark) for key, mark in standings.items()},
        {
            key.removeprefix(POWER): power
            for key, mark in powers.items()
            if (power := Power.from_plain(mark)) is not None
        },
        {key.removeprefix(DEMOTED): len(recent(times, now)) for key, times in lowered.items()},
        {key.removeprefix(PLANTS): DraftPlants.from_plain(mark) for key, mark in planted.items()},
    )


async def held_as(store: Store, step: str, work: str) -> None:
    """Hold a step that is new in the store as another one is held that does the same.

    It was renamed or copied. A step with evidence of its own, or lowered before, is judged by that.
    """
    if not work:
        return
    for key, mark in (await store.marks(DEMOTIONS)).items():
        try:
            held = Demotion.from_plain(mark)
        except ValueError:
            continue
        if held is None or held.work != work or any((await store.marks(f"{EVIDENCE}{step}/")).values()):
            continue
        why = f"it does what {key.removeprefix(DEMOTIONS)} does, which was lowered: {held.why}"
        await store.set_mark(f"{DEMOTIONS}{step}", replace(held, why=why).to_plain(), 0)


async def begin_anew(store: Store, step: str, now: float) -> None:
    """Empty the standings of a step, and its watch."""
    for key in await _kept_about(store, step):
        while True:
            marks = MarkSet(store)
            await _empty(marks, key, now)
            if await marks.write():
                break


async def _kept_about(store: Store, step: str) -> list[str]:
    """The marks that hold the standings of a step, and its watch."""
    prefix = f"{EVIDENCE}{step}/"
    standings = [key for key, mark in (await store.marks(prefix)).items() if mark]
    # A step may have a name that begins with this one's.
    return [*(key for key in standings if "/" not in key.removeprefix(prefix)), f"{WATCHES}{step}"]


async def _empty(marks: MarkSet, key: str, now: float) -> None:
    """Begin a standing anew, or forget a watch."""
    mark = await marks.get(key)
    if mark:
        watch = key.startswith(WATCHES)
        marks.put(key, None if watch else Standing.from_plain(mark).anew(now).to_plain())
