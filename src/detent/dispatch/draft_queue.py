"""The review queue: the drafts that wait for a person, planted ones among them, alike in everything shown.

A draft has a name of its own here, which tells neither its run nor whether there is one.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from detent.dispatch.draft import Draft
from detent.dispatch.draft_planting import ReadPlant, change_plants, draft_id, read_plant
from detent.dispatch.draft_plants import PLANTS, DraftPlants, Missed, PlantedDraft
from detent.dispatch.watch import draw_key
from detent.engine.journal_reader import load
from detent.engine.ports import RunQuery
from detent.insight.effect_text import REVIEW
from detent.kernel.errors import ConfigurationError, RunStateError
from detent.kernel.plain import decode
from detent.kernel.status import Status

if TYPE_CHECKING:
    from detent.engine.ports import RunRow, Store

PAGE = 1000
"""Rows read at a time; the runs behind them are not read."""


@dataclass(frozen=True, slots=True)
class QueuedDraft:
    """A draft that waits for a person."""

    id: str
    step: str
    since: float
    until: float | None
    run: str = ""
    """The run that waits; none behind a planted draft."""
    hold: str = ""
    """Token of its hold."""
    planted: PlantedDraft | None = None
    mark: str = ""
    """The mark that holds the planted draft."""


async def queue(store: Store, now: float) -> list[QueuedDraft]:
    """Every draft that waits and whose time is not over, the oldest first.

    Those of the same second are in the order of their names, so that none tells what it came with.
    """
    drafts: list[QueuedDraft] = []
    key: bytes | None = None
    query: RunQuery | None = RunQuery(status=(Status.WAITING,), limit=PAGE, tolerant=True)
    while query is not None:
        page = await store.rows(query)
        for row in page.rows:
            for wait in _waits(row):
                key = key or await draw_key(store)
                drafts.append(_queued(key, row, wait))
        before = page.next
        query = None if before is None else RunQuery(
            status=(Status.WAITING,), before=before, limit=PAGE, tolerant=True
        )  # fmt: skip
    for mark, plain in (await store.marks(PLANTS)).items():
        drafts += [
            QueuedDraft(plant.id, plant.place, plant.since, plant.until, planted=plant, mark=mark)
            for plant in DraftPlants.from_plain(plain).waiting.values()
            if plant.since <= now
        ]
    in_time = (draft for draft in drafts if draft.until is None or draft.until > now)
    return sorted(in_time, key=lambda draft: (round(draft.since), draft.id))


def _waits(row: RunRow) -> list[Mapping[str, Any]]:
    return [wait for wait in row.now.waits or () if wait.get("why") == REVIEW]


def _queued(key: bytes, row: RunRow, wait: Mapping[str, Any]) -> QueuedDraft:
    token = str(wait.get("token") or wait["name"])
    step = f"{row.flow}/{row.now.state}"
    name = draft_id(key, row.id, token)
    return QueuedDraft(name, step, row.now.updated_at, wait.get("wake_at"), row.id, token)


async def find(store: Store, name: str, now: float) -> QueuedDraft | None:
    """The draft of this name in the queue, or of a unique beginning of it; a run's id finds none.

    Raises:
        ConfigurationError: several drafts have names that begin so.
    """
    matches = [draft for draft in await queue(store, now) if name and draft.id.startswith(name)]
    if len(matches) > 1:
        shown = ", ".join(draft.id for draft in matches[:10])
        raise ConfigurationError(f"'{name}' is the beginning of several drafts: {shown}.")
    return matches[0] if matches else None


async def read_draft(store: Store, queued: QueuedDraft) -> tuple[Draft, ReadPlant | None]:
    """The text of a draft; with what was planted, if it is a planted one.

    Raises:
        RunStateError: it was answered meanwhile, or purged.
    """
    if queued.planted is not None:
        plant = await read_plant(store, queued.planted)
        if plant is None:
            await change_plants(store, queued.mark, lambda plants: plants.without(queued.id))
            raise _purged(queued)
        return plant.draft, plant
    run = await load(store, queued.run)
    for held in run.holds.values():
        if held.why == REVIEW and "kept" in held.about and run.token(held.name) == queued.hold:
            raw = await store.blob(held.about["kept"]["$blob"])
            if raw is None:
                raise _purged(queued)
            return Draft.from_plain(decode(raw)), None
    raise answered(queued.id)


def answered(name: str) -> RunStateError:
    """The error that a draft does not wait any more, or never did."""
    return RunStateError(f"No draft '{name}' waits for a person. See: detent review list")


def _purged(queued: QueuedDraft) -> RunStateError:
    return RunStateError(f"The text of draft {queued.id} was purged.")


async def judge_plant(store: Store, queued: QueuedDraft, by: str, caught: bool) -> tuple[int, int]:
    """Count a person's verdict on a planted draft, once; gives what they were shown and caught so far.

    Raises:
        RunStateError: somebody has answered it already.
    """
    after: list[DraftPlants] = []

    def answer(plants: DraftPlants) -> DraftPlants:
        if queued.id not in plants.waiting:
            raise answered(queued.id)
        after.append(plants.answered(queued.id, by, caught))
        return after[-1]

    await change_plants(store, queued.mark, answer)
    return after[-1].reviewer(by)


def _person(name: str) -> str:
    """A person's name as it is compared: `P1` and `p1` are one."""
    return " ".join(unicodedata.normalize("NFKC", name).casefold().split())


async def withdraw(store: Store, name: str, by: str) -> Missed:
    """Withdraw a planted claim that one person has approved and another calls right.

    Raises:
        RunStateError: nobody has approved such a claim, or the same person did.
    """
    for mark, plain in (await store.marks(PLANTS)).items():
        missed = [each for each in DraftPlants.from_plain(plain).missed if each.id == name]
        if not missed:
            continue
        if _person(missed[0].by) == _person(by):
            raise RunStateError(
                f"{by} has approved draft {name}; another person must call its planted claim right."
            )

        def change(plants: DraftPlants) -> DraftPlants:
            if not any(each.id == name for each in plants.missed):
                raise RunStateError(f"Draft {name} was withdrawn already.")
            return plants.called_right(name)

        await change_plants(store, mark, change)
        return missed[0]
    raise RunStateError(f"No person has approved a planted draft '{name}'.")
