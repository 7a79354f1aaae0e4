"""Cancelled with what it did undone; and siblings that end because another one failed."""

from __future__ import annotations

import asyncio

import pytest

from detent.engine.children import HALTED
from detent.engine.flow import Flow
from detent.engine.outcome import Effect, Hold, Outcome
from detent.engine.tools import NOT_DONE, Tool, ToolError
from detent.kernel.errors import ConfigurationError, RunStateError
from detent.kernel.machine import Machine
from detent.kernel.policy import RetryPolicy
from detent.kernel.status import Status
from tests.engine import answers
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
        assert elsewhere.active.runs_under_way() == []

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


def ordering(do, log, **options):
    """Orders one thing in the second step and can undo it; `do` is the tool's work."""

    def work(ctx):
        receipt = ctx.propose("order")
        return Outcome("done", set={"ordered": {"number": receipt.number}})

    async def back(ctx):
        log.append(("undone", dict(ctx.data.ordered) if "ordered" in ctx.data else None))
        return Outcome("cancelled")

    return undoable(log, work, back, tools=[Tool("order", do, **options)])


class Shop:
    """Takes orders when its door is open; keeps what was ordered."""

    def __init__(self) -> None:
        self.orders: list[int] = []
        self.door = asyncio.Event()
        self.asked = asyncio.Event()

    async def order(self):
        self.asked.set()
        await self.door.wait()
        self.orders.append(len(self.orders) + 1)
        return {"number": len(self.orders)}

    async def order_and_hang(self):
        self.orders.append(len(self.orders) + 1)
        self.asked.set()
        await self.door.wait()
        return {"number": len(self.orders)}

    def find(self):
        return {"number": self.orders[0]} if self.orders else NOT_DONE


UNDONE = [("undone", {"number": 1})]


class TestEffectsUnderWay:
    """Called off while an effect is under way: that is finished, written down, and undone with the rest."""

    async def test_here(self, bench):
        shop, log = Shop(), []
        engine = await bench.engine(ordering(shop.order, log))
        run_id = await engine.start("flow")
        await shop.asked.wait()
        await engine.cancel(run_id, undo=True, by="ann", reason="not needed")
        await engine.cancel(run_id, undo=True, by="bob")  # asked again, nothing changes
        assert log == []
        shop.door.set()
        run = await engine.finish(run_id)
        assert (run.status, shop.orders, log) == (Status.CANCELLED, [1], UNDONE)
        assert run.data["cancelled_by"] == "ann"
        assert (await kinds(engine, run_id))[2:] == [
            "proposed", "effect_begun", "called_off", "effect_done", "moved", "moved",
        ]  # fmt: skip
        (last,) = [entry.body for entry in await journal(engine, run_id) if entry.seq == 7]
        assert (last.frm, last.to, last.reason) == ("second", "back", "not needed")

    async def test_elsewhere(self, durable):
        shop, log = Shop(), []
        elsewhere = await durable.engine(ordering(shop.order, log))
        here = await durable.engine(ordering(shop.order, log))
        run_id = await elsewhere.start("flow")
        await shop.asked.wait()
        await here.cancel(run_id, undo=True)
        assert (await here.get(run_id)).called_off == {"reason": "cancelled", "by": "person"}
        shop.door.set()
        assert (await here.finish(run_id)).status is Status.CANCELLED
        assert (shop.orders, log) == ([1], UNDONE)

    @pytest.mark.parametrize(
        "options", [{"idempotent": True}, {"probe": True}], ids=["repeated", "asked about"]
    )
    async def test_whose_worker_died(self, durable, options):
        shop, log = Shop(), []
        if "probe" in options:
            options = {"probe": shop.find}
        engine = await durable.engine(ordering(shop.order_and_hang, log, **options))
        run_id = await engine.start("flow")
        await shop.asked.wait()
        await engine.stop(grace=0)
        shop.door.set()
        other = await durable.engine(ordering(shop.order_and_hang, log, **options))
        await other.cancel(run_id, undo=True)
        assert (await other.finish(run_id)).status is Status.CANCELLED
        done = [entry.body for entry in await journal(other, run_id) if entry.kind == "effect_done"]
        assert [(one.how, one.receipt["number"]) for one in done] == [
            ("probed", 1) if "probe" in options else ("performed", 2)
        ]
        assert log == [("undone", {"number": done[0].receipt["number"]})]

    @pytest.mark.parametrize(
        ("how", "undone"),
        [
            ("happened", {"number": 7}),
            ("skip", {"number": None}),
            ("again", {"number": 2}),
        ],
    )
    async def test_that_nobody_can_ask_about_waits_for_a_person(self, durable, how, undone):
        shop, log = Shop(), []
        engine = await durable.engine(ordering(shop.order_and_hang, log))
        run_id = await engine.start("flow")
        await shop.asked.wait()
        await engine.stop(grace=0)
        shop.door.set()
        other = await durable.engine(ordering(shop.order_and_hang, log))
        await other.cancel(run_id, undo=True)
        assert (await other.finish(run_id)).status is Status.WAITING
        assert log == []
        await other.cancel(run_id, undo=True)  # changes nothing: it is not known yet
        assert (await other.get(run_id)).status is Status.WAITING
        await other.stop()
        third = await durable.engine(ordering(shop.order_and_hang, log))
        await answers.resolve(third, run_id, how, receipt={"number": 7} if how == "happened" else None)
        run = await third.finish(run_id)
        if how == "again":  # nothing had happened: nothing is ordered for a run that is called off
            assert (run.status, len(shop.orders), log) == (Status.CANCELLED, 1, [("undone", None)])
        else:
            assert (run.status, log) == (Status.CANCELLED, [("undone", undone)])

    async def test_that_hangs_is_waited_for_until_its_timeout(self, bench):
        shop, log = Shop(), []
        engine = await bench.engine(ordering(shop.order_and_hang, log, timeout=3, probe=shop.find))
        run_id = await engine.start("flow")
        await shop.asked.wait()
        await engine.cancel(run_id, undo=True)
        assert (await engine.finish(run_id)).status is Status.CANCELLED
        assert (shop.orders, log) == ([1], UNDONE)

    async def test_that_hangs_and_cannot_be_asked_about_waits_for_a_person(self, quick):
        shop, log = Shop(), []
        engine = await quick.engine(ordering(shop.order_and_hang, log, timeout=0.05))
        run_id = await engine.start("flow")
        await shop.asked.wait()
        await engine.cancel(run_id, undo=True)
        assert (await engine.finish(run_id)).status is Status.WAITING
        await answers.resolve(engine, run_id, "happened", receipt={"number": 1})
        assert (await engine.finish(run_id)).status is Status.CANCELLED
        assert log == UNDONE

    async def test_one_that_failed_for_sure_is_not_tried_again(self, quick):
        log = []

        def refuse():
            raise ToolError("busy", "try later", transient=True)

        retry = RetryPolicy(max_attempts=5, wait_min=20.0, wait_max=20.0)
        engine = await quick.engine(ordering(refuse, log, retry=retry))
        run_id = await engine.start("flow")
        await until(lambda: retrying(engine, run_id))
        await engine.cancel(run_id, undo=True)
        assert (await engine.finish(run_id)).status is Status.CANCELLED
        assert log == [("undone", None)]

    async def test_a_step_that_fails_all_the_same_leads_to_undoing_as_cancelled(self, quick):
        shop, log = Shop(), []

        async def refuse():
            shop.asked.set()
            await shop.door.wait()
            raise ToolError("sold_out", "no")

        engine = await quick.engine(ordering(refuse, log))
        run_id = await engine.start("flow")
        await shop.asked.wait()
        await engine.cancel(run_id, undo=True)
        shop.door.set()
        assert (await engine.finish(run_id)).status is Status.CANCELLED
        assert log == [("undone", None)]

    async def test_a_plain_cancellation_afterwards_ends_it_at_once(self, bench):
        shop, log = Shop(), []
        engine = await bench.engine(ordering(shop.order, log))
        run_id = await engine.start("flow")
        await shop.asked.wait()
        await engine.cancel(run_id, undo=True)
        await engine.cancel(run_id)
        assert (await engine.get(run_id)).status is Status.CANCELLED
        assert (shop.orders, log) == ([], [])

    async def test_one_that_was_called_off_before_its_worker_died_is_undone_by_whoever_takes_it_up(
        self, durable
    ):
        shop, log = Shop(), []
        options = {"probe": shop.find}
        engine = await durable.engine(ordering(shop.order_and_hang, log, **options))
        run_id = await engine.start("flow")
        await shop.asked.wait()
        await engine.cancel(run_id, undo=True)
        await engine.stop(grace=0)
        other = await durable.engine(ordering(shop.order_and_hang, log, **options))
        assert await other.resume_all() == [run_id]
        assert (await other.finish(run_id)).status is Status.CANCELLED
        assert (shop.orders, log) == ([1], UNDONE)

    async def test_one_that_came_to_its_end_meanwhile_is_told(self, quick):
        engine = await quick.engine(ordering(lambda: {"number": 1}, []))
        run = await engine.run("flow")
        with pytest.raises(RunStateError, match="already ended"):
            await engine.cancel(run.id, undo=True)


def family(shop, log, **options):
    """A run whose second step has a child that has a child that orders."""

    async def work(ctx):
        await ctx.child("middle", key="middle")
        return Outcome("done")

    async def middle(ctx):
        await ctx.child("leaf", key="leaf")

    async def back(ctx):
        open_ = [past.run.id for past in (await ctx.lineage())[1:] if not past.run.status.is_end]
        await ctx.cancel_descendants(open_, "undone")
        log.append([dict(past.run.data) for past in await ctx.lineage()][2])
        return Outcome("cancelled")

    def order(ctx):
        receipt = ctx.propose("order")
        return Outcome("more", set={"number": receipt.number})

    leaf = flow_of(
        {"work": ["more"], "more": ["done"]},
        {"work": order, "more": lambda ctx: log.append("more")},
        name="leaf", tools=[Tool("order", getattr(shop, options.pop("work", "order")), **options)],
    )  # fmt: skip
    return [undoable(log, work, back), one_step(middle, name="middle"), leaf]


class TestEffectsUnderWayBelow:
    async def test_they_are_finished_and_no_other_step_is_begun(self, bench):
        shop, log = Shop(), []
        engine = await bench.engine(*family(shop, log), concurrency=1)
        run_id = await engine.start("flow")
        await shop.asked.wait()
        await engine.cancel(run_id, undo=True)
        assert (await engine.get(f"{run_id}.middle")).status is Status.CANCELLED
        shop.door.set()
        assert (await engine.finish(run_id)).status is Status.CANCELLED
        assert (shop.orders, log) == ([1], [{"number": 1}])
        assert (await engine.get(f"{run_id}.middle.leaf")).status is Status.CANCELLED

    async def test_elsewhere_too(self, durable):
        shop, log = Shop(), []
        elsewhere = await durable.engine(*family(shop, log))
        here = await durable.engine(*family(shop, log))
        run_id = await elsewhere.start("flow")
        await shop.asked.wait()
        await here.cancel(run_id, undo=True)
        await until(
            lambda: getattr(elsewhere.active.driver_of(f"{run_id}.middle.leaf"), "cancellation", None)
        )
        shop.door.set()
        assert (await here.finish(run_id)).status is Status.CANCELLED
        assert (shop.orders, log) == ([1], [{"number": 1}])

    async def test_one_in_doubt_is_waited_for_and_then_undone(self, durable):
        shop, log = Shop(), []
        engine = await durable.engine(*family(shop, log, work="order_and_hang"))
        run_id = await engine.start("flow")
        await shop.asked.wait()
        await engine.stop(grace=0)
        other = await durable.engine(*family(shop, log, work="order_and_hang"))
        await other.cancel(run_id, undo=True)
        assert (await other.finish(run_id)).status is Status.WAITING
        assert log == []
        await other.stop()
        third = await durable.engine(*family(shop, log, work="order_and_hang"))
        await answers.resolve(third, f"{run_id}.middle.leaf", "happened", receipt={"number": 1})
        await until(lambda: ended(third, run_id))
        assert (await third.get(run_id)).status is Status.CANCELLED
        assert (shop.orders, log) == ([1], [{"number": 1}])

    async def test_one_left_by_a_dead_worker_is_never_driven_further_than_that(self, durable):
        shop, log = Shop(), []
        engine = await durable.engine(*family(shop, log, work="order_and_hang", probe=shop.find))
        run_id = await engine.start("flow")
        await shop.asked.wait()
        await engine.cancel(run_id, undo=True, drive=False)
        await engine.stop(grace=0)
        other = await durable.engine(*family(shop, log, work="order_and_hang", probe=shop.find))
        await other.resume(f"{run_id}.middle.leaf")
        leaf = await other.finish(f"{run_id}.middle.leaf")
        assert (leaf.status, leaf.data, log) == (Status.CANCELLED, {"number": 1}, [])
        assert (await other.finish(run_id)).status is Status.CANCELLED
        assert log == [{"number": 1}]


async def retrying(engine, run_id):
    return (await engine.get(run_id)).retry_at is not None


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
        await until(lambda: getattr(engine.active.driver_of(f"{run_id}.good"), "cancellation", None))
        failed.set()
        run = await engine.finish(run_id)
        assert run.data["ended"][1] == ["good", "cancelled", HALTED.reason]
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
            ["bad", "failed", "work failed: ValueError"], ["good", "cancelled", HALTED.reason],
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
        await answers.resolve(other, f"{run_id}.good", "happened")
        run = await other.finish(run_id)
        assert run.status is Status.SUCCEEDED
        assert (await other.get(f"{run_id}.good")).data["one"] is True

    async def test_one_that_waits_for_a_person_need_not_be_answered_any_more(self, bench):
        engine = await bench.engine(*siblings(lambda ctx: Hold()))
        run = await engine.run("root")
        assert run.data["ended"][1] == ["good", "cancelled", HALTED.reason]


async def ended(engine, run_id):
    return await there(engine, run_id) and (await engine.get(run_id)).status.is_end


async def begun(engine, run_id):
    return await there(engine, run_id) and (await engine.get(run_id)).begun is not None


async def there(engine, run_id):
    return run_id in await engine.store.find(run_id)
