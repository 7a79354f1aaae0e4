"""Later verdicts, further steps and lowered levels, as why and the timeline tell them."""

from __future__ import annotations

import pytest

from detent.adapters.stores.memory import MemoryStore
from detent.dispatch.agent_side import AgentSide
from detent.engine.engine import Engine
from detent.engine.outcome import Outcome
from detent.engine.step import Step
from detent.insight import timeline, why
from detent.kernel.errors import ConfigurationError
from tests.dispatch.samples import INTENT, agent, scripted, settings
from tests.dispatch.test_further_steps import LEFT, planning
from tests.engine.conftest import flow_of, journal


def told(entries):
    return why.render(why.why(entries)), [(line.who, line.what) for line in timeline.timeline(entries)]


async def test_a_verdict_is_a_sentence():
    async def train(ctx):
        return Outcome("measure", set={"model": "m1"})

    async def measure(ctx):
        await ctx.verdict("train", False, "scores 0.4")
        return "done"

    flow = flow_of({"train": ["measure"], "measure": ["done"]}, {"train": train, "measure": measure})
    async with Engine(MemoryStore(), [flow]) as engine:
        run = await engine.run("flow")
        await engine.verdict(run.id, "train", True, why="it was fine", by="ada")
        text, lines = told(await journal(engine, run.id))
    assert "train  judged visit 1 of 'train' wrong" in text
    assert "because      scores 0.4" in text
    assert "judged by    ada" in text
    assert ("ada", "judged visit 1 of 'train' right: it was fine; an earlier verdict on it counts") in lines
    assert not any("evidence.verdict" in line for _, line in lines)


async def test_a_verdict_on_a_state_that_was_not_visited_names_those_that_were():
    flow = flow_of({"train": ["done"]}, {"train": lambda ctx: "done"})
    async with Engine(MemoryStore(), [flow]) as engine:
        run = await engine.run("flow")
        with pytest.raises(ConfigurationError, match=r"'trian'.* Did you mean 'train'\? .*visited: train\.$"):
            await engine.verdict(run.id, "trian", True)
        with pytest.raises(ConfigurationError, match=r"no visit 2 of 'train' .*visited it once\.$"):
            await engine.verdict(run.id, "train", True, visit=2)


async def test_an_unknown_further_step_is_refused_with_those_there_are():
    flow = flow_of({"work": ["done"]}, {"work": lambda ctx: Outcome("done", then="c")})
    async with Engine(MemoryStore(), [flow]) as engine:
        run = await engine.run("flow")
    assert "There is no step 'c'. Steps of 'flow': work." in str(run.error)


async def test_a_value_that_stays_what_it_was_is_no_change():
    flow = flow_of({"work": ["done"]}, {"work": lambda ctx: Outcome("done", set={"rows": 4, "more": 5})})
    async with Engine(MemoryStore(), [flow]) as engine:
        run = await engine.run("flow", {"rows": 4})
        text, _ = told(await journal(engine, run.id))
    assert "rows = 4" not in text
    assert "set          more = 5" in text


async def test_a_further_step_tells_what_its_agent_answered_and_why_that_was_refused():
    flow = planning([])
    plan = next(step for step in flow.every_step() if step.name == "plan")

    def timid(inputs, proposal):
        return "b" not in str(proposal.output), ["too bold"]

    object.__setattr__(plan, "validator", timid)
    answers = [{"output": {"task": f"do {item}"}} for item in "abc"]
    dispatch = settings(scripted(*answers, step="plan"), steps={"plan": agent("collaborator")})
    async with Engine(MemoryStore(), [flow], dispatch=dispatch) as engine:
        run = await engine.run("flow", dict(LEFT))
        text, lines = told(await journal(engine, run.id))
    assert "flow/plan, by the handler, not the agent: refused by the validator" in text
    assert 'it answered  {"task":"do b"}' in text
    assert "refused for  too bold" in text
    assert any(line.endswith("answered in the further step 'plan'") for _, line in lines)
    assert any("then plan in place of the agent: refused by the validator" in line for _, line in lines)


async def test_a_lowered_level_is_told_with_the_usual_one_and_the_reason():
    async def work(ctx):
        return {"kind": "fault"}

    step = Step(
        "work", work, INTENT, effects=(),
        agent=AgentSide(level_for=lambda ctx: ("collaborator", "the last attempt"), names_next=False),
    )  # fmt: skip
    flow = flow_of({"work": ["done"]}, {"work": step})
    for answer, expected in (("fault", "decided by   agent ("), ("other", "agent        ")):
        dispatch = settings(scripted({"output": {"kind": answer}}), agent("approver"))
        async with Engine(MemoryStore(), [flow], dispatch=dispatch) as engine:
            run = await engine.run("flow")
            text, _ = told(await journal(engine, run.id))
        (line,) = [line for line in text.splitlines() if "lowered from" in line]
        assert expected in line
        assert "collaborator, lowered from approver for this visit: the last attempt" in line
