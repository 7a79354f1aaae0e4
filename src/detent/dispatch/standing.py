"""The standing of an agent: what its judged visits add up to, and what follows from it.

One fold serves the engine and the report. Nothing here raises a level: a person decides that, from a report.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from detent.dispatch.autonomy import AutonomyLevel
from detent.dispatch.evidence import (
    COMPARISON,
    DEMOTIONS_DAYS,
    ByLevel,
    EvidenceRules,
    Power,
    Verdict,
    below,
)
from detent.dispatch.trust import Detector, at_most, raise_number

ANSWERS = 200
"""The latest answers whose fate is remembered."""
REPLACED_OF = 50
"""The latest answers of which more than half must have been replaced before collaborator is given up."""
LIVE = 20
"""Verdicts on live visits needed on top of replayed ones, and before an agent is asked at all."""
KINDS = 16
OTHER = "other"
"""The kind of inputs that came after the first `KINDS` kinds."""
DAYS = 31
"""Days remembered."""
DAY = 86400.0
DEMOTIONS_LIMIT = 3
"""With so many recent demotions, no raise is proposed."""
FILTER_BYTES = 8192

_LETTERS = {
    Verdict.AGREED: "a", Verdict.DIFFERED: "d", Verdict.REFUSED: "r", Verdict.OUTAGE: "o",
    Verdict.MISCONFIGURED: "m", Verdict.UNCHECKED: "u",
}  # fmt: skip
UNUSABLE = "rom"
"""Letters of the answers that could not be used."""


@dataclass(frozen=True, slots=True)
class Observation:
    """One visit as evidence."""

    verdict: Verdict
    level: AutonomyLevel
    """The level of the step, whatever held for this visit alone."""
    at: float
    """Seconds since the epoch."""
    judge: str = COMPARISON
    kind: str = ""
    """The kind of its inputs, if the step declares kinds."""
    inputs: str = ""
    """Digest of the canonical inputs, in hexadecimal; empty: not known, and taken to be new."""
    replayed: bool = False
    """The agent was asked about the inputs of a past run."""
    cost: float = 1.0
    """Cost of a wrong answer, up to 1."""
    afterwards: bool = False
    """The visit's answer was counted before, when nobody had judged it."""


class InputFilter(NamedTuple):
    """Remembers which inputs were judged, in 8 KB at most; it may take new inputs for old ones, rarely."""

    bits: int = 0

    def places(self, digest: str) -> int:
        """The bits of an input."""
        mask = 0
        for start in range(0, 16, 4):
            mask |= 1 << int(digest[start : start + 4], 16)
        return mask

    def has(self, digest: str) -> bool:
        """Whether these inputs were seen before."""
        mask = self.places(digest)
        return self.bits & mask == mask

    def plus(self, digest: str) -> InputFilter:
        """The filter with these inputs."""
        return InputFilter(self.bits | self.places(digest))

    def to_plain(self) -> str:
        """As text, compressed."""
        raw = self.bits.to_bytes(FILTER_BYTES, "little").rstrip(b"\0")
        return base64.b64encode(zlib.compress(raw)).decode() if raw else ""

    @classmethod
    def from_plain(cls, plain: Any) -> InputFilter:
        """Read back what `to_plain` wrote."""
        return cls(int.from_bytes(zlib.decompress(base64.b64decode(plain)), "little") if plain else 0)


_QUIET, _NO_INPUTS = Detector(), InputFilter()


class Tally(NamedTuple):
    """The judged visits of one series and kind, in a few dozen bytes beside the filter of inputs."""

    n: int = 0
    """Judged visits that count for a raise: right answers once per distinct input, wrong ones always."""
    errors: tuple[tuple[float, int], ...] = ()
    """Number of wrong answers by cost."""
    judged: int = 0
    """All judged visits."""
    replayed: int = 0
    """Those of them on inputs of past runs."""
    detector: Detector = _QUIET
    judges: tuple[tuple[str, int], ...] = ()
    days: tuple[int, ...] = ()
    """Days since the epoch with a judged visit, the latest ones."""
    inputs: InputFilter = _NO_INPUTS

    @property
    def wrong(self) -> int:
        """Number of wrong answers."""
        return sum(count for _, count in self.errors)

    def after(self, seen: Observation, q: float, times: int = 1) -> Tally:
        """The tally with one more judged visit; `q` is the error rate that the detector guards.

        `times` right answers on new inputs may be given at once.
        """
        wrong = seen.verdict is Verdict.DIFFERED
        errors, inputs, known = self.errors, self.inputs, False
        if wrong:
            errors = _counted(errors, seen.cost)
        elif seen.inputs:
            known = inputs.has(seen.inputs)
            inputs = inputs if known else inputs.plus(seen.inputs)
        day, days = int(seen.at // DAY), self.days
        if day not in days:
            days = tuple(sorted((*days, day))[-DAYS:])
        detector = self.detector.after(seen.cost, q) if wrong else self.detector.after_right(times, q)
        return Tally(
            self.n + (0 if known else times), errors, self.judged + times, self.replayed + seen.replayed,
            detector, _counted(self.judges, seen.judge, times), days, inputs,
        )  # fmt: skip

    def alarmed(self, q: float) -> Tally:
        """The tally after an alarm: what spoke for the agent is forgotten, what spoke against it is kept.

        Were both forgotten, each alarm would give a bad agent a further chance to be raised by luck.
        """
        speaks_for = raise_number(self.n, dict(self.errors), q) >= 1
        return NOTHING_YET if speaks_for else self._replace(detector=_QUIET)

    def at_most(self, rules: EvidenceRules, power: Power) -> float:
        """The largest true error rate that the judged visits do not refute, errors that a check misses
        included.
        """
        low = power.low(rules)
        return min(1.0, at_most(self.n, dict(self.errors), rules.error_risk) / low) if low > 0 else 1.0

    def carries(self, rules: EvidenceRules, level: AutonomyLevel, power: Power) -> bool:
        """Whether the judged visits justify a level."""
        q = rules.tolerate.at(level) * power.low(rules)
        return q > 0 and raise_number(self.n, dict(self.errors), q) >= 1 / rules.error_risk

    def to_plain(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "n": self.n,
            "errors": [list(item) for item in self.errors],
            "judged": self.judged,
            "replayed": self.replayed,
            "detector": list(self.detector.numbers),
            "judges": dict(self.judges),
            "days": list(self.days),
            "inputs": self.inputs.to_plain(),
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Tally:
        """Read back what `to_plain` wrote."""
        tally = cls(
            int(plain["n"]), tuple((float(cost), int(count)) for cost, count in plain["errors"]),
            int(plain["judged"]), int(plain["replayed"]), Detector(tuple(map(float, plain["detector"]))),
            tuple(sorted(plain["judges"].items())), tuple(plain["days"]),
            InputFilter.from_plain(plain["inputs"]),
        )  # fmt: skip
        if not 0 <= tally.wrong <= tally.n <= tally.judged:
            raise ValueError(
                f"A tally of {tally.wrong} wrong, {tally.n} counted of {tally.judged} cannot be."
            )
        return tally


_Key = TypeVar("_Key", str, float)


def _counted(counts: tuple[tuple[_Key, int], ...], key: _Key, times: int = 1) -> tuple[tuple[_Key, int], ...]:
    """Sorted counts with so many more under a key."""
    if len(counts) == 1 and counts[0][0] == key:
        return ((key, counts[0][1] + times),)
    each = dict(counts)
    each[key] = each.get(key, 0) + times
    return tuple(sorted(each.items()))


class Consequence(NamedTuple):
    """What an observation brings about."""

    what: str
    """`lower`; `kind`: this kind of inputs loses its level; `drift`: the evidence begins anew;
    `tolerance`: it begins anew under other rules."""
    why: str


NOTHING_YET = Tally()
VERSION = 2
"""Version of the marks; those of the version before hold evidence gathered under other rules."""


def gathered_at(level: AutonomyLevel) -> AutonomyLevel:
    """The level whose evidence a verdict is: a shadow beside the handler counts like a gated answer."""
    return AutonomyLevel.COLLABORATOR if level is AutonomyLevel.OPERATOR else level


class Standing(NamedTuple):
    """The evidence of one series, since it last began anew."""

    level: AutonomyLevel = AutonomyLevel.COLLABORATOR
    """The level at which it was gathered."""
    since: float = 0.0
    attempt: int = 1
    """How often it has begun, demotions and restarts counted."""
    tolerate: ByLevel | None = None
    """The tolerated errors when it began."""
    answers: str = ""
    """Fate of the latest answers as letters, newest last."""
    kinds: Mapping[str, Tally] = MappingProxyType({})

    def tally(self, kind: str = "") -> Tally:
        """The judged visits of a kind."""
        return self.kinds.get(kind, NOTHING_YET)

    @property
    def judges(self) -> dict[str, int]:
        """Who has judged, and how many visits."""
        sums: dict[str, int] = {}
        for tally in self.kinds.values():
            for judge, count in tally.judges:
                sums[judge] = sums.get(judge, 0) + count
        return sums

    def anew(self, at: float) -> Standing:
        """A further attempt, from nothing."""
        return Standing(since=at, attempt=self.attempt + 1)

    def kind_of(self, kind: str) -> str:
        """The kind under which inputs are counted."""
        return kind if kind in self.kinds or len(self.kinds) < KINDS else OTHER

    def after(
        self, seen: Observation, rules: EvidenceRules, power: Power | None = None, *, times: int = 1
    ) -> tuple[Standing, Consequence | None]:
        """The standing after one more observation, and what follows from it.

        `times` right answers on new inputs may be given at once: none of them brings anything about.
        """
        if times > 1 and (seen.verdict is not Verdict.AGREED or seen.inputs or seen.replayed):
            raise ValueError("Only right answers on new inputs can be given at once.")
        level, consequence = gathered_at(seen.level), None
        standing = self
        if standing.tolerate is not None and standing.tolerate != rules.tolerate:
            was, now = standing.tolerate.at(level), rules.tolerate.at(level)
            standing = standing.anew(seen.at)
            consequence = Consequence("tolerance", f"tolerate was changed from {was:g} to {now:g}")
        if standing.tolerate is None or standing.level is not level:
            # A level is to be carried by what was seen at the level below it, since the step came there.
            standing = Standing(level, seen.at, standing.attempt, rules.tolerate)
        answers, kinds, mean = standing.answers, standing.kinds, 0.0
        if not (seen.afterwards or seen.replayed):
            answers = (answers + _LETTERS[seen.verdict] * min(times, ANSWERS))[-ANSWERS:]
        kind = standing.kind_of(seen.kind)
        if seen.verdict.judges:
            q = _guarded(rules, level, power)
            tally = standing.tally(kind).after(seen, q, times)
            kinds, mean = {**kinds, kind: tally}, tally.detector.mean
        standing = Standing(*standing[:4], answers, kinds)
        if mean >= rules.patience:
            standing, consequence = standing._alarmed(seen, kind, rules, power)
        if seen.level is AutonomyLevel.COLLABORATOR and rules.demote and below(seen.level, rules) is not None:
            replaced = replaced_share(standing.answers)
            if replaced is not None and replaced > 0.5:
                why = f"{replaced:.0%} of the last {REPLACED_OF} answers were replaced"
                return standing.anew(seen.at), Consequence("lower", why)
        return standing, consequence

    def _alarmed(
        self, seen: Observation, kind: str, rules: EvidenceRules, power: Power | None
    ) -> tuple[Standing, Consequence | None]:
        tally = self.tally(kind)
        of = f" of kind '{kind}'" if kind else ""
        why = (
            f"more than {rules.tolerate.at(self.level):.1%} wrong: {tally.wrong} of {tally.judged} judged "
            f"visits{of}"
        )
        if self.level is AutonomyLevel.COLLABORATOR:  # nothing unchecked has gone out
            left = tally.alarmed(_guarded(rules, self.level, power))
            return self._replace(kinds={**self.kinds, kind: left}), Consequence("drift", why)
        if kind:  # the other kinds have earned their level by themselves
            return self._replace(kinds={**self.kinds, kind: NOTHING_YET}), Consequence("kind", why)
        if not rules.demote or below(seen.level, rules) is None:
            return self, None
        return self.anew(seen.at), Consequence("lower", why)

    def to_plain(self) -> dict[str, Any]:
        """As the mark keeps it."""
        return {
            "version": VERSION,
            "level": self.level.value,
            "since": self.since,
            "attempt": self.attempt,
            "tolerate": None if self.tolerate is None else list(self.tolerate),
            "answers": self.answers,
            "kinds": {kind: tally.to_plain() for kind, tally in self.kinds.items()},
        }

    @classmethod
    def from_plain(cls, plain: Any) -> Standing:
        """Read a mark; evidence gathered under the rules of the version before counts for nothing."""
        if not isinstance(plain, Mapping) or plain.get("version") != VERSION:
            return cls()
        tolerate = plain.get("tolerate")
        return cls(
            AutonomyLevel(plain["level"]),
            float(plain["since"]),
            int(plain["attempt"]),
            None if tolerate is None else ByLevel(*map(float, tolerate)),
            str(plain["answers"]),
            {kind: Tally.from_plain(tally) for kind, tally in plain["kinds"].items()},
        )


def _guarded(rules: EvidenceRules, level: AutonomyLevel, power: Power | None) -> float:
    """The rate of seen errors that the detector guards at a level."""
    return rules.tolerate.at(level) * (1.0 if power is None else max(power.low(rules), 0.01))


def replaced_share(answers: str) -> float | None:
    """Share of the latest judged answers that were replaced by the handler's; None before there are enough.

    It is about money spent for nothing. Answers that the contract refused only hold a raise back.
    """
    latest = [letter for letter in answers if letter in "ad"][-REPLACED_OF:]
    return sum(letter != "a" for letter in latest) / len(latest) if len(latest) == REPLACED_OF else None


def unusable_share(answers: str) -> float:
    """Share of the latest answers that could not be used: outages, misconfiguration, refusals."""
    return sum(letter in UNUSABLE for letter in answers) / len(answers) if answers else 0.0


def next_level(
    rules: EvidenceRules,
    level: AutonomyLevel | None,
    standing: Standing,
    power: Power | None,
    *,
    kind: str = "",
    cap: AutonomyLevel | None = None,
    demotions: int = 0,
) -> tuple[AutonomyLevel | None, str | None]:
    """The level that the evidence would justify, or None and the first condition that is not met.

    `demotions` counts those of the last 90 days.
    """
    above = (level or AutonomyLevel.OPERATOR).above
    if above is None:
        return None, "stay: no level is higher"
    if demotions >= DEMOTIONS_LIMIT:
        return None, f"stay: lowered {demotions} times in {DEMOTIONS_DAYS} days"
    why = _missing(rules, level or AutonomyLevel.OPERATOR, above, standing, power, standing.tally(kind))
    if why is None and cap is not None and above > cap:
        why = f"capped at {cap.value}"
    return (above, None) if why is None else (None, f"stay: {why}")


def _missing(
    rules: EvidenceRules,
    level: AutonomyLevel,
    above: AutonomyLevel,
    standing: Standing,
    power: Power | None,
    tally: Tally,
) -> str | None:
    """The first condition for a raise that is not met."""
    if standing.level is not gathered_at(level):
        return f"nothing was judged at {level.value} yet"
    if above is AutonomyLevel.COLLABORATOR:  # every answer will be checked before use
        if tally.judged < LIVE:
            return f"{tally.judged} judged, {LIVE} wanted"
        return None if tally.wrong * 2 <= tally.judged else "more than half would be replaced"
    if power is None:
        return "no power measured"
    if not power.caught:
        if power.reviewer:
            return f"{power.reviewer} noticed none of {power.planted} planted drafts"
        return f"the check refuses nothing ({power.sort})" if power.sort else "the check refuses nothing"
    least = power.share if power.least is None else power.least
    if least < rules.min_power:
        where = power.reviewer or power.sort or "planted"
        return f"power {least:.2f} ({where}), {rules.min_power:.2f} wanted"
    if not tally.carries(rules, above, power):
        rate, wanted = tally.at_most(rules, power), rules.tolerate.at(above)
        return f"at most {rate:.1%}, {wanted:.1%} wanted"
    if tally.detector.mean > rules.patience / 10:
        return "errors have become more frequent"
    if len(tally.days) < rules.min_days:
        return f"evidence of {len(tally.days)} days, {rules.min_days} wanted"
    if tally.replayed and tally.judged - tally.replayed < LIVE:
        return f"{tally.judged - tally.replayed} live verdicts beside the replayed, {LIVE} wanted"
    unusable = unusable_share(standing.answers)
    if unusable > rules.max_unusable:
        return f"{unusable:.0%} of the last {len(standing.answers)} answers could not be used"
    return None
