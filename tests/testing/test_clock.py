"""The hand-turned clock wakes sleepers at their time, in order, and only when it is turned."""

from __future__ import annotations

import asyncio

import pytest

from detent.adapters.stores.memory import MemoryStore
from detent.engine.engine import Engine
from detent.engine.flow import Flow
from detent.engine.outcome import Hold, Outcome
from detent.kernel.machine import Machine
from detent.kernel.status import Status
from detent.testing.clock import HandClock


async def test_time_stands_still_until_it_is_turned():
    clock = HandClock(start=100.0)
    sleeping = asyncio.ensure_future(clock.sleep(10))
    await clock.settle()
    assert not sleeping.done()
    assert (clock.now(), clock.elapsed(), clock.next_due) == (100.0, 0.0, 110.0)
    await clock.turn(9)
    assert not sleeping.done()
    await clock.turn(1)
    assert sleeping.done()
    assert (clock.now(), clock.elapsed(), clock.next_due) == (110.0, 10.0, None)


async def test_sleepers_wake_in_order_and_at_their_own_time():
    clock = HandClock(start=0.0)
    seen: list[tuple[str, float]] = []

    async def sleeper(name: str, *naps: float) -> None:
        for nap in naps:
            await clock.sleep(nap)
            seen.append((name, clock.now()))

    tasks = [asyncio.ensure_future(sleeper("a", 3, 3)), asyncio.ensure_future(sleeper("b", 1, 4))]
    await clock.turn(100)
    await asyncio.gather(*tasks)
    assert seen == [("b", 1.0), ("a", 3.0), ("b", 5.0), ("a", 6.0)]


async def test_a_cancelled_sleeper_is_forgotten():
    clock = HandClock()
    sleeping = asyncio.ensure_future(clock.sleep(5))
    await clock.settle()
    sleeping.cancel()
    await clock.settle()
    assert clock.next_due is None
    await clock.turn(10)


async def test_no_sleep_takes_no_turning():
    await HandClock().sleep(0)


async def test_the_clock_cannot_be_turned_back():
    with pytest.raises(ValueError, match="turned back"):
        await HandClock().turn(-1)


async def test_a_timer_hold_is_answered_by_turning():
    def wait(ctx):
        if not ctx.answered("pause"):
            return Hold("pause", "timer", wake_at=ctx.now() + 900, default="over")
        return Outcome(set={"said": ctx.answer("pause")})

    machine = Machine("patient", start="wait", moves={"wait": ["done"]}, ends=["done"])
    clock = HandClock()
    async with Engine(MemoryStore(), [Flow(machine, {"wait": wait})], clock=clock) as engine:
        run_id = await engine.start("patient")
        await clock.turn(300)
        assert (await engine.get(run_id)).status is Status.WAITING
        await clock.turn(600)
        run = await engine.get(run_id)
        assert (run.status, run.data) == (Status.SUCCEEDED, {"said": "over"})
