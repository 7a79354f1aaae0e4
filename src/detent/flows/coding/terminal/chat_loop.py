"""A conversation at the prompt, or with one prompt a line from a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from detent.cli.output import clean, paint, say, warn
from detent.cli.signals import INTERRUPTED
from detent.flows.coding.request import SessionBusy, is_interrupted, last_run
from detent.flows.coding.request_data import RequestData
from detent.flows.coding.terminal.completion import Completion
from detent.flows.coding.terminal.conversation import Conversation
from detent.flows.coding.terminal.ending import exit_code, tell
from detent.flows.coding.terminal.following import driver_words
from detent.flows.coding.terminal.interrupts import Interrupts
from detent.flows.coding.terminal.plain_text import one_line
from detent.flows.coding.terminal.prompt_history import PromptHistory
from detent.flows.coding.terminal.prompt_line import PromptLine, interruptible
from detent.flows.coding.terminal.slash_commands import COMMANDS, Leave, SlashCommands, is_command
from detent.kernel.errors import ConfigurationError, DetentError
from detent.kernel.status import Status

if TYPE_CHECKING:
    from detent.engine.engine import Engine
    from detent.flows.coding.flow import CodingFlow
    from detent.flows.coding.terminal.request_setup import RequestSetup

ANSWER_HERE = '  Or answer it here: "continue".'
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
        self._conversation = Conversation(setup, engine, flow, line=self._line)
        self._commands = SlashCommands(self._conversation, self._attach)
        self._keys = 0
        """How often Ctrl-C was pressed in a row."""

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
        begun, runner.typed = runner.typed.rstrip("\n"), ""
        assert self._line is not None
        try:
            prompt = f"{paint('>', 'cyan', bold=True)} "
            text = self._line.read(prompt, begun=begun, interrupted=interrupts.take)
        except EOFError:
            say()
            return 0
        except KeyboardInterrupt:
            say()
            self._keys += 1
            if self._keys > 1:
                return INTERRUPTED
            say(paint(LEAVE_HINT, dim=True))
            return None
        self._keys = 0
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
        if stopped.asked:
            say(paint(ANSWER_HERE, dim=True))
        self._keys = int(stopped.interrupted)
        return stopped.terminated

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
        say(f"Session {session} is being worked on by {who}. Following it; Ctrl-C stops that.")
        run = await self._conversation.follow(run_id)
        if run.status.is_end:
            await tell(self._setup.project, self._engine, run)

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
        prompt = one_line(RequestData(run.data).prompt)[:200]
        say(f"{paint('>', 'cyan', bold=True)} {paint(clean(prompt), dim=True)}")
        if run.status is Status.RUNNING and not await is_interrupted(self._engine, run.id):
            await self._follow(run.id)
            return
        await tell(self._setup.project, self._engine, run)
        if not run.status.is_end:
            say(paint('  "continue" goes on with it here.', dim=True))

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
                    await self._commands.perform(text)
                except Leave:
                    break
                continue
            try:
                stopped = await self._conversation.request(text.strip())
            except SessionBusy as busy:
                await self._conversation.say_busy(busy, told=told)
                return busy.exit_code
            if stopped.interrupted or stopped.terminated:
                return INTERRUPTED
            result = await self._conversation.result(stopped)
            told, worst = result.outcome == "waiting", max(worst, exit_code(result))
        return worst

    @staticmethod
    def _piped_line() -> bytes:
        with interruptible():
            return sys.stdin.buffer.readline()
