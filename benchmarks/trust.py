"""Operating characteristics of the rules of trust: agents of known quality against the shipped rules.

Nothing is timed here. Each row is one sort of agent: how often it is raised from collaborator, and, at
consultant, after how many visits it is lowered and how many wrong answers have gone out by then. The rules
are those of `detent.dispatch`, called visit by visit, never a copy of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from detent.dispatch.autonomy import AutonomyLevel
from detent.dispatch.evidence import EvidenceRules, Power, Verdict
from detent.dispatch.standing import Observation, Standing, next_level
from detent.dispatch.trust import raise_number
from detent.dispatch.watch import Watch

RULES = EvidenceRules()
PLANTED = 200
CERTAIN = Power(10**9, 10**9)
"""A check that has refused so many planted errors that its power is 1."""
RAISE_VISITS, LOWER_VISITS, KIND_VISITS = 5_000, 10_000, 20_000
COLLABORATOR, CONSULTANT = AutonomyLevel.COLLABORATOR, AutonomyLevel.CONSULTANT

Rate = Callable[[int], float]
"""The chance that an agent is wrong at a visit."""


@dataclass(frozen=True)
class Agent:
    """An agent of known quality."""

    name: str
    rate: Rate
    raised: bool = True
    """Whether its chance to be raised is simulated; what it does later does not matter to that."""


def constant(share: float) -> Agent:
    """An agent that is always equally often wrong."""
    return Agent(f"{share:.1%} wrong", lambda _: share)


def burst(chance: float) -> Rate:
    """Thirty visits of every thousand wrong, each with this chance, after a clean beginning."""
    return lambda visit: chance if visit >= 1000 and visit % 1000 < 30 else 0.0


AGENTS = (
    *(constant(share) for share in (0.001, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5)),
    Agent("swapped at 1,000: 0.5% to 15%", lambda visit: 0.005 if visit < 1000 else 0.15, raised=False),
    Agent(
        "drifting: 0.5% to 20% over 5,000", lambda visit: 0.005 + 0.195 * min(1, visit / 5000), raised=False
    ),
    Agent("30 wrong in a row every 1,000", burst(1.0), raised=False),
    Agent("30 wrong with chance 1/2 every 1,000", burst(0.5), raised=False),
)


def seen(
    visit: int, wrong: bool, level: AutonomyLevel, *, afterwards: bool = False, kind: str = ""
) -> Observation:
    """A judged visit."""
    verdict = Verdict.DIFFERED if wrong else Verdict.AGREED
    return Observation(verdict, level, visit * 100.0, kind=kind, afterwards=afterwards)


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


def raising(rate: Rate, chance: random.Random, least: list[int], power: float = 1.0) -> int | None:
    """The judged visit at which an agent is proposed, looked at after each; None if it never is."""
    wrong = 0
    for n in range(1, RAISE_VISITS + 1):
        wrong += chance.random() < rate(n) * power
        if wrong < len(least) and n >= least[wrong]:
            return n
    return None


def lowering(rate: Rate, chance: random.Random, share: float) -> tuple[int | None, int]:
    """The visit at which an agent at consultant is lowered, and the wrong answers that have gone out."""
    standing, watch, out = Standing(), Watch(), 0
    for visit in range(LOWER_VISITS):
        wrong, gated = chance.random() < rate(visit), watch.of("").recheck > 0
        out += wrong and not gated
        if not gated and chance.random() >= share:
            continue
        each = seen(visit, wrong, CONSULTANT, afterwards=not gated)
        standing, consequence = standing.after(each, RULES)
        if consequence is not None and consequence.what == "lower":
            return visit + 1, out
        watch = watch.after(each, standing, RULES, None, share=share)
    return None, out


def by_kinds(rare: float, chance: random.Random, kinds: bool) -> tuple[int, float]:
    """Wrong answers that went out, and the share of visits gated after the raise.

    The agent is always wrong on rare inputs, and a person follows the report at once.
    """
    rules = replace(RULES, min_days=1)
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
            standing, consequence = standing.after(each, rules, CERTAIN)
            watch = watch.after(each, standing, rules, CERTAIN, share=RULES.audit.consultant)
            if consequence is not None and consequence.what == "kind":
                watch = watch.without(kind)
            elif consequence is not None and consequence.what == "lower":
                level, watch = COLLABORATOR, Watch()
        if level is COLLABORATOR and next_level(rules, level, standing, CERTAIN, kind=kind)[0] is not None:
            level = CONSULTANT
    return out, gated_visits / KIND_VISITS


def table(agents: int, raises: int) -> Iterator[str]:
    """The table, line by line."""
    least = least_visits(RULES.tolerate.consultant, RAISE_VISITS)
    tolerated = f"tolerated {RULES.tolerate.consultant:.0%}"
    many = f"{raises} agents for raising, {agents} for lowering ({agents // 5} where all is judged)"
    yield f"trust: {tolerated}; {many}, seeded"
    yield f"{'agent':38}{'raised (median visits)':>24}{'audit 10%: lowered / out':>32}{'audit 100%':>32}"
    for agent in AGENTS:
        raised = "-"
        if agent.raised:
            visits = [raising(agent.rate, random.Random(seed), least) for seed in range(raises)]
            reached = sorted(visit for visit in visits if visit is not None)
            median = f" ({reached[len(reached) // 2]:,})" if reached else ""
            raised = f"{len(reached) / raises:.1%}{median}"
        audited, all_judged = lowered(agent, agents, 0.1), lowered(agent, agents // 5, 1.0)
        yield f"{agent.name:38}{raised:>24}{audited:>32}{all_judged:>32}"
    for power, rate in ((0.9, 0.02), (0.9, 0.04), (0.5, 0.02), (0.5, 0.08)):
        low = Power(PLANTED, round(PLANTED * power)).low(RULES)
        weak = least_visits(RULES.tolerate.consultant * low, RAISE_VISITS)
        count = sum(
            raising(lambda _, rate=rate: rate, random.Random(seed), weak, power) is not None  # type: ignore[misc]
            for seed in range(raises)
        )
        yield f"{f'check of power {power}: {rate:.0%} wrong':38}{count / raises:>24.1%}"
    for rare in (0.01, 0.001):
        for kinds in (False, True):
            outs = [by_kinds(rare, random.Random(seed), kinds) for seed in range(max(5, agents // 20))]
            out = sum(out for out, _ in outs) / len(outs)
            gated = sum(gated for _, gated in outs) / len(outs)
            how = "by kind" if kinds else "without kinds"
            yield f"{f'wrong on {rare:.1%} of the inputs, {how}':38}{f'{out:.0f} out, {gated:.1%} gated':>24}"


def lowered(agent: Agent, agents: int, share: float) -> str:
    """A cell: mean visits until lowered, or the share that was lowered, and mean wrong answers gone out."""
    results = [lowering(agent.rate, random.Random(seed), share) for seed in range(agents)]
    visits = [visit for visit, _ in results if visit is not None]
    out = sum(out for _, out in results) / agents
    if len(visits) == agents:
        return f"{sum(visits) / agents:,.0f} / {out:.0f}"
    return f"{len(visits) / agents:.1%} lowered / {out:.0f}"


def main(quick: bool = False) -> None:
    """Print the table."""
    for line in table(*((100, 400) if quick else (500, 2000))):
        print(line, flush=True)


if __name__ == "__main__":
    import sys

    main("--quick" in sys.argv)
