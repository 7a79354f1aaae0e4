"""Small workloads whose processes are to be killed at one exact place."""

from __future__ import annotations

import os
import signal

from detent.engine.flow import Flow
from detent.engine.outcome import Effect, Outcome
from detent.engine.step import Step
from detent.engine.step_failures import Transient
from detent.engine.tools import Tool
from detent.kernel.budget import Budget, Spend
from detent.kernel.machine import Machine
from detent.kernel.policy import BreakerPolicy, RetryPolicy
from detent.kernel.status import Status
from detent.testing.crash import CrashPoints
from detent.testing.workload import Planned, Workload
from detent.testing.world import World

ONE = {"do": ["done"]}
ENDS = {"done": Status.SUCCEEDED}
KINDS = ("probed", "keyed", "blind")


def one_effect(world: World, crash: CrashPoints) -> Workload:
    """One step with one effect; the number of the run says of which kind."""

    def do(ctx):
        tool = f"world.{KINDS[ctx.data.number]}"
        return Outcome(effects=[Effect(tool, {"run": ctx.run_id}, None)], set={"asked": tool})

    tools = [crash.tool(tool) for tool in world.tools()]
    flow = Flow(Machine("one", start="do", moves=ONE, ends=ENDS), {"do": do}, tools=tools)
    return Workload([flow], lambda number: Planned("one", {"number": number}))


def three_rounds(world: World, crash: CrashPoints) -> Workload:
    """One step that looks and acts three times, on receipts; the number of the run says on which tool."""

    async def do(ctx):
        tool, receipts = f"world.{KINDS[ctx.data.number]}", []
        if await ctx.query("world.size") == 0:
            for letter in "abc":
                receipt = await ctx.perform(tool, run=f"{ctx.run_id}-{letter}")
                receipts.append(receipt)
        return Outcome(set={"receipts": receipts, "size": await ctx.query("world.size")})

    size = Tool("world.size", lambda: world.count(), "query")
    tools = [*(crash.tool(tool) for tool in world.tools()), size]
    flow = Flow(Machine("rounds", start="do", moves=ONE, ends=ENDS), {"do": do}, tools=tools)
    return Workload([flow], lambda number: Planned("rounds", {"number": number}))


def effects_at_the_end(world: World, crash: CrashPoints) -> Workload:
    """One step that fails, and two effects at the end; the number of the run says on which tool."""

    def do(ctx):
        raise ValueError("no idea")

    def at_end(ending):
        tool = f"world.{KINDS[ending.data.number]}"
        return [Effect(tool, {"run": f"{ending.run_id}-{letter}-{ending.status.value}"}) for letter in "ab"]

    tools = [crash.tool(tool) for tool in world.tools()]
    machine = Machine("finish", start="do", moves=ONE, ends=ENDS)
    flow = Flow(machine, {"do": do}, tools=tools, at_end=at_end)
    return Workload([flow], lambda number: Planned("finish", {"number": number}))


def one_answer(world: World, crash: CrashPoints) -> Workload:
    """One step with one answer that costs."""

    async def do(ctx):
        said = await ctx.once("model", lambda: world.pay("model", ctx.run_id), spend=lambda _: Spend(7, 3))
        return Outcome(set={"time": said["time"]})

    flow = Flow(Machine("answer", start="do", moves=ONE, ends=ENDS), {"do": do})
    return Workload([flow], lambda number: Planned("answer", {}))


def metered(world: World, crash: CrashPoints) -> Workload:
    """Pays ten tokens at every turn, for ever, with a budget of 35."""

    async def draw(ctx):
        key = f"{ctx.run_id}:{ctx.visit}"
        await ctx.once("tariff", lambda: world.pay("tariff", key), spend=lambda _: Spend(5, 5))
        return Outcome(next="draw")

    machine = Machine("metered", start="draw", moves={"draw": ["draw", "done"]}, ends=ENDS)
    return Workload([Flow(machine, {"draw": draw})], lambda number: Planned("metered", {}, Budget(tokens=35)))


def failing(world: World, crash: CrashPoints) -> Workload:
    """A step that never succeeds: three attempts, then its breaker is open for an hour."""

    def do(ctx):
        world.pay("tried", ctx.run_id)
        raise Transient("no")

    step = Step(
        "do", do, retry=RetryPolicy(3, 0.001, 0.001), breaker=BreakerPolicy(failures=3, cooldown=3600.0)
    )
    flow = Flow(Machine("failing", start="do", moves=ONE, ends=ENDS), {"do": step})
    return Workload([flow], lambda number: Planned("failing", {}))


def deadly(world: World, crash: CrashPoints) -> Workload:
    """A step that kills whoever works at it."""

    def do(ctx):
        world.pay("died", ctx.run_id)
        os.kill(os.getpid(), signal.SIGKILL)

    flow = Flow(Machine("deadly", start="do", moves=ONE, ends=ENDS), {"do": do})
    return Workload([flow], lambda number: Planned("deadly", {}))
