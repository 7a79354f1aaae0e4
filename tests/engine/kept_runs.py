"""The flow whose runs an earlier version left behind; it must not change."""

from __future__ import annotations

from typing import Any

from detent import Effect, Flow, Hold, Machine, Outcome, Status
from detent.tools import Tool

MACHINE = Machine(
    "kept",
    start="weigh",
    moves={"weigh": ["split"], "split": ["ask"], "ask": ["book", "refused"], "book": ["done"]},
    ends={"done": Status.SUCCEEDED, "refused": Status.FAILED},
)
PART = Machine("part", start="work", moves={"work": ["done"]}, ends={"done": Status.SUCCEEDED})


def flows(booked: list[str]) -> list[Flow]:
    """A run weighs, works in two children, asks a person and books; `booked` is the outside world."""

    def book(parcel: str) -> dict[str, Any]:
        booked.append(parcel)
        return {"number": len(booked)}

    async def weigh(ctx: Any) -> Outcome:
        await ctx.note("weighed", kg=4)
        await ctx.tag("heavy")
        return Outcome(
            set={"kg": await ctx.once("scale", lambda: 4)}, effects=[Effect("book", {"parcel": "first"})]
        )

    async def split(ctx: Any) -> Outcome:
        parts = await ctx.children([("a", {"n": 1}), ("b", {"n": 2})], flow="part")
        return Outcome(set={"sum": sum(part.data["n"] for part in parts)})

    async def ask(ctx: Any) -> Outcome | Hold:
        if not ctx.answered("ok"):
            return Hold("ok", question="Book it?", choices=("yes", "no"))
        return Outcome("book" if ctx.answer("ok") == "yes" else "refused")

    async def last(ctx: Any) -> Outcome:
        return Outcome("done", effects=[Effect("book", {"parcel": "second"})])

    async def work(ctx: Any) -> Outcome:
        return Outcome(set={"n": ctx.data["n"] * 10})

    return [
        Flow(MACHINE, {"weigh": weigh, "split": split, "ask": ask, "book": last}, tools=[Tool("book", book)]),
        Flow(PART, {"work": work}),
    ]
