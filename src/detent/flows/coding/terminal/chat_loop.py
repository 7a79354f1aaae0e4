"""A conversation at the prompt, or with one prompt a line from a pipe."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from detent.cli.output import clean, cut, paint, say, warn
from detent.cli.signals import INTERRUPTED
from detent.flows.coding.request import SessionBusy, is_interrupted, last_run
from detent.flows.coding.request_data import RequestData
from detent.flows.coding.terminal.command_words import is_command
from detent.flows.coding.terminal.completion import Completion
from detent.flows.coding.terminal.conversation import Conversation
from detent.flows.coding.terminal.ending import exit_code
from detent.flows.coding.terminal.following import driver_words, prompt_line
from detent.flows.coding.terminal.interrupts import Interrupts
from detent.flows.coding.terminal.prompt_history import PromptHistory
from detent.flows.coding.terminal.prompt_line import PromptLine, interruptible
from detent.flows.coding.terminal.slash_commands import COMMANDS, Leave, SlashCommands
from detent.flows.coding.terminal.transition_lines import say_line
from detent.insight.formatting import count
from detent.kernel.errors import ConfigurationError, DetentError
from detent.kernel.status import Status

if TYPE_CHECKING:
    from detent.engine.engine import Engine
    from detent.flows.coding.flow import CodingFlow
    from detent.flows.coding.terminal.request_setup import RequestSetup

ANSWER_HERE = '  Or answer it here: "continue".'
FOLLOWING = "Following it: a reply appears when it is whole. Ctrl-C stops that."
LEAVE_HINT = "(Ctrl-C once more, or Ctrl-D, leaves)"


class ChatLoop:
    """One conversation from its beginning to its end."""

    def __init__(self, setup: RequestSetup, engine: Engine, flow: CodingFlow, *, interactive: bool) -> None:
        self._setup, self._engine, self._flow = setup, engine, flow
        self._line: PromptLine | None = None
        if interactive:
            folder = setup.sessions(flow)
            history = None if folder is None else PromptHistory(folder.path, folder.redaction.text)
            self._line = PromptLine(history, self._completion())
        self._conversation = Conversation(setup, engine, flow, line=self._line, is_chat=True)
        self._commands = SlashCommands(self._conversation, self._attach)
        self._leaves = False
        """Whether Ctrl-C in an empty line leaves: it was pressed before, at the prompt or to interrupt a
        request, and nothing was typed since."""

    def _completion(self) -> Completion:
        def sessions() -> Iterable[str]:
            folder = self._setup.sessions(self._flow)
            return ["last", *(item.id for item in (folder.list() if folder is not None else ()))]

        def tools() -> Iterable[str]:
            return sorted(self._flow.registry.of_kind("effect"))

        return Completion(COMMANDS, {"resume": sessions, "allow": tools}, self._setup.folder)

    # -- at a terminal --------------------------------------------------------------------------------------

    async def at_terminal(self, resume: str | None) -> int:
        """Read prompts until the person leaves."""
        model = self._conversation.model or "no model: plain requests only"
        folder = clean(self._setup.folder)
        say(f"{paint('detent chat', bold=True)}  {folder}  {paint(clean(model), dim=True)}")
        say(paint("/help lists the commands; Ctrl-D leaves.", dim=True))
        with Interrupts() as interrupts:
            self._conversation.runner.interrupts = interrupts
            if resume is not None:
                await self._attach(resume)
            while True:
                code = await self._turn(interrupts)
                if code is not None:
                    return await self._left(code)

    async def _turn(self, interrupts: Interrupts) -> int | None:
        """Read a prompt and do what it says; the exit code if the conversation is over."""
        runner = self._conversation.runner
        await runner.write_sessions()
        assert self._line is not None
        prompt = f"{paint('>', 'cyan', bold=True)} "
        try:
            if interrupts.take():
                raise KeyboardInterrupt
            await self._show_news()
            begun, runner.typed = runner.typed.rstrip("\n"), ""
            if not begun and not await self._line.until_key(prompt, self._has_news):
                return None
            text = self._line.read(prompt, begun=begun, interrupted=interrupts.take)
        except EOFError:
            say()
            return 0
        except KeyboardInterrupt:
            say()
            if self._leaves and not self._line.given_up:
                return INTERRUPTED
            self._leaves = True
            say(paint(LEAVE_HINT, dim=True))
            return None
        self._leaves = False
        if not text.strip():
            return None
        self._line.remember(text)
        try:
            if is_command(text):
                await self._commands.perform(text)
            elif await self._prompt(text.strip()):
                return INTERRUPTED
        except Leave:
            return 0
        except DetentError as error:  # the next prompt may work
            for line in str(error).splitlines():
                warn(clean(line))
        return None

    async def _prompt(self, text: str) -> bool:
        """Have a request done; True if the process is to end."""
        try:
            stopped = await self._conversation.request(text)
        except SessionBusy as busy:
            await self._refused(busy)
            return False
        self._leaves = stopped.interrupted
        if stopped.asked:
            say(paint(ANSWER_HERE, dim=True))
        return stopped.terminated

    async def _has_news(self) -> bool:
        return await self._conversation.news() is not None

    async def _show_news(self) -> None:
        """Show what other terminals do in the session."""
        while (run := await self._conversation.news()) is not None:
            if run.status is Status.RUNNING:
                who = await driver_words(self._engine, run.id)
                say(paint(f"This session is being worked on by {who}. {FOLLOWING}", dim=True))
            await self._show_others(run.id)

    async def _show_others(self, run_id: str) -> None:
        """Show a request that another process drives, and how it was left."""
        run = await self._conversation.follow(run_id)
        if self._conversation.left_following:
            say(paint("Not followed any longer; it goes on there.", dim=True))
        elif run.status is Status.WAITING:
            await self._conversation.tell(run, asked=True)
            say(paint(ANSWER_HERE, dim=True))
        else:
            await self._conversation.tell(run)

    async def _refused(self, busy: SessionBusy) -> None:
        """The session's last request is open: say how to close it, or follow it live."""
        run = await last_run(self._engine, busy.session)
        if run is not None and run.status is Status.RUNNING:
            say(paint("The prompt was not taken.", "yellow"))
            await self._follow(run.id)
            return
        run = await self._conversation.say_busy(busy)
        if run is not None and run.status is Status.WAITING:
            say(paint(ANSWER_HERE, dim=True))

    async def _follow(self, run_id: str) -> None:
        who = await driver_words(self._engine, run_id)
        session = self._conversation.session
        say(f"Session {session} is being worked on by {who}. {FOLLOWING}")
        await self._show_others(run_id)

    async def _attach(self, text: str) -> None:
        """Go on with a session: say where it is, and follow what is under way.

        Raises:
            ConfigurationError: there is no such session, or it belongs to another workspace.
        """
        session = await self._setup.session(self._engine, self._flow, text)
        run = await last_run(self._engine, session)
        folder = self._setup.sessions(self._flow)
        if run is not None:
            own = RequestData(run.data).workspace
        else:
            own = (folder.existing(session).workspace if folder is not None else None) or ""
        if own and own != str(self._setup.folder):
            raise ConfigurationError(
                f"Session {session} belongs to the workspace {own}, not to {self._setup.folder}. "
                f"Go there with: detent chat --workspace {own} --resume {session}"
            )
        self._conversation.session = session
        say(f"Session {session}")
        if run is None:
            return
        if run.status is Status.RUNNING and not await is_interrupted(self._engine, run.id):
            await self._follow(run.id)
            return
        self._conversation.note(run)
        say(prompt_line(run))
        await self._conversation.tell(run)
        if run.status is Status.WAITING:
            say(paint(ANSWER_HERE, dim=True))

    async def _left(self, code: int) -> int:
        """Say how to come back; the exit code."""
        run = await self._conversation.last()
        if run is not None and not run.status.is_end and not self._setup.project.forgets:
            again = self._setup.project.command("chat", "--resume", str(self._conversation.session))
            say(f"Come back with: {again}")
        return code

    # -- from a pipe ----------------------------------------------------------------------------------------

    async def from_pipe(self, resume: str | None) -> int:
        """One prompt a line. A question stays open, and ends the conversation: no prompt can follow it."""
        if resume is not None:
            self._conversation.session = await self._setup.session(self._engine, self._flow, resume)
        told, worst = False, 0
        while raw := self._piped_line():
            text = raw.decode("utf-8", "replace").rstrip("\r\n")
            if not text.strip():
                continue
            if is_command(text):
                try:
                    await self._piped_command(text)
                except Leave:
                    break
                continue
            try:
                stopped = await self._conversation.request(text.strip())
            except SessionBusy as busy:
                await self._conversation.say_busy(busy, told=told)
                self._say_not_taken([text, *self._piped_rest()])
                return busy.exit_code
            if stopped.interrupted or stopped.terminated:
                self._say_not_taken(self._piped_rest())
                return INTERRUPTED
            result = await self._conversation.result(stopped)
            told, worst = result.outcome == "waiting", max(worst, exit_code(result))
        return worst

    async def _piped_command(self, text: str) -> None:
        """Perform a command; for a program its lines are one object."""
        if not self._conversation.json:
            await self._commands.perform(text)
            return
        printed = io.StringIO()
        try:
            with contextlib.redirect_stdout(printed):
                await self._commands.perform(text)
        finally:
            lines = printed.getvalue().splitlines()
            say_line({"event": "command", "command": text.strip(), "lines": lines})

    @staticmethod
    def _say_not_taken(lines: Sequence[str]) -> None:
        if lines:
            first = cut(clean(lines[0]), 60)
            warn(f"{count(len(lines), 'line')} of the input not taken, from this one on: {first}")

    @staticmethod
    def _piped_rest() -> list[str]:
        """The lines that have arrived and were not read."""
        stream = sys.stdin.buffer
        with contextlib.suppress(OSError, ValueError):
            os.set_blocking(stream.fileno(), False)
            raw = stream.read() or b""
            return [line for line in raw.decode("utf-8", "replace").splitlines() if line.strip()]
        return []

    @staticmethod
    def _piped_line() -> bytes:
        with interruptible():
            return sys.stdin.buffer.readline()
