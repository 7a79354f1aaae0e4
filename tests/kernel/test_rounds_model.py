"""The rounds of a visit keep their laws in every interleaving, and the model notices a broken rule.

A rule of rounds that changes is changed in the model first.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from detent.adapters.stores.memory import MemoryStore
from detent.engine.engine import Engine
from detent.engine.outcome import Effect, Outcome
from detent.engine.ports import Commit
from detent.engine.tools import Tool as EngineTool
from detent.kernel.effect_key import action_of
from detent.kernel.entries import Body, EffectBegun, EffectDone, Proposed, Recorded
from tests.engine.conftest import flow_of, journal
from tests.kernel.rounds_model import Flaw, Law, Model, search, undisturbed
from tests.kernel.rounds_scenario import FAILED, Answer, Do, Finish, Look, Refused, Scenario, Tool

TOOLS = {
    "build": Tool(probe=True, by_key=True),
    "test": Tool(probe=True),
    "tag": Tool(idempotent=True),
    "push": Tool(),
    "mail": Tool(confirmed=True),
    "fetch": Tool(probe=True, by_key=True, refuses=True),
}
Requests = Generator[Look | Do, Any, Finish]


def four_rounds() -> Requests:
    yield Do("test")
    yield Do("push")
    yield Do("tag")
    yield Do("test")
    return Finish("shipped")


def looks_first() -> Requests:
    if not (yield Look("tag")):
        yield Do("tag")
        if (yield Look("tag")):
            yield Do("push")
    return Finish("shipped")


def effects_in_the_outcome() -> Requests:
    yield from ()
    return Finish("shipped", ("test", "push"))


def two_equal_effects() -> Requests:
    yield Do("test")
    yield Do("test")
    return Finish("tested")


def ships() -> Requests:
    yield Do("build")
    yield Do("push")
    return Finish("shipped")


def builds_twice() -> Requests:
    yield Do("build")
    yield Do("test")
    yield Do("build")
    return Finish("shipped")


def mails_twice() -> Requests:
    yield Do("mail")
    yield Do("mail")
    return Finish("sent")


def fetches() -> Requests:
    try:
        yield Do("fetch")
    except Refused:
        try:
            yield Do("fetch")
        except Refused:
            return Finish("nothing to ship")
    yield Do("push")
    return Finish("shipped")


def call(*actions: str) -> Answer:
    return Answer(actions)


SHIPPED, SENT = Answer(facts="shipped"), Answer(facts="sent")

HANDLERS = {
    "rounds": Scenario(TOOLS, four_rounds),
    "looks first": Scenario(TOOLS, looks_first),
    "effects in the outcome, two visits": Scenario(TOOLS, effects_in_the_outcome, visits=2),
    "looks first, two visits": Scenario(TOOLS, looks_first, visits=2),
    "equal effects, two visits": Scenario(TOOLS, two_equal_effects, visits=2),
}
SCENARIOS = {
    **HANDLERS,
    "effects refused": Scenario(TOOLS, fetches),
    "agent": Scenario(
        TOOLS,
        ships,
        (
            (call("build"), call("push"), call("tag"), FAILED),
            (call("push"), call("build", "build"), SHIPPED, FAILED),
            (call("test"), SHIPPED, FAILED),
            (SHIPPED, FAILED),
        ),
    ),
    "agent, answers committed before they are judged": Scenario(
        TOOLS,
        builds_twice,
        (
            (call("build"), call("test"), FAILED),
            (call("build"), call("test"), FAILED),
            (call("build", "test"), SHIPPED, FAILED),
            (SHIPPED, FAILED),
        ),
        answer_first=True,
    ),
    "agent compared with a handler that looks first": Scenario(
        TOOLS,
        looks_first,
        (
            (call("tag"), call("push"), SHIPPED, FAILED),
            (call("push"), call("tag"), SHIPPED, FAILED),
            (SHIPPED, SENT, call("push"), FAILED),
        ),
        compared=True,
    ),
    "agent, effects confirmed": Scenario(
        TOOLS,
        mails_twice,
        ((call("mail"), FAILED), (call("mail"), SENT, FAILED), (SENT, FAILED)),
    ),
    "agent, effects refused": Scenario(
        TOOLS,
        fetches,
        (
            (call("fetch"), call("fetch", "push"), FAILED),
            (call("fetch"), call("push"), FAILED),
            (SHIPPED, FAILED),
        ),
    ),
    "agent, two visits": Scenario(TOOLS, ships, ((call("build"),), (SHIPPED, FAILED)), visits=2),
}

CAUGHT = {
    Flaw.RECEIPT_FROM_ANSWER: ("agent", Law.RECEIPT),
    Flaw.ROUND_IN_MEMORY: ("agent", Law.FOLD),
    Flaw.FENCE_WITHOUT_EPOCH: ("rounds", Law.FENCE),
    Flaw.KEY_BY_POSITION: ("agent", Law.FALLBACK),
    Flaw.KEY_BY_ACTION: ("rounds", Law.END),
    Flaw.ACT_BEFORE_COMMIT: ("agent", Law.ONCE),
    Flaw.NO_CONFIRMATION: ("rounds", Law.ONCE),
    Flaw.REPEAT_IN_DOUBT: ("rounds", Law.ONCE),
    Flaw.PROBE_BY_ARGUMENTS: ("rounds", Law.RECEIPT),
    Flaw.FALLBACK_FROM_SCRATCH: ("agent", Law.FALLBACK),
    Flaw.HANDLER_OVER_FOREIGN_EFFECTS: ("agent", Law.FALLBACK),
    Flaw.FALLBACK_IN_MEMORY: ("agent", Law.FALLBACK),
    Flaw.MEMO_OUTLIVES_EFFECTS: ("looks first", Law.END),
    Flaw.ANSWER_NOT_BOUND: ("agent, effects confirmed", Law.CONSENT),
    Flaw.CONVERSATION_REWRITTEN: ("agent", Law.BYTES),
    Flaw.DIVERGENCE_CHECKED_ONCE: ("agent, effects refused", Law.FALLBACK),
    Flaw.LIVE_QUERIES: ("looks first", Law.END),
    Flaw.REFUSAL_FORGOTTEN: ("effects refused", Law.END),
    Flaw.DOUBT_LEFT_ALONE: ("rounds", Law.WAY_OUT),
    Flaw.BEGUN_BY_ITSELF: ("rounds", Law.COMMITS),
}
"""A scenario in which each planted error is found, and the law it breaks."""


@pytest.mark.parametrize("takeovers", [0, 2, pytest.param(4, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
def test_the_laws_hold_in_every_interleaving(scenario: Scenario, takeovers: int) -> None:
    found = search(Model(scenario, takeovers))
    assert found.broken is None, "\n".join([str(found.broken), *found.trail])
    assert found.ends


@pytest.mark.parametrize("flaw", Flaw, ids=lambda flaw: flaw.name.lower())
def test_a_planted_error_is_found_and_its_law_named(flaw: Flaw) -> None:
    scenario, law = CAUGHT[flaw]
    found = search(Model(SCENARIOS[scenario], 2, flaw))
    assert found.broken is not None, f"not found in {found.states} states: {flaw.value}"
    assert found.broken.law is law, "\n".join([str(found.broken), *found.trail])


def test_no_law_is_idle() -> None:
    """Each law is broken by one of the planted errors."""
    assert {law for _, law in CAUGHT.values()} == set(Law)


class CountingStore(MemoryStore):
    """Counts the commits."""

    commits = 0

    async def append(self, commit: Commit) -> int:
        """Count one more."""
        self.commits += 1
        return await super().append(commit)


@pytest.mark.parametrize("scenario", HANDLERS.values(), ids=HANDLERS)
async def test_undisturbed_the_engine_writes_what_the_model_writes(scenario: Scenario) -> None:
    """The same entries in the same commits, and the same keys: the model's picture of the driver is true."""
    happened: list[str] = []

    def effect(action: str) -> EngineTool:
        async def perform() -> dict[str, Any]:
            happened.append(action)
            return {"of": action, "number": happened.count(action)}

        return EngineTool(action, perform)

    def look(action: str) -> EngineTool:
        async def count() -> int:
            return happened.count(action)

        return EngineTool(f"look {action}", count, kind="query")

    async def work(ctx: Any) -> Outcome:
        requests, result = scenario.handler(), None
        while True:
            try:
                request = requests.send(result)
            except StopIteration as stop:
                target = "work" if ctx.visit < scenario.visits else "done"
                return Outcome(next=target, effects=[Effect(action) for action in stop.value.effects])
            if isinstance(request, Look):
                result = await ctx.query(f"look {request.action}")
            else:
                result = await ctx.perform(request.action)

    tools = [make(action) for action in TOOLS for make in (effect, look)]
    store = CountingStore()
    engine = Engine(store, [flow_of({"work": ["work", "done"]}, {"work": work}, tools=tools)])
    await engine.open()
    try:
        run = await engine.run("flow")
        written = [entry.body for entry in await journal(engine, run.id)]
    finally:
        await engine.stop(grace=0)
    actions = {Effect(action).identity("work"): action for action in TOOLS}
    expected = undisturbed(Model(scenario, 0))
    assert [seen(body, actions) for body in written] == [seen(body, {}) for body in expected.bodies]
    assert store.commits == expected.commits


def seen(body: Body, actions: dict[str, str]) -> tuple[Any, ...]:
    """An entry as far as engine and model must agree on it; `actions` are the names of digests."""

    def named(key: str) -> str:
        return key.replace(action_of(key), actions.get(action_of(key), action_of(key)))

    if isinstance(body, Proposed):
        effects = [(named(item["key"]), item["tool"]) for item in body.effects]
        return body.kind, effects, body.round, body.final, body.side, body.by
    if isinstance(body, EffectBegun):
        return body.kind, named(body.key), body.tool
    if isinstance(body, EffectDone):
        return body.kind, named(body.key), body.tool, body.receipt, body.how
    if isinstance(body, Recorded):
        return body.kind, body.value
    return (body.kind,)
