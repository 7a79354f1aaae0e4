"""Drives one request at a time for a person: shows it, asks what it asks, and stops it at Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

from detent.cli.output import clean, paint, say, warn
from detent.cli.signals import Stop, done_first, graceful
from detent.flows.coding.permission import grant_for
from detent.flows.coding.request_data import RequestData
from detent.flows.coding.terminal.askers import asking
from detent.flows.coding.terminal.call_text import call_line
from detent.flows.coding.terminal.command_words import is_command, is_known_command
from detent.flows.coding.terminal.interrupts import Interrupts
from detent.flows.coding.terminal.prompt_line import PromptLine, discard_typed
from detent.flows.coding.terminal.questions import (
    Answer,
    Question,
    chosen_answer,
    open_questions,
    question_lines,
    read_answer,
)
from detent.flows.coding.terminal.typed_ahead import TypedAhead
from detent.kernel.errors import ConfigurationError, HoldNotOpen, RunNotFound, RunStateError
from detent.kernel.status import Status

if TYPE_CHECKING:
    from detent.engine.engine import Engine
    from detent.flows.coding.flow import CodingFlow
    from detent.kernel.run import Run

PATIENCE = 60.0
"""Seconds a due timer is waited for before the request is left waiting."""
FOR_EFFECTS, FOR_COMMANDS = 5.0, 0.2
"""Seconds that an effect gets to end when the request is interrupted."""
SETTLED_WITHIN = 10.0
"""Seconds after an interrupt in which whoever waited for the request hears of it."""
ANSWERS = "y once · n no, and why if you like"
OF_FOLDER = "this tool in this very folder, until the program ends"
OF_CALL = "exactly this, until the program ends"
AGAIN = "Say y (yes), a (always) or n (no); anything else is asked again."
NO_COMMANDS = (
    "Commands work at the prompt only. Ctrl-C leaves the question open and goes there; then "
    '"continue" asks it again.'
)


class Stopped(NamedTuple):
    """How a request was left."""

    run: Run
    interrupted: bool = False
    """The person has pressed Ctrl-C; `run` may have ended all the same."""
    terminated: bool = False
    """The process was told to end."""
    asked: bool = False
    """Its open question was shown, and left open."""
    elsewhere: bool = False
    """Its question was answered by somebody else; `run` is the request as it was when it was asked."""


def _always(question: Question) -> str:
    """What the answer `a` to a question would allow."""
    if question.call is None:
        return "as y, it is too long for more"
    grant = grant_for(*question.call, RequestData(question.run.data).workspace)
    return OF_CALL if grant.scope.startswith("sha256:") else OF_FOLDER


class _NotOpen(Exception):
    """A question was answered elsewhere."""


class RequestRunner:
    """Runs requests in one engine."""

    def __init__(
        self,
        engine: Engine,
        flow: CodingFlow,
        *,
        display: AbstractContextManager[Any] | None = None,
        line: PromptLine | None = None,
        way_on: Callable[[str], str] = str,
    ) -> None:
        """Questions are asked on `line`; without one they stay open. `way_on` says how a request of this id
        goes on that is left at once."""
        self._engine = engine
        self._flow = flow
        self._display = display
        self._line = line
        self._way_on = way_on
        self._below: str | None = None
        """The run that is driven, if it is one below the request."""
        self._left_by_key = self._answered_elsewhere = False
        """How the last question was left open."""
        self.typed = ""
        """What was typed while a request ran."""
        self.granted: dict[str, dict[str, None]] = {}
        """What is always allowed in each session, in words."""
        self.interrupts: Interrupts | None = None
        """Remembers Ctrl-C that was pressed before a request was under way."""

    async def run(self, run_id: str) -> Stopped:
        """Drive a request until it ends, waits, or is interrupted; questions are asked as they come."""
        target = run_id
        while True:
            stopped = await self._drive(run_id, target)
            if self._flow.writer is not None and not stopped.run.status.is_end:
                await self._flow.writer.stopped(self._engine.store, stopped.run)
            if stopped.interrupted or self._line is None or stopped.run.status is not Status.WAITING:
                return stopped
            questions = await open_questions(self._engine, stopped.run)
            if not questions:
                return stopped
            await self.write_sessions()
            async with asking(self._engine, stopped.run):
                answered = await self._ask(questions[0])
            if not answered and self._answered_elsewhere:
                return Stopped(stopped.run, elsewhere=True)
            if not answered:
                return Stopped(await self._engine.get(run_id), self._left_by_key, asked=True)
            target = questions[0].run.id

    async def write_sessions(self) -> None:
        """Write session files that are due, before a person is waited for."""
        if self._flow.writer is not None:
            await self._flow.writer.flush()

    # -- driving --------------------------------------------------------------------------------------------

    async def _drive(self, run_id: str, target: str) -> Stopped:
        ahead = TypedAhead()

        def leaving() -> str:
            ahead.restore()
            return self._way_on(run_id)

        with graceful(leaving) as stop, ahead, self._display or nullcontext():
            if self.interrupts is not None and self.interrupts.take():
                stop.signal = signal.SIGINT
                stop.asked.set()
            interrupted = await self._until_stopped(run_id, target, stop)
        self.typed += ahead.take()
        run = await self._engine.get(run_id)
        return Stopped(run, interrupted, stop.signal == signal.SIGTERM)

    async def _until_stopped(self, run_id: str, target: str, stop: Stop) -> bool:
        """Whether the request was interrupted before it ended or waited."""
        working = asyncio.ensure_future(self._finished(target))
        try:
            if await done_first(working, stop):
                working.result()
                return False
            warn("Interrupting; once more leaves at once.")
            below, self._below = self._below, None
            put_down = False
            for under_way in dict.fromkeys(filter(None, (below, run_id))):
                with contextlib.suppress(RunStateError, RunNotFound):
                    await self._engine.interrupt(under_way, grace=self._grace(run_id))
                    put_down = True
            await asyncio.wait({working}, timeout=SETTLED_WITHIN if put_down else 0)
            return not (await self._engine.get(run_id)).status.is_end
        finally:
            if not working.done():
                working.cancel()
            await asyncio.gather(working, return_exceptions=True)

    def _grace(self, run_id: str) -> float:
        """Seconds for the effect under way to end by itself. A command is told at once to end, and then has
        seconds of its own."""
        for driver in self._engine.active.drivers():
            run = driver.run
            if (run.id == run_id or run.id.startswith(f"{run_id}.")) and run.begun is not None:
                effects = run.proposal.effects if run.proposal is not None else []
                if any(item["key"] == run.begun and item["tool"] == "bash" for item in effects):
                    return FOR_COMMANDS
        return FOR_EFFECTS

    async def _finished(self, run_id: str) -> None:
        """Drive a run until it ends or waits, then the runs that waited for it."""
        while True:
            self._below = run_id if "." in run_id else None
            run = await self._engine.finish(run_id, patience=PATIENCE)
            if not run.status.is_end or run.parent is None:
                return
            above = await self._engine.store.row(run.parent)
            if above.now.status is not Status.WAITING and self._engine.active.under_way(above.id) is None:
                return
            run_id = above.id

    # -- asking ---------------------------------------------------------------------------------------------

    async def _ask(self, question: Question) -> bool:
        """Ask a question and hand over the answer; False if it stays open, or was answered by another."""
        for told in question_lines(question):
            say(told)
        discard_typed()
        self.typed, self._left_by_key, self._answered_elsewhere = "", False, False
        while True:
            try:
                answer = await self._read(question)
                await self._give(question, answer)
                return True
            except EOFError:
                say()
                return False
            except KeyboardInterrupt:
                say()
                self._left_by_key = True
                return False
            except HoldNotOpen as error:
                warn(clean(error.why))
                self._answered_elsewhere = True
                return False
            except _NotOpen:
                say("  It was answered elsewhere.")
                self._answered_elsewhere = True
                return False
            except ConfigurationError as error:
                warn(clean(str(error)))

    async def _line_for(self, question: Question, words: str) -> str:
        """A line that a person has typed below a question.

        Raises:
            _NotOpen: the question was answered elsewhere before anything was typed.
        """
        assert self._line is not None
        run, token = question.run, question.token

        async def answered() -> bool:
            if (await self._engine.store.row(run.id)).seq == run.seq:
                return False
            now = await self._engine.get(run.id)
            return question.hold.name not in now.holds or now.token(question.hold.name) != token

        prompt = f"  {paint(f'{words}>', 'yellow')} "
        if not await self._line.until_key(prompt, answered):
            raise _NotOpen
        return self._line.read(prompt, completes=False)

    async def _read(self, question: Question) -> Any:
        """The answer, once it is one."""
        if question.kind == "confirm":
            for line in (ANSWERS, f"a always: {_always(question)}"):
                say(f"  {paint(line, dim=True)}")
            while True:
                text = await self._line_for(question, "y/a/n")
                answer = read_answer(text)
                if answer is not None:
                    return answer
                say(f"  {NO_COMMANDS if is_command(text) else AGAIN}")
        choices = question.choices
        words = "/".join(choices) if question.kind in ("doubt", "choice") else "your answer"
        while True:
            line = await self._line_for(question, words)
            if is_known_command(line):
                say(f"  {NO_COMMANDS}")
                continue
            try:
                chosen = chosen_answer(question, line)
            except ValueError as error:
                say(f"  {error}")
            else:
                return chosen

    async def _give(self, question: Question, answer: Any) -> None:
        engine, run, token = self._engine, question.run, question.token
        if question.kind == "doubt":
            await engine.resolve(run.id, answer, hold=token)
            return
        if isinstance(answer, Answer):
            plain = answer.plain
            if question.hold.choices and plain not in question.hold.choices:
                plain = "no"  # this question takes no reason
            await engine.release(run.id, plain, hold=token, drive=False)
            if answer.verdict == "always":
                self._grant(question)
            return
        await engine.release(run.id, answer, hold=token, drive=False)

    def _grant(self, question: Question) -> None:
        """Allow the session what was asked about, from now on."""
        call = question.call
        if call is None:
            say("  It is too long to be allowed for the session; this once it is.")
            return
        grant = grant_for(*call, RequestData(question.run.data).workspace)
        session = RequestData(question.root.data).session
        for name in filter(None, (session, question.run.id)):
            self._flow.grant(name, grant)
        if session is not None:
            exact = grant.scope.startswith("sha256:")
            words = call_line(*call) if exact else f"{grant.tool} in {grant.scope}"
            self.granted.setdefault(session, {})[words] = None
