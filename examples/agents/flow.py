"""A mailbox sorted step by step: by code, or by an agent where the settings say so, with the same guards.

The first step fills in a form. The conditions on the table read the form and choose the next state, no matter
who filled it in. One line of settings switches that step to an agent: `steps: {read: {mode: agent}}`.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from detent import Flow, Machine, Move, Outcome, Status, Step, query, tool, when

DEVICES = {"LX-1041": "2027-03-01", "LX-2230": "2024-11-30", "LX-3307": "2028-01-15"}
OUTBOX = Path("outbox.txt")


@dataclass
class Letter:
    """The facts about a letter."""

    about: Literal["fault", "invoice", "other"]
    """fault: something is broken or does not work. invoice: a bill or payment. other: anything else."""
    serial: str | None
    """The device's serial number, if the letter names one."""


@query("devices.find")
def find_device(serial: str) -> dict[str, str] | None:
    """A device and the day its warranty ends."""
    return {"serial": serial, "warranty_until": DEVICES[serial]} if serial in DEVICES else None


@tool("mail.send", idempotent=True)
def send(to: str, text: str) -> dict[str, str]:
    """Send a letter to a customer."""
    with OUTBOX.open("a", encoding="utf-8") as file:
        file.write(f"{to}: {text}\n")
    return {"to": to}


async def read(ctx) -> Letter:
    """The handler: a handful of words and a pattern."""
    text = ctx.data["text"].lower()
    found = re.search(r"\blx-\d{4}\b", text)
    fault = re.search(r"\b(broken|breaks|dead|does not|doesn't|stopped|fault)\b", text)
    bill = re.search(r"\b(invoice|bill|payment|paid)\b", text)
    about: Literal["fault", "invoice", "other"] = "fault" if fault else "invoice" if bill else "other"
    return Letter(about, found.group().upper() if found else None)


async def check(ctx) -> dict:
    """Look the device up."""
    device = await ctx.query("devices.find", serial=ctx.data["serial"])
    return {"covered": device is not None and device["warranty_until"] >= ctx.data["today"]}


async def answer(ctx) -> Outcome:
    """Tell the customer."""
    words = "covered by the warranty" if ctx.data["covered"] else "no longer covered"
    effect = {"to": ctx.data["sender"], "text": f"Your device {ctx.data['serial']} is {words}."}
    ctx.propose("mail.send", **effect)
    return Outcome(reason=words)


TABLE = Machine(
    "letters",
    start="read",
    moves={
        "read": [
            Move("check", when=when({"about": "fault", "serial": "present"})),
            Move("for-a-person"),
        ],
        "check": ["answer"],
        "answer": ["answered"],
    },
    ends={"answered": Status.SUCCEEDED, "for-a-person": Status.DEGRADED},
)

letters = Flow(
    TABLE,
    {
        "read": Step(
            "read",
            read,
            "Find out what a customer's letter is about and which device it names.",
            inputs=("text",),
            output_schema=Letter,
            examples=(
                ({"text": "The lamp LX-9001 stopped working."}, {"about": "fault", "serial": "LX-9001"}),
                ({"text": "I paid twice, please check."}, {"about": "invoice", "serial": None}),
                ({"text": "Do you ship to Norway?"}, {"about": "other", "serial": None}),
            ),
        ),
        "check": Step(
            "check",
            check,
            "Find out whether the device is still under warranty today.",
            inputs=("serial", "today"),
            queries=("devices.find",),
        ),
        "answer": Step(
            "answer",
            answer,
            "Tell the customer whether the device is covered.",
            effects=("mail.send",),
            max_autonomy="collaborator",
        ),
    },
    tools=[find_device, send],
)
