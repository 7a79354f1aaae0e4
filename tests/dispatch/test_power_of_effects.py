"""Planted errors in what an agent does: each sort, before a check blind to it and one that is not."""

from collections.abc import Callable
from typing import Any

import pytest

from detent.dispatch.agent_side import AgentSide
from detent.dispatch.autonomy import AutonomyLevel
from detent.dispatch.evidence import EvidenceRules, Power, Verdict
from detent.dispatch.planted import Sort
from detent.dispatch.power import PowerReport, measure
from detent.dispatch.standing import Observation, Standing, next_level
from detent.engine.step import Step
from detent.engine.tools import Tool
from tests.dispatch.samples import settings
from tests.engine.conftest import flow_of

EFFECTS = (Sort.EFFECT_MISSING, Sort.EFFECT_ADDED, Sort.EFFECT_ARGUMENT, Sort.EFFECT_ORDER)


class Forge:
    """A repository that is committed to and pushed; only real visits reach it."""

    def __init__(self) -> None:
        self.done: list[tuple[str, str]] = []

    def tools(self) -> list[Tool]:
        def commit(message: str) -> dict[str, Any]:
            self.done.append(("commit", message))
            return {"ok": True}

        def push(branch: str) -> dict[str, Any]:
            self.done.append(("push", branch))
            return {"ok": True}

        return [Tool("commit", commit), Tool("push", push)]


async def save(ctx) -> dict:
    """Commit, then push."""
    ctx.propose("commit", message=ctx.data["title"])
    ctx.propose("push", branch=ctx.data["branch"])
    return {"saved": True}


Calls = list[tuple[str, dict[str, Any]]]


def wanted(inputs) -> Calls:
    return [("commit", {"message": inputs["title"]}), ("push", {"branch": inputs["branch"]})]


def tools_in_order(calls: Calls) -> list[str]:
    return [tool for tool, _ in calls]


def tools_as_a_set(calls: Calls) -> set[str]:
    return set(tools_in_order(calls))


def is_within(calls: Calls, more: Calls) -> bool:
    """Whether some calls stand among others, in their order."""
    left = iter(more)
    return all(call in left for call in calls)


# By sort, a rule that lets exactly that error through: what was called against what should have been.
BLIND: dict[Sort, Callable[[Calls, Calls], bool]] = {
    Sort.EFFECT_MISSING: is_within,
    Sort.EFFECT_ADDED: lambda calls, right: is_within(right, calls),
    Sort.EFFECT_ARGUMENT: lambda calls, right: tools_in_order(calls) == tools_in_order(right),
    Sort.EFFECT_ORDER: lambda calls, right: sorted(map(repr, calls)) == sorted(map(repr, right)),
}


def by(rule: Callable[[Calls, Calls], bool]):
    """A validator that judges everything an agent calls for."""

    def validator(inputs, proposal):
        if proposal.final and proposal.plain != {"saved": True}:
            return False
        called = [*(act.effect for act in proposal.acts), *proposal.effects]
        return rule([(effect.tool, dict(effect.args)) for effect in called], wanted(inputs))

    return validator


async def measured(bench, validator=None) -> tuple[PowerReport, Forge]:
    """The power of the check after four real runs."""
    forge = Forge()
    step = Step(
        "work", save, "Commit and push.", effects=("commit", "push"), inputs=("title", "branch"),
        validator=validator, agent=AgentSide(rounds=4),
    )  # fmt: skip
    flow = flow_of({"work": ["done"]}, {"work": step}, tools=forge.tools())
    engine = await bench.engine(flow, dispatch=settings())
    for number in range(4):
        await engine.run(flow.name, {"title": f"Mend part {number}", "branch": f"topic-{number}"})
    performed = list(forge.done)
    power = await measure(engine, flow.name, "work", planted=40)
    assert forge.done == performed  # a planted effect is never performed
    return power, forge


def figures(power: PowerReport) -> dict[str, Any]:
    return {sort.sort: sort for sort in power.sorts}


def proposed(power: PowerReport) -> tuple[AutonomyLevel | None, str | None]:
    """What the report proposes after a thousand right answers on three days."""
    rules, standing = EvidenceRules(), Standing()
    for number in range(1000):
        seen = Observation(Verdict.AGREED, AutonomyLevel.COLLABORATOR, number * 300.0)
        standing, _ = standing.after(seen, rules)
    return next_level(rules, AutonomyLevel.COLLABORATOR, standing, Power.from_plain(power.to_plain()))


@pytest.mark.parametrize("sort", EFFECTS)
async def test_a_check_blind_to_one_sort_of_effects_has_no_power_and_is_refused(quick, sort):
    power, _ = await measured(quick, by(BLIND[sort]))
    by_sort = figures(power)
    assert power.visits == 4
    assert by_sort[sort.value].planted > 0
    assert by_sort[sort.value].caught == 0
    others = [by_sort[other.value] for other in EFFECTS if other is not sort]
    assert all(other.caught == other.planted > 0 for other in others), others
    level, why = proposed(power)
    assert level is None
    assert why == f"stay: the check refuses nothing ({sort.value})"


@pytest.mark.parametrize("check", ["comparison", "validator"])
async def test_a_check_that_sees_what_is_done_catches_every_sort_and_carries_a_raise(quick, check):
    sees = by(lambda calls, right: calls == right) if check == "validator" else None
    power, _ = await measured(quick, sees)
    for sort in EFFECTS:
        assert figures(power)[sort.value].share == 1.0, sort
    assert proposed(power)[0] is AutonomyLevel.CONSULTANT
