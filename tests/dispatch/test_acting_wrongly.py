"""Agents that act plausibly and wrongly, against handlers of both styles: never worse than the handler."""

from __future__ import annotations

import contextlib

import pytest

from detent.dispatch.agent_side import AgentSide
from detent.dispatch.config import StepConfig
from detent.dispatch.equivalence import CompareRules
from detent.engine.step import Step
from detent.engine.tools import Tool, ToolError
from detent.kernel.entries import Noted
from detent.kernel.status import Status
from tests.dispatch.samples import INTENT, agent, result_of, scripted, settings, single
from tests.dispatch.test_acting import World, calls, running
from tests.engine.conftest import journal

ANY = {"type": "object"}
GONE = {"error": "permanent"}


def run(command):
    return ("run", {"command": command})


def write(text):
    return ("write", {"text": text})


async def equal_proposals(ctx):
    """Equal effects of one outcome are performed once."""
    first, second = ctx.propose("run", command="make"), ctx.propose("run", command="make")
    return {"first": first.exit_code, "second": second.exit_code}


async def looks_first(ctx):
    """The natural guard: only if it is not done yet."""
    if await ctx.query("read") == "old":
        await ctx.perform("write", text="new")
        return {"did": True}
    return {"did": False}


async def performs_and_proposes(ctx):
    await ctx.perform("write", text="x")
    done = ctx.propose("run", command="make")
    return {"code": done.exit_code}


async def tries_first(ctx):
    with contextlib.suppress(ToolError):
        await ctx.perform("run", command="bad")
    await ctx.perform("write", text="x")
    return {"stored": True}


CASES = {
    "twice what counts once": (equal_proposals, [calls(run("make"), run("make")), GONE]),
    "looked after it acted": (looks_first, [calls(write("new"), ("read", {})), GONE]),
    "acted, then was wrong": (looks_first, [calls(write("new")), {"output": {"did": False}}]),
    "did all of both kinds": (performs_and_proposes, [calls(write("x")), calls(run("make")), GONE]),
    "did all, and was wrong": (
        performs_and_proposes, [calls(write("x")), calls(run("make")), {"output": {"code": 7}}]
    ),
    "left out after a failure": (tries_first, [calls(run("bad"), write("x")), GONE]),
    "failed and died": (tries_first, [calls(run("bad")), GONE]),
    "two swapped": (performs_and_proposes, [calls(run("make"), write("x")), GONE]),
    "one too many": (looks_first, [calls(write("new"), run("make")), GONE]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
async def test_at_collaborator_world_and_output_are_the_handlers(bench, name):
    handler, replies = CASES[name]
    plain = World(fails=("bad",))
    quiet = await (await bench.engine(running(plain, handler, schema=ANY))).run("flow")
    world = World(fails=("bad",))
    flow = running(world, handler, schema=ANY, side=AgentSide(rounds=4))
    engine = await bench.engine(flow, dispatch=settings(scripted(*replies), agent()))
    done = await engine.run("flow")
    assert (done.status, done.data, world.ran) == (Status.SUCCEEDED, quiet.data, plain.ran)


@pytest.mark.parametrize("level", ["consultant", "approver"])
@pytest.mark.parametrize("name", ["left out after a failure", "failed and died", "did all of both kinds"])
async def test_a_trusted_agent_that_dies_loses_and_repeats_nothing(bench, level, name):
    handler, replies = CASES[name]
    world = World(fails=("bad",))
    flow = running(world, handler, schema=ANY, side=AgentSide(rounds=4))
    engine = await bench.engine(flow, dispatch=settings(scripted(*replies), agent(level)))
    done = await engine.run("flow")
    assert done.status is Status.SUCCEEDED
    assert world.ran == (["write x", "make"] if handler is performs_and_proposes else ["write x"])


@pytest.mark.parametrize("level", ["consultant", "approver"])
async def test_a_claim_after_an_effect_that_failed_is_not_believed(bench, level):
    world = World(fails=("make test",))
    claim = {"output": {"exit_code": 0, "stdout": "12 passed"}}
    executor = scripted(calls(run("make test")), claim, claim)
    flow = running(world, side=AgentSide(rounds=3))
    engine = await bench.engine(flow, dispatch=settings(executor, agent(level)))
    done = await engine.run("flow")
    assert done.status is Status.FAILED
    assert "12 passed" not in str(done.data)


async def test_the_handlers_own_question_is_asked_where_it_is_compared(bench):
    """A person's word is not lost because an agent performs the step."""

    async def publishes(ctx):
        return await ctx.perform("run", command="git push", confirm="Publish now?")

    world = World()
    executor = scripted(calls(run("git push")))
    engine = await bench.engine(running(world, publishes), dispatch=settings(executor, agent()))
    waiting = await engine.run("flow")
    assert (waiting.status, world.ran) == (Status.WAITING, [])
    (name,) = waiting.holds
    await engine.release(waiting.id, "yes", hold=waiting.token(name))
    done = await engine.finish(waiting.id)
    assert (done.status, world.ran) == (Status.SUCCEEDED, ["git push"])
    assert (await result_of(engine, done.id)).mode_used.value == "agent"


@pytest.mark.parametrize("style", ["proposes", "performs"])
@pytest.mark.parametrize(
    ("replies", "outcome"),
    [
        ([calls(run("make test")), {"output": {}}], "agreed"),
        ([{"output": {"exit_code": 1, "stdout": "make test in ."}}], "differed"),
        ([calls(run("make test"), run("make test")), {"output": {}}], "differed"),
        ([calls(run("rm")), {"output": {}}], "differed"),
    ],
)
async def test_a_shadow_agrees_only_if_it_would_do_the_same(bench, style, replies, outcome):
    async def performs(ctx):
        return await ctx.perform("run", command="make test")

    world = World()
    flow = running(world, performs if style == "performs" else None, side=AgentSide(rounds=3))
    engine = await bench.engine(flow, dispatch=settings(scripted(*replies), StepConfig(shadow=1.0)))
    done = await engine.run("flow")
    assert world.ran == ["make test"]
    (note,) = [e.body for e in await journal(engine, done.id) if isinstance(e.body, Noted)]
    assert note.body["outcome"] == outcome


@pytest.mark.parametrize("level", ["consultant", "approver"])
async def test_a_receipt_that_breaks_the_contract_is_not_replaced_by_the_agents_word(bench, level):
    """The handler's own conclusion is used: it stands for what the receipt says."""
    world = World()
    schema = {
        "type": "object",
        "required": ["exit_code", "stdout"],
        "properties": {"exit_code": {"type": "string"}, "stdout": {"type": "string"}},
    }
    claim = {"output": {"exit_code": "0", "stdout": "fine"}, "repeat": True}
    flow = running(world, schema=schema)
    executor = scripted(calls(run("make test")), claim)
    engine = await bench.engine(flow, dispatch=settings(executor, agent(level)))
    done = await engine.run("flow")
    assert (world.ran, done.data["exit_code"]) == (["make test"], 1)


@pytest.mark.parametrize("style", ["proposes", "performs"])
async def test_what_may_vary_in_an_output_may_not_in_an_effect(bench, style):
    paid = []

    def pay(amount: float) -> dict[str, float]:
        paid.append(amount)
        return {"amount": amount}

    async def proposes(ctx):
        return {"amount": ctx.propose("pay", amount=100.0).amount}

    async def performs(ctx):
        return await ctx.perform("pay", amount=100.0)

    step = Step(
        "work", performs if style == "performs" else proposes, INTENT, effects=("pay",), inputs=(),
        output_schema={"type": "object", "properties": {"amount": {"type": "number"}}},
        compare=CompareRules(float_rel_tol=0.1),
    )  # fmt: skip
    executor = scripted(calls(("pay", {"amount": 105.0})))
    flow = single(step, tools=[Tool("pay", pay)])
    engine = await bench.engine(flow, dispatch=settings(executor, agent()))
    done = await engine.run("flow")
    assert (done.status, paid) == (Status.SUCCEEDED, [100.0])
