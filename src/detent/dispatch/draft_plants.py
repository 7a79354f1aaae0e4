"""The planted drafts of one step: what they are made of, which of them wait, and who noticed what.

Pure. All of it is one mark of the store, so that a verdict and its record are one write: a planted draft is
answered once, and a process killed at any instant leaves it either waiting or counted. There is no run
behind it, so nothing of it can be sent. The mark holds no text: that lies with the run it was taken from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple

from detent.dispatch.evidence import PERSON, EvidenceRules, Power

PLANTS = "planted/"
"""Prefix of the marks; the step's qualified name and the check's fingerprint follow."""
MOST_SOURCES = 100
MOST_MISSED = 100
MOST_ARRIVED = 64
MOST_TIMES = 16
BURST = 60.0
"""Seconds up to which drafts are taken to have come together."""
AT_ONCE = 2
"""Planted drafts that a draft may bring with it."""
REVIEWER = f"{PERSON}/"
"""Prefix of the judges who read drafts; the person's name follows."""


class Source(NamedTuple):
    """An approved draft from which planted ones are made."""

    run: str
    kept: str
    """Hash of the wrong texts that were made from it, which are kept with its run."""
    sorts: tuple[str, ...]
    """Sort of each of them."""
    used: tuple[int, ...] = ()
    """Numbers of those that were planted."""


class PlantedDraft(NamedTuple):
    """A planted draft that waits for a person."""

    id: str
    sort: str
    kept: str
    number: int
    """Which of the texts kept."""
    run: str
    """The run whose draft it was made from."""
    place: str
    """The step as the queue shows it."""
    since: float
    until: float | None = None


class Missed(NamedTuple):
    """A planted draft that a person has approved."""

    id: str
    by: str
    sort: str


@dataclass(frozen=True, slots=True)
class DraftPlants:
    """The planted drafts of one step under one check."""

    sources: tuple[Source, ...] = ()
    waiting: Mapping[str, PlantedDraft] = field(default_factory=dict)
    owed: int = 0
    """Planted drafts that were drawn and could not be made yet."""
    arrived: tuple[str, ...] = ()
    """The latest drafts that have begun to wait, by their holds."""
    times: tuple[float, ...] = ()
    """When the latest of them did."""
    figures: Mapping[str, Mapping[str, tuple[int, int]]] = field(default_factory=dict)
    """Planted and caught, by reviewer and sort."""
    missed: tuple[Missed, ...] = ()
    """The latest, which another person may call right."""
    withdrawn: Mapping[str, int] = field(default_factory=dict)
    """By sort: claims that two persons called right, which were no errors."""
    contract: Mapping[str, int] = field(default_factory=dict)
    """By sort: wrong texts that the hard contract refused, which say nothing about a person."""

    # -- planting -------------------------------------------------------------------------------------------

    def with_source(self, source: Source, refused: Mapping[str, int]) -> DraftPlants:
        """With one more approved draft to plant from; `refused` are wrong texts that the contract refused."""
        if any(known.kept == source.kept for known in self.sources):
            return self
        contract = {sort: self.contract.get(sort, 0) + refused.get(sort, 0)
                    for sort in {*self.contract, *refused}}  # fmt: skip
        sources = (*self.sources, source) if source.sorts else self.sources
        return replace(self, sources=sources[-MOST_SOURCES:], contract=contract)

    def share(self, rules: EvidenceRules) -> float:
        """The share of planted drafts in the queue."""
        planted = len(self.waiting) + sum(n for sorts in self.figures.values() for n, _ in sorts.values())
        return rules.plant_first if planted < rules.plant_until else rules.plant

    def after_arrival(
        self,
        hold: str,
        now: float,
        rules: EvidenceRules,
        chances: Iterable[float],
        ids: Iterable[str],
        place: str,
        within: float | None,
    ) -> DraftPlants:
        """After a draft has begun to wait: planted ones may come with it.

        `chances` are numbers from 0 to below 1, drawn with the store's secret. A planted draft is made of the
        approved one that was used least, and of the sort that was planted least; it is shown as
        long after this one as drafts lie apart, so that neither the order of the queue nor a gap in it tells.
        """
        if hold in self.arrived:
            return self
        plants = replace(self, arrived=(*self.arrived, hold)[-MOST_ARRIVED:], waiting=self._in_time(now))
        numbers, names = iter(chances), iter(ids)
        share = plants.share(rules)
        if share > 0 and next(numbers) < share / (1 - share):
            plants = replace(plants, owed=plants.owed + 1)
        for _ in range(min(AT_ONCE, plants.owed)):
            since = plants._time_after(now, next(numbers))
            until = None if within is None else since + within
            made = plants._planted(next(names), place, since, until)
            if made is None:
                break
            plants = made
        return replace(plants, times=(*self.times, now)[-MOST_TIMES:])

    def _time_after(self, now: float, chance: float) -> float:
        """A time as long after now as two drafts in a row have come; in a burst, now.

        Until then the planted draft is not shown, so that none appears with a time that lies before.
        """
        gaps = [max(later - before, 0.0) for before, later in pairwise((*self.times, now))] or [0.0]
        part, where = divmod(chance * len(gaps), 1.0)
        gap = gaps[int(part)]
        return now if gap <= BURST else now + gap * where

    def _planted(self, name: str, place: str, since: float, until: float | None) -> DraftPlants | None:
        waiting = {plant.kept for plant in self.waiting.values()}
        free = [
            source for source in self.sources
            if source.kept not in waiting and len(source.used) < len(source.sorts)
        ]  # fmt: skip
        if not free:
            return None
        source = min(free, key=lambda each: len(each.used))
        counts = self._planted_by_sort()
        left = [number for number in range(len(source.sorts)) if number not in source.used]
        number = min(left, key=lambda each: counts.get(source.sorts[each], 0))
        plant = PlantedDraft(name, source.sorts[number], source.kept, number, source.run, place, since, until)
        used = source._replace(used=(*source.used, number))
        return replace(
            self, owed=self.owed - 1, waiting={**self.waiting, name: plant},
            sources=tuple(used if each is source else each for each in self.sources),
        )  # fmt: skip

    def _planted_by_sort(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for sorts in self.figures.values():
            for sort, (planted, _) in sorts.items():
                counts[sort] = counts.get(sort, 0) + planted
        for plant in self.waiting.values():
            counts[plant.sort] = counts.get(plant.sort, 0) + 1
        return counts

    def _in_time(self, now: float) -> dict[str, PlantedDraft]:
        return {
            name: plant for name, plant in self.waiting.items() if plant.until is None or plant.until > now
        }

    # -- verdicts -------------------------------------------------------------------------------------------

    def answered(self, name: str, by: str, caught: bool) -> DraftPlants:
        """After a person's verdict on a planted draft that waits."""
        plant = self.waiting[name]
        sorts = dict(self.figures.get(by, {}))
        planted, before = sorts.get(plant.sort, (0, 0))
        sorts[plant.sort] = (planted + 1, before + caught)
        missed = self.missed if caught else (*self.missed, Missed(name, by, plant.sort))[-MOST_MISSED:]
        return replace(self.without(name), figures={**self.figures, by: sorts}, missed=missed)

    def without(self, name: str) -> DraftPlants:
        """Without a planted draft whose text was purged: nobody can judge it."""
        return replace(self, waiting={each: plant for each, plant in self.waiting.items() if each != name})

    def called_right(self, name: str) -> DraftPlants:
        """After a second person has called a missed claim right: it was no error, and nobody missed it."""
        (missed,) = [each for each in self.missed if each.id == name]
        sorts = dict(self.figures[missed.by])
        planted, caught = sorts[missed.sort]
        sorts[missed.sort] = (planted - 1, caught)
        withdrawn = {**self.withdrawn, missed.sort: self.withdrawn.get(missed.sort, 0) + 1}
        return replace(
            self, figures={**self.figures, missed.by: sorts}, withdrawn=withdrawn,
            missed=tuple(each for each in self.missed if each.id != name),
        )  # fmt: skip

    # -- figures --------------------------------------------------------------------------------------------

    def reviewer(self, by: str) -> tuple[int, int]:
        """Planted drafts that a reviewer has judged, and how many of them they caught."""
        sorts = self._measurable(by)
        return sum(planted for planted, _ in sorts.values()), sum(caught for _, caught in sorts.values())

    @property
    def decided(self) -> int:
        """Planted drafts that persons have decided on."""
        return sum(planted for planted, _ in self._judged_by_sort().values())

    def _measurable(self, by: str) -> dict[str, tuple[int, int]]:
        """The figures of a reviewer without the sorts of which more than half were withdrawn."""
        planted = self._judged_by_sort()
        return {
            sort: figures for sort, figures in self.figures.get(by, {}).items()
            if figures[0] and self.withdrawn.get(sort, 0) <= planted.get(sort, (0, 0))[0]
        }  # fmt: skip

    def _judged_by_sort(self, among: Iterable[str] | None = None) -> dict[str, tuple[int, int]]:
        sums: dict[str, tuple[int, int]] = {}
        for by in self.figures if among is None else among:
            for sort, (planted, caught) in self.figures.get(by, {}).items():
                before = sums.get(sort, (0, 0))
                sums[sort] = (before[0] + planted, before[1] + caught)
        return sums

    def power(self, verdicts: Mapping[str, int]) -> Power | None:
        """The power of the persons who judged an agent; `verdicts` counts the drafts that each has judged.

        A person who has judged drafts and no planted one has no power, so that together they have none. What
        they caught counts as far as planted drafts are spread over them as the others are: forty planted
        before one person say nothing about a second one, who judged most.
        """
        total = sum(verdicts.values())
        parts: list[tuple[float, str, str]] = []
        spread, missed = float("inf"), 0.0
        for by, judged in verdicts.items():
            planted, caught = self.reviewer(by)
            if not planted:
                return None
            weight = judged / total
            spread = min(spread, planted / weight)
            missed += weight * (1 - caught / planted)
            parts.append((caught / planted, by, ""))
        for sort, (planted, caught) in self._judged_by_sort(verdicts).items():
            if planted and any(sort in self._measurable(by) for by in verdicts):
                parts.append((caught / planted, "", sort))
        if not parts:
            return None
        least, who, sort = min(parts, key=lambda part: (part[0], not part[1]))
        planted = int(spread + 1e-9)
        return Power(planted, int(planted * (1 - missed) + 1e-9), sort, who, least)

    # -- as the mark keeps it -------------------------------------------------------------------------------

    def to_plain(self) -> dict[str, Any]:
        """As the mark keeps it."""
        return {
            "sources": [[*source[:2], list(source.sorts), list(source.used)] for source in self.sources],
            "waiting": [list(plant) for plant in self.waiting.values()],
            "owed": self.owed,
            "arrived": list(self.arrived),
            "times": list(self.times),
            "figures": {
                by: {sort: list(pair) for sort, pair in sorts.items()} for by, sorts in self.figures.items()
            },
            "missed": [list(each) for each in self.missed],
            "withdrawn": dict(self.withdrawn),
            "contract": dict(self.contract),
        }

    @classmethod
    def from_plain(cls, plain: Any) -> DraftPlants:
        """Read a mark; None becomes no planted drafts."""
        if not isinstance(plain, Mapping):
            return cls()
        waiting = [PlantedDraft(*each) for each in plain["waiting"]]
        return cls(
            tuple(Source(each[0], each[1], tuple(each[2]), tuple(each[3])) for each in plain["sources"]),
            {plant.id: plant for plant in waiting},
            int(plain["owed"]),
            tuple(plain["arrived"]),
            tuple(plain["times"]),
            {
                by: {sort: (int(pair[0]), int(pair[1])) for sort, pair in sorts.items()}
                for by, sorts in plain["figures"].items()
            },
            tuple(Missed(*each) for each in plain["missed"]),
            dict(plain["withdrawn"]),
            dict(plain["contract"]),
        )  # fmt: skip


def power_behind(judges: Mapping[str, int], check: Power | None, plants: DraftPlants | None) -> Power | None:
    """The power of those who judged an agent's visits; `check` is that of the code among them.

    Where several checks judged, the weakest counts; where the power of one is not known, neither is theirs.
    """
    persons = {name.removeprefix(REVIEWER): n for name, n in judges.items() if name.startswith(REVIEWER)}
    powers: list[Power | None] = []
    if persons:
        powers.append((plants or DraftPlants()).power(persons))
    if len(persons) < len(judges) or not judges:
        powers.append(check)
    known = [power for power in powers if power is not None]
    return min(known, key=lambda power: (power.share, power.planted)) if len(known) == len(powers) else None


def judged_by(judges: Mapping[str, int]) -> str:
    """The judges of an agent's visits in words: `comparison, person (anna, bo)`."""
    persons = [name.removeprefix(REVIEWER) for name in judges if name.startswith(REVIEWER)]
    others = [name for name in judges if not name.startswith(REVIEWER)]
    return ", ".join([*others, *([f"{PERSON} ({', '.join(persons)})"] if persons else [])])
