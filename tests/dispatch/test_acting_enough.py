"""Agents that act too little, or claim what only an effect could tell; and tools that a person confirms."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

import pytest

from detent.dispatch.agent_side import AgentSide
from detent.dispatch.autonomy import FallbackReason
from detent.engine.step import Step
from detent.engine.tools import Tool, ToolError
from detent.kernel.errors import ConfigurationError
from detent.kernel.status import Status
from tests.dispatch.samples import INTENT, LEVELS, agent, result_of, scripted, settings, single
from tests.dispatch.test_acting import World, calls
from tests.engine.conftest import flow_of, journal

TRUSTED = ("consultant", "approver")


class Booked(TypedDict):
    """What the ledger gives back."""

    number: int


class Sent(TypedDict):
    """What the post gives back."""

    tracking: str


class Parcels(TypedDict):
    """What another post gives back."""

    parcels: dict[str, Sent]


class Shipped(TypedDict):
    """What the step states."""

    number: int
    tracking: str


class Desk:
    """A ledger and a post office."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def tools(self, **options: Any) -> list[Tool]:
        def book(amount: int) -> Booked:
            self.done.append(f"book {amount}")
            return {"number": len(self.done)}

        def send(to: str) -> Sent:
            self.done.append(f"send {to}")
            return {"tracking": f"T-{to}"}

        return [Tool("book", book), Tool("send", send, **options)]


def shipping(desk: Desk, *, side: AgentSide | None = None, performs: bool = False, **options: Any):
    """A flow of one step that books an amount and sends a parcel."""

    async def ship(ctx):
        if performs:
            number = (await ctx.perform("book", amount=7))["number"]
            return {"number": number, "tracking": (await ctx.perform("send", to="Ada"))["tracking"]}
        return {
            "number": ctx.propose("book", amount=7).number,
            "tracking": ctx.propose("send", to="Ada").tracking,
        }

    step = Step("work", ship, INTENT, effects=("book", "send"), output_schema=Shipped, inputs=(), agent=side)
    return single(step, tools=desk.tools(**options))


BOOK, SEND = ("book", {"amount": 7}), ("send", {"to": "Ada"})
BOTH = {"number": 1, "tracking": "T-Ada"}


@pytest.mark.parametrize("level", LEVELS)
class TestOneCallAReply:
    async def test_a_step_with_two_effects_is_done_to_its_end(self, bench, level):
        """A model without native calls makes one call a reply, and needs no setting for it."""
        desk = Desk()
        executor = scripted(calls(BOOK), calls(SEND))
        engine = await bench.engine(shipping(desk), dispatch=settings(executor, agent(level)))
        run = await engine.run("flow")
        assert (desk.done, run.data) == (["book 7", "send Ada"], BOTH)
        assert (await result_of(engine, run.id)).mode_used.value == "agent"
        assert len(executor.calls) == 2

    async def test_both_at_once_cost_one_reply(self, bench, level):
        desk = Desk()
        executor = scripted(calls(BOOK, SEND))
        engine = await bench.engine(shipping(desk), dispatch=settings(executor, agent(level)))
        run = await engine.run("flow")
        assert (desk.done, run.data, len(executor.calls)) == (["book 7", "send Ada"], BOTH, 1)

    async def test_nothing_is_done_once_each_effect_was(self, bench, level):
        """Asked for what is missing, it acts again: that is refused, and then code does the step."""

        class Signed(Shipped):
            signed: str

        async def ship(ctx):
            number, tracking = ctx.propose("book", amount=7).number, ctx.propose("send", to="Ada").tracking
            return {"number": number, "tracking": tracking, "signed": "Ada"}

        desk = Desk()
        step = Step("work", ship, INTENT, effects=("book", "send"), output_schema=Signed, inputs=())
        executor = scripted(calls(BOOK, SEND), calls(BOOK), {"output": {"signed": "Ada"}})
        engine = await bench.engine(
            single(step, tools=desk.tools()), dispatch=settings(executor, agent(level))
        )
        run = await engine.run("flow")
        assert (desk.done, run.data) == (["book 7", "send Ada"], {**BOTH, "signed": "Ada"})

    async def test_a_failed_effect_may_be_tried_again(self, bench, level):
        world = World(fails=("make",))

        async def work(ctx):
            done = ctx.propose("run", command="make test")
            return {"exit_code": done.exit_code, "stdout": done.stdout}

        step = Step("work", work, INTENT, effects=("run", "write"), inputs=())
        executor = scripted(
            calls(("run", {"command": "make"})), calls(("run", {"command": "make test"})),
            {"output": {"exit_code": 0, "stdout": ""}},
        )  # fmt: skip
        engine = await bench.engine(
            single(step, tools=world.tools()), dispatch=settings(executor, agent(level))
        )
        run = await engine.run("flow")
        assert (world.ran, run.data["stdout"]) == (["make test"], "make test in .")


@pytest.mark.parametrize("level", TRUSTED)
class TestUnfoundedClaims:
    async def test_another_effect_does_not_vouch_for_a_claim(self, bench, level):
        """It books, sends nothing, and says that the parcel is on its way."""
        desk = Desk()
        claim = {"output": {"number": 9, "tracking": "T-12345"}, "repeat": True}
        executor = scripted(calls(BOOK), claim)
        engine = await bench.engine(shipping(desk), dispatch=settings(executor, agent(level)))
        run = await engine.run("flow")
        assert (desk.done, run.data) == (["book 7", "send Ada"], BOTH)
        result = await result_of(engine, run.id)
        assert result.fallback_reason is FallbackReason.SCHEMA_VIOLATION
        assert "/tracking: only 'send' can tell" in executor.calls[2].prompt

    async def test_told_of_it_an_agent_can_still_act(self, bench, level):
        desk = Desk()
        executor = scripted(calls(BOOK), {"output": {"number": 9, "tracking": "T-1"}}, calls(SEND))
        engine = await bench.engine(shipping(desk), dispatch=settings(executor, agent(level)))
        run = await engine.run("flow")
        assert (desk.done, run.data) == (["book 7", "send Ada"], BOTH)
        assert (await result_of(engine, run.id)).mode_used.value == "agent"

    async def test_a_failed_effect_vouches_for_nothing(self, bench, level):
        desk = Desk()

        def send(to: str) -> Sent:
            raise ToolError("closed", "the post is closed")

        flow = shipping(desk)
        tools = [desk.tools()[0], Tool("send", send)]
        step = flow.steps["work"]
        executor = scripted(calls(BOOK), calls(SEND), {"output": {"tracking": "T-1"}, "repeat": True})
        engine = await bench.engine(single(step, tools=tools), dispatch=settings(executor, agent(level)))
        run = await engine.run("flow")
        assert run.status is Status.FAILED
        assert "tracking" not in run.data


@pytest.mark.parametrize("level", TRUSTED)
@pytest.mark.parametrize("receipt", ["a list", "a field"])
async def test_what_lies_deeper_in_a_receipt_is_not_taken_from_an_agent(bench, level, receipt):
    """It books, sends nothing, and says how the parcel can be traced."""
    desk = Desk()

    def listed(to: str) -> list[Sent]:
        desk.done.append(f"send {to}")
        return [{"tracking": "T-Ada"}]

    def within(to: str) -> Parcels:
        desk.done.append(f"send {to}")
        return {"parcels": {"1": {"tracking": "T-Ada"}}}

    async def ship(ctx):
        number = (await ctx.perform("book", amount=7))["number"]
        sent = await ctx.perform("send", to="Ada")
        first = sent[0] if receipt == "a list" else sent["parcels"]["1"]
        return {"number": number, "tracking": first["tracking"]}

    step = Step("work", ship, INTENT, effects=("book", "send"), output_schema=Shipped, inputs=())
    tools = [desk.tools()[0], Tool("send", listed if receipt == "a list" else within)]
    claim = {"output": {"number": 9, "tracking": "T-12345"}, "repeat": True}
    executor = scripted(calls(BOOK), claim)
    engine = await bench.engine(single(step, tools=tools), dispatch=settings(executor, agent(level)))
    run = await engine.run("flow")
    assert (desk.done, run.data) == (["book 7", "send Ada"], BOTH)
    assert "/tracking: only 'send' can tell" in executor.calls[2].prompt


@pytest.mark.parametrize("level", TRUSTED)
async def test_a_claim_within_another_field_is_not_believed_either(bench, level):
    class Report(TypedDict):
        number: int
        parcel: Sent

    desk = Desk()

    async def ship(ctx):
        number = (await ctx.perform("book", amount=7))["number"]
        return {"number": number, "parcel": await ctx.perform("send", to="Ada")}

    step = Step("work", ship, INTENT, effects=("book", "send"), output_schema=Report, inputs=())
    claim = {"output": {"number": 9, "parcel": {"tracking": "T-12345"}}, "repeat": True}
    executor = scripted(calls(BOOK), claim)
    engine = await bench.engine(single(step, tools=desk.tools()), dispatch=settings(executor, agent(level)))
    run = await engine.run("flow")
    assert (desk.done, run.data["parcel"]) == (["book 7", "send Ada"], {"tracking": "T-Ada"})
    assert "/parcel/tracking: only 'send' can tell" in executor.calls[2].prompt


class TestMissing:
    @pytest.mark.parametrize("level", TRUSTED)
    async def test_an_agent_that_names_the_next_state_is_asked_for_nothing_it_has_done(self, bench, level):
        desk = Desk()

        async def ship(ctx):
            raise AssertionError("the agent is trusted")

        step = Step(
            "work", ship, INTENT, effects=("book", "send"), output_schema=Shipped, inputs=(),
            next=("done", "failed"),
        )  # fmt: skip
        flow = flow_of({"work": ["done", "failed"]}, {"work": step}, tools=desk.tools())
        executor = scripted(calls(BOOK, SEND), {"output": {"next_state": "done"}})
        engine = await bench.engine(flow, dispatch=settings(executor, agent(level)))
        run = await engine.run("flow")
        assert (run.state, run.data) == ("done", BOTH)
        asked = executor.calls[1].prompt.partition("MISSING")[2]
        assert "next_state" in asked
        assert "tracking" not in asked


class TestToolsThatAPersonConfirms:
    @pytest.mark.parametrize("level", [None, *LEVELS])
    async def test_whoever_performs_the_step_a_person_is_asked(self, bench, level):
        """Said once, where the effect is: it holds for code, for agents, and for code after an agent."""
        desk = Desk()
        flow = shipping(desk, performs=True, confirm=lambda to: f"Send it to {to}?")
        executor = scripted(calls(BOOK), calls(SEND))
        dispatch = settings(executor, agent(level)) if level else None
        engine = await bench.engine(flow, dispatch=dispatch)
        run = await engine.run("flow")
        assert (run.status, desk.done) == (Status.WAITING, ["book 7"])
        (hold,) = run.holds.values()
        assert (hold.question, hold.about["args"]) == ("Send it to Ada?", {"to": "Ada"})
        await engine.release(run.id, "yes", hold=run.token())
        done = await engine.finish(run.id)
        assert (done.status, desk.done, done.data) == (Status.SUCCEEDED, ["book 7", "send Ada"], BOTH)

    async def test_nobody_is_asked_where_the_tool_says_so(self, bench):
        desk = Desk()
        flow = shipping(desk, performs=True, confirm=lambda to: None if to == "Ada" else "Really?")
        engine = await bench.engine(flow)
        assert (await engine.run("flow")).status is Status.SUCCEEDED

    async def test_it_cannot_be_proposed(self, bench):
        """The outcome of a proposal would have to be known before the person has decided."""
        engine = await bench.engine(shipping(Desk(), confirm="Send it?"))
        run = await engine.run("flow")
        assert run.status is Status.FAILED
        assert "which a person confirms" in str(await journal(engine, run.id))


def test_fields_of_receipts_are_those_of_a_declared_class() -> None:
    def typed() -> Sent:
        return {"tracking": ""}

    def plain() -> dict[str, Any]:
        return {}

    def listed() -> list[Sent]:
        return []

    def within() -> Annotated[tuple[Parcels, ...] | None, "in a class, in a mapping"]:
        return None

    assert Tool("a", typed).receipt_fields == Tool("l", listed).receipt_fields == {"tracking"}
    assert Tool("w", within).receipt_fields == {"parcels", "tracking"}
    assert Tool("b", plain).receipt_fields == frozenset()
    assert Tool("c", lambda: None).receipt_fields == frozenset()
    with pytest.raises(ConfigurationError):
        Tool("d", typed, timeout=-1)
