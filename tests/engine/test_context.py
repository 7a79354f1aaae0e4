"""What a step may see, ask, keep and say while it decides."""

from __future__ import annotations

import asyncio

import pytest

from detent.engine.offloaded import kept_beside
from detent.engine.outcome import Outcome
from detent.engine.step import Step
from detent.engine.step_failures import Transient
from detent.engine.tools import Tool, ToolError
from detent.kernel.budget import Budget, Spend
from detent.kernel.plain import encode
from detent.kernel.policy import BreakerPolicy, RetryPolicy
from detent.kernel.status import Status
from tests.engine.conftest import flow_of, journal, kinds, one_step


def counting(answer):
    """A query that counts how often it was asked."""
    asked: list[dict] = []

    def perform(**args):
        asked.append(args)
        return answer

    return Tool("look", perform, kind="query"), asked


class TestLooking:
    async def test_a_step_sees_its_run(self, bench):
        seen = {}

        def work(ctx):
            seen.update(
                run_id=ctx.run_id, flow=ctx.flow, state=ctx.state, data=dict(ctx.data),
                config=dict(ctx.config), tags=ctx.tags, visit=ctx.visit, attempt=ctx.attempt,
                iterations=ctx.iterations, failure=ctx.failure, answered=ctx.answered(),
                answer=ctx.answer(default="none"), budget=ctx.budget, used=ctx.used["steps"],
            )  # fmt: skip

        engine = await bench.engine(one_step(work))
        await engine.run(
            "flow",
            {"a": 1},
            run_id="r1",
            tags=["x", "x", "y"],
            config={"deterministic": True},
            budget=Budget(steps=9),
        )
        assert seen == {
            "run_id": "r1", "flow": "flow", "state": "work", "data": {"a": 1},
            "config": {"deterministic": True},
            "tags": ("x", "y"), "visit": 1, "attempt": 1, "iterations": 0, "failure": None, "answered": False,
            "answer": "none", "budget": Budget(steps=9), "used": 0,
        }  # fmt: skip

    async def test_a_missing_key_is_named_with_the_nearest(self, quick):
        engine = await quick.engine(one_step(lambda ctx: {"x": ctx.data.serail}))
        run = await engine.run("flow", {"serial": 1})
        assert "Did you mean 'serial'?" in run.error


class TestQueries:
    async def test_the_same_question_is_asked_once_per_attempt(self, bench):
        tool, asked = counting({"found": [1]})

        async def work(ctx):
            first = await ctx.query("look", a=1, b=2)
            first["found"].append("changed")
            both = await asyncio.gather(ctx.query("look", b=2, a=1), ctx.query("look", a=2))
            if ctx.attempt == 1:
                raise Transient("again")
            return {"answers": both}

        flow = one_step(Step("work", work, retry=RetryPolicy(2, 0, 0)), tools=[tool])
        engine = await bench.engine(flow)
        run = await engine.run("flow")
        assert run.data == {"answers": [{"found": [1]}, {"found": [1]}]}
        assert asked == [{"a": 1, "b": 2}, {"a": 2}] * 2
        looked = (await journal(engine, run.id))[-1].body.looked
        assert [line["args"] for line in looked] == [{"a": 1, "b": 2}, {"a": 2}]
        assert looked[0]["answer"] == {"found": [1]}

    async def test_a_step_may_only_ask_what_it_declared(self, quick):
        tool, asked = counting(1)
        other = Tool("other", lambda: 1, kind="query")
        step = Step("work", lambda ctx: ctx.query("look"), queries=("other",))
        run = await (await quick.engine(one_step(step, tools=[tool, other]))).run("flow")
        assert run.status is Status.FAILED
        assert "may not query 'look'. Allowed: other" in run.error
        assert not asked

    async def test_an_effect_cannot_be_performed_as_a_query(self, quick):
        done = []
        run = await (
            await quick.engine(
                one_step(lambda ctx: ctx.query("send"), tools=[Tool("send", lambda: done.append(1))])
            )
        ).run("flow")
        assert run.status is Status.FAILED
        assert not done

    async def test_long_answers_are_kept_beside_the_journal_and_private_ones_as_hashes(self, quick):
        async def work(ctx):
            await ctx.query("long")
            await ctx.query("private", secret="s3cret")

        tools = [
            Tool("long", lambda: "x" * 5000, kind="query"),
            Tool("private", lambda secret: "hidden", kind="query", private=True),
        ]
        engine = await quick.engine(one_step(work, tools=tools))
        run = await engine.run("flow")
        long, private = (await journal(engine, run.id))[-1].body.looked
        assert set(long["answer"]) == {"$blob", "size"}
        assert await engine.store.blob(long["answer"]["$blob"]) == b'"' + b"x" * 5000 + b'"'
        assert "s3cret" not in str(private)
        assert "hidden" not in str(private)

    async def test_a_transient_query_failure_uses_up_an_attempt(self, bench):
        calls = []

        def flaky():
            calls.append(1)
            if len(calls) == 1:
                raise ToolError("busy", transient=True)
            return 7

        async def work(ctx):
            return {"x": await ctx.query("look")}

        step = Step("work", work, retry=RetryPolicy(2, 0, 0))
        engine = await bench.engine(one_step(step, tools=[Tool("look", flaky, kind="query")]))
        assert (await engine.run("flow")).data == {"x": 7}

    async def test_a_failed_query_can_be_caught_and_asked_again(self, quick):
        calls = []

        def flaky():
            calls.append(1)
            if len(calls) == 1:
                raise ToolError("gone", "no such thing")
            return 7

        async def work(ctx):
            with pytest.raises(ToolError):
                await ctx.query("look")
            return {"x": await ctx.query("look")}

        engine = await quick.engine(one_step(work, tools=[Tool("look", flaky, kind="query")]))
        assert (await engine.run("flow")).data == {"x": 7}

    async def test_a_query_times_out(self, quick):
        async def slow():
            await asyncio.sleep(60)

        tool = Tool("look", slow, kind="query", timeout=0.01)
        run = await (await quick.engine(one_step(lambda ctx: ctx.query("look"), tools=[tool]))).run("flow")
        assert run.status is Status.FAILED
        assert "no answer within 0.01 s" in run.error

    async def test_a_breaker_leaves_a_failing_query_alone(self, bench, clock):
        calls = []

        def down():
            calls.append(1)
            raise ToolError("down", transient=True)

        tool = Tool("look", down, kind="query", breaker=BreakerPolicy(failures=2, cooldown=60))
        engine = await bench.engine(one_step(lambda ctx: ctx.query("look"), tools=[tool]), clock=clock)
        for _ in range(4):
            await engine.run("flow")
        assert len(calls) == 2
        await clock.turn(61)
        await engine.run("flow")
        await engine.run("flow")
        assert len(calls) == 3

    async def test_a_fault_of_single_queries_opens_no_breaker(self, bench):
        calls = []

        def unknown():
            calls.append(1)
            raise ToolError("unreadable", transient=True, of_call=True)

        tool = Tool("look", unknown, kind="query", breaker=BreakerPolicy(failures=2, cooldown=60))
        engine = await bench.engine(one_step(lambda ctx: ctx.query("look"), tools=[tool]))
        for _ in range(4):
            await engine.run("flow")
        assert len(calls) == 4


class TestOnce:
    async def test_an_answer_is_asked_for_once_per_visit_whatever_fails_after_it(self, bench):
        calls = []

        async def ask():
            calls.append(1)
            return {"answer": len(calls)}

        async def work(ctx):
            answer = await ctx.once("model", ask, spend=lambda value: Spend(10, 5))
            assert answer == await ctx.once("model", ask)
            if ctx.attempt < 3:
                raise Transient("after the answer")
            return Outcome("done" if ctx.visit == 2 else "work", append={"answers": [answer["answer"]]})

        flow = flow_of({"work": ["work", "done"]}, {"work": Step("work", work, retry=RetryPolicy(3, 0, 0))})
        engine = await bench.engine(flow)
        run = await engine.run("flow")
        assert run.data["answers"] == [1, 2]
        assert run.total_spend == Spend(20, 10)
        assert (await kinds(engine, run.id)).count("recorded") == 2

    async def test_the_kept_answer_cannot_be_changed(self, quick):
        async def work(ctx):
            answer = await ctx.once("k", lambda: {"list": [1]})
            answer["list"].append(2)
            return {"again": await ctx.once("k", dict)}

        assert (await (await quick.engine(one_step(work))).run("flow")).data == {"again": {"list": [1]}}

    async def test_asking_twice_at_the_same_time_is_asking_once(self, bench):
        calls = []

        async def ask():
            calls.append(1)
            await asyncio.sleep(0.01)
            return len(calls)

        async def work(ctx):
            return {"both": await asyncio.gather(ctx.once("k", ask), ctx.once("k", ask))}

        assert (await (await bench.engine(one_step(work))).run("flow")).data == {"both": [1, 1]}

    async def test_a_failed_answer_is_not_kept(self, quick):
        calls = []

        async def ask():
            calls.append(1)
            if len(calls) == 1:
                raise Transient("no answer")
            return 1

        async def work(ctx):
            return {"x": await ctx.once("k", ask)}

        engine = await quick.engine(one_step(Step("work", work, retry=RetryPolicy(2, 0, 0))))
        assert (await engine.run("flow")).data == {"x": 1}


class TestKeeping:
    async def test_a_kept_value_is_referred_to_and_given_back(self, bench):
        async def first(ctx):
            reference = ctx.keep("a long letter")
            assert await ctx.kept(reference) == b"a long letter"
            return {"letter": reference}

        async def second(ctx):
            return {"size": len(await ctx.kept(ctx.data.letter))}

        engine = await bench.engine(flow_of({"a": ["b"], "b": ["done"]}, {"a": first, "b": second}))
        run = await engine.run("flow")
        assert run.data["size"] == 13
        assert "a long letter" not in str([entry.body for entry in await journal(engine, run.id)])

    async def test_a_purged_value_is_gone(self, bench):
        async def first(ctx):
            return {"letter": ctx.keep(b"secret")}

        engine = await bench.engine(one_step(first))
        run = await engine.run("flow")
        assert await engine.store.purge(run.id) == 1
        assert await engine.store.blob(run.data["letter"]["$blob"]) is None

    async def test_a_value_kept_by_a_failed_attempt_is_there_for_the_next(self, bench):
        async def work(ctx):
            if ctx.attempt == 1:
                ctx.keep(b"secret")
                raise Transient("no")
            return {"letter": ctx.keep(b"secret")}

        engine = await bench.engine(one_step(Step("work", work, retry=RetryPolicy(2, 0, 0))))
        run = await engine.run("flow")
        assert await engine.store.blob(run.data["letter"]["$blob"]) == b"secret"


class TestSaying:
    async def test_notes_and_tags_are_in_the_journal_and_in_the_lists(self, bench):
        async def work(ctx):
            await ctx.note("compared", spend=Spend(5), same=True)
            await ctx.tag("slow", "big", remove=["new"])
            return {"tags": list(ctx.tags)}

        engine = await bench.engine(one_step(work))
        run = await engine.run("flow", tags=["new", "kept"])
        assert run.data["tags"] == ["kept", "slow", "big"]
        assert set((await engine.store.row(run.id)).tags) == {"kept", "slow", "big"}
        assert await kinds(engine, run.id) == ["started", "noted", "tagged", "moved"]
        assert run.side_spend == Spend(5)

    async def test_what_is_said_when_time_runs_out_is_said_to_observers_too(self, bench):
        """A step's timeout in the middle of a commit does not hide the commit from anybody."""
        told = []

        class Watcher:
            def on_entry(self, run_id, flow, entry):
                told.append((entry.seq, entry.kind))

        async def chatty(ctx):
            while ctx.attempt == 1:
                await ctx.note("still here")
                await asyncio.sleep(0)

        step = Step("work", chatty, timeout=0.05, retry=RetryPolicy(2, 0, 0))
        engine = await bench.engine(one_step(step), observers=[Watcher()])
        run = await engine.run("flow")
        assert run.status is Status.SUCCEEDED
        entries = [(entry.seq, entry.kind) for entry in await journal(engine, run.id)]
        assert told == entries

    async def test_a_budget_is_seen_with_what_is_used(self, quick):
        async def work(ctx):
            await ctx.once("k", lambda: 1, spend=lambda value: Spend(7, 3))
            return {"used": ctx.used["tokens"]}

        engine = await quick.engine(one_step(work))
        run = await engine.run("flow", budget=Budget(tokens=100))
        assert run.data == {"used": 10}


class TestDigging:
    async def test_a_value_is_found_by_its_dotted_key_also_beside_the_journal(self, bench):
        mail = encode({"subject": "Lamp", "parts": [{"text": "dead"}]}).encode()
        seen = {}

        async def work(ctx):
            for key in (
                "plain.inner",
                "email.subject",
                "email.parts.0.text",
                "email.nobody",
                "gone",
                "email",
            ):
                seen[key] = await ctx.dig(key, "?")

        engine = await bench.engine(one_step(work))
        data = {"plain": {"inner": 1}, "email": kept_beside(mail)}
        run_id = await engine.start("flow", data, beside=[mail])
        run = await engine.finish(run_id)
        assert run.status is Status.SUCCEEDED, run.error
        assert seen == {
            "plain.inner": 1,
            "email.subject": "Lamp",
            "email.parts.0.text": "dead",
            "email.nobody": "?",
            "gone": "?",
            "email": {"subject": "Lamp", "parts": [{"text": "dead"}]},
        }

    async def test_what_was_purged_is_not_there(self, bench):
        mail = encode({"subject": "Lamp"}).encode()
        seen = []

        async def work(ctx):
            seen.append(await ctx.dig("email.subject"))

        engine = await bench.engine(one_step(work))
        run_id = await engine.start("flow", {"email": kept_beside(mail)}, beside=[mail], drive=False)
        await engine.store.purge(run_id)
        await engine.resume(run_id)
        await engine.finish(run_id)
        assert seen == [None]
