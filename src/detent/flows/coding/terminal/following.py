"""A request that another process drives, shown live here."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from detent.cli.signals import done_first, graceful
from detent.flows.coding.terminal.questions import open_questions, question_lines
from detent.kernel.entries import Held
from detent.kernel.status import Status

if TYPE_CHECKING:
    from detent.engine.engine import Engine
    from detent.flows.coding.terminal.display import RequestDisplay
    from detent.flows.coding.terminal.interrupts import Interrupts
    from detent.kernel.run import Run

ASKED_THERE = '  It is asked there. To answer it here: Ctrl-C, then "continue".'


async def driver_words(engine: Engine, run_id: str) -> str:
    """Who has a request, in words."""
    row = await engine.store.row(run_id)
    worker = next((worker for worker in await engine.store.workers() if worker.id == row.owner), None)
    if worker is None:
        return "another process"
    machine = worker.host.partition("/")[0]
    here = machine == engine.active.leases.me.host.partition("/")[0]
    return f"process {worker.pid}{'' if here else f' on {machine}'} (worker {worker.id})"


async def follow(
    engine: Engine, run_id: str, display: RequestDisplay, interrupts: Interrupts | None = None
) -> Run:
    """Show a request until it ends or the person presses Ctrl-C; the request as it stands then."""
    run = await engine.get(run_id)

    async def asked() -> None:
        for question in await open_questions(engine, run):
            for line in question_lines(question):
                display.print_whole(line)
            display.print_whole(ASKED_THERE)

    async def shown() -> None:
        if run.status is Status.WAITING:
            await asked()
        async for entry in engine.follow(run_id, run.seq):
            run.apply(entry)
            display.on_run_entry(run, entry)
            if isinstance(entry.body, Held):
                await asked()

    with graceful() as stop, display:
        if interrupts is not None and interrupts.take():
            return run
        display.join(run)
        following: asyncio.Future[Any] = asyncio.ensure_future(shown())
        if await done_first(following, stop):
            following.result()
        else:
            following.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await following
    return await engine.get(run_id)
