"""Requests that other processes drive, shown here as their journals grow.

What a model is writing is known to its process alone; here a reply is shown once it is whole.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from detent.cli.output import clean, paint
from detent.cli.signals import done_first, graceful
from detent.flows.coding.conversation import text_of
from detent.flows.coding.request import is_interrupted, last_run
from detent.flows.coding.request_data import RequestData
from detent.flows.coding.terminal.askers import is_asked
from detent.flows.coding.terminal.plain_text import one_line
from detent.flows.coding.terminal.questions import open_questions, question_lines
from detent.flows.coding.terminal.typed_ahead import TypedAhead
from detent.kernel.entries import Held, Moved
from detent.kernel.run import Run
from detent.kernel.status import Status

if TYPE_CHECKING:
    from detent.engine.engine import Engine
    from detent.flows.coding.terminal.display import RequestDisplay
    from detent.flows.coding.terminal.interrupts import Interrupts
    from detent.kernel.entries import Entry

ASKED_THERE = '  It is asked there. To answer it here: Ctrl-C, then "continue".'
POLL = 0.2
"""Seconds between two looks at a journal."""
SETTLES = 1.0
"""Seconds after which a request without a driver counts as put down: between two drivers it has none."""
LONGEST_PROMPT = 200


async def driver_words(engine: Engine, run_id: str) -> str:
    """The process that has a request, in words."""
    row = await engine.store.row(run_id)
    worker = next((worker for worker in await engine.store.workers() if worker.id == row.owner), None)
    if worker is None:
        return "another process"
    machine = worker.host.partition("/")[0]
    here = machine == engine.active.leases.me.host.partition("/")[0]
    return f"process {worker.pid}{'' if here else f' on {machine}'} (worker {worker.id})"


def prompt_line(run: Run) -> str:
    """The prompt of a request, as a conversation shows it again."""
    prompt = one_line(RequestData(run.data).prompt)[:LONGEST_PROMPT]
    return f"{paint('>', 'cyan', bold=True)} {paint(clean(prompt), dim=True)}"


class Follower:
    """Shows what other processes do in a session, each entry once."""

    def __init__(self, engine: Engine, display: RequestDisplay) -> None:
        self._engine = engine
        self._display = display
        self._known: Run | None = None
        """The session's latest request, as far as it was shown."""
        self._left: str | None = None
        """The request that the person does not want to follow."""
        self._typed = ""

    def note(self, run: Run | None) -> None:
        """A request has been shown as it stands."""
        self._known, self._left = run, None

    async def news(self, session: str) -> Run | None:
        """The oldest request in which something has happened elsewhere that was not shown."""
        run = await last_run(self._engine, session)
        if run is None or run.id == self._left:
            return None
        known = self._known
        if known is not None and run.id == known.id:
            if run.seq > known.seq:
                return run
            away = run.status is Status.RUNNING and not await is_interrupted(self._engine, run.id)
            return run if away else None
        latest = run
        while known is not None and (earlier := RequestData(run.data).earlier) is not None:
            before = await self._engine.get(earlier)
            if earlier == known.id:
                return before if before.seq > known.seq and earlier != self._left else run
            run = before
        return latest

    async def follow(
        self,
        run_id: str,
        interrupts: Interrupts | None = None,
        leaving: Callable[[], str] | None = None,
    ) -> Run:
        """Show a request until it ends, nobody works on it any more, or the person presses Ctrl-C.

        `leaving` gives the last words of a program that is left at once.
        """
        self._left = None
        if self._known is not None and self._known.id == run_id:
            run = self._known
        else:
            run = self._known = Run(run_id)
        ahead = TypedAhead()

        def left() -> str:
            ahead.restore()
            return leaving() if leaving is not None else ""

        with graceful(left) as stop, ahead, self._display:
            if interrupts is not None and interrupts.take():
                stop.asked.set()
            if run.seq:
                self._display.join(run)
            following: asyncio.Future[Any] = asyncio.ensure_future(self._show(run))
            try:
                if await done_first(following, stop):
                    following.result()
                else:
                    self._left = run_id
            finally:
                following.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await following
        self._typed += ahead.take()
        return await self._engine.get(run_id)

    def take(self) -> str:
        """What was typed while a request was followed; it is taken once."""
        typed, self._typed = self._typed, ""
        return typed

    @property
    def left(self) -> bool:
        """Whether the person has stopped following."""
        return self._left is not None

    async def _show(self, run: Run) -> None:
        """Show entries until there is nothing more to come."""
        engine = self._engine
        quiet_since = asyncio.get_running_loop().time()
        told = run.status is not Status.WAITING
        while True:
            row = await engine.store.row(run.id)
            page = await engine.store.entries(run.id, run.seq)
            for entry in page:
                beginning = run.seq == 0
                run.apply(entry)
                if beginning:
                    self._display.print_whole(prompt_line(run))
                self._display.on_run_entry(run, await self._whole(entry))
                if isinstance(entry.body, Held) and await self._ask(run):
                    told = False
            now = asyncio.get_running_loop().time()
            if page:
                quiet_since = now
                continue
            if row.now.status.is_end and row.seq <= run.seq:
                return
            if await self._has_driver(run):
                quiet_since = now
                if run.status is Status.WAITING and not told:
                    told = True
                    self._display.print_whole(ASKED_THERE)
            elif now - quiet_since > SETTLES:
                return
            await engine.active.changed(run.id, POLL)

    async def _has_driver(self, run: Run) -> bool:
        """Whether a process works on a request, or asks somebody its question."""
        if run.status is Status.RUNNING:
            return not await is_interrupted(self._engine, run.id)
        if not await open_questions(self._engine, run):
            return True  # it waits for a time, or for a run below it
        return await is_asked(self._engine, run)

    async def _ask(self, run: Run) -> bool:
        """Show the questions of a request; whether there are any."""
        questions = await open_questions(self._engine, run)
        for question in questions:
            for line in question_lines(question):
                self._display.print_whole(line)
        return bool(questions)

    async def _whole(self, entry: Entry) -> Entry:
        """An entry with the texts of replies that are kept outside the journal."""
        move = entry.body
        if not isinstance(move, Moved):
            return entry

        async def kept(reference: Any) -> bytes | None:
            return await self._engine.store.blob(reference["$blob"])

        turns = [
            {**turn, "content": await text_of(turn["content"], kept)}
            if turn.get("role") == "assistant" and isinstance(turn.get("content"), dict)
            else turn
            for turn in move.append.get("turns") or ()
        ]
        return entry._replace(body=move._replace(append={**move.append, "turns": turns})) if turns else entry
