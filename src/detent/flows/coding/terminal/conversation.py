"""Requests of one session in one engine: each is started or gone on with, shown, asked about, and told of."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from detent.cli.output import clean, cut, paint, say, warn
from detent.flows.coding.request import SessionBusy, is_interrupted, last_run, start_request
from detent.flows.coding.request_data import RequestData
from detent.flows.coding.result import CodingResult, result_of
from detent.flows.coding.terminal.display import RequestDisplay
from detent.flows.coding.terminal.ending import tell
from detent.flows.coding.terminal.following import Follower
from detent.flows.coding.terminal.plain_text import one_line
from detent.flows.coding.terminal.prompt_line import PromptLine, is_interactive
from detent.flows.coding.terminal.request_runner import RequestRunner, Stopped
from detent.flows.coding.terminal.transition_lines import (
    TransitionLines,
    TransitionLog,
    result_object,
    say_line,
)
from detent.kernel.run_config import STEPS
from detent.kernel.status import Status

if TYPE_CHECKING:
    from detent.engine.engine import Engine
    from detent.flows.coding.flow import CodingFlow
    from detent.flows.coding.options import RequestOptions
    from detent.flows.coding.terminal.request_setup import RequestSetup
    from detent.kernel.run import Run

CONTINUE = "continue"
GO_ON_HERE = '"continue" goes on with it here; another prompt cancels it.'


class Conversation:
    """The requests of a session, one after another."""

    def __init__(
        self,
        setup: RequestSetup,
        engine: Engine,
        flow: CodingFlow,
        *,
        session: str | None = None,
        line: PromptLine | None = None,
        announces: bool = False,
        is_chat: bool = False,
    ) -> None:
        """Without a `session` the first request begins one. Questions are asked on `line`, or stay open."""
        self._is_chat = is_chat
        self.setup, self.engine, self.flow = setup, engine, flow
        self.session = session
        self.options: RequestOptions = setup.options
        self.model = setup.model_words(engine, flow)
        """The model that is asked; None if none is."""
        cli = setup.cli
        self.json, self.quiet = cli.json, cli.quiet
        self._announces = announces and not (cli.json or cli.quiet)
        self.display: RequestDisplay | None = None
        shown: AbstractContextManager[Any] | None = None
        if self.json:
            shown = TransitionLines(flow.name)
        elif not self.quiet:
            shown = self.display = RequestDisplay(flow.name)
        for observer in (shown, TransitionLog(flow.name)):
            if observer is not None:
                engine.add_observer(observer)
        self.follower = None if self.display is None else Follower(engine, self.display)
        """Shows what other processes do in the session; None where nothing is shown."""
        self.runner = RequestRunner(
            engine, flow, display=shown, line=None if self.json else line, way_on=self._way_on
        )

    @classmethod
    def on_terminal(cls, setup: RequestSetup, engine: Engine, flow: CodingFlow, **more: Any) -> Conversation:
        """A conversation whose questions are asked at once if a person is there."""
        return cls(setup, engine, flow, line=PromptLine() if is_interactive() else None, **more)

    def _way_on(self, run_id: str) -> str:
        if self.setup.project.forgets:
            return "The request is not kept."
        if self._is_chat:
            return f"Come back with: {self.setup.project.command('chat', '--resume', str(self.session))}"
        return f"Go on with: {self.setup.project.command('resume', run_id)}"

    def allow(self, rule: str) -> None:
        """Need no question for some calls, from the next request on."""
        self.options = replace(self.options, allow=(*self.options.allow, rule))

    async def last(self) -> Run | None:
        """The session's latest request."""
        return None if self.session is None else await last_run(self.engine, self.session)

    async def request(self, prompt: str) -> Stopped:
        """Have a request done; `continue` goes on with one that is still open.

        Raises:
            SessionBusy: the session's last request is under way elsewhere, or waits for an answer.
            ConfigurationError: the prompt cannot be a request.
        """
        run_id = await self._open_request(prompt)
        if run_id is None:
            before = await self.last()
            started = await start_request(
                self.engine, prompt, workspace=self.setup.folder, options=self.options,
                session=self.session, folder=self.setup.sessions(self.flow), budget=self.setup.budget,
                steps=self.setup.steps, drive=False,
            )  # fmt: skip
            run_id, self.session = started.run_id, started.session_id
            if before is not None and not before.status.is_end:
                await self._say_cancelled(before.id)
            if self._announces:
                say(f"{paint('coding', bold=True)}  {cut(clean(one_line(prompt)), 60)}")
        return await self.run(run_id)

    async def _say_cancelled(self, run_id: str) -> None:
        """Say that a prompt has ended the request that was open before it."""
        run = await self.engine.get(run_id)
        if run.status is not Status.CANCELLED:
            return
        if self.json:
            say_line({"event": "cancelled", "run_id": run.id, "reason": run.reason})
        elif not self.quiet:
            prompt = cut(clean(one_line(RequestData(run.data).prompt)), 60)
            say(paint(f"The request before it is cancelled: {prompt}", "yellow"))

    async def _open_request(self, prompt: str) -> str | None:
        """The request that a prompt goes on with."""
        if prompt.strip().rstrip(".!").casefold() != CONTINUE:
            return None
        run = await self.last()
        if run is None or run.status.is_end:
            return None
        if run.status is Status.RUNNING and not await is_interrupted(self.engine, run.id):
            return None  # start_request says who has it
        own = run.config.get(STEPS)
        if own and self.setup.steps not in ({}, own):
            chosen = own.get("assistant", {})
            name = " ".join(str(chosen[key]) for key in ("provider", "model_id") if chosen.get(key))
            warn(clean(f"It goes on with the model it was begun with: {name}. --model is for new prompts."))
        return run.id

    async def run(self, run_id: str) -> Stopped:
        """Drive a request and print how it was left."""
        stopped = await self.runner.run(run_id)
        while stopped.elsewhere:
            self.note(stopped.run)
            run = await self.follow(run_id)
            if run.status is Status.WAITING and not self.left_following:  # nobody else asks it
                stopped = await self.runner.run(run_id)
            else:
                stopped = stopped._replace(run=run, elsewhere=False)
        if not self.left_following:
            self.note(stopped.run)
        if self.json:
            result = await self.result(stopped)
            say_line(await result_object(self.engine, result))
        else:
            if stopped.interrupted and self.display is not None:
                self.display.discard()
            await self.tell(stopped.run, asked=stopped.asked)
        return stopped

    async def tell(self, run: Run, *, asked: bool = False) -> None:
        """Print how a request ended, or what it waits for and how it goes on; its question was `asked`."""
        go_on = GO_ON_HERE if self._is_chat else None
        await tell(self.setup.project, self.engine, run, whole=self.quiet, asked=asked, go_on=go_on)

    def note(self, run: Run) -> None:
        """A request has been shown as it stands."""
        if self.follower is not None:
            self.follower.note(run)

    async def follow(self, run_id: str) -> Run:
        """Show a request that another process drives, until it ends or stops, or Ctrl-C is pressed."""
        if self.follower is None:
            return await self.engine.get(run_id)
        run = await self.follower.follow(run_id, self.runner.interrupts, lambda: self._way_on(run_id))
        self.runner.typed += self.follower.take()
        return run

    @property
    def left_following(self) -> bool:
        """Whether the person did not want to follow any longer."""
        return self.follower is not None and self.follower.left

    async def news(self) -> Run | None:
        """A request of the session in which something has happened elsewhere that was not shown."""
        if self.follower is None or self.session is None or self.setup.project.forgets:
            return None
        return await self.follower.news(self.session)

    async def result(self, stopped: Stopped) -> CodingResult:
        """The result of a request as it was left."""
        return await result_of(self.engine, stopped.run.id)

    async def say_busy(self, busy: SessionBusy, *, told: bool = False) -> Run | None:
        """Say why a prompt is refused, and what answers an open question unless that was `told`; the open
        request."""
        warn(clean(str(busy)))
        run = await last_run(self.engine, busy.session)
        if run is not None and run.status is Status.WAITING and not (self.json or told):
            await tell(self.setup.project, self.engine, run)
        return run
