"""Odd executors, odd answers, odd handlers: the run always ends as it would have without an agent."""

from __future__ import annotations

import math
from typing import Any

import pytest

from detent.dispatch.agent_side import AgentSide
from detent.dispatch.autonomy import FallbackReason
from detent.dispatch.executor import Availability, ExecutorResult
from detent.dispatch.usage import UsageMetadata
from detent.engine.outcome import Effect, Outcome
from detent.engine.step import Step
from detent.engine.tools import Tool
from detent.kernel.status import Status
from tests.dispatch.samples import (
    FAULT,
    INTENT,
    LEVELS,
    MAIL,
    QUESTION,
    Form,
    agent,
    capture,
    deterministic,
    forms,
    result_of,
    scripted,
    settings,
    single,
)
from tests.examples import covering


class Odd:
    """An executor that does whatever it is given to do."""

    def __init__(self, act: Any) -> None:
        self.act = act

    async def execute(self, **asked: Any) -> Any:
        return self.act(asked)

    def available(self) -> Availability:
        return Availability(True)

    def priced(self, model_id: str | None) -> bool:
        return True


def raising(error: Exception) -> Any:
    def act(asked: Any) -> Any:
        raise error

    return act


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return {"kind": value}


def giving(output: Any, **more: Any) -> Any:
    return lambda asked: ExecutorResult(output, **more)


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


ODD = {
    "nothing": lambda asked: None,
    "a bare mapping": lambda asked: {"output": FAULT},
    "an object": giving(object()),
    "a set": giving({1, 2}),
    "a number that is none": giving({"kind": math.nan}),
    "keys that are no text": giving({1: 2}),
    "bytes": giving(b"\xff\xfe"),
    "an empty text": giving(""),
    "half a surrogate pair": giving('{"kind": "\\ud800"}x'),
    "a very deep text": giving("[" * 100_000),
    "a very deep value": giving(nested(5_000)),
    "a deep value": giving(nested(400)),
    "negative tokens": giving(FAULT, usage=UsageMetadata(input_tokens=-5)),
    "a cost that is none": giving(FAULT, usage=UsageMetadata(total_cost_usd=math.nan)),
    "usage of another kind": giving(FAULT, usage={"input_tokens": 3}),
    "an error without words": raising(Unprintable()),
    "a group of errors": raising(ExceptionGroup("several", [ValueError("a"), OSError("b")])),
    "a time-out of its own": raising(TimeoutError()),
    "a lost connection": raising(ConnectionResetError("gone")),
    "the end of an iteration": raising(StopAsyncIteration()),
    "recursion": raising(RecursionError("too deep")),
    "no memory": raising(MemoryError()),
}


@pytest.mark.parametrize(("name", "level"), covering(ODD, LEVELS, together=1))
async def test_an_odd_executor_is_as_if_it_were_not_there(bench, name, level):
    """D-34: whatever it gives back or raises."""
    flow = forms(output_schema=Form)
    plain = await deterministic(bench, flow, MAIL)
    with capture() as heard:
        engine = await bench.engine(flow, dispatch=settings(_source(Odd(ODD[name])), agent(level)))
        run = await engine.run("flow", MAIL)
    assert (run.status, run.state, run.data) == (plain.status, plain.state, plain.data)
    assert (await result_of(engine, run.id)).fallback_used
    assert len(heard.named("dispatch.fallback")) == 1


def _source(executor: Any) -> Any:
    from detent.adapters.models.scripted import ScriptedSource

    return ScriptedSource({"odd": executor})


class Bare:
    """Facts of a kind that only the step's own code knows."""

    kind = "fault"


class TestOddSteps:
    @pytest.mark.parametrize("answer", [FAULT, QUESTION])
    async def test_facts_that_cannot_be_compared_are_not_agreed_with(self, bench, answer):
        """D-34: the handler's side has no plain form, so nothing was shown to be equal."""

        async def work(ctx):
            return Bare()

        def conclude(ctx, facts):
            return {"kind": facts["kind"] if isinstance(facts, dict) else facts.kind}

        flow = forms(work, conclude=conclude)
        plain = await deterministic(bench, flow, MAIL)
        engine = await bench.engine(flow, dispatch=settings(scripted({"output": answer}), agent()))
        run = await engine.run("flow", MAIL)
        assert (run.status, run.data) == (plain.status, plain.data)
        assert (await result_of(engine, run.id)).fallback_reason is FallbackReason.VALIDATION_FAILURE

    @pytest.mark.parametrize("level", LEVELS)
    async def test_facts_nothing_can_be_concluded_from_are_no_answer(self, bench, level):
        """D-34: `conclude` fails on the agent's facts and not on the handler's."""

        def work(ctx):
            return {"count": 2}

        def conclude(ctx, facts):
            return {"half": 10 // facts["count"]}

        flow = forms(work, conclude=conclude)
        engine = await bench.engine(
            flow, dispatch=settings(scripted({"output": {"count": 0}}, {"output": {}}), agent(level))
        )
        run = await engine.run("flow", MAIL)
        assert run.data == {**MAIL, "half": 5}
        assert (await result_of(engine, run.id)).fallback_reason is FallbackReason.SCHEMA_VIOLATION

    @pytest.mark.parametrize("level", LEVELS)
    async def test_an_output_that_cannot_be_appended_to_is_no_answer(self, quick, level):
        """D-34: what the run's data does not allow is found out before the handler's chance is gone."""

        def conclude(ctx, facts):
            return Outcome(append={facts["to"]: [1]})

        flow = forms(lambda ctx: {"to": "log"}, conclude=conclude)
        executor = scripted(*[{"output": {"to": "text"}}] * 2)
        engine = await quick.engine(flow, dispatch=settings(executor, agent(level)))
        run = await engine.run("flow", MAIL)
        assert (run.status, run.data["log"]) == (Status.SUCCEEDED, [1])

    @pytest.mark.parametrize("level", LEVELS)
    async def test_a_receipt_of_nothing_is_data_like_any_other(self, bench, level):
        """1.13: what only looks like a stand-in, for an effect that is not among the proposals."""
        posted = []

        async def work(ctx):
            return Outcome(set={"n": 1}, effects=[Effect("post", {"what": "handler"})])

        flow = single(
            Step(
                "work",
                work,
                INTENT,
                effects=("post",),
                agent=AgentSide(returns=dict[str, int], may_abstain=True),
            ),
            tools=[Tool("post", lambda what: posted.append(what))],
        )
        answer = {"n": {"$receipt": "nowhere.number"}}
        engine = await bench.engine(
            flow, dispatch=settings(scripted(*[{"output": answer}] * 2), agent(level))
        )
        run = await engine.run("flow")
        if level == "collaborator":
            assert (run.data, posted) == ({"n": 1}, ["handler"])
        else:
            assert (run.data, posted) == ({"n": {"$receipt": "nowhere.number"}}, [])

    async def test_a_validator_that_spoils_its_inputs_spoils_nothing(self, quick):
        """D-34: the handler works on the run's data."""

        def validator(inputs, proposal):
            inputs.clear()
            return False

        engine = await quick.engine(
            forms(validator=validator), dispatch=settings(scripted({"output": QUESTION}), agent())
        )
        assert (await engine.run("flow", MAIL)).data == {**MAIL, **FAULT}

    async def test_a_handler_that_spoils_its_data_spoils_nothing(self, quick):
        """D-34: it gets a view; the comparison leaves the run as it was."""

        async def work(ctx):
            with pytest.raises(TypeError):
                ctx.data["text"] = "changed"
            return FAULT

        engine = await quick.engine(forms(work), dispatch=settings(scripted({"output": FAULT}), agent()))
        assert (await engine.run("flow", MAIL)).data == {**MAIL, **FAULT}
