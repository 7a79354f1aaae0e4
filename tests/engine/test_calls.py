"""Where code that is not ours is called: off the event loop, until it has shown to be quick."""

from __future__ import annotations

import asyncio
import functools
import math
import multiprocessing
import threading
import time

import pytest

from detent.engine.calls import TRIALS, Pace, call, in_threads, pace_of, paced, watched
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
    flow = flow_of({"work": ["work", "done"]}, {"work": lambda ctx: "work" if ctx.visit < 2000 else "done"})
    engine = await quick.engine(flow)
    before = in_threads().returned
    await engine.run("flow")
    handed_over = in_threads().returned - before
    assert TRIALS <= handed_over < 2000


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


LOCK = threading.Lock()
COUNTS = {"n": 0}
KNOWN = functools.lru_cache(lambda key: time.sleep(0))


class _Client:
    def post(self):
        return None


CLIENT = _Client()


def _asks_the_loop(loop, answer):
    return asyncio.run_coroutine_threadsafe(answer(), loop).result(20)


def _counts_under_a_lock():
    with LOCK:
        COUNTS["n"] += 1


def _calls(function):
    def decorated():
        return function()

    return decorated


def _sums(numbers):
    return sum(number * math.pi for number in numbers)


MAY_WAIT = {
    "asks the loop": _asks_the_loop,
    "takes a lock": _counts_under_a_lock,
    "runs a loop of its own": lambda: asyncio.run(asyncio.sleep(0)),
    "asks a cache": lambda: KNOWN(1),
    "calls a client": lambda: CLIENT.post(),
    "sleeps": lambda: time.sleep(0),
    "prints": lambda: print(""),
    "imports": lambda: __import__("socket"),
    "calls one that sleeps": _calls(lambda: time.sleep(0)),
    "is built in": time.sleep,
    "is a method": CLIENT.post,
    "is a partial": functools.partial(time.sleep, 0),
}


@pytest.mark.parametrize("name", MAY_WAIT)
def test_a_function_that_may_wait_is_never_called_on_the_event_loop(name):
    """However quick it has been: on the loop it might wait for the loop itself, for ever."""
    assert pace_of(MAY_WAIT[name]) is None


@pytest.mark.parametrize(
    "function",
    [
        lambda ctx: Outcome("done", set={"n": ctx.data["n"] + 1}),
        lambda ctx: "done" if _sums([1, 2]) > 3 else "work",
        lambda ctx: {"at": time.time(), "name": f"{ctx.run_id.upper()}"},
        _calls(lambda: math.sqrt(2)),
    ],
)
def test_a_function_that_only_computes_may_earn_it(function):
    assert pace_of(function) is not None


async def test_a_call_on_the_loop_that_is_slow_and_raises_is_sent_back_all_the_same():
    pace = Pace()
    pace.on_loop = True

    def work():
        time.sleep(0.005)
        raise ValueError

    with pytest.raises(ValueError):
        await paced(pace, work)
    assert not pace.on_loop


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


def _in_a_child(results):
    async def work():
        return await asyncio.wait_for(call(time.perf_counter, True), 20)

    results.put(asyncio.run(work()) > 0)


async def test_a_fork_has_threads_of_its_own():
    await call(time.perf_counter, True)  # the parent has some
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    child = context.Process(target=_in_a_child, args=(results,))
    child.start()
    assert await asyncio.to_thread(results.get, True, 30)
    child.join()
