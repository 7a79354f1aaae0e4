"""Operating characteristics of the rules of trust: agents of known quality against the shipped rules.

Nothing is timed here. Each row is one sort of agent: how often it is raised from collaborator, and, at
consultant, after how many visits it is lowered and how many wrong answers have gone out by then. The rules
are those of `detent.dispatch`, called visit by visit, never a copy of them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from detent.dispatch.autonomy import AutonomyLevel
from detent.dispatch.evidence import EvidenceRules, Power, Verdict
from detent.dispatch.standing import Observation, Standing, Tally, next_level
from detent.dispatch.trust import Detector, raise_number
from detent.dispatch.watch import Watch

RULES = EvidenceRules(min_days=1)
"""The shipped rules; days are left out, since nothing here takes any."""
PLANTED = 200
CERTAIN = Power(10**9, 10**9)
"""A check that has refused so many planted errors that its power is 1."""
RAISE_VISITS, LOWER_VISITS, KIND_VISITS = 5_000, 10_000, 20_000
COLLABORATOR, CONSULTANT = AutonomyLevel.COLLABORATOR, AutonomyLevel.CONSULTANT
NOISE = 3.0
"""Standard errors beyond which a figure is worse than its target."""

Rate = Callable[[int], float]
"""The chance that an agent is wrong at a visit."""


class Target(NamedTuple):
    """Figures that the rules must not be worse than, within the noise of as many agents."""

    raised: float | None = None
    """Share raised: at most for an agent outside the tolerance, at least for one within."""
    out: float | None = None
    """Mean wrong answers gone out, with audits of 10 %: at most."""
    out_all: float | None = None
    """The same where every answer is judged."""


NO_TARGET = Target()


@dataclass(frozen=True)
class Agent:
    """An agent of known quality."""

    name: str
    rate: Rate
    target: Target = NO_TARGET
    good: bool = False
    """It is within the tolerance."""
    raised: bool = True
    """Whether its chance to be raised is simulated; what it does later does not matter to that."""


def constant(share: float, *target: float) -> Agent:
    """An agent that is always equally often wrong."""
    return Agent(f"{share:.1%} wrong", lambda _: share, Target(*target), share < RULES.tolerate.consultant)


def burst(chance: float) -> Rate:
    """Thirty visits of every thousand wrong, each with this chance, after a clean beginning."""
    return lambda visit: chance if visit >= 1000 and visit % 1000 < 30 else 0.0


AGENTS = (
    constant(0.001, 1.0, 10, 10),
    constant(0.005, 1.0, 48, 50),
    constant(0.01, 0.99, 92, 99),
    constant(0.015),
    constant(0.02, 0.044, 148, 146),
    constant(0.03, 0.002, 63, 38),
    constant(0.05, 0.0, 17, 15),
    constant(0.1, 0.0, 10, 8),
    constant(0.2, 0.0, 11, 6),
    constant(0.5, 0.0, 10, 5),
    Agent(
        "swapped at 1,000: 0.5% to 15%", lambda visit: 0.005 if visit < 1000 else 0.15, Target(None, 15, 11),
        raised=False,
    ),
    Agent(
        "drifting: 0.5% to 20% over 5,000", lambda visit: 0.005 + 0.195 * min(1, visit / 5000),
        Target(None, 25, 26), raised=False,
    ),
    Agent("30 wrong in a row every 1,000", burst(1.0), Target(None, 11, 4), raised=False),
    Agent("30 wrong with chance 1/2 every 1,000", burst(0.5), Target(None, 11, 4), raised=False),
)  # fmt: skip


def seen(
    visit: int, wrong: bool, level: AutonomyLevel, *, afterwards: bool = False, kind: str = ""
) -> Observation:
    """A judged visit."""
    verdict = Verdict.DIFFERED if wrong else Verdict.AGREED
    return Observation(verdict, level, visit * 100.0, kind=kind, afterwards=afterwards)


class Figure(NamedTuple):
    """A mean and its standard error."""

    mean: float
    error: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Figure:
        """The figure of independent values."""
        mean = sum(values) / len(values)
        spread = sum((value - mean) ** 2 for value in values) / max(1, len(values) - 1)
        return cls(mean, math.sqrt(spread / len(values)))

    def exceeds(self, target: float) -> bool:
        """Whether it is above a target that was itself estimated with as many agents.

        Targets are given as whole numbers, half of one of which may be rounding.
        """
        return self.mean - target > NOISE * math.sqrt(2) * self.error + 0.5


# -- raising ------------------------------------------------------------------------------------------------


def least_visits(q: float, visits: int) -> list[int]:
    """By number of wrong answers: after how many judged visits the shipped rule raises."""
    least: list[int] = []
    n = 1
    while n <= visits:
        while n <= visits and raise_number(max(n, len(least)), len(least), q) < 1 / RULES.error_risk:
            n += 1
        if n <= visits:
            least.append(n)
    return least


def raising(
    rate: float, chance: random.Random, least: list[int], power: Power, rules: EvidenceRules
) -> int | None:
    """The judged visit at which an agent is proposed, looked at after each; None if it never is."""
    q = rules.tolerate.consultant * power.low(rules)
    rate *= power.share  # errors that the check sees
    n = wrong = folded = 0
    detector = Detector()
    for visit in range(1, RAISE_VISITS + 1):
        if chance.random() < rate:
            detector = detector.after_right(visit - folded - 1, q).after(1.0, q)
            wrong, folded = wrong + 1, visit
            if detector.mean >= rules.patience:
                left = Tally(n + 1, ((1.0, wrong),), n + 1, 0, detector).alarmed(q)
                n, wrong, detector = left.n - 1, left.wrong, left.detector
        n += 1
        if wrong < len(least) and n >= least[wrong]:  # enough by the count: the rule itself decides
            now = detector.after_right(visit - folded, q)
            tally = Tally(n, ((1.0, wrong),), n, 0, now, days=(1,))
            standing = Standing(COLLABORATOR, kinds={"": tally})
            if next_level(rules, COLLABORATOR, standing, power)[0] is CONSULTANT:
                return visit
    return None


def raised(rate: float, agents: int, power: Power = CERTAIN) -> tuple[Figure, int | None]:
    """Share of agents that are raised, and the median of the visits it took."""
    # A check below `min_power` is refused outright; its row shows what the correction alone is worth.
    rules = replace(RULES, min_power=min(RULES.min_power, power.share))
    least = least_visits(rules.tolerate.consultant * power.low(rules), RAISE_VISITS)
    visits = [raising(rate, random.Random(f"raise/{seed}"), least, power, rules) for seed in range(agents)]
    reached = sorted(visit for visit in visits if visit is not None)
    share = Figure.of([float(visit is not None) for visit in visits])
    return share, reached[len(reached) // 2] if reached else None


# -- lowering -----------------------------------------------------------------------------------------------


class Lowering(NamedTuple):
    """What became of one agent at consultant."""

    visits: int
    """Until it was lowered, or all of them."""
    lowered: bool
    out: int
    """Wrong answers gone out by then."""
    gated: int
    """Visits under recheck."""


class Lowered(NamedTuple):
    """What became of many agents at consultant."""

    share: Figure
    visits: Figure
    out: Figure
    gated: float
    """Share of visits under recheck."""

    def __str__(self) -> str:
        out = f"{self.out.mean:.1f} ±{self.out.error:.1f}"
        if self.share.mean >= 0.9:
            all_of_them = "" if self.share.mean == 1 else f" ({self.share.mean:.1%})"
            return f"{self.visits.mean:,.0f} ±{self.visits.error:,.0f}{all_of_them} / {out}"
        never = "never" if not self.share.mean else f"{self.share.mean:.1%} ±{self.share.error:.1%} lowered"
        return f"{never} / {out}"


def lowering(rate: Rate, chance: random.Random, share: float, power: Power | None = None) -> Lowering:
    """One agent at consultant, of whose unchecked answers a share is judged."""
    standing, watch, out, gated_visits, right = Standing(), Watch(), 0, 0, 0
    sees = 1.0 if power is None else power.share
    gated = False
    for visit in range(LOWER_VISITS):
        wrong = chance.random() < rate(visit)
        seen_wrong = wrong and (sees == 1.0 or chance.random() < sees)
        gated_visits += gated
        out += wrong and not (gated and seen_wrong)
        if not gated and share < 1 and chance.random() >= share:
            continue
        if not gated and not seen_wrong:  # right answers audited in a row bring nothing about
            right += 1
            continue
        if right:
            before = seen(visit, False, CONSULTANT, afterwards=True)
            standing, _ = standing.after(before, RULES, power, times=right)
            right = 0
        each = seen(visit, seen_wrong, CONSULTANT, afterwards=not gated)
        standing, consequence = standing.after(each, RULES, power)
        if consequence is not None and consequence.what == "lower":
            return Lowering(visit + 1, True, out, gated_visits)
        watch = watch.after(each, standing, RULES, power, share=share)
        gated = watch.of("").recheck > 0
    return Lowering(LOWER_VISITS, False, out, gated_visits)


def lowered(rate: Rate, agents: int, share: float, power: Power | None = None) -> Lowered:
    """Many agents at consultant."""
    results = [lowering(rate, random.Random(f"lower/{seed}"), share, power) for seed in range(agents)]
    return Lowered(
        Figure.of([float(result.lowered) for result in results]),
        Figure.of([result.visits for result in results]),
        Figure.of([result.out for result in results]),
        sum(result.gated for result in results) / sum(result.visits for result in results),
    )


# -- kinds --------------------------------------------------------------------------------------------------


def by_kinds(rare: float, chance: random.Random, kinds: bool) -> tuple[int, float]:
    """Wrong answers that went out, and the share of visits gated after the raise.

    The agent is always wrong on rare inputs, and a person follows the report at once.
    """
    standing, watch, level, out, gated_visits = Standing(), Watch(), COLLABORATOR, 0, 0
    for visit in range(KIND_VISITS):
        is_rare = chance.random() < rare
        kind = ("rare" if is_rare else "common") if kinds else ""
        wrong = is_rare or chance.random() < 0.001
        gated = level is COLLABORATOR or watch.of(kind).recheck > 0
        gated = gated or (kinds and not watch.has_earned(kind, level, ""))
        out += wrong and not gated
        gated_visits += gated and level is not COLLABORATOR
        if gated or chance.random() < RULES.audit.consultant:
            each = seen(visit, wrong, level, afterwards=not gated, kind=kind)
            standing, consequence = standing.after(each, RULES, CERTAIN)
            watch = watch.after(each, standing, RULES, CERTAIN, share=RULES.audit.consultant)
            if consequence is not None and consequence.what == "kind":
                watch = watch.without(kind)
            elif consequence is not None and consequence.what == "lower":
                level, watch = COLLABORATOR, Watch()
        if level is COLLABORATOR and next_level(RULES, level, standing, CERTAIN, kind=kind)[0] is not None:
            level = CONSULTANT
    return out, gated_visits / KIND_VISITS


KINDS = ((0.01, False, 184.0), (0.01, True, 20.0), (0.001, False, 39.0), (0.001, True, 20.0))
"""Share of rare inputs, whether the step declares kinds, and the target of wrong answers gone out."""

AUDITS = (1.0, 0.1, 0.05, 0.02)
BAD = (0.03, 0.05, 0.1, 0.2)
AUDIT_TARGETS = {
    1.0: (38, 15, 8, 6), 0.1: (63, 17, 10, 11), 0.05: (119, 36, 20, 21), 0.02: (202, 82, 50, 47),
}  # fmt: skip
"""By share audited: wrong answers gone out at the error rates of `BAD`."""
POWERS = ((0.9, 0.02, 0.018), (0.9, 0.04, 0.0), (0.5, 0.02, 0.003), (0.5, 0.08, 0.0))
"""Power of the check, true error, and the target of the share raised."""


# -- the tables ---------------------------------------------------------------------------------------------


class Tables:
    """The tables, and which figures are worse than their targets."""

    def __init__(self, agents: int, raises: int) -> None:
        self.agents = agents
        self.raises = raises
        self.worse: list[str] = []
        self.compared = 0

    def lines(self) -> Iterator[str]:
        """The tables, line by line."""
        yield (
            f"trust: tolerated {RULES.tolerate.consultant:.0%}; {self.raises} agents for raising, "
            f"{self.agents} for lowering, seeds from 0; ± is the standard error"
        )
        yield from self._agents()
        yield from self._powers()
        yield from self._audits()
        yield from self._kinds()
        worse = f"; worse: {', '.join(self.worse)}" if self.worse else ""
        held = self.compared - len(self.worse)
        yield f"  target: figures not worse than theirs: {held} of {self.compared}{worse}"

    def _hold(self, name: str, figure: Figure, target: float | None) -> None:
        if target is not None:
            self.compared += 1
            if figure.exceeds(target):
                self.worse.append(f"{name}: {figure.mean:.4g} for {target:g}")

    def _hold_share(self, name: str, share: Figure, target: float | None, good: bool = False) -> None:
        if target is not None:
            self.compared += 1
            noise = NOISE * math.sqrt(2) * max(share.error, 1 / self.raises)
            if (target - share.mean if good else share.mean - target) > noise:
                self.worse.append(f"{name}: {share.mean:.2%} for {target:.2%}")

    def _agents(self) -> Iterator[str]:
        heads = ("raised (median visits)", "audit 10%: visits / out", "under recheck", "audit 100%")
        yield f"{'agent':38}{heads[0]:>26}{heads[1]:>40}{heads[2]:>15}{heads[3]:>40}"
        for agent in AGENTS:
            cell = "-"
            if agent.raised:
                share, median = raised(agent.rate(0), self.raises)
                cell = f"{share.mean:.2%} ±{share.error:.2%}" + ("" if median is None else f" ({median:,})")
                self._hold_share(f"{agent.name}, raised", share, agent.target.raised, agent.good)
            some, every = lowered(agent.rate, self.agents, 0.1), lowered(agent.rate, self.agents, 1.0)
            self._hold(f"{agent.name}, audit 10%", some.out, agent.target.out)
            self._hold(f"{agent.name}, audit 100%", every.out, agent.target.out_all)
            yield f"{agent.name:38}{cell:>26}{some!s:>40}{some.gated:>15.1%}{every!s:>40}"

    def _powers(self) -> Iterator[str]:
        for power, rate, target in POWERS:
            name = f"check of power {power}: {rate:.0%} wrong"
            share, _ = raised(rate, self.raises, Power(PLANTED, round(PLANTED * power)))
            self._hold_share(name, share, target)
            yield f"{name:38}{f'{share.mean:.2%} ±{share.error:.2%}':>26}"
        weak = lowered(lambda _: 0.05, self.agents, 0.1, Power(PLANTED, PLANTED // 2))
        self._hold("check of power 0.5: 5% wrong", weak.out, 52)
        yield f"{'check of power 0.5: 5% wrong':38}{'':26}{weak!s:>40}{weak.gated:>15.1%}"

    def _audits(self) -> Iterator[str]:
        yield f"{'audited':38}" + "".join(f"{f'{rate:.0%} wrong':>34}" for rate in BAD)
        for share in AUDITS:
            cells = [lowered(lambda _, rate=rate: rate, self.agents, share) for rate in BAD]  # type: ignore[misc]
            for cell, rate, target in zip(cells, BAD, AUDIT_TARGETS[share], strict=True):
                self._hold(f"{share:.0%} audited, {rate:.0%} wrong", cell.out, target)
            yield f"{share:<38.0%}" + "".join(f"{cell!s:>34}" for cell in cells)

    def _kinds(self) -> Iterator[str]:
        for rare, kinds, target in KINDS:
            results = [
                by_kinds(rare, random.Random(f"kinds/{seed}"), kinds)
                for seed in range(max(5, self.agents // 10))
            ]
            out, gated = (
                Figure.of([out for out, _ in results]),
                sum(gated for _, gated in results) / len(results),
            )
            name = f"wrong on {rare:.1%} of the inputs, {'by kind' if kinds else 'without kinds'}"
            self._hold(name, out, target)
            yield f"{name:44}{f'{out.mean:.0f} ±{out.error:.1f} out, {gated:.1%} gated':>30}"


def main(quick: bool = False) -> None:
    """Print the tables."""
    for line in Tables(*((100, 400) if quick else (500, 2000))).lines():
        print(line, flush=True)


if __name__ == "__main__":
    import sys

    main("--quick" in sys.argv)
