"""`chat`: a conversation with the coding assistant."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

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


@takes("deterministic", "budget", "json", "quiet", "project", "log")
async def chat(
    options: Options,
    resume: Annotated[
        str | None, typer.Option("--resume", metavar="ID|last", help="Go on with a session.")
    ] = None,
    workspace: Folder = Path(),
    model: Model = None,
    allow: Allow = None,
    deny: Deny = None,
    yes: Yes = False,
    read_only: ReadOnly = False,
    on_confirm: Confirm = None,
    done_when: DoneWhen = None,
    max_iterations: MaxIterations = None,
) -> int:
    """Chat with the coding assistant.

    Ctrl-C interrupts a request, and "continue" goes on with it; /help lists what else there is. Without a
    terminal, each line of standard input is a prompt.
    """
    from detent.flows.coding.terminal.chat_loop import ChatLoop
    from detent.flows.coding.terminal.prompt_line import is_interactive

    setup = RequestSetup.of(
        options, folder=workspace, model=model, allow=allow, deny=deny, yes=yes, read_only=read_only,
        on_confirm=on_confirm, done_when=done_when, max_iterations=max_iterations,
    )  # fmt: skip
    interactive = is_interactive() and not options.json
    async with setup.engine() as (engine, flow):
        loop = ChatLoop(setup, engine, flow, interactive=interactive)
        return await (loop.at_terminal(resume) if interactive else loop.from_pipe(resume))
