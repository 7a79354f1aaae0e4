"""The report on agents: what journals tell about each series, and what its standing in the store justifies.

There is one series per step, model, prompt, handler, check and way of sampling; a change to any of them
starts a new series. Journals tell how often, how fast and at what cost; they may come in any order and are
never held in memory. What counts for a level is the standing that the engine keeps: the report computes none
of its own.
"""

from __future__ import annotations

import heapq
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, NamedTuple

from detent.dispatch.autonomy import AutonomyLevel, FallbackReason
from detent.dispatch.draft_plants import DraftPlants, power_behind
from detent.dispatch.evidence import (
    HARD_REASONS,
    Demotion,
    EvidenceRules,
    Power,
    Verdict,
    verdict_of,
    verdict_of_later,
    verdict_of_shadow,
)
from detent.dispatch.standing import Standing, Tally, next_level
from detent.engine.verdicts import VERDICT
from detent.kernel.entries import Ended, Entry, Forked, Migrated, Moved, Noted, Proposed, Started
from detent.kernel.plain import digest
from detent.kernel.run_config import REPLAYED

SHADOW = "shadow"
"""Topic of the note that records a shadow comparison."""
DIFFERENCES = 10
"""How many of the latest disagreements of a series are kept."""
EXACT = 4096
"""Distinct durations up to which a median is exact; beyond, durations are rounded to three digits."""


class Series(NamedTuple):
    """Key under which executions are compared: a step with one model, one prompt and one handler."""

    step: str
    """Qualified name."""
    model_id: str = ""
    prompt: str = ""
    """Fingerprint."""
    handler: str = ""
    """Fingerprint."""
    check: str = ""
    """Fingerprint of the check that judges."""
    sampling: str = ""
    """Fingerprint of provider, its kind and address, temperature and length."""

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Series:
        """The series a record belongs to."""
        series = record.get("series")
        series = series if isinstance(series, Mapping) else {}
        return cls(str(record["step"]), *(str(series.get(name) or "") for name in cls._fields[1:]))

    @property
    def fingerprints(self) -> dict[str, str]:
        """Everything but the step."""
        return dict(zip(self._fields[1:], self[1:], strict=True))


class Difference(NamedTuple):
    """One execution in which agent and handler disagreed."""

    at: float
    run: str
    entry: int
    """Number of the journal entry that records it."""
    what: str
    """differed, or why the answer could not be used: exception, timeout, schema_violation."""
    pointers: tuple[str, ...] = ()
    """Places where they differ, as far as the journal records them."""
    more: int = 0
    """Number of further places."""
    shadow: bool = False
    later: str = ""
    """The later verdict that it is: by whom, and why."""

    def to_plain(self) -> dict[str, Any]:
        """As JSON values."""
        return {**self._asdict(), "pointers": list(self.pointers)}


@dataclass(frozen=True, slots=True)
class StoredEvidence:
    """What the store keeps about agents besides journals."""

    standings: Mapping[str, Standing] = field(default_factory=dict)
    """By the step's qualified name and the digest of the series: `flow/step/0123456789ab`."""
    powers: Mapping[str, Power] = field(default_factory=dict)
    """By the step's qualified name and the check's fingerprint."""
    demotions: Mapping[str, int] = field(default_factory=dict)
    """How often each step was lowered in the last 90 days."""
    plants: Mapping[str, DraftPlants] = field(default_factory=dict)
    """Planted drafts, by the step's qualified name and the check's fingerprint."""


@dataclass(frozen=True, slots=True)
class KindFigures:
    """What counts for one kind of inputs; the empty kind is that of a step without kinds."""

    kind: str
    n: int
    """Judged visits that count: right answers once per distinct input, wrong ones always."""
    wrong: int
    at_most: float | None
    """The true error rate is at most this; None while the power of the check is not known."""
    judges: Mapping[str, int]
    could_be: AutonomyLevel | None
    why_not: str | None
    power: Power | None = None
    """The power of those who judged."""
    replayed: int = 0
    """Visits judged in replays of past runs."""

    def to_plain(self) -> dict[str, Any]:
        """As JSON values."""
        could_be = self.could_be.value if self.could_be is not None else None
        return {
            "kind": self.kind, "n": self.n, "wrong": self.wrong, "at_most": self.at_most,
            "judged_by": dict(self.judges), "replayed": self.replayed,
            "could_be": could_be, "why_not": self.why_not,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class StepFigures:
    """The figures of one series, as section 1.17 of the specification defines them."""

    series: Series
    newest: bool
    """Whether it is the step's latest series."""
    n: int
    """Executions in these journals in which a check that can fail judged the agent's answer."""
    agreed: int
    differed: int
    unusable: Mapping[str, int]
    """Answers that could not be used, apart from `n`: refused, outage, misconfigured."""
    soft: int
    """Executions at level consultant with discrepancies; reported, not part of `n`."""
    standing: Standing
    """The evidence that counts for the next level."""
    power: Power | None
    planted: int
    """Planted drafts that persons have decided on."""
    kinds: tuple[KindFigures, ...]
    agent_ms: float | None
    handler_ms: float | None
    executions: int
    """Executions in which the agent was asked, whether or not its answer was checked."""
    cost_usd: float | None
    """Mean per execution."""
    fallbacks: Mapping[str, int]
    """Number of fallbacks to the handler, by reason."""
    shadow_failures: Mapping[str, int]
    """Number of shadow executions that failed, by reason."""
    now: AutonomyLevel | None
    demotion: Demotion | None
    """Set while the step is held below its configured level."""
    max_autonomy: AutonomyLevel | None
    could_be: AutonomyLevel | None
    """The next level, when the evidence would justify it."""
    why_not: str | None
    """The first condition that is not met."""
    differences: tuple[Difference, ...] = field(repr=False)
    """The latest, newest first."""
    first_at: float
    last_at: float

    @property
    def step(self) -> str:
        """Qualified name."""
        return self.series.step

    def to_plain(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "step": self.step,
            "series": self.series.fingerprints,
            "newest": self.newest,
            "n": self.n,
            "agreed": self.agreed,
            "differed": self.differed,
            "unusable": dict(self.unusable),
            "soft": self.soft,
            "attempt": self.standing.attempt,
            "evidence_since": self.standing.since,
            "evidence_at": self.standing.level.value,
            "power": None
            if self.power is None
            else {"sort": self.power.sort, "planted": self.power.planted, "caught": self.power.caught},
            "kinds": [kind.to_plain() for kind in self.kinds],
            "agent_ms": self.agent_ms,
            "handler_ms": self.handler_ms,
            "executions": self.executions,
            "cost_usd": self.cost_usd,
            "fallbacks": dict(self.fallbacks),
            "shadow_failures": dict(self.shadow_failures),
            "now": self.now.value if self.now is not None else None,
            "demotion": self.demotion.to_plain() if self.demotion is not None else None,
            "max_autonomy": self.max_autonomy.value if self.max_autonomy is not None else None,
            "could_be": self.could_be.value if self.could_be is not None else None,
            "why_not": self.why_not,
            "differences": [difference.to_plain() for difference in self.differences],
            "first_at": self.first_at,
            "last_at": self.last_at,
        }


def agreement(
    journals: Iterable[tuple[str, Iterable[Entry]]],
    rules: EvidenceRules | None = None,
    *,
    since: float | None = None,
    demotions: Mapping[str, Demotion] | None = None,
    caps: Mapping[str, AutonomyLevel] | None = None,
) -> list[StepFigures]:
    """The figures of all series in these journals, by step, the newest series of a step first."""
    sums = Agreement(rules, since=since)
    for run_id, entries in journals:
        journal = sums.journal(run_id)
        for entry in entries:
            journal.add(entry)
    return sums.figures(demotions, caps)


class Agreement:
    """Sums up journals, entry by entry."""

    def __init__(
        self,
        rules: EvidenceRules | None = None,
        *,
        since: float | None = None,
        wanted: Callable[[str], bool] | None = None,
    ) -> None:
        self.rules = rules or EvidenceRules()
        self._since = since
        self._wanted = wanted
        self._series: dict[Series, _Sums] = {}
        self._unasked: dict[str, _Sums] = {}
        """By step: executions whose configured agent was not asked; they belong to no model or prompt."""
        self._levels: dict[str, _Latest] = {}
        self._caps: dict[str, _Latest] = {}

    def journal(self, run_id: str) -> Journal:
        """The reader to which one run's entries are added, in order."""
        return Journal(self, run_id)

    @property
    def steps(self) -> list[str]:
        """Qualified names of the steps with any evidence."""
        return sorted({series.step for series in self._series} | set(self._unasked))

    def figures(
        self,
        demotions: Mapping[str, Demotion] | None = None,
        caps: Mapping[str, AutonomyLevel] | None = None,
        levels: Mapping[str, AutonomyLevel | None] | None = None,
        stored: StoredEvidence | None = None,
    ) -> list[StepFigures]:
        """The figures of all series, by step, the newest series of a step first.

        `demotions` are those in force; `caps`, the levels that steps advise, and `levels`, those configured
        now, default to the journals'.
        """
        stored = stored or StoredEvidence()
        figures: list[StepFigures] = []
        by_step: dict[str, list[_Sums]] = {step: [] for step in self.steps}
        for series, sums in self._series.items():
            by_step[series.step].append(sums)
        for step, group in by_step.items():
            group.sort(key=lambda each: (each.asked_at, each.last_at, each.series), reverse=True)
            unasked = self._unasked.get(step)
            cap = (caps or {}).get(step) or _level(self._caps.get(step, _NEVER).value)
            last = _level(self._levels.get(step, _NEVER).value)
            level = (levels or {}).get(step) or last
            demotion = (demotions or {}).get(step)
            newest = group[0] if group else unasked
            assert newest is not None
            of_newest = newest.figures(self.rules, stored, level, demotion, cap, True, unasked)
            if of_newest.could_be is not None and last is not None and (now := of_newest.now or last) > last:
                # Two levels at once would go beyond the evidence.
                of_newest = replace(of_newest, could_be=None, why_not=f"stay: no run at {now.value} yet")
            figures.append(of_newest)
            for sums in group[1:]:
                figures.append(sums.figures(self.rules, stored, _level(sums.level.value), None, cap, False))
        return figures

    # -- from journals --------------------------------------------------------------------------------------

    def _takes(self, record: Mapping[str, Any], at: float) -> bool:
        step = record.get("step")
        if not isinstance(step, str) or not step or (self._since is not None and at < self._since):
            return False
        return self._wanted is None or self._wanted(step)

    def _sums(self, record: Mapping[str, Any], asked: bool) -> _Sums:
        series = Series.of(record)
        sums = self._series.get(series) if asked else self._unasked.get(series.step)
        if sums is None:
            plain = record.get("series")
            sums = _Sums(series, digest(dict(plain), 12) if isinstance(plain, Mapping) else "")
            if asked:
                self._series[series] = sums
            else:
                self._unasked[series.step] = sums
        return sums

    def _learn(self, sums: _Sums, record: Mapping[str, Any], level: Any, place: _Place) -> None:
        """Record the level a step had and the cap it advises."""
        step = sums.series.step
        if level is not None:
            sums.level = sums.level.newer(place, level)
            self._levels[step] = self._levels.get(step, _NEVER).newer(place, level)
        if record.get("max_autonomy") is not None:
            self._caps[step] = self._caps.get(step, _NEVER).newer(place, record["max_autonomy"])

    def record(self, run_id: str, seq: int, at: float, record: Mapping[str, Any]) -> None:
        """Count one execution of a dispatched step."""
        if not self._takes(record, at):
            return
        place = _Place(at, run_id, seq)
        asked = bool(record.get("agent_called"))
        if not asked and not record.get("fallback_used"):
            return  # no agent was configured
        sums = self._sums(record, asked)
        sums.seen(at)
        reason = str(record.get("fallback_reason")) if record.get("fallback_used") else None
        level = record.get("autonomy_level") or (reason if reason == FallbackReason.OPERATOR.value else None)
        if isinstance(lowered := record.get("lowered"), Mapping):  # for that visit alone
            level = lowered.get("was")
        self._learn(sums, record, level, place)
        if reason is not None:
            sums.fallbacks[reason] += 1
        if not asked:
            if verdict_of(record) is not None:
                sums.unusable[Verdict.MISCONFIGURED.value] += 1
            return
        sums.asked(at, record.get("spend"))
        sums.agent_ms.add(record.get("agent_duration_ms"))
        sums.handler_ms.add(record.get("handler_duration_ms"))
        details = record.get("validation_details") or ()
        verdict = verdict_of(record)
        if verdict is Verdict.UNCHECKED:
            sums.soft += bool(details)
        elif verdict is not None:
            more = record.get("more_details")
            sums.count(
                place,
                verdict,
                verdict.value if verdict.judges else str(reason),
                [str(detail.get("pointer", "")) for detail in details if isinstance(detail, Mapping)],
                more if isinstance(more, int) else 0,
            )

    def shadow(
        self, run_id: str, seq: int, at: float, note: Mapping[str, Any], agreed_before: bool = False
    ) -> None:
        """Count one shadow comparison; of a visit that has agreed before, only a difference is evidence."""
        if not self._takes(note, at):
            return
        place = _Place(at, run_id, seq)
        of_agent = note.get("side") == "agent"
        failed = note.get("outcome") == "failed"
        reason = str(note.get("reason") or note.get("error") or "unknown")
        cost = note.get("cost_usd")
        asked = not of_agent or not failed or reason in HARD_REASONS or bool(cost)
        sums = self._sums(note, asked)
        sums.seen(at)
        # A deterministic step has no dispatch record of its own: a missing level means the lowest.
        level = note.get("autonomy_level") or (AutonomyLevel.OPERATOR.value if of_agent else None)
        self._learn(sums, note, level, place)
        if failed:
            sums.shadow_failures[reason] += 1
        if not of_agent:  # the agent's time and cost are in the step's own record
            sums.handler_ms.add(None if failed else note.get("duration_ms"))
        elif asked:
            sums.asked(at, {"cost_usd": cost})
            sums.agent_ms.add(note.get("duration_ms"))
            sums.handler_ms.add(note.get("other_ms"))
        verdict = verdict_of_shadow(note)
        if verdict is Verdict.AGREED and agreed_before:
            return
        if verdict is not None:
            pointers = [str(pointer) for pointer in note.get("pointers") or ()]
            what = verdict.value if verdict.judges else reason
            sums.count(place, verdict, what, pointers, 0, shadow=True)

    def later(self, run_id: str, seq: int, at: float, note: Mapping[str, Any]) -> None:
        """Count one verdict on an earlier visit; only the first about a visit counts."""
        verdict = verdict_of_later(note)
        if verdict is None or note.get("again") or not self._takes(note["record"], at):
            return
        sums = self._sums(note["record"], True)
        sums.seen(at)
        why = f": {note['why']}" if note.get("why") else ""
        later = f"later verdict by {note.get('by')}{why}"
        sums.count(_Place(at, run_id, seq), verdict, verdict.value, (), 0, later=later)


class Journal:
    """Adds one run's entries to the sums.

    An outcome with effects is in the journal twice, as proposal and as move, and is counted once: the last
    record of a visit counts when a move or the end of the run ends the visit. A visit that a shadow and a
    later verdict find right has agreed once. Entries copied by a fork were counted in the run they came from.
    """

    def __init__(self, sums: Agreement, run_id: str) -> None:
        self._sums = sums
        self._run_id = run_id
        self._copied = 0
        """Number of the last entry copied from another run; in a replayed run, all count as copied."""
        self._proposed: tuple[int, float, Mapping[str, Any]] | None = None
        self._counted: Mapping[str, Any] | None = None
        """Record of a copied proposal, which the move that ends its visit repeats."""
        self._visits: dict[str, int] = {}
        """Number of the entry that ended the latest visit of each step, by qualified name."""
        self._agreed: set[tuple[Any, Series]] = set()
        """Visits that a shadow or a later verdict has found right, by the entries that ended them."""

    def add(self, entry: Entry) -> None:
        """Add the run's next entry."""
        body = entry.body
        kind = type(body)
        if kind is Moved or kind is Ended:
            self._over(entry, body.detail)  # type: ignore[union-attr]
        elif isinstance(body, Proposed):
            if _is_record(body.detail):
                self._proposed = (entry.seq, entry.at, body.detail)
        elif isinstance(body, Noted):
            if body.topic == SHADOW and entry.seq > self._copied:
                note = body.body
                visit = note.get("of", self._visits.get(str(note.get("step"))))
                # Nobody's later verdict is evidence about an agent that was only the shadow.
                right = note.get("side") == "handler" and verdict_of_shadow(note) is Verdict.AGREED
                before = right and self._has_agreed(visit, note)
                self._sums.shadow(self._run_id, entry.seq, entry.at, note, before)
            elif body.topic == VERDICT and min(entry.seq, body.body["entry"]) > self._copied:
                note = body.body
                right = verdict_of_later(note) is Verdict.AGREED and not note.get("again")
                if not (right and self._has_agreed(note["entry"], note["record"])):
                    self._sums.later(self._run_id, entry.seq, entry.at, note)
        elif isinstance(body, Migrated):
            self._proposed = self._counted = None
        elif isinstance(body, Forked):
            self._counted = self._proposed[2] if self._proposed is not None else None
            self._proposed = None
        elif isinstance(body, Started):
            if body.config.get(REPLAYED):
                self._copied = sys.maxsize
            elif body.forked_from:
                self._copied = int(body.forked_from.get("seq", 0))

    def _has_agreed(self, visit: int | None, record: Mapping[str, Any]) -> bool:
        """Whether a visit that has now been found right was found right before."""
        key = (visit, Series.of(record))
        before = visit is not None and key in self._agreed
        self._agreed.add(key)
        return before

    def _over(self, entry: Entry, detail: Mapping[str, Any]) -> None:
        for performed in (detail, *detail.get("then", ())):
            if _is_record(performed):
                self._visits[str(performed["step"])] = entry.seq
        proposed, self._proposed = self._proposed, None
        counted, self._counted = self._counted, None
        if entry.seq <= self._copied:
            return
        for further in detail.get("then", ()):
            if _is_record(further):
                self._sums.record(self._run_id, entry.seq, entry.at, further)
        if _is_record(detail):
            if detail != counted:
                self._sums.record(self._run_id, entry.seq, entry.at, detail)
        elif proposed is not None:
            self._sums.record(self._run_id, *proposed)


def _is_record(detail: Mapping[str, Any]) -> bool:
    """Whether an entry's detail is a dispatch record; such records leave out default values."""
    return "step" in detail and ("mode_used" in detail or "fallback_used" in detail)


# -- sums ---------------------------------------------------------------------------------------------------


class _Place(NamedTuple):
    """When and where an entry was written; places are ordered."""

    at: float
    run: str
    seq: int


class _Latest(NamedTuple):
    """The latest value recorded, and the place it was recorded at."""

    place: _Place
    value: Any

    def newer(self, place: _Place, value: Any) -> _Latest:
        return _Latest(place, value) if place >= self.place else self


_NEVER = _Latest(_Place(float("-inf"), "", 0), None)


class _Sums:
    """The sums of one series so far."""

    def __init__(self, series: Series, mark: str) -> None:
        self.series = series
        self.mark = mark
        """Digest of the series, under which its standing is kept."""
        self.n = self.agreed = self.soft = self.executions = 0
        self.unusable: Counter[str] = Counter()
        self.cost = Fraction(0)
        self.agent_ms, self.handler_ms = _Median(), _Median()
        self.fallbacks: Counter[str] = Counter()
        self.shadow_failures: Counter[str] = Counter()
        self.level = _NEVER
        self.first_at, self.last_at, self.asked_at = float("inf"), float("-inf"), float("-inf")
        self._differences: list[Difference] = []

    def seen(self, at: float) -> None:
        self.first_at, self.last_at = min(self.first_at, at), max(self.last_at, at)

    def asked(self, at: float, spend: Any) -> None:
        """Count one execution in which the agent was asked, and its cost."""
        self.executions += 1
        self.asked_at = max(self.asked_at, at)
        cost: Any = spend.get("cost_usd") if isinstance(spend, Mapping) else None
        if _is_amount(cost):
            self.cost += Fraction(cost)  # exact, so the order of adding does not show

    def count(
        self,
        place: _Place,
        verdict: Verdict,
        what: str,
        pointers: Iterable[str],
        more: int,
        *,
        shadow: bool = False,
        later: str = "",
    ) -> None:
        """Count one verdict."""
        if verdict.judges:
            self.n += 1
            self.agreed += verdict is Verdict.AGREED
        else:
            self.unusable[verdict.value] += 1
        self.asked_at = max(self.asked_at, place.at)
        if verdict is not Verdict.AGREED:
            difference = Difference(*place, what, tuple(pointers), more, shadow, later)
            _push(self._differences, difference, DIFFERENCES)

    def figures(
        self,
        rules: EvidenceRules,
        stored: StoredEvidence,
        level: AutonomyLevel | None,
        demotion: Demotion | None,
        cap: AutonomyLevel | None,
        newest: bool,
        unasked: _Sums | None = None,
    ) -> StepFigures:
        """The figures of this series; `unasked` sums the step's executions without a call of the agent."""
        idle = unasked if unasked is not None and unasked is not self else _NONE
        if demotion is not None and (level is None or demotion.level < level):
            level = demotion.level
        step = self.series.step
        standing = stored.standings.get(f"{step}/{self.mark}", Standing())
        check = f"{step}/{self.series.check}"
        check_power, plants = stored.powers.get(check), stored.plants.get(check)
        lowered = stored.demotions.get(step, 0)

        def power_of(kind: str) -> Power | None:
            return power_behind(dict(standing.tally(kind).judges), check_power, plants)

        kinds = tuple(
            _kind_figures(kind, standing, rules, level, power_of(kind), cap, lowered)
            for kind in (sorted(standing.kinds) or [""])
        )
        # The settings raise a step as a whole; a kind that has not earned the level stays gated.
        best = next((kind for kind in kinds if kind.could_be is not None), kinds[0])
        return StepFigures(
            series=self.series,
            newest=newest,
            n=self.n,
            agreed=self.agreed,
            differed=self.n - self.agreed,
            unusable=dict(sorted((self.unusable + idle.unusable).items())),
            soft=self.soft,
            standing=standing,
            power=best.power,
            planted=0 if plants is None else plants.decided,
            kinds=kinds,
            agent_ms=self.agent_ms.value(),
            handler_ms=self.handler_ms.value(),
            executions=self.executions,
            cost_usd=float(self.cost / self.executions) if self.executions else None,
            fallbacks=dict(sorted((self.fallbacks + idle.fallbacks).items())),
            shadow_failures=dict(sorted((self.shadow_failures + idle.shadow_failures).items())),
            now=level,
            demotion=demotion,
            max_autonomy=cap,
            could_be=best.could_be,
            why_not=best.why_not,
            differences=tuple(sorted(self._differences, reverse=True)),
            first_at=min(self.first_at, idle.first_at),
            last_at=max(self.last_at, idle.last_at),
        )


def _kind_figures(
    kind: str,
    standing: Standing,
    rules: EvidenceRules,
    level: AutonomyLevel | None,
    power: Power | None,
    cap: AutonomyLevel | None,
    demotions: int,
) -> KindFigures:
    tally: Tally = standing.tally(kind)
    could_be, why_not = next_level(rules, level, standing, power, kind=kind, cap=cap, demotions=demotions)
    known = power is not None and power.caught and tally.n
    return KindFigures(
        kind, tally.n, tally.wrong, tally.at_most(rules, power) if known and power is not None else None,
        dict(tally.judges), could_be, why_not, power, tally.replayed,
    )  # fmt: skip


class _Median:
    """Median of many durations, in bounded memory."""

    def __init__(self) -> None:
        self._count = 0
        self._values: Counter[float] = Counter()
        self._exact = True

    def add(self, value: Any) -> None:
        if not _is_amount(value):
            return
        self._count += 1
        self._values[float(value) if self._exact else _rounded(value)] += 1
        if self._exact and len(self._values) > EXACT:
            self._exact = False
            rounded: Counter[float] = Counter()
            for duration, times in self._values.items():
                rounded[_rounded(duration)] += times
            self._values = rounded

    def value(self) -> float | None:
        """The median: of an even number, the mean of the two in the middle."""
        if not self._count:
            return None
        low = high = None
        passed = 0
        for duration, times in sorted(self._values.items()):
            passed += times
            if low is None and passed * 2 >= self._count:
                low = duration
            if passed * 2 > self._count:
                high = duration
                break
        assert low is not None
        assert high is not None
        return low if low == high else (low + high) / 2


def _is_amount(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < float("inf")


def _rounded(value: float) -> float:
    """A value rounded to three significant digits, which bounds the number of distinct values."""
    return float(f"{value:.3g}")


def _push(heap: list[Any], item: Any, keep: int) -> None:
    """Keep the latest `keep` items."""
    if len(heap) < keep:
        heapq.heappush(heap, item)
    else:
        heapq.heappushpop(heap, item)


def _level(name: Any) -> AutonomyLevel | None:
    """A level by name; None for a name unknown to this version."""
    return next((level for level in AutonomyLevel if level.value == name), None)


_NONE = _Sums(Series(""), "")
"""Sums for a step whose agent was always asked."""
