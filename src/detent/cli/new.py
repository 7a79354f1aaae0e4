"""The command `new`: writes a starter definition of an installed kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from detent.cli import options

if TYPE_CHECKING:
    from detent.runtime.plugs import Kind


def add(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command(rich_help_panel="Start work")(new)


def new(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="A kind of flow.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its name, or the folder to make.")],
    template: Annotated[
        str | None, typer.Option("--template", metavar="NAME", help="The template to start from.")
    ] = None,
    config: options.Config = None,
) -> None:
    """Create a definition of your own, ready to run."""
    from detent.runtime.plugs import kind_named

    begin(kind_named(kind), name, template, config)


def begin(kind: Kind, name: str, template: str | None = None, config: str | None = None) -> None:
    """Write the starter files of a kind and print the commands to try next."""
    from detent.cli.output import clean, say
    from detent.cli.workspace import Workspace
    from detent.kernel.errors import ConfigurationError, nearest
    from detent.runtime.trust import trusted_as_made

    known = list(kind.templates)
    if not known:
        raise ConfigurationError(f"There is nothing to begin a {kind.name} with.")
    if template is not None and template not in known:
        raise ConfigurationError(
            f"There is no template '{template}' for a {kind.name}.{nearest(template, known)} "
            f"Templates: {', '.join(known)}."
        )
    settings = Workspace(None, config, looks=True).settings
    try:
        beginning = kind.begin(name, template or known[0], settings)
        with trusted_as_made(settings.folder, config):
            for file, text in beginning.files.items():
                file.parent.mkdir(parents=True, exist_ok=True)
                with file.open("x", encoding="utf-8") as out:
                    out.write(text)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is no usable path"
        raise ConfigurationError(f"{clean(name)} cannot be written: {why}.") from None
    say(f"{clean(beginning.said)} Try:")
    for command in beginning.commands:
        say(f"  {command}")
    if beginning.note:
        say(beginning.note)
