"""A process that opens tickets, for tests that run several."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from detent.apps.warranty.tools.tickets import Tickets, create_ticket_tool


async def main(path: str, own: str, count: int) -> None:
    tool = create_ticket_tool(Tickets(Path(path)))
    receipts = []
    for number in range(count):
        for thread in (f"shared-{number}", f"{own}-{number}"):
            receipts.append(
                await tool.perform(
                    serial_number="SN48213", customer_email="maren@holt-bakery.example", issue_description="",
                    source_message_id=f"<{own}-{number}@holt.example>", thread_root=thread,
                )
            )  # fmt: skip
    print(json.dumps(receipts))


asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
