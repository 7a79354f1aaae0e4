"""The commands `playbook new`, `check`, `diagram`, `step`: the general ones for one kind."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from detent.cli import definitions
from detent.cli.new import begin
from detent.cli.options import Options, Output, Set, StepData, Strict, takes
from detent.flows.playbook.kind import KIND

playbook = typer.Typer(
    help="Start, check, draw and try playbooks.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Folder = Annotated[
    str, typer.Argument(metavar="DIR", help="A playbook's folder, or its name under playbooks/.")
]


@playbook.command("new")
def new(
    folder: Annotated[
        str, typer.Argument(metavar="DIR", help="The folder to make; it may not hold anything.")
    ],
) -> None:
    """Start a playbook of three small steps, ready to run.

    With a sample input and a case.
    """
    begin(KIND, folder)


@playbook.command("check")
@takes("format", "json", "plugin", "config")
def check(options: Options, folder: Folder, strict: Strict = False) -> int:
    """Check a playbook: every problem of every file at once.

    Each is printed as `file:line:column: code message (path)`.
    """
    return definitions.check_all(options, [folder], strict=strict, kind=KIND)


@playbook.command("diagram")
@takes("plugin", "config")
async def diagram(
    options: Options,
    folder: Folder,
    output: Output = None,
    write: Annotated[
        bool, typer.Option("--write", help="Write it as WORKFLOW.md among the playbook's files.")
    ] = False,
) -> None:
    """Draw a playbook as a Mermaid diagram.

    With --output FILE.md as a page, with the purpose of each step.
    """
    from detent.flows.playbook.drawing import PAGE
    from detent.flows.playbook.folder import PlaybookFolder
    from detent.flows.playbook.library import find_playbook
    from detent.kernel.errors import ConfigurationError
    from detent.runtime.trust import trusted_as_made

    here = Path.cwd()
    if write and output is not None:
        raise ConfigurationError("--write names the file itself; leave out --output.")
    if write:
        output = PlaybookFolder.at(find_playbook(folder, here)).root / PAGE
        output = output.relative_to(here) if output.is_relative_to(here) else output
    with trusted_as_made(here, options.config):
        await definitions.draw(options, folder, definitions.Picture.mermaid, output=output, kind=KIND)


@playbook.command("step")
@takes("deterministic", "json", "plugin", "config", "log")
async def step(
    options: Options,
    folder: Folder,
    step_id: Annotated[str, typer.Argument(metavar="ID", help="The step: id, alias, or how it begins.")],
    data: StepData = None,
    set_: Set = None,
) -> int:
    """Try one step alone.

    Queries are asked, effects are shown and not performed, nothing is kept.
    """
    return await definitions.try_step(options, folder, step_id, data, set_, kind=KIND)
