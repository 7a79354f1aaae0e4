"""The program `detent`: its commands, and how their errors become messages and exit codes."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from copy import copy
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup
from typer.main import get_command, get_command_name
from typer.models import CommandInfo, TyperInfo

from detent.cli import (
    act,
    agreement,
    definitions,
    doctor,
    evals,
    invocation,
    models,
    new,
    replay,
    reports,
    resume,
    review,
    runs,
    schema,
    shadow,
    steps,
    store,
    trust,
)
from detent.cli import run as run_command
from detent.runtime.plugs import Kind, plugs


class Sections(TyperGroup):
    """Lists the commands of the program in sections."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write each section under its heading."""
        sections: dict[str, list[tuple[str, Any]]] = {}
        for name in self.list_commands(ctx):
            command: Any = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                heading = command.rich_help_panel
                heading = heading if isinstance(heading, str) else "Commands"
                sections.setdefault(heading, []).append((name, command))
        widest = max(len(name) for rows in sections.values() for name, _ in rows)
        for heading, rows in sections.items():
            with formatter.section(heading):
                formatter.write_dl(
                    [
                        (name.ljust(widest), command.get_short_help_str(formatter.width - widest - 6))
                        for name, command in rows
                    ]
                )


app = typer.Typer(
    cls=Sections,
    rich_markup_mode=None,  # plain help is ready in a third of the time, and reads as well
    add_completion=False,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)

GROUPS = (
    run_command, resume, new, definitions, schema, steps, runs, reports, replay, agreement, shadow, act,
    review, evals, models, doctor, store, trust,
)  # fmt: skip
for group in GROUPS:
    group.add(app)


def _version(requested: bool) -> None:
    if requested:
        typer.echo(f"detent {sys.modules['detent'].__version__}")
        raise typer.Exit


@app.callback()
def detent(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Run LLM-agent workflows as explicit, durable state machines."""


@cache
def program(called: str | None = None) -> Any:
    """Build the program, or as much of it as a command line needs whose first word is `called`.

    That is the command of this name, because building every command takes longer than most take to run; or
    for help, or an unknown command, a list of all of them.
    """
    part = copy(app)
    part.registered_commands = [item for item in app.registered_commands if called in (None, _name(item))]
    part.registered_groups = [item for item in app.registered_groups if called in (None, item.name)]
    if called is not None and (part.registered_commands or part.registered_groups):
        return get_command(part)
    named = [plug for plug in plugs() if called in (None, plug.name, *plug.top_commands)]
    for plug in named or plugs():
        section = "Look at flows" if isinstance(plug, Kind) else "Applications"
        offered = {plug.name: plug.commands} if plug.commands is not None else {}
        for name, target in {**offered, **plug.top_commands}.items():
            if not named or called in (None, name):
                _mount(part, name, plug.load(target), section)
    if not named:
        own = [] if called is None else app.registered_commands
        part.registered_commands = [_listed(item) for item in (*own, *part.registered_commands)]
        groups = (*app.registered_groups, *part.registered_groups)
        part.registered_groups = [_listed_group(item) for item in groups]
    return get_command(part)


def _mount(part: typer.Typer, name: str, offered: Any, section: str) -> None:
    """Add a plug's command, or group of commands."""
    if isinstance(offered, typer.Typer):
        part.add_typer(offered, name=name, rich_help_panel=section)
    else:
        part.command(name, rich_help_panel=section)(offered)


def _listed(command: CommandInfo) -> CommandInfo:
    """A command as a list needs it: without its parameters, which take longest to build."""

    def listed() -> None: ...

    listed.__name__, listed.__doc__ = _name(command), command.callback.__doc__
    command = copy(command)
    command.callback = listed
    return command


def _listed_group(group: TyperInfo) -> TyperInfo:
    """A group as a list needs it: without its commands."""
    group = copy(group)
    assert group.typer_instance is not None
    group.typer_instance = copy(group.typer_instance)
    group.typer_instance.registered_commands = []
    group.typer_instance.registered_groups = []
    return group


def _name(command: CommandInfo) -> str:
    return command.name or get_command_name(getattr(command.callback, "__name__", ""))


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Run the program and end the process with its exit code."""
    sys.exit(run(args))


def run(args: Sequence[str] | None = None) -> int:
    """Run the program and return its exit code. No error escapes; tracebacks are shown on request only."""
    debug = bool(os.environ.get("DETENT_DEBUG"))
    invocation.begin(args is None)
    try:
        given = sys.argv[1:] if args is None else args
        called = next((arg for arg in given if arg != "--"), "")
        code = program(called)(args=args, prog_name="detent", standalone_mode=False)
    except BrokenPipeError:
        # The reader of the output has gone: print nothing more, not even while shutting down.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130
    except SystemExit as exit:
        return exit.code if isinstance(exit.code, int) else 1
    except Exception as error:
        return _failed(error, debug)
    return code if type(code) is int else 0


def _failed(error: Exception, debug: bool) -> int:
    """Print an error in one sentence and return its exit code."""
    from detent.kernel.errors import DetentError

    while isinstance(error, ExceptionGroup):  # of concurrent work, the first failure is reported
        error = error.exceptions[0]
    if type(error).__name__ == "Abort":  # older versions of typer raise this for Ctrl-C
        return 130
    usage = getattr(error, "format_message", None)
    if usage is not None:
        return _misused(error, usage())
    if debug:
        import traceback

        traceback.print_exception(error)
    if isinstance(error, DetentError):
        _warn(str(error))
        return error.exit_code
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        _warn(f"'{Path(str(error.filename)).name[:40]}…' is too long for a name.")
        return 2
    message = " ".join(str(error).split())
    where = "see above" if debug else "set DETENT_DEBUG=1 to see where it happened"
    _warn(
        f"Unexpected {type(error).__name__}: {message} ({where})."
        if message
        else f"Unexpected {type(error).__name__}."
    )
    return 1


def _misused(error: Any, message: str) -> int:
    """Report a command line that cannot be parsed. An empty command line shows the help."""
    if type(error).__name__ == "NoArgsIsHelpError":
        typer.echo(message)
        return 2
    message = message.strip()
    command = getattr(getattr(error, "ctx", None), "command_path", "detent")
    _warn(f"{message}{'' if message.endswith(('.', '?', '!')) else '.'} See: {command} --help")
    return 2


def _warn(message: str) -> None:
    from detent.cli.output import clean, warn

    warn("\n".join(clean(line) for line in message.splitlines()))
