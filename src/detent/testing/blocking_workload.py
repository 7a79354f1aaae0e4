"""A workload of plain functions that wait, some of them longer than a worker's lease."""

from __future__ import annotations

import time
from typing import Any

from detent.engine.context import StepContext
from detent.engine.flow import Flow
from detent.engine.outcome import Effect, Outcome
from detent.kernel.budget import Spend
from detent.kernel.machine import Machine
from detent.kernel.status import Status
from detent.testing.crash import CrashPoints
from detent.testing.workload import Planned, Workload
from detent.testing.world import World

SHORT_LEASE = 1.5
"""Seconds of the lease that makes this workload hard."""
LONGEST = 2 * SHORT_LEASE
"""Seconds after which a call of these tools is over, however slow the machine."""


def labour(world: World, crash: CrashPoints) -> Workload:
    """Steps and tools that block, for workers that are paused, cut off and misled by their clocks."""
    machine = Machine(
        "labour",
        start="measure",
        moves={"measure": ["book"], "book": ["mail"], "mail": ["tell"], "tell": ["pay"], "pay": ["done"]},
        ends={"done": Status.SUCCEEDED},
    )
    flow = Flow(machine, tools=[crash.tool(tool) for tool in world.waiting_tools(timeout=LONGEST)])

    def seconds(number: int, step: int) -> float:
        """Mostly moments; in every third run one step takes longer than a lease."""
        return SHORT_LEASE * 1.3 if number % 12 == 3 * step else 0.01 * (1 + (number + step) % 5)

    @flow.step("measure")
    def measure(ctx: StepContext) -> Outcome:
        """A plain function that waits."""
        time.sleep(seconds(ctx.data.number, 0))
        return Outcome(set={"measured": ctx.data.number})

    @flow.step("book")
    def book(ctx: StepContext) -> Outcome:
        """An effect by a plain function; it can be probed."""
        args = {"run": ctx.run_id, "seconds": seconds(ctx.data.number, 1)}
        return Outcome(effects=[Effect("waiting.plain", args)])

    @flow.step("mail")
    def mail(ctx: StepContext) -> Outcome:
        """An effect that awaits, and so can be cancelled."""
        args = {"run": ctx.run_id, "seconds": seconds(ctx.data.number, 2)}
        return Outcome(effects=[Effect("waiting.awaiting", args)])

    @flow.step("tell")
    def tell(ctx: StepContext) -> Outcome:
        """An effect by a plain function that cannot be probed."""
        args = {"run": ctx.run_id, "seconds": seconds(ctx.data.number, 3)}
        return Outcome(effects=[Effect("waiting.blind", args)])

    @flow.step("pay")
    async def pay(ctx: StepContext) -> Outcome:
        """An answer that costs, given by a plain function."""
        answer = await ctx.once("scribe", lambda: world.pay("scribe", f"{ctx.run_id}:scribe"), spend=_price)
        return Outcome(set={"answer": answer["answer"]})

    def plan(number: int) -> Planned:
        return Planned("labour", {"number": number})

    return Workload([flow], plan, frozenset({"scribe"}))


def _price(answer: Any) -> Spend:
    return Spend(6, 4)
