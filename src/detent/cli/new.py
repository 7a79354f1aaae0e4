"""The command `new`: writes the starter files of an installed kind or application."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from detent.cli.options import Options, takes

if TYPE_CHECKING:
    from detent.runtime.plugs import Plug


def add(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command(rich_help_panel="Start work")(new)


@takes("config")
def new(
    options: Options,
    kind: Annotated[str, typer.Argument(metavar="KIND|APP", help="A kind of flow, or an application.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its name, or the folder to make.")],
    template: Annotated[
        str | None, typer.Option("--template", metavar="NAME", help="The template to start from.")
    ] = None,
) -> None:
    """Create a definition of your own, ready to run."""
    from detent.runtime.plugs import beginning_with

    begin(beginning_with(kind), name, template, options.config)


def begin(plug: Plug, name: str, template: str | None = None, config: str | None = None) -> None:
    """Write the starter files of a kind or an application and print the commands to try next."""
    from detent.adapters.disk import private_folder
    from detent.cli.output import clean, say
    from detent.cli.workspace import Workspace
    from detent.kernel.errors import ConfigurationError, nearest
    from detent.runtime.trust import trusted_as_made

    known = list(plug.templates)
    if template is not None and template not in known:
        raise ConfigurationError(
            f"There is no template '{template}' for a {plug.name}.{nearest(template, known)} "
            f"Templates: {', '.join(known)}."
        )
    settings = Workspace(None, config, looks=True).settings
    try:
        beginning = plug.begin(name, template or known[0], settings)
        with trusted_as_made(beginning.project or settings.folder, config):
            for file, content in beginning.files.items():
                file.parent.mkdir(parents=True, exist_ok=True)
                with file.open("xb") as out:
                    out.write(content.encode() if isinstance(content, str) else content)
            for folder in beginning.folders:
                private_folder(folder)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is no usable path"
        raise ConfigurationError(f"{clean(name)} cannot be written: {why}.") from None
    say(f"{clean(beginning.message)} Try:")
    for command in beginning.commands:
        say(f"  {command}")
    if beginning.note:
        say(beginning.note)
