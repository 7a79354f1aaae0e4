"""Agents that act plausibly and wrongly, against handlers of both styles: never worse than the handler."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Annotated, Any

import pytest

from detent.dispatch.agent_side import AgentSide
from detent.dispatch.config import StepConfig
from detent.dispatch.equivalence import CompareRules
from detent.engine.step import Step
from detent.engine.tools import Tool, ToolError
from detent.kernel.entries import Noted
from detent.kernel.status import Status
from tests.dispatch.samples import INTENT, LEVELS, agent, result_of, scripted, settings, single
from tests.dispatch.test_acting import Ran, World, calls, running
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


class TestAfterAFailedEffect:
    """What stands behind a failed effect in the same reply is left out, whatever stands between them."""

    @pytest.mark.parametrize("between", [("read", {}), ("deploy", {})])
    @pytest.mark.parametrize("level", LEVELS)
    async def test_nothing_behind_it_is_performed(self, bench, level, between):
        async def work(ctx):
            if ctx.failure:
                return {"exit_code": 1, "stdout": "not published"}
            ctx.propose("run", command="bad")
            ctx.propose("write", text="PUBLISHED")
            return {"exit_code": 0, "stdout": "published"}

        world = World(fails=("bad",))
        reply = calls(("run", {"command": "bad"}), between, ("write", {"text": "PUBLISHED"}))
        executor = scripted(reply, {"error": "permanent"})
        flow = running(world, work, side=AgentSide())
        engine = await bench.engine(flow, dispatch=settings(executor, agent(level)))
        run = await engine.run("flow")
        assert (world.ran, run.status) == ([], Status.SUCCEEDED)
        assert run.data == {"exit_code": 1, "stdout": "not published"}

    @pytest.mark.parametrize("level", LEVELS)
    async def test_what_was_left_out_is_not_done(self, bench, level):
        """One effect fails, its neighbour is left out, and the agent says that all is well."""

        async def work(ctx):
            ctx.propose("write", text="y")
            return {"exit_code": 0, "stdout": "by code"}

        world = World(fails=("bad",))
        claim = {"output": {"exit_code": 0, "stdout": "all done"}, "repeat": True}
        executor = scripted(calls(run("bad"), write("y")), claim)
        flow = running(world, work, side=AgentSide(rounds=2))
        engine = await bench.engine(flow, dispatch=settings(executor, agent(level)))
        done = await engine.run("flow")
        assert (world.ran, done.data["stdout"]) == (["write y"], "by code")


class TestConfirmedByTheHandler:
    @pytest.mark.parametrize("repeats", [2, 3])
    async def test_the_second_of_two_equal_effects_is_asked_about_where_the_handler_asks(
        self, bench, repeats
    ):
        async def work(ctx):
            await ctx.perform("run", command="push")
            done = await ctx.perform("run", command="push", confirm="Push again?")
            return {"exit_code": done["exit_code"], "stdout": done["stdout"]}

        world = World()
        push = ("run", {"command": "push"})
        executor = scripted(*[calls(push)] * repeats)
        flow = running(world, work, side=AgentSide(rounds=repeats))
        engine = await bench.engine(flow, dispatch=settings(executor, agent("collaborator")))
        run = await engine.run("flow")
        assert (run.status, world.ran) == (Status.WAITING, ["push"])
        (hold,) = run.holds.values()
        assert hold.question == "Push again?"

    async def test_an_effect_that_counts_as_the_handlers_is_asked_about_too(self, bench):
        """The rules ignore an argument, and the agent gives another one."""

        async def work(ctx):
            done = await ctx.perform("run", command="push", cwd="a", confirm="Push?")
            return {"exit_code": done["exit_code"], "stdout": done["stdout"]}

        world = World()
        executor = scripted(calls(("run", {"command": "push", "cwd": "b"})))
        rules = CompareRules(ignore=("/effects/0/args/cwd", "/stdout"))
        flow = running(world, work, compare=rules)
        engine = await bench.engine(flow, dispatch=settings(executor, agent("collaborator")))
        run = await engine.run("flow")
        assert (run.status, world.ran) == (Status.WAITING, [])

    @pytest.mark.parametrize("level", LEVELS)
    async def test_what_a_person_has_denied_is_not_asked_again(self, bench, level):
        """The agent asks for it again and again; nobody is asked twice, and nothing is done."""

        async def work(ctx):
            with contextlib.suppress(ToolError):
                await ctx.perform("run", command="push")
            await ctx.perform("write", text="a note")
            return {"exit_code": -1, "stdout": "left"}

        world = World()
        tools = [replace(tool, confirm="Push?") if tool.name == "run" else tool for tool in world.tools()]
        push = {**calls(("run", {"command": "push"})), "repeat": True}
        step = replace(running(world, work).steps["work"], agent=AgentSide(rounds=4))
        engine = await bench.engine(
            single(step, tools=tools), dispatch=settings(scripted(push), agent(level))
        )
        run = await engine.run("flow")
        await engine.release(run.id, "no", hold=run.token())
        run = await engine.finish(run.id)
        assert run.status is Status.SUCCEEDED
        assert (world.ran, run.data) == (["write a note"], {"exit_code": -1, "stdout": "left"})


class TestClaims:
    @pytest.mark.parametrize("level", ["consultant", "approver"])
    @pytest.mark.parametrize("returns", [Ran, Ran | None, Annotated[Ran, "what came of it"]])
    async def test_an_argument_of_one_effect_does_not_stand_for_the_receipt_of_another(
        self, bench, level, returns
    ):
        ran: list[str] = []

        def run(command: str) -> Any:
            ran.append(command)
            return {"exit_code": 3, "stdout": "3 failed"}

        run.__annotations__["return"] = returns

        def report(exit_code: int, stdout: str) -> dict[str, bool]:
            return {"reported": True}

        async def work(ctx):
            done = await ctx.perform("run", command="make test")
            await ctx.perform("report", exit_code=done["exit_code"], stdout=done["stdout"])
            return {"exit_code": done["exit_code"], "stdout": done["stdout"]}

        step = Step("work", work, INTENT, effects=("run", "report"), output_schema=Ran, inputs=())
        claims = calls(("report", {"exit_code": 0, "stdout": "12 passed"}))
        executor = scripted(claims, {"output": {"exit_code": 0, "stdout": "12 passed"}, "repeat": True})
        flow = single(step, tools=[Tool("run", run), Tool("report", report)])
        engine = await bench.engine(flow, dispatch=settings(executor, agent(level)))
        run_ = await engine.run("flow")
        assert run_.data.get("exit_code") != 0


@pytest.mark.parametrize("right", [True, False])
async def test_what_the_handler_notes_and_tags_is_kept_when_an_equal_answer_is_used(bench, right):
    async def work(ctx):
        await ctx.note("seen", by="code")
        await ctx.tag("vip")
        return {"exit_code": 0, "stdout": "fine"}

    step = Step("work", work, INTENT, output_schema=Ran, inputs=(), effects=())
    executor = scripted({"output": {"exit_code": 0, "stdout": "fine" if right else "bad"}})
    engine = await bench.engine(single(step), dispatch=settings(executor, agent("collaborator")))
    run = await engine.run("flow")
    notes = [entry.body for entry in await journal(engine, run.id) if isinstance(entry.body, Noted)]
    assert (list(run.tags), [note.topic for note in notes]) == (["vip"], ["seen"])
