"""The command `schema`: the JSON Schema of a kind of file, for editors."""

from __future__ import annotations

from typing import Annotated

import typer

SECTION = "Look at flows"
SETTINGS = "settings"
"""Name of the project file's schema, beside the kinds."""
CASE = "case"
"""Name of the schema of eval cases."""


def add(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command("schema", rich_help_panel=SECTION)(schema)


def schema(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND", help="A kind of flow whose files have a schema, or case, or settings."
        ),
    ],
) -> None:
    """Print the JSON Schema of a kind of file, for editors."""
    from detent.cli.output import say_json
    from detent.cli.workspace import Workspace
    from detent.kernel.errors import ConfigurationError, nearest
    from detent.runtime.plugs import kinds
    from detent.runtime.settings import settings_schema

    if kind == SETTINGS:
        say_json(settings_schema(Workspace(None, None, None, looks=True).catalog.headings()))
        return
    if kind == CASE:
        from detent.evals.reading import json_schema

        say_json(json_schema())
        return
    known = {plug.name: plug for plug in kinds() if plug.schema is not None}
    if kind not in known:
        names = [*known, CASE, SETTINGS]
        raise ConfigurationError(
            f"There is no schema of '{kind}'.{nearest(kind, names)} Schemas: {', '.join(names)}."
        )
    plug = known[kind]
    assert plug.schema is not None
    say_json(plug.load(plug.schema)())
