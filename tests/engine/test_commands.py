"""What people may do to a run: cancel, fork, reopen."""

from __future__ import annotations

import asyncio

import pytest

from detent.engine.outcome import Effect, Hold, Outcome
from detent.engine.tools import Tool
from detent.insight.timeline import timeline
from detent.kernel.budget import Budget
from detent.kernel.errors import (
    ConfigurationError,
    DefinitionChanged,
    HoldNotOpen,
    InvalidValue,
    RunExists,
    RunNotFound,
    RunStateError,
)
from detent.kernel.status import Status
from tests.engine.conftest import flow_of, journal, kinds, one_step, until


class TestCancel:
    async def test_a_run_at_work_is_stopped_and_ended(self, bench):
        entered, stopped = asyncio.Event(), []

        async def work(ctx):
            entered.set()
            try:
                await asyncio.sleep(60)
            finally:
                stopped.append(True)

        engine = await bench.engine(one_step(work))
        run_id = await engine.start("flow")
        finishing = asyncio.ensure_future(engine.finish(run_id))
        await entered.wait()
        await engine.cancel(run_id, reason="not wanted any more", by="ada")
        run = await finishing
        assert (run.status, run.reason, stopped) == (Status.CANCELLED, "not wanted any more", [True])
        assert (await journal(engine, run_id))[-1].body.by == "ada"

    async def test_who_cancels_elsewhere_and_why_is_journaled_where_it_is_under_way(self, bench):
        entered = asyncio.Event()

        async def work(ctx):
            entered.set()
            await asyncio.sleep(60)

        engine, other = await bench.engine(one_step(work)), await bench.engine(one_step(work))
        run_id = await engine.start("flow")
        await entered.wait()
        await other.cancel(run_id, reason="customer withdrew", by="ada@example.com")
        ended = (await journal(engine, run_id))[-1].body
        assert (ended.reason, ended.by) == ("customer withdrew", "ada@example.com")

    @pytest.mark.parametrize("wrong", [{"reason": [1]}, {"reason": None}, {"by": 7}, {"by": ""}])
    async def test_a_reason_or_author_that_is_no_text_is_refused(self, quick, wrong):
        engine = await quick.engine(one_step(lambda ctx: None))
        run_id = await engine.start("flow", drive=False)
        with pytest.raises(InvalidValue, match=next(iter(wrong))):
            await engine.cancel(run_id, **wrong)
        assert await kinds(engine, run_id) == ["started"]

    async def test_a_run_that_has_not_begun_is_ended(self, bench):
        calls = []

        async def work(ctx):
            calls.append(ctx.run_id)
            await asyncio.sleep(60)

        engine = await bench.engine(one_step(work), concurrency=1)
        await engine.start("flow", run_id="in the only slot")
        run_id = await engine.start("flow")
        await engine.cancel(run_id)
        assert (await engine.finish(run_id)).status is Status.CANCELLED
        await until(lambda: calls)
        assert calls == ["in the only slot"]

    async def test_a_waiting_run_is_ended(self, bench):
        engine = await bench.engine(one_step(lambda ctx: Hold()))
        waiting = await engine.run("flow")
        token = waiting.token()
        await engine.cancel(waiting.id)
        run = await engine.get(waiting.id)
        assert (run.status, run.holds) == (Status.CANCELLED, {})
        with pytest.raises(HoldNotOpen, match="has ended as cancelled"):
            await engine.release(run.id, 1, hold=token)

    async def test_a_run_that_has_ended_cannot_be_cancelled(self, bench):
        engine = await bench.engine(one_step(lambda ctx: None))
        run = await engine.run("flow")
        with pytest.raises(RunStateError, match="already ended"):
            await engine.cancel(run.id)
        with pytest.raises(RunNotFound):
            await engine.cancel("nobody")

    async def test_a_run_of_a_flow_nobody_knows_here_can_be_cancelled_and_observers_hear_of_it(self, bench):
        told = []

        class Watcher:
            def on_entry(self, run_id, flow, entry):
                told.append((flow, entry.kind))

            def on_state_transition(self, transition):
                raise AssertionError

        engine = await bench.engine(one_step(lambda ctx: Hold()))
        run = await engine.run("flow")
        await engine.stop()
        stranger = await bench.engine(observers=[Watcher()])
        await stranger.cancel(run.id)
        assert (await stranger.get(run.id)).status is Status.CANCELLED
        assert told == [("flow", "ended")]

    async def test_a_run_whose_definition_changed_can_be_cancelled(self, bench):
        engine = await bench.engine(one_step(lambda ctx: Hold()))
        run = await engine.run("flow")
        other = await bench.engine(one_step(lambda ctx: None, version=2))
        await other.cancel(run.id)
        assert (await other.get(run.id)).status is Status.CANCELLED

    async def test_cancelling_leaves_other_runs_alone(self, bench):
        go = asyncio.Event()

        async def work(ctx):
            await go.wait()

        engine = await bench.engine(one_step(work), concurrency=2)
        first, second, third = [await engine.start("flow") for _ in range(3)]
        await engine.cancel(first)
        go.set()
        for run_id in (second, third):
            assert (await engine.finish(run_id)).status is Status.SUCCEEDED


def counting(done):
    """a → b → c → done, each with one effect."""

    def step(name):
        def work(ctx):
            ctx.propose("do", what=name, x=ctx.data.x)
            return {"config": dict(ctx.config), "last": name}

        return work

    return flow_of(
        {"a": ["b"], "b": ["c"], "c": ["done"]},
        {name: step(name) for name in "abc"},
        tools=[Tool("do", lambda what, x: done.append((what, x)))],
    )


class TestFork:
    async def test_a_fork_goes_its_own_way_and_repeats_nothing(self, bench):
        done = []
        engine = await bench.engine(counting(done))
        run = await engine.run("flow", {"x": 1}, config={"mode": "plain"}, tags=["t"])
        entries = await journal(engine, run.id)
        at = next(entry.seq for entry in entries if entry.kind == "moved")  # out of a
        fork = await engine.fork(run.id, at, set={"x": 2}, config={"mode": "other"}, budget=Budget(steps=9))
        forked = await engine.finish(fork)
        assert forked.status is Status.SUCCEEDED
        config = {"mode": "other", "origin": run.id}
        assert forked.data == {"x": 2, "config": config, "last": "c"}
        assert done == [("a", 1), ("b", 1), ("c", 1), ("b", 2), ("c", 2)]
        assert forked.forked_from == {"run": run.id, "seq": at}
        assert (forked.budget, forked.tags) == (Budget(steps=9), ["t"])
        assert (await engine.get(run.id)).to_plain() == run.to_plain()

    async def test_an_effect_done_in_the_copied_part_is_not_repeated_in_the_same_visit(self, bench):
        done = []
        engine = await bench.engine(
            one_step(
                lambda ctx: Outcome(effects=[Effect("do", {"n": 1}), Effect("do", {"n": 2})]),
                tools=[Tool("do", lambda n: done.append(n))],
            )
        )
        run = await engine.run("flow")
        at = next(entry.seq for entry in await journal(engine, run.id) if entry.kind == "effect_done")
        fork = await engine.fork(run.id, at)
        assert (await engine.finish(fork)).status is Status.SUCCEEDED
        assert done == [1, 2, 2]

    async def test_without_a_place_it_forks_before_the_end(self, bench):
        done = []
        engine = await bench.engine(counting(done))
        run = await engine.run("flow", {"x": 1})
        fork = await engine.fork(run.id)
        forked = await engine.finish(fork)
        assert forked.forked_from["seq"] == run.seq - 1
        assert forked.status is Status.SUCCEEDED

    async def test_without_a_place_a_run_that_was_reopened_forks_before_its_last_end(self, quick):
        fail = [True, True]

        def work(ctx):
            if fail.pop():
                raise ValueError
            return None

        engine = await quick.engine(one_step(work))
        run = await engine.run("flow")
        await engine.reopen(run.id)
        run = await engine.finish(run.id)
        fail[:] = [False]
        fork = await engine.fork(run.id)
        forked = await engine.finish(fork)
        assert forked.status is Status.SUCCEEDED
        assert "reopened" in await kinds(engine, fork)

    async def test_a_waiting_run_forks_into_one_that_decides_anew(self, bench):
        engine = await bench.engine(one_step(lambda ctx: None if ctx.data.get("sure") else Hold()))
        run = await engine.run("flow")
        fork = await engine.fork(run.id, set={"sure": True})
        assert (await engine.finish(fork)).status is Status.SUCCEEDED
        assert (await engine.get(run.id)).status is Status.WAITING

    @pytest.mark.parametrize("at", [0, -1, 99])
    async def test_a_place_outside_the_journal_is_refused(self, bench, at):
        engine = await bench.engine(counting([]))
        run = await engine.run("flow", {"x": 1})
        with pytest.raises(
            ConfigurationError, match=f"has entries 1 to {run.seq}; it cannot be forked at {at}"
        ):
            await engine.fork(run.id, at)

    async def test_a_run_cannot_be_forked_at_its_end(self, bench):
        engine = await bench.engine(counting([]))
        run = await engine.run("flow", {"x": 1})
        with pytest.raises(ConfigurationError, match=f"can be forked at {run.seq - 1}, or earlier"):
            await engine.fork(run.id, run.seq)
        assert (await engine.store.facts())["runs"] == 1

    async def test_an_id_that_is_taken_is_refused(self, bench):
        engine = await bench.engine(counting([]))
        run = await engine.run("flow", {"x": 1})
        with pytest.raises(RunExists):
            await engine.fork(run.id, 1, new_id=run.id)
        with pytest.raises(RunNotFound):
            await engine.fork("nobody")

    async def test_a_run_of_another_definition_is_refused_before_anything_is_written(self, bench):
        engine = await bench.engine(one_step(lambda ctx: None))
        run = await engine.run("flow")
        other = await bench.engine(one_step(lambda ctx: None, version=2))
        with pytest.raises(DefinitionChanged):
            await other.fork(run.id, 1)
        assert (await other.store.facts())["runs"] == 1

    async def test_a_fork_may_be_left_for_later(self, bench):
        engine = await bench.engine(counting([]))
        run = await engine.run("flow", {"x": 1})
        fork = await engine.fork(run.id, 1, drive=False)
        assert (await engine.get(fork)).status is Status.RUNNING
        assert await engine.resume_all() == [fork]

    async def test_a_fork_keeps_the_values_of_the_run_it_came_from(self, bench):
        async def keep(ctx):
            return {"kept": ctx.keep("a letter")}

        engine = await bench.engine(flow_of({"a": ["b"], "b": ["done"]}, {"a": keep, "b": lambda ctx: None}))
        run = await engine.run("flow")
        fork = await engine.fork(run.id, 2)
        await engine.finish(fork)
        await engine.store.purge(run.id)
        assert await engine.store.blob(run.data["kept"]["$blob"]) == b"a letter"


class TestReopen:
    async def test_a_failed_run_is_sent_on_from_where_it_failed(self, bench):
        broken = [True]

        def work(ctx):
            if broken[0]:
                raise ValueError("no")
            return {"attempt": ctx.attempt}

        for also in ((), ("failed",)):
            broken[0] = True
            engine = await bench.engine(one_step(work, also=also, name=f"f{len(also)}"))
            run = await engine.run(f"f{len(also)}")
            assert run.status is Status.FAILED
            broken[0] = False
            await engine.reopen(run.id, reason="repaired")
            run = await engine.finish(run.id)
            assert (run.status, run.error, run.data) == (Status.SUCCEEDED, None, {"attempt": 1})

    async def test_a_step_that_failed_after_its_effects_decides_anew_and_repeats_none(self, bench):
        from detent.kernel.guards import when
        from detent.kernel.machine import Move

        done, wanted = [], ["nothing"]

        def work(ctx):
            return Outcome(set={"x": ctx.propose("do").id, "wanted": wanted[0]})

        flow = flow_of(
            {"work": [Move("done", when=when({"wanted": "this"}))]},
            {"work": work},
            tools=[Tool("do", lambda: done.append(1) or {"id": 5})],
        )
        engine = await bench.engine(flow)
        run = await engine.run("flow")
        assert run.status is Status.FAILED
        wanted[0] = "this"
        await engine.reopen(run.id)
        run = await engine.finish(run.id)
        assert (run.status, done, run.data["x"]) == (Status.SUCCEEDED, [1], 5)

    async def test_a_run_that_succeeded_or_is_open_cannot_be_reopened(self, bench):
        engine = await bench.engine(one_step(lambda ctx: Hold() if ctx.data.get("hold") else None))
        for data in ({}, {"hold": True}):
            run = await engine.run("flow", data)
            with pytest.raises(RunStateError, match="cannot be reopened"):
                await engine.reopen(run.id)

    async def test_a_run_of_another_definition_is_not_reopened(self, bench):
        engine = await bench.engine(one_step(lambda ctx: 1 / 0))
        run = await engine.run("flow")
        other = await bench.engine(one_step(lambda ctx: None, version=2))
        with pytest.raises(RunStateError, match="another definition"):
            await other.reopen(run.id)

    async def test_a_reopened_run_may_be_left_for_later(self, quick):
        engine = await quick.engine(one_step(lambda ctx: 1 / 0))
        run = await engine.run("flow")
        await engine.reopen(run.id, drive=False)
        assert (await engine.get(run.id)).status is Status.RUNNING


class TestReopenedElsewhere:
    async def test_a_call_that_was_stopped_with_its_run_is_not_waited_for(self, bench, clock):
        """The other process cannot see the call; it would have to wait for as long as that may take."""
        acting, done = asyncio.Event(), []

        async def slow():
            acting.set()
            await asyncio.sleep(3600)

        def flow(act):
            tool = Tool("act", act, idempotent=True, timeout=60)
            return one_step(lambda ctx: Outcome(effects=[Effect("act")]), tools=[tool])

        engine = await bench.engine(flow(slow), host="elsewhere")
        other = await bench.engine(flow(lambda: done.append(1)), clock=clock)
        run_id = await engine.start("flow")
        await acting.wait()
        await engine.cancel(run_id)
        await other.reopen(run_id)
        run = await other.finish(run_id)  # though no clock is turned
        assert (run.status, done) == (Status.SUCCEEDED, [1])


class TestAuthors:
    async def test_the_journal_says_who_reopened_and_who_forked(self, bench):
        engine = await bench.engine(one_step(lambda ctx: Hold()))
        run = await engine.run("flow")
        await engine.cancel(run.id)
        await engine.reopen(run.id, reason="wanted after all", by="ada", drive=False)
        reopened = (await journal(engine, run.id))[-1].body
        assert (reopened.by, reopened.reason) == ("ada", "wanted after all")
        fork = await engine.fork(run.id, by="bob", drive=False)
        forked = next(entry.body for entry in await journal(engine, fork) if entry.kind == "forked")
        assert forked.by == "bob"
        assert {line.who for line in timeline(await journal(engine, fork))} >= {"ada", "bob"}

    @pytest.mark.parametrize("wrong", [{"by": 7}, {"by": ""}])
    async def test_an_author_that_is_no_name_is_refused(self, quick, wrong):
        engine = await quick.engine(one_step(lambda ctx: Hold()))
        run = await engine.run("flow")
        with pytest.raises(InvalidValue, match="by"):
            await engine.fork(run.id, **wrong)
        await engine.cancel(run.id)
        with pytest.raises(InvalidValue, match="by"):
            await engine.reopen(run.id, **wrong)
