"""Taking up what was left: by a process that stopped, one that died, or one that runs other code now."""

from __future__ import annotations

import asyncio

import pytest

from detent.engine.flow import Migration
from detent.engine.outcome import Effect, Hold, Outcome
from detent.engine.step import Step
from detent.engine.step_failures import Transient
from detent.engine.tools import NOT_DONE, Tool
from detent.kernel.entries import Claimed
from detent.kernel.errors import (
    ConfigurationError,
    DefinitionChanged,
    FlowNotFound,
    ReplayedRun,
    RunBusy,
    RunExists,
    RunNotFound,
    RunStateError,
)
from detent.kernel.policy import RetryPolicy
from detent.kernel.run_config import REPLAYED
from detent.kernel.status import Status
from tests.engine import answers, worker
from tests.engine.conftest import flow_of, journal, kinds, one_step, until


def stuck_then(handler=lambda ctx: None):
    """Two flows of one name: the first stops in its second step, the other goes on with `handler`."""
    entered = asyncio.Event()

    async def stuck(ctx):
        entered.set()
        await asyncio.sleep(60)

    moves = {"a": ["b"], "b": ["done"]}
    first = flow_of(moves, {"a": lambda ctx: {"a": 1}, "b": stuck})
    second = flow_of(moves, {"a": lambda ctx: {"a": 2}, "b": handler})
    return first, second, entered


class TestResuming:
    async def test_a_run_goes_on_in_the_state_it_was_left_in(self, bench):
        flow, again, entered = stuck_then()
        first = await bench.engine(flow)
        run_id = await first.start("flow")
        await entered.wait()
        await first.stop(grace=0)
        second = await bench.engine(again)
        assert await second.resume(run_id) == run_id
        run = await second.finish(run_id)
        assert (run.status, run.data) == (Status.SUCCEEDED, {"a": 1})

    async def test_everything_left_lying_is_taken_up(self, bench):
        engine = await bench.engine(one_step(lambda ctx: None), one_step(lambda ctx: None, name="other"))
        left = [await engine.start(name, drive=False) for name in ("flow", "other", "flow")]
        assert sorted(await engine.resume_all(flows=["flow"])) == sorted([left[0], left[2]])
        assert await engine.resume_all() == [left[1]]
        for run_id in left:
            assert (await engine.finish(run_id)).status is Status.SUCCEEDED
        assert await engine.resume_all() == []

    async def test_many_runs_of_unknown_flows_do_not_hide_the_others(self, quick):
        other = await quick.engine(one_step(lambda ctx: None, name="unknown"))
        for _ in range(510):
            await other.start("unknown", drive=False)
        engine = await quick.engine(one_step(lambda ctx: None))
        run_id = await engine.start("flow", drive=False)
        assert await engine.resume_all() == [run_id]

    async def test_what_cannot_be_resumed_says_why(self, bench):
        engine = await bench.engine(one_step(lambda ctx: Hold("approve") if ctx.data.get("hold") else None))
        with pytest.raises(RunNotFound):
            await engine.resume("nobody")
        done = await engine.run("flow")
        with pytest.raises(RunStateError, match="has ended"):
            await engine.resume(done.id)
        waiting = await engine.run("flow", {"hold": True})
        with pytest.raises(RunStateError, match="waits for person 'approve@2'"):
            await engine.resume(waiting.id)

    async def test_a_run_of_an_unknown_flow_is_not_resumed(self, bench):
        engine = await bench.engine(one_step(lambda ctx: None))
        run_id = await engine.start("flow", drive=False)
        other = await bench.engine()
        with pytest.raises(FlowNotFound):
            await other.resume(run_id)
        assert await engine.resume_all() == [run_id]

    async def test_a_run_under_way_elsewhere_is_busy(self, bench):
        flow, again, entered = stuck_then()
        first = await bench.engine(flow)
        run_id = await first.start("flow")
        await entered.wait()
        second = await bench.engine(again)
        with pytest.raises(RunBusy) as caught:
            await second.resume(run_id)
        assert caught.value.owner == first.active.leases.me.id
        assert await second.resume_all() == []

    async def test_resuming_what_is_under_way_here_changes_nothing(self, quick):
        flow, _, entered = stuck_then()
        engine = await quick.engine(flow)
        run_id = await engine.start("flow")
        await entered.wait()
        assert await engine.resume(run_id) == run_id
        assert (await engine.store.row(run_id)).epoch == 1

    async def test_of_many_who_resume_at_once_one_drives(self, bench):
        calls = []

        async def work(ctx):
            calls.append(1)
            await asyncio.sleep(0.01)

        engine = await bench.engine(one_step(work))
        run_id = await engine.start("flow", drive=False)
        await asyncio.gather(*(engine.resume(run_id) for _ in range(5)), return_exceptions=True)
        assert (await engine.finish(run_id)).status is Status.SUCCEEDED
        assert calls == [1]

    async def test_serving_takes_up_what_appears(self, bench):
        server = await bench.engine(one_step(lambda ctx: None))
        client = await bench.engine(one_step(lambda ctx: None))
        serving = asyncio.ensure_future(server.serve(poll=0.01))
        run_id = await client.start("flow", drive=False)
        await until(lambda: _status(client, run_id, Status.SUCCEEDED))
        serving.cancel()


class TestRoom:
    async def test_a_worker_claims_no_more_than_it_has_room_for(self, bench):
        go = asyncio.Event()

        async def work(ctx):
            await go.wait()

        first = await bench.engine(one_step(work), concurrency=2)
        second = await bench.engine(one_step(work), concurrency=3)
        for _ in range(20):
            await first.start("flow", drive=False)
        assert len(await first.resume_all()) == 2
        assert await first.resume_all() == []
        assert len(await second.resume_all()) == 3
        assert len(await first.store.loose()) == 15
        go.set()

    async def test_two_who_serve_share_what_there_is_and_see_it_all_through(self, bench):
        flow = one_step(lambda ctx: asyncio.sleep(0.005))
        client = await bench.engine(flow)
        runs = [await client.start("flow", drive=False) for _ in range(60)]
        workers = [await bench.engine(flow, concurrency=2) for _ in range(2)]
        serving = [asyncio.ensure_future(engine.serve(poll=0.05)) for engine in workers]
        for run_id in runs:
            await until(lambda run_id=run_id: _status(client, run_id, Status.SUCCEEDED))
        for task in serving:
            task.cancel()
        owners = {(await journal(client, run_id))[-1].epoch for run_id in runs}
        assert owners == {2}  # each was claimed once

    async def test_what_cannot_go_on_here_does_not_stand_in_the_way_of_the_rest(self, bench):
        old = flow_of({"a": ["b"], "b": ["done"]}, {"a": lambda ctx: None, "b": lambda ctx: None})
        new = flow_of({"a": ["done"]}, {"a": lambda ctx: None}, version=2)
        before, engine = await bench.engine(old), await bench.engine(new, concurrency=2)
        for _ in range(10):
            await before.start("flow", drive=False)
        run_id = await engine.start("flow", drive=False)
        assert await engine.resume_all() == [run_id]
        assert (await engine.finish(run_id)).status is Status.SUCCEEDED

    async def test_a_run_that_was_busy_for_a_moment_is_taken_at_the_next_look(self, bench):
        """Claimed with others while another task of this process had just laid hands on it."""
        engine = await bench.engine(one_step(lambda ctx: None))
        serving = asyncio.ensure_future(engine.serve(poll=0.01))
        await until(lambda: engine.active.serving is not None)
        take, busy = engine.store.take, []

        async def taken_meanwhile(*args, **options):
            taken = await take(*args, **options)
            if taken and not busy:
                busy.append(taken[0].lease.run_id)
                engine.active.taking.add(busy[0])
            return taken

        engine.store.take = taken_meanwhile
        run_id = await engine.start("flow", drive=False)
        await until(lambda: busy)
        await until(lambda: _owner(engine, run_id, None))
        engine.active.taking.discard(run_id)
        await until(lambda: _status(engine, run_id, Status.SUCCEEDED))
        serving.cancel()

    async def test_a_run_that_is_being_claimed_stays_so_when_its_parent_starts_it_anew(self, bench):
        """After a crash a parent asks for its children while other tasks claim them: each has one driver."""
        performed = []

        async def book(parcel: str) -> None:
            performed.append(parcel)
            await asyncio.sleep(0.02)

        def found(parcel: str):
            return {} if parcel in performed else NOT_DONE

        def work(ctx):
            return Outcome(effects=[Effect("book", {"parcel": ctx.run_id})])

        kid = one_step(work, name="kid", tools=[Tool("book", book, probe=found)])
        engine = await bench.engine(kid)
        await engine.start("kid", run_id="top.p0", drive=False)
        load, claimed = engine.store.saved_fold, asyncio.Event()

        async def slow(run_id):
            claimed.set()
            await asyncio.sleep(0.02)
            return await load(run_id)

        engine.store.saved_fold = slow
        resuming = asyncio.ensure_future(engine.resume("top.p0"))
        await claimed.wait()
        with pytest.raises(RunExists):
            await engine.start("kid", run_id="top.p0")
        with pytest.raises(RunBusy):
            await engine.resume("top.p0")
        await resuming
        assert (await engine.finish("top.p0")).status is Status.SUCCEEDED
        assert performed == ["top.p0"]

    async def test_a_run_that_queues_for_long_is_given_back(self, bench, clock):
        """It comes back from a retry and finds the only slot taken; another worker has room."""
        at_work = {"short": asyncio.Event(), "long": asyncio.Event()}
        both_there, go = asyncio.Event(), asyncio.Event()

        async def work(ctx):
            at_work[ctx.run_id].set()
            if ctx.run_id == "long":
                await go.wait()
            elif ctx.attempt == 1:
                await both_there.wait()
                raise Transient("not yet")

        step = Step("work", work, retry=RetryPolicy(3, 30, 30))
        flow = flow_of({"work": ["done", "failed"]}, {"work": step})
        first = await bench.engine(flow, concurrency=1, clock=clock)
        await first.start("flow", run_id="short", drive=False)
        serving = asyncio.ensure_future(first.serve(poll=3600))
        await at_work["short"].wait()
        await first.start("flow", run_id="long", drive=False)
        both_there.set()
        await at_work["long"].wait()  # in the slot that the retry left
        await clock.turn(30)
        await until(lambda: _owner(first, "short", None))
        second = await bench.engine(flow, clock=clock)
        assert await second.resume_all() == ["short"]
        assert (await second.finish("short")).status is Status.SUCCEEDED
        go.set()
        assert (await first.finish("long")).status is Status.SUCCEEDED
        serving.cancel()

    async def test_many_timers_due_at_once_are_answered_together(self, bench, clock):
        def nap(ctx):
            return None if ctx.answered("nap") else Hold("nap", "timer", wake_at=ctx.now() + 60)

        engine = await bench.engine(one_step(nap), clock=clock)
        runs = [await engine.start("flow") for _ in range(100)]
        for run_id in runs:
            await until(lambda run_id=run_id: _status(engine, run_id, Status.WAITING))
        await clock.turn(60)
        for run_id in runs:
            await until(lambda run_id=run_id: _status(engine, run_id, Status.SUCCEEDED))


class TestTakeOver:
    async def test_a_worker_whose_lease_ran_out_elsewhere_is_taken_over_and_stops_quietly(self, bench):
        """The one that slept finds itself fenced at its next commit; nothing of it is written."""
        go = asyncio.Event()
        entered = asyncio.Event()

        async def slow(ctx):
            entered.set()
            await go.wait()
            return {"by": "the one that slept"}

        first = await bench.engine(one_step(slow), host="elsewhere")
        run_id = await first.start("flow")
        await entered.wait()
        bench.let_leases_run_out()
        second = await bench.engine(one_step(lambda ctx: {"by": "the one that took over"}))
        assert await second.resume_all() == [run_id]
        run = await second.finish(run_id)
        assert run.data == {"by": "the one that took over"}
        go.set()
        assert (await first.finish(run_id)).data == {"by": "the one that took over"}
        claimed = next(
            entry.body for entry in await journal(second, run_id) if isinstance(entry.body, Claimed)
        )
        assert claimed.lost == first.active.leases.me.id
        assert (await kinds(second, run_id)).count("moved") == 1

    async def test_a_killed_process_is_noticed_at_once(self, tmp_path, durable):
        process = worker.spawn(tmp_path, "run", "slow", "s")
        await until(lambda: list(tmp_path.glob("slow-*")), 30)
        engine = await durable.engine(*worker.flows(tmp_path))
        with pytest.raises(RunBusy):
            await engine.resume("s")
        process.kill()
        process.wait()
        (tmp_path / "go").touch()
        assert await engine.resume_all() == ["s"]
        assert (await engine.finish("s")).status is Status.SUCCEEDED

    async def test_a_run_that_kills_its_workers_asks_for_attention_in_the_end(self, durable):
        flow = one_step(lambda ctx: Outcome(set={"survived": True}))
        run_id = None
        for number in range(3):
            # A worker that claims the run and is never heard of again.
            engine = await durable.engine(flow, worker_id=f"w{number}", host=f"h{number}", takeover_limit=3)
            if run_id is None:
                run_id = await engine.start("flow", drive=False)
            await engine.active.register()
            await engine.store.claim(run_id, f"w{number}", await engine.active.leases.dead())
            await _claimed(engine, run_id, f"w{number - 1}")
            durable.let_leases_run_out()
        last = await durable.engine(flow, takeover_limit=3)
        await last.resume_all()
        run = await last.get(run_id)
        assert run.status is Status.WAITING
        assert run.holds["takeovers"].choices == ["continue", "cancel"]
        await answers.release(last, run_id, "continue")
        assert (await last.finish(run_id)).data == {"survived": True}

    def test_a_process_that_dies_in_a_step_is_taken_over_and_counted(self, tmp_path):
        for _ in range(2):
            worker.call(tmp_path, "run" if not (tmp_path / "detent.db").exists() else "resume", *(
                ("die", "d") if not (tmp_path / "detent.db").exists() else ("d",)
            ))  # fmt: skip

        async def look():
            from detent.adapters.stores.sqlite import SQLiteStore
            from detent.engine.engine import Engine

            async with Engine(SQLiteStore(tmp_path / "detent.db"), worker.flows(tmp_path)) as engine:
                return await kinds(engine, "d")

        assert asyncio.run(look()) == ["started", "claimed"]


class TestChangedDefinition:
    def versions(self, **options):
        old = flow_of({"a": ["b"], "b": ["done"]}, {"a": lambda ctx: Hold(), "b": lambda ctx: None})
        new = flow_of(
            {"a": ["c"], "c": ["done", "failed"]},
            {"a": lambda ctx: Hold(), "c": lambda ctx: {"in": "c"}},
            version=2,
            **options,
        )
        return old, new

    async def waiting(self, bench, old):
        engine = await bench.engine(old)
        run = await engine.run("flow", {"x": 1})
        await engine.stop()
        return run.id

    async def test_it_is_refused_with_the_difference(self, bench):
        old, new = self.versions()
        run_id = await self.waiting(bench, old)
        engine = await bench.engine(new)
        with pytest.raises(DefinitionChanged) as caught:
            await answers.release(engine, run_id, 1)
        assert "version: 1 → 2" in caught.value.difference
        assert "state removed: b" in caught.value.difference
        assert (await engine.get(run_id)).status is Status.WAITING

    async def test_taking_up_everything_passes_it_over(self, bench, caplog):
        old, new = self.versions()
        engine = await bench.engine(old)
        run_id = await engine.start("flow", drive=False)
        other = await bench.engine(new)
        assert await other.resume_all() == []
        assert "run.not_resumed" in caplog.text
        assert await engine.resume_all() == [run_id]

    async def test_a_migration_carries_it_over(self, bench):
        seen = []

        def migrate(run):
            seen.append((run.state, dict(run.data)))
            return Migration("c", {"x": 2}, "b is called c now")

        old, new = self.versions(migrations={1: migrate})
        engine = await bench.engine(old)
        run_id = await engine.start("flow", {"x": 1}, drive=False)
        other = await bench.engine(new)
        await other.resume(run_id)
        run = await other.finish(run_id)
        assert (run.status, run.data) == (Status.SUCCEEDED, {"x": 2, "in": "c"})
        assert seen == [("a", {"x": 1})]
        assert "migrated" in await kinds(other, run_id)
        assert (run.version, run.fingerprint) == (2, new.fingerprint)

    async def test_a_migration_may_go_by_fingerprint(self, quick):
        old, _ = self.versions()
        _, new = self.versions(migrations={old.fingerprint: lambda run: Migration("c")})
        engine = await quick.engine(old)
        run_id = await engine.start("flow", drive=False)
        other = await quick.engine(new)
        await other.resume(run_id)
        assert (await other.finish(run_id)).status is Status.SUCCEEDED

    async def test_a_waiting_run_is_carried_over_when_it_is_answered(self, bench):
        old, new = self.versions(migrations={1: lambda run: Migration(reason="same state")})
        run_id = await self.waiting(bench, old)
        engine = await bench.engine(new)
        await answers.release(engine, run_id, 1)
        run = await engine.finish(run_id)
        assert run.version == 2

    @pytest.mark.parametrize(
        "migrate",
        [
            lambda run: Migration("nowhere"),
            lambda run: Migration("done"),
            lambda run: Migration(set={"x": object()}),
            lambda run: None,
            lambda run: run.data["missing"],
        ],
    )
    async def test_a_bad_migration_is_refused_and_changes_nothing(self, bench, migrate):
        old, new = self.versions(migrations={1: migrate})
        engine = await bench.engine(old)
        run_id = await engine.start("flow", drive=False)
        other = await bench.engine(new)
        with pytest.raises(ConfigurationError, match="migration of run"):
            await other.resume(run_id)
        assert await kinds(other, run_id) == ["started"]
        assert await other.resume_all() == []
        assert await engine.resume_all() == [run_id]

    async def test_a_run_that_has_ended_can_be_read_whatever_changed(self, bench):
        _, new = self.versions()
        engine = await bench.engine(
            flow_of({"a": ["b"], "b": ["done"]}, {"a": lambda ctx: None, "b": lambda ctx: None})
        )
        run = await engine.run("flow")
        other = await bench.engine(new)
        assert (await other.finish(run.id)).status is Status.SUCCEEDED
        with pytest.raises(RunStateError):
            await other.resume(run.id)


class TestAskedByOthers:
    async def test_another_process_cancels_a_run_under_way_here(self, tmp_path, durable):
        entered = asyncio.Event()

        async def stuck(ctx):
            entered.set()
            await asyncio.sleep(60)

        flows = [flow for flow in worker.flows(tmp_path) if flow.name != "slow"]
        engine = await durable.engine(
            flow_of({"work": ["done", "failed"]}, {"work": stuck}, name="slow"), *flows
        )
        await engine.start("slow", run_id="s")
        await entered.wait()
        process = worker.spawn(tmp_path, "cancel", "s")
        run = await engine.finish("s")
        assert run.status is Status.CANCELLED
        text, _ = await asyncio.to_thread(process.communicate, timeout=60)
        assert text.strip() == "cancelled"


class TestDoneOnce:
    async def test_an_effect_done_before_the_death_is_not_done_again(self, bench):
        """Stopped between an effect and the move after it."""
        done = []
        entered = asyncio.Event()

        async def second_effect():
            entered.set()
            await asyncio.sleep(60)

        def make(second):
            return one_step(
                lambda ctx: Outcome(effects=[Effect("first"), Effect("second")]),
                tools=[Tool("first", lambda: done.append("first")), Tool("second", second, idempotent=True)],
            )

        first = await bench.engine(make(second_effect))
        run_id = await first.start("flow")
        await entered.wait()
        await first.stop(grace=0)
        again = await bench.engine(make(lambda: done.append("second")))
        assert (await again.finish(run_id)).status is Status.SUCCEEDED
        assert done == ["first", "second"]


async def _status(engine, run_id, status):
    return (await engine.store.row(run_id)).now.status is status


async def _owner(engine, run_id, owner):
    return (await engine.store.row(run_id)).owner == owner


async def _claimed(engine, run_id, lost):
    """Write down a take-over, as a worker does before it drives."""
    from detent.engine.driver import Driver

    row = await engine.store.row(run_id)
    lease = await engine.store.claim(run_id, row.owner)
    driver = Driver(engine.active, engine.flow("flow"), await engine.get(run_id), lease)
    await driver.commit(Claimed(row.owner, lost))


class TestReplayedRuns:
    """An earlier version kept them in the store; nothing that their journals call done was performed."""

    @staticmethod
    async def kept(bench, calls: list[str]):
        engine = await bench.engine(one_step(lambda ctx: calls.append("work")))
        await engine.start("flow", run_id="r", config={REPLAYED: True}, drive=False)
        return engine

    async def test_nobody_goes_on_with_one(self, bench):
        calls: list[str] = []
        engine = await self.kept(bench, calls)
        with pytest.raises(ReplayedRun, match="replay of a recording.*detent cancel r"):
            await engine.resume("r")
        with pytest.raises(ReplayedRun):
            await engine.finish("r")
        await engine.resume_all()
        assert calls == []
        assert (await engine.get("r")).status is Status.RUNNING

    async def test_it_can_be_cancelled_and_is_not_reopened(self, bench):
        calls: list[str] = []
        engine = await self.kept(bench, calls)
        await engine.cancel("r")
        assert (await engine.get("r")).status is Status.CANCELLED
        with pytest.raises(ReplayedRun):
            await engine.reopen("r")
        assert calls == []
