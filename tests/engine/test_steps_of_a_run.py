"""How one run performs its steps, said when it is started: stronger than settings, and for it alone."""

from __future__ import annotations

import pytest

from detent.adapters.models.scripted import ScriptedSource, ScriptedStepExecutor
from detent.adapters.stores.memory import MemoryStore
from detent.dispatch.config import StepConfig, StepConfigError
from detent.dispatch.dispatcher import DispatchSettings
from detent.engine.engine import Engine
from detent.engine.flow import Flow
from detent.engine.outcome import Outcome
from detent.engine.step import Step
from detent.kernel.budget import Budget
from detent.kernel.entries import Moved
from detent.kernel.errors import ConfigurationError
from detent.kernel.machine import Machine
from detent.kernel.status import Status

MACHINE = Machine("sorting", start="sort", moves={"sort": ["done"]}, ends={"done": Status.SUCCEEDED})
AGENT = {"steps": {"sort": {"mode": "agent", "autonomy": "approver"}}}


def flow_of(name: str = "sorting") -> Flow:
    async def sort(ctx):
        return Outcome("done", set={"kind": "by code"})

    schema = {"type": "object", "properties": {"kind": {"type": "string"}}, "required": ["kind"]}
    return Flow(MACHINE, {"sort": Step("sort", sort, "Sort it.", output_schema=schema)}, name=name)


def engine_of(flow: Flow, **settings) -> tuple[Engine, ScriptedStepExecutor]:
    executor = ScriptedStepExecutor([{"output": {"kind": "by agent"}, "repeat": True}])
    dispatch = DispatchSettings(executors=ScriptedSource(executor), **settings)
    return Engine(MemoryStore(), [flow], dispatch=dispatch), executor


async def test_a_run_may_give_a_step_to_an_agent_and_its_neighbours_do_not_notice():
    """W-63: an arm's own configuration."""
    engine, executor = engine_of(flow_of())
    async with engine:
        plain = await engine.run("sorting")
        other = await engine.run("sorting", config=AGENT)
        again = await engine.run("sorting")
        entries = await engine.store.entries(other.id)
    assert [run.data["kind"] for run in (plain, other, again)] == ["by code", "by agent", "by code"]
    assert len(executor.calls) == 1
    (moved,) = [entry.body for entry in entries if isinstance(entry.body, Moved)]
    assert moved.detail["sources"]["mode"] == "run"


async def test_what_a_run_says_is_stronger_than_the_settings():
    settings = {"sort": StepConfig.read({"mode": "agent", "autonomy": "approver"})}
    engine, executor = engine_of(flow_of(), steps=settings)
    async with engine:
        run = await engine.run("sorting", config={"steps": {"sorting/sort": {"mode": "deterministic"}}})
    assert run.data["kind"] == "by code"
    assert executor.calls == []


async def test_a_run_forced_to_code_stays_with_code():
    engine, executor = engine_of(flow_of())
    async with engine:
        run = await engine.run("sorting", config=AGENT, force_deterministic=True)
    assert run.data["kind"] == "by code"
    assert executor.calls == []


async def test_a_step_the_flow_has_not_is_refused_before_anything_begins():
    engine, _ = engine_of(flow_of())
    async with engine:
        with pytest.raises(ConfigurationError, match="'srot'.*Did you mean 'sort'"):
            await engine.start("sorting", config={"steps": {"srot": {"mode": "agent"}}})
        with pytest.raises(ConfigurationError, match="maps steps"):
            await engine.start("sorting", config={"steps": ["sort"]})
        with pytest.raises(StepConfigError, match="the run's own configuration of 'sort'"):
            await engine.start("sorting", config={"steps": {"sort": {"mood": "agent"}}})
        assert (await engine.store.flows()) == []


async def test_children_do_not_inherit_it():
    async def ask(ctx):
        child = await ctx.child("sorting", key="one")
        return Outcome("done", set={"kind": child.data["kind"]})

    parent = Flow(
        Machine("asking", start="ask", moves={"ask": ["done"]}, ends={"done": Status.SUCCEEDED}),
        {"ask": ask},
    )
    engine, executor = engine_of(flow_of())
    engine.add_flow(parent)
    async with engine:
        run = await engine.run("asking", config={"steps": {"ask": {"timeout": 30}}})
    assert run.data["kind"] == "by code"
    assert executor.calls == []


async def test_where_only_this_run_asks_agents_it_goes_on_by_code_when_the_tokens_are_used_up():
    async def sort(ctx):
        return {ctx.state: "by code"}

    states = ("first", "second")
    steps = {
        name: Step(name, sort, "Sort it.", output_schema={"type": "object", "required": [name]})
        for name in states
    }
    moves = {"first": ["second"], "second": ["done"]}
    machine = Machine("twice", start="first", moves=moves, ends={"done": Status.SUCCEEDED})
    reply = {"output": {"first": "by agent"}, "usage": {"input_tokens": 10}, "repeat": True}
    executor = ScriptedStepExecutor([reply])
    dispatch = DispatchSettings(executors=ScriptedSource(executor))
    agent = {"steps": {name: {"mode": "agent", "autonomy": "approver"} for name in states}}
    async with Engine(MemoryStore(), [Flow(machine, steps)], dispatch=dispatch) as engine:
        run = await engine.run("twice", config=agent, budget=Budget(tokens=5))
    assert run.status is Status.SUCCEEDED
    assert run.data == {"first": "by agent", "second": "by code"}
    assert len(executor.calls) == 1


async def test_a_file_of_words_belongs_into_the_settings():
    engine, _ = engine_of(flow_of())
    async with engine:
        with pytest.raises(ConfigurationError, match="prompt_file"):
            said = {"mode": "agent", "prompt_file": "words.md"}
            await engine.start("sorting", config={"steps": {"sort": said}})
