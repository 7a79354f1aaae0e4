"""Where code that is not ours is called: off the event loop, until it has shown to be quick."""

from __future__ import annotations

import asyncio
import functools
import threading
import time

from detent.engine.calls import TRIALS, Pace, call, in_threads, pace_of, watched
from detent.engine.outcome import Effect, Outcome
from detent.engine.step import Step
from detent.engine.tools import Tool, query
from detent.kernel.status import Status
from tests.engine.conftest import flow_of, one_step, until


async def test_plain_handlers_that_wait_wait_side_by_side(quick):
    """Five runs meet in a plain function: on the event loop the first would wait for ever."""
    meeting = threading.Barrier(5, timeout=20)
    engine = await quick.engine(one_step(lambda ctx: {"place": meeting.wait() >= 0}))
    runs = await asyncio.gather(*(engine.run("flow") for _ in range(5)))
    assert [run.data["place"] for run in runs] == [True] * 5


async def test_plain_effects_queries_and_answers_wait_side_by_side(quick):
    meeting = threading.Barrier(3, timeout=20)

    @query("look")
    def look():
        return meeting.wait() >= 0

    async def work(ctx):
        seen = await ctx.query("look")
        paid = await ctx.once("paid", lambda: meeting.wait() >= 0)
        return Outcome(set={"seen": seen, "paid": paid}, effects=[Effect("act", {})])

    flow = one_step(work, tools=[look, Tool("act", lambda: meeting.wait() >= 0)])
    engine = await quick.engine(flow)
    runs = await asyncio.gather(*(engine.run("flow") for _ in range(3)))
    assert [run.status for run in runs] == [Status.SUCCEEDED] * 3


async def test_a_handler_that_is_quick_every_time_earns_the_event_loop(quick):
    where = []

    def work(ctx):
        where.append(threading.current_thread() is threading.main_thread())
        return "work" if len(where) < TRIALS * 200 else "done"

    engine = await quick.engine(flow_of({"work": ["work", "done"]}, {"work": work}))
    await engine.run("flow")
    assert not any(where[:TRIALS])
    assert any(where)


def test_a_function_that_was_slow_on_the_loop_goes_back_to_threads_and_needs_more_evidence():
    pace = Pace()
    for _ in range(TRIALS):
        assert not pace.on_loop
        pace.took(0.0)
    assert pace.on_loop
    pace.held_up()
    assert not pace.on_loop
    for _ in range(2 * TRIALS):
        assert not pace.on_loop
        pace.took(0.0)
    assert pace.on_loop


def test_a_single_slow_call_breaks_the_streak():
    pace = Pace()
    for _ in range(TRIALS - 1):
        pace.took(0.0)
    pace.took(1.0)
    for _ in range(TRIALS - 1):
        pace.took(0.0)
    assert not pace.on_loop


async def test_a_function_that_waits_for_the_event_loop_never_earns_it():
    """It would wait for ever there."""
    loop = asyncio.get_running_loop()

    async def answer():
        return 42

    def ask():
        return asyncio.run_coroutine_threadsafe(answer(), loop).result(20)

    for _ in range(TRIALS * 10):
        assert await call(ask, None) == 42
    assert not pace_of(ask).on_loop


def test_wrappers_partials_and_methods_are_known_by_the_code_they_call():
    def plain():
        pass

    @functools.wraps(plain)
    def wrapper():
        return plain()

    class Callable:
        def __call__(self):
            pass

        def method(self):
            pass

    assert pace_of(plain) is pace_of(wrapper) is pace_of(functools.partial(plain))
    assert pace_of(Callable()) is pace_of(Callable())
    assert pace_of(Callable().method) is pace_of(Callable.method)
    assert pace_of(time.sleep) is not pace_of(time.sleep)


async def test_a_step_may_insist_on_the_loop_or_on_a_thread(quick):
    seen = {}

    def look(name):
        def work(ctx):
            seen.setdefault(name, set()).add(threading.current_thread() is threading.main_thread())
            return "work" if ctx.visit < 50 else "done"

        return work

    for name, blocking in (("loop", False), ("thread", True)):
        step = Step("work", look(name), blocking=blocking)
        engine = await quick.engine(flow_of({"work": ["work", "done"]}, {"work": step}, name=name))
        await engine.run(name)
    assert seen == {"loop": {True}, "thread": {False}}


async def test_calls_in_threads_are_known_while_they_go_on():
    begun, release = threading.Event(), threading.Event()

    def work():
        begun.set()
        release.wait(20)

    with watched() as calls:
        waiting = asyncio.ensure_future(call(work, True))
        await until(begun.is_set)
    assert in_threads().running >= 1
    waiting.cancel()
    await asyncio.wait({waiting})
    (future,) = calls
    assert not future.done()  # nobody waits for it, and it goes on
    release.set()
    await until(future.done)
