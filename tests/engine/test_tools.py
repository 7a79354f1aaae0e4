"""Tools: names, kinds, and the errors they speak in."""

from __future__ import annotations

import pytest

from detent import Effect, Engine, Flow, Machine, Outcome, Status
from detent.engine.tools import EffectCall, Tool, Toolbox, ToolError, query, tool
from detent.kernel.errors import ConfigurationError
from detent.stores import MemoryStore
from tests.engine.conftest import one_step


@tool("crm.open", idempotent=True)
def open_ticket(serial: str) -> str:
    """Open a ticket.

    For a device.
    """
    return serial


@query("crm.find")
def find(serial: str) -> None:
    """Find a device."""


def test_the_decorators_make_tools_of_functions():
    assert (open_ticket.name, open_ticket.kind, open_ticket.description) == (
        "crm.open",
        "effect",
        "Open a ticket.",
    )
    assert open_ticket.idempotent
    assert find.kind == "query"


def test_a_tool_is_found_by_name_and_kind():
    box = Toolbox([open_ticket, find])
    assert box.get("crm.find", "query") is find
    assert "crm.open" in box
    assert list(box) == [open_ticket, find]


def test_an_unknown_tool_is_refused_with_the_nearest():
    with pytest.raises(ConfigurationError, match="Did you mean 'crm.open'"):
        Toolbox([open_ticket]).get("crm.opne", "effect")


def test_a_query_is_no_effect():
    with pytest.raises(ConfigurationError, match="is a query, not an effect"):
        Toolbox([find]).get("crm.find", "effect")


def test_a_name_given_twice_is_refused_but_the_same_tool_is_not():
    box = Toolbox([find, find])
    with pytest.raises(ConfigurationError, match="Two tools"):
        box.add(Tool("crm.find", print))


def test_the_idempotency_key_is_the_same_on_every_attempt():
    assert EffectCall("r", "k", 1).idempotency_key == EffectCall("r", "k", 2).idempotency_key == "r:k"
    assert EffectCall("other", "k", 1).idempotency_key != EffectCall("r", "k", 1).idempotency_key


def test_a_tool_error_says_its_code_and_message():
    assert str(ToolError("gone")) == "gone"
    assert str(ToolError("gone", "no such ticket")) == "gone: no such ticket"
    assert not ToolError("gone").transient


class TestArguments:
    def test_a_tool_says_what_it_cannot_be_called_with(self):
        mail = Tool("mail", lambda to, subject="": None)
        mail.check({"to": "a@b.example"})
        with pytest.raises(ConfigurationError, match=r"'mail' cannot be called like this: .*'body'"):
            mail.check({"to": "a@b.example", "body": "x"})
        with pytest.raises(ConfigurationError, match="missing a required argument: 'to'"):
            mail.check({})

    def test_a_tool_that_wants_to_know_its_call_gets_it_first(self):
        Tool("mail", lambda call, to: None, wants_call=True).check({"to": "x"})

    async def test_an_effect_with_wrong_arguments_fails_the_step_before_anything_happens(self):
        done = []
        flow = Flow(
            Machine("flow", start="work", moves={"work": ["end"]}, ends=["end"]),
            {"work": lambda ctx: Outcome(effects=[Effect("mail", {"too": "x"})])},
            tools=[Tool("mail", done.append)],
        )
        async with Engine(MemoryStore(), [flow]) as engine:
            run = await engine.run("flow")
        assert (run.status, run.holds, done) == (Status.FAILED, {}, [])
        assert "cannot be called like this" in run.error


class TestGiven:
    async def test_arguments_the_run_gives_reach_queries_and_effects_and_nobody_else_says_them(self, bench):
        heard = []

        def look(what, day):
            heard.append(("look", what, day))
            return what

        def act(what, day):
            heard.append(("act", what, day))

        def today(ctx):
            return {"day": ctx.data["day"]}

        async def work(ctx):
            await ctx.query("look", what="x")
            await ctx.query("look", what="x", day="forged")
            ctx.propose("act", what="y", day="forged")

        tools = [Tool("look", look, kind="query", given=today), Tool("act", act, given=today)]
        engine = await bench.engine(one_step(work, tools=tools))
        run = await engine.run("flow", {"day": "monday"})
        assert run.status is Status.SUCCEEDED, run.error
        assert heard == [("look", "x", "monday"), ("act", "y", "monday")]
