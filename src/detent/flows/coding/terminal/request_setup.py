"""What `run coding` and `chat` have in common: their options, and the engine they make of them."""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from detent.cli.options import Options

if TYPE_CHECKING:
    from detent.cli.workspace import Workspace
    from detent.engine.engine import Engine
    from detent.engine.ports import Tape
    from detent.flows.coding.flow import CodingFlow
    from detent.flows.coding.options import RequestOptions
    from detent.flows.coding.sessions.folder import SessionFolder
    from detent.kernel.budget import Budget
    from detent.runtime.settings import Settings


class OnConfirm(str, enum.Enum):
    """What becomes of a question that nobody can answer at once."""

    hold = "hold"
    deny = "deny"


Folder = Annotated[
    Path, typer.Option("--workspace", metavar="DIR", help="The folder to work in.", show_default=False)
]
Model = Annotated[
    str | None,
    typer.Option("--model", metavar="NAME", help="The model: an entry of `models:`, or a model's id."),
]
Allow = Annotated[
    list[str] | None,
    typer.Option(
        "--allow", metavar="TOOL[:PATTERN]",
        help="Calls that need no question: update_file:src/**, 'bash:pytest *'. May be repeated.",
    ),
]  # fmt: skip
Deny = Annotated[
    list[str] | None,
    typer.Option("--deny", metavar="TOOL[:PATTERN]", help="Calls that are refused. May be repeated."),
]
Yes = Annotated[bool, typer.Option("--yes", help="Ask nothing: every change and command is allowed.")]
ReadOnly = Annotated[bool, typer.Option("--read-only", help="Offer no tool that changes anything.")]
Confirm = Annotated[
    OnConfirm | None,
    typer.Option("--on-confirm", help="Where nobody can be asked: wait for `detent release`, or deny."),
]
DoneWhen = Annotated[
    str | None,
    typer.Option("--done-when", metavar="CMD", help="A command that must succeed before it is done."),
]
MaxIterations = Annotated[
    int | None, typer.Option("--max-iterations", metavar="N", min=1, help="Turns of the assistant.")
]


@dataclass
class RequestSetup:
    """Settings, options and workspace of requests, as one command line gives them."""

    cli: Options
    project: Workspace
    settings: Settings
    folder: Path
    """The folder that tools work in."""
    options: RequestOptions
    budget: Budget | None
    model: str | None
    """The name given with `--model`."""
    steps: Mapping[str, Any]
    """What requests keep of it, for whoever goes on with them."""

    @classmethod
    def of(
        cls,
        cli: Options,
        *,
        folder: Path,
        model: str | None,
        allow: list[str] | None,
        deny: list[str] | None,
        yes: bool,
        read_only: bool,
        on_confirm: OnConfirm | None,
        done_when: str | None,
        max_iterations: int | None,
    ) -> RequestSetup:
        """Read the command line.

        Raises:
            ConfigurationError: something in it, or in the settings, cannot be.
        """
        from detent.cli.values import read_budget
        from detent.flows.coding.options import RequestOptions
        from detent.flows.coding.request import existing_folder
        from detent.flows.coding.settings import coding_settings
        from detent.flows.coding.terminal.model_choice import own_steps, with_model
        from detent.kernel.errors import ConfigurationError

        if done_when is not None and not done_when.strip():
            raise ConfigurationError("--done-when takes a command.")
        place = existing_folder(folder)
        project = cli.workspace()
        settings = project.settings if model is None else with_model(project.settings, model)
        project.settings = settings
        given: dict[str, Any] = {} if done_when is None else {"done_when": done_when, "check_when": "always"}
        options = RequestOptions.of(
            coding_settings(settings), allow=tuple(allow or ()), deny=tuple(deny or ()), yes=yes,
            read_only=read_only, on_confirm=None if on_confirm is None else on_confirm.value,
            max_iterations=max_iterations, **given,
        )  # fmt: skip
        steps = {} if model is None else own_steps(settings)
        return cls(cli, project, settings, place, options, read_budget(cli, settings), model, steps)

    @asynccontextmanager
    async def engine(self, tape: Tape | None = None) -> AsyncIterator[tuple[Engine, CodingFlow]]:
        """The open engine, with the flow for these settings; session files are written on leaving.

        Raises:
            ConfigurationError: a rule means nothing.
            IntegrationMissing: the model that requests need cannot be asked.
        """
        from detent.flows.coding.wiring import coding_flow
        from detent.runtime.mcp import attach
        from detent.runtime.wiring import engine_for

        flow = coding_flow(self.settings)
        attach(self.project.catalog.mcp(), [flow])
        self._check_rules(flow)
        others = [source.flow for name, source in self.project.catalog.all().items() if name != flow.name]
        engine = engine_for(
            self.settings, [flow, *others], deterministic=self.cli.deterministic, tape=tape,
            agents=self.project.catalog.agents() if self.settings.section("agents") else (),
        )  # fmt: skip
        if tape is not None and tape.plays:  # what is played back did not happen
            flow.writer = flow.ended = None
        if flow.writer is not None:
            flow.writer.tell = _warn_lines
        flow.waits = None  # the terminal writes the file itself, once the question is to be asked
        async with engine:
            await self._check_model(engine, flow)
            try:
                yield engine, flow
            finally:
                if flow.writer is not None:
                    await flow.writer.flush()

    def _check_rules(self, flow: CodingFlow) -> None:
        """Raise `ConfigurationError` for a rule or a protected path that means nothing, with its place."""
        from detent.flows.coding.permission_patterns import parse_protected, parse_rule
        from detent.kernel.errors import ConfigurationError

        for pattern in flow.coding_settings.protect:
            try:
                parse_protected(pattern)
            except ConfigurationError as error:
                raise ConfigurationError(f"{self.settings.place('coding', 'protect')}: {error}") from None

        for kind in ("allow", "deny"):
            in_settings = self.settings.get("coding", "tools", kind, default=[])
            for rule in getattr(self.options, kind):
                try:
                    parse_rule(rule, flow.registry.further)
                except ConfigurationError as error:
                    if rule not in in_settings:
                        raise
                    place = self.settings.place("coding", "tools", kind)
                    raise ConfigurationError(f"{place}: {error}") from None

    async def _check_model(self, engine: Engine, flow: CodingFlow) -> None:
        from detent.dispatch.dispatcher import dispatcher_of
        from detent.runtime.model_check import check_models, uses_of

        tape = engine.active.tape
        if self.cli.deterministic or (tape is not None and tape.plays):
            return
        planner = dispatcher_of(engine)
        by = f"--model {self.model}" if self.model is not None else "`coding.steps.assistant` in the settings"
        await check_models(self.settings, planner, uses_of(planner, [flow]), required_by=by)

    def model_words(self, engine: Engine, flow: CodingFlow) -> str | None:
        """The model that is asked; None if none is."""
        from detent.dispatch.dispatcher import dispatcher_of
        from detent.runtime.model_check import uses_of

        if self.cli.deterministic:
            return None
        planner = dispatcher_of(engine)
        use = next((use for use in uses_of(planner, [flow]) if use.name == "assistant"), None)
        if use is None:
            return None
        source = planner.settings.executors
        provider = use.provider or (None if source is None else source.default)
        return " ".join(filter(None, (provider, use.model_id))) or "a model"

    async def session(self, engine: Engine, flow: CodingFlow, text: str) -> str:
        """The session that `last`, an id or its unique beginning means.

        Raises:
            ConfigurationError: there is none, or there are several.
        """
        from detent.flows.coding.request import LAST, last_session
        from detent.flows.coding.sessions.folder import SessionNotFound
        from detent.flows.coding.sessions.in_store import sessions_in

        folder = self.sessions(flow)
        if text == LAST:
            return await last_session(engine, self.folder, folder)
        if folder is None:
            return text
        try:
            return folder.find(text, self.folder)
        except SessionNotFound:
            known = await sessions_in(engine.store)  # perhaps to the store alone
            matches = [text] if text in known else [session for session in known if session.startswith(text)]
            if len(matches) == 1:
                return matches[0]
            raise

    @staticmethod
    def sessions(flow: CodingFlow) -> SessionFolder | None:
        """The folder of the session files."""
        return None if flow.writer is None else flow.writer.folder


def _warn_lines(text: str) -> None:
    from detent.cli.output import clean, warn

    for line in text.splitlines():
        warn(f"  {clean(line)}" if line.startswith(" ") else clean(line))
