"""Waits: a state of the run, answered by a person or the clock, in this process or another, days later."""

from __future__ import annotations

import asyncio
import threading

import pytest

from detent.engine.outcome import Hold, Outcome
from detent.kernel.budget import Budget, Spend
from detent.kernel.errors import ConfigurationError, HoldNotOpen, RunNotFound
from detent.kernel.status import Status
from tests.engine import worker
from tests.engine.conftest import journal, kinds, one_step, until


def asking(**options):
    """A step that asks one question and keeps the answer."""

    def work(ctx):
        return Outcome(set={"answer": ctx.answer()}) if ctx.answered() else Hold(**options)

    return one_step(work)


class TestPerson:
    async def test_a_person_answers_and_the_run_goes_on(self, bench):
        engine = await bench.engine(asking(question="Go on?", choices=["yes", "no"]))
        run = await engine.run("flow")
        assert run.status is Status.WAITING
        row = await engine.store.row(run.id)
        assert row.now.waits == [
            {
                "name": "hold", "token": "hold@2", "why": "person", "question": "Go on?",
                "choices": ["yes", "no"], "wake_at": None,
            }
        ]  # fmt: skip
        await engine.release(run.id, "yes", hold="hold@2", by="ada")
        run = await engine.finish(run.id)
        assert (run.status, run.data) == (Status.SUCCEEDED, {"answer": "yes"})
        released = next(entry.body for entry in await journal(engine, run.id) if entry.kind == "released")
        assert released.by == "ada"

    async def test_several_questions_one_after_another(self, bench):
        def work(ctx):
            for name in ("first", "second"):
                if not ctx.answered(name):
                    return Hold(name)
            return {"answers": [ctx.answer("first"), ctx.answer("second")]}

        engine = await bench.engine(one_step(work))
        run = await engine.run("flow")
        assert list(run.holds) == ["first"]
        await engine.release(run.id, {"deep": [1]}, hold=run.token("first"))
        run = await engine.finish(run.id)
        assert list(run.holds) == ["second"]
        await engine.release(run.id, 2, hold=run.token("second"))
        assert (await engine.finish(run.id)).data == {"answers": [{"deep": [1]}, 2]}

    async def test_answers_are_forgotten_when_the_state_is_left(self, quick):
        def work(ctx):
            if not ctx.answered():
                return Hold()
            return "done" if ctx.visit == 2 else "work"

        from tests.engine.conftest import flow_of

        engine = await quick.engine(flow_of({"work": ["work", "done"]}, {"work": work}))
        run = await engine.run("flow")
        await engine.release(run.id, 1, hold=run.token())
        run = await engine.finish(run.id)
        assert (run.status, run.steps) == (Status.WAITING, 1)

    @pytest.mark.parametrize("answer", ["maybe", None, 1, ["yes"]])
    async def test_a_wrong_answer_is_refused_and_the_run_still_waits(self, bench, answer):
        engine = await bench.engine(asking(choices=["yes", "no"]))
        run = await engine.run("flow")
        with pytest.raises(ConfigurationError, match="Answers: yes, no"):
            await engine.release(run.id, answer, hold=run.token())
        await engine.release(run.id, "no", hold=run.token())
        assert (await engine.finish(run.id)).data == {"answer": "no"}

    async def test_an_answer_that_is_no_json_is_refused(self, bench):
        engine = await bench.engine(asking())
        run = await engine.run("flow")
        with pytest.raises(TypeError):
            await engine.release(run.id, object(), hold=run.token())
        await engine.release(run.id, 1, hold=run.token())
        assert (await engine.finish(run.id)).status is Status.SUCCEEDED

    async def test_a_hold_that_is_not_there_is_named(self, quick):
        engine = await quick.engine(asking(name="approve"))
        run = await engine.run("flow")
        with pytest.raises(HoldNotOpen, match="not a question called 'aprove'. Open now: 'approve@2'"):
            await engine.release(run.id, 1, hold="aprove@2")

    async def test_a_hold_is_released_once(self, bench):
        engine = await bench.engine(asking())
        run = await engine.run("flow")
        await engine.release(run.id, 1, hold=run.token())
        with pytest.raises(HoldNotOpen, match="was answered 1 by person at"):
            await engine.release(run.id, 2, hold=run.token())
        assert (await engine.finish(run.id)).data == {"answer": 1}

    async def test_of_many_who_answer_at_once_one_is_heard(self, bench):
        engine = await bench.engine(asking())
        run = await engine.run("flow")
        results = await asyncio.gather(
            *(engine.release(run.id, number, hold=run.token()) for number in range(5)), return_exceptions=True
        )
        assert [type(result) for result in results].count(type(None)) == 1
        assert all(isinstance(result, HoldNotOpen) for result in results if result is not None)
        assert (await kinds(engine, run.id)).count("released") == 1

    async def test_a_run_that_is_not_there_or_does_not_wait_cannot_be_released(self, quick):
        engine = await quick.engine(one_step(lambda ctx: None))
        with pytest.raises(RunNotFound):
            await engine.release("nobody", 1, hold="hold@2")
        run = await engine.run("flow")
        with pytest.raises(HoldNotOpen, match="has ended as succeeded"):
            await engine.release(run.id, 1, hold="hold@2")

    async def test_a_wait_holds_no_slot_no_task_and_no_thread(self, bench):
        engine = await bench.engine(asking(), one_step(lambda ctx: None, name="other"), concurrency=1)
        await engine.run("flow", run_id="warm-up")
        threads = threading.active_count()
        for number in range(20):
            await engine.run("flow", run_id=f"r{number}")
        assert threading.active_count() <= threads + 4  # a store's readers
        assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("run ")]
        assert (await engine.run("other")).status is Status.SUCCEEDED

    async def test_waiting_costs_nothing_against_a_budget_of_time(self, quick, clock):
        engine = await quick.engine(asking(), clock=clock)
        run = await engine.run("flow", budget=Budget(seconds=10))
        await clock.turn(100)
        await engine.release(run.id, 1, hold=run.token())
        assert (await engine.finish(run.id)).status is Status.SUCCEEDED

    async def test_what_asking_cost_is_counted(self, quick):
        def work(ctx):
            return None if ctx.answered() else Outcome(hold=Hold(), spend=Spend(5))

        engine = await quick.engine(one_step(work))
        run = await engine.run("flow")
        await engine.release(run.id, hold=run.token())
        assert (await engine.finish(run.id)).total_spend == Spend(5)


class TestClock:
    async def test_the_clock_answers_with_the_default(self, bench, clock):
        engine = await bench.engine(asking(wake_at=clock.now() + 100, default="late"), clock=clock)
        run_id = await engine.start("flow")
        finishing = asyncio.ensure_future(engine.finish(run_id))
        await until(lambda: clock.sleeping(100))
        await clock.turn(99)
        assert not finishing.done()
        await clock.turn(1)
        assert (await finishing).data == {"answer": "late"}

    async def test_a_person_may_be_faster_than_the_clock(self, bench, clock):
        engine = await bench.engine(asking(wake_at=clock.now() + 100, default="late"), clock=clock)
        run_id = await engine.start("flow")
        run = await engine.finish(run_id, patience=1)
        await engine.release(run_id, "early", hold=run.token())
        assert (await engine.finish(run_id)).data == {"answer": "early"}
        epoch = (await engine.store.row(run_id)).epoch
        await clock.turn(200)
        assert (await engine.store.row(run_id)).epoch == epoch

    async def test_a_time_that_has_passed_is_answered_at_once(self, bench):
        engine = await bench.engine(asking(wake_at=1.0, default="past"))
        assert (await engine.run("flow")).data == {"answer": "past"}

    async def test_the_earliest_of_many_wakes_first(self, quick, clock):
        order = []

        def work(ctx):
            if ctx.answered():
                order.append(ctx.data.after)
                return None
            return Hold(wake_at=clock.now() + ctx.data.after)

        engine = await quick.engine(one_step(work), clock=clock)
        for after in (30, 10, 20):
            await engine.start("flow", {"after": after})
        await clock.turn(40)
        await until(lambda: len(order) == 3)
        assert order == [10, 20, 30]

    async def test_a_process_that_comes_later_gives_the_answer_that_is_due(self, bench, clock):
        first = await bench.engine(asking(wake_at=clock.now() + 100, default="late"), clock=clock)
        run_id = await first.start("flow")
        await first.finish(run_id, patience=1)
        await first.stop()
        await clock.turn(50)
        second = await bench.engine(asking(), clock=clock)
        assert await second.resume_all() == []
        await clock.turn(60)
        assert await second.resume_all() == [run_id]
        assert (await second.finish(run_id)).data == {"answer": "late"}

    async def test_patience_is_how_long_the_clock_is_waited_for(self, quick, clock):
        engine = await quick.engine(asking(wake_at=clock.now() + 100), clock=clock)
        run_id = await engine.start("flow")
        assert (await engine.finish(run_id, patience=99)).status is Status.WAITING


class TestElsewhere:
    async def test_another_engine_releases_and_drives(self, durable):
        first = await durable.engine(asking())
        run = await first.run("flow")
        second = await durable.engine(asking())
        await second.release(run.id, "from there", hold=run.token())
        assert (await second.finish(run.id)).data == {"answer": "from there"}
        assert (await first.finish(run.id)).data == {"answer": "from there"}

    async def test_another_engine_releases_and_leaves_the_driving_to_others(self, durable):
        first = await durable.engine(asking())
        run = await first.run("flow")
        second = await durable.engine(asking())
        await second.release(run.id, 1, hold=run.token(), drive=False)
        assert (await second.get(run.id)).status is Status.RUNNING
        assert await first.resume_all() == [run.id]
        assert (await first.finish(run.id)).status is Status.SUCCEEDED

    def test_another_process_releases(self, tmp_path):
        assert worker.call(tmp_path, "run", "ask", "r1") == "waiting"
        assert worker.call(tmp_path, "release", "r1", "yes") == ""
        assert worker.call(tmp_path, "resume", "r1") == "succeeded"
