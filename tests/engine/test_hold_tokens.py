"""An answer meets the question it was given to, and never the next one."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from datetime import UTC, datetime

import pytest

from detent.adapters.stores.sqlite import SQLiteStore
from detent.engine.engine import Engine
from detent.engine.outcome import Effect, Hold, Outcome
from detent.engine.tools import Tool
from detent.kernel.errors import HoldNotOpen
from detent.kernel.status import Status
from tests.engine.conftest import flow_of, kinds, one_step, until


def payments():
    """Asks for approval of one payment after another, under the same name."""

    def pay(ctx):
        if not ctx.answered("approval"):
            return Hold("approval", question=f"Pay bill {ctx.visit}?", choices=["yes", "no"])
        paid = Outcome(append={"paid": [ctx.visit]} if ctx.answer("approval") == "yes" else {})
        return paid._replace(next="done" if ctx.visit == 3 else "pay")

    return flow_of({"pay": ["pay", "done"]}, {"pay": pay})


class TestRelease:
    async def test_a_double_click_approves_one_payment(self, bench):
        engine = await bench.engine(payments())
        first = await engine.run("flow")
        token = first.token("approval")
        await engine.release(first.id, "yes", hold=token)
        second = await engine.finish(first.id)
        with pytest.raises(HoldNotOpen) as caught:
            await engine.release(first.id, "yes", hold=token)
        answered = next(entry for entry in await engine.store.entries(first.id) if entry.kind == "released")
        when = datetime.fromtimestamp(answered.at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        assert str(caught.value) == (
            f"'approval@2' of run {first.id} was answered 'yes' by person at {when}. "
            f"Open now: 'approval@5' (Pay bill 2?). Answer it with hold='approval@5'."
        )
        assert caught.value.open == [second.token()]
        run = await engine.get(first.id)
        assert (run.status, run.data) == (Status.WAITING, {"paid": [1]})

    @pytest.mark.parametrize("hold", ["", None, "approval"])
    async def test_an_answer_without_a_token_is_refused_with_the_token(self, bench, hold):
        engine = await bench.engine(payments())
        run = await engine.run("flow")
        with pytest.raises(HoldNotOpen, match=r"token.*Answer it with hold='approval@2'"):
            await engine.release(run.id, "yes", hold=hold)
        assert (await kinds(engine, run.id)).count("released") == 0

    async def test_an_answer_after_the_clocks_is_refused(self, bench, clock):
        def work(ctx):
            return None if ctx.answered() else Hold(wake_at=clock.now() + 60, default="late")

        engine = await bench.engine(one_step(work), clock=clock)
        run_id = await engine.start("flow")
        waiting = await engine.finish(run_id, patience=1)
        await until(lambda: clock.sleeping(60))
        await clock.turn(61)
        await engine.finish(run_id)
        with pytest.raises(HoldNotOpen, match="timed out; the clock has answered it. Run .* does not wait"):
            await engine.release(run_id, "early", hold=waiting.token())

    async def test_an_answer_after_the_time_is_refused_where_no_worker_saw_it_pass(self, bench, clock):
        """Else whether an answer counts would depend on whether a worker was running."""
        due = clock.now() + 60

        def work(ctx):
            return (
                Outcome(set={"answer": ctx.answer()}) if ctx.answered() else Hold(wake_at=due, default="late")
            )

        engine = await bench.engine(one_step(work), clock=clock)
        run_id = await engine.start("flow")
        waiting = await engine.finish(run_id, patience=1)
        await engine.stop()
        await clock.turn(61)
        later = await bench.engine(one_step(work), clock=clock)
        with pytest.raises(HoldNotOpen, match="is over"):
            await later.release(run_id, "early", hold=waiting.token(), drive=False)
        await later.resume(run_id)
        assert (await later.finish(run_id)).data["answer"] == "late"

    async def test_an_answer_to_a_run_that_went_on_without_it_is_refused(self, bench):
        engine = await bench.engine(payments())
        run = await engine.run("flow")
        await engine.cancel(run.id)
        await engine.reopen(run.id, drive=False)
        await engine.resume(run.id)
        await engine.finish(run.id)
        with pytest.raises(HoldNotOpen, match=r"replaced by 'approval@\d+'"):
            await engine.release(run.id, "yes", hold=run.token())

    @pytest.mark.parametrize("hold", ["approval@1", "approval@99", "other@2", "effect:x@2"])
    async def test_a_token_nobody_gave_is_refused(self, quick, hold):
        engine = await quick.engine(payments())
        run = await engine.run("flow")
        with pytest.raises(HoldNotOpen, match="Open now: 'approval@2'"):
            await engine.release(run.id, "yes", hold=hold)

    async def test_of_two_engines_that_answer_at_once_one_is_heard(self, durable):
        one, other = await durable.engine(payments()), await durable.engine(payments())
        run = await one.run("flow")
        for _ in range(3):
            token = (await one.get(run.id)).token()
            results = await asyncio.gather(
                *(engine.release(run.id, "yes", hold=token) for engine in (one, other, one, other)),
                return_exceptions=True,
            )
            refused = [result for result in results if result is not None]
            assert [type(result) for result in refused] == [HoldNotOpen] * 3
            await until(lambda: _put_down(one, run.id))
        assert (await one.finish(run.id)).data == {"paid": [1, 2, 3]}


async def _put_down(engine, run_id):
    return (await engine.get(run_id)).status is not Status.RUNNING


class TestResolve:
    async def test_again_sent_twice_repeats_an_effect_once(self, bench):
        calls = []

        def transfer(amount):
            calls.append(amount)
            raise RuntimeError("connection cut")

        def work(ctx):
            return Outcome(effects=[Effect("transfer", {"amount": 5})])

        engine = await bench.engine(one_step(work, tools=[Tool("transfer", transfer)]))
        run = await engine.run("flow")
        token = run.token()
        await engine.resolve(run.id, "again", hold=token)
        again = await engine.finish(run.id)
        assert (again.status, len(calls)) == (Status.WAITING, 2)
        with pytest.raises(HoldNotOpen, match="was answered 'again' by person at .* Open now: 'effect:"):
            await engine.resolve(run.id, "again", hold=token)
        assert len(calls) == 2
        await engine.resolve(run.id, "skip", hold=again.token())
        assert (await engine.finish(run.id)).status is Status.SUCCEEDED

    async def test_without_a_token_nothing_is_settled(self, quick):
        def transfer():
            raise RuntimeError("connection cut")

        flow = one_step(lambda ctx: Outcome(effects=[Effect("transfer")]), tools=[Tool("transfer", transfer)])
        engine = await quick.engine(flow)
        run = await engine.run("flow")
        with pytest.raises(HoldNotOpen) as caught:
            await engine.resolve(run.id, "happened")
        assert caught.value.open == [run.token()]


class TestOldStores:
    async def test_a_fold_saved_without_tokens_is_not_believed(self, durable):
        """Version 0.1 saved folds that do not number their holds."""

        def work(ctx):
            if ctx.visit < 300:
                return "work"
            return "done" if ctx.answered() else Hold(question="Go on?")

        flow = flow_of({"work": ["work", "done"]}, {"work": work})
        engine = await durable.engine(flow)
        run = await engine.run("flow")
        await engine.stop()
        old = run.to_plain()
        del old["held_at"]
        with sqlite3.connect(durable.path) as database:
            assert database.execute("UPDATE folds SET body = ?", (json.dumps(old),)).rowcount == 1
        async with Engine(SQLiteStore(durable.path), [flow]) as later:
            assert (await later.get(run.id)).token() == run.token()
            await later.release(run.id, "yes", hold=run.token())
            assert (await later.finish(run.id)).status is Status.SUCCEEDED
