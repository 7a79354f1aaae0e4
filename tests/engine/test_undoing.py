"""Cancelled with what it did undone; and siblings that end because another one failed."""

from __future__ import annotations

import asyncio

import pytest

from detent.engine.children import HALTED
from detent.engine.flow import Flow
from detent.engine.outcome import Effect, Hold, Outcome
from detent.engine.tools import Tool
from detent.kernel.errors import ConfigurationError, RunStateError
from detent.kernel.machine import Machine
from detent.kernel.status import Status
from tests.engine.conftest import flow_of, journal, kinds, one_step, until


def undoable(log, work=None, back=None, **options):
    """Does one thing, waits in the second, and can undo."""

    async def undo(ctx):
        log.append("undone")
        return Outcome("cancelled")

    machine = Machine(
        "flow",
        start="first",
        moves={"first": ["second", "back"], "second": ["done", "back"], "back": ["cancelled", "failed"]},
        ends={"done": Status.SUCCEEDED, "cancelled": Status.CANCELLED, "failed": Status.FAILED},
    )
    steps = {
        "first": lambda ctx: Outcome("second", set={"did": 1}),
        "second": work or (lambda ctx: Outcome("done") if ctx.answered() else Hold()),
        "back": back or undo,
    }
    return Flow(machine, steps, undoing="back", **options)


class TestCancel:
    async def test_a_waiting_run_undoes_what_it_did_and_ends_as_cancelled(self, bench):
        log = []
        engine = await bench.engine(undoable(log))
        run = await engine.run("flow")
        assert run.status is Status.WAITING
        await engine.cancel(run.id, undo=True, by="ann", reason="not needed")
        run = await engine.finish(run.id)
        assert (run.status, run.state, log) == (Status.CANCELLED, "cancelled", ["undone"])
        assert run.data["cancelled_by"] == "ann"
        moved = [entry.body for entry in await journal(engine, run.id) if entry.kind == "moved"]
        assert [(move.frm, move.to, move.by) for move in moved[1:]] == [
            ("second", "back", "ann"), ("back", "cancelled", "handler"),
        ]  # fmt: skip

    async def test_without_it_nothing_is_undone(self, bench):
        log = []
        engine = await bench.engine(undoable(log))
        run = await engine.run("flow")
        await engine.cancel(run.id)
        assert (await engine.get(run.id)).status is Status.CANCELLED
        assert log == []

    async def test_a_run_at_work_here_stops_and_undoes(self, bench):
        log, begun = [], asyncio.Event()

        async def work(ctx):
            begun.set()
            await asyncio.Event().wait()

        engine = await bench.engine(undoable(log, work))
        run_id = await engine.start("flow")
        await begun.wait()
        await engine.cancel(run_id, undo=True)
        assert (await engine.finish(run_id)).status is Status.CANCELLED
        assert log == ["undone"]

    async def test_a_run_at_work_elsewhere_stops_there_and_is_undone_here(self, durable):
        log, begun = [], asyncio.Event()

        async def work(ctx):
            begun.set()
            await asyncio.Event().wait()

        elsewhere = await durable.engine(undoable(log, work))
        here = await durable.engine(undoable(log))
        run_id = await elsewhere.start("flow")
        await begun.wait()
        await here.cancel(run_id, undo=True)
        assert (await here.finish(run_id)).status is Status.CANCELLED
        assert log == ["undone"]
        assert elsewhere.runs_under_way() == []

    async def test_what_is_below_it_is_cancelled_first_and_not_undone_by_itself(self, bench):
        log = []

        async def work(ctx):
            await ctx.child("below", key="below")

        engine = await bench.engine(undoable(log, work), one_step(lambda ctx: Hold(), name="below"))
        run = await engine.run("flow")
        await engine.cancel(run.id, undo=True)
        assert (await engine.finish(run.id)).status is Status.CANCELLED
        assert (await engine.get(f"{run.id}.below")).status is Status.CANCELLED
        with pytest.raises(RunStateError, match="already ended"):
            await engine.cancel(run.id, undo=True)

    async def test_asked_twice_it_is_undone_once(self, durable):
        log, begun, go = [], asyncio.Event(), asyncio.Event()

        async def back(ctx):
            begun.set()
            await go.wait()
            log.append("undone")
            return Outcome("cancelled")

        engine = await durable.engine(undoable(log, back=back))
        run = await engine.run("flow")
        await engine.cancel(run.id, undo=True)
        await begun.wait()
        await engine.cancel(run.id, undo=True)
        go.set()
        assert (await engine.finish(run.id)).status is Status.CANCELLED
        assert log == ["undone"]

    async def test_one_left_before_it_was_undone_is_taken_up(self, durable):
        log = []
        engine = await durable.engine(undoable(log))
        run = await engine.run("flow")
        await engine.cancel(run.id, undo=True, drive=False)
        assert (await engine.get(run.id)).state == "back"
        await engine.stop()
        other = await durable.engine(undoable(log))
        assert await other.resume_all() == [run.id]
        assert (await other.finish(run.id)).status is Status.CANCELLED
        assert log == ["undone"]

    async def test_a_flow_that_cannot_undo_is_left_alone(self, quick):
        engine = await quick.engine(one_step(lambda ctx: Hold()))
        run = await engine.run("flow")
        with pytest.raises(ConfigurationError, match="cannot undo what they did. Cancel without it"):
            await engine.cancel(run.id, undo=True)
        assert (await engine.get(run.id)).status is Status.WAITING

    async def test_what_a_part_did_is_undone_with_the_whole(self, quick):
        async def work(ctx):
            await ctx.child("flow", key="part")

        engine = await quick.engine(undoable([]), one_step(work, name="whole"))
        run = await engine.run("whole")
        with pytest.raises(ConfigurationError, match=f"is part of {run.id}; what it did is undone with that"):
            await engine.cancel(f"{run.id}.part", undo=True)


def siblings(good, tools=()):
    """Two side by side: one fails once the other is at its first step, which has a second one after it."""

    async def root(ctx):
        done = await ctx.children([("bad", {}, "bad"), ("good", {}, "good")], stop_on_failure=True)
        return {"ended": [[one.key, one.status.value, one.reason] for one in done]}

    failing = one_step(lambda ctx: (_ for _ in ()).throw(ValueError("no")), name="bad")
    steps = {"one": good, "two": lambda ctx: {"two": True}}
    going = flow_of({"one": ["two"], "two": ["done"]}, steps, name="good", tools=tools)
    return [one_step(root, name="root"), failing, going]


class TestHalting:
    async def test_one_under_way_finishes_its_step_and_begins_no_other(self, bench):
        failed = asyncio.Event()

        async def good(ctx):
            await failed.wait()
            return Outcome("two", set={"one": True})

        engine = await bench.engine(*siblings(good))
        run_id = await engine.start("root")
        await until(lambda: ended(engine, f"{run_id}.bad"))
        await until(lambda: getattr(engine.driver_of(f"{run_id}.good"), "halting", None))
        failed.set()
        run = await engine.finish(run_id)
        assert run.data["ended"][1] == ["good", "cancelled", HALTED]
        assert (await engine.get(f"{run_id}.good")).data == {"one": True}

    async def test_an_effect_begun_before_a_crash_is_settled_before_the_run_ends(self, durable):
        done, hang = [], True

        async def do():
            done.append(1)
            if hang:
                await asyncio.Event().wait()
            return {"time": len(done)}

        tool = Tool("do", do, idempotent=True)

        def good(ctx):
            return Outcome("two", effects=[Effect("do", {})], set={"one": True})

        engine = await durable.engine(*siblings(good, [tool]))
        run_id = await engine.start("root")
        await until(lambda: done)
        await until(lambda: ended(engine, f"{run_id}.bad"))
        await engine.stop(grace=0)
        hang = False
        other = await durable.engine(*siblings(good, [tool]))
        run = await other.finish(run_id)
        assert run.data["ended"] == [
            ["bad", "failed", "work failed: ValueError"], ["good", "cancelled", HALTED],
        ]  # fmt: skip
        good_run = await other.get(f"{run_id}.good")
        assert good_run.data == {"one": True}, "the step whose effect happened counts as done"
        assert "effect_done" in await kinds(other, good_run.id)

    async def test_an_effect_in_doubt_is_asked_about_though_another_one_failed(self, durable):
        async def do():
            await asyncio.Event().wait()

        tool = Tool("do", do)

        def good(ctx):
            return Outcome("two", effects=[Effect("do", {})], set={"one": True})

        engine = await durable.engine(*siblings(good, [tool]))
        run_id = await engine.start("root")
        await until(lambda: begun(engine, f"{run_id}.good"))
        await until(lambda: ended(engine, f"{run_id}.bad"))
        await engine.stop(grace=0)
        other = await durable.engine(*siblings(good, [tool]))
        assert (await other.finish(run_id)).status is Status.WAITING
        await other.resolve(f"{run_id}.good", "happened")
        run = await other.finish(run_id)
        assert run.status is Status.SUCCEEDED
        assert (await other.get(f"{run_id}.good")).data["one"] is True

    async def test_one_that_waits_for_a_person_need_not_be_answered_any_more(self, bench):
        engine = await bench.engine(*siblings(lambda ctx: Hold()))
        run = await engine.run("root")
        assert run.data["ended"][1] == ["good", "cancelled", HALTED]


async def ended(engine, run_id):
    return await there(engine, run_id) and (await engine.get(run_id)).status.is_end


async def begun(engine, run_id):
    return await there(engine, run_id) and (await engine.get(run_id)).begun is not None


async def there(engine, run_id):
    return run_id in await engine.store.find(run_id)
