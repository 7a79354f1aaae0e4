"""What may happen before a step is performed, and where a run goes whose step failed or succeeded."""

from __future__ import annotations

import pytest

from detent.engine.flow import Detour, Flow
from detent.engine.outcome import Effect, Hold, Outcome
from detent.engine.step import Step
from detent.engine.tools import Tool
from detent.kernel.errors import ConfigurationError
from detent.kernel.machine import Machine
from detent.kernel.status import Status
from tests.engine import answers
from tests.engine.conftest import journal, kinds

MOVES = {"first": ["second", "mend"], "second": ["done", "mend"], "mend": ["failed"]}
ENDS = {"done": Status.SUCCEEDED, "failed": Status.FAILED}


def flow(first, second=lambda ctx: {"second": True}, mend=lambda ctx: Outcome("failed"), **options):
    machine = Machine("flow", start="first", moves=MOVES, ends=ENDS)
    return Flow(machine, {"first": first, "second": second, "mend": mend}, **options)


class TestBefore:
    async def test_what_it_gives_is_the_outcome_and_the_step_is_not_performed(self, bench):
        called = []
        step = Step("first", lambda ctx: called.append(1), before=lambda ctx: Outcome("second", reason="no"))
        engine = await bench.engine(flow(step, lambda ctx: Outcome("done")))
        run = await engine.run("flow")
        assert run.status is Status.SUCCEEDED
        assert called == []
        moved = [entry.body for entry in await journal(engine, run.id) if entry.kind == "moved"]
        assert [move.reason for move in moved] == ["no", None]

    async def test_nothing_lets_the_step_be_performed(self, quick):
        step = Step("first", lambda ctx: Outcome("second", set={"x": 1}), before=lambda ctx: None)
        engine = await quick.engine(flow(step, lambda ctx: Outcome("done")))
        assert (await engine.run("flow")).data == {"x": 1}

    async def test_another_step_is_performed_in_its_place_with_its_own_effects(self, bench):
        done = []
        inner = Step(
            "inner", lambda ctx: Outcome("second", effects=[Effect("do", {"what": ctx.step.name})]),
            effects=["do"],
        )  # fmt: skip
        step = Step("first", lambda ctx: 1 / 0, before=lambda ctx: inner, instead=(inner,))
        tools = [Tool("do", lambda what: done.append(what))]
        engine = await bench.engine(flow(step, lambda ctx: Outcome("done"), tools=tools))
        assert (await engine.run("flow")).status is Status.SUCCEEDED
        assert done == ["inner"]

    async def test_the_one_in_its_place_may_have_another_in_its_own(self, quick):
        leaf = Step("leaf", lambda ctx: Outcome("second", set={"by": ctx.step.name}))
        inner = Step("inner", lambda ctx: 1 / 0, before=lambda ctx: leaf, instead=(leaf,))
        step = Step("first", lambda ctx: 1 / 0, before=lambda ctx: inner, instead=(inner,))
        engine = await quick.engine(flow(step, lambda ctx: Outcome("done")))
        assert (await engine.run("flow")).data == {"by": "leaf"}

    async def test_one_that_holds_is_asked_again_once_it_is_answered(self, bench):
        def ask(ctx):
            return Outcome("second", set={"said": ctx.answer()}) if ctx.answered() else Hold()

        inner = Step("inner", ask)
        step = Step("first", lambda ctx: 1 / 0, before=lambda ctx: inner, instead=(inner,))
        engine = await bench.engine(flow(step, lambda ctx: Outcome("done")))
        run = await engine.run("flow")
        assert run.status is Status.WAITING
        await answers.release(engine, run.id, "yes")
        assert (await engine.finish(run.id)).data == {"said": "yes"}

    async def test_an_error_in_it_fails_the_step(self, quick):
        step = Step("first", lambda ctx: Outcome("second"), before=lambda ctx: 1 / 0)
        engine = await quick.engine(flow(step))
        run = await engine.run("flow")
        assert (run.status, run.error) == (Status.FAILED, "ZeroDivisionError: division by zero")

    def test_two_inner_steps_of_one_name_are_refused(self):
        inner = [Step("inner", lambda ctx: None), Step("inner", lambda ctx: None)]
        with pytest.raises(ConfigurationError, match="two inner steps are named 'inner'"):
            flow(Step("first", lambda ctx: None, instead=tuple(inner)))

    def test_inner_steps_are_found_by_state_and_name(self):
        inner = Step("inner", lambda ctx: None)
        made = flow(Step("first", lambda ctx: None, instead=(inner,)), scope="kind/flow")
        assert made.step_named("first", "inner") is inner
        assert made.step_named("first", "first") is made.step_for("first")
        assert made.state_of(inner) == "first"
        assert inner in list(made.every_step())
        assert made.qualified(inner) == "kind/flow/inner"


class TestOnFailure:
    async def test_a_failed_step_leads_where_the_flow_says_with_what_it_says(self, bench):
        def aside(run, reason, error):
            return None if run.state == "mend" else Detour("mend", {"why": [run.state, reason, error]})

        def mend(ctx):
            return Outcome("failed", set={"mended": True}, reason="it had failed")

        engine = await bench.engine(flow(lambda ctx: 1 / 0, mend=mend, on_failure=aside))
        run = await engine.run("flow")
        assert (run.status, run.state, run.reason) == (Status.FAILED, "failed", "it had failed")
        assert run.data["why"] == [
            "first", "first failed: ZeroDivisionError", "ZeroDivisionError: division by zero",
        ]  # fmt: skip
        assert run.data["mended"] is True
        assert "attempt_failed" in await kinds(engine, run.id)

    async def test_a_failure_in_there_ends_it(self, quick):
        engine = await quick.engine(
            flow(lambda ctx: 1 / 0, mend=lambda ctx: [][0], on_failure=lambda *_: Detour("mend"))
        )
        run = await engine.run("flow")
        assert run.status is Status.FAILED
        assert run.error.startswith("IndexError")

    async def test_where_the_table_does_not_lead_there_the_run_ends_as_usual(self, quick):
        engine = await quick.engine(flow(lambda ctx: 1 / 0, on_failure=lambda *_: Detour("done")))
        assert (await engine.run("flow")).status is Status.FAILED


class TestClosing:
    async def test_what_it_gives_is_in_the_data_of_a_run_that_succeeds(self, bench):
        engine = await bench.engine(
            flow(
                lambda ctx: Outcome("second", set={"x": 1}),
                lambda ctx: Outcome("done", set={"y": 2}),
                closing=lambda data: {"sum": data["x"] + data["y"]},
            )
        )
        assert (await engine.run("flow")).data == {"x": 1, "y": 2, "sum": 3}

    async def test_it_is_not_asked_when_the_run_fails(self, quick):
        engine = await quick.engine(flow(lambda ctx: 1 / 0, closing=lambda data: {"sum": 1 / 0}))
        run = await engine.run("flow")
        assert run.data == {}
        assert run.error.startswith("ZeroDivisionError")

    async def test_an_error_in_it_fails_the_last_step(self, quick):
        engine = await quick.engine(
            flow(
                lambda ctx: Outcome("second"),
                lambda ctx: Outcome("done", effects=[Effect("do", {})]),
                closing=lambda data: {"sum": data["nowhere"]},
                tools=[Tool("do", lambda: None)],
            )
        )
        run = await engine.run("flow")
        assert run.status is Status.FAILED
        assert "KeyError" in run.error


def test_a_scope_is_the_flows_name_unless_it_says_otherwise():
    assert flow(lambda ctx: None).scope == "flow"
    assert flow(lambda ctx: None, scope="workflow/flow").scope == "workflow/flow"
