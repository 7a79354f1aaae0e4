"""The flows that the torture test runs: they use everything the engine keeps through a crash.

A workload is a function of a `World` and `CrashPoints` that returns flows and a plan. Whatever a run does
must follow from its id and input alone, as every run is compared with an undisturbed one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

from detent.dispatch.dispatcher import DispatchSettings
from detent.engine.context import StepContext
from detent.engine.flow import Flow
from detent.engine.outcome import Effect, Hold, Outcome
from detent.engine.step import Step
from detent.engine.step_failures import Transient
from detent.kernel.budget import Budget, Spend
from detent.kernel.errors import ConfigurationError
from detent.kernel.machine import Machine
from detent.kernel.policy import RetryPolicy
from detent.kernel.status import Status
from detent.testing.crash import CrashPoints
from detent.testing.world import World

QUICK = RetryPolicy(max_attempts=5, wait_min=0.01, wait_max=0.02)
LONGEST = 2.0
"""Seconds after which a call of these tools is over: how long a worker that takes a run over waits for it."""
ENDS = {"done": Status.SUCCEEDED, "failed": Status.FAILED}


class Planned(NamedTuple):
    """One run to start."""

    flow: str
    data: dict[str, Any]
    budget: Budget | None = None


@dataclass(frozen=True, slots=True)
class Workload:
    """Flows, and a plan for the n-th run."""

    flows: Sequence[Flow]
    plan: Callable[[int], Planned]
    paid: frozenset[str] = field(default_factory=frozenset)
    """Names of what is paid for through `ctx.once`: never twice once the answer is recorded."""
    dispatch: DispatchSettings | None = None
    """Who performs the steps; None for their handlers."""


MakeWorkload = Callable[[World, CrashPoints], Workload]


def find_workload(name: str) -> MakeWorkload:
    """The workload function of a `module:function` name."""
    module, _, function = name.partition(":")
    try:
        workload: MakeWorkload = getattr(import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(f"There is no workload '{name}': {error}") from error
    return workload


def reference(world: World, crash: CrashPoints) -> Workload:
    """The workload of the shipped torture test."""
    world.trouble("shy.keyed", 1, "refuse")
    world.trouble("shy.probed", 1, "after")
    every = [*world.tools(timeout=LONGEST), *world.tools("shy", timeout=LONGEST), world.query()]
    tools = [crash.tool(tool) for tool in every]

    def plan(number: int) -> Planned:
        data = {"number": number, "notes": []}
        if number % 8 == 3:
            return Planned("meter", data, Budget(tokens=95))
        if number % 8 == 7:
            return Planned("clockwork", data)
        return Planned("journey", data)

    flows = [_journey(world, tools), _part(world, tools), _meter(world), _clockwork()]
    return Workload(flows, plan, frozenset({"model", "judge", "tariff", "scribe"}))


def _journey(world: World, tools: Sequence[Any]) -> Flow:
    """Everything in one run."""
    machine = Machine(
        "journey",
        start="gather",
        moves={
            "gather": ["circle"],
            "circle": ["weigh"],
            "weigh": ["circle", "pay"],
            "pay": ["ask"],
            "ask": ["flaky"],
            "flaky": ["tell", "failed"],
            "tell": ["nap"],
            "nap": ["fan"],
            "fan": ["close"],
            "close": ["done"],
        },
        ends=ENDS,
    )
    flow = Flow(machine, tools=tools, counts=lambda frm, to: frm == "weigh" and to == "circle")

    @flow.step("gather")
    async def gather(ctx: StepContext) -> Outcome:
        """Look at the world."""
        seen = await ctx.query("world.look", about=ctx.run_id)
        again = await ctx.query("world.look", about=ctx.run_id)
        return Outcome(next="circle", set={"seen": seen["seen"], "same": seen == again})

    @flow.step("circle")
    def circle(ctx: StepContext) -> Outcome:
        """Write something down."""
        return Outcome(append={"notes": [f"{ctx.visit}: {'x' * 200}"]})

    @flow.step("weigh")
    def weigh(ctx: StepContext) -> Outcome:
        """Three times around."""
        return Outcome(next="circle" if ctx.visit < 3 else "pay", reason=f"around {ctx.visit}")

    @flow.step("pay")
    def pay(ctx: StepContext) -> Outcome:
        """Two effects, the second with the first one's receipt."""
        order = ctx.propose("world.probed", run=ctx.run_id, what="order")
        bill = ctx.propose("world.keyed", run=ctx.run_id, order=order.id)
        return Outcome(next="ask", set={"order": order.id, "bill": bill.id}, spend=Spend(3, 4))

    @flow.step("ask")
    async def ask(ctx: StepContext) -> Outcome:
        """Two answers that cost."""
        first = await ctx.once("model", partial(world.paying, "model", f"{ctx.run_id}:model"), spend=_price)
        second = await ctx.once("judge", partial(world.paying, "judge", f"{ctx.run_id}:judge"), spend=_price)
        return Outcome(set={"answers": [first["answer"], second["answer"]]})

    async def flaky(ctx: StepContext) -> Outcome:
        """Work at the third attempt."""
        if ctx.attempt < 3:
            raise Transient(f"attempt {ctx.attempt}")
        return Outcome(next="tell", reason=f"attempt {ctx.attempt}")

    flow.step("flaky", retry=QUICK)(flaky)

    @flow.step("tell")
    def tell(ctx: StepContext) -> Outcome:
        """An effect that cannot be probed afterwards."""
        return Outcome(effects=[Effect("world.blind", {"run": ctx.run_id})])

    @flow.step("nap")
    def nap(ctx: StepContext) -> Outcome | Hold:
        """Wait for the clock."""
        if not ctx.answered("nap"):
            return Hold("nap", "timer", wake_at=ctx.now() + 0.05, default="woken")
        return Outcome(set={"nap": ctx.answer("nap")})

    @flow.step("fan")
    async def fan(ctx: StepContext) -> Outcome:
        """Five children side by side."""
        items = [(str(number), {"number": number}) for number in range(5)]
        children = await ctx.children(items, flow="part")
        return Outcome(set={"parts": [child.data["stamp"] for child in children]})

    @flow.step("close")
    def close(ctx: StepContext) -> Outcome:
        """One effect that is refused at first, one whose answer is lost at first."""
        receipt = ctx.propose("shy.keyed", run=ctx.run_id)
        ctx.propose("shy.probed", run=ctx.run_id, after=receipt.id)
        return Outcome(set={"closed": receipt.id})

    return flow


def _part(world: World, tools: Sequence[Any]) -> Flow:
    """A child with one effect, of a kind that depends on its number."""
    machine = Machine(
        "part", start="cut", moves={"cut": ["stamp"], "stamp": ["done"]}, ends={"done": Status.SUCCEEDED}
    )
    flow = Flow(machine, tools=tools)
    kinds = ("world.probed", "world.keyed", "world.blind")

    @flow.step("cut")
    async def cut(ctx: StepContext) -> Outcome:
        """An answer that costs."""
        answer = await ctx.once(
            "scribe", partial(world.paying, "scribe", f"{ctx.run_id}:scribe"), spend=_price
        )
        return Outcome(append={"cuts": [answer["answer"]]})

    @flow.step("stamp")
    def stamp(ctx: StepContext) -> Outcome:
        """The effect."""
        receipt = ctx.propose(kinds[ctx.data.number % 3], run=ctx.run_id, number=ctx.data.number)
        return Outcome(set={"stamp": receipt.id})

    return flow


def _meter(world: World) -> Flow:
    """Spends until its budget is used up."""
    machine = Machine(
        "meter",
        start="draw",
        moves={"draw": ["read"], "read": ["draw", "done"]},
        ends={"done": Status.SUCCEEDED},
    )

    async def draw(ctx: StepContext) -> Outcome:
        """Pay ten tokens."""
        key = f"{ctx.run_id}:{ctx.visit}"
        answer = await ctx.once("tariff", partial(world.paying, "tariff", key), spend=_price)
        return Outcome(append={"notes": [answer["answer"]]})

    def read(ctx: StepContext) -> Outcome:
        """Go on for ever, within the budget."""
        return Outcome(next="draw", set={"used": ctx.used["tokens"]})

    return Flow(machine, {"draw": Step("draw", draw), "read": Step("read", read)})


def _clockwork() -> Flow:
    """Long enough for its fold to be saved on the way."""
    machine = Machine(
        "clockwork",
        start="tick",
        moves={"tick": ["tock"], "tock": ["tick", "done"]},
        ends={"done": Status.SUCCEEDED},
    )

    def tick(ctx: StepContext) -> Outcome:
        """Grow."""
        return Outcome(append={"notes": [ctx.visit]})

    def tock(ctx: StepContext) -> Outcome:
        """Three hundred times."""
        return Outcome(next="tick" if ctx.visit < 300 else "done")

    return Flow(machine, {"tick": tick, "tock": tock})


def _price(answer: Any) -> Spend:
    return Spend(6, 4)
