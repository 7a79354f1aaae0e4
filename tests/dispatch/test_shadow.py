"""Shadow runs: the side that does not count is run beside the other, compared, and changes nothing."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from detent.adapters.models.scripted import ScriptedSource, ScriptedStepExecutor
from detent.dispatch.agent_side import AgentSide
from detent.dispatch.autonomy import StepMode
from detent.dispatch.config import StepConfig
from detent.dispatch.executor import ExecutorResult
from detent.dispatch.watch import DRAW_KEY
from detent.engine.flow import Flow
from detent.engine.outcome import Effect, Outcome
from detent.engine.step import Step
from detent.engine.tools import Tool
from detent.kernel.budget import Budget
from detent.kernel.entries import Noted
from detent.kernel.errors import RunNotFound
from detent.kernel.status import Status
from tests.dispatch.samples import (
    FAULT,
    INTENT,
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
    single,
    triage,
)
from tests.engine.conftest import flow_of, journal, kinds

ALWAYS = StepConfig(shadow=1.0)
"""An agent beside a deterministic step."""


def and_a_rest(handler: Any) -> Flow:
    """A flow that goes on for a step after the shadowed one."""
    steps = {"work": Step("work", handler, INTENT), "rest": Step("rest", lambda ctx: {}, INTENT)}
    return flow_of({"work": ["rest"], "rest": ["done"]}, steps)


async def shadow_of(engine, run_id) -> Noted:
    (note,) = await notes(engine, run_id, "shadow")
    return note


class TestAgentBeside:
    @pytest.mark.parametrize(("answer", "outcome"), [(FAULT, "agreed"), (QUESTION, "differed")])
    async def test_it_is_compared_journaled_and_told(self, bench, answer, outcome, heard):
        """D-50: the handler's outcome counts, whatever the agent says."""
        executor = scripted(
            {"output": answer, "usage": {"input_tokens": 9, "cost_usd": 0.5}, "model_id": "sample-1"}
        )
        engine = await bench.engine(forms(), dispatch=settings(executor, ALWAYS))
        run = await engine.run("flow", MAIL)
        assert run.data == {**MAIL, **FAULT}
        result = await result_of(engine, run.id)
        assert (result.shape, result.shadow, result.agent_called) == ("plain", True, False)
        note = await shadow_of(engine, run.id)
        assert note.aside
        body = dict(note.body)
        assert body.pop("duration_ms") >= 0
        assert body.pop("other_ms") >= 0
        series = body.pop("series")
        assert (series["model_id"], set(series)) == (
            "sample-1",
            {"model_id", "prompt", "handler", "check", "sampling"},
        )
        expected = {
            "step": "flow/work",
            "of": 2,
            "side": "agent",
            "outcome": outcome,
            "autonomy_level": "operator",
            "cost_usd": 0.5,
        }
        if outcome == "differed":
            expected |= {"pointers": ["/output/kind", "/output/urgent"], "count": 2}
        assert body == expected
        said = heard.one("dispatch.shadow_completed")
        assert said.level == logging.INFO
        assert (said["side"], said["outcome"], said["cost_usd"]) == ("agent", outcome, 0.5)
        assert heard.sequence() == "M D S C shadow_completed"

    async def test_it_comes_after_the_steps_own_entry(self, bench):
        """D-50: nothing of the step waits for it to be written."""
        seen = []

        class Looking(ScriptedStepExecutor):
            async def execute(self, **asked: Any) -> ExecutorResult:
                (run,) = list(engine.active._drivers)
                seen.append(await kinds(engine, run))
                return await super().execute(**asked)

        flow = and_a_rest(triage)
        engine = await bench.engine(flow, dispatch=settings(Looking([{"output": FAULT}]), ALWAYS))
        run = await engine.run("flow", MAIL)
        assert seen == [["started", "moved"]]
        assert await kinds(engine, run.id) == ["started", "moved", "noted", "moved"]

    async def test_its_spend_counts_and_survives(self, bench):
        """D-50, D-56."""
        executor = scripted({"output": FAULT, "usage": {"input_tokens": 9, "output_tokens": 2}})
        engine = await bench.engine(forms(), dispatch=settings(executor, ALWAYS))
        run = await engine.run("flow", MAIL)
        assert (await engine.get(run.id)).total_spend.tokens == 11
        assert (await shadow_of(engine, run.id)).spend.tokens == 11
        assert (await moves(engine, run.id))[0].spend.tokens == 0

    async def test_no_effect_of_it_is_performed(self, bench):
        """D-50: through the answer or through the toolbox."""
        posted = []

        async def work(ctx):
            return Outcome(set={"n": 1}, effects=[Effect("post", {"what": "handler"})])

        flow = single(
            Step("work", work, INTENT, effects=("post",)),
            tools=[Tool("post", lambda what: posted.append(what))],
        )
        call = {"tool": "post", "args": {"what": "agent"}}
        for reply in ({"output": {"calls": [call]}}, {"output": {"n": 1}, "calls": [call]}):
            posted.clear()
            engine = await bench.engine(flow, dispatch=settings(scripted(reply), ALWAYS))
            run = await engine.run("flow")
            assert posted == ["handler"]
            note = await shadow_of(engine, run.id)
            assert (note.body["outcome"], note.body["round"]) == ("differed", 1)
            assert all(pointer.startswith("/effects") for pointer in note.body["pointers"])

    async def test_it_is_given_the_receipts_of_what_it_would_do_too(self, bench):
        """One that acts like the handler goes on to its answer; nothing is performed for it."""
        posted = []

        def post(what: str) -> dict[str, int]:
            posted.append(what)
            return {"number": len(posted)}

        async def work(ctx):
            first = ctx.propose("post", what="one")
            second = ctx.propose("post", what="two")
            return Outcome(set={"first": first.number, "second": second.number})

        step = Step("work", work, INTENT, effects=("post",), agent=AgentSide(rounds=3))
        flow = single(step, tools=[Tool("post", post)])
        one, two = (
            {"output": {"calls": [{"tool": "post", "args": {"what": what}}]}} for what in ("one", "two")
        )
        for answer, outcome in (
            ({"first": 1, "second": 2}, "agreed"),
            ({"first": 2, "second": 1}, "differed"),
        ):
            posted.clear()
            executor = scripted(one, two, {"output": answer})
            engine = await bench.engine(flow, dispatch=settings(executor, ALWAYS))
            run = await engine.run("flow")
            assert posted == ["one", "two"]
            assert '"number": 2' in executor.calls[2].prompt
            assert (await shadow_of(engine, run.id)).body["outcome"] == outcome
        executor = scripted(one, one)
        engine = await bench.engine(flow, dispatch=settings(executor, ALWAYS))
        run = await engine.run("flow")
        note = await shadow_of(engine, run.id)
        assert (note.body["outcome"], note.body["round"]) == ("differed", 2)

    async def test_questions_already_answered_are_not_asked_again(self, bench):
        """D-50, D-33: the shadow sees the world the step saw."""
        asked = []

        def find(text: str) -> str:
            asked.append(text)
            return f"answer {len(asked)}"

        async def work(ctx):
            return {"found": await ctx.query("find", text="x")}

        flow = single(Step("work", work, INTENT, queries=("find",)), tools=[Tool("find", find, "query")])
        executor = scripted(
            {"output": {"found": "answer 1"}, "calls": [{"tool": "find", "args": {"text": "x"}}]}
        )
        engine = await bench.engine(flow, dispatch=settings(executor, ALWAYS))
        run = await engine.run("flow")
        assert asked == ["x"]
        assert (await shadow_of(engine, run.id)).body["outcome"] == "agreed"

    async def test_it_works_on_what_the_step_saw_not_on_what_it_left(self, bench):
        """D-50: inputs are those before the step's own changes."""

        def work(ctx):
            return {"count": ctx.data.count + 1}

        flow = and_a_rest(work)
        executor = scripted({"output": {"count": 8}})
        engine = await bench.engine(flow, dispatch=settings(executor, ALWAYS))
        run = await engine.run("flow", {"count": 7})
        assert '"count": 7' in executor.calls[0].prompt
        assert (await shadow_of(engine, run.id)).body["outcome"] == "agreed"

    @pytest.mark.parametrize(
        ("reply", "config", "reason"),
        [
            ({"error": "crash"}, {}, "exception"),
            ({"error": "transient"}, {}, "exception"),
            ({"error": "hang"}, {"timeout": 0.03}, "timeout"),
            ({"output": 3}, {}, "schema_violation"),
            ({"text": "nonsense"}, {}, "schema_violation"),
            ({"output": {"success": False}}, {}, "exception"),
        ],
    )
    async def test_its_failure_or_slowness_changes_nothing(self, bench, reply, config, reason):
        """D-50."""
        flow = forms()
        plain = await deterministic(bench, flow, MAIL)
        executor = scripted({**reply, "repeat": True})
        engine = await bench.engine(flow, dispatch=settings(executor, StepConfig(shadow=1.0, **config)))
        run = await engine.run("flow", MAIL)
        assert (run.status, run.state, run.data) == (plain.status, plain.state, plain.data)
        note = await shadow_of(engine, run.id)
        assert (note.body["outcome"], note.body["reason"]) == ("failed", reason)
        assert len(executor.calls) == 1, "a shadow is asked once"

    async def test_without_an_executor_it_fails_quietly(self, quick):
        """D-50."""
        engine = await quick.engine(forms(), dispatch=settings(None, ALWAYS))
        run = await engine.run("flow", MAIL)
        assert run.data == {**MAIL, **FAULT}
        assert (await shadow_of(engine, run.id)).body["reason"] == "no_executor"

    async def test_without_budget_it_is_not_asked(self, quick):
        """D-50, D-56: its spend counts, so it is checked before."""
        flow = flow_of(
            {"a": ["work"], "work": ["done"]},
            {"a": Step("a", lambda ctx: {}, INTENT), "work": Step("work", triage, INTENT)},
        )
        executor = ScriptedStepExecutor(
            {"a": {"output": {}, "usage": {"input_tokens": 20}}, "work": again(FAULT)}
        )
        engine = await quick.engine(flow, dispatch=settings(executor, steps={"a": agent(), "work": ALWAYS}))
        run = await engine.run("flow", MAIL, budget=Budget(tokens=10))
        assert run.status is Status.SUCCEEDED
        assert (await shadow_of(engine, run.id)).body["reason"] == "budget"
        assert [call.step_name for call in executor.calls] == ["a"]

    async def test_a_handler_that_fails_is_shadowed_by_nobody(self, quick):
        """D-50: there is no outcome to compare with."""

        def work(ctx):
            raise LookupError("no")

        executor = scripted({"output": FAULT})
        engine = await quick.engine(forms(work), dispatch=settings(executor, ALWAYS))
        run = await engine.run("flow", MAIL)
        assert run.status is Status.FAILED
        assert executor.calls == []


class TestHandlerBeside:
    @pytest.mark.parametrize("level", ["consultant", "approver"])
    @pytest.mark.parametrize(("answer", "outcome"), [(FAULT, "agreed"), (QUESTION, "differed")])
    async def test_it_is_compared_and_the_agents_outcome_stays(self, bench, level, answer, outcome, heard):
        """D-50."""
        engine = await bench.engine(
            forms(), dispatch=settings(scripted({"output": answer}), agent(level, shadow=1.0))
        )
        run = await engine.run("flow", MAIL)
        assert run.data == {**MAIL, **answer}
        note = await shadow_of(engine, run.id)
        assert (note.body["side"], note.body["outcome"], note.body["autonomy_level"]) == (
            "handler", outcome, level,
        )  # fmt: skip
        assert heard.one("dispatch.shadow_completed")["side"] == "handler"
        assert (await result_of(engine, run.id)).shadow

    async def test_at_collaborator_both_sides_have_been_heard_already(self, quick):
        """1.17: only beside a consultant or approver."""
        engine = await quick.engine(
            forms(), dispatch=settings(scripted({"output": FAULT}), agent(shadow=1.0))
        )
        run = await engine.run("flow", MAIL)
        assert await notes(engine, run.id, "shadow") == []
        assert not (await result_of(engine, run.id)).shadow

    async def test_a_fallback_is_not_shadowed(self, quick):
        """1.17: the handler's outcome is the one that counts."""
        executor = scripted({"error": "crash"})
        engine = await quick.engine(forms(), dispatch=settings(executor, agent("approver", shadow=1.0)))
        run = await engine.run("flow", MAIL)
        assert await notes(engine, run.id, "shadow") == []

    async def test_its_effects_notes_and_tags_come_to_nothing(self, bench):
        """D-50."""
        posted = []

        async def work(ctx):
            await ctx.note("handler was here")
            await ctx.tag("handled")
            ctx.propose("post", what="proposed")
            return Outcome(set={"n": 1}, effects=[Effect("post", {"what": "handler"})])

        flow = single(
            Step("work", work, INTENT, effects=("post",)),
            tools=[Tool("post", lambda what: posted.append(what))],
        )
        acting = {"output": {"calls": [{"tool": "post", "args": {"what": "agent"}}]}}
        executor = scripted(acting, {"output": {"n": 1}})
        engine = await bench.engine(flow, dispatch=settings(executor, agent("approver", shadow=1.0)))
        run = await engine.run("flow")
        assert posted == ["agent"]
        assert await notes(engine, run.id, "handler was here") == []
        assert (await engine.get(run.id)).tags == []
        assert (await shadow_of(engine, run.id)).body["outcome"] == "differed"

    async def test_its_failure_changes_nothing(self, bench):
        """D-50."""

        def work(ctx):
            raise LookupError("no such device")

        executor = scripted({"output": FAULT})
        engine = await bench.engine(forms(work), dispatch=settings(executor, agent("approver", shadow=1.0)))
        run = await engine.run("flow", MAIL)
        assert (run.status, run.data) == (Status.SUCCEEDED, {**MAIL, **FAULT})
        note = await shadow_of(engine, run.id)
        assert (note.body["outcome"], note.body["error"]) == ("failed", "LookupError")

    async def test_its_slowness_is_cut_short(self, quick):
        """D-50: it has a time limit of its own."""

        async def work(ctx):
            await asyncio.Event().wait()

        flow = forms(work, timeout=0.03)
        executor = scripted({"output": FAULT})
        engine = await quick.engine(flow, dispatch=settings(executor, agent("approver", shadow=1.0)))
        run = await engine.run("flow", MAIL)
        assert run.data == {**MAIL, **FAULT}
        assert (await shadow_of(engine, run.id)).body["error"] == "TimeoutError"

    async def test_children_are_not_started_for_it(self, bench):
        """D-50."""

        async def work(ctx):
            await ctx.child("child", {}, key="c")

        child = flow_of({"work": ["done"]}, {"work": lambda ctx: {}}, name="child")
        executor = scripted({"output": FAULT})
        steps = {"flow/work": agent("approver", shadow=1.0)}
        engine = await bench.engine(forms(work), child, dispatch=settings(executor, steps=steps))
        run = await engine.run("flow", MAIL)
        assert (await shadow_of(engine, run.id)).body["error"] == "CannotCheck"
        with pytest.raises(RunNotFound):
            await engine.get(f"{run.id}.c")

    async def test_an_opaque_handler_is_not_called_for_it(self, bench):
        """1.13: the call is compared, not made."""
        called = []

        def work(ctx):
            called.append(1)
            return {"n": 1}

        flow = single(Step("work", work, INTENT, opaque=True, into="out"))
        executor = scripted({"output": {"n": 1}})
        engine = await bench.engine(flow, dispatch=settings(executor, agent("approver", shadow=1.0)))
        run = await engine.run("flow", MAIL)
        assert called == []
        assert (await shadow_of(engine, run.id)).body["outcome"] == "differed"


class TestTheEnd:
    async def test_the_last_step_is_shadowed_and_the_run_ends_once(self, bench, heard):
        """D-50: the remark comes after the end and is part of the journal."""
        ended = []

        class Watching:
            def on_state_transition(self, transition):
                ended.append(transition.to_state)

        engine = await bench.engine(
            forms(), dispatch=settings(scripted({"output": FAULT}), ALWAYS), observers=[Watching()]
        )
        run = await engine.run("flow", MAIL)
        assert await kinds(engine, run.id) == ["started", "moved", "noted"]
        assert len(heard.named("run.ended")) == 1
        assert ended == ["done"]
        again_read = await engine.get(run.id)
        assert (again_read.status, again_read.seq) == (Status.SUCCEEDED, 3)
        assert [entry.seq for entry in await journal(engine, run.id)] == [1, 2, 3]
        followed = [entry.kind async for entry in engine.follow(run.id)]
        assert followed == ["started", "moved", "noted"]

    async def test_a_shadowed_child_ends_once_for_its_parent(self, bench, heard):
        """D-50."""

        async def parent(ctx):
            result = await ctx.child("flow", MAIL, key="c")
            return {"kind": result.data.kind}

        top = flow_of({"top": ["done"]}, {"top": parent}, name="top")
        executor = scripted({"output": FAULT, "usage": {"input_tokens": 4}})
        engine = await bench.engine(forms(), top, dispatch=settings(executor, ALWAYS, step="flow/work"))
        run = await engine.run("top")
        assert run.data == {"kind": "fault"}
        assert sum(kind == "child_ended" for kind in await kinds(engine, run.id)) == 1
        assert run.total_spend.tokens == 4
        assert len([one for one in heard.named("run.ended") if one["run_id"] == f"{run.id}.c"]) == 1

    async def test_a_stopping_engine_leaves_shadows_be(self, bench):
        """D-50: nobody waits for statistics."""
        entered = asyncio.Event()

        async def work(ctx):
            entered.set()
            await asyncio.sleep(0.02)
            return FAULT

        executor = scripted({"output": FAULT})
        engine = await bench.engine(forms(work), dispatch=settings(executor, ALWAYS))
        run_id = await engine.start("flow", MAIL)
        await entered.wait()
        await engine.stop()
        assert executor.calls == []
        other = await bench.engine(forms(work))
        assert (await other.get(run_id)).status is Status.SUCCEEDED


class TestSampling:
    async def test_a_share_is_drawn_by_the_runs_id(self, quick):
        """1.17: by the runs' ids and a secret of the store, whoever drives them."""
        config = StepConfig(shadow=0.3)
        sampled = []
        for _ in range(2):
            bench = type(quick)(quick.kind, quick.path.parent)
            engine = await bench.engine(forms(), dispatch=settings(scripted(again(FAULT)), config))
            await engine.store.set_mark(DRAW_KEY, "5e" * 32, 0)
            found = set()
            for number in range(120):
                run = await engine.run("flow", MAIL, run_id=f"run-{number}")
                (move,) = await moves(engine, run.id)
                noted = bool(await notes(engine, run.id, "shadow"))
                assert move.detail.get("shadow", False) is noted
                if noted:
                    found.add(run.id)
            sampled.append(found)
            await bench.close()
        assert sampled[0] == sampled[1]
        assert 15 < len(sampled[0]) < 60

    async def test_no_share_is_nobody_and_the_whole_is_everybody(self, quick):
        """1.2."""
        for share, many in ((0.0, 0), (1.0, 10)):
            source = ScriptedSource(scripted(again(FAULT)))
            engine = await quick.engine(forms(), dispatch=settings(source, StepConfig(shadow=share)))
            runs = [await engine.run("flow", MAIL) for _ in range(10)]
            assert sum([len(await notes(engine, run.id, "shadow")) for run in runs]) == many
            assert bool(source.made) is bool(many)

    async def test_a_resumed_run_samples_as_it_would_have(self, bench):
        """1.17: stopped before the step, sampled after."""
        entered, stuck = asyncio.Event(), True

        async def first(ctx):
            entered.set()
            if stuck:
                await asyncio.Event().wait()

        flow = flow_of({"a": ["work"], "work": ["done"]}, {"a": first, "work": Step("work", triage, INTENT)})
        config = StepConfig(shadow=0.5)
        straight = type(bench)("memory", bench.path.parent)
        expected = {}
        stuck = False
        engine = await straight.engine(flow, dispatch=settings(scripted(again(FAULT)), config))
        await engine.store.set_mark(DRAW_KEY, "5e" * 32, 0)
        for run_id in ("r0", "r1", "r2", "r3", "r4", "r5", "r6", "r7"):
            await engine.run("flow", MAIL, run_id=run_id)
            expected[run_id] = len(await notes(engine, run_id, "shadow"))
        await straight.close()
        stuck = True
        one = await bench.engine(flow, dispatch=settings(scripted(again(FAULT)), config))
        await one.store.set_mark(DRAW_KEY, "5e" * 32, 0)
        for run_id in expected:
            entered.clear()
            await one.start("flow", MAIL, run_id=run_id)
            await entered.wait()
        await one.stop(grace=0)
        stuck = False
        two = await bench.engine(flow, dispatch=settings(scripted(again(FAULT)), config))
        for run_id, many in expected.items():
            await two.finish(run_id)
            assert len(await notes(two, run_id, "shadow")) == many
        assert set(expected.values()) == {0, 1}


async def test_a_shadow_agent_gets_what_configuration_says_for_agents(quick):
    """1.2: agent-only fields are for the shadow where the step itself is deterministic."""
    executor = scripted({"output": FAULT})
    config = StepConfig(shadow=1.0, prompt_suffix="Be brief.", model_id="m")
    engine = await quick.engine(forms(), dispatch=settings(executor, config))
    run = await engine.run("flow", MAIL)
    assert "Be brief." in executor.calls[0].instructions
    assert executor.calls[0].config.model_id == "m"
    assert (await result_of(engine, run.id)).mode_used is StepMode.DETERMINISTIC
