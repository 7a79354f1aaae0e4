"""Forced to be deterministic: no agent anywhere in the run, its children included, and it stays so."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from detent.adapters.models.scripted import ScriptedSource
from detent.dispatch.agent_side import AgentSide
from detent.dispatch.autonomy import AgentRole, StepMode
from detent.dispatch.config import StepConfig
from detent.engine.step import Step
from detent.kernel.entries import Started
from detent.kernel.errors import ConfigurationError
from detent.kernel.status import Status
from tests.dispatch.samples import (
    FAULT,
    INTENT,
    LEVELS,
    MAIL,
    QUESTION,
    again,
    agent,
    deterministic,
    forms,
    moves,
    notes,
    result_of,
    scripted,
    settings,
    triage,
)
from tests.engine.conftest import flow_of, journal

BY = ["start", "settings", "config"]
"""The ways to force a run through the engine."""


def forced(by: str, source, *, steps) -> tuple[dict, dict]:
    """Options of the engine and of the run."""
    dispatch = settings(source, steps=steps, force_deterministic=by == "settings")
    options: dict[str, dict[str, Any]] = {
        "start": {"force_deterministic": True},
        "settings": {},
        "config": {"config": {"force_deterministic": True}},
    }
    return {"dispatch": dispatch}, options[by]


class TestEveryStep:
    @pytest.mark.parametrize("by", BY)
    @pytest.mark.parametrize("level", ["operator", *LEVELS])
    async def test_no_agent_is_asked_and_the_record_says_why(self, bench, by, level, heard):
        """D-60: shape plain, forced true, whatever the configuration."""
        source = ScriptedSource(scripted(again(QUESTION)))
        engine_options, run_options = forced(by, source, steps={"work": agent(level)})
        engine = await bench.engine(forms(), **engine_options)
        run = await engine.run("flow", MAIL, **run_options)
        assert run.data == {**MAIL, **FAULT}
        assert source.made == 0
        result = await result_of(engine, run.id)
        assert (result.shape, result.forced, result.mode_used) == ("plain", True, StepMode.DETERMINISTIC)
        assert heard.sequence() == "M D"
        selected = heard.one("dispatch.mode_selected")
        assert (selected["forced"], selected["mode"], selected["source"]) == (True, "deterministic", "forced")

    @pytest.mark.parametrize("by", BY)
    async def test_a_mixed_run_is_the_deterministic_one(self, bench, by):
        """D-60, D-07: agents, shadows, inline configuration and plain steps together."""
        steps = {
            "a": Step("a", lambda ctx: {"a": 1}, INTENT, config={"mode": "agent", "autonomy": "approver"}),
            "b": Step("b", lambda ctx: {"b": 1}, INTENT),
            "c": Step("c", lambda ctx: {"c": 1}, INTENT),
            "d": Step("d", lambda ctx: {"d": 1}, INTENT),
        }
        flow = flow_of({"a": ["b"], "b": ["c"], "c": ["d"], "d": ["done"]}, steps)
        plain = await deterministic(
            bench,
            flow_of(
                {"a": ["b"], "b": ["c"], "c": ["d"], "d": ["done"]},
                {name: Step(name, step.handler, INTENT) for name, step in steps.items()},
            ),
        )
        source = ScriptedSource(scripted(again({"x": 1}), step="*"))
        config = {"b": agent("approver", shadow=1.0, prompt_suffix="x"), "c": StepConfig(shadow=1.0)}
        engine_options, run_options = forced(by, source, steps=config)
        engine = await bench.engine(flow, **engine_options)
        run = await engine.run("flow", **run_options)
        assert (run.status, run.data) == (plain.status, plain.data)
        assert source.made == 0
        assert await notes(engine, run.id, "shadow") == []
        for name in "abcd":
            assert (await result_of(engine, run.id, name)).forced

    async def test_other_runs_of_the_same_engine_are_not_forced(self, quick):
        """D-60: it is the run's own switch."""
        executor = scripted(again(QUESTION))
        engine = await quick.engine(forms(), dispatch=settings(executor, agent("approver")))
        assert (await engine.run("flow", MAIL, force_deterministic=True)).data["kind"] == "fault"
        assert (await engine.run("flow", MAIL)).data["kind"] == "question"

    async def test_a_step_without_a_handler_is_refused_before_anything_runs(self, bench):
        """D-60, 1.14: static error E022."""
        flow = forms(agent=AgentSide(AgentRole.REQUIRED))
        executor = scripted({"output": FAULT})
        engine = await bench.engine(flow, dispatch=settings(executor))
        with pytest.raises(ConfigurationError, match="E022"):
            await engine.start("flow", MAIL, run_id="r1", force_deterministic=True)
        with pytest.raises(Exception, match="no run 'r1'"):
            await engine.get("r1")
        assert executor.calls == []

    async def test_configuration_that_only_agents_could_use_is_dropped_and_not_refused(self, quick):
        """1.2, 1.14."""
        config = agent("approver", prompt_suffix="x", allowed_tools=[])
        engine = await quick.engine(forms(), dispatch=settings(scripted(again(FAULT)), config))
        run = await engine.run("flow", MAIL, force_deterministic=True)
        assert run.status is Status.SUCCEEDED


class TestChildren:
    @pytest.mark.parametrize("by", BY)
    async def test_they_inherit_it(self, bench, by):
        """D-60: and their children too."""

        async def outer(ctx):
            result = await ctx.child("middle", {}, key="m", config={"other": 1})
            return {"kind": result.data.kind}

        async def middle(ctx):
            result = await ctx.child("flow", MAIL, key="c")
            return {"kind": result.data.kind}

        flows = [
            forms(),
            flow_of({"middle": ["done"]}, {"middle": middle}, name="middle"),
            flow_of({"outer": ["done"]}, {"outer": outer}, name="outer"),
        ]
        source = ScriptedSource(scripted(again(QUESTION), step="*"))
        engine_options, run_options = forced(by, source, steps={"flow/work": agent("approver")})
        engine = await bench.engine(*flows, **engine_options)
        run = await engine.run("outer", **run_options)
        assert run.data == {"kind": "fault"}
        assert source.made == 0
        assert (await result_of(engine, f"{run.id}.m.c")).forced


class TestResume:
    @pytest.mark.parametrize("by", BY)
    async def test_it_is_in_the_journal_and_survives(self, bench, by):
        """D-60: an engine that knows nothing of it goes on without agents."""
        entered, stuck = asyncio.Event(), True

        async def first(ctx):
            if stuck:
                entered.set()
                await asyncio.Event().wait()

        flow = flow_of({"a": ["work"], "work": ["done"]}, {"a": first, "work": Step("work", triage, INTENT)})
        source = ScriptedSource(scripted(again(QUESTION)))
        engine_options, run_options = forced(by, source, steps={"work": agent("approver")})
        one = await bench.engine(flow, **engine_options)
        run_id = await one.start("flow", MAIL, **run_options)
        await entered.wait()
        started = (await journal(one, run_id))[0].body
        assert isinstance(started, Started)
        assert started.config["force_deterministic"] is True
        await one.stop(grace=0)
        stuck = False
        two = await bench.engine(flow, dispatch=settings(source, agent("approver")))
        run = await two.finish(run_id)
        assert run.data == {**MAIL, **FAULT}
        assert source.made == 0
        assert (await result_of(two, run_id)).forced

    async def test_a_fork_of_it_is_forced_too(self, quick):
        """D-60: it is part of what is copied."""
        executor = scripted(again(QUESTION))
        engine = await quick.engine(forms(), dispatch=settings(executor, agent("approver")))
        run = await engine.run("flow", MAIL, force_deterministic=True)
        fork = await engine.fork(run.id, 1)
        assert (await engine.finish(fork)).data == {**MAIL, **FAULT}
        assert executor.calls == []

    async def test_settings_that_force_also_bind_runs_begun_without(self, bench):
        """1.14: whoever drives may switch agents off."""
        entered, stuck = asyncio.Event(), True

        async def first(ctx):
            if stuck:
                entered.set()
                await asyncio.Event().wait()

        flow = flow_of({"a": ["work"], "work": ["done"]}, {"a": first, "work": Step("work", triage, INTENT)})
        source = ScriptedSource(scripted(again(QUESTION)))
        one = await bench.engine(flow, dispatch=settings(source, agent("approver")))
        run_id = await one.start("flow", MAIL)
        await entered.wait()
        await one.stop(grace=0)
        stuck = False
        two = await bench.engine(flow, dispatch=settings(source, agent("approver"), force_deterministic=True))
        run = await two.finish(run_id)
        assert run.data == {**MAIL, **FAULT}
        (move,) = await moves(two, run_id)
        assert move.detail["forced"] is True
