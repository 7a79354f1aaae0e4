"""Parcels are weighed, then booked with a carrier. Run it, kill it, resume it: none is booked twice."""

import asyncio
from pathlib import Path

from detent import NOT_DONE, Effect, Flow, Machine, Outcome, Status, tool

MOVES = {"weigh": ["book", "refused"], "book": ["shipped"]}
ENDS = {"shipped": Status.SUCCEEDED, "refused": Status.FAILED}
BOOKINGS = Path("bookings.txt")


def booked(parcel):
    return {} if BOOKINGS.exists() and parcel in BOOKINGS.read_text().split() else NOT_DONE


@tool("carrier.book", probe=booked)
def book(parcel):
    with BOOKINGS.open("a") as file:
        file.write(f"{parcel}\n")


parcels = Flow(Machine("parcels", start="weigh", moves=MOVES, ends=ENDS), tools=[book])


@parcels.step("weigh", intent="Weigh the parcel and refuse what is too heavy to carry.")
async def weigh(ctx):
    kg = sum(ctx.data["items"].values())
    return Outcome("book" if kg <= 30 else "refused", set={"kg": kg}, reason=f"{kg} kg")


@parcels.step("book", intent="Have the carrier fetch the parcel.")
async def send(ctx):
    await asyncio.sleep(ctx.data.get("seconds", 3))  # time enough to kill it
    return Outcome("shipped", effects=[Effect("carrier.book", {"parcel": ctx.run_id})])
