"""Flows: checked before they run, all problems at once; input checked before it is kept."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from pydantic import BaseModel, Field

from detent.engine.flow import Flow
from detent.engine.step import Step
from detent.engine.tools import Tool, query
from detent.kernel.errors import ConfigurationError, DefinitionError, FlowNotFound
from detent.kernel.machine import Machine
from detent.kernel.status import Status
from tests.engine.conftest import flow_of, one_step

MACHINE: Machine[str] = Machine(
    "sample",
    start="read",
    moves={"read": ["write"], "write": ["done", "read"]},
    ends={"done": Status.SUCCEEDED},
)


@query("look")
def look() -> str:
    """Look around."""
    return "nothing"


class TestProblems:
    def test_all_problems_are_listed_at_once(self):
        flow = Flow(
            MACHINE,
            {
                "red": lambda ctx: None,
                "done": lambda ctx: None,
                "write": Step("write", lambda ctx: None, effects=("send",)),
            },
            tools=[look],
        )
        with pytest.raises(DefinitionError) as caught:
            flow.check()
        text = str(caught.value)
        assert [problem.code for problem in caught.value.problems] == ["F01", "F02", "F03", "F04"]
        assert "'read': has no step" in text
        assert "Did you mean 'read'?" in text
        assert "'send'" in text

    def test_a_step_may_not_propose_a_query_nor_ask_an_effect(self):
        step = Step("read", lambda ctx: None, effects=("look",), queries=("send",))
        flow = Flow(MACHINE, {"read": step, "write": lambda ctx: None}, tools=[look, Tool("send", print)])
        assert len(flow.problems()) == 2

    def test_limits_with_a_place_to_go_are_checked(self):
        flow = flow_of(
            {"work": ["done", "failed"]},
            {"work": lambda ctx: None},
            exhausted={"token": "failed", "steps": "work"},
        )
        with pytest.raises(DefinitionError) as caught:
            flow.check()
        assert "Did you mean 'tokens'?" in str(caught.value)
        assert "'work'" in str(caught.value)

    def test_a_place_to_go_that_is_no_state_is_refused_at_once(self):
        with pytest.raises(ValueError, match="no state 'nowhere'"):
            flow_of({"work": ["done"]}, {"work": lambda ctx: None}, exhausted={"steps": "nowhere"})

    async def test_a_flow_with_problems_is_not_started(self, quick):
        engine = await quick.engine(Flow(MACHINE, {}))
        with pytest.raises(DefinitionError):
            await engine.start("sample")
        assert (await engine.store.facts())["runs"] == 0

    async def test_a_step_added_later_is_checked_again(self, quick):
        flow = Flow(MACHINE, {"read": lambda ctx: None, "write": lambda ctx: None})
        flow.check()
        flow.step("nowhere")(lambda ctx: None)
        with pytest.raises(DefinitionError):
            flow.check()

    def test_something_that_is_no_step_is_refused(self):
        with pytest.raises(TypeError, match="neither a Step nor a function"):
            Flow(MACHINE, {"read": 3})


class TestDecorator:
    async def test_steps_are_added_with_the_decorator(self, quick):
        flow = Flow(MACHINE)

        @flow.step("read")
        async def read(ctx):
            """Read the letter.

            And more.
            """
            return {"read": True}

        @flow.step("write", intent="Write an answer.", timeout=5)
        def write(ctx):
            return "done"

        assert flow.steps["read"].intent == "Read the letter."
        assert (flow.steps["write"].intent, flow.steps["write"].timeout) == ("Write an answer.", 5)
        engine = await quick.engine(flow)
        assert (await engine.run("sample")).data == {"read": True}

    def test_a_state_with_two_steps_is_refused(self):
        flow = Flow(MACHINE, {"read": lambda ctx: None})
        with pytest.raises(ConfigurationError, match="two steps"):
            flow.step("read")(lambda ctx: None)


class Letter(BaseModel):
    sender: str
    pages: int = Field(default=1, gt=0)


@dataclass
class Parcel:
    weight: float


class TestInput:
    async def test_input_is_checked_and_completed_by_the_model(self, bench):
        engine = await bench.engine(one_step(lambda ctx: None, data=Letter))
        assert (await engine.run("flow", {"sender": "ada"})).data == {"sender": "ada", "pages": 1}
        assert (await engine.run("flow", Letter(sender="bob", pages=2))).data == {"sender": "bob", "pages": 2}

    @pytest.mark.parametrize(
        "bad",
        [None, {}, {"sender": "a", "pages": 0}, {"sender": object()}, [1], "text", {"sender": float("nan")}],
    )
    async def test_bad_input_is_refused_and_nothing_is_kept(self, quick, bad):
        engine = await quick.engine(one_step(lambda ctx: None, data=Letter))
        with pytest.raises(ConfigurationError, match="'flow'"):
            await engine.start("flow", bad)
        assert (await engine.store.facts())["runs"] == 0

    async def test_without_a_model_any_mapping_will_do(self, quick):
        engine = await quick.engine(one_step(lambda ctx: None))
        assert (await engine.run("flow", Parcel(2.5))).data == {"weight": 2.5}
        assert (await engine.run("flow")).data == {}

    @pytest.mark.parametrize("bad", ["text", [1], 3, {"a": object()}, {"a": float("inf")}, {1: 2}])
    async def test_what_is_no_mapping_of_json_is_refused(self, quick, bad):
        engine = await quick.engine(one_step(lambda ctx: None))
        with pytest.raises(ConfigurationError):
            await engine.start("flow", bad)


class TestIdentity:
    def test_extra_is_part_of_the_fingerprint(self):
        steps = {"read": lambda ctx: None, "write": lambda ctx: None}
        plain, one, two = (Flow(MACHINE, steps, extra=extra) for extra in (None, {"v": 1}, {"v": 2}))
        assert len({plain.fingerprint, one.fingerprint, two.fingerprint}) == 3
        assert plain.fingerprint == MACHINE.fingerprint

    async def test_two_flows_of_one_name_are_refused(self, quick):
        engine = await quick.engine(one_step(lambda ctx: None))
        with pytest.raises(ConfigurationError, match="Two flows"):
            engine.add_flow(one_step(lambda ctx: None))

    async def test_an_unknown_flow_is_refused_with_the_nearest(self, quick):
        engine = await quick.engine(one_step(lambda ctx: None, name="warranty"))
        with pytest.raises(FlowNotFound, match="Did you mean 'warranty'") as caught:
            await engine.start("waranty")
        assert caught.value.exit_code == 2
