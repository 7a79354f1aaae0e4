"""Journals to read: real ones, written by the engine in memory, and one with every kind of entry."""

from collections.abc import Awaitable, Callable
from typing import Any

from detent.adapters.stores.memory import MemoryStore
from detent.engine.engine import Engine
from detent.engine.flow import Flow
from detent.engine.journal_reader import read
from detent.engine.outcome import Effect, Hold, Outcome
from detent.engine.step import Step
from detent.engine.step_failures import Transient
from detent.engine.tools import Tool, ToolError
from detent.kernel.budget import Spend
from detent.kernel.entries import (
    AttemptFailed,
    Body,
    CalledOff,
    ChildEnded,
    Claimed,
    EffectBegun,
    EffectDone,
    EffectFailed,
    EffectSkipped,
    Ended,
    Entry,
    Forked,
    Held,
    Migrated,
    Moved,
    Noted,
    Proposed,
    Recorded,
    Released,
    Reopened,
    Started,
    Tagged,
)
from detent.kernel.guards import when
from detent.kernel.machine import Machine, Move
from detent.kernel.policy import RetryPolicy
from detent.kernel.status import Status
from tests.engine import answers

CLAIM = Machine(
    "claim",
    start="look-up",
    moves={
        "look-up": [
            Move("approve", when=when({"device.status": "valid"}), reason="covered"),
            Move("refuse", when=when({"device.status": ["expired", "lost"]}), reason="not covered"),
            "failed",
        ],
        "approve": [Move("pay", event="yes"), Move("refuse", event="no"), "failed"],
        "pay": ["paid", "failed"],
        "refuse": ["refused", "failed"],
    },
    ends={"paid": Status.SUCCEEDED, "refused": Status.DEGRADED, "failed": Status.FAILED},
)

SMALL = Machine("small", start="work", moves={"work": ["done"]}, ends={"done": Status.SUCCEEDED})


def claims(status: str = "valid", *, flaky: bool = False) -> list[Flow]:
    """A flow that asks, retries, starts a child, waits for a person and performs effects; and its child."""
    calls = {"pay": 0}

    def registry(serial: str) -> dict[str, Any]:
        return {"status": status, "serial": serial}

    def pay(amount: int) -> dict[str, Any]:
        calls["pay"] += 1
        if flaky and calls["pay"] == 1:
            raise ToolError("busy", "the bank is busy", transient=True)
        return {"receipt": 7}

    async def look_up(ctx: Any) -> Outcome:
        if flaky and ctx.attempt == 1:
            raise Transient("registry away")
        await ctx.note("looking", serial=ctx.data["serial"])
        guess = await ctx.once("guess", lambda: "A1", spend=lambda _: Spend(100, 20, 0.01))
        device = await ctx.query("registry", serial=ctx.data["serial"])
        await ctx.tag("seen")
        return Outcome(set={"device": device}, append={"log": [guess]}, spend=Spend(5, 5, 0.001))

    async def approve(ctx: Any) -> Any:
        await ctx.child("small", {"n": 1}, key="check")
        if not ctx.answered("approval"):
            return Hold("approval", question="Pay this claim?", choices=["yes", "no"])
        return Outcome(event=ctx.answer("approval"), by="person", reason="a person said so")

    def settle(ctx: Any) -> Outcome:
        return Outcome(
            next="paid" if ctx.state == "pay" else "refused",
            effects=[Effect("bank.pay", {"amount": 10})] if ctx.state == "pay" else [],
            reason="claim settled",
            by="agent" if ctx.state == "pay" else "handler",
            detail={
                "dispatch": {"fallback_used": True, "fallback_reason": "timeout", "agent_error": "too slow"}
            }
            if ctx.state == "refuse"
            else {},
        )

    quick = RetryPolicy(max_attempts=3, wait_min=0.0, wait_max=0.0) if flaky else RetryPolicy(max_attempts=1)
    parent = Flow(
        CLAIM,
        {
            "look-up": Step("look-up", look_up, retry=quick),
            "approve": approve,
            "pay": settle,
            "refuse": settle,
        },
        tools=[Tool("registry", registry, "query"), Tool("bank.pay", pay, retry=quick)],
    )
    return [parent, Flow(SMALL, {"work": lambda ctx: "done"})]


async def journal(
    flows: list[Flow],
    data: Any,
    *,
    answer: str | None = "yes",
    then: Callable[[Engine, str], Awaitable[str | None]] | None = None,
    run_id: str | None = None,
) -> tuple[list[Entry], MemoryStore]:
    """Run the first flow to its end (or its hold, without an answer) and give its journal."""
    store = MemoryStore()
    async with Engine(store, flows) as engine:
        run = await engine.run(flows[0].name, data, run_id=run_id)
        if run.status is Status.WAITING and answer is not None:
            await answers.release(engine, run.id, answer)
            run = await engine.finish(run.id)
        wanted = run.id
        if then is not None:
            wanted = await then(engine, run.id) or wanted
        return [entry async for entry in read(store, wanted)], store


def entries(*bodies: Body, start: float = 1_000_000.0, apart: float = 1.0) -> list[Entry]:
    """A journal of these bodies, so many seconds apart."""
    return [Entry(number, start + number * apart, 1, body) for number, body in enumerate(bodies, 1)]


def every_kind() -> list[Entry]:
    """A journal in which each kind of entry occurs."""
    return entries(
        Started("claim", "look-up", "claim", 1, "f" * 16, {"serial": "A1"}, tags=["mail"]),
        Claimed("worker-2", "worker-1"),
        AttemptFailed("look-up", 1, "TimeoutError", "too slow", True, 1_000_005.0, 0.5),
        Recorded("guess", "A1", Spend(10, 2)),
        ChildEnded("r1.check", Status.SUCCEEDED, Spend(4, 4), 3, 0.2),
        Noted("agreement", {"same": True}),
        Tagged(["vip"], ["mail"]),
        Held("approval", "person", "Pay?", ["yes", "no"], wake_at=1_090_000.0),
        Released("approval", "yes"),
        Moved(
            "look-up", "approve", "go", "covered", {"ok": True}, {"log": [1]}, 1.5, Spend(10, 2), attempt=2
        ),
        Proposed(
            "approve", {"next": "pay", "reason": "fine"}, [{"key": "k1", "tool": "bank.pay"}]
        ),
        EffectBegun("k1", "bank.pay"),
        EffectFailed("k1", "bank.pay", "busy", "later", 1, 1_000_014.0),
        EffectBegun("k1", "bank.pay"),
        EffectDone("k1", "bank.pay", {"receipt": 7}, "probed"),
        EffectSkipped("k2", "mail.send"),
        Migrated(2, "e" * 16, "approve", {"v": 2}, "renamed"),
        Forked({"ok": False}),
        Ended(Status.CANCELLED, "no longer needed", by="person"),
        Reopened("approve", reason="needed after all"),
        CalledOff("not needed", "ann"),
        Ended(Status.FAILED, "approve failed: ValueError", "ValueError: no"),
    )  # fmt: skip
