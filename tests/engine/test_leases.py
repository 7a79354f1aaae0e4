"""Who is alive: busy, stopped, cut off, with clocks that differ. Nothing happens twice for any of it."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
import time

import pytest

from detent.adapters.stores.memory import MemoryStore
from detent.adapters.stores.sqlite import SQLiteStore
from detent.engine.engine import Engine
from detent.engine.outcome import Effect, Outcome
from detent.engine.step import Step
from detent.engine.tools import NOT_DONE, Tool
from detent.kernel.errors import ConfigurationError, RunBusy
from detent.kernel.policy import RetryPolicy
from detent.kernel.status import Status
from detent.testing.clock import HandClock
from detent.testing.disturbed import Cut, WrongClock
from tests.engine import worker
from tests.engine.conftest import journal, kinds, one_step, until

SHORT = 0.6
"""A lease that runs out while a test watches."""


def booking(perform, **options):
    """A flow whose only step has one effect."""
    flow = one_step(
        lambda ctx: Outcome(effects=[Effect("book", {})]), tools=[Tool("book", perform, **options)]
    )
    return flow


class TestOnOneMachine:
    """A process that runs is alive, however long it has not been heard of."""

    @pytest.mark.parametrize("command", ["blocking-tool", "blocking-step", "blocking-loop"])
    async def test_a_busy_worker_is_not_taken_for_dead(self, tmp_path, durable, command):
        """`time.sleep` far beyond the lease, in a plain tool, a plain step, and on the event loop itself."""
        process = worker.spawn(tmp_path, "serve", command, "b", str(SHORT))
        await until(lambda: (tmp_path / "busy").exists(), 30)
        second = await durable.engine(*worker.flows(tmp_path), lease=SHORT)
        serving = asyncio.ensure_future(second.serve(poll=0.02))
        await until(lambda: (tmp_path / "told").exists(), 60)
        await until(lambda: _ended(second, "b"), 60)
        serving.cancel()
        process.communicate(timeout=60)
        assert worker.told(tmp_path) == ["once"]
        assert "claimed" not in await kinds(second, "b")

    async def test_a_stopped_process_keeps_its_runs(self, tmp_path, durable):
        process = worker.spawn(tmp_path, "serve", "slow", "s", str(SHORT))
        await until(lambda: list(tmp_path.glob("slow-*")), 30)
        process.send_signal(signal.SIGSTOP)
        second = await durable.engine(*worker.flows(tmp_path), lease=SHORT)
        await until(lambda: _lapsed(second))
        assert await second.resume_all() == []
        with pytest.raises(RunBusy):
            await second.resume("s")
        process.send_signal(signal.SIGCONT)
        (tmp_path / "go").touch()
        assert process.communicate(timeout=60)[0].strip() == "succeeded"
        assert "claimed" not in await kinds(second, "s")

    @pytest.mark.parametrize("seconds", [60.0, 86400.0, -86400.0])
    async def test_wall_clocks_do_not_decide_who_is_alive(self, bench, seconds):
        """Neither on one machine nor between two: a clock may be wrong, or be set under way."""
        gate, begun = asyncio.Event(), []

        async def book():
            begun.append(1)
            await gate.wait()

        first = await bench.engine(booking(book), host="first")
        run_id = await first.start("flow")
        await until(lambda: begun)
        for host in ("first", "second"):
            other = await bench.engine(booking(book), host=host, clock=WrongClock(seconds))
            assert await other.resume_all() == []
            with pytest.raises(RunBusy):
                await other.resume(run_id)
        gate.set()
        assert (await first.finish(run_id)).status is Status.SUCCEEDED
        assert begun == [1]

    async def test_a_worker_whose_loop_closed_without_a_word_lets_its_runs_go(self, tmp_path, durable):
        entered = threading.Event()

        async def begin():
            async def stuck(ctx):
                entered.set()
                await asyncio.Event().wait()

            engine = Engine(durable.store(), [one_step(stuck)], lease=SHORT)
            await engine.open()
            await engine.start("flow", run_id="r")
            await until(entered.is_set)

        await asyncio.to_thread(asyncio.run, begin())
        engine = await durable.engine(one_step(lambda ctx: {"by": "the next"}))
        await until(lambda: engine.resume_all())
        assert (await engine.finish("r")).data == {"by": "the next"}


class TestCallsThatCannotBeStopped:
    """A thread goes on whatever becomes of who started it. Until it is over, "not done" is no answer."""

    async def test_a_timed_out_plain_tool_is_not_performed_again_while_it_runs(self, bench):
        """The probe says "not done" because the call is under way: that is no answer."""
        done, release = [], threading.Event()

        def book():
            release.wait(20)
            done.append(1)

        flow = booking(
            book, probe=lambda: {} if done else NOT_DONE, timeout=0.05,
            retry=RetryPolicy(max_attempts=3, wait_min=0, wait_max=0),
        )  # fmt: skip
        engine = await bench.engine(flow)
        run = await engine.run("flow")
        assert run.status is Status.WAITING
        (hold,) = run.holds.values()
        assert "cannot be stopped" in hold.question
        release.set()
        await until(lambda: done)
        await engine.resolve(run.id, "happened", hold=run.token())
        assert (await engine.finish(run.id)).status is Status.SUCCEEDED
        assert done == [1]

    async def test_a_probe_that_finds_it_done_is_believed_all_the_same(self, bench):
        done, release = [], threading.Event()

        def book():
            done.append(1)
            release.wait(20)

        engine = await bench.engine(booking(book, probe=lambda: {"done": len(done)}, timeout=0.05))
        run = await engine.run("flow")
        release.set()
        assert (run.status, done) == (Status.SUCCEEDED, [1])

    async def test_an_engine_that_stops_amid_a_plain_tool_keeps_the_run_until_the_tool_is_over(self, durable):
        done, begun, release = [], threading.Event(), threading.Event()

        def book():
            begun.set()
            release.wait(20)
            done.append(1)

        flow = booking(book, probe=lambda: {} if done else NOT_DONE)
        first = Engine(durable.store(), [flow], lease=SHORT)
        await first.open()
        run_id = await first.start("flow")
        await until(begun.is_set)
        await first.stop(grace=0)
        second = await durable.engine(flow)
        assert await second.resume_all() == []
        with pytest.raises(RunBusy):
            await second.resume(run_id)
        release.set()
        await until(lambda: second.resume_all())
        assert (await second.finish(run_id)).status is Status.SUCCEEDED
        assert done == [1]

    async def test_a_worker_elsewhere_is_waited_for_as_long_as_its_call_may_take(self, bench):
        """Its lease ran out: it may be cut off, and its thread amid the call."""
        asked, begun, release = [], threading.Event(), threading.Event()

        def book():
            begun.set()
            release.wait(20)

        def probe():
            asked.append(1)
            return {"id": 7}

        flow = booking(book, probe=probe, timeout=3)
        first = await bench.engine(flow, host="elsewhere")
        run_id = await first.start("flow")
        await until(begun.is_set)
        bench.let_leases_run_out()
        clock = HandClock(breath=0.01)
        second = await bench.engine(flow, clock=clock)
        assert await second.resume_all() == [run_id]
        await clock.turn(2.9)
        assert asked == []
        await clock.turn(0.2)
        await until(lambda: asked)
        run = await second.finish(run_id)
        release.set()
        assert (run.status, asked) == (Status.SUCCEEDED, [1])

    async def test_a_worker_that_died_here_is_not_waited_for(self, tmp_path, durable):
        process = worker.spawn(tmp_path, "serve", "blocking-tool", "b", "15")
        await until(lambda: (tmp_path / "busy").exists(), 30)
        process.kill()
        process.wait()
        engine = await durable.engine(*worker.flows(tmp_path))
        assert await engine.resume_all() == ["b"]
        assert (await engine.finish("b")).status is Status.SUCCEEDED
        assert worker.told(tmp_path) == ["once"]

    @pytest.mark.parametrize("how", ["to_thread", "run_in_executor"])
    async def test_an_async_tool_that_waits_in_a_thread_is_known_to_be_running(self, bench, how):
        done, release = [], threading.Event()

        def post():
            release.wait(20)
            done.append(1)

        async def book():
            if how == "to_thread":
                await asyncio.to_thread(post)
            else:
                await asyncio.get_running_loop().run_in_executor(None, post)

        flow = booking(book, probe=lambda: {} if done else NOT_DONE, timeout=0.05)
        engine = await bench.engine(flow)
        run = await engine.run("flow")
        assert run.status is Status.WAITING
        release.set()
        await until(lambda: done)
        await engine.resolve(run.id, "again", hold=run.token())  # a person may be wrong, and waits for it
        assert (await engine.finish(run.id)).status in (Status.WAITING, Status.SUCCEEDED)

    async def test_an_opaque_step_that_gave_up_on_a_thread_is_in_doubt(self, quick):
        done, release = [], threading.Event()

        def post():
            release.wait(20)
            done.append(1)

        async def work(ctx):
            return await ctx.act("post")

        step = Step("work", work, opaque=True, into="posted", retry=RetryPolicy(3, 0, 0))
        engine = await quick.engine(one_step(step, tools=[Tool("post", post, timeout=0.05)]))
        run = await engine.run("flow")
        release.set()
        await until(lambda: done)
        assert (run.status, done) == (Status.WAITING, [1])

    async def test_an_engine_that_was_dropped_amid_a_plain_tool_is_not_taken_for_gone(self, durable):
        done, begun, release = [], threading.Event(), threading.Event()

        def book():
            begun.set()
            release.wait(20)
            done.append(1)

        flow = booking(book, probe=lambda: {} if done else NOT_DONE)
        first = Engine(durable.store(), [flow], lease=SHORT)
        await first.open()
        run_id = await first.start("flow")
        await until(begun.is_set)
        await first.stop(grace=0)
        del first
        gc.collect()
        second = await durable.engine(flow)
        assert await second.resume_all() == []
        release.set()
        await until(lambda: second.resume_all())
        assert (await second.finish(run_id)).status is Status.SUCCEEDED
        assert done == [1]

    async def test_a_process_that_lives_on_frees_the_run_once_its_tool_is_over(self, tmp_path, durable):
        """Seen from another process, which cannot know what goes on in that one."""
        process = worker.spawn(tmp_path, "abandon", "blocking-tool", "b", str(SHORT))
        await until(lambda: (tmp_path / "stopped").exists(), 30)
        engine = await durable.engine(*worker.flows(tmp_path))
        await until(lambda: engine.resume_all(), 30)
        assert (await engine.finish("b")).status is Status.SUCCEEDED
        assert worker.told(tmp_path) == ["once"]
        (tmp_path / "go").touch()
        process.communicate(timeout=60)


class TestIdentity:
    """One engine in several event loops and processes."""

    def test_an_engine_used_in_two_loops_is_a_worker_in_both(self, tmp_path):
        async def book():
            await asyncio.sleep(0)

        engine = Engine(SQLiteStore(tmp_path / "detent.db"), [booking(book)], lease=SHORT)

        async def go(last):
            await engine.open()
            run = await engine.run("flow")
            known = [one.id for one in await engine.store.workers()]
            if last:
                await engine.stop()
            return run.status, known

        asyncio.run(go(False))
        heartbeat = engine.active.leases._heartbeat
        while heartbeat is not None and heartbeat.alive:
            time.sleep(0.02)
        assert asyncio.run(go(True)) == (Status.SUCCEEDED, [engine.active.leases.me.id])

    async def test_a_worker_id_that_a_living_process_has_is_refused(self, tmp_path, durable):
        process = worker.spawn(tmp_path, "serve", "slow", "s", "15")
        await until(lambda: list(tmp_path.glob("slow-*")), 30)
        store = durable.store()
        await store.open()
        (theirs,) = await store.workers()
        await store.close()
        engine = await durable.engine(one_step(lambda ctx: None), worker_id=theirs.id)
        with pytest.raises(ConfigurationError, match="is taken by process"):
            await engine.start("flow")
        (tmp_path / "go").touch()
        process.communicate(timeout=60)


class TestCutOff:
    """A worker on another machine loses its store amid an effect."""

    async def test_it_gives_its_call_up_before_another_acts(self):
        store, line, happened, gate = MemoryStore(), Cut(), [], asyncio.Event()

        def book(who):
            async def perform():
                happened.append(f"{who} begins")
                try:
                    await gate.wait()
                except asyncio.CancelledError:
                    happened.append(f"{who} gives up")
                    raise
                happened.append(f"{who} is done")

            return perform

        flow = booking(book("first"), probe=lambda: NOT_DONE, timeout=1)
        async with Engine(line.store(store), [flow], host="a", lease=SHORT) as first:
            run_id = await first.start("flow")
            await until(lambda: happened)
            line.cut(60)
            async with Engine(store, [booking(book("second"), probe=lambda: NOT_DONE)], host="b") as second:
                await until(lambda: second.resume_all())
                await until(lambda: "second begins" in happened)
                gate.set()
                assert (await second.finish(run_id)).status is Status.SUCCEEDED
                line.mend()
        assert happened == ["first begins", "first gives up", "second begins", "second is done"]

    async def test_a_jump_of_the_wall_clock_has_the_claim_confirmed(self):
        """A suspended machine: its own lease looks good, and another has taken the run."""

        class Overtaken(MemoryStore):
            """Just after an effect was written down as begun, the machine sleeps and another worker comes."""

            async def append(self, commit):
                size = await super().append(commit)
                if any(entry.kind == "effect_begun" for entry in commit.entries):
                    clock.seconds = 3600.0
                    await self.claim(commit.lease.run_id, "another", await self.workers())
                return size

        clock, done = WrongClock(0.0), []
        async with Engine(Overtaken(), [booking(lambda: done.append(1))], clock=clock) as engine:
            run_id = await engine.start("flow")
            await until(lambda: engine.active.under_way(run_id) is None)
            assert (await engine.store.row(run_id)).owner == "another"
        assert done == []


class TestStrays:
    async def test_a_claim_that_never_reached_a_driver_is_given_up(self, bench):
        """The store calls the run ours; nobody here drives it, and nobody else may."""
        first = await bench.engine(one_step(lambda ctx: None), lease=SHORT)
        run_id = await first.start("flow", drive=False)
        await first.active.register()
        await first.store.claim(run_id, first.active.leases.me.id)
        second = await bench.engine(one_step(lambda ctx: None))
        with pytest.raises(RunBusy):
            await second.resume(run_id)
        await until(lambda: second.resume_all())
        assert (await second.finish(run_id)).status is Status.SUCCEEDED

    async def test_what_is_under_way_is_not(self, bench):
        gate = asyncio.Event()

        async def work(ctx):
            await gate.wait()

        engine = await bench.engine(one_step(work), lease=SHORT)
        run_id = await engine.start("flow")
        beats = engine.store.__class__.owned
        looks = []

        async def owned(worker_id):
            looks.append(1)
            return await beats(engine.store, worker_id)

        engine.store.owned = owned
        await until(lambda: len(looks) >= 4)
        gate.set()
        assert (await engine.finish(run_id)).status is Status.SUCCEEDED
        assert {entry.epoch for entry in await journal(engine, run_id)} == {1}


async def _ended(engine, run_id):
    return (await engine.store.row(run_id)).now.status.is_end


async def _lapsed(engine):
    return any(one.left < 0 for one in await engine.store.workers() if one.pid != os.getpid())
