"""`run coding`: one request, from the prompt to its end."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from detent.cli.options import Options, takes
from detent.flows.coding.terminal.request_setup import (
    Allow,
    Confirm,
    Deny,
    DoneWhen,
    Folder,
    MaxIterations,
    Model,
    ReadOnly,
    RequestSetup,
    Yes,
)

if TYPE_CHECKING:
    from detent.engine.ports import Tape


@takes("deterministic", "record", "replay", "budget", "json", "quiet", "project", "log")
async def run(
    options: Options,
    prompt: Annotated[
        str, typer.Argument(metavar="PROMPT", help="What is to be done; - reads it from stdin.")
    ],
    workspace: Folder = Path(),
    session: Annotated[
        str | None, typer.Option("--session", metavar="ID|last", help="Go on with a session.")
    ] = None,
    model: Model = None,
    allow: Allow = None,
    deny: Deny = None,
    yes: Yes = False,
    read_only: ReadOnly = False,
    on_confirm: Confirm = None,
    done_when: DoneWhen = None,
    max_iterations: MaxIterations = None,
) -> int:
    """Have one request done in a workspace.

    Without a model, plain requests are understood: show, list, find, grep, replace … with … in …, run tests.
    Exit code 0: done, or waiting for an answer; 1: not finished; 3: the model cannot be reached.
    """
    from detent.cli.record import exit_code, tape

    text = sys.stdin.buffer.read().decode("utf-8", "replace") if prompt == "-" else prompt
    setup = RequestSetup.of(
        options, folder=workspace, model=model, allow=allow, deny=deny, yes=yes, read_only=read_only,
        on_confirm=on_confirm, done_when=done_when, max_iterations=max_iterations,
    )  # fmt: skip
    silent = options.json or options.quiet
    with tape(options, setup.settings, ["coding"], json=silent) as recording:
        return exit_code(recording, await _run(setup, text, session, recording))


async def _run(setup: RequestSetup, prompt: str, session: str | None, recording: Tape | None) -> int:
    from detent.cli.output import say
    from detent.cli.signals import INTERRUPTED
    from detent.flows.coding.explicit_assistant import NEEDS_MODEL, NEEDS_PERSON
    from detent.flows.coding.request import SessionBusy
    from detent.flows.coding.terminal.conversation import Conversation
    from detent.flows.coding.terminal.ending import exit_code

    async with setup.engine(recording) as (engine, flow):
        known = None if session is None else await setup.session(engine, flow, session)
        conversation = Conversation.on_terminal(setup, engine, flow, session=known, announces=True)
        try:
            stopped = await conversation.request(prompt)
        except SessionBusy as busy:
            await conversation.say_busy(busy)
            return busy.exit_code
        if stopped.interrupted:
            return INTERRUPTED
        result = await conversation.result(stopped)
        if (
            result.outcome == "incomplete"
            and result.reason not in (NEEDS_MODEL, NEEDS_PERSON)
            and not setup.project.forgets
        ):
            command = setup.project.command("run", "coding", "continue", "--session", "last")
            if not (setup.cli.json or setup.cli.quiet):
                say(f"  Continue with: {command}")
        return exit_code(result)
